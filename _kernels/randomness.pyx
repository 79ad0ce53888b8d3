"""Keystreams of ChaCha20 as arrays (RFC 8439; docs/explanation/randomness.md).  Inputs are trusted."""
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.algorithm cimport sort
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from _kernels._chacha20 cimport LARGEST_BATCH, Stream, chacha20_batch, chacha20_blocks, stream_open, stream_refill

include "_level.pxi"

ctypedef pair[uint64_t, int64_t] Placed   # a word and its place


def keystream_blocks(
    const uint32_t[::1] initial_state,   # IN  (16,), RFC 8439 section 2.3, counter in word 12
    uint32_t[:, ::1] out,                # OUT (n_blocks, 16)
):
    """Write consecutive keystream blocks from an explicit ChaCha20 state: the form of RFC 8439's test vectors."""
    cdef uint32_t state[16]
    cdef uint32_t blocks[512]
    cdef Py_ssize_t n_blocks = out.shape[0], block = 0, drawn
    memcpy(state, &initial_state[0], sizeof(state))
    while block < n_blocks:
        drawn = chacha20_batch(state, blocks)
        memcpy(&out[block, 0], blocks, min(drawn, n_blocks - block) * 64)
        state[12] += <uint32_t>drawn
        block += drawn


def stream_words(
    const uint32_t[::1] subkey,    # IN  (8,)
    const uint64_t[::1] users,     # IN  (n_streams,), global user ids
    uint64_t[:, ::1] out,          # OUT (n_streams, n_words)
    uint32_t round_number,
    int n_threads,
):
    """Write the first words of the stream (subkey, round, user), one row a user."""
    cdef Py_ssize_t n_streams = users.shape[0], n_words = out.shape[1], i
    cdef Py_ssize_t together = LARGEST_BATCH // ((n_words + 7) // 8)   # streams in one batch
    if together == 0:
        for i in prange(n_streams, nogil=True, schedule="static", num_threads=n_threads):
            _long_stream(&subkey[0], round_number, users[i], &out[i, 0], n_words)
        return
    for i in prange((n_streams + together - 1) // together, nogil=True, schedule="static", num_threads=n_threads):
        _short_streams(
            &subkey[0], round_number, &users[i * together], min(together, n_streams - i * together),
            &out[i * together, 0], n_words,
        )


def ragged_words(
    const uint32_t[::1] subkey,    # IN  (8,)
    const uint64_t[::1] users,     # IN  (n_streams,), global user ids
    const int64_t[::1] starts,     # IN  (n_streams + 1,), where the words of each stream begin
    uint64_t[::1] out,             # OUT (starts[-1],)
    uint32_t round_number,
    int n_threads,
):
    """Write the first words of the stream (subkey, round, user), as many as each user needs."""
    cdef Py_ssize_t n_streams = users.shape[0], i
    for i in prange(n_streams, nogil=True, schedule="dynamic", num_threads=n_threads):
        if starts[i] < starts[i + 1]:
            _long_stream(&subkey[0], round_number, users[i], &out[starts[i]], starts[i + 1] - starts[i])


cdef void _long_stream(
    const uint32_t* subkey, uint32_t round_number, uint64_t user, uint64_t* out, Py_ssize_t n_words
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i = 0
    stream_open(&stream, subkey, round_number, user)
    while i < n_words:
        stream_refill(&stream)
        memcpy(out + i, stream.buffer, 8 * min(<Py_ssize_t>stream.end, n_words - i))
        i += stream.end


cdef void _short_streams(
    const uint32_t* subkey, uint32_t round_number, const uint64_t* users, Py_ssize_t n_users, uint64_t* out,
    Py_ssize_t n_words,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t blocks_per_user = (n_words + 7) // 8, u
    stream_open(&stream, subkey, round_number, 0)
    chacha20_blocks(
        stream.state, users, 0, n_users * blocks_per_user, blocks_per_user, <uint32_t*>stream.buffer
    )
    for u in range(n_users):
        memcpy(out + u * n_words, stream.buffer + 8 * blocks_per_user * u, 8 * n_words)


def sort_places(
    const uint64_t[::1] words,   # IN  (n,), uniform: others take n log n
    int64_t[::1] out,            # OUT (n,)
):
    """Write the places of the words in their order, those of equal words in their own."""
    cdef Py_ssize_t n = words.shape[0], k
    cdef int n_bits = 0            # by the first bits of a word it comes among some four to eight others
    while n >> (n_bits + 3):
        n_bits += 1
    cdef vector[int64_t] ends = vector[int64_t]((<size_t>1 << n_bits) + 1)
    cdef vector[Placed] placed = vector[Placed](n)
    with nogil:
        for k in range(n):
            ends[(words[k] >> 1 >> (63 - n_bits)) + 1] += 1
        for k in range(<Py_ssize_t>1 << n_bits):
            ends[k + 1] += ends[k]
        for k in range(n):  # each start moves on to its end
            _place(&placed[ends[words[k] >> 1 >> (63 - n_bits)]], words[k], k)
            ends[words[k] >> 1 >> (63 - n_bits)] += 1
        for k in range(<Py_ssize_t>1 << n_bits):
            sort(placed.begin() + (ends[k - 1] if k else 0), placed.begin() + ends[k])
        for k in range(n):
            out[k] = placed[k].second


cdef inline void _place(Placed* to, uint64_t word, int64_t place) noexcept nogil:
    to.first, to.second = word, place
