"""Sampled negatives, ranks among them, and the best items of each user (docs/how-to/evaluate.md).

Negatives are ranks among the items a user has not seen, drawn by Floyd's algorithm (`_subset.pxd`) and turned into
items by one walk along the user's row.

Scores of a block of users and a tile of items are computed in registers, compared with the worst of the best so far,
and dropped: no row of scores exists.  What runs in vectors is in `_ranking.cpp`.  Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from _kernels._chacha20 cimport Stream, stream_open
from _kernels._subset cimport bitmap_words, mark_subset

include "_level.pxi"

cdef extern from "_kernels/_ranking.h" namespace "fastfedrec" nogil:
    const Py_ssize_t LINE_BYTES, BLOCK_USERS
    Py_ssize_t whole_lines(Py_ssize_t n, Py_ssize_t size) noexcept
    void pack_items[Real](const Real* items, Py_ssize_t n_items, Py_ssize_t n_factors, Real* out) noexcept
    void pad_row[Real](const Real* row, Py_ssize_t n_factors, Real* out) noexcept
    Py_ssize_t recommend_block[Real](
        const Real* users, Py_ssize_t n_users, Py_ssize_t n_factors, const Real* items, Py_ssize_t n_items,
        const int64_t* indptr, const int32_t* indices, int32_t* out_items, Real* out_scores, Py_ssize_t n,
        Real* x, uint64_t* taken
    ) noexcept
    void select_best "fastfedrec::top_k"[Real](
        const Real* scores, Py_ssize_t n_items, const int32_t* seen, Py_ssize_t n_seen,
        int32_t* out_items, Real* out_scores, Py_ssize_t n, uint64_t* taken
    ) noexcept
    void held_out_row[Real](
        const Real* x, const Real* items, Py_ssize_t n_factors, const int32_t* held_out, Py_ssize_t n_held_out,
        const int32_t* others, Py_ssize_t n_others, Real* scores, double* out
    ) noexcept
    double rank[Real](Real score, const Real* others, Py_ssize_t n) noexcept
    void unseen_items(
        uint64_t* marked, const int32_t* seen, Py_ssize_t n_seen, Py_ssize_t n_items, uint64_t* taken, int32_t* out
    ) noexcept

cdef extern from "<cstdlib>" nogil:
    void* aligned_alloc(size_t alignment, size_t size) noexcept


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
    cdef Py_ssize_t n_rows = rows.shape[0], n = out.shape[1], n_words = bitmap_words(n_items), n_seen, r, i
    cdef const int32_t* items = NULL
    cdef uint64_t* marked
    cdef uint64_t* taken
    cdef int32_t* drawn
    cdef Stream* stream
    if indices.shape[0]:
        items = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(n_words + 1, sizeof(uint64_t))
        taken = <uint64_t*>malloc((n_words + 1) * sizeof(uint64_t))
        drawn = <int32_t*>malloc((n + 4) * sizeof(int32_t))
        stream = <Stream*>malloc(sizeof(Stream))
        for i in prange(n_rows, schedule="dynamic", chunksize=64):
            if marked == NULL or taken == NULL or drawn == NULL or stream == NULL:
                failed[threadid()] = 1
            else:
                r = rows[i]
                n_seen = indptr[r + 1] - indptr[r]
                stream_open(stream, &subkey[0], 0, users[i])
                mark_subset(stream, n_items - n_seen, counts[i], marked)
                unseen_items(marked, items + indptr[r], n_seen, n_items, taken, drawn)
                memcpy(&out[i, 0], drawn, counts[i] * sizeof(int32_t))
                memset(&out[i, 0] + counts[i], 0xFF, (n - counts[i]) * sizeof(int32_t))  # -1
        free(marked)
        free(taken)
        free(drawn)
        free(stream)


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
        out[i] = rank(held_out_scores[i], scores + rows[i] * n, counts[rows[i]])


def held_out_ranks_factors(
    const floating[:, ::1] user_factors,   # IN  (n_rows, n_factors)
    const floating[:, ::1] item_factors,   # IN  (n_items, n_factors)
    const int64_t[::1] indptr,             # IN  (n_rows + 1,), where the held-out items of each row begin
    const int32_t[::1] held_out,           # IN  (n_held_out,)
    const int32_t[:, ::1] others,          # IN  (n_rows, n)
    const int64_t[::1] counts,             # IN  (n_rows,), how many of a row's other items are there
    double[::1] out,                       # OUT (n_held_out,), NaN where an inner product is not finite
    int64_t[::1] failed,                   # OUT (n_threads,), 1 where a thread had no memory
    Py_ssize_t longest,                    # most held-out items of a row
    int n_threads,
):
    """1 + greater + ties / 2 of the inner product of each held-out item among those of the row's other items."""
    cdef Py_ssize_t n_rows = user_factors.shape[0], n_factors = user_factors.shape[1], n = others.shape[1], r, i
    cdef Py_ssize_t n_items = item_factors.shape[0], stride = whole_lines(n_factors, sizeof(floating))
    cdef floating* items = <floating*>aligned_alloc(LINE_BYTES, (n_items + 1) * stride * sizeof(floating))
    cdef floating* scratch
    cdef const int32_t* other_items = NULL
    if n_rows and n:
        other_items = &others[0, 0]
    if items != NULL:
        for i in range(n_items):
            pad_row(&item_factors[i, 0], n_factors, items + i * stride)
    with nogil, parallel(num_threads=n_threads):
        scratch = <floating*>aligned_alloc(
            LINE_BYTES, (stride + whole_lines(longest + n + 6, sizeof(floating))) * sizeof(floating)
        )
        for r in prange(n_rows, schedule="dynamic", chunksize=64):
            if items == NULL or scratch == NULL:
                failed[threadid()] = 1
            elif indptr[r] < indptr[r + 1]:
                pad_row(&user_factors[r, 0], n_factors, scratch)
                held_out_row(
                    scratch,
                    items,
                    n_factors,
                    &held_out[indptr[r]],
                    indptr[r + 1] - indptr[r],
                    other_items + r * n,
                    counts[r],
                    scratch + stride,
                    &out[indptr[r]],
                )
        free(scratch)
    free(items)


def top_k(
    const floating[:, ::1] scores,      # IN  (n_rows, n_items)
    const int64_t[::1] indptr,          # IN  (n_rows + 1,)
    const int32_t[::1] indices,         # IN  (n_seen,)
    int32_t[:, ::1] out_items,          # OUT (n_rows, n)
    floating[:, ::1] out_scores,        # OUT (n_rows, n)
    int64_t[::1] failed,                # OUT (n_threads,), n_rows; -1 where a thread had no memory
    int n_threads,
):
    """The n best columns of each row, best first."""
    cdef Py_ssize_t n_rows = scores.shape[0], n_items = scores.shape[1], n = out_items.shape[1], r
    cdef uint64_t* taken
    cdef const int32_t* seen = NULL
    if indices.shape[0]:
        seen = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        taken = <uint64_t*>malloc(bitmap_words(n_items) * sizeof(uint64_t))
        for r in prange(n_rows, schedule="static"):
            if taken == NULL:
                failed[threadid()] = -1
            else:
                select_best(
                    &scores[r, 0],
                    n_items,
                    seen + indptr[r],
                    indptr[r + 1] - indptr[r],
                    &out_items[r, 0],
                    &out_scores[r, 0],
                    n,
                    taken,
                )
        free(taken)


def recommend_factors(
    const floating[:, ::1] user_factors,   # IN  (n_users, n_factors)
    const floating[:, ::1] item_factors,   # IN  (n_items, n_factors)
    const int64_t[::1] indptr,             # IN  (n_users + 1,)
    const int32_t[::1] indices,            # IN  (n_seen,)
    int32_t[:, ::1] out_items,             # OUT (n_users, n)
    floating[:, ::1] out_scores,           # OUT (n_users, n)
    int64_t[::1] failed,                   # OUT (n_threads,), n_users; first user whose scores overflow, -1 no memory
    int n_threads,
):
    """The n best items of each user by inner product, best first."""
    cdef Py_ssize_t n_users = user_factors.shape[0], n_factors = user_factors.shape[1], n = out_items.shape[1]
    cdef Py_ssize_t n_items = item_factors.shape[0], n_words = bitmap_words(n_items), block, start, bad
    cdef floating* items = <floating*>aligned_alloc(LINE_BYTES, 64 * n_words * n_factors * sizeof(floating))
    cdef floating* x
    cdef uint64_t* taken
    cdef int thread
    cdef const int32_t* seen = NULL
    if indices.shape[0]:
        seen = &indices[0]
    if items != NULL:
        pack_items(&item_factors[0, 0], n_items, n_factors, items)
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        x = <floating*>malloc(BLOCK_USERS * n_factors * sizeof(floating))
        taken = <uint64_t*>malloc(BLOCK_USERS * n_words * sizeof(uint64_t))
        for block in prange((n_users + BLOCK_USERS - 1) // BLOCK_USERS, schedule="dynamic"):
            if items == NULL or x == NULL or taken == NULL:
                failed[thread] = -1
            else:
                start = block * BLOCK_USERS
                bad = start + recommend_block(
                    &user_factors[start, 0],
                    min(BLOCK_USERS, n_users - start),
                    n_factors,
                    items,
                    n_items,
                    &indptr[start],
                    seen,
                    &out_items[start, 0],
                    &out_scores[start, 0],
                    n,
                    x,
                    taken,
                )
                if bad < min(start + BLOCK_USERS, n_users) and bad < failed[thread]:
                    failed[thread] = bad
        free(x)
        free(taken)
    free(items)
