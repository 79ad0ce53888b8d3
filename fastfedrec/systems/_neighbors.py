"""Item neighbours: scores, files, similar items, and the steps that fits share."""

import functools
import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec._kernels.compute import row_sums as _kernel
from fastfedrec.core.memory import Array, Arrays, Sizes, check_memory
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import contributions_of_neighbors, similar_neighbors
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import Served

#: The number of neighbours of each item, then columns and falling similarities of all neighbours.
Neighbors = tuple[np.ndarray, np.ndarray, np.ndarray]

_NEIGHBOR_BYTES = 24  # per neighbour: column and similarity, in the fitted arrays and in `_table`
FEWER_NEIGHBORS = "keep fewer neighbours (n_neighbors=), or drop items that no user has (top_items)"
_NO_DEVIATION = 0.5  # similarity to a virtual neighbour without deviation, which damps few and distant neighbours
_BLOCK_CELLS = 2**23  # marks of unused columns in memory at a time

_results: dict[tuple[str, int], Any] = {}  # of `made_once`, by the function and the identity of the fitted array
Made = TypeVar("Made")
_Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # CSR rows: starts, columns and entries


def score_neighbors(
    user_rows: Interactions,
    neighbor_items: np.ndarray,
    neighbor_similarities: np.ndarray,
    *,
    weights: np.ndarray | None = None,
) -> NDArray[np.float64]:
    """Return scores (n_users, n_items): weighted sums of similarities to the user's items among an item's neighbours.

    `weights` has a factor for each interaction, and None takes the values; `fastfedrec.compute.row_sums.sum_rows` adds
    in the same order.
    """
    weights = user_rows.values_or_ones() if weights is None else weights
    scores = np.empty(user_rows.shape)
    if scores.size:
        table = _table(neighbor_items, neighbor_similarities)
        _kernel.sum_sparse_rows(user_rows.indptr, user_rows.indices, weights, *table, scores, resolve_n_threads(0))
    return scores


def made_once(make: Callable[..., Made]) -> Callable[..., Made]:
    """Make a function of a fit keep its result for the last argument, an array, until that array is dropped."""

    @functools.wraps(make)
    def get(*arguments: Any) -> Made:
        fitted = make.__name__, id(arguments[-1])
        if fitted not in _results:
            _results[fitted] = make(*arguments)
            weakref.finalize(arguments[-1], _results.pop, fitted, None).atexit = False
        return _results[fitted]

    return get


@made_once
def _table(neighbor_items: np.ndarray, neighbor_similarities: np.ndarray) -> _Table:
    """Return the transposed table: row i has the nonzero similarities to i of the items with i as a neighbour."""
    n_items = len(neighbor_items)
    rows = np.flatnonzero(neighbor_similarities[:, :1].any(axis=1))  # similarities fall: a first 0 means all are 0
    similarities = neighbor_similarities[rows]
    stored = similarities != 0
    lengths = np.zeros(n_items + 1, dtype=np.int64)
    lengths[rows + 1] = np.count_nonzero(stored, axis=1)
    entries = similarities[stored], neighbor_items[rows][stored], np.cumsum(lengths)
    turned = scipy.sparse.csr_array(entries, shape=(n_items, n_items)).T.tocsr()
    return turned.indptr.astype(np.int64), turned.indices.astype(np.int32, copy=False), turned.data


@dataclass(frozen=True, eq=False, repr=False)
class NeighborScores(Served):
    """Sums of similarities to a user's items, and counts of items if they were released."""

    neighbor_items_: NDArray[np.int32]
    neighbor_similarities_: NDArray[np.float64]
    item_counts_: NDArray[np.float64]
    n_neighbors: int

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        n_items = model.interactions_.n_items
        return {**neighbor_rules(n_items), **rules_of(np.float64, item_counts_=(n_items,))}

    def disagreement(self) -> str | None:
        return neighbor_disagreement(self.neighbor_items_, self.neighbor_similarities_, self.n_neighbors)

    def popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def score_block(self, users: np.ndarray) -> np.ndarray:
        user_rows = self.interactions_._take_users(users)
        return score_neighbors(user_rows, self.neighbor_items_, self.neighbor_similarities_)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_neighbors(columns, n, self.neighbor_items_, self.neighbor_similarities_)

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        return contributions_of_neighbors(user_rows, column, self.neighbor_items_, self.neighbor_similarities_)


@dataclass(frozen=True, eq=False, repr=False)
class RatingNeighborScores(Served):
    """Biases, plus the user's deviations for the most similar items."""

    needs_rows = False  # the biases score items for a user without ratings

    mean_: NDArray[np.float64]
    user_biases_: NDArray[np.float64]
    item_biases_: NDArray[np.float64]
    neighbor_items_: NDArray[np.int32]
    neighbor_similarities_: NDArray[np.float64]
    user_residuals_: NDArray[np.float64]

    def popularity(self) -> np.ndarray:
        return self.mean_ + self.item_biases_

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_neighbors(columns, n, self.neighbor_items_, self.neighbor_similarities_)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        neighbors = self.neighbor_items_, self.neighbor_similarities_
        user_rows = self.interactions_._take_users(users)
        lengths = user_rows.interactions_per_user()
        # Positions of the users' entries in the model's arrays.
        shifts = self.interactions_.indptr[users] - user_rows.indptr[:-1]
        entries = np.repeat(shifts, lengths) + np.arange(lengths.sum())
        sums = score_neighbors(user_rows, *neighbors, weights=self.user_residuals_[entries])
        weights = score_neighbors(user_rows, *neighbors, weights=np.ones(len(entries)))
        return self.mean_ + self.user_biases_[users, None] + self.item_biases_ + sums / (weights + _NO_DEVIATION)


def neighbor_rules(n_items: int) -> Mapping[str, ArrayRule]:
    """Return the rules for the arrays of neighbours in a file."""
    return {
        "neighbor_items_": ArrayRule(np.int32, (n_items, None), 0, n_items - 1),
        "neighbor_similarities_": ArrayRule(np.float64, (n_items, None)),
    }


def neighbor_disagreement(items: np.ndarray, similarities: np.ndarray, n_neighbors: int) -> str | None:
    """Return how the shapes of a file's neighbours and similarities disagree, or None."""
    widths = items.shape[1], similarities.shape[1]
    if widths[0] != widths[1]:
        return f"items have {widths[0]} neighbours, and {widths[1]} similarities"
    max_neighbors = max(min(n_neighbors, len(items) - 1), 0)
    return (
        f"items must have at most {max_neighbors} neighbours, and have {widths[0]}"
        if widths[0] > max_neighbors
        else None
    )


# ---- fitting ---------------------------------------------------------------------------------------------------------


def blocks_of_rows(work: np.ndarray, block: int) -> list[NDArray[np.int64]]:
    """Divide rows into blocks of consecutive rows, each with `block` units of work plus less than one row's."""
    # A row belongs to the block that contains the work before it.
    numbers = (np.cumsum(work) - work) // block
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(work)]
    return [np.arange(start, stop) for start, stop in pairwise(edges)]


def select_neighbors(
    owners: np.ndarray, neighbors: np.ndarray, similarities: np.ndarray, n_rows: int, n_neighbors: int
) -> Neighbors:
    """Return the most similar items of each row, from pairs sorted by row; ties go to the earlier item."""
    order = np.lexsort((neighbors, -similarities, owners))
    n_found = np.bincount(owners, minlength=n_rows)
    # `order` lists each row's items, best first, so that the first `n_neighbors` of each row stay.
    order = order[_ranks_in_rows(n_found) < n_neighbors]
    return np.minimum(n_found, n_neighbors), neighbors[order], similarities[order]


def neighbor_arrays(
    name: str, lists: list[Neighbors], parts: list[NDArray[np.int64]], n_items: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return neighbours as the two arrays (n_items, n_kept) that a model holds, padded with similarity 0.

    `n_kept` is the largest number of neighbours of an item.  The list is emptied to save memory; arrays that do not fit
    into memory raise `ValueError`.
    """
    n_kept = max((int(n_found.max()) for n_found, _, _ in lists if len(n_found)), default=0)
    check_memory(name, n_items, lambda n_items: _NEIGHBOR_BYTES * n_items * n_kept, FEWER_NEIGHBORS)
    items, falling = np.empty((n_items, n_kept), dtype=np.int32), np.zeros((n_items, n_kept))
    # From the end, since popping the last entry frees its memory at no cost.
    for rows in reversed(parts):
        _write(*lists.pop(), rows, items, falling)
    return items, falling


def expected_pairs(sizes: Sizes) -> int:
    """Return the expected number of pairs of items with a common user, if users draw items independently."""
    n_all = sizes.n_items**2
    return round(-n_all * math.expm1(-(sizes.n_interactions**2) / max(sizes.n_users, 1) / n_all))


def neighbors_memory(sizes: Sizes, n_neighbors: int) -> Arrays:
    """Return the arrays of `neighbor_arrays`; at most so many neighbours as pairs of items of one user are found."""
    n_items = sizes.n_items
    n_kept = min(n_neighbors, n_items, sizes.n_interactions**2 // max(sizes.n_users, 1))
    return {"neighbours": Array.of("int32", n_items, n_kept), "similarities": Array.of("float64", n_items, n_kept)}


def _ranks_in_rows(lengths: np.ndarray) -> NDArray[np.int64]:
    """Return 0, 1, ... within each of the rows with these lengths."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _write(
    n_found: np.ndarray, neighbors: np.ndarray, similarities: np.ndarray, rows: np.ndarray,
    items: np.ndarray, falling: np.ndarray,
) -> None:  # fmt: skip
    """Write the neighbours of consecutive items, then pad each row with the first unused items, at similarity 0."""
    n_items, n_kept = items.shape
    cells = np.repeat(rows, n_found), _ranks_in_rows(n_found)
    part = items[rows[0] : rows[-1] + 1]
    part[:] = np.arange(n_kept, dtype=np.int32)
    isolated = np.flatnonzero((n_found == 0) & (rows < n_kept))
    # An item without neighbours is padded with 0, 1, ... and skips itself.
    part[isolated] += np.arange(n_kept, dtype=np.int32) >= rows[isolated, None]
    items[cells], falling[cells] = neighbors, similarities
    # At most n_kept neighbours and the item itself are used, so the first 2 n_kept + 1 columns hold n_kept unused ones.
    width = min(n_items, 2 * n_kept + 1)
    short = np.flatnonzero((n_found > 0) & (n_found < n_kept))
    step = max(1, _BLOCK_CELLS // width)
    for start in range(0, len(short), step):
        some = short[start : start + step]
        behind = np.arange(n_kept) - n_found[some, None]
        free = np.ones((len(some), width), dtype=bool)
        for columns in (rows[some, None], np.where(behind < 0, part[some], width)):
            at, ranks = np.nonzero(columns < width)
            free[at, columns[at, ranks]] = False
        # A stable sort of the marks lists the unused columns first, in ascending order.
        unused = np.argsort(~free, axis=1, kind="stable")
        filled = np.take_along_axis(unused, np.clip(behind, 0, width - 1), axis=1)
        part[some] = np.where(behind >= 0, filled, part[some])
