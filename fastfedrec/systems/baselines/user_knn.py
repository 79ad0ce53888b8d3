"""UserKNN: recommendations from the items of the most similar users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.compute import ranking
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._served import Served
from fastfedrec.systems.baselines.popularity import Baseline

__all__ = ["UserKNN"]

_BLOCK_CELLS = 2**22  # similarities in memory at a time


@dataclass(frozen=True, eq=False, repr=False)
class _UserNeighborScores(Served):
    """Sums of similarities to the neighbours who have an item."""

    user_neighbors_: NDArray[np.int32]
    user_similarities_: NDArray[np.float64]
    item_counts_: NDArray[np.float64]

    def score_block(self, users: np.ndarray) -> np.ndarray:
        data = self.interactions_
        # Rows of neighbours are read once each, even if several users share them.
        rows, neighbor_positions = np.unique(self.user_neighbors_[users], return_inverse=True)
        starts = np.arange(len(users) + 1) * self.user_neighbors_.shape[1]
        entries = self.user_similarities_[users].ravel(), neighbor_positions.ravel(), starts
        similarities = scipy.sparse.csr_array(entries, shape=(len(users), len(rows)))
        scores = (similarities @ scipy.sparse.csr_array(data._take_users(rows).to_scipy())).toarray()
        scores[self.lack_scores(users)] = self.item_counts_
        return scores

    def popularity(self) -> np.ndarray:
        return self.item_counts_


@declares_parameters
class UserKNN(Baseline):
    """User-based nearest neighbours with cosine similarity.

    **Guarantee.** None: recommendations show other users' items, as the ledger states.

    Attributes
    ----------
    user_neighbors_ : ndarray of shape (n_users, n_neighbors), int32
        Rows of the most similar other users, best first; ties go to the earlier user.
    user_similarities_ : ndarray of shape (n_users, n_neighbors), float64
        Falling similarities, at least 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item, which ranks the items for a user without items.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    See Also
    --------
    fastfedrec.ItemKNN : Item neighbours, which serve users who were not in the fit.

    Notes
    -----
    Two users with n and m items, k of them in common, have similarity ``k / (sqrt(n m) + shrinkage)``; values are
    ignored.  A user's score of an item is the sum of similarities to the `n_neighbors` most similar users who have the
    item, without normalisation [1]_.

    Memory grows with the number of users times `n_neighbors`, since similarities are computed for a block of users at a
    time.  Time grows with the sum over items of the squared number of users.

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

    _serves = _UserNeighborScores

    serves_others: ClassVar[bool] = False
    _released = "the items of similar users"

    n_neighbors: int = integer(100, low=1).doc("Number of neighbours stored for each user, at least 1.")
    shrinkage: float = real(10.0, low=0.0).doc("""
        Number of items that is added to the cosine's denominator, at least 0; it lowers similarities from few
        items.""")

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        n_users = data.n_users
        n_neighbors = min(self.n_neighbors, n_users - 1)
        # Norms of binary rows.
        lengths = np.sqrt(data.interactions_per_user())
        by_item = data.to_scipy().T.tocsr()
        neighbors, similarities = np.empty((n_users, n_neighbors), dtype=np.int32), np.empty((n_users, n_neighbors))
        # Similarities of all pairs do not fit into memory, so each block is reduced to its neighbours at once.
        step = max(1, _BLOCK_CELLS // n_users)
        for number in progress_rounds(-(-n_users // step), show=show_progress, description="neighbours of users"):
            rows = slice(number * step, min((number + 1) * step, n_users))
            block = sum_rows(data._user_range(rows.start, rows.stop), by_item, n_threads=n_threads)
            denominators = lengths[rows, None] * lengths + self.shrinkage
            np.divide(block, denominators, out=block, where=denominators > 0)
            block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = -1.0  # a user is not its own neighbour
            nearest, falling = ranking.top_k(block, max(n_neighbors, 1), n_threads=n_threads)
            neighbors[rows], similarities[rows] = nearest[:, :n_neighbors], falling[:, :n_neighbors]
        self.user_neighbors_, self.user_similarities_ = neighbors, similarities
        self.item_counts_ = data.interactions_per_item().astype(np.float64)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_users, n = sizes.n_users, sizes.n_interactions
        n_rows, n_kept = min(n_users, max(1, _BLOCK_CELLS // max(n_users, 1))), min(self.n_neighbors, n_users)
        # A further block is computed while the last one and its denominators are still there.
        n_blocks = 2 if n_rows == n_users else 3
        return [
            {
                "products, denominators, last block": Array.of("float64", n_blocks, n_rows, n_users),
                "neighbours": Array.of("int32", n_users + n_rows, n_kept),
                "similarities": Array.of("float64", n_users + n_rows, n_kept),
                "users by item": Array.of("float64", n),
            }
        ]

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
