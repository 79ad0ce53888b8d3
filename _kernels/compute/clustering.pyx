"""k-means on sparse or dense rows (Lloyd 1982; Arthur and Vassilvitskii 2007).  Inputs are trusted.

|x - c|^2 = |x|^2 - 2 (x'c - |c|^2 / 2), so the nearest centre of a row has the greatest x'c - |c|^2 / 2.  Where
rounding leaves open which score is the greatest, distances decide.  No matrix of rows and clusters is formed
(docs/explanation/compute/clustering.md).
"""
from cython cimport floating
from cython.parallel cimport parallel, prange
from libc.math cimport rint, sqrt
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from _kernels.core._lines cimport malloc_lines

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_clustering.h" namespace "fastfedrec" nogil:
    cdef cppclass Rows[T]:
        const int64_t* indptr
        const int32_t* indices
        const T* values
    cdef cppclass Centers[T]:
        const T* columns
        const T* tail
        const T* start
        Py_ssize_t n
        Py_ssize_t stride
    cdef cppclass ExactCenters:
        const double* rows
        const double* norms
        const double* row_norms
        Py_ssize_t n_columns
        double largest
    cdef cppclass Rounded:
        const uint8_t* values
        const float* totals
        const int8_t* lines
        const float* start
        Py_ssize_t n_columns
        Py_ssize_t n_lines
        Py_ssize_t n_pairs
        float step
        float largest_center
        float largest_start
    void nearest_centers[T](
        const Rows[T]& rows, Py_ssize_t first, Py_ssize_t last, const Centers[T]& centers,
        const ExactCenters& exact, T* scores, int32_t* labels,
    ) noexcept
    void center_distances[T](
        const Rows[T]& rows, Py_ssize_t first, Py_ssize_t last, const ExactCenters& centers, const int32_t* labels,
        double* out,
    ) noexcept
    void round_centers(
        const Centers[float]& centers, Py_ssize_t n_columns, double scale, double shift, int8_t* lines, float* start
    ) noexcept
    Py_ssize_t nearest_rounded(
        const Rows[float]& rows, Py_ssize_t first, Py_ssize_t last, const Centers[float]& centers,
        const ExactCenters& exact, const Rounded& rounded, float* scores, float* bounds, int32_t* labels,
    ) noexcept

cdef enum:
    ROWS_AT_ONCE = 64         # rows of a block


cdef inline void _set_rows(
    Rows[floating]* rows,
    const int64_t[::1] indptr,
    const int32_t[::1] indices,
    const floating[::1] values,
):
    rows.indptr = &indptr[0]
    rows.indices = &indices[0] if indices.shape[0] else NULL
    rows.values = &values[0] if values.shape[0] else NULL


cdef inline void _set_centers(
    Centers[floating]* centers,
    const floating[:, ::1] columns,
    const floating[:, ::1] tail,
    const floating[::1] start,
    Py_ssize_t n_clusters,
):
    centers.columns = &columns[0, 0]
    centers.tail = &tail[0, 0] if tail.shape[1] else NULL
    centers.start = &start[0]
    centers.n = n_clusters
    centers.stride = columns.shape[1]


cdef inline void _set_exact_centers(
    ExactCenters* exact_centers, const double[:, ::1] centers, const double[::1] center_norms,
    const double[::1] row_norms,
):
    cdef Py_ssize_t c
    exact_centers.rows = &centers[0, 0]
    exact_centers.norms = &center_norms[0]
    exact_centers.row_norms = &row_norms[0]
    exact_centers.n_columns = centers.shape[1]
    exact_centers.largest = 0.0
    for c in range(center_norms.shape[0]):
        exact_centers.largest = max(exact_centers.largest, center_norms[c])
    exact_centers.largest = sqrt(exact_centers.largest)


def squared_norms(
    const int64_t[::1] indptr,     # IN  (n_rows + 1,)
    const floating[::1] values,    # IN  (n_values,)
    double[::1] out,               # OUT (n_rows,)
):
    """Compute |x|^2 of each row."""
    cdef Py_ssize_t u, j
    cdef double total
    with nogil:
        # Each row is added up separately, in double, with its entries in order.
        for u in range(out.shape[0]):
            total = 0.0
            for j in range(indptr[u], indptr[u + 1]):
                total += <double>values[j] * values[j]
            out[u] = total


def are_multiples(
    const floating[::1] values,    # IN  (n_values,)
    double per_unit,
):
    """Return whether each value, below 2^51 / per_unit, times `per_unit` is a whole number."""
    cdef Py_ssize_t j
    cdef double x, rounder = 1.5 * 2.0**52  # its addition rounds off the fraction of a number
    cdef bint whole = True
    with nogil:
        for j in range(values.shape[0]):
            x = values[j] * per_unit
            whole &= (x + rounder) - rounder == x
    return whole


def assign(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const double[::1] norms,              # IN  (n_rows,), |x|^2
    const floating[:, ::1] columns,       # IN  (n_columns, stride), at a cache line, a column for each cluster
    const floating[:, ::1] tail,          # IN  (n_columns, n_tail), n_tail 16 bytes or 0, the last clusters
    const floating[::1] start,            # IN  (stride + n_tail,), -|c|^2 / 2, and -infinity beyond the last
    const double[:, ::1] centers,         # IN  (n_clusters, n_columns), the exact centres of `columns` and `tail`
    const double[::1] center_norms,       # IN  (n_clusters,), |c|^2
    int32_t[::1] labels,                  # OUT (n_rows,)
    int n_threads,
):
    """Assign each row to its nearest centre, the first of equally near ones."""
    cdef Py_ssize_t n = labels.shape[0], first
    cdef Rows[floating] rows
    cdef Centers[floating] rounded
    cdef ExactCenters exact_centers
    cdef floating* scores
    cdef int failed = 0
    if n == 0:
        return
    _set_rows(&rows, indptr, indices, values)
    _set_centers(&rounded, columns, tail, start, centers.shape[0])
    _set_exact_centers(&exact_centers, centers, center_norms, norms)
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE))
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        scores = <floating*>malloc_lines(start.shape[0] * sizeof(floating))
        # Each block of rows belongs to one thread, with the labels of its rows and scratch.
        for first in prange(0, n, ROWS_AT_ONCE, schedule="dynamic"):
            if scores == NULL:
                failed |= 1
            else:
                nearest_centers(rows, first, min(first + ROWS_AT_ONCE, n), rounded, exact_centers, scores, &labels[0])
        free(scores)
    if failed:
        raise MemoryError


def distances_to(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const double[::1] norms,              # IN  (n_rows,), |x|^2
    const double[:, ::1] centers,         # IN  (n_clusters, n_columns)
    const double[::1] center_norms,       # IN  (n_clusters,), |c|^2
    const int32_t[::1] labels,            # IN  (n_rows,)
    double[::1] out,                      # OUT (n_rows,), |x - c|^2 to the centre of the label
    int n_threads,
):
    """Compute the distance of each row from the centre of its label."""
    cdef Py_ssize_t n = labels.shape[0], first
    cdef Rows[floating] rows
    cdef ExactCenters exact_centers
    if n == 0:
        return
    _set_rows(&rows, indptr, indices, values)
    _set_exact_centers(&exact_centers, centers, center_norms, norms)
    # Each row is computed separately.
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE))
    for first in prange(
        0, n, ROWS_AT_ONCE, nogil=True, schedule="static", num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        center_distances(rows, first, min(first + ROWS_AT_ONCE, n), exact_centers, &labels[0], &out[0])


def round_rows(
    const int64_t[::1] indptr,     # IN  (n_rows + 1,)
    const float[::1] values,       # IN  (n_values,), times `per_unit` whole numbers from 0 to 255
    double per_unit,
    uint8_t[::1] out,              # OUT (n_values,), these whole numbers
    float[::1] totals,             # OUT (n_rows,), and their sums
):
    """Convert rows to whole units."""
    cdef Py_ssize_t u, j
    cdef int64_t total
    with nogil:
        for u in range(totals.shape[0]):
            total = 0
            for j in range(indptr[u], indptr[u + 1]):
                out[j] = <uint8_t><int>(values[j] * per_unit)  # from 0 to 255, so the conversion is exact
                total += out[j]
            totals[u] = <float>total


def assign_rounded(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,)
    const float[::1] values,              # IN  (n_values,)
    const uint8_t[::1] units,             # IN  (n_values,), the values times `per_unit`
    const float[::1] totals,              # IN  (n_rows,), of `units`, below 2^22 together with the length of the row
    const float[:, ::1] columns,          # IN  as for `assign`
    const float[:, ::1] tail,
    const float[::1] start,
    const double[:, ::1] exact_centers,   # IN  (n_clusters, n_columns), the centres
    const double[::1] center_norms,       # IN  (n_clusters,)
    const double[::1] norms,              # IN  (n_rows,)
    int8_t[:, :, ::1] lines,              # OUT (n_lines, n_columns, 64), centres in 8 bits
    float[::1] rounded_start,             # OUT (64 n_lines,), start in the order of sums
    int32_t[::1] labels,                  # OUT (n_rows,)
    Py_ssize_t n_pairs,                   # times 256 times the greatest of `units` is below 2^15
    double per_unit,
    double lowest,                        # the least number of all centres and 0
    double highest,                       # the greatest number of all centres and 0; it differs from `lowest`
    int n_threads,
):
    """Compute the labels of `assign`; return the number of rows that needed it."""
    # lowest <= 0 <= highest, and one of them is not 0: step > 0.
    cdef Py_ssize_t n = labels.shape[0], first, n_open = 0
    cdef double step = (highest - lowest) / 253.0  # one less than the range of 8 bits: rounding may add one
    cdef Rows[float] rows
    cdef Centers[float] centers
    cdef ExactCenters exact
    cdef Rounded rounded
    cdef float* scores
    cdef float* bounds
    cdef int failed = 0
    _set_rows(&rows, indptr, indices, values)
    _set_centers(&centers, columns, tail, start, exact_centers.shape[0])
    _set_exact_centers(&exact, exact_centers, center_norms, norms)
    round_centers(
        # center / step + shift is then from -127.5 to 126.5, so its nearest integer fits into 8 bits.
        centers, columns.shape[0], 1.0 / step, -127.0 - rint(lowest / step), &lines[0, 0, 0], &rounded_start[0]
    )
    rounded.values = &units[0]
    rounded.totals = &totals[0]
    rounded.lines = &lines[0, 0, 0]
    rounded.start = &rounded_start[0]
    rounded.n_columns = lines.shape[1]
    rounded.n_lines = lines.shape[0]
    rounded.n_pairs = n_pairs
    rounded.step = <float>(step / per_unit)
    rounded.largest_center = <float>(max(highest, -lowest) / per_unit)  # largest |c_f|, for one unit
    rounded.largest_start = 0
    for first in range(exact_centers.shape[0]):
        rounded.largest_start = max(rounded.largest_start, <float>-start[first])  # -start[c] = |c|^2 / 2, at least 0
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        scores = <float*>malloc_lines(start.shape[0] * sizeof(float))
        bounds = <float*>malloc_lines(rounded_start.shape[0] * sizeof(float))
        # Blocks of rows belong to threads as in `assign`; n_open is an integer sum over threads, in any order.
        for first in prange(0, n, ROWS_AT_ONCE, schedule="dynamic"):
            if scores == NULL or bounds == NULL:
                failed |= 1
            else:
                n_open += nearest_rounded(
                    rows, first, min(first + ROWS_AT_ONCE, n), centers, exact, rounded, scores, bounds, &labels[0]
                )
        free(scores)
        free(bounds)
    if failed:
        raise MemoryError
    return n_open


cdef inline void _add_row(
    const Rows[floating]* rows, int64_t u, Py_ssize_t n_columns, double sign, double* sums
) noexcept nogil:
    cdef int64_t j, at = rows.indptr[u]
    if rows.indices == NULL:
        for j in range(n_columns):
            sums[j] += sign * rows.values[at + j]
    else:
        for j in range(at, rows.indptr[u + 1]):
            sums[rows.indices[j]] += sign * rows.values[j]


def add_members(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const int64_t[::1] members,           # IN  (n_members,), rows that join or leave
    const int32_t[::1] clusters,          # IN  (n_members,), the cluster of each
    const double[::1] signs,              # IN  (n_members,), 1 or -1
    double[:, ::1] sums,                  # IN/OUT (n_clusters, n_columns)
):
    """Add rows to the sums of their clusters in double, in their order."""
    cdef Py_ssize_t i
    cdef Rows[floating] rows
    _set_rows(&rows, indptr, indices, values)
    with nogil:
        for i in range(members.shape[0]):
            _add_row(&rows, members[i], sums.shape[1], signs[i], &sums[clusters[i], 0])


def update_centers(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every column
    const floating[::1] values,           # IN  (n_values,)
    const int64_t[::1] members,           # IN  (n_members,), rows that join or leave, in order of their cluster
    const double[::1] signs,              # IN  (n_members,), 1 or -1
    const int64_t[::1] member_starts,     # IN  (n_clusters + 1,)
    const int64_t[::1] sizes,             # IN  (n_clusters,), rows of each cluster then
    double[:, ::1] sums,                  # IN/OUT (n_clusters, n_columns)
    double[:, ::1] centers,               # IN/OUT (n_clusters, n_columns); an empty cluster keeps its centre
    int n_threads,
):
    """Compute the mean of each cluster that changes; rows are added up in double, in their order."""
    cdef Py_ssize_t n_clusters = centers.shape[0], n_columns = centers.shape[1], c, i, f
    cdef Rows[floating] rows
    _set_rows(&rows, indptr, indices, values)
    # Each cluster belongs to one thread: its rows of `sums` and of `centers`, and its members in their order.
    for c in prange(
        n_clusters, nogil=True, schedule="dynamic", num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        for i in range(member_starts[c], member_starts[c + 1]):
            _add_row(&rows, members[i], n_columns, signs[i], &sums[c, 0])
        # There is no division by 0: an empty cluster keeps its centre.
        if member_starts[c + 1] > member_starts[c] and sizes[c] > 0:
            for f in range(n_columns):
                centers[c, f] = sums[c, f] / <double>sizes[c]
