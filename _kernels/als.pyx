"""Alternating least squares, user half (Hu, Koren, Volinsky 2008, equation 4); see `_als.pxd`.  Inputs are trusted."""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from _kernels._als cimport solve_user
from _kernels._cholesky cimport cholesky_factor


def factor_gram(
    double[:, ::1] gram,   # IN/OUT (n_factors, n_factors)
):
    """Replace `gram` by its Cholesky factor in the upper triangle; return whether it is numerically regular."""
    return bool(cholesky_factor(&gram[0, 0], gram.shape[0]))


def solve_users(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), factored where the weight is 0
    floating[:, ::1] out,                 # OUT (n_users, n_factors)
    int64_t[::1] singular,                # OUT (n_threads,), first singular user each thread met, or n_users
    double confidence_weight,
    int n_threads,
):
    """Solve all users' systems; each user's result depends on that user alone, so on no thread count."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_factors = item_factors.shape[1], u, f
    cdef const floating* data = NULL
    cdef const int32_t* items = NULL
    cdef double* scratch
    cdef double* x
    cdef int thread
    if values.shape[0]:
        data = &values[0]
    if indices.shape[0]:
        items = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        scratch = <double*>malloc((n_factors + 2) * n_factors * sizeof(double))
        x = scratch + (n_factors + 1) * n_factors
        thread = threadid()
        for u in prange(n_users, schedule="dynamic", chunksize=32):
            if scratch == NULL:
                singular[thread] = -1
            elif solve_user(
                items + indptr[u],
                data,
                indptr[u],
                indptr[u + 1] - indptr[u],
                &item_factors[0, 0],
                &gram[0, 0],
                n_factors,
                confidence_weight,
                scratch,
                x,
            ):
                for f in range(n_factors):
                    out[u, f] = <floating>x[f]
            elif u < singular[thread]:
                singular[thread] = u
        free(scratch)
