"""Public item features as a parameter of models: their check, and the ledger's note."""

from typing import Any

from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures

_USE = "Their weight is fitted to the noisy release, at no further cost."


def align_features(model: Any, data: Interactions) -> AlignedFeatures | None:
    """Return a model's features in the order of the items, or raise; to be called before the first round."""
    if model.item_features is None:
        return None
    return model.item_features.align("item_features", data.item_ids)


def note_features(model: Any, features: AlignedFeatures | None, *, are_used: bool, use: str = _USE) -> None:
    """Note in the ledger which features were given and which assumption they need."""
    if features is None:
        return
    n_items, given = features.blocks[0].shape[0], model.item_features
    model.ledger_.note(
        f"{type(model).__name__} assumes that its item features are public and were made without users' data. They are "
        f"{', '.join(given.names)} of {features.n_known} of {n_items} items (digest {given.digest[:16]}).",
        "assumption",
    )
    note = use if are_used else "They have no effect, because no pairs were released."
    if len(features.unlisted):
        first = id_at(features.unlisted, 0)
        note += f" {len(features.unlisted)} of their ids are not in the list of items; the first is {first!r}."
    model.ledger_.note(f"{type(model).__name__} received item features. {note}", "choice")
