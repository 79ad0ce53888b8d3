"""Reports of the frequency oracles GRR and OUE (grr.md and oue.md).  Inputs are trusted.

GRR: the first `extra` words report the true value, and each value gets `low` of the other words.  The true value thus
has low + extra of 2^64 words, and every other value has low.  OUE reads one word for each bit: 2^63 words set the bit
of the true value, and `low` words set another bit.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, stream_next, stream_open
from _kernels.mechanisms._codes cimport In, Out, clipped

include "_kernels/core/_level.pxi"

cdef enum:
    BLOCK = 65536             # values (GRR) or bits (OUE) a stream; part of the stream's definition


def report_values(
    const In[::1] values,          # IN  (n,), clipped to [0, n_values)
    Out[::1] out,                  # OUT (n,), may be `values`
    const uint32_t[::1] subkey,    # IN  (8,)
    Py_ssize_t n_values,
    uint64_t low,
    uint64_t extra,
    uint32_t round_number,
    int n_threads,
):
    """Draw GRR reports: one word a value; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    # Blocks have separate values, words and reports: no report depends on the number of threads.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_blocks)):
        _report_block(
            &values[0], &out[0], b * BLOCK, min(n, (b + 1) * BLOCK), &subkey[0], n_values, low, extra, round_number, b
        )


cdef void _report_block(
    const In* values, Out* out, Py_ssize_t start, Py_ssize_t stop, const uint32_t* subkey, Py_ssize_t n_values,
    uint64_t low, uint64_t extra, uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i
    cdef uint64_t word
    stream_open(&stream, subkey, round_number, block)
    for i in range(start, stop):
        word = stream_next(&stream)
        # low >= 1 and extra + n_values low = 2^64: the quotient is below n_values.
        out[i] = <Out>clipped(values[i], n_values - 1) if word < extra else <Out>((word - extra) // low)


def report_bits(
    const In[::1] values,          # IN  (n,), clipped to [0, n_values)
    uint8_t[:, ::1] out,           # OUT (n, n_values), 0 or 1
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t low,
    uint32_t round_number,
    int n_threads,
):
    """Draw OUE reports: one word a bit, row by row; block b of 65,536 bits reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n_values = out.shape[1], n = out.shape[0] * n_values, n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    # Blocks of bits are separate as well, and may begin within a row.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_blocks)):
        _bits_block(
            &values[0], n_values, &out[0, 0], NULL, b * BLOCK, min(n, (b + 1) * BLOCK), &subkey[0], low, round_number, b
        )


def add_bits(
    const In[::1] values,          # IN  (n,), clipped to [0, n_values)
    int64_t[:, ::1] sums,          # IN/OUT (n_threads, n_values), bits set, by value
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t low,
    uint32_t round_number,
    int n_threads,
):
    """Add up the OUE bits of `report_bits` without storing them."""
    cdef Py_ssize_t n_values = sums.shape[1], n = values.shape[0] * n_values, n_blocks = (n + BLOCK - 1) // BLOCK, b
    cdef int thread
    if n == 0:
        return
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        # Each thread adds to a separate row of `sums`; integers may be added in any order.
        for b in prange(n_blocks, schedule="static"):
            _bits_block(
                &values[0], n_values, NULL, &sums[thread, 0], b * BLOCK, min(n, (b + 1) * BLOCK), &subkey[0], low,
                round_number, b,
            )


cdef void _bits_block(
    const In* values, Py_ssize_t n_values, uint8_t* out, int64_t* sums, Py_ssize_t start, Py_ssize_t stop,
    const uint32_t* subkey, uint64_t low, uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i, row = start // n_values, column = start % n_values, value = clipped(values[row], n_values - 1)
    cdef uint64_t threshold
    cdef bint bit
    stream_open(&stream, subkey, round_number, block)
    for i in range(start, stop):
        # P(1) = 1/2 for the bit of the true value, and low / 2^64 for another bit.
        threshold = <uint64_t>1 << 63 if column == value else low
        bit = stream_next(&stream) < threshold
        if out != NULL:
            out[i] = bit
        else:
            sums[column] += bit
        # The next bit is in the same row, or the first of the next row.
        column += 1
        if column == n_values:
            column = 0
            row += 1
            if i + 1 < stop:
                value = clipped(values[row], n_values - 1)
