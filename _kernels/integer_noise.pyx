"""Symmetric integer noise by inverse tables (docs/explanation/privacy/noise-tables.md).  Inputs are trusted.

The draw is the number of thresholds (128 bits each) at or below a uniform 128-bit number, less `reach`.  The low half
of that number is only drawn where the high half equals that of a threshold, which hardly ever happens.
"""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from _kernels._chacha20 cimport Stream, stream_next, stream_open

include "_level.pxi"

cdef enum:
    BLOCK = 65536             # values a stream; part of the stream's definition


cdef inline Py_ssize_t find(
    const uint64_t* high, const int32_t* guide, int shift, uint64_t word
) noexcept nogil:
    """How many thresholds have a smaller high half than `word`; the sentinel after the last ends the search."""
    cdef Py_ssize_t i = guide[word >> shift]
    i += high[i] < word       # most searches end here, without a branch that cannot be predicted
    while high[i] < word:
        i += 1
    return i


cdef inline Py_ssize_t find_tied(
    const uint64_t* high, const uint64_t* low, Py_ssize_t n, Py_ssize_t i, uint64_t word, uint64_t second
) noexcept nogil:
    """The same after a tie of the high halves, from there on by the low halves."""
    while i < n and high[i] == word and low[i] <= second:
        i += 1
    return i


def lookup(
    const uint64_t[:, ::1] words,   # IN  (n, 2), high and low halves
    int64_t[::1] out,               # OUT (n,)
    const uint64_t[::1] high,       # IN  (2 reach + 1,)
    const uint64_t[::1] low,        # IN  (2 reach + 1,)
    const int32_t[::1] guide,       # IN  (n_cells,)
    int shift,
):
    """The draws of given 128-bit numbers, for tests: ties do not come up otherwise."""
    cdef Py_ssize_t n = high.shape[0] - 1, i, found
    for i in range(words.shape[0]):
        found = find(&high[0], &guide[0], shift, words[i, 0])
        if high[found] == words[i, 0]:
            found = find_tied(&high[0], &low[0], n, found, words[i, 0], words[i, 1])
        out[i] = found - n // 2


def add_noise(
    int64_t[::1] values,            # IN/OUT (n,)
    const uint64_t[::1] high,       # IN  (2 reach + 1,)
    const uint64_t[::1] low,        # IN  (2 reach + 1,)
    const int32_t[::1] guide,       # IN  (n_cells,)
    const uint32_t[::1] subkey,     # IN  (8,)
    int shift,
    uint32_t round_number,
    int n_threads,
):
    """Add one draw to each value, saturating; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=n_threads):
        _add_block(
            &values[b * BLOCK], min(<Py_ssize_t>BLOCK, n - b * BLOCK), &high[0], &low[0], high.shape[0] - 1, &guide[0],
            &subkey[0], shift, round_number, b,
        )


cdef void _add_block(
    int64_t* values, Py_ssize_t n, const uint64_t* high, const uint64_t* low, Py_ssize_t n_thresholds,
    const int32_t* guide, const uint32_t* subkey, int shift, uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i, found
    cdef uint64_t word
    cdef int64_t reach = n_thresholds // 2
    stream_open(&stream, subkey, round_number, block)
    for i in range(n):
        word = stream_next(&stream)
        found = find(high, guide, shift, word)
        if high[found] == word:
            found = find_tied(high, low, n_thresholds, found, word, stream_next(&stream))
        values[i] = saturating_sum(values[i], found - reach)


cdef inline int64_t saturating_sum(int64_t a, int64_t b) noexcept nogil:
    cdef int64_t largest = 0x7FFFFFFFFFFFFFFF
    if b > 0 and a > largest - b:
        return largest
    if b < 0 and a < -largest - 1 - b:
        return -largest - 1
    return a + b
