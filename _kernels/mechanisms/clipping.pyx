"""Rows scaled into an l2 or l1 ball, exactly (docs/explanation/mechanisms/clipping.md).  Inputs are trusted.

A row with a norm that may exceed the bound, including rounding, is multiplied by bound / norm minus (n + 4) units in
the last place of a double.  The total error of the n additions of the norm, its root, the division and the product is
less than that.  The product is truncated toward zero to the type of the output, so the exact norm of the output never
exceeds the bound.  A row with an entry that is not finite becomes zeros and is marked.
"""
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t

from _kernels.mechanisms._clip_row cimport Real, clip_row

include "_kernels/core/_level.pxi"


def clip_rows(
    const Real[:, ::1] rows,   # IN  (n_rows, n)
    Real[:, ::1] out,          # OUT (n_rows, n), may be `rows`
    uint8_t[::1] rejected,     # OUT (n_rows,), whether a row was not finite
    double bound,
    int order,                 # 1 or 2
    int n_threads,
):
    """Clip every row to the norm `bound`."""
    cdef Py_ssize_t n_rows = rows.shape[0], n = rows.shape[1], r
    if n == 0:
        return
    n_threads = <int>min(<Py_ssize_t>n_threads, n_rows)
    # Rows are independent: each thread writes separate rows of `out` and `rejected`.
    for r in prange(n_rows, nogil=True, schedule="static", num_threads=n_threads):
        rejected[r] = not clip_row(&rows[r, 0], &out[r, 0], n, bound, order)


def clip_ragged(
    Real[::1] values,            # IN/OUT (starts[-1],)
    const int64_t[::1] starts,   # IN  (n_rows + 1,), where each row begins
    uint8_t[::1] rejected,       # OUT (n_rows,), whether a row was not finite
    double bound,
    int order,                   # 1 or 2
    int n_threads,
):
    """Clip rows of different lengths in place to the norm `bound`; an infinite one rejects without clipping."""
    cdef Py_ssize_t r
    cdef Real* row
    n_threads = <int>min(<Py_ssize_t>n_threads, rejected.shape[0])
    # Rows do not overlap, and each belongs to one thread.
    for r in prange(rejected.shape[0], nogil=True, schedule="static", num_threads=n_threads):
        rejected[r] = 0
        if starts[r] < starts[r + 1]:
            row = &values[starts[r]]
            rejected[r] = not clip_row(row, row, starts[r + 1] - starts[r], bound, order)
