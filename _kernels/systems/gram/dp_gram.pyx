"""Sums of DPGram: item shares, and centred pairs of items, in exact integers (dp-gram-privacy.md).

A user with n items has a = floor(scale / sqrt(n)) at each and 0 elsewhere; less the public mean this is z.  Its
contribution is w z_i z_j for every pair i < j.  w is the largest whole number that keeps the norm within `unit`, or in
the full form the norm of the whole matrix w z z' within sqrt(2) `unit`.  Summed over users, with s_i = sum w a over
the users of item i, and W = sum w:

    sum w z_i z_j = sum w a^2 over users of both items - s_i mean_j - mean_i s_j + W mean_i mean_j.

All sums are modulo 2^64, which is exact because the result fits.  Inputs are trusted.
"""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "_kernels/core/_roots.h" namespace "fastfedrec" nogil:
    int64_t share_of_unit(uint64_t unit, uint64_t n) noexcept

cdef extern from "_kernels/core/_by_item.h" namespace "fastfedrec" nogil:
    void sort_by_item(
        const int64_t* indptr, Py_ssize_t n_users, const int32_t* indices, Py_ssize_t n_items, int64_t* starts,
        int32_t* users, int32_t* positions
    ) noexcept

cdef extern from "_kernels/systems/gram/_dp_gram.h" namespace "fastfedrec" nogil:
    cdef cppclass Moments:
        void add(int64_t z) noexcept
        void remove(int64_t z) noexcept
    uint64_t pair_weight(uint64_t unit, const Moments& moments) noexcept
    uint64_t full_weight(uint64_t unit, const Moments& moments) noexcept


def share_sums(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    int64_t[::1] sums,             # IN/OUT (n_items,)
    uint64_t unit,
):
    """Add floor(unit / sqrt(n)) at each of a user's n items."""
    cdef Py_ssize_t u, p
    cdef int64_t share
    with nogil:
        for u in range(indptr.shape[0] - 1):
            if indptr[u + 1] > indptr[u]:
                share = share_of_unit(unit, indptr[u + 1] - indptr[u])  # n > 0 here
                for p in range(indptr[u], indptr[u + 1]):
                    sums[indices[p]] += share


def weigh_users(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    const int64_t[::1] mean,       # IN  (n_items,), whole numbers of 1 / scale
    int64_t[::1] shares,           # OUT (n_users,), a
    uint64_t[::1] weights,         # OUT (n_users,), w; 0 for a user without items
    uint64_t scale,
    uint64_t unit,
    bint is_full,                  # whether w bounds the full matrix, including the diagonal
    int n_threads,
):
    """Compute the two numbers of each user that define its contribution."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u, i
    cdef Moments empty_row
    with nogil:
        # A user without items has the moments of z = -mean.
        for i in range(mean.shape[0]):
            empty_row.add(mean[i])
    # Each user has separate entries in `shares` and `weights`.
    for u in prange(n_users, nogil=True, schedule="static", num_threads=n_threads):
        shares[u] = 0
        weights[u] = 0
        if indptr[u + 1] > indptr[u]:
            shares[u] = share_of_unit(scale, indptr[u + 1] - indptr[u])
            weights[u] = weigh(
                empty_row, &indices[indptr[u]], indptr[u + 1] - indptr[u], &mean[0], shares[u], unit, is_full
            )


cdef inline uint64_t weigh(
    Moments moments, const int32_t* items, Py_ssize_t n, const int64_t* mean, int64_t share, uint64_t unit, bint is_full
) noexcept nogil:
    cdef Py_ssize_t p
    # At the items of the user, z changes from -mean to a - mean.
    for p in range(n):
        moments.remove(mean[items[p]])
        moments.add(share - mean[items[p]])
    return full_weight(unit, moments) if is_full else pair_weight(unit, moments)


def add_pairs(
    const int64_t[::1] indptr,     # IN  (n_users + 1,), of a block of users
    const int32_t[::1] indices,    # IN  all interactions; `indptr` bounds the block's
    const int64_t[::1] shares,     # IN  (n_users,)
    const uint64_t[::1] weights,   # IN  (n_users,)
    int64_t[::1] starts,           # SCRATCH (n_items + 2,)
    int32_t[::1] positions,        # SCRATCH (n interactions of the block,)
    int32_t[::1] users,           # SCRATCH (n interactions of the block,)
    uint64_t[::1] item_sums,       # IN/OUT (n_items,), s
    uint64_t[::1] pair_sums,       # IN/OUT (n_items (n_items - 1) / 2,), rows of i < j one after the other
    int n_threads,
):
    """Add a block's w a to its items and w a^2 to the pairs of each user's items; an item belongs to one thread."""
    cdef Py_ssize_t n_items = item_sums.shape[0], n_users = indptr.shape[0] - 1, i
    cdef uint64_t* pairs = &pair_sums[0] if pair_sums.shape[0] else NULL
    if n_users == 0 or indptr[n_users] == indptr[0]:
        return
    with nogil:
        sort_by_item(&indptr[0], n_users, &indices[0], n_items, &starts[0], &users[0], &positions[0])
    for i in prange(n_items, nogil=True, schedule="dynamic", num_threads=n_threads):
        item_sums[i] += add_row(
            &indptr[0], &indices[indptr[0]], &shares[0], &weights[0], &positions[0], &users[0], starts[i],
            starts[i + 1], pairs + row_start(i, n_items) - (i + 1),
        )


cdef inline Py_ssize_t row_start(Py_ssize_t i, Py_ssize_t n_items) noexcept nogil:
    """Return the index of the first pair of item i with a later item."""
    return i * n_items - i * (i + 1) // 2


cdef inline uint64_t add_row(
    const int64_t* indptr, const int32_t* items, const int64_t* shares, const uint64_t* weights,
    const int32_t* positions, const int32_t* users, Py_ssize_t first, Py_ssize_t last, uint64_t* row,
) noexcept nogil:
    """Add an item's users to its row of pairs, and return the item's sum."""
    cdef Py_ssize_t k, p, u
    cdef uint64_t total = 0, weighted, product
    for k in range(first, last):
        u = users[k]
        weighted = weights[u] * <uint64_t>shares[u]
        product = weighted * <uint64_t>shares[u]
        total += weighted
        # Items of user u that are later than this one: indices ascend within a user.
        for p in range(positions[k] + 1, indptr[u + 1] - indptr[0]):
            row[items[p]] += product
    return total


def center_pairs(
    const int64_t[::1] mean,           # IN  (n_items,)
    const uint64_t[::1] item_sums,     # IN  (n_items,), s
    uint64_t[::1] pair_sums,           # IN/OUT (n_items (n_items - 1) / 2,)
    uint64_t total_weight,             # W
    int n_threads,
):
    """Subtract s_i mean_j + mean_i s_j - W mean_i mean_j from every pair."""
    cdef Py_ssize_t n_items = mean.shape[0], i, j
    cdef uint64_t item_mean, mean_weight
    cdef uint64_t* row
    # A row of pairs belongs to one thread; arithmetic is modulo 2^64.
    for i in prange(n_items - 1, nogil=True, schedule="static", num_threads=n_threads):
        row = &pair_sums[row_start(i, n_items)] - (i + 1)
        item_mean = <uint64_t>mean[i]
        mean_weight = item_sums[i] - total_weight * item_mean
        for j in range(i + 1, n_items):
            # - s_i mean_j - mean_i s_j + W mean_i mean_j
            row[j] = row[j] - item_mean * item_sums[j] - mean_weight * <uint64_t>mean[j]
