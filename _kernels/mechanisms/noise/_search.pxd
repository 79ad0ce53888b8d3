"""The search of a noise table, shared by `integer_noise` and `capi`.

Inline only (see setup.py).
"""
from libc.stdint cimport int32_t, uint64_t


cdef inline Py_ssize_t find(
    const uint64_t* high, const int32_t* guide, int shift, uint64_t word
) noexcept nogil:
    """Count the thresholds with a smaller high half than `word`; a sentinel after the last one ends the search."""
    cdef Py_ssize_t i = guide[word >> shift]
    # guide[cell] is at most the count, and the sentinel 2^64 - 1 is below no word: the loop ends within the table.
    while high[i] < word:
        i += 1  # thresholds below the word
    return i


cdef inline Py_ssize_t find_tied(
    const uint64_t* high, const uint64_t* low, Py_ssize_t n, Py_ssize_t i, uint64_t word, uint64_t second
) noexcept nogil:
    """Count the thresholds after a tie of the high halves, by comparing the low halves."""
    while i < n and high[i] == word and low[i] <= second:
        i += 1
    return i
