"""Masks from keystreams, added to a vector modulo 2^32 or 2^64 (docs/explanation/aggregation.md).  Inputs are trusted.

A mask is the stream (key, round, 0) of ChaCha20 as 32- or 64-bit words, low halves first.
"""
from cython.parallel cimport prange
from libc.stdint cimport int8_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, chacha20_batch, stream_open

include "_kernels/core/_level.pxi"

ctypedef fused Number:
    uint32_t
    uint64_t

cdef enum:
    CHUNK = 4096              # numbers to which one thread adds all masks: they stay in the innermost cache
    BLOCK_BYTES = 64


def add_masks(
    Number[::1] values,              # IN/OUT (n,)
    const uint32_t[:, ::1] keys,     # IN     (n_masks, 8)
    const int8_t[::1] signs,         # IN     (n_masks,), 1 or -1
    uint32_t round_number,
    int n_threads,
):
    """Add or subtract each mask, modulo 2 to the number of bits of a value."""
    cdef Py_ssize_t n = values.shape[0], n_chunks = (n + CHUNK - 1) // CHUNK, n_masks = keys.shape[0], chunk, mask
    if n == 0:
        return
    # A chunk belongs to one thread, and starts with a block of each stream, since CHUNK is a multiple of its words.
    for chunk in prange(n_chunks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_chunks)):
        for mask in range(n_masks):
            _add_mask(
                &values[chunk * CHUNK], min(<Py_ssize_t>CHUNK, n - chunk * CHUNK), &keys[mask, 0], signs[mask],
                round_number, <uint32_t>(chunk * (CHUNK * sizeof(Number) // BLOCK_BYTES)),
            )


cdef inline void _add_mask(
    Number* values, Py_ssize_t n, const uint32_t* key, int8_t sign, uint32_t round_number, uint32_t block
) noexcept nogil:
    """Add the words of one stream from a block on."""
    cdef Stream stream
    cdef Py_ssize_t first = 0, size, i
    cdef const Number* words = <const Number*>stream.buffer
    cdef int n_blocks
    stream_open(&stream, key, round_number, 0)
    stream.state[12] = block
    while first < n:
        n_blocks = chacha20_batch(stream.state, <uint32_t*>stream.buffer)
        stream.state[12] += <uint32_t>n_blocks
        size = min(<Py_ssize_t>(n_blocks * (BLOCK_BYTES // <int>sizeof(Number))), n - first)
        # Unsigned sums are modulo 2 to the number of bits.
        if sign > 0:
            for i in range(size):
                values[first + i] += words[i]
        else:
            for i in range(size):
                values[first + i] -= words[i]
        first += size
