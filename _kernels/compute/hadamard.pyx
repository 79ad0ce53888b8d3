"""Walsh-Hadamard transforms of rows: x_i becomes sum_j (-1)^popcount(i & j) x_j.  Inputs are trusted."""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int64_t

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_hadamard.h" namespace "fastfedrec" nogil:
    void hadamard_transform(int64_t* x, int64_t* scratch, int n_passes) noexcept
    void hadamard_transform(double* x, double* scratch, int n_passes) noexcept

ctypedef fused Number:
    int64_t
    double


def transform_rows(
    Number[:, ::1] rows,       # IN/OUT (n_rows, 2^n_passes)
    Number[:, ::1] scratch,    # SCRATCH (n_threads, 2^n_passes)
    int n_passes,
    int n_threads,
):
    """Transform each row in place: integers modulo 2^64, and floats by the same sums in the same order."""
    cdef Py_ssize_t n_rows = rows.shape[0], i
    cdef int thread
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, n_rows))
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        # A row belongs to one thread, and so does a row of `scratch`.
        for i in prange(n_rows, schedule="static"):
            hadamard_transform(&rows[i, 0], &scratch[thread, 0], n_passes)
