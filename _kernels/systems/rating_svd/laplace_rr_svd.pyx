"""Each user's report of its ratings in Laplace-RR-SVD (docs/explanation/systems/rating_svd/laplace-rr-svd.md).

A user's words come from the stream (subkey, round, global user id), in the order of the user's items, so they depend on
no other user.  A report is drawn from the exact table of a finite channel.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.float cimport DBL_MIN
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from _kernels.core._chacha20 cimport Stream, stream_next, stream_open
from _kernels.core._subset cimport bitmap_words, lowest_bit, mark_subset
from _kernels.mechanisms.channels._thresholds cimport table_output

include "_kernels/core/_level.pxi"


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
    """Draw one report, and so one word, for each rating."""
    cdef Py_ssize_t n_users = users.shape[0], u
    # A user has a separate stream and range of `out`.
    for u in prange(n_users, nogil=True, schedule="dynamic", chunksize=64, num_threads=n_threads):
        _report_row(codes, indptr[u], indptr[u + 1], thresholds, last, out, &subkey[0], round_number, users[u])


cdef void _report_row(
    const uint8_t[::1] codes, int64_t start, int64_t stop, const uint64_t[:, ::1] thresholds, const int64_t[::1] last,
    uint16_t[::1] out, const uint32_t* subkey, uint32_t round_number, uint64_t user,
) noexcept nogil:
    cdef Stream stream
    cdef int64_t i, code
    stream_open(&stream, subkey, round_number, user)
    for i in range(start, stop):
        code = codes[i]  # below n_inputs
        out[i] = <uint16_t>table_output(&thresholds[code, 0], thresholds.shape[1], last[code], stream_next(&stream))


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
    """Draw the same number of reports for every user, on items drawn uniformly without replacement, for any data."""
    cdef Py_ssize_t n_users = users.shape[0], u
    cdef uint64_t* marked
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(bitmap_words(n_items) + 1, sizeof(uint64_t))
        # A user has a separate stream and rows of `items` and `out`; `marked` belongs to the thread, and is 0 between
        # users.
        for u in prange(n_users, schedule="dynamic", chunksize=16):
            if marked == NULL:
                failed[threadid()] = 1
            else:
                _report_items(
                    marked, n_items, indices, codes, indptr[u], indptr[u + 1], thresholds, last, items[u], out[u],
                    &subkey[0], round_number, users[u],
                )
        free(marked)


cdef void _report_items(
    uint64_t* marked, Py_ssize_t n_items, const int32_t[::1] indices, const uint8_t[::1] codes, int64_t at,
    int64_t stop, const uint64_t[:, ::1] thresholds, const int64_t[::1] last, int64_t[::1] items, uint16_t[::1] out,
    const uint32_t* subkey, uint32_t round_number, uint64_t user,
) noexcept nogil:
    """Walk along the drawn items and the items of the user at the same time; clear the marks."""
    cdef Stream stream
    cdef Py_ssize_t word, n = 0
    cdef int64_t item, code
    stream_open(&stream, subkey, round_number, user)
    mark_subset(&stream, n_items, items.shape[0], marked)
    # Marked items ascend, and so do the items of the user: one walk visits both.
    for word in range(bitmap_words(n_items)):
        while marked[word]:
            item = 64 * word + lowest_bit(marked[word])
            marked[word] &= marked[word] - 1
            while at < stop and indices[at] < item:
                at += 1
            code = codes[at] if at < stop and indices[at] == item else 0
            items[n] = item
            out[n] = <uint16_t>table_output(
                &thresholds[code, 0], thresholds.shape[1], last[code], stream_next(&stream)
            )
            n += 1


def sum_by_row(
    const int64_t[::1] starts,      # IN  (n_rows + 1,)
    const int32_t[::1] columns,     # IN  (n_ratings,), row after row
    const double[::1] column_values,  # IN  (n_columns,)
    double[::1] out,                # OUT (n_rows,)
    int n_threads,
):
    """Sum the values of each row's columns: the items of a user, or the users of an item."""
    cdef Py_ssize_t row
    if columns.shape[0] == 0:
        out[:] = 0
        return
    # Each row has a separate sum, over its columns in order.
    for row in prange(out.shape[0], nogil=True, schedule="guided", num_threads=n_threads):
        out[row] = _sum_of(&columns[0], starts[row], starts[row + 1], &column_values[0])


cdef inline double _sum_of(
    const int32_t* columns, Py_ssize_t begin, Py_ssize_t end, const double* column_values
) noexcept nogil:
    cdef double total = 0
    cdef Py_ssize_t k
    for k in range(begin, end):
        total += column_values[columns[k]]
    return total


def maximize_shares(
    const double[:, ::1] table,   # IN  (n_inputs, n_outputs), probability of each output on each input
    const double[::1] counts,     # IN  (n_outputs,), of the reports
    double[::1] shares,           # IN/OUT (n_inputs,), a start above 0
    double[::1] ratios,           # scratch (n_outputs,)
    double pseudo_reports,        # of each input
    double tolerance,
    Py_ssize_t n_steps,
):
    """Run expectation and maximisation until no share changes by more than `tolerance`, or for `n_steps`.

    The likelihood times the prior of `pseudo_reports` is concave in the logarithm.  Thousands of steps on a table of
    five inputs take a millisecond here, and in NumPy they took up to a twelfth of a fit.
    """
    cdef Py_ssize_t n_inputs = table.shape[0], n_outputs = table.shape[1], _step, x, z
    cdef double total = n_inputs * pseudo_reports, predicted, share, change
    with nogil:
        for z in range(n_outputs):
            total += counts[z]
        for _step in range(n_steps):
            # Expectation: the probability of output z under these shares.
            for z in range(n_outputs):
                predicted = 0
                for x in range(n_inputs):
                    predicted += shares[x] * table[x, z]
                ratios[z] = counts[z] / max(predicted, DBL_MIN)  # no division by 0
            change = 0
            # Maximisation: the part of the reports that input x explains, with the pseudo-reports of the prior.
            for x in range(n_inputs):
                share = 0
                for z in range(n_outputs):
                    share += table[x, z] * ratios[z]
                share = (shares[x] * share + pseudo_reports) / total
                change = max(change, fabs(share - shares[x]))
                shares[x] = share
            if change <= tolerance:
                break
