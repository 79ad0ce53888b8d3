"""One row scaled into an l2 or l1 ball, shared by `clipping` and `capi`; `clipping` has the argument.

Inline only (see setup.py).
"""
from libc.math cimport fabs, frexp, isfinite, ldexp, sqrt
from libc.string cimport memcpy, memset

cdef extern from "_kernels/mechanisms/_clipping.h" namespace "fastfedrec" nogil:
    double norm_sum[T](const T* row, Py_ssize_t n, double scale, int order) noexcept
    void shrink[T](const T* row, Py_ssize_t n, double scale, double factor, T* out) noexcept

cdef extern from "<cfloat>" nogil:
    const double DBL_EPSILON

ctypedef fused Real:
    float
    double

cdef enum:
    MAX_EXPONENT = 1000       # of the power of two that scales a row: both it and its inverse are normal


cdef inline bint clip_row(const Real* row, Real* out, Py_ssize_t n, double bound, int order) noexcept nogil:
    """Write one clipped row; return False if it was not finite."""
    cdef double scale = 1.0, total = norm_sum(row, n, 1.0, order), norm, largest = 0.0
    cdef double slack = <double>(n + 4) * DBL_EPSILON
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
    if norm * (1.0 + slack) <= bound * scale * (1.0 - DBL_EPSILON):
        if out != row:
            memcpy(out, row, n * sizeof(Real))
    else:
        # norm > 0, because bound * scale >= 0: there is no division by 0.
        shrink(row, n, scale, bound / norm * (1.0 - slack), out)
    return True
