"""Base class of models that serve a user with the released arrays and the user's row only.

A subclass overrides `_as_fitted` if `fit` transforms rows, and `_serving` if a device computes something from its
user's row.  That result must depend on this row alone, not on the other users of the call.
"""

from collections.abc import Callable
from typing import ClassVar, Self

from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._inputs import check_interactions, check_not_negative
from fastfedrec.systems.recommender import Recommender


class OwnRows(Recommender):
    """A model that serves any user with a row over its items."""

    #: False for a model that serves only the users of its fit.
    serves_others: ClassVar[bool] = True

    def with_users(self, interactions: InteractionsLike) -> Self:
        """Serve other users with the released arrays, without another fit and at no cost to any user.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            The users' data, over the same items and in the form that `fit` takes; a user may have no items.

        Returns
        -------
        Recommender
            A new model for these users.

        Raises
        ------
        TypeError
            The model serves only the users of its fit.
        ValueError
            The items differ from the model's, there is no user, or a model of counts got a value below 0.
        """
        model = self._fitted()
        if not self.serves_others:
            raise TypeError(
                f"{type(self).__name__} serves only the users it was fitted on; fit it again with the others, or use "
                "a model that learns of items"
            )
        items = model.interactions_.item_ids
        data = check_interactions(interactions, may_be_empty=True, min_users=1, item_ids=items)
        if not hasattr(model, "predict"):  # models of ratings predict, and their values may be negative
            check_not_negative(model, data)
        return model._serving(model._as_fitted(data))

    def _bring(self, read_rows: Callable[[], InteractionsLike]) -> Self:
        return self.with_users(read_rows())

    def _as_fitted(self, data: Interactions) -> Interactions:
        """Return rows in the form that `fit` uses."""
        return data.binarize()
