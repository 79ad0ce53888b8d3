"""Ranks of held-out items among all items that a user has not seen (docs/explanation/evaluation/metrics.md).

    above_i = #{unseen j: s_j > s_i}        same_i = #{unseen j: s_j = s_i}, i itself among them

All ranking metrics follow from these two counts.  Scores of a block of users are computed for parts of the items, as by
`recommend_factors`, compared with the scores of held-out items, and discarded.  The vector code is in `_ranks.cpp`.
Counts are integers and belong to one user each, so they do not depend on threads.  Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from _kernels.core._lines cimport malloc_lines

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_ranking.h" namespace "fastfedrec" nogil:
    const Py_ssize_t BLOCK_USERS
    Py_ssize_t bitmap_words(Py_ssize_t n) noexcept
    void pack_items[Real](const Real* items, Py_ssize_t n_items, Py_ssize_t n_factors, Real* out) noexcept

cdef extern from "_kernels/compute/_ranks.h" namespace "fastfedrec" nogil:
    Py_ssize_t rank_scratch_numbers(Py_ssize_t n_factors, Py_ssize_t n_held_out) noexcept
    Py_ssize_t rank_scratch_counts(Py_ssize_t n_held_out) noexcept
    Py_ssize_t rank_counts_of_block[Real](
        const Real* users, Py_ssize_t n_users, Py_ssize_t width, const Real* item_rows, const Real* items,
        Py_ssize_t n_items, const int64_t* indptr, const int32_t* held_out, const int64_t* seen_indptr,
        const int32_t* seen, Real* numbers, int64_t* counts, int64_t* above, int64_t* same
    ) noexcept


def rank_counts(
    const floating[:, ::1] rows,           # IN  (n_rows, n_factors) of users; (n_rows, n_items) scores without factors
    const floating[:, ::1] item_factors,   # IN  (n_items, n_factors), or None
    const int64_t[::1] indptr,             # IN  (n_rows + 1,), where the held-out items of each row begin
    const int32_t[::1] held_out,           # IN  (n_held_out,), not empty
    const int64_t[::1] seen_indptr,        # IN  (n_rows + 1,)
    const int32_t[::1] seen,               # IN  (n_seen,), ascending within a row
    int64_t[::1] above,                    # OUT (n_held_out,)
    int64_t[::1] same,                     # OUT (n_held_out,)
    int64_t[::1] failed,                   # OUT (n_threads,), n_rows; first row with a bad score, -1 no memory
    int n_threads,
):
    """Count greater and equal scores, or inner products, among the unseen items of each held-out item's row."""
    cdef Py_ssize_t n_rows = rows.shape[0], width = rows.shape[1], n_items = width, n_factors = 0, start, n_block, bad
    cdef Py_ssize_t max_targets = max_held_out(&indptr[0], n_rows)
    cdef const floating* item_rows = NULL
    cdef floating* items = NULL            # the same in the layout of `pack_items`
    cdef floating* numbers
    cdef int64_t* counts
    cdef int thread
    cdef const int32_t* seen_items = NULL
    if seen.shape[0]:
        seen_items = &seen[0]
    if item_factors is not None:
        n_items, n_factors, item_rows = item_factors.shape[0], width, &item_factors[0, 0]
        items = <floating*>malloc_lines(64 * bitmap_words(n_items) * n_factors * sizeof(floating))
        if items == NULL:
            failed[0] = -1
            return
        pack_items(item_rows, n_items, n_factors, items)
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n_rows + BLOCK_USERS - 1) // BLOCK_USERS))
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        numbers = <floating*>malloc(rank_scratch_numbers(n_factors, max_targets) * sizeof(floating))
        counts = <int64_t*>malloc(rank_scratch_counts(max_targets) * sizeof(int64_t))
        # A block of rows and the counts of its held-out items belong to one thread.
        for start in prange(0, n_rows, BLOCK_USERS, schedule="dynamic"):
            if numbers == NULL or counts == NULL:
                failed[thread] = -1
            else:
                n_block = min(BLOCK_USERS, n_rows - start)
                bad = rank_counts_of_block(
                    &rows[start, 0],
                    n_block,
                    width,
                    item_rows,
                    items,
                    n_items,
                    &indptr[start],
                    &held_out[0],
                    &seen_indptr[start],
                    seen_items,
                    numbers,
                    counts,
                    &above[0],
                    &same[0],
                )
                if bad < n_block and start + bad < failed[thread]:
                    failed[thread] = start + bad
        free(numbers)
        free(counts)
    free(items)


cdef Py_ssize_t max_held_out(const int64_t* indptr, Py_ssize_t n_rows) noexcept nogil:
    """Return the largest number of held-out items of any block of rows."""
    cdef Py_ssize_t start = 0, largest = 0
    while start < n_rows:
        largest = max(largest, indptr[min(start + BLOCK_USERS, n_rows)] - indptr[start])
        start += BLOCK_USERS
    return largest
