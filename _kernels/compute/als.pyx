"""The user half of alternating least squares (Hu, Koren, Volinsky 2008, equation 4).  Inputs are trusted.

Vector code (`_als.cpp`) solves in the type of the factors; for other users, `_als.pxd` solves in double.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libcpp.vector cimport vector

from _kernels.compute._als_problem cimport (
    ALIGNMENT, ALS_ITEMS_AT_ONCE, ALS_PACKED_NUMBERS, ALS_ROTATED_FROM, ALS_ROWS_AT_ONCE, USERS_AT_ONCE, AlsProblem,
    AlsRotation, aligned, als_add_gram, als_find_rotation, als_rotate_rows, als_rotated_bytes, als_rotation_size,
    als_scratch_bytes, als_solve_cg, als_whiten, als_whitened_size, als_whitened_weight, exact_scratch_bytes,
    open_problem, padded_stride, solve_some,
)
from _kernels.compute._cholesky cimport cholesky_factor

include "_kernels/core/_level.pxi"


def factor_gram(
    double[:, ::1] gram,   # IN/OUT (n_factors, n_factors)
):
    """Replace `gram` by its Cholesky factor in the upper triangle; return whether it is numerically regular."""
    return bool(cholesky_factor(&gram[0, 0], gram.shape[0]))


def gram(
    const floating[:, ::1] factors,   # IN  (n_rows, n_factors)
    double[:, ::1] out,               # OUT (n_factors, n_factors)
):
    """Compute V'V in double."""
    cdef Py_ssize_t n_factors = factors.shape[1], stride = padded_stride(n_factors), f, g
    cdef size_t n_bytes = (ALS_PACKED_NUMBERS + stride * stride) * sizeof(double)
    cdef void* memory = calloc(n_bytes + ALIGNMENT, 1)
    cdef double* packed
    cdef double* padded
    if memory == NULL:
        raise MemoryError
    packed = <double*>aligned(memory)
    padded = packed + ALS_PACKED_NUMBERS
    with nogil:
        # One thread adds the rows in their order, so the sum has one order.
        als_add_gram(&factors[0, 0], factors.shape[0], <int>n_factors, <int>stride, packed, padded)
        # Only the upper triangle is filled; V'V is symmetric.
        for f in range(n_factors):
            for g in range(f, n_factors):
                out[f, g] = out[g, f] = padded[f * stride + g]
    free(memory)


cdef void _set_users(
    AlsProblem[floating]* problem,
    const int64_t[::1] indptr,
    const int32_t[::1] indices,
    const floating[::1] values,
    const floating[::1] ridges,
):
    problem.indptr = &indptr[0]
    problem.indices = &indices[0] if indices.shape[0] else NULL  # an empty view has no first number
    problem.values = &values[0] if values.shape[0] else NULL
    problem.ridges = &ridges[0] if ridges.shape[0] else NULL


cdef class Factors:
    """Item factors and V'V + reg I in the layout of the vector code, for any number of calls."""
    # `single` or `wide` is in use, by the type of the factors; their pointers are to `rows` and `derived`.
    cdef AlsProblem[float] single
    cdef AlsProblem[double] wide
    cdef AlsRotation[float] single_rotation
    cdef AlsRotation[double] wide_rotation
    cdef void* rows
    cdef void* derived            # V R^-1, or a rotation
    cdef readonly bint has_derived

    def __dealloc__(self):
        free(self.rows)
        free(self.derived)


cdef inline AlsProblem[floating]* _problem_of(Factors factors, const floating* item_factors) noexcept:
    if floating is float:
        return &factors.single
    else:
        return &factors.wide


def open_factors(
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), factored where the weight is 0
    double confidence_weight,
):
    """Copy item factors and gram to the layout of the vector code."""
    cdef Factors factors = Factors.__new__(Factors)
    cdef const floating* rows = &item_factors[0, 0]
    cdef Py_ssize_t n_items = item_factors.shape[0], n_factors = item_factors.shape[1]
    factors.rows = open_problem(_problem_of(factors, rows), rows, &gram[0, 0], n_items, n_factors, confidence_weight)
    if factors.rows == NULL:
        raise MemoryError
    return factors


def whitened_weight(
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    Factors factors,
):
    """Return the largest weight up to which V R^-1 saves time; 0 if it never does."""
    return als_whitened_weight(_problem_of(factors, &item_factors[0, 0])[0])


def whiten(
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    Factors factors,                      # IN/OUT
    int n_threads,
):
    """Compute V R^-1, if V'V allows it; no other thread may call this function for the same factors."""
    cdef AlsProblem[floating]* problem = _problem_of(factors, &item_factors[0, 0])
    cdef Py_ssize_t n_items = item_factors.shape[0], n_blocks = (n_items - 1) // ALS_ITEMS_AT_ONCE, block, first, last
    cdef size_t n_bytes = als_scratch_bytes(problem.stride)
    cdef floating* whitened
    # The scratch of all threads is one allocation, because a single thread cannot raise an error.
    cdef void* scratch
    n_threads = <int>max(1, min(<Py_ssize_t>n_threads, n_blocks))
    scratch = malloc(n_threads * n_bytes + ALIGNMENT)
    factors.derived = malloc(als_whitened_size(n_items, problem.stride) * sizeof(floating) + ALIGNMENT)
    if factors.derived == NULL or scratch == NULL:
        free(scratch)
        free(factors.derived)
        factors.derived = NULL
        raise MemoryError
    whitened = <floating*>aligned(factors.derived)
    with nogil:
        # The first block decides whether V'V allows it.
        if als_whiten(problem[0], 0, min(n_items, <Py_ssize_t>ALS_ITEMS_AT_ONCE), aligned(scratch), whitened):
            # Each block writes separate rows of V R^-1; a thread has its own scratch, of whole cache lines.
            for block in prange(n_blocks, schedule="dynamic", num_threads=n_threads, use_threads_if=n_threads > 1):
                first = (block + 1) * ALS_ITEMS_AT_ONCE
                last = min(first + ALS_ITEMS_AT_ONCE, n_items)
                als_whiten(problem[0], first, last, aligned(scratch) + threadid() * n_bytes, whitened)
            problem.whitened = whitened
    free(scratch)
    factors.has_derived = True


def solve_users(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[::1] ridges,           # IN  (n_users,), added to reg, or (0,) for no addition
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), factored where the weight is 0
    Factors factors,                      # of these item factors
    bint with_whitened,                   # whether to use V R^-1 of the factors
    floating[:, ::1] out,                 # OUT (n_users, n_factors), zeros
    int n_threads,
):
    """Solve the systems of all users, and return the first user with a singular system, or n_users.

    Each result depends on its user alone, and not on the number of threads.  -1 reports a failed allocation.
    """
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_factors = item_factors.shape[1], first, last, singular_user
    cdef size_t exact_bytes = exact_scratch_bytes(n_factors)
    cdef AlsProblem[floating] problem
    cdef vector[Py_ssize_t] singular
    cdef void* thread_memory
    cdef char* scratch
    cdef int thread
    if indices.shape[0] == 0:
        return n_users        # no user has items: all of `out` is 0 already
    n_threads = <int>min(<Py_ssize_t>n_threads, (n_users + USERS_AT_ONCE - 1) // USERS_AT_ONCE)
    singular.assign(n_threads, n_users)
    problem = _problem_of(factors, &item_factors[0, 0])[0]
    _set_users(&problem, indptr, indices, values, ridges)
    if not with_whitened:
        problem.whitened = NULL
    with nogil:
        with parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
            # Each thread has its own scratch; NULL is reported as singular = -1, since a thread cannot raise here.
            thread_memory = malloc(exact_bytes + als_scratch_bytes(problem.stride) + ALIGNMENT)
            thread = threadid()
            # Each block of users writes separate rows of `out`, and singular[thread] belongs to this thread.
            for first in prange(0, n_users, USERS_AT_ONCE, schedule="dynamic"):
                if thread_memory == NULL:
                    singular[thread] = -1
                else:
                    scratch = aligned(thread_memory)
                    last = min(first + USERS_AT_ONCE, n_users)
                    singular_user = solve_some(
                        &problem,
                        &gram[0, 0],
                        first,
                        last,
                        scratch + exact_bytes,
                        <double*>scratch,
                        &out[first, 0],
                    )
                    if singular_user < last and singular_user < singular[thread]:  # the smallest one
                        singular[thread] = singular_user
            free(thread_memory)
    for thread in range(n_threads):
        n_users = min(n_users, singular[thread])
    return n_users


cdef void* _open_rotation(
    AlsProblem[floating]* problem,    # IN/OUT
    AlsRotation[floating]* rotation,  # OUT
) noexcept nogil:
    """Set coordinates of `problem`, except its item factors; return the memory to free after use, or NULL."""
    cdef Py_ssize_t stride = problem.stride, square = stride * stride
    cdef void* memory = malloc(als_rotation_size(problem.stride) * sizeof(floating) + ALIGNMENT)
    cdef void* scratch = malloc(2 * square * sizeof(double) + ALIGNMENT)
    if memory == NULL or scratch == NULL:
        free(memory)
        free(scratch)
        return NULL
    # The five parts follow each other: 2 stride^2 + 3 stride numbers.
    rotation.to_rotated = <floating*>aligned(memory)
    rotation.to_original = rotation.to_rotated + square
    rotation.diagonal = rotation.to_original + square
    rotation.above = rotation.diagonal + stride
    rotation.below = rotation.above + stride
    als_find_rotation(problem[0], <double*>aligned(scratch), rotation[0])
    problem.rotation = rotation
    free(scratch)
    return memory


def rotate(
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    Factors factors,                      # IN/OUT
    int n_threads,
):
    """Convert many factors to coordinates in which V'V is tridiagonal; no other thread may use the factors."""
    cdef AlsProblem[floating]* problem = _problem_of(factors, &item_factors[0, 0])
    cdef AlsRotation[floating]* rotation
    cdef Py_ssize_t n_items = item_factors.shape[0], first
    cdef floating* rows = <floating*>problem.item_factors
    cdef size_t thread_bytes = als_rotated_bytes(problem.stride)
    cdef void* scratch
    cdef char* memory
    if floating is float:
        rotation = &factors.single_rotation
    else:
        rotation = &factors.wide_rotation
    if problem.n_factors >= ALS_ROTATED_FROM:
        n_threads = <int>max(1, min(<Py_ssize_t>n_threads, n_items // ALS_ROWS_AT_ONCE))
        scratch = malloc(n_threads * thread_bytes + ALIGNMENT)  # for all threads, because a single one cannot fail
        if scratch != NULL:
            factors.derived = _open_rotation(problem, rotation)
        if factors.derived == NULL:
            free(scratch)
            raise MemoryError
        # V is converted in place. Each block of rows belongs to one thread, which has its own scratch.
        with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
            memory = aligned(scratch) + threadid() * thread_bytes
            for first in prange(0, n_items, ALS_ROWS_AT_ONCE, schedule="dynamic"):
                als_rotate_rows(
                    rotation[0],
                    problem.stride,
                    <int>min(<Py_ssize_t>ALS_ROWS_AT_ONCE, n_items - first),
                    memory,
                    rows + first * problem.stride,
                )
        free(scratch)
    factors.has_derived = True


def solve_users_cg(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[::1] ridges,           # IN  (n_users,), added to reg, or (0,) for no addition
    Factors factors,                      # after `rotate`, with a gram that is not factored
    floating[:, ::1] out,                 # IN/OUT (n_users, n_factors), where each user starts
    int n_steps,
    int n_threads,
):
    """Run `n_steps` steps of conjugate gradients for each user; users without items get zeros.

    With many factors, coordinates are those in which V'V is tridiagonal: the steps are the same except for rounding.
    """
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, first
    cdef AlsProblem[floating] problem
    cdef void* memory
    cdef char* scratch
    cdef size_t thread_bytes
    if indices.shape[0] == 0:
        out[:, :] = 0         # no user has items: b = 0
        return
    problem = _problem_of(factors, &out[0, 0])[0]
    thread_bytes = als_rotated_bytes(problem.stride)
    n_threads = <int>min(<Py_ssize_t>n_threads, (n_users + ALS_ROWS_AT_ONCE - 1) // ALS_ROWS_AT_ONCE)
    memory = malloc(n_threads * thread_bytes + ALIGNMENT)  # for all threads, because a single thread cannot fail
    if memory == NULL:
        raise MemoryError
    _set_users(&problem, indptr, indices, values, ridges)
    with nogil:
        with parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
            # Each thread has its own scratch; threadid() < n_threads.
            scratch = aligned(memory) + threadid() * thread_bytes
            # Each block of users reads all of V, and reads and writes separate rows of `out`.
            for first in prange(0, n_users, ALS_ROWS_AT_ONCE, schedule="dynamic"):
                als_solve_cg(
                    problem, first, min(first + ALS_ROWS_AT_ONCE, n_users), n_steps, scratch, &out[first, 0]
                )
        free(memory)
