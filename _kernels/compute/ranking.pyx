"""Sampled negatives, ranks among them, and the best items of each user (docs/how-to/evaluate.md).

Negatives are ranks among the items that a user has not seen.  Floyd's algorithm (`_subset.pxd`) draws them, and one
walk along the row of the user converts them to items.

Scores of a block of users and a tile of items are computed in registers, compared with the worst of the best so far,
and discarded: no row of scores is stored.  If that is faster, bounds from 8-bit copies of the factors select the scores
to compute.  The vector code is in `_ranking.cpp`, `_screening.cpp` and `_held_out.cpp`.  Inputs are trusted, except
as `held_out_rank_counts_factors` describes.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from _kernels.core._chacha20 cimport Streams, streams_allocate, streams_next, streams_open
from _kernels.core._lines cimport malloc_lines
from _kernels.core._subset cimport bitmap_words, mark_all, mark_next

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_ranking.h" namespace "fastfedrec" nogil:
    const Py_ssize_t BLOCK_USERS
    Py_ssize_t list_bytes(Py_ssize_t n, Py_ssize_t n_items, Py_ssize_t size) noexcept
    void pack_items[Real](const Real* items, Py_ssize_t n_items, Py_ssize_t n_factors, Real* out) noexcept
    Py_ssize_t recommend_block[Real](
        const Real* users, const int64_t* rows, Py_ssize_t n_users, Py_ssize_t n_factors, const Real* items,
        Py_ssize_t n_items, const int64_t* indptr, const int32_t* indices, int32_t* out_items, Real* out_scores,
        Py_ssize_t n, Real* x, uint64_t* taken, char* candidates
    ) noexcept
    bint select_best "fastfedrec::top_k"[Real](
        const Real* scores, Py_ssize_t n_items, const int32_t* seen, Py_ssize_t n_seen,
        int32_t* out_items, Real* out_scores, Py_ssize_t n, uint64_t* taken, char* candidates
    ) noexcept
    void unseen_items(
        uint64_t* marked, const int32_t* seen, Py_ssize_t n_seen, Py_ssize_t n_items, uint64_t* taken, int32_t* out
    ) noexcept

cdef extern from "_kernels/compute/_held_out.h" namespace "fastfedrec" nogil:
    const Py_ssize_t HELD_OUT_ROWS
    const int NO_MEMORY
    Py_ssize_t quantized_length(Py_ssize_t n_factors) noexcept
    Py_ssize_t held_out_sums(Py_ssize_t n) noexcept
    int quantize_items[Real](
        const Real* rows, Py_ssize_t n, Py_ssize_t n_factors, int16_t* out, float* steps
    ) noexcept
    int held_out_block[Real](
        const Real* users, Py_ssize_t n_rows, Py_ssize_t n_factors, const Real* items, Py_ssize_t n_items,
        const int16_t* quantized, const float* steps, const int64_t* indptr, const int32_t* held_out,
        const int32_t* other_items, Py_ssize_t n_other_items, const int64_t* counts, int16_t* x, int32_t* sums,
        float* sum_steps, int64_t* above, int64_t* same
    ) noexcept
    double rank[Real](Real score, const Real* other_scores, Py_ssize_t n) noexcept

cdef extern from "_kernels/compute/_screening.h" namespace "fastfedrec" nogil:
    Py_ssize_t screened_items_bytes(Py_ssize_t n_items, Py_ssize_t n_factors) noexcept
    Py_ssize_t screened_users_bytes(Py_ssize_t n_factors) noexcept
    Py_ssize_t screened_candidates_bytes() noexcept
    Py_ssize_t screened_bounds(Py_ssize_t n_items) noexcept
    void screened_items[Real](
        const Real* items, Py_ssize_t first, Py_ssize_t n_items, Py_ssize_t n_factors, uint8_t* lines, float* bounds
    ) noexcept
    Py_ssize_t recommend_screened_block "fastfedrec::recommend_screened"[Real](
        const Real* users, Py_ssize_t n_users, Py_ssize_t n_factors, const Real* items, Py_ssize_t n_items,
        const uint8_t* lines, const float* bounds, const int64_t* indptr, const int32_t* indices, int32_t* out_items,
        Real* out_scores, Py_ssize_t n, int32_t* x, uint64_t* taken, char* candidates, char* unsolved
    ) noexcept

cdef enum:
    SAMPLED_ROWS = 64


def sample_unseen(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,), ascending within a row
    const int64_t[::1] rows,       # IN  (n_rows,)
    const uint64_t[::1] users,     # IN  (n_rows,), global user ids
    const int64_t[::1] counts,     # IN  (n_rows,), number to draw: at most n and the number of unseen items
    const uint32_t[::1] subkey,    # IN  (8,)
    int32_t[:, ::1] out,           # OUT (n_rows, n), ascending, then -1
    int64_t[::1] failed,           # OUT (n_threads,), 1 where a thread had no memory
    Py_ssize_t n_items,
    int n_threads,
):
    """Draw unseen items without replacement, each row from the stream (subkey, 0, user)."""
    cdef Py_ssize_t n_rows = rows.shape[0], n = out.shape[1], n_words = bitmap_words(n_items), start, n_block
    cdef const int32_t* items = NULL
    cdef uint64_t* marked
    cdef uint64_t* taken
    cdef int32_t* drawn
    cdef Streams* streams
    if indices.shape[0]:
        items = &indices[0]
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n_rows + SAMPLED_ROWS - 1) // SAMPLED_ROWS))
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(n_words + 1, sizeof(uint64_t))
        taken = <uint64_t*>malloc((n_words + 1) * sizeof(uint64_t))
        drawn = <int32_t*>malloc((n + 4) * sizeof(int32_t))
        streams = <Streams*>malloc(sizeof(Streams))
        if streams != NULL and not streams_allocate(streams, n):
            free(streams)
            streams = NULL
        # Each block of rows belongs to one thread, with its rows of `out` and its streams.
        for start in prange(0, n_rows, SAMPLED_ROWS, schedule="dynamic"):
            if marked == NULL or taken == NULL or drawn == NULL or streams == NULL:
                failed[threadid()] = 1
            else:
                n_block = min(SAMPLED_ROWS, n_rows - start)
                sample_block(
                    &indptr[0],
                    items,
                    &rows[start],
                    &users[start],
                    &counts[start],
                    &subkey[0],
                    n_block,
                    n_items,
                    n,
                    streams,
                    marked,
                    taken,
                    drawn,
                    &out[start, 0],
                )
        free(marked)
        free(taken)
        free(drawn)
        if streams != NULL:
            free(streams.buffer)
        free(streams)


cdef inline void sample_block(
    const int64_t* indptr,
    const int32_t* indices,
    const int64_t* rows,
    const uint64_t* users,
    const int64_t* counts,
    const uint32_t* subkey,
    Py_ssize_t n_rows,
    Py_ssize_t n_items,
    Py_ssize_t n,
    Streams* streams,
    uint64_t* marked,
    uint64_t* taken,
    int32_t* drawn,
    int32_t* out,
) noexcept nogil:
    """Sample for up to SAMPLED_ROWS rows.  A row draws n words, or none if it gets all unseen items."""
    cdef uint64_t drawing[SAMPLED_ROWS]
    cdef Py_ssize_t n_drawing = 0, n_seen, n_unseen, i, j
    cdef const uint64_t* words
    for i in range(n_rows):
        # counts[i] = min(n, unseen): a count below the number of unseen items is n.
        if counts[i] < n_items - (indptr[rows[i] + 1] - indptr[rows[i]]):
            drawing[n_drawing] = users[i]
            n_drawing += 1
    streams_open(streams, subkey, 0, drawing, n_drawing)
    for i in range(n_rows):
        n_seen = indptr[rows[i] + 1] - indptr[rows[i]]
        n_unseen = n_items - n_seen
        if counts[i] < n_unseen:
            words = streams_next(streams)
            for j in range(n):
                mark_next(words[j], n_unseen - n + j, marked)
        else:
            mark_all(n_unseen, marked)
        unseen_items(marked, indices + indptr[rows[i]], n_seen, n_items, taken, drawn)
        memcpy(out + i * n, drawn, counts[i] * sizeof(int32_t))  # at most n of the n + 4 numbers of `drawn`
        memset(out + i * n + counts[i], 0xFF, (n - counts[i]) * sizeof(int32_t))  # -1


def held_out_ranks(
    const floating[::1] held_out_scores,   # IN  (n_held_out,)
    const floating[:, ::1] other_scores,   # IN  (n_rows, n)
    const int64_t[::1] counts,             # IN  (n_rows,), number of scores in a row
    const int64_t[::1] rows,               # IN  (n_held_out,), the row in which each is ranked
    double[::1] out,                       # OUT (n_held_out,), NaN where a score is NaN
    int n_threads,
):
    """Compute the rank 1 + greater + ties / 2 of each held-out score in its row."""
    cdef Py_ssize_t i, n = other_scores.shape[1]
    cdef const floating* scores = NULL
    if other_scores.shape[0] and n:
        scores = &other_scores[0, 0]
    # Each held-out item has a separate entry in `out`.
    for i in prange(held_out_scores.shape[0], nogil=True, schedule="static", num_threads=n_threads):
        out[i] = rank(held_out_scores[i], scores + rows[i] * n, counts[rows[i]])


def held_out_rank_counts_factors(
    const floating[:, ::1] user_factors,   # IN  (n_rows, n_factors)
    const floating[:, ::1] item_factors,   # IN  (n_items, n_factors)
    const int64_t[::1] indptr,             # IN  (n_rows + 1,), where the held-out items of each row begin
    const int32_t[::1] held_out,           # IN  (n_held_out,)
    const int32_t[:, ::1] other_items,     # IN  (n_rows, n)
    const int64_t[::1] counts,             # IN  (n_rows,), number of other items in a row
    int64_t[::1] above,                    # OUT (n_held_out,), -1 where an inner product is not finite
    int64_t[::1] same,                     # OUT (n_held_out,)
    int64_t[::1] faults,                   # OUT (n_threads,), bits: NO_MEMORY, NOT_FINITE, OUT_OF_RANGE
    int n_threads,
):
    """Count the other items of a row with a greater inner product than each held-out item, and with an equal one.

    Most items are compared by 16-bit copies of the factors, and items near the held-out one by the inner product.
    The function also checks that factors are finite and that other items exist, because it reads all of them.
    """
    cdef Py_ssize_t n_rows = user_factors.shape[0], n_factors = user_factors.shape[1], n = other_items.shape[1], r, i
    cdef Py_ssize_t n_items = item_factors.shape[0], length = quantized_length(n_factors)
    cdef int16_t* items = <int16_t*>malloc_lines(n_items * length * sizeof(int16_t))
    cdef float* steps = <float*>malloc((n_items + 1) * sizeof(float))
    cdef int16_t* x
    cdef int32_t* sums
    cdef float* sum_steps
    cdef int thread
    cdef const int32_t* held_out_items = NULL
    cdef const int32_t* other_ids = NULL
    cdef int64_t* n_above = NULL
    cdef int64_t* n_same = NULL
    if held_out.shape[0]:
        held_out_items = &held_out[0]
        n_above = &above[0]
        n_same = &same[0]
    if n_rows and n:
        other_ids = &other_items[0, 0]
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        x = <int16_t*>malloc_lines(HELD_OUT_ROWS * length * sizeof(int16_t))
        sums = <int32_t*>malloc(held_out_sums(n) * sizeof(int32_t))
        sum_steps = <float*>malloc(held_out_sums(n) * sizeof(float))
        if items == NULL or steps == NULL or x == NULL or sums == NULL or sum_steps == NULL:
            faults[thread] = NO_MEMORY
        # Each block of items belongs to one thread; all threads meet at the end of the loop, before any thread reads
        # `items`.
        for i in prange(0, n_items, HELD_OUT_ROWS, schedule="static"):
            if items != NULL and steps != NULL:
                faults[thread] |= quantize_items(
                    &item_factors[i, 0], min(HELD_OUT_ROWS, n_items - i), n_factors, items + i * length, steps + i
                )
        # Rows are taken by blocks: `above` and `same` have a separate range for the held-out items of each row.
        for r in prange(0, n_rows, HELD_OUT_ROWS, schedule="dynamic"):
            if not faults[thread] & NO_MEMORY:
                faults[thread] |= held_out_block(
                    &user_factors[r, 0],
                    min(HELD_OUT_ROWS, n_rows - r),
                    n_factors,
                    &item_factors[0, 0],
                    n_items,
                    items,
                    steps,
                    &indptr[r],
                    held_out_items,
                    other_ids + r * n,
                    n,
                    &counts[r],
                    x,
                    sums,
                    sum_steps,
                    n_above,
                    n_same,
                )
        free(x)
        free(sums)
        free(sum_steps)
    free(items)
    free(steps)


def top_k(
    const floating[:, ::1] scores,      # IN  (n_rows, n_items)
    const int64_t[::1] indptr,          # IN  (n_rows + 1,)
    const int32_t[::1] indices,         # IN  (n_seen,)
    int32_t[:, ::1] out_items,          # OUT (n_rows, n)
    floating[:, ::1] out_scores,        # OUT (n_rows, n)
    int64_t[::1] failed,                # OUT (n_threads,), n_rows; a row that is not finite, or -1: no memory
    int n_threads,
):
    """Find the n best columns of each row, best first."""
    cdef Py_ssize_t n_rows = scores.shape[0], n_items = scores.shape[1], n = out_items.shape[1], r
    cdef uint64_t* taken
    cdef char* candidates
    cdef const int32_t* seen = NULL
    if indices.shape[0]:
        seen = &indices[0]
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, n_rows))
    with nogil, parallel(num_threads=n_threads):
        taken = <uint64_t*>malloc(bitmap_words(n_items) * sizeof(uint64_t))
        candidates = <char*>malloc(1 + list_bytes(n, n_items, sizeof(floating)))
        # Each row belongs to one thread, with its rows of `out_items` and `out_scores`.
        for r in prange(n_rows, schedule="static"):
            if taken == NULL or candidates == NULL:
                failed[threadid()] = -1
            elif not select_best(
                &scores[r, 0],
                n_items,
                seen + indptr[r],
                indptr[r + 1] - indptr[r],
                &out_items[r, 0],
                &out_scores[r, 0],
                n,
                taken,
                candidates,
            ):
                failed[threadid()] = r
        free(taken)
        free(candidates)


def recommend_screened(
    const floating[:, ::1] user_factors,   # IN  (n_users, n_factors)
    const floating[:, ::1] item_factors,   # IN  (n_items, n_factors)
    const int64_t[::1] indptr,             # IN  (n_users + 1,)
    const int32_t[::1] indices,            # IN  (n_seen,)
    int32_t[:, ::1] out_items,             # OUT (n_users, n), n up to 16
    floating[:, ::1] out_scores,           # OUT (n_users, n)
    char[::1] unsolved,                    # IN  (n_users,), ones; OUT 1 for users without a result
    int64_t[::1] has_stopped,              # OUT (n_threads,), 1 if a thread had no result for most users of a block
    int n_threads,
):
    """Find the n best items like `recommend_factors`, for users where 8-bit copies of the factors exclude most items.

    A thread stops after a block with results for fewer than half of its users, as does a thread without memory.
    """
    cdef Py_ssize_t n_users = user_factors.shape[0], n_factors = user_factors.shape[1], n = out_items.shape[1]
    cdef Py_ssize_t n_items = item_factors.shape[0], n_words = bitmap_words(n_items), word, block, start, n_block
    cdef uint8_t* lines = <uint8_t*>malloc_lines(screened_items_bytes(n_items, n_factors))
    cdef float* bounds = <float*>malloc(screened_bounds(n_items) * sizeof(float))
    cdef int32_t* x
    cdef uint64_t* taken
    cdef char* candidates
    cdef int thread
    cdef const int32_t* seen = NULL
    if indices.shape[0]:
        seen = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        x = <int32_t*>malloc(screened_users_bytes(n_factors))
        taken = <uint64_t*>malloc(BLOCK_USERS * n_words * sizeof(uint64_t))
        candidates = <char*>malloc(screened_candidates_bytes())
        if lines == NULL or bounds == NULL or x == NULL or taken == NULL or candidates == NULL:
            has_stopped[thread] = 1
        # Copies are made for 64 items at a time; all threads meet at the end of the loop.
        for word in prange(n_words, schedule="static"):
            if lines != NULL and bounds != NULL:  # on all threads
                screened_items(&item_factors[0, 0], 64 * word, n_items, n_factors, lines, bounds)
        # A block of users belongs to one thread, with its rows of the results and of `unsolved`.
        for block in prange((n_users + BLOCK_USERS - 1) // BLOCK_USERS, schedule="dynamic"):
            if not has_stopped[thread]:
                start = block * BLOCK_USERS
                n_block = min(BLOCK_USERS, n_users - start)
                has_stopped[thread] = 2 * recommend_screened_block(
                    &user_factors[start, 0],
                    n_block,
                    n_factors,
                    &item_factors[0, 0],
                    n_items,
                    lines,
                    bounds,
                    &indptr[start],
                    seen,
                    &out_items[start, 0],
                    &out_scores[start, 0],
                    n,
                    x,
                    taken,
                    candidates,
                    &unsolved[start],
                ) > n_block
        free(x)
        free(taken)
        free(candidates)
    free(lines)
    free(bounds)


def recommend_factors(
    const floating[:, ::1] user_factors,   # IN  (n_users, n_factors)
    const floating[:, ::1] item_factors,   # IN  (n_items, n_factors)
    const int64_t[::1] indptr,             # IN  (n_users + 1,)
    const int32_t[::1] indices,            # IN  (n_seen,)
    const int64_t[::1] rows,               # IN  (n_rows,), ascending: the users to rank for
    int32_t[:, ::1] out_items,             # OUT (n_users, n)
    floating[:, ::1] out_scores,           # OUT (n_users, n)
    int64_t[::1] failed,                   # OUT (n_threads,), n_users; first user with overflow, -1 no memory
    int n_threads,
):
    """Find the n best items of these users by inner product, best first."""
    cdef Py_ssize_t n_rows = rows.shape[0], n_factors = user_factors.shape[1], n = out_items.shape[1]
    cdef Py_ssize_t n_items = item_factors.shape[0], n_words = bitmap_words(n_items), block, start, n_block, bad
    cdef floating* items = <floating*>malloc_lines(64 * n_words * n_factors * sizeof(floating))
    cdef floating* x
    cdef uint64_t* taken
    cdef char* candidates
    cdef int thread
    cdef const int32_t* seen = NULL
    if indices.shape[0]:
        seen = &indices[0]
    if items != NULL:
        pack_items(&item_factors[0, 0], n_items, n_factors, items)
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n_rows + BLOCK_USERS - 1) // BLOCK_USERS))
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        x = <floating*>malloc(BLOCK_USERS * n_factors * sizeof(floating))
        taken = <uint64_t*>malloc(BLOCK_USERS * n_words * sizeof(uint64_t))
        candidates = <char*>malloc(1 + BLOCK_USERS * list_bytes(n, n_items, sizeof(floating)))
        # A block of users belongs to one thread; `rows` are distinct, so no other thread writes its rows of the
        # results.
        for block in prange((n_rows + BLOCK_USERS - 1) // BLOCK_USERS, schedule="dynamic"):
            if items == NULL or x == NULL or taken == NULL or candidates == NULL:
                failed[thread] = -1
            else:
                start = block * BLOCK_USERS
                n_block = min(BLOCK_USERS, n_rows - start)
                bad = recommend_block(
                    &user_factors[0, 0],
                    &rows[start],
                    n_block,
                    n_factors,
                    items,
                    n_items,
                    &indptr[0],
                    seen,
                    &out_items[0, 0],
                    &out_scores[0, 0],
                    n,
                    x,
                    taken,
                    candidates,
                )
                if bad < n_block and rows[start + bad] < failed[thread]:
                    failed[thread] = rows[start + bad]
        free(x)
        free(taken)
        free(candidates)
    free(items)
