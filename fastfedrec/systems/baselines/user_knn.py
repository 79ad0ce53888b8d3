"""UserKNN: what the most similar users have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from fastfedrec.compute import ranking
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems.baselines.item_models import ExactModel

__all__ = ["UserKNN"]

_BLOCK_CELLS = 2**22  # similarities held at once


@dataclass(repr=False, eq=False)
class UserKNN(ExactModel):
    """User-based nearest neighbours, by cosine.

    **Guarantee.** None: everybody is shown what others have, and the ledger says so.

    Parameters
    ----------
    n_neighbors : int
        Most similar users kept for each user.
    shrinkage : float
        Added to the cosine's denominator, in items: similarities that rest on few items fall.

    Attributes
    ----------
    user_neighbors_ : ndarray of shape (n_users, n_kept), int32
        Rows of the most similar other users, best first; ties go to the earlier user.
    user_similarities_ : ndarray of shape (n_users, n_kept), float64
        Falling, at least 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Users of each item; a user without items is served by them.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    See Also
    --------
    fastfedrec.ItemKNN : Neighbours of items, which serve users who were not in the fit.

    Notes
    -----
    Two users who have n and m items, k of them in common, have similarity ``k / (sqrt(n m) + shrinkage)``: values do
    not matter.  A user's score of an item is the sum of the similarities of those of its `n_neighbors` who have the
    item; it is not divided by anything [1]_.

    Memory grows with the users times `n_neighbors`, since similarities are found for a block of users at a time; time
    with the sum over items of their users' squared number.

    References
    ----------
    .. [1] Aiolli, "Efficient top-n recommendation for very large scale binary rated datasets", RecSys 2013.

    Examples
    --------
    >>> from fastfedrec import Interactions, UserKNN
    >>> data = Interactions.from_arrays([1, 1, 2, 3, 3], [10, 30, 10, 20, 30])
    >>> model = UserKNN(n_neighbors=2, shrinkage=0.0).fit(data)
    >>> model.score([2, 2], [30, 20]).round(3)
    array([0.707, 0.   ])
    """

    serves_others: ClassVar[bool] = False
    _saved: ClassVar[tuple[str, ...]] = ("user_neighbors_", "user_similarities_", "item_counts_")
    _released = "what similar users have"

    n_neighbors: int = 100
    shrinkage: float = 10.0

    def _check_parameters(self) -> None:
        self.n_neighbors = check_integer("n_neighbors", self.n_neighbors, low=1)
        self.shrinkage = check_real("shrinkage", self.shrinkage, low=0.0)

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        n_users = data.n_users
        n_kept = min(self.n_neighbors, n_users - 1)
        lengths = np.sqrt(data.interactions_per_user())
        by_item = data.to_scipy().T.tocsr()
        neighbors, similarities = np.empty((n_users, n_kept), dtype=np.int32), np.empty((n_users, n_kept))
        step = max(1, _BLOCK_CELLS // n_users)
        for number in progress_rounds(-(-n_users // step), show=show_progress, description="neighbours of users"):
            rows = slice(number * step, min((number + 1) * step, n_users))
            block = sum_rows(data._user_range(rows.start, rows.stop), by_item, n_threads=n_threads)
            below = lengths[rows, None] * lengths + self.shrinkage
            np.divide(block, below, out=block, where=below > 0)
            block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = -1.0  # no user is its own neighbour
            best, falling = ranking.top_k(block, max(n_kept, 1), n_threads=n_threads)
            neighbors[rows], similarities[rows] = best[:, :n_kept], falling[:, :n_kept]
        self.user_neighbors_, self.user_similarities_ = neighbors, similarities
        self.item_counts_ = data.interactions_per_item().astype(np.float64)

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        data = self.interactions_
        rows, where = np.unique(self.user_neighbors_[users], return_inverse=True)
        starts = np.arange(len(users) + 1) * self.user_neighbors_.shape[1]
        entries = self.user_similarities_[users].ravel(), where.ravel(), starts
        similarities = scipy.sparse.csr_array(entries, shape=(len(users), len(rows)))
        scores = (similarities @ scipy.sparse.csr_array(data._take_users(rows).to_scipy())).toarray()
        scores[self._lack_scores(users)] = self.item_counts_
        return scores

    def _popularity(self) -> np.ndarray:
        return self.item_counts_

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        data = self.interactions_
        return {
            "user_neighbors_": ArrayRule(np.int32, (data.n_users, None), 0, data.n_users - 1),
            "user_similarities_": ArrayRule(np.float64, (data.n_users, None)),
            "item_counts_": ArrayRule(np.float64, (data.n_items,)),
        }

    def _disagreement(self) -> str | None:
        neighbors, similarities = self.user_neighbors_.shape, self.user_similarities_.shape
        return (
            None if neighbors == similarities else f"there are {neighbors} neighbours and {similarities} similarities"
        )
