"""Binary response on arrays and on interaction bits; see `_response_threshold.h`.  Inputs are trusted."""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from _kernels.core._chacha20 cimport (
    Stream, Streams, mulhi64, stream_open, stream_refill, streams_allocate, streams_next, streams_open,
)

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/mechanisms/channels/_binary_response.h" namespace "fastfedrec" nogil:
    void response_thresholds(const double* values, Py_ssize_t n, int64_t span, uint64_t* out) noexcept
    void respond(const double* values, const uint64_t* words, Py_ssize_t n, int64_t span, int8_t* out) noexcept
    void respond(const float* values, const uint64_t* words, Py_ssize_t n, int64_t span, int8_t* out) noexcept
    void respond_alike(uint64_t threshold, const uint64_t* words, Py_ssize_t n, int8_t* out) noexcept

ctypedef fused Real:
    float
    double

cdef enum:
    BLOCK = 65536             # values a stream; part of the stream's definition
    CHUNK = 64                # users that a thread takes at a time


cdef inline uint64_t membership_threshold(bint has_item, int64_t span) noexcept nogil:
    """Return the threshold of t = +1 or -1."""
    return (<uint64_t>1 << 63) + <uint64_t>(span if has_item else -span)


def thresholds(
    const double[::1] values,   # IN  (n,)
    uint64_t[::1] out,          # OUT (n,)
    int64_t span,
):
    """Write the integer threshold of each value, which the proof uses, for tests."""
    if values.shape[0]:
        response_thresholds(&values[0], values.shape[0], span, &out[0])


def respond_values(
    const Real[::1] values,        # IN  (n,)
    int8_t[::1] out,               # OUT (n,), +1 or -1
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t span,
    uint32_t round_number,
    int n_threads,
):
    """Draw one answer a value; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    # A block has separate values, words and answers.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_blocks)):
        _respond_block(&values[0], &out[0], b * BLOCK, min(n, (b + 1) * BLOCK), &subkey[0], span, round_number, b)


cdef void _respond_block(
    const Real* values, int8_t* out, Py_ssize_t start, Py_ssize_t stop, const uint32_t* subkey, int64_t span,
    uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i = start
    stream_open(&stream, subkey, round_number, block)
    while i < stop:
        stream_refill(&stream)
        respond(values + i, stream.buffer, min(<Py_ssize_t>stream.end, stop - i), span, out + i)
        i += stream.end


def respond_memberships(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    int8_t[:, ::1] out,            # OUT (n_users, n_items), +1 or -1
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t span,
    int n_threads,
):
    """Draw the answer of every user for every item: t = +1 if the user has the item, else -1."""
    cdef Py_ssize_t n_users = out.shape[0], n_items = out.shape[1], u
    cdef const int32_t* items = NULL
    if indices.shape[0]:
        items = &indices[0]
    if n_items == 0:
        return
    # A user has a separate stream and row of `out`.
    for u in prange(n_users, nogil=True, schedule="static", num_threads=n_threads):
        _respond_row(items + indptr[u], indptr[u + 1] - indptr[u], &out[u, 0], n_items, &subkey[0], span, users[u])


cdef void _respond_row(
    const int32_t* items, Py_ssize_t n, int8_t* out, Py_ssize_t n_items, const uint32_t* subkey, int64_t span,
    uint64_t user,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t start = 0, n_words, j = 0
    stream_open(&stream, subkey, 0, user)
    while start < n_items:
        stream_refill(&stream)
        n_words = min(<Py_ssize_t>stream.end, n_items - start)
        # Draw answers for a user without these items first; then draw answers for the few items again.
        respond_alike(membership_threshold(False, span), stream.buffer, n_words, out + start)
        # The items of the user ascend: j passes them once.
        while j < n and items[j] < start + n_words:
            out[items[j]] = 1 if stream.buffer[items[j] - start] < membership_threshold(True, span) else -1
            j += 1
        start += n_words


def sample_memberships(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    int64_t[:, ::1] sums,          # IN/OUT (n_threads, n_items), sum of the +-1 answers
    int64_t[:, ::1] counts,        # IN/OUT (n_threads, n_items), number of answers
    int64_t[::1] failed,           # OUT (n_threads,), zeros; 1 where a thread had no memory
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t span,
    Py_ssize_t n_reports,
    int n_threads,
):
    """Draw answers of each user for `n_reports` items, uniform with replacement; answers are added up by item."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_items = sums.shape[1], n_chunks = (n_users + CHUNK - 1) // CHUNK
    cdef Py_ssize_t chunk
    cdef int thread
    cdef uint8_t* marks
    cdef const int32_t* items = NULL
    if indices.shape[0]:
        items = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        marks = <uint8_t*>calloc(n_items, 1)
        for chunk in prange(n_chunks, schedule="static"):
            # Each thread adds to separate rows of `sums` and `counts`; integers may be added in any order.
            if marks == NULL or not _sample_chunk(
                &indptr[0], items, &users[0], chunk * CHUNK, min(n_users, (chunk + 1) * CHUNK), n_items,
                &sums[thread, 0], &counts[thread, 0], marks, &subkey[0], span, n_reports,
            ):
                failed[thread] = 1
        free(marks)


cdef bint _sample_chunk(
    const int64_t* indptr, const int32_t* items, const uint64_t* users, Py_ssize_t start, Py_ssize_t stop,
    Py_ssize_t n_items, int64_t* sums, int64_t* counts, uint8_t* marks, const uint32_t* subkey, int64_t span,
    Py_ssize_t n_reports,
) noexcept nogil:
    """Add the answers of one user; return False without memory; `marks` (n_items,) are 0 before and after."""
    cdef Streams streams
    cdef const uint64_t* words
    cdef Py_ssize_t u, j, r, item
    cdef uint64_t[2] threshold
    if not streams_allocate(&streams, 2 * n_reports):
        return False
    threshold[0], threshold[1] = membership_threshold(False, span), membership_threshold(True, span)
    streams_open(&streams, subkey, 0, users + start, stop - start)
    for u in range(start, stop):
        words = streams_next(&streams)
        for j in range(indptr[u], indptr[u + 1]):
            marks[items[j]] = 1
        for r in range(n_reports):
            # The item is uniform in [0, n_items), up to n_items / 2^64; no index is after the sums.
            item = <Py_ssize_t>mulhi64(words[2 * r], n_items)
            counts[item] += 1
            # The answer is +1 or -1, with the threshold of t = 1 if the user has the item, else of t = -1.
            sums[item] += 2 * <int64_t>(words[2 * r + 1] < threshold[marks[item]]) - 1
        for j in range(indptr[u], indptr[u + 1]):
            marks[items[j]] = 0
    free(streams.buffer)
    return True
