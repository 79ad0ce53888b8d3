"""Base class of models that accept public item features: the parameter, its digest in a file, and the ledger's note."""

from typing import Any, ClassVar, Self

from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.systems._own_rows import OwnRows
from fastfedrec.systems._saved import SavedModel


class FeaturedModel(OwnRows):
    """A model with the parameter `item_features`, which only the server uses, after the noise."""

    item_features: ItemFeaturesLike

    def _features_of(self, data: Interactions) -> AlignedFeatures | None:
        """Return the features in the order of the items, or raise; to be called before the first round."""
        if self.item_features is None:
            return None
        return self.item_features.align("item_features", data.item_ids)

    #: Use of the features, for the ledger.
    _feature_use: ClassVar[str] = "how far they are believed is fitted to the noisy release"

    def _note_features(self, features: AlignedFeatures | None, *, are_used: bool) -> None:
        """Note in the ledger which features were given and which assumption they need."""
        if features is None:
            return
        n_items, given = features.blocks[0].shape[0], self.item_features
        note = (
            f"{type(self).__name__}: public item features were given ({', '.join(given.names)}; of {features.n_known} "
            f"of {n_items} items; digest {given.digest[:16]}); they are assumed to be public and made without users' "
            "data: not covered"
        )
        if are_used:
            note += f"; {self._feature_use}, which costs nothing more"
        else:
            note += "; nothing was made of them, since no pairs were released"
        if len(features.unlisted):
            first = id_at(features.unlisted, 0)
            note += f"; {len(features.unlisted)} of their ids are none of the items, the first is {first!r}"
        self.ledger_.note(note)

    @classmethod
    def _from_saved(cls, saved: SavedModel) -> Self:
        model = super()._from_saved(saved)
        if model.item_features is not None and model.item_features.blocks:
            raise saved.error("parameters", "item_features must be null or a digest")
        return model

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the arguments with the digest instead of the features, since the factors contain their effect."""
        features = self.item_features
        return super()._saved_parameters() | {"item_features": None if features is None else features.digest}
