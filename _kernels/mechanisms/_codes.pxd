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
