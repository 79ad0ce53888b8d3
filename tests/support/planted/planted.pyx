"""Functions with errors that the sanitizers must report, for some arguments, and not for others."""

from cython.parallel cimport parallel, prange, threadid

include "_kernels/core/_level.pxi"


cdef extern from "_kernels/_planted.h" namespace "fastfedrec" nogil:
    double planted_sum(const double* values, Py_ssize_t n)


def sum_values(const double[::1] values, Py_ssize_t excess):
    """Return the sum of the values and of `excess` numbers after their end."""
    return planted_sum(&values[0], values.shape[0] + excess)


def multiply(int a, int b):
    """Return a product, which overflows above 31 bits."""
    return a * b


def truncate(double x):
    """Return the integer part, which has no value above 31 bits."""
    return <int>x


def count(long[::1] counts, Py_ssize_t n, Py_ssize_t stride):
    """Count n numbers in counts[thread * stride], and return the sum over 2 threads: a race if `stride` is 0."""
    cdef Py_ssize_t i
    with nogil, parallel(num_threads=2):
        for i in prange(n, schedule="static"):
            counts[threadid() * stride] += 1
    return counts[0] + counts[stride]  # a race, too, for a sanitizer that does not see the end of the loop
