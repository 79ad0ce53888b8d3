"""Sums of DP-ALS by item: over the users who keep an item, of their factors and of products of two factors.

With x_u the integer factors of user u, item i gets sum_u x_u and, if requested, sum_u x_uf x_ug for all f <= g, row
after row of the triangle.  With weights w_ui of scale S, it gets sum_u w_ui x_u and sum_u y_uf x_ug, where y_uf is
w_ui x_uf / S truncated toward zero, so that no product has a larger absolute value than the exact one.  Integers may be
added in any order.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "<algorithm>" namespace "std" nogil:
    void nth_element(int32_t* first, int32_t* nth, int32_t* last) noexcept


def sum_by_item(
    const int64_t[::1] indptr,     # IN  (n_items + 1,), where each item's users begin
    const int32_t[::1] users,      # IN  (n_entries,), rows of `rows`
    const int32_t[::1] weights,    # IN  (n_entries,), from 0 to `scale`; or (0,), where all are 1
    const int64_t[:, ::1] rows,    # IN  (n_users, n_factors)
    int64_t[:, ::1] sums,          # OUT (n_items, n_factors)
    int64_t[:, ::1] products,      # OUT (n_items, n_factors (n_factors + 1) / 2), or (n_items, 0)
    int64_t scale,                 # scale of the weights, above 0
    int n_threads,
):
    """Add up users by item; each item belongs to one thread."""
    cdef Py_ssize_t item
    for item in prange(sums.shape[0], nogil=True, schedule="dynamic", chunksize=4, num_threads=n_threads):
        if weights.shape[0]:
            _sum_weighted_item(
                users, weights, rows, indptr[item], indptr[item + 1], sums[item], products[item], scale
            )
        else:
            _sum_item(users, rows, indptr[item], indptr[item + 1], sums[item], products[item])


cdef void _sum_item(
    const int32_t[::1] users, const int64_t[:, ::1] rows, Py_ssize_t first, Py_ssize_t last, int64_t[::1] sums,
    int64_t[::1] products,
) noexcept nogil:
    cdef Py_ssize_t n_factors = sums.shape[0], entry, f, g
    cdef const int64_t* x
    cdef int64_t* out
    sums[:] = 0
    products[:] = 0
    # The sums over the users of the item are of integers, so the order does not matter.
    for entry in range(first, last):
        x = &rows[users[entry], 0]
        for f in range(n_factors):
            sums[f] += x[f]
        if products.shape[0]:
            out = &products[0]
            for f in range(n_factors):
                for g in range(f, n_factors):
                    out[g - f] += x[f] * x[g]  # sum_u x_uf x_ug
                out += n_factors - f  # the next row of the triangle


cdef void _sum_weighted_item(
    const int32_t[::1] users, const int32_t[::1] weights, const int64_t[:, ::1] rows, Py_ssize_t first, Py_ssize_t last,
    int64_t[::1] sums, int64_t[::1] products, int64_t scale,
) noexcept nogil:
    cdef Py_ssize_t n_factors = sums.shape[0], entry, f, g
    cdef int64_t weighted
    cdef const int64_t* x
    cdef int64_t* out
    sums[:] = 0
    products[:] = 0
    for entry in range(first, last):
        x = &rows[users[entry], 0]
        for f in range(n_factors):
            sums[f] += weights[entry] * x[f]
        if products.shape[0]:
            out = &products[0]
            for f in range(n_factors):
                weighted = weights[entry] * x[f] / scale  # division in C truncates, as the bound on norms needs
                for g in range(f, n_factors):
                    out[g - f] += weighted * x[g]
                out += n_factors - f


def mark_lowest(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] items,      # IN  (n_entries,), no item twice for a user
    const int32_t[::1] ranks,      # IN  (n_items,), all different
    uint8_t[::1] marks,            # OUT (n_entries,), 1 for the user's `n` entries of lowest rank, and else 0
    Py_ssize_t n,                  # at least 1
    int n_threads,
):
    """Mark the `n` entries of each user with the lowest ranks; return False without memory."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, user, length, p
    cdef int32_t* user_ranks
    cdef int32_t highest
    cdef bint failed = False
    with nogil, parallel(num_threads=n_threads):
        user_ranks = <int32_t*>malloc(ranks.shape[0] * sizeof(int32_t))
        # The marks of a user belong to one thread.
        for user in prange(n_users, schedule="dynamic", chunksize=64):
            length = indptr[user + 1] - indptr[user]
            if user_ranks == NULL:
                failed |= True
            elif length <= n:
                for p in range(indptr[user], indptr[user + 1]):
                    marks[p] = 1
            else:
                # All ranks are different: n of them are at most the n-th lowest.
                for p in range(length):
                    user_ranks[p] = ranks[items[indptr[user] + p]]
                nth_element(user_ranks, user_ranks + n - 1, user_ranks + length)
                highest = user_ranks[n - 1]
                for p in range(indptr[user], indptr[user + 1]):
                    marks[p] = ranks[items[p]] <= highest
        free(user_ranks)
    return not failed
