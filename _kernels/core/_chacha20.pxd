"""ChaCha20 keystreams (RFC 8439, section 2.3), the one source of random bits of every kernel.

A stream is named by (subkey, round, user): the subkey is the 256-bit ChaCha20 key of one purpose, and the 96-bit
nonce is (round, user low, user high).  The 32-bit block counter runs within the stream, from 0, so a name gives the
same bits on any thread, shard or machine.  Its words have 64 bits, low halves first.  The number of blocks in a batch
never changes the stream.

Inline functions only: a compiled module cannot be cimported under the `_kernels` mapping (see setup.py).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from _kernels.core._lines cimport malloc_lines

cdef extern from "_kernels/core/_chacha20.h" namespace "fastfedrec" nogil:
    int chacha20_batch(const uint32_t* state, uint32_t* out) noexcept
    const int LARGEST_BATCH
    void chacha20_blocks(
        const uint32_t* state, const uint64_t* users, Py_ssize_t first, Py_ssize_t n, Py_ssize_t blocks_per_user,
        uint32_t* out,
    ) noexcept
    uint64_t mulhi64(uint64_t a, uint64_t b) noexcept


cdef struct Stream:
    uint32_t state[16]
    uint64_t buffer[256]     # 8 words a block, the largest batch
    int position             # next unread word of the buffer
    int end                  # words in the buffer


cdef inline void stream_open(Stream* s, const uint32_t* subkey, uint32_t round_number, uint64_t user) noexcept nogil:
    cdef int i
    # Words 0 to 3: the constants "expand 32-byte k"; 4 to 11: the key; 12: the counter; 13 to 15: the nonce.
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
    """Fetch the next batch of words of the stream, and drop the remainder of the last one."""
    cdef int n_blocks = chacha20_batch(s.state, <uint32_t*>s.buffer)
    s.state[12] += n_blocks  # wraps after 2^32 blocks, 256 GiB of a stream
    s.position = 0
    s.end = 8 * n_blocks


cdef inline uint64_t stream_next(Stream* s) noexcept nogil:
    """Return the next 64 bits of the stream."""
    if s.position == s.end:
        stream_refill(s)
    s.position += 1
    return s.buffer[s.position - 1]


cdef inline void stream_read(Stream* s, uint64_t* words, Py_ssize_t n) noexcept nogil:
    """Read the next n words of the stream."""
    cdef Py_ssize_t size
    while n > 0:
        if s.position == s.end:
            stream_refill(s)
        size = min(n, <Py_ssize_t>(s.end - s.position))
        memcpy(words, s.buffer + s.position, size * sizeof(uint64_t))  # at most the remainder of the buffer
        s.position += <int>size
        words += size
        n -= size


cdef inline uint64_t stream_below(Stream* s, uint64_t bound) noexcept nogil:
    """Return an integer in [0, bound): the high half of word x bound, uniform up to a bias below bound * 2^-64."""
    return mulhi64(stream_next(s), bound)


cdef inline double stream_uniform(Stream* s) noexcept nogil:
    """Return a double in (0, 1): 52 bits, at the middles of their cells (exact, so neither end is reached)."""
    # The integer is below 2^52, so that adding 1/2 and multiplying by 2^-52 are exact.
    return (<double>(stream_next(s) >> 12) + 0.5) * 2.220446049250313e-16


cdef struct Streams:
    # The first words of the streams of consecutive users: no lane of a batch is idle, even if streams are short.
    uint32_t state[16]
    const uint64_t* users
    Py_ssize_t blocks_per_user
    Py_ssize_t n_blocks      # of all users
    Py_ssize_t drawn         # of these
    Py_ssize_t n_unread      # drawn and not yet read, at the end of the buffer's used part
    Py_ssize_t end           # blocks in the buffer
    uint64_t* buffer         # 8 words a block, one user and the largest batch


cdef inline bint streams_allocate(Streams* s, Py_ssize_t n_words) noexcept nogil:
    """Allocate buffers for users of `n_words` words; False if there is no memory."""
    # Words are rounded up to whole blocks of 8.
    s.blocks_per_user = (n_words + 7) // 8
    s.buffer = <uint64_t*>malloc_lines(64 * (s.blocks_per_user + LARGEST_BATCH))
    return s.buffer != NULL


cdef inline void streams_open(
    Streams* s, const uint32_t* subkey, uint32_t round_number, const uint64_t* users, Py_ssize_t n_users
) noexcept nogil:
    cdef Stream stream
    stream_open(&stream, subkey, round_number, 0)
    s.state = stream.state
    s.users = users
    s.n_blocks = n_users * s.blocks_per_user
    s.drawn = s.n_unread = s.end = 0


cdef inline const uint64_t* streams_next(Streams* s) noexcept nogil:
    """Return the words of the next user, valid until the next call."""
    cdef Py_ssize_t n_new
    # Unread words move to the front; the capacity after them is one user and a batch.
    if s.n_unread < s.blocks_per_user:
        memmove(s.buffer, s.buffer + 8 * (s.end - s.n_unread), 64 * s.n_unread)
        n_new = s.blocks_per_user - s.n_unread
        # Batches are whole, but end with the last block of the last user.
        n_new = min((n_new + LARGEST_BATCH - 1) // LARGEST_BATCH * LARGEST_BATCH, s.n_blocks - s.drawn)
        chacha20_blocks(s.state, s.users, s.drawn, n_new, s.blocks_per_user, <uint32_t*>(s.buffer + 8 * s.n_unread))
        s.drawn += n_new
        s.n_unread += n_new
        s.end = s.n_unread
    s.n_unread -= s.blocks_per_user
    # These are the blocks_per_user blocks of the user, before the unread ones.
    return s.buffer + 8 * (s.end - s.n_unread - s.blocks_per_user)
