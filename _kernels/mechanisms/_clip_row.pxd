"""One row scaled into an l2 or l1 ball, shared by `clipping` and `capi`; `clipping` has the argument.

Inline only (see setup.py).
"""
from libc.math cimport fabs, frexp, isfinite, ldexp, sqrt

cdef extern from "_kernels/mechanisms/_clipping.h" namespace "fastfedrec" nogil:
    double norm_sum[T](const T* row, Py_ssize_t n, double scale, int order) noexcept
    void shrink[T](
        const T* row, Py_ssize_t n, double scale, double factor, bint is_inside, bint is_finite, T* out
    ) noexcept

cdef extern from "<cfloat>" nogil:
    const double DBL_EPSILON
    const double DBL_MAX

ctypedef fused Real:
    float
    double

cdef enum:
    MAX_EXPONENT = 1000       # of the power of two that scales a row: both it and its inverse are normal


cdef inline bint clip_row(const Real* row, Real* out, Py_ssize_t n, double bound, int order) noexcept nogil:
    """Write one clipped row; return False if it was not finite.

    The bound is at least 1e-100.  A row within it and one beyond it take the same time, as do rows that are not finite;
    in double, a row with a norm near 1e-100 or above 1e100 and one that is not finite take longer.
    """
    cdef double scale = 1.0, total = norm_sum(row, n, 1.0, order), norm, largest = 0.0
    cdef double slack = <double>(n + 4) * DBL_EPSILON
    cdef bint is_finite = total <= DBL_MAX, is_inside
    cdef Py_ssize_t i
    cdef int exponent
    # The sum of a float row is not finite only if the row is not, and 0 only if the row is.  A double row with a sum
    # below 1e-210 is within the bound, whether or not its squares have lost digits.
    if Real is double and not (total < 1e-210 or 1e-200 < total < 1e200):
        # If the sum is not finite, or may have lost digits by overflow or underflow, the row is scaled by a power of
        # two, exactly.
        is_finite = True
        for i in range(n):
            is_finite &= isfinite(row[i])
            # NaN is never larger; the result is not used if the row is not finite.
            largest = max(largest, fabs(<double>row[i]))
        if is_finite:
            # largest = m 2^exponent with m from 1/2 to 1: within the bounds of the exponent, so is largest * scale.
            frexp(largest, &exponent)
            scale = ldexp(1.0, -min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT))
            total = norm_sum(row, n, scale, order)
    norm = total if order == 1 else sqrt(total)
    # Rounding errors of norm and bound are within the slack: a row that passes has a norm of at most `bound` exactly.
    is_inside = norm * (1.0 + slack) <= bound * scale * (1.0 - DBL_EPSILON)
    # All rows are scaled, and the result is not used for a row within the bound, the only one that may have norm 0.
    shrink(row, n, scale, bound / norm * (1.0 - slack), is_inside, is_finite, out)
    return is_finite
