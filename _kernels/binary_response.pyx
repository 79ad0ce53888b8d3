"""Binary response on arrays and on interaction bits; see `_binary_response.pxd`.  Inputs are trusted."""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t

from _kernels._binary_response cimport respond, response_threshold
from _kernels._chacha20 cimport Stream, stream_below, stream_next, stream_open, stream_refill

include "_level.pxi"

ctypedef fused Real:
    float
    double

cdef enum:
    BLOCK = 65536             # values a stream; part of the stream's definition


def thresholds(
    const double[::1] values,   # IN  (n,)
    uint64_t[::1] out,          # OUT (n,)
    int64_t span,
):
    """The integer threshold of each value: what the proof speaks of, for tests."""
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        out[i] = response_threshold(values[i], span)


def respond_values(
    const Real[::1] values,        # IN  (n,)
    int8_t[::1] out,               # OUT (n,), +1 or -1
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t span,
    uint32_t round_number,
    int n_threads,
):
    """One answer a value; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=n_threads):
        _respond_block(&values[0], &out[0], b * BLOCK, min(n, (b + 1) * BLOCK), &subkey[0], span, round_number, b)


cdef void _respond_block(
    const Real* values, int8_t* out, Py_ssize_t start, Py_ssize_t stop, const uint32_t* subkey, int64_t span,
    uint32_t round_number, uint64_t block,
) noexcept nogil:
    # Whole buffers of words: asking `stream_next` for each made a quarter of the time.
    cdef Stream stream
    cdef Py_ssize_t i = start, j
    cdef uint64_t word
    stream_open(&stream, subkey, round_number, block)
    while i < stop:
        stream_refill(&stream)
        for j in range(min(<Py_ssize_t>(stream.end // 2), stop - i)):
            word = <uint64_t>stream.buffer[2 * j] | (<uint64_t>stream.buffer[2 * j + 1] << 32)
            out[i + j] = 2 * <int8_t>respond(values[i + j], span, word) - 1
        i += stream.end // 2


def respond_memberships(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    int8_t[:, ::1] out,            # OUT (n_users, n_items), +1 or -1
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t span,
    int n_threads,
):
    """Every user's answer for every item: t = +1 where the user has the item, else -1."""
    cdef Py_ssize_t n_users = out.shape[0], n_items = out.shape[1], u
    cdef const int32_t* items = NULL
    if indices.shape[0]:
        items = &indices[0]
    if n_items == 0:
        return
    for u in prange(n_users, nogil=True, schedule="static", num_threads=n_threads):
        _respond_row(items + indptr[u], indptr[u + 1] - indptr[u], &out[u, 0], n_items, &subkey[0], span, users[u])


cdef void _respond_row(
    const int32_t* items, Py_ssize_t n, int8_t* out, Py_ssize_t n_items, const uint32_t* subkey, int64_t span,
    uint64_t user,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i, j = 0
    cdef double t
    stream_open(&stream, subkey, 0, user)
    for i in range(n_items):
        t = -1.0
        if j < n and items[j] == i:
            t = 1.0
            j += 1
        out[i] = 1 if respond(t, span, stream_next(&stream)) else -1


def sample_memberships(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    int64_t[:, ::1] sums,          # IN/OUT (n_threads, n_items), sum of the +-1 answers
    int64_t[:, ::1] counts,        # IN/OUT (n_threads, n_items), number of answers
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t span,
    Py_ssize_t n_reports,
    int n_threads,
):
    """Each user answers for `n_reports` items drawn uniformly with replacement; answers are added up by item."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u
    cdef int thread
    cdef const int32_t* items = NULL
    if indices.shape[0]:
        items = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        for u in prange(n_users, schedule="static"):
            _sample_row(
                items + indptr[u], indptr[u + 1] - indptr[u], sums.shape[1], &sums[thread, 0], &counts[thread, 0],
                &subkey[0], span, users[u], n_reports,
            )


cdef void _sample_row(
    const int32_t* items, Py_ssize_t n, Py_ssize_t n_items, int64_t* sums, int64_t* counts, const uint32_t* subkey,
    int64_t span, uint64_t user, Py_ssize_t n_reports,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t _, item, low, high, middle
    cdef double t
    stream_open(&stream, subkey, 0, user)
    for _ in range(n_reports):
        item = <Py_ssize_t>stream_below(&stream, n_items)
        low, high = 0, n
        while low < high:
            middle = (low + high) >> 1
            if items[middle] < item:
                low = middle + 1
            else:
                high = middle
        t = 1.0 if low < n and items[low] == item else -1.0
        counts[item] += 1
        sums[item] += 1 if respond(t, span, stream_next(&stream)) else -1
