"""Binary response of a real t in [-1, 1] by one 64-bit comparison (docs/explanation/privacy/binary-response.md).

P(+) = threshold / 2^64 with threshold = 2^63 + offset, offset = t * span rounded toward 0 and clamped to [-span, span];
`span` is T - 2^63 for the channel's largest threshold T.  Whatever rounding error t carries, the threshold stays in
[2^64 - T, T], so epsilon = log(T / (2^64 - T)) holds for what runs.  A value that is not finite counts as 0: whether
a client answers must not depend on its data.  Inline only (see setup.py).
"""
from libc.math cimport fabs
from libc.stdint cimport int64_t, uint64_t


cdef inline uint64_t response_threshold(double t, int64_t span) noexcept nogil:
    cdef int64_t offset
    if fabs(t) < 1.0:
        # |t| <= 1 - 2^-53, so the product stays inside int64 even where span rounds up to 2^63 as a double.
        offset = <int64_t>(t * <double>span)
        offset = min(max(offset, -span), span)
    elif t - t != 0.0:        # NaN or infinite
        offset = 0
    else:
        offset = span * ((t > 0.0) - (t < 0.0))  # no branch: the signs of bits cannot be predicted
    return (<uint64_t>1 << 63) + <uint64_t>offset


cdef inline bint respond(double t, int64_t span, uint64_t word) noexcept nogil:
    """Whether the answer is +."""
    return word < response_threshold(t, span)
