"""Models of implicit feedback without privacy: a user's own history, item neighbours, and EASE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.compute import ranking
from fastfedrec.compute.pair_sums import sum_products
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import no_neighbors
from fastfedrec.systems._memory import counting_memory
from fastfedrec.systems._neighbors import (
    FEWER_NEIGHBORS,
    Neighbors,
    NeighborScores,
    blocks_of_rows,
    neighbor_arrays,
    neighbors_memory,
    select_neighbors,
)
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import Served
from fastfedrec.systems.baselines.popularity import Baseline

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["EASE", "ItemKNN", "OwnHistory"]

_BLOCK_CELLS = 2**23  # interactions or similarities in memory at a time
_SORTED_PAIRS = 2**16  # pairs of a block that are sorted together
_MAX_DENSITY = 1 / 8  # of the matrix of pairs: below it, sorting the nonzero pairs is faster than a dense block


def count_pairs(data: Interactions, *, show_progress: bool = False) -> NDArray[np.float64]:
    """Count the users of each pair of items.

    Parameters
    ----------
    data : Interactions
        Interactions; all count as 1.
    show_progress : bool
        Whether to draw a progress bar (needs tqdm).

    Returns
    -------
    ndarray of shape (n_items, n_items), float64
        Numbers of users who have both items; the diagonal has the users of each item.  Memory also holds the rows of
        one block of users.
    """
    n_users, n_items = data.shape
    step = max(1, _BLOCK_CELLS // n_items)
    numbers = progress_rounds(-(-n_users // step), show=show_progress, description="pairs of items")
    blocks = (data._user_range(number * step, min(n_users, (number + 1) * step)) for number in numbers)
    # The blocks share this array: allocating new ones costs as much time as filling them.
    dense = np.empty((min(step, n_users), n_items), dtype=np.float32)
    return sum_products((_dense(block, dense[: block.n_users]) for block in blocks), n_items, np.float64)


def _pairs_memory(sizes: Sizes) -> Arrays:
    """Return the arrays of `count_pairs`."""
    n_items = sizes.n_items
    return {
        "pairs": Array.of("float64", n_items, n_items),
        "sums": Array.of("float32", n_items, n_items),
        "rows": Array.of("float32", min(sizes.n_users, max(1, _BLOCK_CELLS // n_items)), n_items),
    }


def _dense(block: Interactions, out: np.ndarray) -> np.ndarray:
    """Write a block of rows as a dense array of ones."""
    return block._replace(values=block.values_or_ones(np.float32)).to_scipy().toarray(out=out)


@dataclass(frozen=True, eq=False, repr=False)
class _HistoryScores(Served):
    """A user's own values, then popularity."""

    needs_rows = False

    item_counts_: NDArray[np.float64]
    user_values_: NDArray[np.float64]

    def popularity(self) -> np.ndarray:
        return self.item_counts_ / (self.item_counts_.max() + 1)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        data = self.interactions_
        scores = np.tile(self.popularity(), (len(users), 1))
        lengths = np.diff(data.indptr)[users]
        entries = np.repeat(data.indptr[users] - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        # Positions of the users' entries: the start of each row, plus 0, 1, ... within the row.
        scores[np.repeat(np.arange(len(users)), lengths), data.indices[entries]] += self.user_values_[entries]
        return scores


class OwnHistory(Baseline):
    """A user's earlier items, the most frequent first, then popularity.

    It is a strong baseline for repeated consumption, such as the use of a phone's apps, and needs no server.

    **Guarantee.** None: the exact counts of items are released, as the ledger states.

    Attributes
    ----------
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    Notes
    -----
    A value is the number of times that the user had the item.  To recommend users' earlier items, pass
    ``filter_seen=False`` to `recommend`.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.baselines.item_models import OwnHistory
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [1, 5, 1, 1])
    >>> model = OwnHistory().fit(data)
    >>> model.recommend([1], n=3, filter_seen=False)[0]
    array([[30, 10, 20]])
    """

    _serves = _HistoryScores
    _keeps_values = True
    _released = "exact item counts"

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        self.item_counts_ = data.interactions_per_item().astype(np.float64)
        self.user_values_ = data.values_or_ones().astype(np.float64)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        values = {"values": Array.of("float64", 2, sizes.n_interactions), "counts": Array.of("float64", sizes.n_items)}
        return [counting_memory(sizes), values]

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        data = self.interactions_
        return rules_of(np.float64, item_counts_=(data.n_items,), user_values_=(data.n_interactions,))

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        model.user_values_ = data.values_or_ones().astype(np.float64)
        return model

        # Below 1, so that every item of the user, with a value of at least 1, ranks above all others.


@declares_parameters
class ItemKNN(Baseline):
    """Item-based nearest neighbours with cosine similarity.

    **Guarantee.** None: exact similarities are released, as the ledger states.

    Attributes
    ----------
    neighbor_items_ : ndarray of shape (n_items, n_kept), int32
        Columns of the most similar other items, best first; ties go to the earlier item.  `n_kept` is `n_neighbors`, or
        the largest number of items that share a user with one item if that is smaller.
    neighbor_similarities_ : ndarray of shape (n_items, n_kept), float64
        Falling similarities, at least 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item, which ranks the items for a user without items.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    See Also
    --------
    fastfedrec.UserKNN : User neighbours.

    Notes
    -----
    Two items with n and m users, k of them in common, have similarity ``k / (sqrt(n m) + shrinkage)``; values are
    ignored.  A user's score of item i is the sum of similarities of i to the user's items that are among the
    `n_neighbors` most similar to i, without normalisation.  Neighbours belong to the candidate; implicit's
    ``CosineRecommender`` stores neighbours of the user's items instead, and has no shrinkage.

    The fit counts pairs of items from the users' rows, for a block of items at a time.  Memory grows with the number of
    items times `n_neighbors`, and time with that and with the sum of squared row lengths.

    References
    ----------
    .. [1] Sarwar, Karypis, Konstan, Riedl, "Item-based collaborative filtering recommendation algorithms", WWW 2001.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.baselines.item_models import ItemKNN
    >>> data = Interactions.from_arrays([1, 1, 2, 3, 3], [10, 30, 10, 20, 30])
    >>> model = ItemKNN(n_neighbors=2, shrinkage=0.0).fit(data)
    >>> model.score([2], [30]).round(3)
    array([0.5])
    """

    _serves = NeighborScores
    _not_in_0_1_0 = ("item_counts_",)
    _released = "exact similarities and counts of items"
    _needs_less = FEWER_NEIGHBORS

    n_neighbors: int = integer(100, low=1).doc("Number of neighbours stored for each item, at least 1.")
    shrinkage: float = real(10.0, low=0.0).doc("""
        Number of users that is added to the cosine's denominator, at least 0; it lowers similarities from few
        users.""")

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        n_items = data.n_items
        self.item_counts_ = data.interactions_per_item().astype(np.float64)
        # Norms of binary columns.
        lengths = np.sqrt(self.item_counts_)
        users = data.to_scipy().astype(np.float64)
        items = users.T.tocsr()
        # The number of pairs that each item forms with items of its users is the work of its row.
        n_pairs = items @ np.diff(users.indptr).astype(np.float64)
        is_sparse = float(n_pairs.sum()) < _MAX_DENSITY * n_items**2
        find = self._nearest_sparse if is_sparse else self._nearest
        work = n_pairs if is_sparse else np.full(n_items, float(n_items))
        parts = blocks_of_rows(work, _SORTED_PAIRS if is_sparse else _BLOCK_CELLS)
        numbers = progress_rounds(len(parts), show=show_progress, description="pairs of items")
        neighbors = [find(items[parts[k][0] : parts[k][-1] + 1], users, parts[k], lengths, n_threads) for k in numbers]
        self.neighbor_items_, self.neighbor_similarities_ = neighbor_arrays("ItemKNN", neighbors, parts, n_items)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_items, n = sizes.n_items, sizes.n_interactions
        rows = {"users x items, and items x users": Array.of("float64", 4, n), "columns": Array.of("int32", 2, n)}
        found = neighbors_memory(sizes, self.n_neighbors)
        if n**2 < _MAX_DENSITY * n_items**2 * sizes.n_users:
            return [{**rows, **found, "sorted pairs": Array.of("float64", 10, min(n, _SORTED_PAIRS))}]
        step = min(n_items, max(1, _BLOCK_CELLS // n_items))
        return [{**rows, **found, "pairs": Array.of("float64", step, n_items)}]

    def _nearest(
        self, items: "csr_array", users: "csr_array", rows: np.ndarray, lengths: np.ndarray, n_threads: int
    ) -> Neighbors:
        """Return the neighbours of some items, from a dense block of pair counts."""
        pairs = sum_rows(items, users, n_threads=n_threads)
        for row, length in zip(pairs, lengths[rows], strict=True):
            denominators = length * lengths + self.shrinkage
            np.divide(row, denominators, out=row, where=denominators > 0)
        pairs[np.arange(len(rows)), rows] = -1.0  # an item is not its own neighbour
        nearest, falling = ranking.top_k(pairs, min(self.n_neighbors, len(lengths)), n_threads=n_threads)
        # Items without a common user have similarity 0 and are not stored.
        is_found = falling > 0
        return np.count_nonzero(is_found, axis=1), nearest[is_found].astype(np.int32), falling[is_found]

    def _nearest_sparse(
        self, items: "csr_array", users: "csr_array", rows: np.ndarray, lengths: np.ndarray, n_threads: int
    ) -> Neighbors:
        """Return the neighbours of some items by sorting the nonzero pairs, if these are few."""
        pairs = items @ users
        owners = np.repeat(np.arange(len(rows)), np.diff(pairs.indptr))
        # An item is not its own neighbour.
        is_other = pairs.indices != rows[owners]
        owners, columns = owners[is_other], pairs.indices[is_other].astype(np.int32, copy=False)
        similarities = pairs.data[is_other] / (lengths[rows[owners]] * lengths[columns] + self.shrinkage)
        return select_neighbors(owners, columns, similarities, len(rows), self.n_neighbors)


@dataclass(frozen=True, eq=False, repr=False)
class _WeightScores(Served):
    """Sums of weights from a user's items to an item."""

    item_weights_: NDArray[np.float64]
    item_counts_: NDArray[np.float64]

    def popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        items, weights = no_neighbors(columns, n)
        step = max(1, _BLOCK_CELLS // len(self.item_weights_))
        for start in range(0, len(columns) if n else 0, step):
            part = columns[start : start + step]
            seen = np.arange(len(part) + 1), part
            nearest = ranking.top_k(self.item_weights_[part], n, seen=seen)
            items[start : start + step], weights[start : start + step] = nearest
        return items, weights

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        return user_rows.values_or_ones() * self.item_weights_[user_rows.indices, column]

    def score_block(self, users: np.ndarray) -> np.ndarray:
        return sum_rows(self.interactions_._take_users(users), self.item_weights_)


@declares_parameters
class EASE(Baseline):
    """A linear model from items to items with a zero diagonal, in closed form.

    **Guarantee.** None: weights computed from exact data are released, as the ledger states.

    Attributes
    ----------
    item_weights_ : ndarray of shape (n_items, n_items), float64
        Weights from item i, in row i, to every other item; the diagonal is 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item, which ranks the items for a user without items.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    Notes
    -----
    Memory grows with the square of the number of fitted items, and time with the cube.  ``interactions_`` contains only
    these items.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019, equation 8.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.baselines.item_models import EASE
    >>> data = Interactions.from_arrays([1, 1, 2, 3, 3], [10, 30, 10, 20, 30])
    >>> model = EASE(regularization=1.0).fit(data)
    >>> model.score([2], [30]).round(3)
    array([0.333])
    >>> EASE(regularization=1.0, top_items=2).fit(data).interactions_.item_ids
    array([10, 30])
    """

    _serves = _WeightScores
    _not_in_0_1_0 = ("item_counts_",)
    _released = "weights between items and counts of items, computed from exact data"
    _needs_less = "fit only the most used items (top_items=5_000), or ImplicitALS, which has no pairs"

    regularization: float = real(250.0, above=0.0).doc("""
        Number that is added to the diagonal of the matrix of pairs, in users, above 0.""")
    top_items: int | None = integer(None, low=1, also=[None]).doc("""
        Number of items to fit, the most frequent ones (`Interactions.top_items`), if all pairs do not fit into
        memory.  The model never recommends other items, and `evaluate` ranks them last.  None fits all items.""")

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_items = min(sizes.n_items, self.top_items or sizes.n_items)
        return [_pairs_memory(sizes._replace(n_items=n_items))]

    def _among_items(self, data: Interactions) -> Interactions:
        return data if self.top_items is None else data.top_items(self.top_items)

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        pairs = count_pairs(data, show_progress=show_progress)
        self.item_counts_ = np.diag(pairs).copy()
        # The flat step n_items + 1 visits the diagonal.
        pairs.flat[:: data.n_items + 1] += self.regularization
        # With P the inverse of the regularized Gram matrix, the weights are -P_ij / P_jj (Steck 2019, equation 8).
        precision = _invert(pairs)
        precision /= -np.diag(precision)
        np.fill_diagonal(precision, 0.0)
        self.item_weights_: NDArray[np.float64] = precision

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_items = self.interactions_.n_items
        return rules_of(np.float64, item_weights_=(n_items, n_items), item_counts_=(n_items,))


def _invert(matrix: np.ndarray) -> np.ndarray:
    """Invert a positive definite matrix in place, with a third of the work of `numpy.linalg.inv`."""
    lapack = scipy.linalg.lapack  # loaded before the block, so that the limit applies to its threads too
    with one_blas_thread():
        factor, failed = lapack.dpotrf(matrix.T, lower=True, overwrite_a=True)
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
    if failed:
        raise ValueError(
            f"regularization must be larger: column {failed} of the items' matrix is not positive definite"
        )
    # LAPACK's lower triangle is the upper one in row order; copy it to the other half.
    inverse = inverse.T
    for row in range(1, len(inverse)):
        inverse[row, :row] = inverse[:row, row]
    return inverse
