"""Sums of DPSubspace: item rows times projected users, in exact integers (dp-subspace-privacy.md).

A user with n items has a = floor(scale / sqrt(n)) at each of them; less the public mean this is z, and p = E'z for the
public encoder E.  Row i of its contribution is w z_i (p - z_i E_i), with the largest whole w that keeps the norm of all
rows within `unit`.  Summed over users, with s_i = sum w a p, t_i = sum w a and q_i = sum w a^2 over the users
of item i, and P = sum w p and W = sum w over all users:

    sum w z_i (p - z_i E_i) = s_i - mean_i P - (q_i - 2 mean_i t_i + mean_i^2 W) E_i,    P = sum (t_i - W mean_i) E_i.

All sums are modulo 2^64, which is exact because the result fits.  Inputs are trusted.
"""
from cython.parallel cimport prange
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "_kernels/core/_roots.h" namespace "fastfedrec" nogil:
    int64_t share_of_unit(uint64_t unit, uint64_t n) noexcept

cdef extern from "_kernels/core/_by_item.h" namespace "fastfedrec" nogil:
    void sort_by_item(
        const int64_t* indptr, Py_ssize_t n_users, const int32_t* indices, Py_ssize_t n_items, int64_t* starts,
        int32_t* users, int32_t* positions
    ) noexcept

cdef extern from "_kernels/systems/subspace/_projection.h" namespace "fastfedrec" nogil:
    cdef cppclass Projection:
        void subtract_mean(
            int64_t mean, const int16_t* entries, int64_t square, int64_t* projections, int64_t* cubes, int n_columns
        ) noexcept
        void add_items(
            const int32_t* items, Py_ssize_t n, int64_t share, const int64_t* mean, const int16_t* encoder,
            const int64_t* squares, int64_t* projections, int64_t* cubes, int n_columns
        ) noexcept
        uint64_t weight(const int64_t* projections, const int64_t* cubes, int n_columns, uint64_t unit) noexcept

    void add_user_rows(
        const int32_t* users, Py_ssize_t n, const uint64_t* rows, Py_ssize_t n_columns, uint64_t* sums
    ) noexcept

cpdef enum:
    MAX_COLUMNS = 256  # columns of an encoder

cdef enum:
    COLUMNS_AT_ONCE = 32  # columns of an encoder in a cache line


cdef class EmptyRow:
    """The row of a user without items, from which all other rows are computed by changes."""

    cdef Projection projection
    cdef int64_t[MAX_COLUMNS] projections
    cdef int64_t[MAX_COLUMNS] cubes

    def __init__(
        self,
        const int64_t[::1] mean,          # IN  (n_items,), whole numbers of 1 / scale
        const int16_t[:, ::1] encoder,    # IN  (n_items, n_columns)
        int64_t[::1] squares,             # OUT (n_items,), of the encoder's rows
    ):
        cdef Py_ssize_t i
        cdef int k, n_columns = <int>encoder.shape[1]
        for k in range(n_columns):
            self.projections[k] = self.cubes[k] = 0
        with nogil:
            for i in range(mean.shape[0]):
                squares[i] = 0
                for k in range(n_columns):
                    squares[i] += <int64_t>encoder[i, k] * encoder[i, k]
                if mean[i]:
                    self.projection.subtract_mean(
                        mean[i], &encoder[i, 0], squares[i], self.projections, self.cubes, n_columns
                    )


def project_users(
    EmptyRow empty_row,
    const int64_t[::1] indptr,        # IN  (n_users + 1,), of a block of users
    const int32_t[::1] indices,       # IN  all interactions; `indptr` bounds the block's
    const int64_t[::1] mean,          # IN  (n_items,), whole numbers of 1 / scale
    const int16_t[:, ::1] encoder,    # IN  (n_items, n_columns)
    const int64_t[::1] squares,       # IN  (n_items,), from `EmptyRow`
    uint64_t[:, ::1] weights,         # OUT (n_users, 3), w, w a and w a^2; 0 for a user without items
    uint64_t[:, ::1] rows,            # OUT (n_users, n_columns), w a p; 0 for a user without items
    uint64_t scale,                   # at most 2^11
    uint64_t unit,
    int n_threads,
):
    """Compute the factors of the contribution of each user."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u
    # Each user has separate entries in `weights` and `rows`.
    for u in prange(n_users, nogil=True, schedule="static", num_threads=n_threads):
        weights[u, :] = 0
        rows[u, :] = 0
        if indptr[u + 1] > indptr[u]:
            project(
                empty_row.projection, empty_row.projections, empty_row.cubes, &indices[indptr[u]],
                indptr[u + 1] - indptr[u], &mean[0], encoder, &squares[0], scale, unit, &weights[u, 0], &rows[u, 0],
            )


cdef inline void project(
    Projection projection, const int64_t* projections, const int64_t* cubes, const int32_t* items, Py_ssize_t n,
    const int64_t* mean, const int16_t[:, ::1] encoder, const int64_t* squares, uint64_t scale, uint64_t unit,
    uint64_t* weights, uint64_t* row,
) noexcept nogil:
    cdef int64_t[MAX_COLUMNS] user_projections
    cdef int64_t[MAX_COLUMNS] user_cubes
    cdef int n_columns = <int>encoder.shape[1], k
    cdef int64_t share = share_of_unit(scale, n)
    memcpy(user_projections, projections, n_columns * sizeof(int64_t))
    memcpy(user_cubes, cubes, n_columns * sizeof(int64_t))
    projection.add_items(items, n, share, mean, &encoder[0, 0], squares, user_projections, user_cubes, n_columns)
    weights[0] = projection.weight(user_projections, user_cubes, n_columns, unit)
    weights[1] = weights[0] * <uint64_t>share
    weights[2] = weights[1] * <uint64_t>share
    for k in range(n_columns):
        row[k] = weights[1] * <uint64_t>user_projections[k]


def add_rows(
    const int64_t[::1] indptr,          # IN  (n_users + 1,), of a block of users
    const int32_t[::1] indices,         # IN  all interactions; `indptr` bounds the block's
    int64_t[::1] starts,                # SCRATCH (n_items + 2,)
    int32_t[::1] users,                 # SCRATCH (n interactions of the block,)
    const uint64_t[:, ::1] weights,     # IN  (n_users, 3), w, w a and w a^2
    const uint64_t[:, ::1] rows,        # IN  (n_users, n_columns), w a p
    uint64_t[:, ::1] sums,              # IN/OUT (n_items, n_columns), s
    uint64_t[:, ::1] item_weights,      # IN/OUT (n_items, 2), t and q
    int n_threads,
):
    """Add a block of users to their items; the sums of each item belong to one thread."""
    cdef Py_ssize_t i, entry, n_users = indptr.shape[0] - 1, n_columns = sums.shape[1]
    if n_users == 0 or indptr[n_users] == indptr[0]:
        return
    with nogil:
        sort_by_item(&indptr[0], n_users, &indices[0], sums.shape[0], &starts[0], &users[0], NULL)
    for i in prange(sums.shape[0], nogil=True, schedule="dynamic", chunksize=16, num_threads=n_threads):
        if starts[i + 1] > starts[i]:
            for entry in range(starts[i], starts[i + 1]):
                item_weights[i, 0] += weights[users[entry], 1]
                item_weights[i, 1] += weights[users[entry], 2]
            add_user_rows(&users[starts[i]], starts[i + 1] - starts[i], &rows[0, 0], n_columns, &sums[i, 0])


def add_projections(
    const int64_t[::1] mean,                # IN  (n_items,)
    const int16_t[:, ::1] encoder,          # IN  (n_items, n_columns)
    const uint64_t[:, ::1] item_weights,    # IN  (n_items, 2), t and q
    uint64_t[::1] totals,                   # IN/OUT (n_columns + 1,), P, and W, which is given
    int n_threads,
):
    """Compute P = sum_i (t_i - mean_i W) E_i, the sum of w p over all users."""
    cdef Py_ssize_t n_columns = encoder.shape[1], n_blocks = (n_columns + COLUMNS_AT_ONCE - 1) // COLUMNS_AT_ONCE
    cdef Py_ssize_t block, i, k
    cdef uint64_t item_weight
    # A block of columns belongs to one thread; arithmetic is modulo 2^64.
    for block in prange(n_blocks, nogil=True, schedule="static", num_threads=n_threads):
        for k in range(block * COLUMNS_AT_ONCE, min((block + 1) * COLUMNS_AT_ONCE, n_columns)):
            totals[k] = 0
        for i in range(mean.shape[0]):
            item_weight = item_weights[i, 0] - totals[n_columns] * <uint64_t>mean[i]
            if item_weight:
                for k in range(block * COLUMNS_AT_ONCE, min((block + 1) * COLUMNS_AT_ONCE, n_columns)):
                    totals[k] += item_weight * <uint64_t>encoder[i, k]


def center_rows(
    const int64_t[::1] mean,          # IN  (n_items,)
    const int16_t[:, ::1] encoder,    # IN  (n_items, n_columns)
    const uint64_t[::1] totals,       # IN  (n_columns + 1,), P and W
    const uint64_t[:, ::1] weights,   # IN  (n_items, 2), t and q
    uint64_t[:, ::1] sums,            # IN/OUT (n_items, n_columns), s
    int n_threads,
):
    """Subtract mean_i P + (q_i - 2 mean_i t_i + mean_i^2 W) E_i from every item's sums."""
    cdef Py_ssize_t n_columns = sums.shape[1], i, k
    cdef uint64_t item_mean, encoder_weight
    # The row of an item belongs to one thread; arithmetic is modulo 2^64.
    for i in prange(sums.shape[0], nogil=True, schedule="static", num_threads=n_threads):
        item_mean = <uint64_t>mean[i]
        encoder_weight = weights[i, 1] - 2 * item_mean * weights[i, 0] + item_mean * item_mean * totals[n_columns]
        for k in range(n_columns):
            sums[i, k] = sums[i, k] - item_mean * totals[k] - encoder_weight * <uint64_t>encoder[i, k]
