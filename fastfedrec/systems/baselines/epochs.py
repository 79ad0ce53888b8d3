"""Baselines that train in epochs, with an optional warm start and an optional record of the loss."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.core.check import check_flag
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.ids import IdIndex
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.recommender import Recommender

__all__ = ["EpochBaseline", "places_before"]


class EpochBaseline(Recommender):
    """A baseline that trains in epochs: `fit` accepts a warm start and can track the loss."""

    _is_private = False

    loss_: NDArray[np.float64]

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        warm_start: Any = None,
        track_loss: bool = False,
    ) -> Self:
        """Train for `n_epochs` epochs.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data, see `fastfedrec.data.conversion.as_interactions`.  Entries with value 0 are no interactions,
            and negative values are refused; the model's page states which other values matter.
        key : Key or None
            Source of the initial parameters and of all other draws; None draws a key from entropy, which serves one
            fit.
        show_progress : bool
            Whether to draw a progress bar for each training (needs tqdm).
        warm_start : object
            Parameters to begin with; the model's page states the types.  Users and items of a fitted model keep their
            parameters by id, and new ones begin as they would without a warm start.  The model itself is accepted.
        track_loss : bool
            Whether to store `loss_`, which no guarantee covers.

        Raises
        ------
        ValueError
            `warm_start` does not match the model, or the data are too large for it.

        Warns
        -----
        UserWarning
            Values vary, and the model ignores them.
        """
        tracks = check_flag("track_loss", track_loss)
        data = self._as_fitted(check_counts(self, interactions, is_private=False, ignores_values=self._ignores_values))
        fit = Fit.resolve(key, n_threads, show_progress, ledger, None)
        self.interactions_, (self.ledger_, _) = data, fit.begin(self, data)
        self._train(data, fit.key, fit.n_threads, fit.show_progress, warm_start, tracks)
        return self

    @property
    @abstractmethod
    def _ignores_values(self) -> bool:
        """Return whether all values above 0 count alike, so that a fit warns if they vary."""

    @abstractmethod
    def _train(
        self, data: Interactions, key: Key, n_threads: int, show_progress: bool, warm_start: object, tracks: bool
    ) -> None:
        """Record the event, then compute the fitted arrays."""


def places_before(old: Interactions, data: Interactions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find users and items of new data in old data by their ids.

    Parameters
    ----------
    old : Interactions
        The old data.
    data : Interactions
        The new data.

    Returns
    -------
    users : ndarray of shape (n_users,), int64
        Row of each user in `old`; below 0 for a user who is not there.
    items : ndarray of shape (n_items,), int64
        Column of each item in `old`; below 0 for an item that is not there.
    """
    return IdIndex("user", old.user_ids).find(data.user_ids), IdIndex("item", old.item_ids).find(data.item_ids)
