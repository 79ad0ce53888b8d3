"""Keystreams of ChaCha20 as arrays (RFC 8439; docs/explanation/core/randomness.md).  Inputs are trusted."""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.algorithm cimport sort
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from _kernels.core._chacha20 cimport LARGEST_BATCH, Stream, chacha20_batch, chacha20_blocks, stream_open, stream_refill

include "_kernels/core/_level.pxi"

cdef struct Parts:        # of words to be sorted
    int n_bits            # first bits of a word, which name its part
    int position_bits        # last bits of a sort key: its position; the bits before are the word's next

cdef enum:
    PART = 8192           # words of a long stream that one thread writes at once: whole blocks
    BITS_PER_PART = 12    # of buckets that words are dealt to at once: they and a copy stay in a cache
    MAX_PART_BITS = 11    # more streams at once are slow to write
    MAX_INSERTION = 16    # words: the largest bucket for insertion sort
    PAGE = 512            # words of the smallest page of a system


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
        memcpy(&out[block, 0], blocks, min(drawn, n_blocks - block) * 64)  # drawn is at most 32 blocks: 512 words
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
    cdef Py_ssize_t batch_size = LARGEST_BATCH // ((n_words + 7) // 8)   # streams in one batch
    cdef Py_ssize_t n_parts = (n_words + PART - 1) // PART, first
    if batch_size == 0:
        # A part begins with a block (PART is a multiple of 8), so any thread can write it; parts do not overlap.
        for i in prange(n_streams * n_parts, nogil=True, schedule="static", num_threads=n_threads):
            first = i % n_parts * PART
            _long_stream(
                &subkey[0], round_number, users[i // n_parts], first, &out[i // n_parts, first],
                min(PART, n_words - first),
            )
        return
    # A batch has at most LARGEST_BATCH blocks, and belongs to one thread: its rows of `out` are separate.
    for i in prange((n_streams + batch_size - 1) // batch_size, nogil=True, schedule="static", num_threads=n_threads):
        _short_streams(
            &subkey[0], round_number, &users[i * batch_size], min(batch_size, n_streams - i * batch_size),
            &out[i * batch_size, 0], n_words,
        )


def ragged_words(
    const uint32_t[::1] subkey,    # IN  (8,)
    const uint64_t[::1] users,     # IN  (n_streams,), global user ids
    const int64_t[::1] starts,     # IN  (n_streams + 1,), where the words of each stream begin
    uint64_t[::1] out,             # OUT (starts[-1],)
    uint32_t round_number,
    int n_threads,
):
    """Write the first words of the stream (subkey, round, user), the number that each user needs."""
    cdef Py_ssize_t n_streams = users.shape[0], i
    # Each stream has its own range of `out`.
    for i in prange(n_streams, nogil=True, schedule="dynamic", num_threads=n_threads):
        if starts[i] < starts[i + 1]:
            _long_stream(&subkey[0], round_number, users[i], 0, &out[starts[i]], starts[i + 1] - starts[i])


cdef void _long_stream(
    const uint32_t* subkey, uint32_t round_number, uint64_t user, Py_ssize_t first, uint64_t* out, Py_ssize_t n_words
) noexcept nogil:
    """Write words from number `first` on, which a block begins with."""
    cdef Stream stream
    cdef Py_ssize_t i = 0
    stream_open(&stream, subkey, round_number, user)
    stream.state[12] = <uint32_t>(first // 8)  # counter of the block that word `first` begins
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
        # At most LARGEST_BATCH blocks in all, which the stream's buffer holds.
        memcpy(out + u * n_words, stream.buffer + 8 * blocks_per_user * u, 8 * n_words)


def argsort(
    const uint64_t[::1] words,   # IN  (n,), uniform (other words take n log n), n < 2**32
    int64_t[::1] out,            # OUT (n,)
    int n_threads,
):
    """Write the positions of the words in ascending order; equal words keep their order.

    Words are distributed to parts by their first bits, and sorted in a part by all next bits that leave space for a
    position.
    """
    cdef Py_ssize_t n = words.shape[0], k, start = 0, max_size = 0, n_buckets
    if n == 0:
        return
    cdef uint64_t* packed = <uint64_t*>&out[0]
    cdef vector[uint64_t] scratch
    cdef vector[int64_t] ends
    cdef vector[uint32_t] buckets
    cdef Parts parts
    cdef int t
    parts.n_bits = min(max(_bucket_bits(n) - BITS_PER_PART, 0), MAX_PART_BITS)
    parts.position_bits = 0
    # A position has this number of last bits: position < n.
    while n - 1 >> parts.position_bits:
        parts.position_bits += 1
    cdef Py_ssize_t n_parts = <Py_ssize_t>1 << parts.n_bits
    ends.resize(n_threads * n_parts)       # end of the words of each thread in each part
    with nogil:
        # Each thread counts a separate range of words in a separate row of `ends`.
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            _count_parts(&words[0], n * t // n_threads, n * (t + 1) // n_threads, parts, &ends[t * n_parts])
            _touch_pages(packed, n * t // n_threads, n * (t + 1) // n_threads)
        for k in range(n_parts):
            max_size = max(max_size, _take_starts(&ends[k], n_parts, n_threads, &start))
        # The words of a thread in a part have separate positions: its row of `ends` has the first ones.
        for t in prange(n_threads, schedule="static", num_threads=n_threads):  # each start moves on to its end
            _scatter(&words[0], n * t // n_threads, n * (t + 1) // n_threads, parts, &ends[t * n_parts], packed)
        n_buckets = <Py_ssize_t>1 << _bucket_bits(max_size)
        scratch.resize(n_threads * max_size)
        buckets.resize(n_threads * n_buckets)
        # Each part belongs to one thread, with its range of `packed` and the scratch of the thread.
        for k in prange(n_parts, schedule="dynamic", num_threads=n_threads):
            start = ends[(n_threads - 1) * n_parts + k - 1] if k else 0
            _sort_part(
                packed + start, ends[(n_threads - 1) * n_parts + k] - start, &words[0], parts,
                &scratch[threadid() * max_size], &buckets[threadid() * n_buckets],
            )


cdef inline int _bucket_bits(Py_ssize_t n) noexcept nogil:
    """Return the number of first bits, at least 1, that puts most words in a bucket of their own."""
    cdef int n_bits = 1
    while n >> n_bits:
        n_bits += 1
    return n_bits


cdef inline Py_ssize_t _first_bits(uint64_t word, int n_bits) noexcept nogil:
    return word >> 1 >> (63 - n_bits)  # by 1 and 63 - n_bits, since a shift by 64 is not defined


cdef void _count_parts(
    const uint64_t* words, Py_ssize_t begin, Py_ssize_t end, Parts parts, int64_t* counts
) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        counts[_first_bits(words[k], parts.n_bits)] += 1


cdef void _touch_pages(uint64_t* memory, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Touch pages of new memory: the system provides them one at a time, and threads that scatter would wait for it."""
    cdef Py_ssize_t k
    for k in range((end - begin + PAGE - 1) // PAGE):
        memory[begin + k * PAGE] = 0


cdef Py_ssize_t _take_starts(int64_t* counts, Py_ssize_t stride, int n_threads, Py_ssize_t* start) noexcept nogil:
    """Compute where each thread's words of one part begin, from their counts; return the number of words of all."""
    cdef Py_ssize_t first = start[0], count
    cdef int t
    for t in range(n_threads):
        count = counts[t * stride]
        counts[t * stride] = start[0]
        start[0] += count
    return start[0] - first


cdef void _scatter(
    const uint64_t* words, Py_ssize_t begin, Py_ssize_t end, Parts parts, int64_t* starts, uint64_t* packed
) noexcept nogil:
    cdef Py_ssize_t k
    cdef int64_t* to
    for k in range(begin, end):
        to = &starts[_first_bits(words[k], parts.n_bits)]
        # The bits of the part are removed, and the last bits are replaced by the position.
        packed[to[0]] = (words[k] << parts.n_bits) >> parts.position_bits << parts.position_bits | <uint64_t>k
        to[0] += 1


cdef void _sort_part(
    uint64_t* packed, Py_ssize_t n, const uint64_t* words, Parts parts, uint64_t* scratch, uint32_t* starts
) noexcept nogil:
    """Sort one part, and replace its packed words by their positions."""
    cdef int n_bits = _bucket_bits(n), any_tied = 0
    cdef uint32_t count, max_size = 0, start = 0
    cdef uint32_t* to
    cdef Py_ssize_t k
    if n == 0:
        return
    memset(starts, 0, (<Py_ssize_t>1 << n_bits) * sizeof(uint32_t))
    for k in range(n):
        starts[packed[k] >> (64 - n_bits)] += 1  # n_bits >= 1, so the shift is below 64
    for k in range(<Py_ssize_t>1 << n_bits):
        count = starts[k]
        starts[k] = start
        start += count
        max_size = max(max_size, count)
    for k in range(n):  # each start moves on to its end
        to = &starts[packed[k] >> (64 - n_bits)]
        scratch[to[0]] = packed[k]
        to[0] += 1
    if max_size > MAX_INSERTION:      # this does not happen for uniform words
        sort(scratch, scratch + n)
    _insert(scratch, n)
    # Neighbours may differ in the position only: their words are not yet compared.
    for k in range(1, n):
        any_tied |= (scratch[k - 1] ^ scratch[k]) >> parts.position_bits == 0
    if any_tied:
        _sort_tied(scratch, n, words, parts)
    for k in range(n):
        packed[k] = scratch[k] & ((<uint64_t>1 << parts.position_bits) - 1)  # the position alone


cdef inline void _insert(uint64_t* packed, Py_ssize_t n) noexcept nogil:
    """Sort by insertion: within a bucket, because buckets are in order."""
    cdef Py_ssize_t k, to
    cdef uint64_t key, larger = packed[0]
    for k in range(1, n):  # a branch would be mispredicted for half of the neighbours
        key = packed[k]
        packed[k - 1] = key if key < larger else larger
        larger = larger if key < larger else key
    packed[n - 1] = larger
    for k in range(1, n):
        if packed[k - 1] > packed[k]:
            key, to = packed[k], k
            while to > 0 and packed[to - 1] > key:
                packed[to] = packed[to - 1]
                to -= 1
            packed[to] = key


cdef void _sort_tied(uint64_t* packed, Py_ssize_t n, const uint64_t* words, Parts parts) noexcept nogil:
    """Sort by whole words where all bits before a position are equal."""
    cdef uint64_t mask = (<uint64_t>1 << parts.position_bits) - 1
    cdef vector[pair[uint64_t, uint64_t]] tied
    cdef Py_ssize_t begin = 0, end, k
    while begin < n:
        end = begin + 1
        while end < n and (packed[begin] ^ packed[end]) >> parts.position_bits == 0:
            end += 1
        if end > begin + 1:
            tied.resize(end - begin)
            for k in range(begin, end):
                tied[k - begin].first, tied[k - begin].second = words[packed[k] & mask], packed[k]
            sort(tied.begin(), tied.end())
            for k in range(begin, end):
                packed[k] = tied[k - begin].second
        begin = end
