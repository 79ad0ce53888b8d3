# Types that samplers read values in and write reports in: `CODES` of fastfedrec/mechanisms/report_checks.py.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

ctypedef fused In:
    uint8_t
    uint16_t
    int32_t
    int64_t

ctypedef fused Out:
    uint8_t
    uint16_t
    int32_t
    int64_t


cdef inline Py_ssize_t clipped(In value, Py_ssize_t last) noexcept nogil:
    """Return a private value clipped to [0, last], without a branch that its time would depend on."""
    cdef int64_t code = <int64_t>value
    code &= ~(code >> 63)
    # The sign of the difference is all ones below `last`, and 0 else.
    code -= last
    return <Py_ssize_t>(last + (code & (code >> 63)))
