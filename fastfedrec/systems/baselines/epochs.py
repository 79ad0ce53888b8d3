"""Baselines that are trained in epochs: from a start that may be another model's, telling their loss if asked."""

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
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.baselines.popularity import Baseline

__all__ = ["EpochBaseline", "places_before"]


class EpochBaseline(Baseline):
    """A baseline whose `fit` takes a start, and keeps its loss where it is asked for it."""

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
        """Train for `n_epochs`.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            As `fastfedrec.data.conversion.as_interactions` takes it.  Entries with value 0 are no interactions, and
            values below 0 are refused; which other values matter is said of the model.
        key : Key or None
            Source of where training starts, and of all that it draws; None draws one from entropy.  An entropy key
            serves one fit.
        show_progress : bool
            Draw a progress bar for each training (needs tqdm).
        warm_start : object
            Where to start instead; what can be one is said of the model.  Of a fitted model, which may be this one,
            users and items keep what is theirs by id, and others start as they would without it.
        track_loss : bool
            Keep `loss_`, which no guarantee covers.

        Raises
        ------
        ValueError
            `warm_start` does not fit, or the data are too large for the model.

        Warns
        -----
        UserWarning
            Values vary, and the model ignores them.
        """
        tracks = check_flag("track_loss", track_loss)
        begun = self._begin(interactions, key, n_threads, show_progress, ledger)
        self._train(*begun, warm_start, tracks)
        return self

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self._train(data, key, n_threads, show_progress, None, False)

    @abstractmethod
    def _train(
        self, data: Interactions, key: Key, n_threads: int, show_progress: bool, warm_start: object, tracks: bool
    ) -> None:
        """Write to the ledger, then compute."""


def places_before(old: Interactions, data: Interactions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where users and items stood in other data.

    Parameters
    ----------
    old : Interactions
        The other data.
    data : Interactions
        Whose users and items are looked up, by their ids.

    Returns
    -------
    users : ndarray of shape (n_users,), int64
        Rows of `old`; below 0 where there was no such user.
    items : ndarray of shape (n_items,), int64
        Columns of `old`, likewise.
    """
    return IdIndex("user", old.user_ids).find(data.user_ids), IdIndex("item", old.item_ids).find(data.item_ids)
