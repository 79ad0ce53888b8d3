"""Models whose devices need nothing but what was released and their own rows."""

from typing import Self

from fastfedrec.interactions import Interactions
from fastfedrec.systems.recommender import Recommender, check_interactions


class OwnRows(Recommender):
    """A model that serves anybody who has rows over its items."""

    def with_users(self, interactions: Interactions) -> Self:
        """Serve other users with what was released, without refitting and at no cost to anybody.

        Parameters
        ----------
        interactions : Interactions
            Their data, over the same items.

        Returns
        -------
        Recommender
            A model of its own for these users.

        Raises
        ------
        ValueError
            Other items than the model was fitted on.
        """
        return self._serving(check_interactions(interactions).binarize())
