"""Sampled negatives, ranks among them, and the best items of each user (docs/how-to/evaluate.md).

Negatives are ranks among the items a user has not seen, drawn by Floyd's algorithm (`_subset.pxd`) and turned into
items by one walk along the user's sorted row: the r-th unseen item is r + k, where k seen items lie below it, and
seen[j] - j unseen items lie below the j-th seen one.

The best items are kept in a heap of columns over one row of scores, the worst of them on top, so no more than one row
of scores a thread exists.  Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.math cimport INFINITY, NAN, isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from _kernels._chacha20 cimport Stream, stream_open
from _kernels._subset cimport bitmap_words, lowest_bit, mark_subset

include "_level.pxi"


def sample_unseen(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,), ascending within a row
    const int64_t[::1] rows,       # IN  (n_rows,)
    const uint64_t[::1] users,     # IN  (n_rows,), global user ids
    const int64_t[::1] counts,     # IN  (n_rows,), how many to draw: at most n and the number unseen
    const uint32_t[::1] subkey,    # IN  (8,)
    int32_t[:, ::1] out,           # OUT (n_rows, n), ascending, then -1
    int64_t[::1] failed,           # OUT (n_threads,), 1 where a thread had no memory
    Py_ssize_t n_items,
    int n_threads,
):
    """Draw unseen items without replacement, each row from the stream (subkey, 0, user)."""
    cdef Py_ssize_t n_rows = rows.shape[0], n = out.shape[1], i
    cdef const int32_t* items = NULL
    cdef uint64_t* marked
    cdef Stream* stream
    if indices.shape[0]:
        items = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(bitmap_words(n_items) + 1, sizeof(uint64_t))
        stream = <Stream*>malloc(sizeof(Stream))
        for i in prange(n_rows, schedule="dynamic", chunksize=64):
            if marked == NULL or stream == NULL:
                failed[threadid()] = 1
            else:
                stream_open(stream, &subkey[0], 0, users[i])
                _sample_row(
                    items + indptr[rows[i]],
                    indptr[rows[i] + 1] - indptr[rows[i]],
                    n_items,
                    counts[i],
                    n,
                    stream,
                    marked,
                    &out[i, 0],
                )
        free(marked)
        free(stream)


cdef inline void _sample_row(
    const int32_t* seen,      # IN  (n_seen,), ascending
    Py_ssize_t n_seen,
    Py_ssize_t n_items,
    Py_ssize_t count,
    Py_ssize_t n,
    Stream* stream,
    uint64_t* marked,         # scratch, all 0 before and after
    int32_t* out,             # OUT (n,)
) noexcept nogil:
    cdef Py_ssize_t block, rank, below = 0, filled = 0
    cdef uint64_t word
    mark_subset(stream, n_items - n_seen, count, marked)
    for block in range(bitmap_words(n_items - n_seen)):
        word = marked[block]
        marked[block] = 0
        while word:
            rank = (block << 6) + lowest_bit(word)
            word &= word - 1
            while below < n_seen and seen[below] - below <= rank:
                below += 1
            out[filled] = <int32_t>(rank + below)
            filled += 1
    for filled in range(count, n):
        out[filled] = -1


def held_out_ranks(
    const floating[::1] held_out_scores,   # IN  (n_held_out,)
    const floating[:, ::1] other_scores,   # IN  (n_rows, n)
    const int64_t[::1] counts,             # IN  (n_rows,), how many of a row's scores are there
    const int64_t[::1] rows,               # IN  (n_held_out,), the row each is ranked in
    double[::1] out,                       # OUT (n_held_out,), NaN where a score is NaN
    int n_threads,
):
    """1 + greater + ties / 2 of each held-out score among its row."""
    cdef Py_ssize_t i, n = other_scores.shape[1]
    cdef const floating* scores = NULL
    if other_scores.shape[0] and n:
        scores = &other_scores[0, 0]
    for i in prange(held_out_scores.shape[0], nogil=True, schedule="static", num_threads=n_threads):
        out[i] = _rank(held_out_scores[i], scores + rows[i] * n, counts[rows[i]])


cdef inline double _rank(floating score, const floating* others, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef int greater = 0, equal = 0, less = 0
    for i in range(n):
        greater += others[i] > score
        equal += others[i] == score
        less += others[i] < score
    if score != score or greater + equal + less != n:  # only NaN is none of the three
        return NAN
    return 1.0 + greater + 0.5 * equal


def top_k(
    const floating[:, ::1] scores,      # IN  (n_rows, n_items)
    const int64_t[::1] indptr,          # IN  (n_rows + 1,) or (0,) where nothing is seen
    const int32_t[::1] indices,         # IN  (n_seen,)
    int32_t[:, ::1] out_items,          # OUT (n_rows, n)
    floating[:, ::1] out_scores,        # OUT (n_rows, n)
    int64_t[::1] failed,                # OUT (n_threads,), n_rows; -1 where a thread had no memory
    int n_threads,
):
    """The n best columns of each row, best first."""
    cdef Py_ssize_t n_rows = scores.shape[0], n_items = scores.shape[1], n = out_items.shape[1], r, i
    cdef double* row
    with nogil, parallel(num_threads=n_threads):
        row = <double*>malloc(n_items * sizeof(double))
        for r in prange(n_rows, schedule="static"):
            if row == NULL:
                failed[threadid()] = -1
            else:
                for i in range(n_items):
                    row[i] = scores[r, i]
                if indptr.shape[0]:
                    for i in range(indptr[r], indptr[r + 1]):
                        row[indices[i]] = -INFINITY
                _select(row, n_items, &out_items[r, 0], n)
                for i in range(n):
                    out_scores[r, i] = <floating>row[out_items[r, i]]
        free(row)


def recommend_factors(
    const floating[:, ::1] user_factors,   # IN  (n_users, n_factors)
    const double[:, ::1] item_columns,     # IN  (n_factors, n_items), so that the inner loop runs along items
    const int64_t[::1] indptr,             # IN  (n_users + 1,) or (0,) where nothing is seen
    const int32_t[::1] indices,            # IN  (n_seen,)
    int32_t[:, ::1] out_items,             # OUT (n_users, n)
    floating[:, ::1] out_scores,           # OUT (n_users, n)
    int64_t[::1] failed,                   # OUT (n_threads,), n_users; first user whose scores overflow, -1 no memory
    int n_threads,
):
    """The n best items of each user by inner product, best first; one row of scores a thread."""
    cdef Py_ssize_t n_users = user_factors.shape[0], n_items = item_columns.shape[1], n = out_items.shape[1], u, i
    cdef double* row
    cdef int thread
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        row = <double*>malloc(n_items * sizeof(double))
        for u in prange(n_users, schedule="dynamic", chunksize=32):
            if row == NULL:
                failed[thread] = -1
            elif not _inner_products(&user_factors[u, 0], &item_columns[0, 0], user_factors.shape[1], n_items, row):
                if u < failed[thread]:
                    failed[thread] = u
            else:
                if indptr.shape[0]:
                    for i in range(indptr[u], indptr[u + 1]):
                        row[indices[i]] = -INFINITY
                _select(row, n_items, &out_items[u, 0], n)
                for i in range(n):
                    out_scores[u, i] = <floating>row[out_items[u, i]]
        free(row)


cdef inline bint _inner_products(
    const floating* x,        # IN  (n_factors,)
    const double* columns,    # IN  (n_factors, n_items)
    Py_ssize_t n_factors,
    Py_ssize_t n_items,
    double* out,              # OUT (n_items,)
) noexcept nogil:
    """Sums over factors in ascending order; returns whether all are finite."""
    cdef Py_ssize_t i, f = 0
    cdef const double* column
    cdef double x0, x1, x2, x3, check = 0.0
    for i in range(n_items):
        out[i] = 0.0
    while f + 4 <= n_factors:  # four factors a pass, because one a pass spends its time storing
        column = columns + f * n_items
        x0, x1, x2, x3 = x[f], x[f + 1], x[f + 2], x[f + 3]
        for i in range(n_items):
            out[i] = (
                out[i] + x0 * column[i] + x1 * column[n_items + i] + x2 * column[2 * n_items + i]
                + x3 * column[3 * n_items + i]
            )
        f += 4
    while f < n_factors:
        column = columns + f * n_items
        x0 = x[f]
        for i in range(n_items):
            out[i] += x0 * column[i]
        f += 1
    for i in range(n_items):
        check += out[i] * 0.0  # 0, or NaN from the first score that is not finite
    return isfinite(check)


cdef inline bint _worse(const double* row, int32_t a, int32_t b) noexcept nogil:
    return row[a] < row[b] or (row[a] == row[b] and a > b)


cdef inline void _sift_down(const double* row, int32_t* heap, Py_ssize_t n, Py_ssize_t place) noexcept nogil:
    """Let heap[place] sink until no child is worse: the worst column is on top."""
    cdef Py_ssize_t child
    cdef int32_t moving = heap[place]
    while 2 * place + 1 < n:
        child = 2 * place + 1
        if child + 1 < n and _worse(row, heap[child + 1], heap[child]):
            child += 1
        if not _worse(row, heap[child], moving):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moving


cdef inline void _select(const double* row, Py_ssize_t n_items, int32_t* out, Py_ssize_t n) noexcept nogil:
    """The n best columns, best first, ties to the smaller column."""
    cdef Py_ssize_t i
    cdef int32_t worst
    for i in range(n):
        out[i] = <int32_t>i
    for i in range(n // 2 - 1, -1, -1):
        _sift_down(row, out, n, i)
    for i in range(n, n_items):
        if row[i] > row[out[0]]:  # a tie stays with the smaller column, which came first
            out[0] = <int32_t>i
            _sift_down(row, out, n, 0)
    for i in range(n - 1, 0, -1):
        worst = out[0]
        out[0] = out[i]
        out[i] = worst
        _sift_down(row, out, i, 0)
