"""One row scaled into an l2 or l1 ball, shared by `clipping` and `capi`; `clipping` has the argument.

Inline only (see setup.py).
"""
from libc.math cimport fabs, frexp, isfinite, ldexp, sqrt
from libc.stdint cimport uint64_t

cdef extern from "_kernels/mechanisms/_clipping.h" namespace "fastfedrec" nogil:
    double norm_sum[T](const T* row, Py_ssize_t n, double scale, int order) noexcept
    void shrink[T](const T* row, Py_ssize_t n, double scale, double factor, bint drops_small, T* out) noexcept

cdef extern from "_kernels/core/_branchless.h" namespace "fastfedrec" nogil:
    uint64_t bits_of(double number) noexcept
    double number_of(uint64_t bits) noexcept
    uint64_t mask_below(uint64_t a, uint64_t b) noexcept
    uint64_t choose(uint64_t mask, uint64_t a, uint64_t b) noexcept
    const uint64_t NORMAL_BITS
    const uint64_t ONE_BITS
    const uint64_t INFINITE_BITS

cdef extern from "<cfloat>" nogil:
    const double DBL_EPSILON

ctypedef fused Real:
    float
    double

cdef enum:
    REPLACEMENT = 0x3ff921fb54442d18  # bits of pi / 2
    MAX_EXPONENT = 1000       # of the power of two that scales a row: both it and its inverse are normal


cdef inline bint clip_row(const Real* row, Real* out, Py_ssize_t n, double bound, int order) noexcept nogil:
    """Write one clipped row; return False if it was not finite.

    The bound is at least 1e-100.  A row within it and one beyond it take the same time, as do rows that are not finite;
    in double, a row with a norm near 1e-100 or above 1e100 and one that is not finite take longer.
    """
    cdef double scale = 1.0, total = norm_sum(row, n, 1.0, order), norm, factor, largest = 0.0
    cdef double slack = <double>(n + 4) * DBL_EPSILON
    cdef uint64_t bits, is_usual, is_finite, is_tiny, is_inside
    cdef Py_ssize_t i
    cdef int exponent
    # The sum of a float row is not finite only if the row is not, and 0 only if the row is.  A double row with a sum
    # below 1e-210 is within the bound, whether or not its squares have lost digits; masks give such sums, as those of
    # zeros, no branch of their own.
    bits = bits_of(total)
    is_usual = mask_below(bits_of(1e-200), bits) & mask_below(bits, bits_of(1e200))
    if Real is double and not (is_usual | mask_below(bits, bits_of(1e-210))):
        # If the sum is not finite, or may have lost digits by overflow or underflow, the row is scaled by a power of
        # two, exactly.
        for i in range(n):
            # NaN is never larger; the result is not used if the row is not finite, which its sum remains.
            largest = max(largest, fabs(<double>row[i]))
        if isfinite(largest):
            # largest = m 2^exponent with m from 1/2 to 1: within the bounds of the exponent, so is largest * scale.
            frexp(largest, &exponent)
            scale = ldexp(1.0, -min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT))
            total = norm_sum(row, n, scale, order)
    # Masks, all ones or 0.  A number with all its digits replaces a sum of which a root or a quotient takes less time;
    # the row of that sum is within the bound, or not finite.
    bits = bits_of(total)
    is_finite, is_tiny = mask_below(bits, INFINITE_BITS), mask_below(bits, NORMAL_BITS)
    total = number_of(choose(is_finite & ~is_tiny, bits, REPLACEMENT))
    norm = total if order == 1 else sqrt(total)
    # Rounding errors of norm and bound are within the slack: a row that passes has a norm of at most `bound` exactly.
    is_inside = is_tiny | (0 - <uint64_t>(norm * (1.0 + slack) <= bound * scale * (1.0 - DBL_EPSILON)))
    # A row within the bound is multiplied by 1, exactly, and one that is not finite by 0, which `shrink` makes zeros.
    factor = number_of(choose(is_inside, ONE_BITS, bits_of(bound / norm * (1.0 - slack))) & is_finite)
    scale = number_of(choose(is_inside, ONE_BITS, bits_of(scale)))
    shrink(row, n, scale, factor, (is_inside & is_finite) == 0, out)
    return is_finite != 0
