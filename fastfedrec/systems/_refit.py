"""Another fit of a fitted model on the same users, with the items and the ledger of the earlier one."""

from typing import Any, TypeVar

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.core.check import check_instance
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions

Model = TypeVar("Model")


def refit(self: Model, interactions: InteractionsLike, *, ledger: Ledger | None = None, **options: Any) -> Model:
    """Fit this model again on newer data of the same users, and add the cost to its ledger.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        All data of the users up to now; users may be new.  A matrix or a frame has the items of the earlier fit.
        `Interactions` may have further items.
    ledger : Ledger or None
        A ledger that holds the cost of the earlier fit; None takes `ledger_`.  One with a budget refuses a fit that
        would exceed it, and the model keeps its earlier releases.
    **options : object
        Further arguments of `fit`.

    Returns
    -------
    Recommender
        This model, fitted again with the same parameters.  The ledger has a note with the cost of this fit alone.

    Raises
    ------
    RuntimeError
        The model is not fitted.
    ValueError
        The ledger lacks an event of the earlier fit, or the data lack an item.

    Notes
    -----
    The fit does not use the earlier releases.
    """
    model: Any = self
    model._fitted()  # raises before a fit
    earlier: Ledger = model.ledger_
    data = _with_items(interactions, model.interactions_.item_ids)
    ledger = earlier if ledger is None else check_instance("ledger", ledger, Ledger, "pass model.ledger_")
    # Both releases are of the same users, so a ledger without the first one would understate their cost.
    if missing := earlier.events - ledger.events:
        raise ValueError(
            f"`ledger` must hold the costs of the model's earlier fit, got none of {next(iter(missing)).mechanism!r}; "
            "pass the ledger of that fit, or None"
        )
    model.fit(data, ledger=ledger, **options)  # as for each fit with an earlier ledger, the ledger notes its cost
    return self


def _with_items(interactions: InteractionsLike, item_ids: np.ndarray) -> Interactions:
    """Return interactions over the items of the earlier fit; `Interactions` may have further items."""
    if not isinstance(interactions, Interactions):
        return as_interactions("interactions", interactions, item_ids=item_ids)
    known = set(interactions.item_ids.tolist())
    if missing := [item for item in item_ids.tolist() if item not in known]:
        raise ValueError(
            f"`interactions` must have all items of the earlier fit, got none with id {missing[0]!r}; build them with "
            "item_ids= the earlier public list, with new items added"
        )
    return interactions
