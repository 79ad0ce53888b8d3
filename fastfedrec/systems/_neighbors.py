"""Models of item neighbours: their scores, their files, and their answers about items."""

import weakref
from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec._kernels.compute import row_sums as _kernel
from fastfedrec.core.memory import check_memory
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import contributions_of_neighbors, similar_neighbors
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.recommender import Recommender

#: The number of neighbours of each item, and the columns and falling similarities of all of them.
Neighbors = tuple[np.ndarray, np.ndarray, np.ndarray]

_NEIGHBOR_BYTES = 24  # a column and a similarity, in the fitted arrays and in `_table`
_FEWER_NEIGHBORS = "keep fewer neighbours (n_neighbors=), or drop items that no user has (top_items)"
_BLOCK_CELLS = 2**23  # marks of unused columns held at once

_Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # compressed rows: starts, columns and entries
_tables: dict[int, _Table] = {}  # by the identity of the fitted similarities


def score_neighbors(
    own: Interactions,
    neighbor_items: np.ndarray,
    neighbor_similarities: np.ndarray,
    *,
    weights: np.ndarray | None = None,
) -> NDArray[np.float64]:
    """Score every item by its similarities to those of a user's items that are among its neighbours.

    Parameters
    ----------
    own : Interactions
        The users' data.
    neighbor_items : ndarray of shape (n_items, n_kept), int
        Columns of the neighbours of each item; a fitted array.
    neighbor_similarities : ndarray of shape (n_items, n_kept), float64
        How similar they are; falling, at least 0.
    weights : ndarray of shape (n_interactions,), float64, or None
        A factor for each of the users' interactions; None takes the values.

    Returns
    -------
    ndarray of shape (n_users, n_items), float64
        Sums of similarities times weights, as `fastfedrec.compute.row_sums.sum_rows` adds them up.
    """
    weights = own.values_or_ones() if weights is None else weights
    scores = np.empty(own.shape)
    if scores.size:
        table = _table(neighbor_items, neighbor_similarities)
        _kernel.sum_sparse_rows(own.indptr, own.indices, weights, *table, scores, resolve_n_threads(0))
    return scores


def _table(neighbor_items: np.ndarray, neighbor_similarities: np.ndarray) -> _Table:
    """Row i holds the similarity of item i to each item that has i among its neighbours, without those that are 0.

    It is made once for fitted arrays, and lives as long as they do.
    """
    fitted = id(neighbor_similarities)
    if (table := _tables.get(fitted)) is None:
        n_items = len(neighbor_items)
        rows = np.flatnonzero(neighbor_similarities[:, :1].any(axis=1))  # similarities fall, so others are all 0
        similarities = neighbor_similarities[rows]
        stored = similarities != 0
        lengths = np.zeros(n_items + 1, dtype=np.int64)
        lengths[rows + 1] = np.count_nonzero(stored, axis=1)
        entries = similarities[stored], neighbor_items[rows][stored], np.cumsum(lengths)
        turned = scipy.sparse.csr_array(entries, shape=(n_items, n_items)).T.tocsr()
        table = turned.indptr.astype(np.int64), turned.indices.astype(np.int32, copy=False), turned.data
        _tables[fitted] = table
        weakref.finalize(neighbor_similarities, _tables.pop, fitted, None).atexit = False
    return table


class NeighborModel(Recommender):
    """Sums of similarities to a user's items, and which users have an item, as far as that was released."""

    _saved: ClassVar[tuple[str, ...]] = ("neighbor_items_", "neighbor_similarities_", "item_counts_")
    _not_in_0_1_0 = ("item_counts_",)

    n_neighbors: int
    neighbor_items_: NDArray[np.int32]
    neighbor_similarities_: NDArray[np.float64]
    item_counts_: NDArray[np.float64]

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_items = self.interactions_.n_items
        return {**neighbor_rules(n_items), **rules_of(np.float64, item_counts_=(n_items,))}

    def _disagreement(self) -> str | None:
        return neighbor_disagreement(self.neighbor_items_, self.neighbor_similarities_, self.n_neighbors)

    def _popularity(self) -> np.ndarray | None:
        return self.item_counts_ if self.item_counts_.any() else None

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        own = self.interactions_._take_users(users)
        return score_neighbors(own, self.neighbor_items_, self.neighbor_similarities_)

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_neighbors(columns, n, self.neighbor_items_, self.neighbor_similarities_)

    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        return contributions_of_neighbors(own, column, self.neighbor_items_, self.neighbor_similarities_)


def neighbor_rules(n_items: int) -> Mapping[str, ArrayRule]:
    """Return the rules for neighbours of items in a file.

    Parameters
    ----------
    n_items : int
        Number of items.

    Returns
    -------
    mapping of str to ArrayRule
        By name.
    """
    return {
        "neighbor_items_": ArrayRule(np.int32, (n_items, None), 0, n_items - 1),
        "neighbor_similarities_": ArrayRule(np.float64, (n_items, None)),
    }


def neighbor_disagreement(items: np.ndarray, similarities: np.ndarray, n_neighbors: int) -> str | None:
    """Return how the widths of a file's neighbours and similarities disagree, or None.

    Parameters
    ----------
    items, similarities : ndarray of shape (n_items, ...)
        As `neighbor_rules` has them.
    n_neighbors : int
        The most there may be.

    Returns
    -------
    str or None
        For the message.
    """
    widths = items.shape[1], similarities.shape[1]
    if widths[0] != widths[1]:
        return f"items have {widths[0]} neighbours, and {widths[1]} similarities"
    most = max(min(n_neighbors, len(items) - 1), 0)
    return f"items must have at most {most} neighbours, and have {widths[0]}" if widths[0] > most else None


# ---- fitting ---------------------------------------------------------------------------------------------------------


def blocks_of_rows(work: np.ndarray, block: int) -> list[NDArray[np.int64]]:
    """Divide rows into blocks of about `block` units of work.

    Parameters
    ----------
    work : ndarray of shape (n_rows,), float64
        Of each row, at least 0.
    block : int
        A block exceeds it by less than the work of one row.

    Returns
    -------
    list of ndarray of int64
        Consecutive rows.
    """
    numbers = (np.cumsum(work) - work) // block
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(work)]
    return [np.arange(start, stop) for start, stop in pairwise(edges)]


def most_similar(
    owners: np.ndarray, others: np.ndarray, similarities: np.ndarray, n_rows: int, n_neighbors: int
) -> Neighbors:
    """Keep the most similar items of each row; ties go to the earlier item.

    Parameters
    ----------
    owners, others, similarities : ndarray of shape (n_pairs,)
        The row, ascending, the column, and the similarity, above 0.
    n_rows, n_neighbors : int
        Number of rows, and of neighbours kept for each.

    Returns
    -------
    Neighbors
        Of all rows.
    """
    order = np.lexsort((others, -similarities, owners))
    n_found = np.bincount(owners, minlength=n_rows)
    order = order[_places(n_found) < n_neighbors]
    return np.minimum(n_found, n_neighbors), others[order], similarities[order]


def neighbor_arrays(
    name: str, found: list[Neighbors], parts: list[NDArray[np.int64]], n_items: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Write neighbours as the two arrays that a model holds.

    Parameters
    ----------
    name : str
        The model's name, for messages.
    found : list of Neighbors
        Of each part; emptied.
    parts : list of ndarray of int64
        Consecutive items.
    n_items : int
        Number of items.

    Returns
    -------
    neighbor_items : ndarray of shape (n_items, n_kept), int32
        `n_kept` is the most that one item has.
    neighbor_similarities : ndarray of shape (n_items, n_kept), float64
        0 behind the last neighbour.

    Raises
    ------
    ValueError
        Memory does not hold them.
    """
    n_kept = max((int(n_found.max()) for n_found, _, _ in found if len(n_found)), default=0)
    check_memory(name, n_items, _NEIGHBOR_BYTES * n_items * n_kept, _FEWER_NEIGHBORS, growth="number")
    best, falling = np.empty((n_items, n_kept), dtype=np.int32), np.zeros((n_items, n_kept))
    for rows in reversed(parts):
        _write(*found.pop(), rows, best, falling)
    return best, falling


def _places(lengths: np.ndarray) -> NDArray[np.int64]:
    """0, 1, ... in each of the rows of these lengths."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _write(
    n_found: np.ndarray, others: np.ndarray, similarities: np.ndarray, rows: np.ndarray,
    best: np.ndarray, falling: np.ndarray,
) -> None:  # fmt: skip
    """Write the neighbours of consecutive items; the first items that are not among a row's follow them, at 0."""
    n_items, n_kept = best.shape
    cells = np.repeat(rows, n_found), _places(n_found)
    part = best[rows[0] : rows[-1] + 1]
    part[:] = np.arange(n_kept, dtype=np.int32)
    alone = np.flatnonzero((n_found == 0) & (rows < n_kept))
    part[alone] += np.arange(n_kept, dtype=np.int32) >= rows[alone, None]
    best[cells], falling[cells] = others, similarities
    width = min(n_items, 2 * n_kept + 1)  # there are enough among them
    short = np.flatnonzero((n_found > 0) & (n_found < n_kept))
    step = max(1, _BLOCK_CELLS // width)
    for start in range(0, len(short), step):
        some = short[start : start + step]
        behind = np.arange(n_kept) - n_found[some, None]
        free = np.ones((len(some), width), dtype=bool)
        for columns in (rows[some, None], np.where(behind < 0, part[some], width)):
            at, places = np.nonzero(columns < width)
            free[at, columns[at, places]] = False
        unused = np.argsort(~free, axis=1, kind="stable")
        filled = np.take_along_axis(unused, np.clip(behind, 0, width - 1), axis=1)
        part[some] = np.where(behind >= 0, filled, part[some])
