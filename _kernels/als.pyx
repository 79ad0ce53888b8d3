"""Alternating least squares, user half (Hu, Koren, Volinsky 2008, equation 4).  Inputs are trusted.

Vector code (`_als.cpp`) solves in the type of the factors; what it cannot answer for goes to the exact form (`_als.pxd`).
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from _kernels._als cimport solve_user
from _kernels._cholesky cimport cholesky_factor

include "_level.pxi"

cdef extern from "_kernels/_als.h" namespace "fastfedrec" nogil:
    cdef cppclass AlsProblem[T]:
        const int64_t* indptr
        const int32_t* indices
        const T* values
        const T* item_factors
        const T* gram
        const double* wide_gram
        int n_factors
        int stride
        double weight
    size_t als_scratch_bytes(int stride) noexcept
    void als_solve[T](
        const AlsProblem[T]& problem, Py_ssize_t first, Py_ssize_t last, char* scratch, T* out, unsigned char* solved
    ) noexcept

cdef enum:
    USERS_AT_ONCE = 32   # of a thread: a multiple of every vector's lanes
    ALIGNMENT = 64


def factor_gram(
    double[:, ::1] gram,   # IN/OUT (n_factors, n_factors)
):
    """Replace `gram` by its Cholesky factor in the upper triangle; return whether it is numerically regular."""
    return bool(cholesky_factor(&gram[0, 0], gram.shape[0]))


cdef inline char* _aligned(void* memory) noexcept nogil:
    return <char*>((<uintptr_t>memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)


cdef void _pad(const floating* rows, Py_ssize_t n_rows, Py_ssize_t n, Py_ssize_t stride, floating* out) noexcept nogil:
    cdef Py_ssize_t i, f
    memset(out, 0, n_rows * stride * sizeof(floating))
    for i in range(n_rows):
        for f in range(n):
            out[i * stride + f] = rows[i * n + f]


cdef void _pad_gram(const double* gram, Py_ssize_t n, Py_ssize_t stride, floating* out) noexcept nogil:
    cdef Py_ssize_t f, g
    for f in range(stride):
        for g in range(stride):
            out[f * stride + g] = <floating>gram[f * n + g] if f < n and g < n else <floating>(f == g)


cdef Py_ssize_t _solve_some(
    const AlsProblem[floating]* problem,
    const floating* item_factors,     # IN  (n_items, n_factors), not padded
    const double* gram,               # IN  (n_factors, n_factors)
    Py_ssize_t first,
    Py_ssize_t last,
    char* scratch,
    double* exact_scratch,            # (n_factors + 2, n_factors)
    floating* out,                    # OUT (n_users, n_factors)
) noexcept nogil:
    """Solve users [first, last); return the first singular one, or `last`."""
    cdef unsigned char solved[USERS_AT_ONCE]
    cdef Py_ssize_t n_factors = problem.n_factors, singular = last, u, f
    cdef double* x = exact_scratch + (n_factors + 1) * n_factors
    if problem.weight == 0.0:
        memset(solved, 0, USERS_AT_ONCE)
    else:
        als_solve(problem[0], first, last, scratch, out + first * n_factors, solved)
    for u in range(first, last):
        if solved[u - first]:
            continue
        if solve_user(
            problem.indices + problem.indptr[u],
            problem.values,
            problem.indptr[u],
            problem.indptr[u + 1] - problem.indptr[u],
            item_factors,
            gram,
            n_factors,
            problem.weight,
            exact_scratch,
            x,
        ):
            for f in range(n_factors):
                out[u * n_factors + f] = <floating>x[f]
        elif u < singular:
            singular = u
    return singular


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
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_items = item_factors.shape[0], n_factors = item_factors.shape[1]
    cdef Py_ssize_t n_chunks = (n_users + USERS_AT_ONCE - 1) // USERS_AT_ONCE, chunk, found
    cdef Py_ssize_t stride = 8 if n_factors <= 8 else (n_factors + 15) // 16 * 16
    cdef size_t gram_bytes = stride * stride * sizeof(double)
    cdef size_t exact_bytes = ((n_factors + 2) * n_factors * sizeof(double) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    cdef AlsProblem[floating] problem
    cdef void* shared
    cdef void* own
    cdef char* scratch
    cdef int thread
    if n_users == 0 or n_items == 0:
        out[:, :] = 0
        return
    shared = malloc(2 * gram_bytes + n_items * stride * sizeof(floating) + ALIGNMENT)
    if shared == NULL:
        raise MemoryError
    problem.indptr = &indptr[0]
    problem.indices = &indices[0] if indices.shape[0] else NULL
    problem.values = &values[0] if values.shape[0] else NULL
    problem.wide_gram = <double*>_aligned(shared)
    problem.gram = <floating*>(_aligned(shared) + gram_bytes)
    problem.item_factors = <floating*>(_aligned(shared) + 2 * gram_bytes)
    problem.n_factors = <int>n_factors
    problem.stride = <int>stride
    problem.weight = confidence_weight
    with nogil:
        _pad_gram(&gram[0, 0], n_factors, stride, <double*>problem.wide_gram)
        _pad_gram(&gram[0, 0], n_factors, stride, <floating*>problem.gram)
        _pad(&item_factors[0, 0], n_items, n_factors, stride, <floating*>problem.item_factors)
        with parallel(num_threads=n_threads):
            own = malloc(exact_bytes + als_scratch_bytes(<int>stride) + ALIGNMENT)
            thread = threadid()
            for chunk in prange(n_chunks, schedule="dynamic"):
                if own == NULL:
                    singular[thread] = -1
                else:
                    scratch = _aligned(own)
                    found = _solve_some(
                        &problem,
                        &item_factors[0, 0],
                        &gram[0, 0],
                        chunk * USERS_AT_ONCE,
                        min((chunk + 1) * USERS_AT_ONCE, n_users),
                        scratch + exact_bytes,
                        <double*>scratch,
                        &out[0, 0],
                    )
                    if found < (chunk + 1) * USERS_AT_ONCE and found < n_users and found < singular[thread]:
                        singular[thread] = found
            free(own)
        free(shared)
