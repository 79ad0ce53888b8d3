"""Who answers for which users: the model itself, or the model that serves those who are given."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.ids import IdIndex
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned
from fastfedrec.evaluation.metrics.scoring import knows

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the tested users, and the model that answers for them.

    Parameters
    ----------
    model : object
        Knows these users by their ids.
    users : ndarray of int64
        Rows of what is aligned, ascending.
    """

    model: Any
    users: NDArray[np.int64]


def parts_of(
    model: Any, aligned: Aligned, given: Interactions | None, *, of_ratings: bool
) -> tuple[Aligned, list[Part]]:
    """Divide the tested users between the model and its copy that serves those who are given.

    Parameters
    ----------
    model : object
        As `evaluate` takes it.
    aligned : Aligned
        Of train, given and test.
    given : Interactions or None
        As `evaluate` takes it.
    of_ratings : bool
        Whether ratings are predicted, which nobody can of items that the model was not fitted on.

    Returns
    -------
    aligned : Aligned
        Without users and items that nobody can answer for, which are counted.
    parts : list of Part
        All that are left.

    Raises
    ------
    ValueError
        Nobody is left.
    """
    kept = aligned.is_given | knows(model, "user", aligned.user_ids)
    serves = not is_ours(model) or (hasattr(model, "with_users") and getattr(model, "serves_others", True))
    if not serves:
        kept &= ~aligned.is_given
    aligned = aligned.take(kept, "unknown_users")
    if of_ratings:
        aligned = aligned.keep(knows(model, "item", aligned.item_ids)[aligned.test[1]], "unknown_items")
    if not aligned.n_users:
        why = (
            "" if serves or given is None else f", and {type(model).__name__} serves nobody whom it was not fitted with"
        )
        if not any(aligned.dropped.values()):
            why = f"; test is empty, and nothing can be held out of a user with a single item{why}"
        raise ValueError(f"test has nothing to rank: no interaction is left, dropped were {aligned.dropped}{why}")
    parts = []
    if (rows := np.flatnonzero(~aligned.is_given)).size:
        parts.append(Part(model, rows))
    if given is not None and (rows := np.flatnonzero(aligned.is_given)).size:
        server = model.with_users(_over_items(given, aligned.user_ids[rows], model)) if is_ours(model) else model
        parts.append(Part(server, rows))
    return aligned, parts


def is_ours(model: Any) -> bool:
    """Whether a model says what it was fitted on, as those of this package do; others are asked by ids alone."""
    return isinstance(getattr(model, "interactions_", None), Interactions)


def _over_items(given: Interactions, user_ids: np.ndarray, model: Any) -> Interactions:
    """What is given of these users, over the items of the model; others it can do nothing with."""
    part = given._take_users(given.user_index(user_ids))
    fitted = model.interactions_
    if np.array_equal(part.item_ids, fitted.item_ids):
        return part
    columns = IdIndex("item", fitted.item_ids).find(part.item_ids)
    part = part._keep(columns[part.indices] >= 0)
    rows = np.repeat(np.arange(part.n_users), part.interactions_per_user())
    order = np.lexsort((columns[part.indices], rows))
    changes = {
        name: entries[order] for name in ("values", "timestamps") if (entries := getattr(part, name)) is not None
    }
    return part._replace(
        indices=columns[part.indices][order].astype(np.int32),
        item_ids=fitted.item_ids,
        item_features=fitted.item_features,
        catalogue=fitted.catalogue,
        **changes,
    )
