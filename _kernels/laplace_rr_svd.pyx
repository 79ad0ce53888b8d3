"""What each user of Laplace-RR-SVD sends about its ratings (docs/explanation/systems/laplace-rr-svd.md).

A user's words come from the stream (subkey, round, global user id), in the order of the user's items, so they depend on
nobody else.  A report is drawn from the exact table of a finite channel.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from _kernels._chacha20 cimport Stream, stream_next, stream_open
from _kernels._subset cimport bitmap_words, lowest_bit, mark_subset
from _kernels._table cimport table_output

include "_level.pxi"


def report_ratings(
    const int64_t[::1] indptr,          # IN  (n_users + 1,)
    const uint8_t[::1] codes,           # IN  (n_ratings,), rows of the table
    const uint64_t[::1] users,          # IN  (n_users,), global user ids
    const uint64_t[:, ::1] thresholds,  # IN  (n_inputs, 2^L - 1), each row ascending
    const int64_t[::1] last,            # IN  (n_inputs,)
    uint16_t[::1] out,                  # OUT (n_ratings,)
    const uint32_t[::1] subkey,         # IN  (8,)
    uint32_t round_number,
    int n_threads,
):
    """One report, so one word, a rating."""
    cdef Py_ssize_t n_users = users.shape[0], width = thresholds.shape[1], u, i
    cdef Stream* stream
    with nogil, parallel(num_threads=n_threads):
        stream = <Stream*>malloc(sizeof(Stream))
        for u in prange(n_users, schedule="dynamic", chunksize=64):
            stream_open(stream, &subkey[0], round_number, users[u])
            for i in range(indptr[u], indptr[u + 1]):
                out[i] = <uint16_t>table_output(
                    &thresholds[codes[i], 0], width, last[codes[i]], stream_next(stream)
                )
        free(stream)


def report_items(
    const int64_t[::1] indptr,          # IN  (n_users + 1,)
    const int32_t[::1] indices,         # IN  (n_ratings,), ascending within a row
    const uint8_t[::1] codes,           # IN  (n_ratings,), rows of the table, from 1: row 0 is "not rated"
    const uint64_t[::1] users,          # IN  (n_users,), global user ids
    const uint64_t[:, ::1] thresholds,  # IN  (n_inputs, 2^L - 1), each row ascending
    const int64_t[::1] last,            # IN  (n_inputs,)
    int64_t[:, ::1] items,              # OUT (n_users, n_reports), ascending within a row
    uint16_t[:, ::1] out,               # OUT (n_users, n_reports)
    int64_t[::1] failed,                # OUT (n_threads,), 1 where a thread had no memory
    const uint32_t[::1] subkey,         # IN  (8,)
    uint32_t round_number,
    Py_ssize_t n_items,
    int n_threads,
):
    """As many reports for every user, on items drawn uniformly without replacement and without regard to its data."""
    cdef Py_ssize_t n_users = users.shape[0], n_reports = items.shape[1], width = thresholds.shape[1], u
    cdef uint64_t* marked
    cdef Stream* stream
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(bitmap_words(n_items) + 1, sizeof(uint64_t))
        stream = <Stream*>malloc(sizeof(Stream))
        for u in prange(n_users, schedule="dynamic", chunksize=16):
            if marked == NULL or stream == NULL:
                failed[threadid()] = 1
            else:
                stream_open(stream, &subkey[0], round_number, users[u])
                mark_subset(stream, n_items, n_reports, marked)
                _report_marked(
                    stream, marked, n_items, &indices[0], &codes[0], indptr[u], indptr[u + 1], &thresholds[0, 0],
                    width, &last[0], &items[u, 0], &out[u, 0],
                )
        free(marked)
        free(stream)


cdef void _report_marked(
    Stream* stream, uint64_t* marked, Py_ssize_t n_items, const int32_t* indices, const uint8_t* codes, int64_t start,
    int64_t stop, const uint64_t* thresholds, Py_ssize_t width, const int64_t* last, int64_t* items, uint16_t* out,
) noexcept nogil:
    """Walk the marked items and the user's own side by side, and clear the marks."""
    cdef Py_ssize_t word, n = 0
    cdef int64_t item, code, at = start
    for word in range(bitmap_words(n_items)):
        while marked[word]:
            item = 64 * word + lowest_bit(marked[word])
            marked[word] &= marked[word] - 1
            while at < stop and indices[at] < item:
                at += 1
            code = codes[at] if at < stop and indices[at] == item else 0
            items[n] = item
            out[n] = <uint16_t>table_output(thresholds + code * width, width, last[code], stream_next(stream))
            n += 1


def write_words(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    uint64_t[:, ::1] words,        # OUT (n_ratings, n_words)
    const uint32_t[::1] subkey,    # IN  (8,)
    uint32_t round_number,
    int n_threads,
):
    """Some words for each rating, for a mechanism that is no finite channel."""
    cdef Py_ssize_t n_users = users.shape[0], n_words = words.shape[1], u, i, j
    cdef Stream* stream
    with nogil, parallel(num_threads=n_threads):
        stream = <Stream*>malloc(sizeof(Stream))
        for u in prange(n_users, schedule="dynamic", chunksize=64):
            stream_open(stream, &subkey[0], round_number, users[u])
            for i in range(indptr[u], indptr[u + 1]):
                for j in range(n_words):
                    words[i, j] = stream_next(stream)
        free(stream)
