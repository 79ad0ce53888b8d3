"""Sampling of unseen items, ranks of held-out items, and the best items of each user."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute import ranking as _kernel
from fastfedrec.compute import _screening
from fastfedrec.compute._ranking_inputs import (
    check_counts,
    check_factors,
    check_held_out_rows,
    check_other_items,
    check_range,
    check_row_numbers,
    check_scores,
    seen_rows,
)
from fastfedrec.core.arrays import FloatArray, check_out, check_outs
from fastfedrec.core.check import check_array, check_instance, check_integer
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows

__all__ = [
    "held_out_rank_counts_factors",
    "held_out_ranks",
    "held_out_ranks_factors",
    "recommend_factors",
    "sample_unseen",
    "top_k",
]

__dir__ = __all__.copy  # dir() lists only the public names


def sample_unseen(
    interactions: RowsLike, rows: Any, n: int, *, key: Key, purpose: str, out: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Draw items that users have not seen, uniformly and without replacement.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        Seen items of each user, in any form that `fastfedrec.data.conversion.borrow_rows` accepts; values are ignored.
        Users of a matrix have their row numbers as global user ids.
    rows : array_like of shape (n_rows,), int
        Users, as row numbers of `interactions`; a repeated row gets the same items each time.
    n : int
        Number of items for each user, from 0 to the number of items.
    key : Key
        Key of the random draws; the call does not claim it.
    purpose : str
        Purpose of the draws.  Each user's stream is (purpose, round 0, global user id), so a user's items do not depend
        on the other rows, on shards or on threads.
    out : tuple of two arrays or None
        Output arrays for the items and the counts; None makes new arrays.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    items : ndarray of shape (n_rows, n), int32
        Columns in ascending order, then -1 for a user with fewer than `n` unseen items.
    counts : ndarray of shape (n_rows,), int64
        Number of items of each row: the minimum of `n` and the number of unseen items.

    Raises
    ------
    ValueError
        A row number that is out of range.

    References
    ----------
    .. [1] Bentley and Floyd, "Programming pearls: a sample of brilliance", Communications of the ACM 30(9), 1987.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.ranking import sample_unseen
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "c"])
    >>> items, counts = sample_unseen(data, [0, 1], 2, key=Key.from_seed(1), purpose="demo")
    >>> items
    array([[ 2, -1],
           [ 0,  1]], dtype=int32)
    >>> counts
    array([1, 2])
    """
    interactions = borrow_rows("interactions", interactions)
    check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
    rows = check_row_numbers("rows", rows, interactions.n_users, "users")
    n = check_integer("n", n, low=0, high=2**31 - 1)
    n_threads = resolve_n_threads(n_threads)
    unseen = interactions.n_items - interactions.interactions_per_user()[rows]
    wanted = ("items", (len(rows), n), np.int32), ("counts", (len(rows),), np.int64)
    read = interactions.indptr, interactions.indices, rows
    items, counts = check_outs(out, *wanted, apart_from=read)
    np.minimum(n, unseen, out=counts)
    if items.size:
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.sample_unseen(
            interactions.indptr, interactions.indices, rows, interactions.global_user_ids[rows], counts,
            key.subkey(purpose), items, failed, interactions.n_items, n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("sample_unseen needs n_items / 4 bytes for each thread; use fewer threads")
    return (items, counts) if out is None else out


def held_out_ranks(
    held_out_scores: Any, other_scores: Any, counts: Any, *, rows: Any = None, out: Any = None, n_threads: int = 0
) -> NDArray[np.float64]:
    """Rank each held-out score among the scores of its row: 1 + the number of greater scores + half of the ties.

    Parameters
    ----------
    held_out_scores : array_like of shape (n_held_out,), float32 or float64
        Scores to rank; infinities are ordinary values.
    other_scores : array_like of shape (n_rows, n), float32 or float64
        Scores to compare with.
    counts : array_like of shape (n_rows,), int
        Number of scores of each row; the row's remaining entries are ignored.
    rows : array_like of shape (n_held_out,), int, or None
        Row of each held-out score; None for one held-out score in each row, in order.
    out : ndarray of shape (n_held_out,), float64, or None
        Output array; None makes a new array.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (n_held_out,), float64
        Ranks from 1 (the best) to 1 + counts.

    Raises
    ------
    ValueError
        A NaN score; its row is named.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import held_out_ranks
    >>> held_out_ranks([0.5, 0.5], [[0.9, 0.1, 0.2], [0.5, 0.9, 7.0]], [3, 2])
    array([2. , 2.5])
    """
    held_out_scores = check_scores("held_out_scores", held_out_scores, 1)
    other_scores = check_scores("other_scores", other_scores, 2)
    if held_out_scores.dtype != other_scores.dtype:
        held_out_scores, other_scores = held_out_scores.astype(np.float64), other_scores.astype(np.float64)
    n_rows, n = other_scores.shape
    counts = check_counts(counts, n_rows, n, "scores")
    rows = check_held_out_rows("held_out_scores", held_out_scores, rows, n_rows)
    ranks = check_out(out, (len(rows),), np.float64, apart_from=(held_out_scores, other_scores, counts, rows))
    # A million comparisons take 0.2 ms; for fewer, waking a thread costs more than it saves.
    n_threads = min(resolve_n_threads(n_threads), 1 + len(rows) * n // 2**20)
    _kernel.held_out_ranks(held_out_scores, other_scores, counts, rows, ranks, n_threads)
    if (bad := np.flatnonzero(np.isnan(ranks))).size:
        raise ValueError(f"scores must not be NaN, got one in row {rows[bad[0]]}; has the model diverged?")
    return ranks if out is None else out


_shares_rank_parameters = shares_docstring("""\
user_factors : array_like of shape (n_rows, n_factors), float32 or float64
    Finite factors of the user of each row.
item_factors : array_like of shape (n_items, n_factors), float32 or float64
    Finite factors of each item.
held_out_items : array_like of shape (n_held_out,), int
    Items to rank, as rows of `item_factors`.
other_items : array_like of shape (n_rows, n), int
    Items to compare with, as rows of `item_factors`.
counts : array_like of shape (n_rows,), int
    Number of other items of each row; the row's remaining entries are ignored.
rows : array_like of shape (n_held_out,), int, or None
    Row of each held-out item; None for one held-out item in each row, in order.
n_threads : int
    Number of threads; 0 for all processors.  The result does not depend on it.""")


@_shares_rank_parameters
def held_out_rank_counts_factors(
    user_factors: Any,
    item_factors: Any,
    held_out_items: Any,
    other_items: Any,
    counts: Any,
    *,
    rows: Any = None,
    out: Any = None,
    n_threads: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each held-out item, the other items of its row with a greater or an equal inner product.

    Parameters
    ----------
    out : tuple of two arrays or None
        Output arrays of int64 for the two counts; None makes new arrays.

    Returns
    -------
    above : ndarray of shape (n_held_out,), int64
        Number of other items with a greater inner product.
    same : ndarray of shape (n_held_out,), int64
        1 + the number of other items with an equal inner product: the rank is from above + 1 to above + same.

    Raises
    ------
    ValueError
        Inner products overflow; the message names the row.

    See Also
    --------
    held_out_ranks_factors : The mean of the possible ranks.
    fastfedrec.compute.ranks.rank_counts_factors : Ranks among all items that a user has not seen.

    Notes
    -----
    Inner products are summed in single precision if all factors are float32, otherwise in double.  The order of
    summation is the same on every instruction set, so results are equal on all machines.  For most items the product of
    factors rounded to 16 bits, with a bound on its error, decides the comparison.  This saves no time if many items
    score as high as the held-out one, or if all factors of a user are 0.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import held_out_rank_counts_factors
    >>> items = [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]]
    >>> held_out_rank_counts_factors([[1.0, 0.0], [0.0, 2.0]], items, [1, 1], [[0, 2], [2, 1]], [2, 2])
    (array([1, 0]), array([1, 2]))
    """
    user_factors, item_factors = check_factors(user_factors, item_factors, finite=False)
    n_rows, n_items = len(user_factors), len(item_factors)
    held_out_items = check_row_numbers("held_out_items", held_out_items, n_items, "items").astype(np.int32)
    other_items, items = check_other_items(other_items, n_rows, n_items)
    counts = check_counts(counts, n_rows, items.shape[1], "items")
    held_out_rows = check_held_out_rows("held_out_items", held_out_items, rows, n_rows)
    # The kernel expects held-out items sorted by row; the last lines of this function restore the caller's order.
    order: slice | np.ndarray = slice(None)
    indptr = np.arange(n_rows + 1)
    if rows is not None:
        order = np.argsort(held_out_rows, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(held_out_rows, minlength=n_rows))])
    size = (len(held_out_rows),)
    read = user_factors, item_factors, held_out_items, items, counts, held_out_rows
    above, same = check_outs(out, ("above", size, np.int64), ("same", size, np.int64), apart_from=read)
    n_threads = resolve_n_threads(n_threads)
    wrong = np.zeros(n_threads, dtype=np.int64)
    _kernel.held_out_rank_counts_factors(
        user_factors, item_factors, indptr, held_out_items[order], np.ascontiguousarray(items), counts, above, same,
        wrong, n_threads,
    )  # fmt: skip
    if wrong.any():
        # The kernel does not report the cause of a failure, so the checks that it replaced run here.
        check_factors(user_factors, item_factors)
        check_range("other_items", other_items[np.arange(items.shape[1]) < counts[:, None]], n_items, "items")
        raise MemoryError("a copy of item_factors did not fit into memory")
    if (bad := np.flatnonzero(above < 0)).size:
        raise ValueError(f"inner products of user row {held_out_rows[order][bad[0]]} overflow; has the model diverged?")
    if rows is not None:
        above[order], same[order] = above.copy(), same.copy()
    same += 1
    return (above, same) if out is None else out


@_shares_rank_parameters
def held_out_ranks_factors(
    user_factors: Any,
    item_factors: Any,
    held_out_items: Any,
    other_items: Any,
    counts: Any,
    *,
    rows: Any = None,
    out: Any = None,
    n_threads: int = 0,
) -> NDArray[np.float64]:
    """Rank held-out items among other items by their inner products with the user, without an array of scores.

    Parameters
    ----------
    out : ndarray of shape (n_held_out,), float64, or None
        Output array; None makes a new array.

    Returns
    -------
    ndarray of shape (n_held_out,), float64
        1 + the number of items with a greater inner product + half of the number of ties.

    Raises
    ------
    ValueError
        Inner products overflow; the message names the row.

    See Also
    --------
    held_out_ranks : Ranks from scores.
    held_out_rank_counts_factors : Separate counts of greater and equal inner products, with notes on precision.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import held_out_ranks_factors
    >>> items = [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]]
    >>> held_out_ranks_factors([[1.0, 0.0], [0.0, 2.0]], items, [1, 1], [[0, 2], [2, -1]], [2, 1])
    array([2., 1.])
    """
    above, same = held_out_rank_counts_factors(
        user_factors, item_factors, held_out_items, other_items, counts, rows=rows, n_threads=n_threads
    )
    ranks = check_out(out, above.shape, np.float64)
    np.add(1.0 + above, 0.5 * (same - 1), out=ranks)
    return ranks if out is None else out


def top_k(
    scores: Any, n: int, *, seen: Any = None, out: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int32], FloatArray]:
    """Find the `n` best columns of each row of a dense block of scores.

    Parameters
    ----------
    scores : array_like of shape (n_rows, n_items), float32 or float64
        Finite scores of all columns.
    n : int
        Number of columns to find for each row, from 1 to n_items.
    seen : Interactions, SciPy sparse matrix or array, array, (indptr, indices) or None
        Columns to exclude from each row, as `n_rows` compressed rows.
    out : tuple of two arrays or None
        Output arrays for the items and their scores; None makes new arrays.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    items : ndarray of shape (n_rows, n), int32
        Columns, best first; ties go to the smaller column.  A row with fewer than `n` unseen columns ends with seen
        columns.
    scores : ndarray of shape (n_rows, n), dtype of `scores`
        Score of each of these columns; -inf for a seen column.

    See Also
    --------
    recommend_factors : Best items from factors, without the block of scores.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import top_k
    >>> top_k([[0.1, 0.9, 0.5, 0.9]], 3)
    (array([[1, 3, 2]], dtype=int32), array([[0.9, 0.9, 0.5]]))
    >>> top_k([[0.1, 0.9, 0.5, 0.9]], 3, seen=([0, 2], [2, 3]))
    (array([[1, 0, 2]], dtype=int32), array([[ 0.9,  0.1, -inf]]))
    """
    scores = check_array("scores", scores, ndim=2, finite=False)  # the kernel reads all scores and finds NaN
    n = check_integer("n", n, low=1, high=scores.shape[1])
    n_threads = resolve_n_threads(n_threads)
    indptr, indices = seen_rows(seen, *scores.shape)
    wanted = ("items", (len(scores), n), np.int32), ("scores", (len(scores), n), scores.dtype.type)
    items, best = check_outs(out, *wanted, apart_from=(scores, indptr, indices))
    failed = np.full(n_threads, len(scores), dtype=np.int64)
    _kernel.top_k(scores, indptr, indices, items, best, failed, n_threads)
    # The kernel reports the first row with a NaN or infinite score, and the check raises the error.
    if _first_bad(failed) < len(scores):
        check_array("scores", scores, ndim=2)
    return (items, best) if out is None else out


def recommend_factors(
    user_factors: Any, item_factors: Any, n: int, *, seen: Any = None, out: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.float32] | NDArray[np.float64]]:
    """Find the `n` items with the greatest inner products for each user, without an array of users x items.

    Parameters
    ----------
    user_factors : array_like of shape (n_users, n_factors), float32 or float64
        Finite factors of each user.
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        Finite factors of each item.
    n : int
        Number of items to find for each user, from 1 to n_items.
    seen : Interactions, SciPy sparse matrix or array, array, (indptr, indices) or None
        Items to exclude for each user, as `n_users` compressed rows.
    out : tuple of two arrays or None
        Output arrays for the items and their scores; None makes new arrays.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    items : ndarray of shape (n_users, n), int32
        Rows of `item_factors`, best first; ties go to the smaller.  A user with fewer than `n` unseen items ends with
        seen items.
    scores : ndarray of shape (n_users, n), float32 or float64
        Inner product of each of these items; -inf for a seen item.

    Raises
    ------
    ValueError
        Inner products overflow; the message names the user's row.

    See Also
    --------
    top_k : Best columns of a block of scores.

    Notes
    -----
    Inner products are summed over ascending factors, in single precision if all factors are float32, otherwise in
    double.  The error of a score is at most n_factors * eps * sum of abs(products), with the eps of that type.  A
    user's result does not depend on the other users.  Between instruction sets (`fastfedrec.hardware`) scores differ
    within that bound, and the order of items with scores that close may differ too.

    A thread holds bitmaps of the items for 48 users, 6 bytes for each item.  For `n` above 16 it also holds 4 `n` + 64
    candidates of these users, at twice the bytes of a score.  For `n` up to 16 and many users, items and factors,
    copies of the factors that are rounded to 8 bits exclude most items, by a bound on the error of their products.
    Only the remaining items have their scores computed.  This changes the time and not the result.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import recommend_factors
    >>> recommend_factors([[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]], 2)
    (array([[0, 1],
           [1, 2]], dtype=int32), array([[ 3.,  2.],
           [10.,  8.]]))
    """
    user_factors, item_factors = check_factors(user_factors, item_factors)
    n_users, n_items = len(user_factors), len(item_factors)
    n = check_integer("n", n, low=1, high=n_items)
    n_threads = resolve_n_threads(n_threads)
    indptr, indices = seen_rows(seen, n_users, n_items)
    wanted = ("items", (n_users, n), np.int32), ("scores", (n_users, n), user_factors.dtype.type)
    items, best = check_outs(out, *wanted, apart_from=(user_factors, item_factors, indptr, indices))
    rows, failed = np.arange(n_users), np.full(n_threads, n_users, dtype=np.int64)
    if _screening.pays(n_users, n_items, user_factors.shape[1], user_factors.itemsize, n):
        has_stopped = np.zeros(n_threads, dtype=np.int64)
        is_open = np.ones(n_users, dtype=np.int8)  # 1 for a user without a result so far
        _kernel.recommend_screened(
            user_factors, item_factors, indptr, indices, items, best, is_open, has_stopped, n_threads
        )
        rows = np.flatnonzero(is_open)
    # The kernel without screening computes the users that screening left out or gave up.
    if rows.size:
        _kernel.recommend_factors(user_factors, item_factors, indptr, indices, rows, items, best, failed, n_threads)
    if (overflowed := _first_bad(failed)) < n_users:
        raise ValueError(f"inner products of user row {overflowed} overflow; has the model diverged?")
    return (items, best) if out is None else out


def _first_bad(failed: np.ndarray) -> int:
    """Return the first row that a thread reported, or the number of rows; -1 is a failed allocation."""
    if (first := int(failed.min())) < 0:
        raise MemoryError("a copy of item_factors, or the bitmaps and candidates of a thread, did not fit into memory")
    return first
