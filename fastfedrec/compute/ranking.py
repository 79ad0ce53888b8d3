"""Sampled negatives, ranks among them, and the best items of each user."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute import ranking as _kernel
from fastfedrec._kernels.core import hardware as _hardware
from fastfedrec.compute._ranking_inputs import (
    check_counts,
    check_factors,
    check_held_out_rows,
    check_range,
    check_row_numbers,
    check_scores,
    seen_rows,
)
from fastfedrec.core import hardware
from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_array, check_instance, check_integer, plain_array
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows

__all__ = [
    "held_out_places_factors",
    "held_out_ranks",
    "held_out_ranks_factors",
    "recommend_factors",
    "sample_unseen",
    "top_k",
]

# Products of numbers a user, for each item wanted, from which on 8-bit copies of the factors pay; as measured, for both
# sizes of a number.  Code that multiplies 16 floats at once gains little, on a processor that does.
_SCREENED = {("x86-64-v3", 4): 12_000, ("x86-64-v3", 8): 6_000, ("x86-64-v4", 4): 60_000, ("x86-64-v4", 8): 8_000}


def sample_unseen(
    interactions: RowsLike, rows: Any, n: int, *, key: Key, purpose: str, n_threads: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Draw items that users have not seen, uniformly and without replacement.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        What each user has seen, as `fastfedrec.data.conversion.borrow_rows` takes it; values do not matter.  Users of a
        matrix are numbered from 0, and so are their streams.
    rows : array_like of shape (n_rows,), int
        Users, as row numbers of `interactions`; a row that stands twice gets the same items twice.
    n : int
        Items a user, from 0 to the number of items.
    key : Key
        Source of the randomness; it is not used up.
    purpose : str
        What the draws are for: each user's stream is (purpose, round 0, global user id), so a user's items do not
        depend on the other rows, on shards or on threads.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    items : ndarray of shape (n_rows, n), int32
        Columns in ascending order, then -1 where a user has fewer than `n` unseen items.
    counts : ndarray of shape (n_rows,), int64
        How many items each row has: `n`, or all that are unseen.

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
    counts = np.minimum(n, unseen)
    items = np.empty((len(rows), n), dtype=np.int32)
    if items.size:
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.sample_unseen(
            interactions.indptr, interactions.indices, rows, interactions.global_user_ids[rows], counts,
            key.subkey(purpose), items, failed, interactions.n_items, n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("sample_unseen needs n_items / 4 bytes a thread")
    return items, counts


def held_out_ranks(
    held_out_scores: Any, other_scores: Any, counts: Any, *, rows: Any = None, n_threads: int = 0
) -> NDArray[np.float64]:
    """Rank each held-out score among the scores of its row: 1 + how many are greater + half of the ties.

    Parameters
    ----------
    held_out_scores : array_like of shape (n_held_out,), float32 or float64
        What is ranked; infinities are ordinary values.
    other_scores : array_like of shape (n_rows, n), float32 or float64
        What it is ranked among.
    counts : array_like of shape (n_rows,), int
        How many scores of each row are there; the rest of the row is ignored.
    rows : array_like of shape (n_held_out,), int, or None
        The row of each held-out score; None where there is one for each row, in order.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_held_out,), float64
        From 1 (the best) to 1 + counts.

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
    ranks = np.empty(len(rows))
    # Below a million comparisons (0.2 ms) waking a thread costs more than it saves.
    n_threads = min(resolve_n_threads(n_threads), 1 + len(rows) * n // 2**20)
    _kernel.held_out_ranks(held_out_scores, other_scores, counts, rows, ranks, n_threads)
    if (bad := np.flatnonzero(np.isnan(ranks))).size:
        raise ValueError(f"scores must not be NaN, got one in row {rows[bad[0]]}; has the model diverged?")
    return ranks


_places_held_out = shares_docstring("""\
user_factors : array_like of shape (n_rows, n_factors), float32 or float64
    Finite; one user a row.
item_factors : array_like of shape (n_items, n_factors), float32 or float64
    Finite.
held_out_items : array_like of shape (n_held_out,), int
    What is placed, as rows of `item_factors`.
other_items : array_like of shape (n_rows, n), int
    What it is placed among.
counts : array_like of shape (n_rows,), int
    How many items of each row are there; the rest of the row is ignored.
rows : array_like of shape (n_held_out,), int, or None
    The row of each held-out item; None where there is one for each row, in order.
n_threads : int
    0 for all processors; the result does not depend on it.""")


@_places_held_out
def held_out_places_factors(
    user_factors: Any,
    item_factors: Any,
    held_out_items: Any,
    other_items: Any,
    counts: Any,
    *,
    rows: Any = None,
    n_threads: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each held-out item, the other items of its row with a greater inner product, and with the same one.

    Returns
    -------
    above : ndarray of shape (n_held_out,), int64
        Other items with a greater inner product.
    same : ndarray of shape (n_held_out,), int64
        Those with the same one, and the item itself: its rank is one of above + 1 to above + same.

    Raises
    ------
    ValueError
        Inner products that overflow; the row is named.

    See Also
    --------
    held_out_ranks_factors : The rank in the middle of these.
    fastfedrec.compute.places.places_factors : Places among all items that a user has not seen.

    Notes
    -----
    Inner products are added up in single precision where all factors are float32, otherwise in double, and in one
    order on every instruction set: places are equal on all machines.  Most items need none: their products of factors
    rounded to 16 bits tell on which side of the held-out item they are, because how far such a product can be off is
    known.  Where many items are as good as the held-out one, or a user's factors are all 0, this saves nothing.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import held_out_places_factors
    >>> items = [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]]
    >>> held_out_places_factors([[1.0, 0.0], [0.0, 2.0]], items, [1, 1], [[0, 2], [2, 1]], [2, 2])
    (array([1, 0]), array([1, 2]))
    """
    user_factors, item_factors = check_factors(user_factors, item_factors, finite=False)
    n_rows, n_items = len(user_factors), len(item_factors)
    held_out_items = check_row_numbers("held_out_items", held_out_items, n_items, "items").astype(np.int32)
    other_items = plain_array("other_items", other_items)
    if other_items.ndim != 2 or len(other_items) != n_rows or other_items.dtype.kind not in "iu":
        raise ValueError(
            f"other_items must be integers with one row a user ({n_rows}), got {other_items.dtype} {other_items.shape}"
        )
    counts = check_counts(counts, n_rows, other_items.shape[1], "items")
    others = other_items
    if others.dtype != np.int32:  # what the kernel's type may not hold is out of range there too
        others = np.full(others.shape, -1, dtype=np.int32)
        np.copyto(others, other_items, casting="unsafe", where=(other_items >= 0) & (other_items < n_items))
    places = check_held_out_rows("held_out_items", held_out_items, rows, n_rows)
    order: slice | np.ndarray = slice(None)
    indptr = np.arange(n_rows + 1)
    if rows is not None:
        order = np.argsort(places, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=n_rows))])
    above, same = (np.empty(len(places), dtype=np.int64) for _ in range(2))
    n_threads = resolve_n_threads(n_threads)
    wrong = np.zeros(n_threads, dtype=np.int64)
    _kernel.held_out_places_factors(
        user_factors, item_factors, indptr, held_out_items[order], np.ascontiguousarray(others), counts, above, same,
        wrong, n_threads,
    )  # fmt: skip
    if wrong.any():
        check_factors(user_factors, item_factors)
        check_range("other_items", other_items[np.arange(others.shape[1]) < counts[:, None]], n_items, "items")
        raise MemoryError("a copy of item_factors did not fit into memory")
    if (bad := np.flatnonzero(above < 0)).size:
        raise ValueError(f"inner products of user row {places[order][bad[0]]} overflow; has the model diverged?")
    if rows is not None:
        above[order], same[order] = above.copy(), same.copy()
    return above, same + 1


@_places_held_out
def held_out_ranks_factors(
    user_factors: Any,
    item_factors: Any,
    held_out_items: Any,
    other_items: Any,
    counts: Any,
    *,
    rows: Any = None,
    n_threads: int = 0,
) -> NDArray[np.float64]:
    """Rank held-out items among other items by their inner products with the user, without an array of scores.

    Returns
    -------
    ndarray of shape (n_held_out,), float64
        1 + the items with a greater inner product + half of those with the same one.

    Raises
    ------
    ValueError
        Inner products that overflow; the row is named.

    See Also
    --------
    held_out_ranks : The same from scores.
    held_out_places_factors : The greater ones and the same ones apart, and how they are counted.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import held_out_ranks_factors
    >>> items = [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]]
    >>> held_out_ranks_factors([[1.0, 0.0], [0.0, 2.0]], items, [1, 1], [[0, 2], [2, -1]], [2, 1])
    array([2., 1.])
    """
    above, same = held_out_places_factors(
        user_factors, item_factors, held_out_items, other_items, counts, rows=rows, n_threads=n_threads
    )
    return 1.0 + above + 0.5 * (same - 1)


def top_k(scores: Any, n: int, *, seen: Any = None, n_threads: int = 0) -> tuple[NDArray[np.int32], FloatArray]:
    """Find the `n` best columns of each row of a dense block of scores.

    Parameters
    ----------
    scores : array_like of shape (n_rows, n_items), float32 or float64
        Finite.
    n : int
        From 1 to n_items.
    seen : Interactions, SciPy sparse matrix or array, array, (indptr, indices) or None
        Columns that each row should not be given: `n_rows` rows in compressed form.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    items : ndarray of shape (n_rows, n), int32
        Columns, best first; ties go to the smaller column.  A row with fewer than `n` unseen columns ends with seen
        ones.
    scores : ndarray of shape (n_rows, n), dtype of `scores`
        Their scores; -inf for a seen column.

    See Also
    --------
    recommend_factors : The same from factors, without the block of scores.

    Examples
    --------
    >>> from fastfedrec.compute.ranking import top_k
    >>> top_k([[0.1, 0.9, 0.5, 0.9]], 3)
    (array([[1, 3, 2]], dtype=int32), array([[0.9, 0.9, 0.5]]))
    >>> top_k([[0.1, 0.9, 0.5, 0.9]], 3, seen=([0, 2], [2, 3]))
    (array([[1, 0, 2]], dtype=int32), array([[ 0.9,  0.1, -inf]]))
    """
    scores = check_array("scores", scores, ndim=2, finite=False)  # the kernel, which reads all of them, finds that out
    n = check_integer("n", n, low=1, high=scores.shape[1])
    n_threads = resolve_n_threads(n_threads)
    indptr, indices = seen_rows(seen, *scores.shape)
    items = np.empty((len(scores), n), dtype=np.int32)
    best = np.empty((len(scores), n), dtype=scores.dtype)
    failed = np.full(n_threads, len(scores), dtype=np.int64)
    _kernel.top_k(scores, indptr, indices, items, best, failed, n_threads)
    _check_memory(failed)
    if failed.min() < len(scores):
        check_array("scores", scores, ndim=2)
    return items, best


def recommend_factors(
    user_factors: Any, item_factors: Any, n: int, *, seen: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.float32] | NDArray[np.float64]]:
    """Find the `n` items with the greatest inner products for each user, without an array of users x items.

    Parameters
    ----------
    user_factors : array_like of shape (n_users, n_factors), float32 or float64
        Finite.
    item_factors : array_like of shape (n_items, n_factors), float32 or float64
        Finite.
    n : int
        From 1 to n_items.
    seen : Interactions, SciPy sparse matrix or array, array, (indptr, indices) or None
        Items that each user should not be given: `n_users` rows in compressed form.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    items : ndarray of shape (n_users, n), int32
        Rows of `item_factors`, best first; ties go to the smaller.  A user with fewer than `n` unseen items ends with
        seen ones.
    scores : ndarray of shape (n_users, n), float32 or float64
        Their inner products; -inf for a seen item.

    Raises
    ------
    ValueError
        Inner products that overflow; the user's row is named.

    See Also
    --------
    top_k : The same from a block of scores.

    Notes
    -----
    Inner products are added up over ascending factors, in single precision where all factors are float32, otherwise
    in double: then a score is off by at most n_factors * eps * sum of abs(products), where eps is the type's.  A user's
    result does not depend on the other users.  Between instruction sets (`fastfedrec.hardware`) scores differ within
    that bound, and items whose scores are that close may change places.

    A thread holds bitmaps of the items for 48 users: 6 bytes an item.  For an `n` above 16 it also holds 4 `n` + 64 of
    their candidates, at twice the bytes of a score.  For an `n` up to 16 of many users, items and factors most items
    are excluded by copies of the factors that are rounded to 8 bits, because how far a product of these can be off is
    known, and only the others have their scores computed: this changes the time, not the result.

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
    items = np.empty((n_users, n), dtype=np.int32)
    best = np.empty((n_users, n), dtype=user_factors.dtype)
    left = np.ones(n_users, dtype=np.int8)
    if _pays_to_screen(n_users, n_items, user_factors.shape[1], user_factors.itemsize, n):
        gave_up = np.zeros(n_threads, dtype=np.int64)
        _kernel.recommend_screened(user_factors, item_factors, indptr, indices, items, best, left, gave_up, n_threads)
    rows, failed = np.flatnonzero(left), np.full(n_threads, n_users, dtype=np.int64)
    if rows.size:
        _kernel.recommend_factors(user_factors, item_factors, indptr, indices, rows, items, best, failed, n_threads)
    _check_memory(failed)
    if (overflowed := failed.min()) < n_users:
        raise ValueError(f"inner products of user row {overflowed} overflow; has the model diverged?")
    return items, best


def _pays_to_screen(n_users: int, n_items: int, n_factors: int, itemsize: int, n: int) -> bool:
    """Whether 8-bit copies of the factors, before the scores, save more than they take; the result is the same."""
    name = hardware.instruction_set()
    if name == "x86-64-v4" and _hardware.splits_vectors():
        name = "x86-64-v3"
    least = _SCREENED.get((name, itemsize))
    if least is None or n > 16 or n_users < 400 or n_factors * itemsize < 128:
        return False
    return n_items * n_factors >= least * n


def _check_memory(failed: np.ndarray) -> None:
    if (failed < 0).any():
        raise MemoryError("a copy of item_factors, or the bitmaps and candidates of a thread, did not fit into memory")
