"""One FMF-LDP round over a shard, fused: solve, sampled gradient coordinates, clip, one-bit reports.

Minto et al. 2021, Algorithms 1 and 2, corrected as in docs/explanation/systems/fmf-ldp.md.  For user u and a coordinate
(i, f) drawn uniformly with replacement,

    g = -scale * c_ui * (p_ui - x_u'v_i) * x_uf,      c_ui = 1 + weight * r_ui,    scale = 2 (the gradient)

is evaluated only there, clipped to [-1, 1] and answered by binary response.  Neither users x items nor, per user,
items x factors is ever formed.  Every user reads the stream (subkey, round, global user id): for each report one word
for the coordinate, one for the answer.  Inputs are trusted.
"""
from cython cimport floating
from cython.parallel cimport parallel, prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from _kernels._als cimport solve_user
from _kernels._binary_response cimport respond
from _kernels._chacha20 cimport Stream, stream_below, stream_next, stream_open

include "_level.pxi"

cdef enum:
    MAX_BLOCKS = 8            # user blocks of the float gradient; fixed, so that sums do not depend on n_threads


cdef inline int64_t _report_user(
    const int32_t* items,            # IN  (n,)
    const floating* values,          # IN  of all users, or NULL
    Py_ssize_t start,                # where the user's values begin
    Py_ssize_t n,
    const floating* item_factors,    # IN  (n_items, n_factors)
    Py_ssize_t n_items,
    Py_ssize_t n_factors,
    const double* x,                 # IN  (n_factors,)
    int32_t* position,               # scratch (n_items,), all 0 before and after
    Stream* stream,
    double weight,
    double scale,
    int64_t span,
    Py_ssize_t n_reports,
    int64_t* coordinates,            # OUT (n_reports,)
    uint8_t* bits,                   # OUT (n_reports,), 1 for +
) noexcept nogil:
    """One user's reports; returns how many values were clipped."""
    cdef Py_ssize_t r, j, f, item
    cdef const floating* v
    cdef double prediction, g, confidence, preference
    cdef int64_t coordinate, clipped = 0
    for j in range(n):
        position[items[j]] = <int32_t>(j + 1)
    for r in range(n_reports):
        coordinate = <int64_t>stream_below(stream, <uint64_t>(n_items * n_factors))
        item = coordinate // n_factors
        f = coordinate - item * n_factors
        v = item_factors + item * n_factors
        prediction = 0.0
        for j in range(n_factors):
            prediction += x[j] * v[j]
        j = position[item]
        if j:
            preference = 1.0
            confidence = 1.0 + (weight if values == NULL else weight * values[start + j - 1])
        else:
            preference = 0.0
            confidence = 1.0
        g = scale * confidence * (prediction - preference) * x[f]
        if fabs(g) > 1.0:
            clipped += 1
        coordinates[r] = coordinate
        bits[r] = respond(g, span, stream_next(stream))
    for j in range(n):
        position[items[j]] = 0
    return clipped


def private_round(
    const int64_t[::1] indptr,            # IN  (n_users + 1,)
    const int32_t[::1] indices,           # IN  (n_interactions,)
    const floating[::1] values,           # IN  (n_interactions,) or (0,) where all are 1
    const floating[:, ::1] item_factors,  # IN  (n_items, n_factors)
    const double[:, ::1] gram,            # IN  (n_factors, n_factors), factored where the weight is 0
    const uint64_t[::1] users,            # IN  (n_users,), global user ids
    const uint32_t[::1] subkey,           # IN  (8,)
    int64_t[:, ::1] sums,                 # OUT (n_threads, n_items * n_factors), zeros; sum of +-1 answers
    int64_t[::1] report_coordinates,      # OUT (n_users * n_reports,) or (0,) where only sums are wanted
    uint8_t[::1] report_bits,             # OUT the same length
    int64_t[::1] clipped,                 # OUT (n_threads,), zeros; number of clipped values
    int64_t[::1] failed,                  # OUT (n_threads,), zeros; 1 where a thread had no memory
    double confidence_weight,
    double gradient_scale,
    int64_t span,
    Py_ssize_t n_reports,
    uint32_t round_number,
    int n_threads,
):
    """All reports of a shard, added up by coordinate (integers, so in any order) or written out one by one."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_items = item_factors.shape[0], n_factors = item_factors.shape[1]
    cdef Py_ssize_t u, r
    cdef const floating* data = NULL
    cdef const int32_t* items = NULL
    cdef double* scratch
    cdef double* x
    cdef int32_t* position
    cdef int64_t* coordinates
    cdef uint8_t* bits
    cdef Stream* stream
    cdef int thread
    if values.shape[0]:
        data = &values[0]
    if indices.shape[0]:
        items = &indices[0]
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = <double*>malloc((n_factors + 2) * n_factors * sizeof(double))
        position = <int32_t*>calloc(n_items, sizeof(int32_t))
        coordinates = <int64_t*>malloc(n_reports * sizeof(int64_t))
        bits = <uint8_t*>malloc(n_reports)
        stream = <Stream*>malloc(sizeof(Stream))
        x = scratch + (n_factors + 1) * n_factors
        for u in prange(n_users, schedule="dynamic", chunksize=32):
            if scratch == NULL or position == NULL or coordinates == NULL or bits == NULL or stream == NULL:
                failed[thread] = 1
            else:
                # A system that this user's data make singular counts as no data: whether a client answers must not
                # depend on what it has. The caller has refused item factors that are singular for everybody.
                if not solve_user(
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
                    memset(x, 0, n_factors * sizeof(double))
                stream_open(stream, &subkey[0], round_number, users[u])
                clipped[thread] += _report_user(
                    items + indptr[u],
                    data,
                    indptr[u],
                    indptr[u + 1] - indptr[u],
                    &item_factors[0, 0],
                    n_items,
                    n_factors,
                    x,
                    position,
                    stream,
                    confidence_weight,
                    gradient_scale,
                    span,
                    n_reports,
                    coordinates,
                    bits,
                )
                if report_coordinates.shape[0]:
                    memcpy(&report_coordinates[u * n_reports], coordinates, n_reports * sizeof(int64_t))
                    memcpy(&report_bits[u * n_reports], bits, n_reports)
                else:
                    for r in range(n_reports):
                        sums[thread, coordinates[r]] += 2 * <int64_t>bits[r] - 1
        free(scratch)
        free(position)
        free(coordinates)
        free(bits)
        free(stream)


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
    """The interactions' part of the summed half gradient, by user block: sum_u ((c-1) x_u'v_i - c) x_u.

    The other part, sum_u (x_u'v_i) x_u over all items, is (X'X) v_i, which the caller adds.
    """
    cdef Py_ssize_t n_blocks = out.shape[0], n_users = indptr.shape[0] - 1, b
    cdef const floating* data = NULL
    if values.shape[0]:
        data = &values[0]
    if indices.shape[0] == 0:
        return
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
        for j in range(indptr[u], indptr[u + 1]):
            v = item_factors + indices[j] * n_factors
            extra = weight if values == NULL else weight * values[j]
            coefficient = 0.0
            for f in range(n_factors):
                coefficient += x[f] * v[f]
            coefficient = extra * coefficient - (1.0 + extra)
            for f in range(n_factors):
                out[indices[j] * n_factors + f] += coefficient * x[f]
