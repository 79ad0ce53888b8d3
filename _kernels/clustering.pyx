"""k-means on sparse or dense rows (Lloyd 1982; Arthur and Vassilvitskii 2007).  Inputs are trusted.

|x - c|^2 = |x|^2 - 2 (x'c - |c|^2 / 2), so a row's nearest centre has the greatest x'c - |c|^2 / 2; no row x cluster
matrix is ever formed (docs/explanation/clustering.md).
"""
from cython cimport floating
from cython.parallel cimport parallel, prange
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

include "_level.pxi"

cdef extern from "_kernels/_clustering.h" namespace "fastfedrec" nogil:
    cdef cppclass Rows[T]:
        const int64_t* indptr
        const int32_t* indices
        const T* values
    void nearest_centers[T](
        const Rows[T]& rows, Py_ssize_t first, Py_ssize_t last, const T* centers, const T* start,
        Py_ssize_t n_clusters, Py_ssize_t stride, T* scores, int32_t* labels, T* best,
    ) noexcept

cdef enum:
    ROWS_AT_ONCE = 64         # of a block: its sum of distances is one addend, whatever the threads


cdef inline void _set_rows(
    Rows[floating]* rows,
    const int64_t[::1] indptr,
    const int32_t[::1] indices,
    const floating[::1] values,
):
    rows.indptr = &indptr[0]
    rows.indices = &indices[0] if indices.shape[0] else NULL
    rows.values = &values[0] if values.shape[0] else NULL


def squared_norms(
    const int64_t[::1] indptr,     # IN  (n_rows + 1,)
    const floating[::1] values,    # IN  (n_values,)
    double[::1] out,               # OUT (n_rows,)
):
    """|x|^2 of each row."""
    cdef Py_ssize_t u, j
    cdef double total
    with nogil:
        for u in range(out.shape[0]):
            total = 0.0
            for j in range(indptr[u], indptr[u + 1]):
                total += <double>values[j] * values[j]
            out[u] = total


def assign(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const double[::1] norms,              # IN  (n_rows,), |x|^2
    const floating[:, ::1] centers,       # IN  (n_columns, stride), one column a cluster
    const floating[::1] start,            # IN  (stride,), -|c|^2 / 2
    int32_t[::1] labels,                  # OUT (n_rows,)
    floating[::1] best,                   # OUT (n_rows,), x'c - |c|^2 / 2 of the nearest
    double[::1] distances,                # OUT (n_rows,), |x - c|^2, at least 0
    Py_ssize_t n_clusters,
    int n_threads,
):
    """Each row to its nearest centre, the first of equally near ones."""
    cdef Py_ssize_t n = labels.shape[0], stride = centers.shape[1], first, last, u
    cdef Rows[floating] rows
    cdef floating* scores
    cdef int failed = 0
    if n == 0:
        return
    _set_rows(&rows, indptr, indices, values)
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        scores = <floating*>malloc(stride * sizeof(floating))
        for first in prange(0, n, ROWS_AT_ONCE, schedule="dynamic"):
            if scores == NULL:
                failed |= 1
            else:
                last = min(first + ROWS_AT_ONCE, n)
                nearest_centers(
                    rows, first, last, &centers[0, 0], &start[0], n_clusters, stride, scores, &labels[0], &best[0]
                )
                for u in range(first, last):
                    distances[u] = max(norms[u] - 2.0 * <double>best[u], 0.0)
        free(scores)
    if failed:
        raise MemoryError


def update_centers(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const int64_t[::1] members,           # IN  (n_rows,), rows in order of their cluster
    const int64_t[::1] member_starts,     # IN  (n_clusters + 1,)
    floating[:, ::1] centers,             # IN/OUT (n_clusters, n_columns); an empty cluster keeps its centre
    int n_threads,
):
    """The mean of each cluster's rows, added up in double in their order."""
    cdef Py_ssize_t n_clusters = centers.shape[0], n_columns = centers.shape[1], c, i, j, f
    cdef int64_t u, size
    cdef double* sums
    cdef bint dense = indices.shape[0] == 0
    cdef int failed = 0
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        sums = <double*>malloc(n_columns * sizeof(double))
        for c in prange(n_clusters, schedule="dynamic"):
            size = member_starts[c + 1] - member_starts[c]
            if sums == NULL:
                failed |= 1
            elif size > 0:
                memset(sums, 0, n_columns * sizeof(double))
                for i in range(member_starts[c], member_starts[c + 1]):
                    u = members[i]
                    if dense:
                        for f in range(n_columns):
                            sums[f] += values[indptr[u] + f]
                    else:
                        for j in range(indptr[u], indptr[u + 1]):
                            sums[indices[j]] += values[j]
                for f in range(n_columns):
                    centers[c, f] = <floating>(sums[f] / <double>size)
        free(sums)
    if failed:
        raise MemoryError


def approach(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const double[::1] norms,              # IN  (n_rows,), |x|^2
    const floating[::1] center,           # IN  (n_columns,)
    double[::1] distances,                # IN/OUT (n_rows,), |x - c|^2 to the nearest centre so far
    double center_norm,
    int n_threads,
):
    """Take one more centre into account (k-means++)."""
    cdef Py_ssize_t n = distances.shape[0], u, j
    cdef bint dense = indices.shape[0] == 0
    cdef double product
    for u in prange(n, nogil=True, schedule="static", num_threads=n_threads, use_threads_if=n_threads > 1):
        product = 0.0
        if dense:
            for j in range(center.shape[0]):
                product = product + <double>values[indptr[u] + j] * center[j]
        else:
            for j in range(indptr[u], indptr[u + 1]):
                product = product + <double>values[j] * center[indices[j]]
        distances[u] = min(distances[u], max(norms[u] - 2.0 * product + center_norm, 0.0))
