"""Ranks of held-out items among all items that a user has not seen, from which ranking metrics are computed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute import ranks as _kernel
from fastfedrec.compute._ranking_inputs import check_factors, check_scores
from fastfedrec.core.arrays import check_outs
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import borrow_rows
from fastfedrec.data.csr import check_named_rows

__all__ = ["rank_counts", "rank_counts_factors"]

__dir__ = __all__.copy  # dir() lists only the public names


def rank_counts(
    scores: Any, held_out: Any, *, seen: Any = None, out: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each held-out item, the unseen items of its row with a greater or an equal score.

    Parameters
    ----------
    scores : array_like of shape (n_rows, n_items), float32 or float64
        Scores of all items; infinities are ordinary values.
    held_out : Interactions, SciPy matrix or array, dense array, or (indptr, indices)
        Items to rank, as `n_rows` compressed rows.
    seen : Interactions, SciPy matrix or array, dense array, (indptr, indices) or None
        Items to exclude, as `n_rows` compressed rows in ascending order; no item may be both seen and held out.
    out : tuple of two arrays or None
        Output arrays of int64 for the two counts; None makes new arrays.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    above : ndarray of shape (n_held_out,), int64
        Number of unseen items with a greater score, in the order of `held_out`.
    same : ndarray of shape (n_held_out,), int64
        Number of unseen items with an equal score, including the item: the rank is from above + 1 to above + same.

    Raises
    ------
    ValueError
        A score is NaN, or an item is both held out and seen; the message names the row.

    See Also
    --------
    rank_counts_factors : Counts from factors, without the block of scores.

    Examples
    --------
    >>> from fastfedrec.compute.ranks import rank_counts
    >>> rank_counts([[0.9, 0.5, 0.5, 0.7]], ([0, 2], [1, 3]))
    (array([2, 1]), array([2, 1]))
    >>> rank_counts([[0.9, 0.5, 0.5, 0.7]], ([0, 1], [1]), seen=([0, 1], [0]))
    (array([1]), array([2]))
    """
    scores = check_scores("scores", scores, 2)
    failed, above, same = _count(scores, None, scores.shape, held_out, seen, out, n_threads)
    if failed < len(scores):
        raise ValueError(f"scores must not be NaN, got one in row {failed}; has the model diverged?")
    return (above, same) if out is None else out


def rank_counts_factors(
    user_factors: Any, item_factors: Any, held_out: Any, *, seen: Any = None, out: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each held-out item, the unseen items with a greater or an equal inner product with the user.

    Parameters
    ----------
    user_factors : array_like of shape (n_users, n_factors), float32 or float64
        Finite factors of each user.
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        Finite factors of each item.
    held_out : Interactions, SciPy matrix or array, dense array, or (indptr, indices)
        Items to rank, as `n_users` compressed rows.
    seen : Interactions, SciPy matrix or array, dense array, (indptr, indices) or None
        Items to exclude, as `n_users` compressed rows in ascending order; no item may be both seen and held out.
    out : tuple of two arrays or None
        Output arrays of int64 for the two counts; None makes new arrays.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    above : ndarray of shape (n_held_out,), int64
        Number of unseen items with a greater inner product, in the order of `held_out`.
    same : ndarray of shape (n_held_out,), int64
        Number of unseen items with an equal inner product, including the item.

    Raises
    ------
    ValueError
        Inner products overflow, or an item is both held out and seen; the message names the user's row.

    See Also
    --------
    rank_counts : Counts from scores.

    Notes
    -----
    No array of users x items is made.  Inner products are computed as in
    `fastfedrec.ranking.recommend_factors`: sums over ascending factors, in single precision if all factors are float32,
    otherwise in double.  Items with equal factors have equal scores.  Between instruction sets the last bits of scores
    differ, and so may the order of items with scores that close.

    Examples
    --------
    >>> from fastfedrec.compute.ranks import rank_counts_factors
    >>> rank_counts_factors([[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]], ([0, 1, 2], [1, 2]))
    (array([1, 1]), array([1, 1]))
    """
    user_factors, item_factors = check_factors(user_factors, item_factors)
    shape = len(user_factors), len(item_factors)
    failed, above, same = _count(user_factors, item_factors, shape, held_out, seen, out, n_threads)
    if failed < len(user_factors):
        raise ValueError(f"inner products of user row {failed} overflow; has the model diverged?")
    return (above, same) if out is None else out


def _count(
    rows: np.ndarray,
    factors: np.ndarray | None,
    shape: tuple[int, int],
    held_out: Any,
    seen: Any,
    out: Any,
    n_threads: int,
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the first row with invalid scores, or the number of rows, and the kernel's counts."""
    indptr, items = _check_rows("held_out", held_out, shape)
    empty_rows = np.zeros(shape[0] + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
    seen_indptr, seen_items = empty_rows if seen is None else _check_rows("seen", seen, shape, rising=True)
    n_threads = resolve_n_threads(n_threads)
    read = rows, *(() if factors is None else (factors,)), indptr, items, seen_indptr, seen_items
    size = (len(items),)
    above, same = check_outs(out, ("above", size, np.int64), ("same", size, np.int64), apart_from=read)
    above.fill(0)
    same.fill(0)
    failed = np.full(n_threads, shape[0], dtype=np.int64)
    if len(items):
        _kernel.rank_counts(rows, factors, indptr, items, seen_indptr, seen_items, above, same, failed, n_threads)
    # A thread reports -1 for a failed allocation, else its first row with an invalid score.
    if (failed < 0).any():
        raise MemoryError("a copy of item_factors, or the scores of a block of users, did not fit into memory")
    # An unseen item counts itself in `same`, so a count of 0 means that the held-out item was excluded as seen.
    first_bad = int(failed.min())
    if first_bad == shape[0] and (both := np.flatnonzero(same <= 0)).size:
        row = int(np.searchsorted(indptr, both[0], side="right")) - 1
        raise ValueError(
            f"held_out and seen must have no item in common, got item {items[both[0]]} in both of row {row}"
        )
    return first_bad, above, same


def _check_rows(name: str, rows: Any, shape: tuple[int, int], rising: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return compressed rows of item indices, which are ascending within each row if `rising`."""
    if not isinstance(rows, tuple):
        # The counts follow the caller's order of the held-out items, so a matrix must not be sorted or merged.
        rows = borrow_rows(name, rows, aligned=None if rising else "ranks")
        if rows.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, users x items, got {rows.shape}")
        return rows.indptr, rows.indices
    if len(rows) != 2:
        raise TypeError(f"{name} must be Interactions, a matrix or (indptr, indices), got {len(rows)} arrays")
    return check_named_rows(name, *rows, *shape, fields=("indptr", "indices"), rising=rising)
