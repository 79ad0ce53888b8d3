"""ChaCha20 keystreams (RFC 8439, section 2.3), the one source of random bits of every kernel.

A stream is named by (subkey, round, user): the subkey is the 256-bit ChaCha20 key of one purpose, and the 96-bit
nonce is (round, user low, user high).  The 32-bit block counter runs within the stream, from 0, so a name gives the
same bits on any thread, shard or machine.  How many blocks are computed together never changes the stream.

Inline functions only: a compiled module cannot be cimported under the `_kernels` mapping (see setup.py).
"""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "_kernels/_chacha20.h" namespace "fastfedrec" nogil:
    int chacha20_batch(const uint32_t* state, uint32_t* out) noexcept
    void chacha20_streams(
        const uint32_t* state, const uint64_t* users, Py_ssize_t n_users, int n_words, uint64_t* out
    ) noexcept
    uint64_t mulhi64(uint64_t a, uint64_t b) noexcept


cdef struct Stream:
    uint32_t state[16]
    uint32_t buffer[256]     # 16 words a block, the largest batch
    int position             # next unread word of the buffer
    int end                  # words in the buffer


cdef inline void stream_open(Stream* s, const uint32_t* subkey, uint32_t round_number, uint64_t user) noexcept nogil:
    cdef int i
    s.state[0] = 0x61707865
    s.state[1] = 0x3320646e
    s.state[2] = 0x79622d32
    s.state[3] = 0x6b206574
    for i in range(8):
        s.state[4 + i] = subkey[i]
    s.state[12] = 0
    s.state[13] = round_number
    s.state[14] = <uint32_t>(user & <uint64_t>0xFFFFFFFF)
    s.state[15] = <uint32_t>(user >> 32)
    s.position = 0
    s.end = 0


cdef inline void stream_refill(Stream* s) noexcept nogil:
    """The next batch of words of the stream, whatever was left of the last one."""
    cdef int n_blocks = chacha20_batch(s.state, s.buffer)
    s.state[12] += n_blocks
    s.position = 0
    s.end = 16 * n_blocks


cdef inline uint64_t stream_next(Stream* s) noexcept nogil:
    """The next 64 bits of the stream, low word first."""
    cdef uint64_t word
    if s.position == s.end:
        stream_refill(s)
    word = <uint64_t>s.buffer[s.position] | (<uint64_t>s.buffer[s.position + 1] << 32)
    s.position += 2
    return word


cdef inline uint64_t stream_below(Stream* s, uint64_t bound) noexcept nogil:
    """An integer in [0, bound): the high half of word x bound, off uniform by less than bound * 2^-64."""
    return mulhi64(stream_next(s), bound)


cdef inline double stream_uniform(Stream* s) noexcept nogil:
    """A double in (0, 1): 52 bits, at the middles of their cells (exact, so neither end is reached)."""
    return (<double>(stream_next(s) >> 12) + 0.5) * 2.220446049250313e-16
