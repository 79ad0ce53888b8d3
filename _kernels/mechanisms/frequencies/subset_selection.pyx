"""Reports of subset selection (docs/explanation/mechanisms/frequencies/subset-selection.md).  Inputs are trusted.

A first word below `p_count` includes the true value in the report.  The other values of the report are a uniform subset
of all other values (`mark_unbiased_subset`).  Ranks are equal to the values, except that the rank of the true value
denotes the last value.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from _kernels.core._chacha20 cimport Stream, stream_next, stream_open
from _kernels.core._subset cimport bitmap_words, lowest_bit, mark_unbiased_subset
from _kernels.mechanisms._codes cimport In, Out, clipped

include "_kernels/core/_level.pxi"

cdef enum:
    BLOCK = 1024              # reports a stream; part of the stream's definition


def report_subsets(
    const In[::1] values,          # IN  (n,), clipped to [0, n_values)
    Out[:, ::1] out,               # OUT (n, subset_size), ascending in each row
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t[::1] failed,           # OUT (n_threads,), 1 where a thread had no memory
    uint64_t n_values,
    uint64_t p_count,
    uint32_t round_number,
    int n_threads,
):
    """Draw one subset a value; block b of 1,024 reports reads the stream (subkey, round, b), report after report."""
    cdef Py_ssize_t n = values.shape[0], size = out.shape[1], n_blocks = (n + BLOCK - 1) // BLOCK, b
    cdef uint64_t* marked
    if n == 0:
        return
    n_threads = <int>min(<Py_ssize_t>n_threads, n_blocks)
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(bitmap_words(n_values), sizeof(uint64_t))
        # Blocks have separate values, words and rows of `out`; `marked` belongs to the thread, and is 0 between
        # reports.
        for b in prange(n_blocks, schedule="static"):
            if marked == NULL:
                failed[threadid()] = 1
            else:
                _subsets_block(
                    &values[0], &out[0, 0], size, b * BLOCK, min(n, (b + 1) * BLOCK), &subkey[0], n_values, p_count,
                    round_number, b, marked,
                )
        free(marked)


cdef void _subsets_block(
    const In* values, Out* out, Py_ssize_t size, Py_ssize_t start, Py_ssize_t stop, const uint32_t* subkey,
    uint64_t n_values, uint64_t p_count, uint32_t round_number, uint64_t block, uint64_t* marked,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i, j, position = start * size
    cdef uint64_t value, word, last = n_values - 1
    cdef bint includes_value
    stream_open(&stream, subkey, round_number, block)
    for i in range(start, stop):
        value = <uint64_t>clipped(values[i], <Py_ssize_t>last)
        includes_value = stream_next(&stream) < p_count  # with probability p_count / 2^64
        # Ranks 0 to n_values - 2 number the values without the true value.
        mark_unbiased_subset(&stream, last, size - includes_value, marked)
        # A mark at the true value denotes the last value, which no rank denotes.  A branch would depend on the value.
        word = (marked[value >> 6] >> (value & 63)) & 1
        marked[value >> 6] ^= word << (value & 63)
        marked[last >> 6] |= word << (last & 63)
        marked[value >> 6] |= <uint64_t>includes_value << (value & 63)
        for j in range(bitmap_words(n_values)):
            # `size` marks in all, so `position` ends where the next row begins.
            word = marked[j]
            marked[j] = 0
            while word:
                out[position] = <Out>(64 * j + lowest_bit(word))
                position += 1
                word &= word - 1
