"""Rows of a non-negative factorisation for fixed item factors: u = argmin_{u >= 0} sum w (x - u'v)^2 + reg |u|^2.

Coordinate descent (Hsieh and Dhillon, KDD 2011) uses the n_factors x n_factors Gram of each row.  If a known number of
sweeps is small compared with n_factors, it uses the residuals of the entries (Yu et al., ICDM 2012), with equal steps.
Multiplicative steps (Lee and Seung, NIPS 2000) are u_f <- u_f (sum w x v_f) / (sum w (u'v) v_f + reg u_f).
Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from _kernels.core._lines cimport malloc_lines

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_nmf.h" namespace "fastfedrec" nogil:
    cdef cppclass NmfProblem[T]:
        const int64_t* indptr
        const int32_t* indices
        const T* values
        const T* weights
        const T* item_factors
        const T* base
        int n_factors
        int stride
        int max_sweeps
        T tolerance
    const int NMF_PACKED
    const int NMF_SCRATCH
    void nmf_solve[T](const NmfProblem[T]& problem, Py_ssize_t row, T* gram, T* packed, T* out) noexcept
    void nmf_descend[T](
        const T* gram, T* right, int n, int stride, int max_sweeps, T tolerance, T* x
    ) noexcept
    void nmf_multiply[T](const NmfProblem[T]& problem, Py_ssize_t row, T regularization, T* u) noexcept

cdef enum:
    ROWS_AT_ONCE = 16


cdef inline void _set_entries(
    NmfProblem[floating]* problem,
    const int64_t[::1] indptr,
    const int32_t[::1] indices,
    const floating[::1] values,
    const floating[::1] weights,
    const floating[:, ::1] item_factors,
):
    problem.indptr = &indptr[0]
    problem.indices = &indices[0] if indices.shape[0] else NULL
    problem.values = &values[0]
    problem.weights = &weights[0] if weights.shape[0] else NULL
    problem.item_factors = &item_factors[0, 0]
    problem.stride = <int>item_factors.shape[1]


def solve_rows(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every item
    const floating[::1] values,           # IN  (n_values,)
    const floating[::1] weights,          # IN  (n_values,) or (0,) where all are 1
    const floating[:, ::1] item_factors,  # IN  (n_items, stride), padded with zeros
    const floating[:, ::1] base,          # IN  (stride, stride), reg I
    floating[:, ::1] out,                 # IN/OUT (n_rows, n_factors), where each row starts
    double tolerance,
    int max_sweeps,
    int n_threads,
):
    """Solve all rows, each with a separate Gram; rows without entries get zeros."""
    cdef Py_ssize_t n_rows = out.shape[0], stride = item_factors.shape[1], u
    cdef NmfProblem[floating] problem
    cdef floating* scratch
    cdef int failed = 0
    _set_entries(&problem, indptr, indices, values, weights, item_factors)
    problem.base = &base[0, 0]
    problem.n_factors = <int>out.shape[1]
    problem.max_sweeps = max_sweeps
    problem.tolerance = <floating>tolerance
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n_rows + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE))
    # Threads take rows dynamically: each row of `out` belongs to one thread, which has its own scratch.
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        scratch = <floating*>malloc_lines((NMF_SCRATCH + NMF_PACKED * stride) * sizeof(floating))
        if scratch != NULL:
            # Padded columns are read, but add 0.
            memset(scratch, 0, stride * stride * sizeof(floating))
        for u in prange(n_rows, schedule="dynamic", chunksize=ROWS_AT_ONCE):
            if scratch == NULL:
                failed |= 1
            else:
                nmf_solve(problem, u, scratch, scratch + NMF_SCRATCH, &out[u, 0])
        free(scratch)
    if failed:
        raise MemoryError


def solve_rows_shared(
    const floating[:, ::1] gram,          # IN  (stride, stride), V'V + reg I, of all rows
    floating[:, ::1] right,               # IN/OUT (n_rows, stride), XV; overwritten
    floating[:, ::1] out,                 # IN/OUT (n_rows, n_factors), where each row starts
    double tolerance,
    int max_sweeps,
    int n_threads,
):
    """Solve all rows, which share one Gram: every entry is observed, with weight 1."""
    cdef Py_ssize_t n_rows = out.shape[0], u
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, (n_rows + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE))
    # Each row belongs to one thread; `gram` is only read.
    for u in prange(
        n_rows,
        nogil=True,
        schedule="dynamic",
        chunksize=ROWS_AT_ONCE,
        num_threads=n_threads,
        use_threads_if=n_threads > 1,
    ):
        nmf_descend(
            &gram[0, 0], &right[u, 0], <int>out.shape[1], <int>gram.shape[1], max_sweeps, <floating>tolerance,
            &out[u, 0],
        )


def multiply_rows(
    const int64_t[::1] indptr,            # IN  (n_rows + 1,)
    const int32_t[::1] indices,           # IN  (n_values,) or (0,) where rows hold every item
    const floating[::1] values,           # IN  (n_values,), at least 0
    const floating[::1] weights,          # IN  (n_values,) or (0,) where all are 1
    const floating[:, ::1] item_factors,  # IN  (n_items, stride), at least 0, padded with zeros
    floating[:, ::1] row_factors,         # IN/OUT (n_rows, stride), at least 0, padded with zeros
    int n_factors,
    double regularization,
    int n_threads,
):
    """Take one multiplicative step of every row; `stride` is 16, 24, 32, or above 32 factors a multiple of 64."""
    cdef Py_ssize_t n_rows = row_factors.shape[0], u
    cdef NmfProblem[floating] problem
    _set_entries(&problem, indptr, indices, values, weights, item_factors)
    problem.n_factors = n_factors
    # Each row of `row_factors` belongs to one thread; item factors are only read.
    for u in prange(
        n_rows,
        nogil=True,
        schedule="dynamic",
        chunksize=ROWS_AT_ONCE,
        num_threads=n_threads,
        use_threads_if=n_threads > 1,
    ):
        nmf_multiply(problem, u, <floating>regularization, &row_factors[u, 0])
