"""One report a value from the exact table of a finite channel (finite-channels.md).

Output y is drawn where y of the row's cumulative counts are at most the word, so it has probability counts[x, y] / 2^64
exactly.  A row is padded with 2^64 - 1 to 2^L - 1 thresholds, and searched by L comparisons without a branch; `last`
has the last possible output, which a word of 2^64 - 1 gives.  Inputs are trusted.
"""
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, stream_next, stream_open
from _kernels.mechanisms._codes cimport In, Out, clipped
from _kernels.mechanisms.channels._thresholds cimport table_output

include "_kernels/core/_level.pxi"

cdef enum:
    BLOCK = 65536             # values a stream; part of the stream's definition


def sample_words(
    const int64_t[::1] values,          # IN  (n,), rows
    const uint64_t[::1] words,          # IN  (n,)
    const uint64_t[:, ::1] thresholds,  # IN  (n_inputs, 2^L - 1), each row ascending
    const int64_t[::1] last,            # IN  (n_inputs,)
    int64_t[::1] out,                   # OUT (n,)
):
    """Return the output of each value for a given word, for tests at the edges."""
    cdef Py_ssize_t i, width = thresholds.shape[1]
    for i in range(values.shape[0]):
        out[i] = table_output(&thresholds[values[i], 0], width, last[values[i]], words[i])


def sample_rows(
    const In[::1] values,               # IN  (n,), rows, clipped to [0, n_inputs)
    const uint64_t[:, ::1] thresholds,  # IN  (n_inputs, 2^L - 1), each row ascending
    const int64_t[::1] last,            # IN  (n_inputs,)
    Out[::1] out,                       # OUT (n,), may be `values`
    const uint32_t[::1] subkey,         # IN  (8,)
    uint32_t round_number,
    int n_threads,
):
    """Draw one word a value; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    # A block has separate values, words and outputs.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_blocks)):
        _sample_block(
            &values[0], &thresholds[0, 0], thresholds.shape[0], thresholds.shape[1], &last[0], &out[0], b * BLOCK,
            min(n, (b + 1) * BLOCK), &subkey[0], round_number, b,
        )


cdef void _sample_block(
    const In* values, const uint64_t* thresholds, Py_ssize_t n_rows, Py_ssize_t width, const int64_t* last, Out* out,
    Py_ssize_t start, Py_ssize_t stop, const uint32_t* subkey, uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream stream
    stream_open(&stream, subkey, round_number, block)
    # The compiler unrolls the search in tables of up to 16 outputs.
    if width == 1:
        _sample_values(values, thresholds, n_rows, 1, last, out, start, stop, &stream)
    elif width == 3:
        _sample_values(values, thresholds, n_rows, 3, last, out, start, stop, &stream)
    elif width == 7:
        _sample_values(values, thresholds, n_rows, 7, last, out, start, stop, &stream)
    elif width == 15:
        _sample_values(values, thresholds, n_rows, 15, last, out, start, stop, &stream)
    else:
        _sample_values(values, thresholds, n_rows, width, last, out, start, stop, &stream)


cdef inline void _sample_values(
    const In* values, const uint64_t* thresholds, Py_ssize_t n_rows, Py_ssize_t width, const int64_t* last, Out* out,
    Py_ssize_t start, Py_ssize_t stop, Stream* stream,
) noexcept nogil:
    cdef Py_ssize_t i, row
    for i in range(start, stop):
        row = clipped(values[i], n_rows - 1)
        out[i] = <Out>table_output(thresholds + row * width, width, last[row], stream_next(stream))
