"""Declarations of `_bounded_stream.h`."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "_kernels/core/_bounded_stream.h" namespace "fastfedrec" nogil:
    const uint64_t STREAM_BLOCKS
    const uint64_t WORDS_PER_BLOCK
    cdef cppclass BoundedStream:
        uint32_t state[16]
        uint64_t* buffer
        int position
        int end
    void bounded_open(BoundedStream* s, const uint32_t* subkey, uint32_t round, uint64_t user) noexcept
    bint bounded_refill(BoundedStream* s) noexcept
    uint64_t bounded_left(const BoundedStream* s) noexcept
    void bounded_seek(BoundedStream* s, uint64_t n_read) noexcept
