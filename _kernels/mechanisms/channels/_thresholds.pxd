"""The output of a finite channel for one 64-bit word (docs/explanation/mechanisms/channels/finite-channels.md)."""
from libc.stdint cimport int64_t, uint64_t


cdef inline int64_t table_output(const uint64_t* row, Py_ssize_t width, int64_t last, uint64_t word) noexcept nogil:
    """Return the number of the row's thresholds that are at most the word, and at most `last`."""
    cdef int64_t y = 0
    cdef Py_ssize_t step = (width + 1) >> 1
    # The binary search is in a row of 2^L - 1 thresholds: y + step - 1 < width at every step.
    while step:
        y += step * <int64_t>(word >= row[y + step - 1])
        step >>= 1
    return min(y, last)
