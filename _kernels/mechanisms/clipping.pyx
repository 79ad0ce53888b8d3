"""Rows scaled into an l2 or l1 ball, exactly (docs/explanation/mechanisms/clipping.md).  Inputs are trusted.

A row with a norm that may exceed the bound, including rounding, is multiplied by bound / norm minus (n + 4) units in
the last place of a double.  The total error of the n additions of the norm, its root, the division and the product is
less than that.  The product is truncated toward zero to the type of the output, so the exact norm of the output never
exceeds the bound.  A row with an entry that is not finite becomes zeros and is marked.
"""
from cython.parallel cimport prange
from libc.math cimport fabs, frexp, isfinite, ldexp, sqrt
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/mechanisms/_clipping.h" namespace "fastfedrec" nogil:
    double norm_sum[T](const T* row, Py_ssize_t n, double scale, int order) noexcept
    void shrink[T](const T* row, Py_ssize_t n, double scale, double factor, T* out) noexcept

ctypedef fused Real:
    float
    double

cdef enum:
    MAX_EXPONENT = 1000       # of the power of two that scales a row: both it and its inverse are normal

cdef double ULP = 2.220446049250313e-16


cdef bint clip_row(const Real* row, Real* out, Py_ssize_t n, double bound, int order) noexcept nogil:
    """Write one clipped row; return False if it was not finite."""
    cdef double scale = 1.0, total = norm_sum(row, n, 1.0, order), norm, largest = 0.0
    cdef double slack = <double>(n + 4) * ULP
    cdef Py_ssize_t i
    cdef int exponent
    if not (1e-200 < total < 1e200):
        # If the sum is 0, not finite, or may have lost digits by overflow or underflow, the row is scaled by a power of
        # two, exactly.
        for i in range(n):
            if not isfinite(row[i]):
                memset(out, 0, n * sizeof(Real))
                return False
            # The row is finite, so `max` has no NaN.
            largest = max(largest, fabs(<double>row[i]))
        # largest = m 2^exponent with m from 1/2 to 1: within the bounds of the exponent, so is largest * scale.
        frexp(largest, &exponent)
        scale = ldexp(1.0, -min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT))
        total = norm_sum(row, n, scale, order)
    norm = total if order == 1 else sqrt(total)
    # Rounding errors of norm and bound are within the slack: a row that passes has a norm of at most `bound` exactly.
    if norm * (1.0 + slack) <= bound * scale * (1.0 - ULP):
        if out != row:
            memcpy(out, row, n * sizeof(Real))
    else:
        # norm > 0, because bound * scale >= 0: there is no division by 0.
        shrink(row, n, scale, bound / norm * (1.0 - slack), out)
    return True


def clip_rows(
    const Real[:, ::1] rows,   # IN  (n_rows, n)
    Real[:, ::1] out,          # OUT (n_rows, n), may be `rows`
    uint8_t[::1] rejected,     # OUT (n_rows,), whether a row was not finite
    double bound,
    int order,                 # 1 or 2
    int n_threads,
):
    """Clip every row to the norm `bound`."""
    cdef Py_ssize_t n_rows = rows.shape[0], n = rows.shape[1], r
    if n == 0:
        return
    n_threads = <int>min(<Py_ssize_t>n_threads, n_rows)
    # Rows are independent: each thread writes separate rows of `out` and `rejected`.
    for r in prange(n_rows, nogil=True, schedule="static", num_threads=n_threads):
        rejected[r] = not clip_row(&rows[r, 0], &out[r, 0], n, bound, order)


def clip_ragged(
    Real[::1] values,            # IN/OUT (starts[-1],)
    const int64_t[::1] starts,   # IN  (n_rows + 1,), where each row begins
    uint8_t[::1] rejected,       # OUT (n_rows,), whether a row was not finite
    double bound,
    int order,                   # 1 or 2
    int n_threads,
):
    """Clip rows of different lengths in place to the norm `bound`; an infinite one rejects without clipping."""
    cdef Py_ssize_t r
    cdef Real* row
    n_threads = <int>min(<Py_ssize_t>n_threads, rejected.shape[0])
    # Rows do not overlap, and each belongs to one thread.
    for r in prange(rejected.shape[0], nogil=True, schedule="static", num_threads=n_threads):
        rejected[r] = 0
        if starts[r] < starts[r + 1]:
            row = &values[starts[r]]
            rejected[r] = not clip_row(row, row, starts[r + 1] - starts[r], bound, order)
