"""Assignment of tested users to the model itself, or to its copy that serves the given users."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.ids import IdIndex
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned
from fastfedrec.evaluation.metrics.scoring import is_known

__all__ = ["Part", "parts_of"]

# Usual causes of a test without interactions, by the reason that drops most of them.
_CAUSES = {
    "unknown_users": "pass given= with rows of users who are not in train, such as those of UserHoldout",
    "seen_again": "test must not be a part of train",
    "not_relevant": "lower threshold",
}


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the tested users, and the model that scores items for them."""

    model: Any
    # Ascending rows of `Aligned`.
    users: NDArray[np.int64]


def parts_of(
    model: Any, aligned: Aligned, given: Interactions | None, *, of_ratings: bool
) -> tuple[Aligned, list[Part]]:
    """Drop users, and items of rating tests, that the model cannot score, and assign the remaining users to models."""
    mask = aligned.is_given | is_known(model, "user", aligned.user_ids)
    serves = not has_fit_data(model) or (hasattr(model, "with_users") and getattr(model, "serves_others", True))
    if not serves:
        mask &= ~aligned.is_given
    aligned = aligned.take(mask, "unknown_users")
    if of_ratings:
        # A ranking puts unknown items last, but no rating of them can be predicted.
        aligned = aligned.keep(is_known(model, "item", aligned.item_ids)[aligned.test[1]], "unknown_items")
    if not aligned.n_users:
        reason = "" if serves or given is None else f", and {type(model).__name__} serves only users it was fitted on"
        numbers = {name: aligned.dropped.get(name, 0) for name in _CAUSES}
        largest = max(numbers, key=numbers.__getitem__)
        reason += f"; {_CAUSES[largest]}" if numbers[largest] else ""
        if not any(aligned.dropped.values()):
            reason = f"; test is empty, and a user with a single item has no item to hold out{reason}"
        raise ValueError(
            f"test must have an interaction to rank, but none remains; dropped interactions: {aligned.dropped}{reason}"
        )
    parts = []
    if (rows := np.flatnonzero(~aligned.is_given)).size:
        parts.append(Part(model, rows))
    if given is not None and (rows := np.flatnonzero(aligned.is_given)).size:
        server = model
        if has_fit_data(model):
            server = model.with_users(_over_model_items(given, aligned.user_ids[rows], model))
        parts.append(Part(server, rows))
    return aligned, parts


def has_fit_data(model: Any) -> bool:
    """Return whether a model has the interactions it was fitted on, as models of this package do."""
    return isinstance(getattr(model, "interactions_", None), Interactions)


def _over_model_items(given: Interactions, user_ids: np.ndarray, model: Any) -> Interactions:
    """Return the given rows of some users over the model's items, without items that the model does not know."""
    part = given._take_users(given.user_index(user_ids))
    fitted = model.interactions_
    if np.array_equal(part.item_ids, fitted.item_ids):
        return part
    columns = IdIndex("item", fitted.item_ids).find(part.item_ids)
    part = part._keep(columns[part.indices] >= 0)
    rows = np.repeat(np.arange(part.n_users), part.interactions_per_user())
    # Rows must be sorted by the model's item order.
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
