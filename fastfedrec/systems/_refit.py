"""Another fit of a fitted model on the same users, with the items and the ledger of the earlier one."""

from typing import Any

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.core.check import check_instance
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions


def refit(model: Any, interactions: InteractionsLike, ledger: Ledger | None, options: dict[str, Any]) -> Any:
    """Fit `model` again; as for each fit with an earlier ledger, the ledger notes the cost of this fit alone."""
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
    return model.fit(data, ledger=ledger, **options)


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
