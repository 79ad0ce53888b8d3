"""One FMF-LDP round over a shard, fused: solve, sampled gradient coordinates, clip, one-bit reports.

Minto et al. 2021, Algorithms 1 and 2, corrected as in fmf-ldp.md.  For user u and a coordinate
(i, f) drawn uniformly with replacement,

    g = -scale * c_ui * (p_ui - x_u'v_i) * x_uf,      c_ui = 1 + weight * r_ui,    scale = 2 (the gradient)

is evaluated only there, clipped to [-1, 1] and answered by binary response.  Neither users x items nor, per user,
items x factors is ever formed.  Every user reads the stream (subkey, round, global user id): for each report one word
for the coordinate, one for the answer.  Inputs are trusted.

With a `mix`, reports are about the gradient of the user divided by its norm: c (x'v - p) x', of rank one, is formed for
one user at a time.  Signs and a Hadamard matrix of n_rows rotate the column of each factor, and `mix`, n_columns x
n_factors, combines the columns.  Coordinates are those of the result, n_rows x n_columns.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from _kernels.compute._als_problem cimport (
    AlsProblem, aligned, als_scratch_bytes, als_solve_plain, exact_scratch_bytes, pad_gram, padded_stride, solve_others,
)
from _kernels.core._chacha20 cimport Streams, streams_allocate, streams_next, streams_open
from _kernels.systems.fmf._fmf_ldp cimport (
    FMFNormal, FMFRound, FMFUser, fmf_add_gradient, fmf_normalized_reports, fmf_reports, fmf_solve,
)

include "_kernels/core/_level.pxi"

cdef enum:
    CHUNK = 32                # users that a thread takes at a time, as ALS does
    LINE = 64                 # bytes; a padded row of up to 8 factors is one cache line

cdef double MIN_SQUARE = 1e-280  # squared norm, below which squares of entries are near the least normal numbers


cdef struct Scratch:
    # The memory of one thread.
    Streams streams
    double* solve             # (n_factors + 3, width)
    double* x                 # (width,), 0 beyond n_factors
    void* exact               # scratch of weighted users that vectors do not solve, then of all others
    double* weighted          # (CHUNK, n_factors), their factors
    uint8_t* marks            # (n_items,), `mark` at the current user's items
    int32_t* position         # (n_items,), position among the items of the user, if the weight is not 0
    double* confidence        # (n_items,), by position, where the weight is not 0
    int64_t* coordinates      # (n_reports,), with a capacity of 7 more
    int64_t* answers          # (n_reports,), +1 or -1; likewise
    float* gradient           # (n_factors + 2, length), where it is normalised
    uint8_t mark


cdef bint _allocate(Scratch* s, const FMFRound* plan, const FMFNormal* normal, bint is_weighted) noexcept nogil:
    cdef bint has_streams = streams_allocate(&s.streams, 2 * plan.n_reports)
    s.solve = <double*>calloc((plan.n_factors + 4) * plan.width, sizeof(double))
    s.x = s.solve + (plan.n_factors + 3) * plan.width
    s.marks = <uint8_t*>calloc(plan.n_items, 1)
    s.position = <int32_t*>malloc(plan.n_items * sizeof(int32_t) if is_weighted else 1)
    s.confidence = <double*>malloc(plan.n_items * sizeof(double) if is_weighted else 1)
    s.exact = malloc(
        exact_scratch_bytes(plan.n_factors) + als_scratch_bytes(<int>plan.width) + LINE if is_weighted else 1
    )
    s.weighted = <double*>malloc(CHUNK * plan.n_factors * sizeof(double) if is_weighted else 1)
    s.coordinates = <int64_t*>malloc((plan.n_reports + 7) * sizeof(int64_t))
    s.answers = <int64_t*>malloc((plan.n_reports + 7) * sizeof(int64_t))
    s.gradient = <float*>malloc(((plan.n_factors + 2) * normal.length + 1) * sizeof(float))
    s.mark = 0
    return (
        has_streams and s.exact != NULL and s.weighted != NULL and s.solve != NULL and s.marks != NULL
        and s.position != NULL and s.confidence != NULL
        and s.coordinates != NULL and s.answers != NULL and s.gradient != NULL
    )


cdef void _release(Scratch* s) noexcept nogil:
    free(s.streams.buffer)
    free(s.solve)
    free(s.exact)
    free(s.weighted)
    free(s.marks)
    free(s.position)
    free(s.confidence)
    free(s.coordinates)
    free(s.answers)
    free(s.gradient)


cdef void _solve_weighted(
    Scratch* s, const AlsProblem[double]* problem, const double* gram, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    """Write the factors of a chunk of users, with the same bits at every level."""
    cdef unsigned char[CHUNK] solved
    cdef char* memory = aligned(s.exact)
    als_solve_plain(
        problem[0], start, stop, memory + exact_scratch_bytes(problem.n_factors), s.weighted, solved
    )
    # A system that is singular because of the data of this user counts as no data: whether a client answers must not
    # depend on its data. The caller has rejected item factors that are singular for every user.
    solve_others(problem, gram, start, stop, solved, <double*>memory, s.weighted)


cdef void _solve_and_mark(
    Scratch* s, const FMFRound* plan, const int32_t* items, const double* values, Py_ssize_t n, double weight,
    const double* weighted,
) noexcept nogil:
    """Write the factors of the user to `x`, its items to `marks`, and their confidence if the weight is not 0."""
    cdef Py_ssize_t j
    # A mark distinguishes the items of this user from those of earlier users; no user has mark 0.
    s.mark += 1
    if s.mark == 0:           # marks of earlier users are cleared once in 255 users, not after each
        memset(s.marks, 0, plan.n_items)
        s.mark = 1
    if weight == 0.0:
        fmf_solve(plan[0], items, n, s.mark, s.marks, s.solve, s.x)
        return
    memcpy(s.x, weighted, plan.n_factors * sizeof(double))
    for j in range(n):
        s.marks[items[j]] = s.mark
        s.position[items[j]] = <int32_t>j
        s.confidence[j] = 1.0 + (weight if values == NULL else weight * values[j])


cdef int64_t _report(
    Scratch* s, const FMFRound* plan, const FMFNormal* normal, const int32_t* items, Py_ssize_t n_user_items,
    bint is_weighted,
) noexcept nogil:
    """Draw the next user's coordinates and answers; return the number of clipped values."""
    cdef FMFUser user
    user.x = s.x
    user.items = items
    user.n_user_items = n_user_items
    user.marks = s.marks
    user.position = s.position
    user.confidence = NULL
    if is_weighted:
        user.confidence = s.confidence
    user.mark = s.mark
    if normal.length:
        return fmf_normalized_reports(
            plan[0], normal[0], user, streams_next(&s.streams), s.gradient, s.coordinates, s.answers
        )
    return fmf_reports(plan[0], user, streams_next(&s.streams), s.coordinates, s.answers)


cdef void _pad_rows(
    const floating* item_factors, const double* inverse, double* rows, FMFRound* plan
) noexcept nogil:
    """Arrays that all users read, in rows of `width` doubles."""
    # The memory has V, then the columns of M = R^-T, then its rows, with zeros up to `width`.
    cdef Py_ssize_t width = plan.width, n_factors = plan.n_factors, item, f, g
    cdef double* columns = rows + plan.n_items * width
    for item in range(plan.n_items):
        for f in range(n_factors):
            rows[item * width + f] = item_factors[item * n_factors + f]
    for f in range(n_factors):
        for g in range(n_factors):
            columns[f * width + g] = inverse[f * n_factors + g]
            columns[(n_factors + f) * width + g] = inverse[g * n_factors + f]
    plan.rows = rows
    plan.columns = columns
    plan.inverse = columns + n_factors * width


def private_round(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const double[::1] values,             # IN  (n_interactions,) or (0,) where all are 1
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), V'V + reg I = R'R; where weight is 0, R^-1
    const float[:, ::1] columns,          # IN  (n_factors, length), V'; (0, 0) where gradients are not normalised
    const float[:, ::1] signs,            # IN  the same shape
    const float[:, ::1] mix,              # IN  (n_columns, n_factors), likewise
    const uint64_t[::1] users,            # IN  (n_users,), global user ids
    const uint32_t[::1] subkey,           # IN  (8,)
    int64_t[:, ::1] sums,                 # OUT (n_threads, coordinates), zeros; sum of +-1 answers
    int64_t[::1] report_coordinates,      # OUT (n_users * n_reports,) or (0,) where only sums are wanted
    uint8_t[::1] report_bits,             # OUT the same length, 1 for +
    int64_t[::1] clipped,                 # OUT (n_threads,), zeros; number of clipped values
    int64_t[::1] failed,                  # OUT (n_threads,), zeros; 1 where a thread had no memory
    double confidence_weight,
    double gradient_scale,
    int64_t span,
    Py_ssize_t n_reports,
    int n_passes,
    bint is_padded,           # whether a user's time does not depend on the number of items; the weight is 0
    uint32_t round_number,
    int n_threads,
):
    """Compute all reports of a shard, added up by coordinate (integers, so in any order) or written out singly."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_chunks = (n_users + CHUNK - 1) // CHUNK, chunk
    cdef bint is_weighted = confidence_weight != 0.0
    cdef AlsProblem[double] problem
    cdef const AlsProblem[double]* weighted_problem = NULL
    cdef double* padded_gram
    cdef const int32_t* items = NULL
    cdef int64_t* totals = NULL
    cdef int64_t* coordinates = NULL
    cdef uint8_t* bits = NULL
    cdef void* memory
    cdef Scratch* scratch
    cdef FMFRound plan
    cdef FMFNormal normal
    cdef int thread
    if indices.shape[0]:
        items = &indices[0]
    if sums.shape[1]:
        totals = &sums[0, 0]
    if report_bits.shape[0]:
        coordinates, bits = &report_coordinates[0], &report_bits[0]
    if n_users == 0:
        return
    plan.n_items, plan.n_factors, plan.n_reports = item_factors.shape[0], item_factors.shape[1], n_reports
    plan.width = padded_stride(plan.n_factors) if is_weighted else (plan.n_factors + 7) // 8 * 8
    plan.scale, plan.span, plan.is_padded = gradient_scale, span, is_padded
    normal.length, normal.n_columns = columns.shape[1], mix.shape[0]
    normal.n_passes, normal.scale = n_passes, gradient_scale
    normal.n_rows = normal.length if n_passes else plan.n_items
    if normal.length:
        normal.rows, normal.signs, normal.mix = &columns[0, 0], &signs[0, 0], &mix[0, 0]
    memory = calloc((plan.n_items + 2 * plan.n_factors + plan.width) * plan.width * sizeof(double) + LINE, 1)
    if memory == NULL:
        failed[0] = 1
        return
    _pad_rows(&item_factors[0, 0], &gram[0, 0], <double*>aligned(memory), &plan)
    if is_weighted:
        padded_gram = <double*>plan.inverse + plan.n_factors * plan.width
        pad_gram(&gram[0, 0], plan.n_factors, plan.width, padded_gram)
        problem.indptr, problem.indices = &indptr[0], items
        problem.values = NULL
        if values.shape[0]:
            problem.values = &values[0]
        problem.item_factors, problem.gram, problem.wide_gram = plan.rows, padded_gram, padded_gram
        problem.ridges = NULL
        problem.whitened = NULL
        problem.rotation = NULL
        problem.n_factors, problem.stride = <int>plan.n_factors, <int>plan.width
        problem.weight = confidence_weight
        weighted_problem = &problem
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = <Scratch*>malloc(sizeof(Scratch))
        if scratch == NULL or not _allocate(scratch, &plan, &normal, is_weighted):
            failed[thread] = 1
        # A chunk of users belongs to one thread: it has a row of `sums`, and each user has a separate range of reports.
        for chunk in prange(n_chunks, schedule="dynamic"):
            if not failed[thread]:
                clipped[thread] += _report_chunk(
                    scratch,
                    &plan,
                    &normal,
                    weighted_problem,
                    &gram[0, 0],
                    &indptr[0],
                    items,
                    &users[0],
                    &subkey[0],
                    totals + thread * sums.shape[1],
                    coordinates,
                    bits,
                    round_number,
                    chunk * CHUNK,
                    min(n_users, (chunk + 1) * CHUNK),
                )
        if scratch != NULL:
            _release(scratch)
        free(scratch)
    free(memory)


cdef int64_t _report_chunk(
    Scratch* s,
    const FMFRound* plan,
    const FMFNormal* normal,
    const AlsProblem[double]* problem,  # NULL where the weight is 0
    const double* gram,
    const int64_t* indptr,
    const int32_t* items,
    const uint64_t* users,
    const uint32_t* subkey,
    int64_t* sums,            # IN/OUT, unless single reports are wanted
    int64_t* coordinates,     # OUT of all users; NULL where sums are wanted
    uint8_t* bits,            # OUT likewise
    uint32_t round_number,
    Py_ssize_t start,
    Py_ssize_t stop,
) noexcept nogil:
    """Solve, report and add up for some users; return the number of clipped values."""
    cdef Py_ssize_t k = plan.n_reports, u, r
    cdef int64_t clipped = 0
    cdef double weight = 0.0
    cdef const double* values = NULL
    cdef const double* user_values = NULL
    if problem != NULL:
        weight, values = problem.weight, problem.values
        _solve_weighted(s, problem, gram, start, stop)
    streams_open(&s.streams, subkey, round_number, users + start, stop - start)
    for u in range(start, stop):
        if values != NULL:
            user_values = values + indptr[u]
        _solve_and_mark(
            s, plan, items + indptr[u], user_values, indptr[u + 1] - indptr[u], weight,
            s.weighted + (u - start) * plan.n_factors,
        )
        clipped += _report(s, plan, normal, items + indptr[u], indptr[u + 1] - indptr[u], weight != 0.0)
        # Coordinates are below n_items n_factors (or n_rows n_columns), the size of `sums`.
        if coordinates == NULL:
            for r in range(k):
                sums[s.coordinates[r]] += s.answers[r]
        else:
            memcpy(coordinates + u * k, s.coordinates, k * sizeof(int64_t))
            for r in range(k):
                bits[u * k + r] = s.answers[r] > 0
    return clipped


def gradient_sums(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] inverse,         # IN  (n_factors, n_factors), R^-1 with V'V + reg I = R'R
    const float[:, ::1] columns,          # IN  (n_factors, length), V'; zeros beyond the items
    int64_t[:, :, ::1] sums,              # OUT (n_threads, n_factors, length), zeros
    int64_t[::1] failed,                  # OUT (n_threads,), zeros; 1 where a thread had no memory
    double scale,
    int n_threads,
):
    """Sum the gradients of norm 1 of users in integers, at confidence weight 0: each is at most scale^2."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u
    cdef const int32_t* items = NULL
    cdef void* memory
    cdef Scratch* scratch
    cdef FMFRound plan
    cdef FMFNormal normal
    cdef int thread
    if indices.shape[0] == 0:
        return                # a user without items has no gradient
    items = &indices[0]
    plan.n_items, plan.n_factors, plan.n_reports = item_factors.shape[0], item_factors.shape[1], 1
    plan.width, plan.is_padded = (plan.n_factors + 7) // 8 * 8, False
    normal.length, normal.rows, normal.scale = columns.shape[1], &columns[0, 0], scale
    memory = calloc((plan.n_items + 2 * plan.n_factors) * plan.width * sizeof(double) + LINE, 1)
    if memory == NULL:
        failed[0] = 1
        return
    _pad_rows(&item_factors[0, 0], &inverse[0, 0], <double*>aligned(memory), &plan)
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = <Scratch*>malloc(sizeof(Scratch))
        if scratch == NULL or not _allocate(scratch, &plan, &normal, False):
            failed[thread] = 1
        # Each thread adds to separate sums; integers may be added in any order.
        for u in prange(n_users, schedule="dynamic", chunksize=CHUNK):
            if not failed[thread]:
                _solve_and_mark(scratch, &plan, items + indptr[u], NULL, indptr[u + 1] - indptr[u], 0.0, NULL)
                _add_gradient(
                    scratch, &plan, &normal, items + indptr[u], indptr[u + 1] - indptr[u], &sums[thread, 0, 0]
                )
        if scratch != NULL:
            _release(scratch)
        free(scratch)
    free(memory)


cdef void _add_gradient(
    Scratch* s, const FMFRound* plan, const FMFNormal* normal, const int32_t* items, Py_ssize_t n_user_items,
    int64_t* sums,
) noexcept nogil:
    cdef FMFUser user
    cdef double x_square = 0.0
    cdef Py_ssize_t f
    for f in range(plan.n_factors):
        x_square += s.x[f] * s.x[f]
    if not x_square > MIN_SQUARE:
        return                # squares below have lost digits, and with them the bound on the gradient's norm
    user.x = s.x
    user.items = items
    user.n_user_items = n_user_items
    user.confidence = NULL
    fmf_add_gradient(plan[0], normal[0], user, s.gradient, sums)


def interaction_gradient(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] user_factors,    # IN  (n_users, n_factors)
    double[:, :, ::1] out,                # OUT (n_blocks, n_items, n_factors), zeros
    double confidence_weight,
    int n_threads,
):
    """Compute the part of the interactions in the summed half gradient, by user block: sum_u ((c-1) x_u'v_i - c) x_u.

    The other part, sum_u (x_u'v_i) x_u over all items, is (X'X) v_i, which the caller adds.
    """
    cdef Py_ssize_t n_blocks = out.shape[0], n_users = indptr.shape[0] - 1, b
    cdef const floating* data = NULL
    if values.shape[0]:
        data = &values[0]
    if indices.shape[0] == 0:
        return
    # A block of users belongs to one thread, and has a separate `out`; blocks do not depend on n_threads.
    for b in prange(n_blocks, nogil=True, schedule="static", chunksize=1, num_threads=n_threads):
        _gradient_block(
            &indptr[0], &indices[0], data, &item_factors[0, 0], &user_factors[0, 0], &out[b, 0, 0],
            b * n_users // n_blocks, (b + 1) * n_users // n_blocks, item_factors.shape[1], confidence_weight,
        )


cdef void _gradient_block(
    const int64_t* indptr, const int32_t* indices, const floating* values, const floating* item_factors,
    const double* user_factors, double* out, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t n_factors, double weight,
) noexcept nogil:
    cdef Py_ssize_t u, j, f
    cdef const double* x
    cdef const floating* v
    cdef double extra, coefficient
    for u in range(start, stop):
        x = user_factors + u * n_factors
        # i in I_u: out_i += ((c - 1) x'v_i - c) x, with c - 1 = weight r_ui.
        for j in range(indptr[u], indptr[u + 1]):
            v = item_factors + indices[j] * n_factors
            extra = weight if values == NULL else weight * values[j]
            coefficient = 0.0
            for f in range(n_factors):
                coefficient += x[f] * v[f]
            coefficient = extra * coefficient - (1.0 + extra)
            for f in range(n_factors):
                out[indices[j] * n_factors + f] += coefficient * x[f]
