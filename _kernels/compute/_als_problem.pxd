"""The parts of `als` that `capi` shares: the problem of all users, and its exact solution for some of them.

Inline only (see setup.py).
"""
from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from _kernels.compute._als cimport solve_user

cdef extern from "_kernels/compute/_als.h" namespace "fastfedrec" nogil:
    enum:
        ALS_ITEMS_AT_ONCE
        ALS_PACKED_NUMBERS
        ALS_ROWS_AT_ONCE
        ALS_ROTATED_FROM
    cdef cppclass AlsRotation[T]:
        T* to_rotated
        T* to_original
        T* diagonal
        T* above
        T* below
    cdef cppclass AlsProblem[T]:
        const int64_t* indptr
        const int32_t* indices
        const T* values
        const T* item_factors
        const T* gram
        const T* ridges
        const double* wide_gram
        const T* whitened
        const AlsRotation[T]* rotation
        int n_factors
        int stride
        double weight
    size_t als_scratch_bytes(int stride) noexcept
    void als_add_gram[T](
        const T* rows, Py_ssize_t n_rows, int n_factors, int stride, double* packed, double* gram
    ) noexcept
    double als_whitened_weight[T](const AlsProblem[T]& problem) noexcept
    Py_ssize_t als_whitened_size(Py_ssize_t n_items, int stride) noexcept
    bint als_whiten[T](
        const AlsProblem[T]& problem, Py_ssize_t first, Py_ssize_t last, char* scratch, T* whitened
    ) noexcept
    void als_solve[T](
        const AlsProblem[T]& problem, Py_ssize_t first, Py_ssize_t last, char* scratch, T* out, unsigned char* solved
    ) noexcept
    # The level whose results are the same on all processors.
    void als_solve_plain "fastfedrec::plain::als_solve"(
        const AlsProblem[double]& problem, Py_ssize_t first, Py_ssize_t last, char* scratch, double* out,
        unsigned char* solved,
    ) noexcept
    Py_ssize_t als_rotation_size(int stride) noexcept
    size_t als_rotated_bytes(int stride) noexcept
    void als_find_rotation[T](const AlsProblem[T]& problem, double* scratch, const AlsRotation[T]& rotation) noexcept
    void als_rotate_rows[T](const AlsRotation[T]& rotation, int stride, int n_rows, char* scratch, T* rows) noexcept
    void als_solve_cg[T](
        const AlsProblem[T]& problem, Py_ssize_t first, Py_ssize_t last, int n_steps, char* scratch, T* out
    ) noexcept

cdef enum:
    USERS_AT_ONCE = 32   # users of a thread at a time: a multiple of the lanes of every vector
    ALIGNMENT = 64


cdef inline Py_ssize_t padded_stride(Py_ssize_t n_factors) noexcept nogil:
    # A stride is whole vectors at every level.
    return 8 if n_factors <= 8 else (n_factors + 15) // 16 * 16


cdef inline char* aligned(void* memory) noexcept nogil:
    return <char*>((<uintptr_t>memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)


cdef inline size_t exact_scratch_bytes(Py_ssize_t n_factors) noexcept nogil:
    """Return the bytes of the scratch of `solve_user` and its result, rounded up to `ALIGNMENT`."""
    return ((n_factors + 2) * n_factors * sizeof(double) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


cdef inline void pad_gram(const double* gram, Py_ssize_t n_factors, Py_ssize_t stride, double* out) noexcept nogil:
    """Copy gram to rows of `stride`, which are zeros before."""
    cdef Py_ssize_t f, g
    for f in range(n_factors):
        for g in range(n_factors):
            out[f * stride + g] = gram[f * n_factors + g]
    for f in range(n_factors, stride):  # padded unknowns have a pivot of 1, and are 0
        out[f * stride + f] = 1.0


cdef inline void* open_problem(
    AlsProblem[floating]* problem,    # OUT, except its users
    const floating* item_factors,     # IN  (n_items, n_factors)
    const double* gram,               # IN  (n_factors, n_factors)
    Py_ssize_t n_items,
    Py_ssize_t n_factors,
    double weight,
) noexcept nogil:
    """Copy item factors and gram to padded, aligned rows; return the memory to free after use, or NULL."""
    cdef Py_ssize_t stride = padded_stride(n_factors), f
    # All sizes are products of 64 bits. calloc sets the padded columns to zeros, so that they add 0.
    cdef size_t gram_bytes = stride * stride * sizeof(double), rows_bytes = n_items * stride * sizeof(floating)
    cdef void* memory = calloc(2 * gram_bytes + rows_bytes + ALIGNMENT, 1)
    cdef double* wide_gram = <double*>aligned(memory)
    cdef floating* gram_copy = <floating*>(aligned(memory) + gram_bytes)
    cdef floating* rows = <floating*>(aligned(memory) + 2 * gram_bytes)
    if memory == NULL:
        return NULL
    # There are two copies of V'V + reg I: in double for users that T cannot solve, and in T for the vectors.
    pad_gram(gram, n_factors, stride, wide_gram)
    for f in range(stride * stride):
        gram_copy[f] = <floating>wide_gram[f]
    # Each row has n_factors numbers, then zeros up to `stride`.
    for f in range(n_items):
        memcpy(rows + f * stride, item_factors + f * n_factors, n_factors * sizeof(floating))
    problem.item_factors = rows
    problem.gram = gram_copy
    problem.wide_gram = wide_gram
    problem.ridges = NULL
    problem.whitened = NULL
    problem.rotation = NULL
    problem.n_factors = <int>n_factors
    problem.stride = <int>stride
    problem.weight = weight
    return memory


cdef inline void* open_whitened(
    AlsProblem[floating]* problem,    # IN/OUT
    Py_ssize_t n_items,
) noexcept nogil:
    """Set `problem.whitened` for the first items, if V'V allows it; return the memory to free after use."""
    cdef void* memory = malloc(als_whitened_size(n_items, problem.stride) * sizeof(floating) + ALIGNMENT)
    cdef void* scratch = malloc(als_scratch_bytes(problem.stride) + ALIGNMENT)
    cdef floating* whitened
    if memory == NULL or scratch == NULL:
        free(memory)
        free(scratch)
        return NULL
    whitened = <floating*>aligned(memory)
    if als_whiten(problem[0], 0, min(n_items, <Py_ssize_t>ALS_ITEMS_AT_ONCE), aligned(scratch), whitened):
        problem.whitened = whitened
    free(scratch)
    return memory


cdef inline Py_ssize_t solve_some(
    const AlsProblem[floating]* problem,
    const double* gram,               # IN  (n_factors, n_factors), not padded
    Py_ssize_t first,
    Py_ssize_t last,
    char* scratch,
    double* exact_scratch,            # (n_factors + 2, n_factors)
    floating* out,                    # OUT (last - first, n_factors)
) noexcept nogil:
    """Solve users [first, last), and write zeros for singular ones; return the first of these, or `last`."""
    cdef unsigned char solved[USERS_AT_ONCE]
    # als_solve fills solved[0, last - first), and last - first is at most USERS_AT_ONCE.
    als_solve(problem[0], first, last, scratch, out, solved)
    return solve_others(problem, gram, first, last, solved, exact_scratch, out)


cdef inline Py_ssize_t solve_others(
    const AlsProblem[floating]* problem,
    const double* gram,               # IN  (n_factors, n_factors), not padded
    Py_ssize_t first,
    Py_ssize_t last,
    const unsigned char* solved,      # IN  (last - first,)
    double* exact_scratch,            # (n_factors + 2, n_factors)
    floating* out,                    # IN/OUT (last - first, n_factors)
) noexcept nogil:
    """Solve the users without a solution by vectors; return as `solve_some`."""
    cdef Py_ssize_t n_factors = problem.n_factors, singular = last, u, f
    cdef double* x = exact_scratch + (n_factors + 1) * n_factors
    # Users without a solution by vectors are solved in double, one at a time, in a row that no other thread has.
    for u in range(first, last):
        if solved[u - first]:
            continue
        if solve_user(
            problem.indices + problem.indptr[u],
            problem.values,
            problem.indptr[u],
            problem.indptr[u + 1] - problem.indptr[u],
            problem.item_factors,
            problem.stride,
            gram,
            n_factors,
            problem.weight,
            problem.ridges[u] if problem.ridges != NULL else 0.0,
            exact_scratch,
            x,
        ):
            # The result is rounded to the type of the factors once, at the end.
            for f in range(n_factors):
                out[(u - first) * n_factors + f] = <floating>x[f]
            continue
        for f in range(n_factors):
            out[(u - first) * n_factors + f] = 0
        if u < singular:
            singular = u
    return singular
