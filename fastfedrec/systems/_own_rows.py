"""Models whose devices need nothing but what was released and their own rows.

A subclass overrides `_as_fitted` where `fit` takes rows otherwise, and `_serving` where a device computes something of
its user's own: from that user's row alone, so that whoever else is served with it makes no difference.
"""

from collections.abc import Callable
from typing import ClassVar, Self

from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._inputs import check_interactions, check_not_negative
from fastfedrec.systems.recommender import Recommender


class OwnRows(Recommender):
    """A model that serves anybody who has rows over its items."""

    #: Whether it does: some need who they were fitted on.
    serves_others: ClassVar[bool] = True

    def with_users(self, interactions: InteractionsLike) -> Self:
        """Serve other users with what was released, without refitting and at no cost to anybody.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Their data, over the same items and as `fit` takes them; a user may have nothing.

        Returns
        -------
        Recommender
            A model of its own for these users.

        Raises
        ------
        TypeError
            The model serves only those whom it was fitted on.
        ValueError
            Other items than the model was fitted on, no user, or a value below 0 where the model is of counts.
        """
        model = self._fitted()
        if not self.serves_others:
            raise TypeError(
                f"{type(self).__name__} serves only the users it was fitted on; fit it again with the others, or use "
                "a model that learns of items"
            )
        items = model.interactions_.item_ids
        data = check_interactions(interactions, may_be_empty=True, least_users=1, item_ids=items)
        if not hasattr(model, "predict"):  # which models of ratings have
            check_not_negative(model, data)
        return model._serving(model._as_fitted(data))

    def _bring(self, people: Callable[[], InteractionsLike]) -> Self:
        return self.with_users(people())

    def _as_fitted(self, data: Interactions) -> Interactions:
        """Rows as `fit` looks at them."""
        return data.binarize()
