"""Cohorts of clients (docs/explanation/mechanisms/client-sampling.md).  Inputs are trusted."""
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from _kernels.core._chacha20 cimport Stream, stream_open, stream_refill
from _kernels.core._subset cimport lowest_bit, mark_unbiased_subset, unbiased_below

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/mechanisms/channels/_binary_response.h" namespace "fastfedrec" nogil:
    void mark_below(uint64_t threshold, const uint64_t* words, Py_ssize_t n, uint8_t* marks) noexcept

cdef extern from *:
    int count_bits "__builtin_popcountll"(uint64_t word) noexcept nogil

cdef enum:
    BLOCK = 65536             # clients a stream; part of the stream's definition
    WORDS = BLOCK // 64       # words of their marks


def mark_poisson(
    uint64_t[::1] marked,          # OUT (n_clients / 64 rounded up,), a bit a client
    const uint32_t[::1] subkey,    # IN  (8,)
    Py_ssize_t n_clients,
    uint64_t threshold,            # of 2^64
    uint32_t round_number,
    int n_threads,
):
    """Mark each client with a word below the threshold; block b of 65,536 clients reads stream (subkey, round, b)."""
    cdef Py_ssize_t n_blocks = (n_clients + BLOCK - 1) // BLOCK, b
    if n_clients == 0:
        return
    # A block is whole words of `marked`, so no two threads write to one word; each block has a separate stream.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=n_threads):
        _mark_block(
            <uint8_t*>&marked[b * BLOCK // 64], min(<Py_ssize_t>BLOCK, n_clients - b * BLOCK), &subkey[0], threshold,
            round_number, b,
        )


cdef void _mark_block(
    uint8_t* marks, Py_ssize_t n, const uint32_t* subkey, uint64_t threshold, uint32_t round_number, uint64_t block
) noexcept nogil:
    """Mark one block; batches are whole bytes, and bits follow the order in words: low ones first (`_chacha20.h`)."""
    cdef Stream stream
    cdef Py_ssize_t i = 0
    stream_open(&stream, subkey, round_number, block)
    while i < n:
        # A stream's batch is whole blocks of 8 words, so i is a multiple of 8, and i / 8 a whole byte.
        stream_refill(&stream)
        mark_below(threshold, stream.buffer, min(<Py_ssize_t>stream.end, n - i), marks + i // 8)
        i += stream.end


def mark_fixed_size(
    uint64_t[::1] marked,          # IN/OUT (n_clients / 64 rounded up,), all 0
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t n_clients,
    uint64_t size,
    uint32_t round_number,
):
    """Mark a uniform subset without bias, from the stream (subkey, round, 0) (Floyd's algorithm; see `_subset.pxd`)."""
    cdef Stream stream
    stream_open(&stream, &subkey[0], round_number, 0)
    with nogil:
        mark_unbiased_subset(&stream, n_clients, size, &marked[0])


def list_marked(
    const uint64_t[::1] marked,    # IN  (n_words,)
    int64_t[::1] out,              # OUT (n_marked,), ascending
    int n_threads,
):
    """Return the indices of the bits that are 1."""
    cdef Py_ssize_t n_words = marked.shape[0], n_blocks = (n_words + WORDS - 1) // WORDS, b
    cdef vector[Py_ssize_t] starts = vector[Py_ssize_t](n_blocks + 1)
    if out.shape[0] == 0:
        return
    if n_threads == 1:  # which needs no counts
        _list_block(&marked[0], n_words, 0, &out[0], out.shape[0])
        return
    with nogil:
        # Each block counts, then writes from the end of the previous blocks: ranges of `out` do not overlap.
        for b in prange(n_blocks, schedule="static", num_threads=n_threads):
            starts[b + 1] = _count_block(&marked[b * WORDS], min(<Py_ssize_t>WORDS, n_words - b * WORDS))
        for b in range(n_blocks):
            starts[b + 1] += starts[b]
        for b in prange(n_blocks, schedule="static", num_threads=n_threads):
            _list_block(
                &marked[b * WORDS], min(<Py_ssize_t>WORDS, n_words - b * WORDS), b * BLOCK, &out[0] + starts[b],
                starts[b + 1] - starts[b],
            )


cdef Py_ssize_t _count_block(const uint64_t* marked, Py_ssize_t n_words) noexcept nogil:
    cdef Py_ssize_t i, count = 0
    for i in range(n_words):
        count += count_bits(marked[i])
    return count


cdef void _list_block(
    const uint64_t* marked, Py_ssize_t n_words, int64_t first, int64_t* out, Py_ssize_t n_marked
) noexcept nogil:
    cdef uint64_t word
    cdef Py_ssize_t i, count = 0
    for i in range(n_words):
        if count == n_marked:
            return
        # The first bit is written without a branch, which a processor could not predict: a word without bits writes a
        # number that the next bit replaces.
        word = marked[i]
        out[count] = first + 64 * i + lowest_bit(word | (<uint64_t>1 << 63))
        count += word != 0
        word &= word - 1
        while word:
            out[count] = first + 64 * i + lowest_bit(word)
            count += 1
            word &= word - 1


def uniform_integers(
    uint64_t[::1] out,             # OUT (n,)
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t bound,
    uint32_t round_number,
):
    """Draw uniform integers below `bound`, for tests: no number of clients is large enough to cause a redraw."""
    cdef Stream stream
    cdef Py_ssize_t i
    stream_open(&stream, &subkey[0], round_number, 0)
    for i in range(out.shape[0]):
        out[i] = unbiased_below(&stream, bound)
