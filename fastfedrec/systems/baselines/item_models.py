"""What can be had without privacy from which users have which items: own history, item neighbours, and EASE."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.accounting import Unprotected
from fastfedrec.compute import ranking
from fastfedrec.compute.pair_sums import sum_products
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.memory import check_memory
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import no_neighbors
from fastfedrec.systems._neighbors import NeighborModel, Neighbors, blocks_of_rows, select_neighbors, neighbor_arrays
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.baselines.popularity import Baseline

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["EASE", "ItemKNN", "OwnHistory"]

_BLOCK_CELLS = 2**23  # answers, or similarities, held at once
_SORTED_PAIRS = 2**16  # that are sorted together
_FEWER_ITEMS = "fit the most used items alone (top_items=5_000), or ImplicitALS, which has no pairs"
_FILLED = 1 / 8  # of all pairs: where users have fewer, most pairs have nobody
COUNTED_BYTES = 12  # of count_pairs, a pair: float32 as they are added up, and float64 as they are returned


def count_pairs(data: Interactions, *, show_progress: bool = False) -> NDArray[np.float64]:
    """Count how many users have both items of each pair.

    Parameters
    ----------
    data : Interactions
        Binarised.
    show_progress : bool
        Draw a bar (needs tqdm).

    Returns
    -------
    ndarray of shape (n_items, n_items), float64
        Whole numbers; on the diagonal the users of each item.  Only a block of users is ever in memory beside it.
    """
    n_users, n_items = data.shape
    step = max(1, _BLOCK_CELLS // n_items)
    numbers = progress_rounds(-(-n_users // step), show=show_progress, description="pairs of items")
    blocks = (data._user_range(number * step, min(n_users, (number + 1) * step)) for number in numbers)
    # One after the other is written there: new memory costs as much as what is done with it.
    dense = np.empty((min(step, n_users), n_items), dtype=np.float32)
    return sum_products((_dense(block, dense[: block.n_users]) for block in blocks), n_items, np.float64)


def _dense(block: Interactions, out: np.ndarray) -> np.ndarray:
    return block._replace(values=block.values_or_ones(np.float32)).to_scipy().toarray(out=out)


class ExactModel(Baseline):
    """A model of exact data: the ledger says so."""

    _released: ClassVar[str]
    _bytes_a_pair: ClassVar[int] = 0  # of items, while it is fitted

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        check_memory(type(self).__name__, data.n_items, self._bytes_a_pair * data.n_items**2, _FEWER_ITEMS)
        self.ledger_.record(Unprotected(self._released))
        self._compute(data, n_threads, show_progress)

    @abstractmethod
    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        """Set the fitted arrays."""


class OwnHistory(ExactModel):
    """What a user has had before, most often first; after that, popularity.

    Where people come back to the same items, as with the apps of a phone, it is hard to beat, and it needs no server.

    **Guarantee.** None: the exact counts of items are released, and the ledger says so.

    Attributes
    ----------
    item_counts_ : ndarray of shape (n_items,), float64
        Users of each item.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    Notes
    -----
    A value is how often the user has had the item.  To `recommend` what users have had before, pass
    ``filter_seen=False``.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.baselines.item_models import OwnHistory
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [1, 5, 1, 1])
    >>> model = OwnHistory().fit(data)
    >>> model.recommend([1], n=3, filter_seen=False)[0]
    array([[30, 10, 20]])
    """

    _saved: ClassVar[tuple[str, ...]] = ("item_counts_", "user_values_")
    _keeps_values = True
    _needs_rows = False
    _released = "exact item counts"

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        self.item_counts_ = data.interactions_per_item().astype(np.float64)
        self.user_values_ = data.values_or_ones().astype(np.float64)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        data = self.interactions_
        return rules_of(np.float64, item_counts_=(data.n_items,), user_values_=(data.n_interactions,))

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        model.user_values_ = data.values_or_ones().astype(np.float64)
        return model

    def _popularity(self) -> np.ndarray:
        return self.item_counts_ / (self.item_counts_.max() + 1)

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        data = self.interactions_
        scores = np.tile(self._popularity(), (len(users), 1))
        lengths = np.diff(data.indptr)[users]
        entries = np.repeat(data.indptr[users] - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        scores[np.repeat(np.arange(len(users)), lengths), data.indices[entries]] += self.user_values_[entries]
        return scores


@dataclass(repr=False, eq=False)
class ItemKNN(NeighborModel, ExactModel):
    """Item-based nearest neighbours, by cosine.

    **Guarantee.** None: exact similarities are released, and the ledger says so.

    Parameters
    ----------
    n_neighbors : int
        Most similar items kept for each item.
    shrinkage : float
        Added to the cosine's denominator, in users: similarities that rest on few users fall.  0 is the plain cosine.

    Attributes
    ----------
    neighbor_items_ : ndarray of shape (n_items, n_kept), int32
        Columns of the most similar other items, best first; ties go to the earlier item.  `n_kept` is `n_neighbors`, or
        the most items that share users with one item where that is less.
    neighbor_similarities_ : ndarray of shape (n_items, n_kept), float64
        Falling, at least 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Users of each item: what somebody without items is offered.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    See Also
    --------
    fastfedrec.UserKNN : Neighbours of users.

    Notes
    -----
    Two items with n and m users, k of them in common, have similarity ``k / (sqrt(n m) + shrinkage)``: values do not
    matter.  A user's score of item i is the sum of the similarities of i to those of the user's items that are among
    the `n_neighbors` most similar to i: neighbours are those of the candidate, and the sum is not divided by anything.
    implicit's ``CosineRecommender`` keeps neighbours of the user's items instead, without shrinkage.

    Pairs of items are counted from the users' rows, a block of items at a time: memory grows with the items times
    `n_neighbors`, time with that and the squares of the users' numbers of items.

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

    _released = "exact similarities and counts of items"

    n_neighbors: int = 100
    shrinkage: float = 10.0

    def _check_parameters(self) -> None:
        self.n_neighbors = check_integer("n_neighbors", self.n_neighbors, low=1)
        self.shrinkage = check_real("shrinkage", self.shrinkage, low=0.0)

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        n_items = data.n_items
        self.item_counts_ = data.interactions_per_item().astype(np.float64)
        lengths = np.sqrt(self.item_counts_)
        users = data.to_scipy().astype(np.float64)
        items = users.T.tocsr()
        # The pairs that the users of each item have: the work of its row.
        n_pairs = items @ np.diff(users.indptr).astype(np.float64)
        is_sparse = float(n_pairs.sum()) < _FILLED * n_items**2
        find = self._nearest_of_few if is_sparse else self._nearest
        work = n_pairs if is_sparse else np.full(n_items, float(n_items))
        parts = blocks_of_rows(work, _SORTED_PAIRS if is_sparse else _BLOCK_CELLS)
        numbers = progress_rounds(len(parts), show=show_progress, description="pairs of items")
        found = [find(items[parts[k][0] : parts[k][-1] + 1], users, parts[k], lengths, n_threads) for k in numbers]
        self.neighbor_items_, self.neighbor_similarities_ = neighbor_arrays("ItemKNN", found, parts, n_items)

    def _nearest(
        self, items: "csr_array", users: "csr_array", rows: np.ndarray, lengths: np.ndarray, n_threads: int
    ) -> Neighbors:
        """Neighbours of some items, from a dense block of the numbers of users of both."""
        pairs = sum_rows(items, users, n_threads=n_threads)
        for row, length in zip(pairs, lengths[rows], strict=True):
            below = length * lengths + self.shrinkage
            np.divide(row, below, out=row, where=below > 0)
        pairs[np.arange(len(rows)), rows] = -1.0  # no item is its own neighbour
        best, falling = ranking.top_k(pairs, min(self.n_neighbors, len(lengths)), n_threads=n_threads)
        is_found = falling > 0
        return np.count_nonzero(is_found, axis=1), best[is_found].astype(np.int32), falling[is_found]

    def _nearest_of_few(
        self, items: "csr_array", users: "csr_array", rows: np.ndarray, lengths: np.ndarray, n_threads: int
    ) -> Neighbors:
        """The same where most pairs have no user: the others are sorted."""
        pairs = items @ users
        owners = np.repeat(np.arange(len(rows)), np.diff(pairs.indptr))
        is_other = pairs.indices != rows[owners]
        owners, others = owners[is_other], pairs.indices[is_other].astype(np.int32, copy=False)
        similarities = pairs.data[is_other] / (lengths[rows[owners]] * lengths[others] + self.shrinkage)
        return select_neighbors(owners, others, similarities, len(rows), self.n_neighbors)


@dataclass(repr=False, eq=False)
class EASE(ExactModel):
    """A linear model from items to items, without a diagonal, in closed form.

    **Guarantee.** None: weights computed from exact data are released, and the ledger says so.

    Parameters
    ----------
    regularization : float
        Added to the diagonal of the matrix of pairs, in users; above 0.
    top_items : int or None
        Fit so many of the items alone, those that most users have (`Interactions.top_items`), as is done where memory
        does not hold all pairs.  The model knows no others: it never recommends them, and `evaluate` ranks them behind
        all that it knows.  None fits all.

    Attributes
    ----------
    item_weights_ : ndarray of shape (n_items, n_items), float64
        Row i holds what having item i says about every other; the diagonal is 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Users of each item: what somebody without items is offered.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    Notes
    -----
    Memory grows with the square of the items that are fitted, time with the cube.  ``interactions_`` holds these items.

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

    _saved: ClassVar[tuple[str, ...]] = ("item_weights_", "item_counts_")
    _not_in_0_1_0 = ("item_counts_",)
    _released = "weights between items and counts of items, computed from exact data"
    _bytes_a_pair = COUNTED_BYTES

    regularization: float = 250.0
    top_items: int | None = None

    def _check_parameters(self) -> None:
        self.regularization = check_real("regularization", self.regularization, low=0.0, exclusive=True)
        if self.top_items is not None:
            self.top_items = check_integer("top_items", self.top_items, low=1)

    def _among_items(self, data: Interactions) -> Interactions:
        return data if self.top_items is None else data.top_items(self.top_items)

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        pairs = count_pairs(data, show_progress=show_progress)
        self.item_counts_ = np.diag(pairs).copy()
        pairs.flat[:: data.n_items + 1] += self.regularization
        precision = _invert(pairs)
        precision /= -np.diag(precision)
        np.fill_diagonal(precision, 0.0)
        self.item_weights_: NDArray[np.float64] = precision

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_items = self.interactions_.n_items
        return rules_of(np.float64, item_weights_=(n_items, n_items), item_counts_=(n_items,))

    def _popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        places, weights = no_neighbors(columns, n)
        step = max(1, _BLOCK_CELLS // len(self.item_weights_))
        for start in range(0, len(columns) if n else 0, step):
            part = columns[start : start + step]
            itself = np.arange(len(part) + 1), part
            found = ranking.top_k(self.item_weights_[part], n, seen=itself)
            places[start : start + step], weights[start : start + step] = found
        return places, weights

    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        return own.values_or_ones() * self.item_weights_[own.indices, column]

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        return sum_rows(self.interactions_._take_users(users), self.item_weights_)


def _invert(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a positive definite matrix, which is overwritten: a third of the work of `numpy.linalg.inv`."""
    lapack = scipy.linalg.lapack  # loaded before the block, so that its threads are held too
    with one_blas_thread():
        factor, failed = lapack.dpotrf(matrix.T, lower=True, overwrite_a=True)
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
    if failed:
        raise ValueError(
            f"regularization must be larger: column {failed} of the items' matrix is not positive definite"
        )
    inverse = inverse.T  # whose upper triangle is filled
    for row in range(1, len(inverse)):
        inverse[row, :row] = inverse[:row, row]
    return inverse
