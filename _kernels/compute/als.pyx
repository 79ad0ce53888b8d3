"""The user half of alternating least squares (Hu, Koren, Volinsky 2008, equation 4).  Inputs are trusted.

Vector code (`_als.cpp`) solves in the type of the factors; for other users, `_als.pxd` solves in double.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from _kernels.compute._als_problem cimport (
    ALIGNMENT, ALS_ITEMS_AT_ONCE, ALS_PACKED_NUMBERS, ALS_ROTATED_FROM, ALS_ROWS_AT_ONCE, USERS_AT_ONCE, AlsProblem,
    AlsRotation, aligned, als_add_gram, als_find_rotation, als_rotate_rows, als_rotated_bytes, als_rotation_size,
    als_scratch_bytes, als_solve_cg, als_whiten, als_whitened_weight, exact_scratch_bytes, open_problem,
    open_whitened, padded_stride, solve_some,
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


def solve_users(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[::1] ridges,           # IN  (n_users,), added to reg, or (0,) for no addition
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), factored where the weight is 0
    floating[:, ::1] out,                 # OUT (n_users, n_factors), zeros
    int64_t[::1] singular,                # OUT (n_threads,), first singular user of each thread, or n_users
    double confidence_weight,
    int n_threads,
):
    """Solve the systems of all users; each result depends on its user alone, and not on the number of threads."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_factors = item_factors.shape[1], first, last, singular_user
    cdef size_t exact_bytes = exact_scratch_bytes(n_factors)
    cdef Py_ssize_t n_items = item_factors.shape[0], block, n_blocks = 0
    cdef AlsProblem[floating] problem
    cdef double max_weight
    cdef floating* whitened
    cdef void* shared
    cdef void* shared_whitened = NULL
    cdef void* thread_memory
    cdef char* scratch
    cdef int thread
    if indices.shape[0] == 0:
        return                # no user has items: all of `out` is 0 already
    shared = open_problem(&problem, &item_factors[0, 0], &gram[0, 0], n_items, n_factors, confidence_weight)
    if shared == NULL:
        raise MemoryError
    _set_users(&problem, indptr, indices, values, ridges)
    # A trial saves time only up to `max_weight`; with values, the largest value of the user decides.
    max_weight = als_whitened_weight(problem)
    # All users share R there, so no user has an additional ridge.
    if confidence_weight != 0.0 and max_weight > 0 and not ridges.shape[0] and (
        values.shape[0] or confidence_weight <= max_weight
    ):
        shared_whitened = open_whitened(&problem, n_items)
        if shared_whitened == NULL:
            free(shared)
            raise MemoryError
        # Items [0, ALS_ITEMS_AT_ONCE) are already computed, with R; the other items are blocks 1, 2, ...
        n_blocks = (n_items - 1) // ALS_ITEMS_AT_ONCE if problem.whitened != NULL else 0  # without the first
    whitened = <floating*>problem.whitened
    with nogil:
        with parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
            # Each thread has its own scratch; NULL is reported as singular = -1, since a thread cannot raise here.
            thread_memory = malloc(exact_bytes + als_scratch_bytes(problem.stride) + ALIGNMENT)
            thread = threadid()
            # Each block writes separate rows of V R^-1; the end of the loop waits for all of them.
            for block in prange(n_blocks, schedule="dynamic"):
                first = (block + 1) * ALS_ITEMS_AT_ONCE
                if thread_memory == NULL:
                    singular[thread] = -1
                else:
                    als_whiten(
                        problem, first, min(first + ALS_ITEMS_AT_ONCE, n_items), aligned(thread_memory), whitened
                    )
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
        free(shared)
        free(shared_whitened)


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
        # forth, back, diagonal, above, below follow each other: 2 stride^2 + 3 stride numbers
        return NULL
    rotation.to_rotated = <floating*>aligned(memory)
    rotation.to_original = rotation.to_rotated + square
    rotation.diagonal = rotation.to_original + square
    rotation.above = rotation.diagonal + stride
    rotation.below = rotation.above + stride
    als_find_rotation(problem[0], <double*>aligned(scratch), rotation[0])
    problem.rotation = rotation
    free(scratch)
    return memory


def solve_users_cg(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[::1] ridges,           # IN  (n_users,), added to reg, or (0,) for no addition
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), not factored
    floating[:, ::1] out,                 # IN/OUT (n_users, n_factors), where each user starts
    double confidence_weight,
    int n_steps,
    int n_threads,
):
    """Run `n_steps` steps of conjugate gradients for each user; users without items get zeros.

    With many factors, coordinates are those in which V'V is tridiagonal: the steps are the same except for rounding.
    """
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_items = item_factors.shape[0], first
    cdef AlsProblem[floating] problem
    cdef AlsRotation[floating] rotation
    cdef floating* rows
    cdef void* shared
    cdef void* shared_rotation = NULL
    cdef void* memory
    cdef char* scratch
    cdef size_t thread_bytes
    if indices.shape[0] == 0:
        out[:, :] = 0         # no user has items: b = 0
        return
    shared = open_problem(&problem, &item_factors[0, 0], &gram[0, 0], n_items, item_factors.shape[1], confidence_weight)
    thread_bytes = als_rotated_bytes(problem.stride) if shared != NULL else 0
    memory = malloc(n_threads * thread_bytes + ALIGNMENT)  # for all threads, because a single thread cannot fail
    if shared != NULL and problem.n_factors >= ALS_ROTATED_FROM:
        shared_rotation = _open_rotation(&problem, &rotation)
    if shared == NULL or memory == NULL or (shared_rotation == NULL and problem.n_factors >= ALS_ROTATED_FROM):
        free(shared)
        free(memory)
        free(shared_rotation)
        raise MemoryError
    _set_users(&problem, indptr, indices, values, ridges)
    rows = <floating*>problem.item_factors
    with nogil:
        with parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
            # Each thread has its own scratch; threadid() < n_threads.
            scratch = aligned(memory) + threadid() * thread_bytes
            # V is converted to the new coordinates in place. Each block of rows belongs to one thread; the end of the
            # loop waits for all.
            if problem.rotation != NULL:
                for first in prange(0, n_items, ALS_ROWS_AT_ONCE, schedule="dynamic"):
                    als_rotate_rows(
                        rotation,
                        problem.stride,
                        <int>min(<Py_ssize_t>ALS_ROWS_AT_ONCE, n_items - first),
                        scratch,
                        rows + first * problem.stride,
                    )
            # Each block of users reads all of V, and reads and writes separate rows of `out`.
            for first in prange(0, n_users, ALS_ROWS_AT_ONCE, schedule="dynamic"):
                als_solve_cg(
                    problem, first, min(first + ALS_ROWS_AT_ONCE, n_users), n_steps, scratch, &out[first, 0]
                )
        free(memory)
        free(shared_rotation)
        free(shared)
