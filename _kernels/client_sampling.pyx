"""Cohorts of clients (docs/explanation/privacy/client-sampling.md).  Inputs are trusted."""
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from _kernels._chacha20 cimport Stream, stream_open, stream_refill
from _kernels._subset cimport lowest_bit, mark_unbiased_subset, unbiased_below

include "_level.pxi"

cdef enum:
    BLOCK = 65536             # clients a stream; part of the stream's definition


def sample_poisson(
    uint8_t[::1] taken,            # OUT (n_clients,)
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t threshold,            # of 2^64
    uint32_t round_number,
    int n_threads,
):
    """Take each client whose word is below the threshold; block b of 65,536 clients reads stream (subkey, round, b)."""
    cdef Py_ssize_t n = taken.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=n_threads):
        _poisson_block(&taken[b * BLOCK], min(<Py_ssize_t>BLOCK, n - b * BLOCK), &subkey[0], threshold, round_number, b)


cdef void _poisson_block(
    uint8_t* taken, Py_ssize_t n, const uint32_t* subkey, uint64_t threshold, uint32_t round_number, uint64_t block
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i = 0, j
    stream_open(&stream, subkey, round_number, block)
    while i < n:
        stream_refill(&stream)
        for j in range(min(<Py_ssize_t>stream.end, n - i)):
            taken[i + j] = stream.buffer[j] < threshold
        i += stream.end


def sample_fixed_size(
    int64_t[::1] out,              # OUT (size,), ascending
    uint64_t[::1] marked,          # IN/OUT (n_clients / 64 rounded up,), all 0
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t n_clients,
    uint32_t round_number,
):
    """Take a uniform subset, from the stream (subkey, round, 0) (Floyd; see `_subset.pxd`), without any bias."""
    cdef Stream stream
    cdef uint64_t size = out.shape[0], word
    cdef Py_ssize_t i, found = 0
    stream_open(&stream, &subkey[0], round_number, 0)
    with nogil:
        mark_unbiased_subset(&stream, n_clients, size, &marked[0])
        for i in range(marked.shape[0]):
            word = marked[i]
            while word:
                out[found] = 64 * i + lowest_bit(word)
                found += 1
                word &= word - 1


def uniform_integers(
    uint64_t[::1] out,             # OUT (n,)
    const uint32_t[::1] subkey,    # IN  (8,)
    uint64_t bound,
    uint32_t round_number,
):
    """Uniform integers below `bound`, for tests: no number of clients is so large that one is ever drawn again."""
    cdef Stream stream
    cdef Py_ssize_t i
    stream_open(&stream, &subkey[0], round_number, 0)
    for i in range(out.shape[0]):
        out[i] = unbiased_below(&stream, bound)
