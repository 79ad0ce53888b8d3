"""Weighted sums of rows of a matrix, one sum for each user: scores by similarities between items.  Inputs are trusted.

A sum is over the entries of the user in their order, and every product and sum is rounded separately.  No result
depends on the number of threads, the instruction set, or the other users of the call.
"""
from cython.parallel cimport parallel, prange
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from _kernels.core._lines cimport malloc_lines

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_row_sums.h" namespace "fastfedrec" nogil:
    enum:
        ROW_SUMS_COLUMNS
    void add_rows(
        const int64_t* indptr, const int32_t* indices, const double* weights, Py_ssize_t n_users,
        const double* rows, Py_ssize_t stride, Py_ssize_t n_columns, double* out, Py_ssize_t out_stride
    ) noexcept


def sum_dense_rows(
    const int64_t[::1] indptr,     # IN  (n_users + 1,), from 0
    const int32_t[::1] indices,    # IN  (n_entries,), rows of `matrix`
    const double[::1] weights,     # IN  (n_entries,)
    const double[:, ::1] matrix,   # IN  (n_rows, n_columns)
    double[:, ::1] out,            # OUT (n_users, n_columns)
    int n_threads,
):
    """Sum some columns at a time; a thread copies them side by side if they are read often enough."""
    cdef Py_ssize_t n_users = out.shape[0], n_rows = matrix.shape[0], n_columns = matrix.shape[1], block, i
    cdef Py_ssize_t n_blocks = (n_columns + ROW_SUMS_COLUMNS - 1) // ROW_SUMS_COLUMNS, first, width
    cdef double* copy
    if n_users == 0 or n_columns == 0:
        return
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, n_blocks))
    # A block of columns belongs to one thread, which writes these columns for all users.
    with nogil, parallel(num_threads=n_threads):
        copy = NULL
        if indices.shape[0] > n_rows:  # without memory for a copy, the columns are read from the matrix
            copy = <double*>malloc_lines(n_rows * ROW_SUMS_COLUMNS * sizeof(double))
        for block in prange(n_blocks, schedule="dynamic"):
            first = block * ROW_SUMS_COLUMNS
            width = min(n_columns - first, <Py_ssize_t>ROW_SUMS_COLUMNS)
            if copy != NULL:
                # The copy has rows of `width` numbers, at most ROW_SUMS_COLUMNS.
                for i in range(n_rows):
                    memcpy(copy + i * width, &matrix[i, first], width * sizeof(double))
                add_rows(
                    &indptr[0], &indices[0], &weights[0], n_users, copy, width, width, &out[0, first], n_columns
                )
            elif indices.shape[0]:
                add_rows(
                    &indptr[0], &indices[0], &weights[0], n_users, &matrix[0, first], n_columns, width,
                    &out[0, first], n_columns
                )
            else:
                for i in range(n_users):
                    memset(&out[i, first], 0, width * sizeof(double))
        free(copy)


def sum_sparse_rows(
    const int64_t[::1] indptr,        # IN  (n_users + 1,), from 0
    const int32_t[::1] indices,       # IN  (n_entries,), rows of the matrix
    const double[::1] weights,        # IN  (n_entries,)
    const int64_t[::1] row_starts,    # IN  (n_rows + 1,)
    const int32_t[::1] columns,       # IN  (n_stored,)
    const double[::1] values,         # IN  (n_stored,)
    double[:, ::1] out,               # OUT (n_users, n_columns)
    int n_threads,
):
    """Sum rows; each user's row of `out` belongs to one thread."""
    cdef Py_ssize_t user, p, q, item
    cdef double weight
    # A user belongs to one thread; its entries are taken in order, and then the entries of their rows.
    n_threads = <int>min(<Py_ssize_t>n_threads, (out.shape[0] + 15) // 16)
    for user in prange(out.shape[0], nogil=True, schedule="dynamic", chunksize=16, num_threads=n_threads):
        memset(&out[user, 0], 0, out.shape[1] * sizeof(double))
        for p in range(indptr[user], indptr[user + 1]):
            item, weight = indices[p], weights[p]
            for q in range(row_starts[item], row_starts[item + 1]):
                out[user, columns[q]] += weight * values[q]
