"""Where held-out items stand among all items that a user has not seen: what ranking metrics are made of."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute import places as _kernel
from fastfedrec.compute._ranking_inputs import check_factors, check_scores
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import borrow_rows
from fastfedrec.data.csr import check_named_rows

__all__ = ["places", "places_factors"]


def places(
    scores: Any, held_out: Any, *, seen: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each held-out item, the unseen items of its row that score higher, and those that score the same.

    Parameters
    ----------
    scores : array_like of shape (n_rows, n_items), float32 or float64
        Infinities are ordinary values.
    held_out : Interactions, SciPy matrix or array, dense array, or (indptr, indices)
        The items whose places are asked for: `n_rows` rows in compressed form.
    seen : Interactions, SciPy matrix or array, dense array, (indptr, indices) or None
        Items that are not ranked, none of them held out: `n_rows` rows in compressed form, ascending within a row.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    above : ndarray of shape (n_held_out,), int64
        Unseen items with a greater score, in the order of `held_out`.
    same : ndarray of shape (n_held_out,), int64
        Unseen items with the same score, the item itself among them: its rank is one of above + 1 to above + same.

    Raises
    ------
    ValueError
        A NaN score, or an item that is both held out and seen; the row is named.

    See Also
    --------
    places_factors : The same from factors, without the block of scores.

    Examples
    --------
    >>> from fastfedrec.compute.places import places
    >>> places([[0.9, 0.5, 0.5, 0.7]], ([0, 2], [1, 3]))
    (array([2, 1]), array([2, 1]))
    >>> places([[0.9, 0.5, 0.5, 0.7]], ([0, 1], [1]), seen=([0, 1], [0]))
    (array([1]), array([2]))
    """
    scores = check_scores("scores", scores, 2)
    failed, above, same = _count(scores, None, scores.shape, held_out, seen, n_threads)
    if failed < len(scores):
        raise ValueError(f"scores must not be NaN, got one in row {failed}; has the model diverged?")
    return above, same


def places_factors(
    user_factors: Any, item_factors: Any, held_out: Any, *, seen: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the same by inner products of factors, without an array of users x items.

    Parameters
    ----------
    user_factors : array_like of shape (n_users, n_factors), float32 or float64
        Finite.
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        Finite.
    held_out : Interactions, SciPy matrix or array, dense array, or (indptr, indices)
        The items whose places are asked for: `n_users` rows in compressed form.
    seen : Interactions, SciPy matrix or array, dense array, (indptr, indices) or None
        Items that are not ranked, none of them held out: `n_users` rows in compressed form, ascending within a row.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    above : ndarray of shape (n_held_out,), int64
        Unseen items with a greater inner product, in the order of `held_out`.
    same : ndarray of shape (n_held_out,), int64
        Unseen items with the same inner product, the item itself among them.

    Raises
    ------
    ValueError
        Inner products that overflow, or an item that is both held out and seen; the user's row is named.

    See Also
    --------
    places : The same from scores.

    Notes
    -----
    Inner products are those of `fastfedrec.ranking.recommend_factors`: added up over ascending factors, in single
    precision where all factors are float32, otherwise in double.  Items with equal factors have equal scores.  Between
    instruction sets scores differ in their last bits, and items that are that close may change places.

    Examples
    --------
    >>> from fastfedrec.compute.places import places_factors
    >>> places_factors([[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]], ([0, 1, 2], [1, 2]))
    (array([1, 1]), array([1, 1]))
    """
    user_factors, item_factors = check_factors(user_factors, item_factors)
    shape = len(user_factors), len(item_factors)
    failed, above, same = _count(user_factors, item_factors, shape, held_out, seen, n_threads)
    if failed < len(user_factors):
        raise ValueError(f"inner products of user row {failed} overflow; has the model diverged?")
    return above, same


def _count(
    rows: np.ndarray, factors: np.ndarray | None, shape: tuple[int, int], held_out: Any, seen: Any, n_threads: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """The first row with bad scores, or the number of rows, and what the kernel counts."""
    indptr, items = _rows("held_out", held_out, shape)
    nothing = np.zeros(shape[0] + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
    seen_indptr, seen_items = nothing if seen is None else _rows("seen", seen, shape, rising=True)
    n_threads = resolve_n_threads(n_threads)
    above, same = np.zeros(len(items), dtype=np.int64), np.zeros(len(items), dtype=np.int64)
    failed = np.full(n_threads, shape[0], dtype=np.int64)
    if len(items):
        _kernel.count_places(rows, factors, indptr, items, seen_indptr, seen_items, above, same, failed, n_threads)
    if (failed < 0).any():
        raise MemoryError("a copy of item_factors, or the scores of a block of users, did not fit into memory")
    first_bad = int(failed.min())
    if first_bad == shape[0] and (both := np.flatnonzero(same <= 0)).size:
        row = int(np.searchsorted(indptr, both[0], side="right")) - 1
        raise ValueError(
            f"held_out and seen must have no item in common, got item {items[both[0]]} in both of row {row}"
        )
    return first_bad, above, same


def _rows(name: str, rows: Any, shape: tuple[int, int], rising: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Compressed rows of items; of those that need not rise the places are told in their order."""
    if not isinstance(rows, tuple):
        rows = borrow_rows(name, rows, aligned=None if rising else "places")
        if rows.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, users x items, got {rows.shape}")
        return rows.indptr, rows.indices
    if len(rows) != 2:
        raise TypeError(f"{name} must be Interactions, a matrix or (indptr, indices), got {len(rows)} arrays")
    return check_named_rows(name, *rows, *shape, fields=("indptr", "indices"), rising=rising)
