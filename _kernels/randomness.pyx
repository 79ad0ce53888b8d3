"""Keystreams of ChaCha20 as arrays (RFC 8439; docs/explanation/randomness.md).  Inputs are trusted."""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.algorithm cimport sort
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from _kernels._chacha20 cimport LARGEST_BATCH, Stream, chacha20_batch, chacha20_blocks, stream_open, stream_refill

include "_level.pxi"

ctypedef pair[uint64_t, int64_t] Placed   # a word and its place

cdef enum:
    PART = 8192           # words of a long stream that one thread writes at once: whole blocks
    BITS_PER_PART = 10    # of buckets that words are sorted by at once: they and a copy stay in a cache
    MOST_PART_BITS = 11   # more streams at once are slow to write


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
    cdef Py_ssize_t n_parts = (n_words + PART - 1) // PART, first
    if together == 0:
        for i in prange(n_streams * n_parts, nogil=True, schedule="static", num_threads=n_threads):
            first = i % n_parts * PART
            _long_stream(
                &subkey[0], round_number, users[i // n_parts], first, &out[i // n_parts, first],
                min(PART, n_words - first),
            )
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
            _long_stream(&subkey[0], round_number, users[i], 0, &out[starts[i]], starts[i + 1] - starts[i])


cdef void _long_stream(
    const uint32_t* subkey, uint32_t round_number, uint64_t user, Py_ssize_t first, uint64_t* out, Py_ssize_t n_words
) noexcept nogil:
    """Words from number `first` on, which a block begins with."""
    cdef Stream stream
    cdef Py_ssize_t i = 0
    stream_open(&stream, subkey, round_number, user)
    stream.state[12] = <uint32_t>(first // 8)
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
    uint64_t[:, ::1] pairs,      # scratch (n, 2)
    int n_threads,
):
    """Write the places of the words in their order, those of equal words in their own."""
    cdef Py_ssize_t n = words.shape[0], k, start, most = 0
    cdef int n_bits = min(max(_bucket_bits(n) - BITS_PER_PART, 0), MOST_PART_BITS), t
    cdef Py_ssize_t n_parts = <Py_ssize_t>1 << n_bits    # by the first bits of a word
    cdef Placed* placed = <Placed*>&pairs[0, 0]
    cdef vector[Placed] scratch
    cdef vector[int64_t] ends = vector[int64_t](n_threads * n_parts)   # where each thread's words of each part end
    cdef vector[int64_t] buckets
    with nogil:
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            _count_parts(&words[0], n * t // n_threads, n * (t + 1) // n_threads, n_bits, &ends[t * n_parts])
        start = 0
        for k in range(n_parts):
            most = max(most, _take_starts(&ends[k], n_parts, n_threads, &start))
        for t in prange(n_threads, schedule="static", num_threads=n_threads):  # each start moves on to its end
            _deal(&words[0], n * t // n_threads, n * (t + 1) // n_threads, n_bits, &ends[t * n_parts], placed)
        scratch.resize(n_threads * most)
        buckets.resize(n_threads * ((<Py_ssize_t>1 << _bucket_bits(most)) + 1))
        for k in prange(n_parts, schedule="dynamic", num_threads=n_threads):
            _sort_part(
                placed, ends[(n_threads - 1) * n_parts + k - 1] if k else 0, ends[(n_threads - 1) * n_parts + k],
                n_bits, &scratch[threadid() * most],
                &buckets[threadid() * ((<Py_ssize_t>1 << _bucket_bits(most)) + 1)], &out[0],
            )


cdef inline int _bucket_bits(Py_ssize_t n) noexcept nogil:
    """By so many first bits a word comes among some four to eight others."""
    cdef int n_bits = 0
    while n >> (n_bits + 3):
        n_bits += 1
    return n_bits


cdef inline Py_ssize_t _first_bits(uint64_t word, int n_bits) noexcept nogil:
    return word >> 1 >> (63 - n_bits)


cdef void _count_parts(
    const uint64_t* words, Py_ssize_t begin, Py_ssize_t end, int n_bits, int64_t* counts
) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        counts[_first_bits(words[k], n_bits)] += 1


cdef Py_ssize_t _take_starts(int64_t* counts, Py_ssize_t stride, int n_threads, Py_ssize_t* start) noexcept nogil:
    """Where each thread's words of one part begin, for their counts; the words of all."""
    cdef Py_ssize_t first = start[0], count
    cdef int t
    for t in range(n_threads):
        count = counts[t * stride]
        counts[t * stride] = start[0]
        start[0] += count
    return start[0] - first


cdef void _deal(
    const uint64_t* words, Py_ssize_t begin, Py_ssize_t end, int n_bits, int64_t* starts, Placed* placed
) noexcept nogil:
    cdef Py_ssize_t k
    cdef int64_t* to
    for k in range(begin, end):
        to = &starts[_first_bits(words[k], n_bits)]
        placed[to[0]].first, placed[to[0]].second = words[k], k
        to[0] += 1


cdef void _sort_part(
    const Placed* placed, Py_ssize_t begin, Py_ssize_t end, int n_passed, Placed* scratch, int64_t* ends, int64_t* out
) noexcept nogil:
    """Write the places of one part, whose words agree in their first `n_passed` bits."""
    cdef Py_ssize_t n = end - begin, k
    cdef int n_bits = _bucket_bits(n)
    cdef int64_t* to
    memset(ends, 0, ((<Py_ssize_t>1 << n_bits) + 1) * sizeof(int64_t))
    for k in range(begin, end):
        ends[_first_bits(placed[k].first << n_passed, n_bits) + 1] += 1
    for k in range(<Py_ssize_t>1 << n_bits):
        ends[k + 1] += ends[k]
    for k in range(begin, end):  # each start moves on to its end
        to = &ends[_first_bits(placed[k].first << n_passed, n_bits)]
        scratch[to[0]] = placed[k]
        to[0] += 1
    for k in range(<Py_ssize_t>1 << n_bits):
        sort(scratch + (ends[k - 1] if k else 0), scratch + ends[k])
    for k in range(n):
        out[begin + k] = scratch[k].second
