"""The C API (docs/how-to/compiled-code.md): functions of other kernels, for code that calls them without Python.

`fastfedrec/include/fastfedrec.h` documents each function.  C reads them from `table`; Cython, by `capi.pxd`, and Numba
by their names.  Inputs are trusted.
"""
from cpython.pycapsule cimport PyCapsule_New
from cython cimport floating
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from _kernels.compute._als_problem cimport (
    ALIGNMENT, ALS_ITEMS_AT_ONCE, USERS_AT_ONCE, AlsProblem, aligned, als_scratch_bytes, als_whiten,
    als_whitened_weight, exact_scratch_bytes, open_problem, open_whitened, solve_some,
)
from _kernels.core._bounded_stream cimport BoundedStream, bounded_left, bounded_open, bounded_refill
from _kernels.core._chacha20 cimport mulhi64
from _kernels.mechanisms._clip_row cimport clip_row
from _kernels.mechanisms.noise._search cimport find, find_tied

include "_kernels/core/_level.pxi"

cdef extern from "Python.h" nogil:
    void Py_FatalError(const char* message) noexcept

cdef extern from "_kernels/mechanisms/channels/_binary_response.h" namespace "fastfedrec" nogil:
    void respond(const double* values, const uint64_t* words, Py_ssize_t n, int64_t span, int8_t* out) noexcept

cdef extern from "_kernels/mechanisms/noise/_exact_sampling.h" namespace "fastfedrec" nogil:
    int64_t draw_laplace "fastfedrec::draw_one<fastfedrec::Laplace>"(
        const uint64_t* numbers, BoundedStream* stream, void (*ended)() noexcept nogil
    ) noexcept
    int64_t draw_gaussian "fastfedrec::draw_one<fastfedrec::Gaussian>"(
        const uint64_t* numbers, BoundedStream* stream, void (*ended)() noexcept nogil
    ) noexcept

cdef extern from "fastfedrec/include/fastfedrec.h" nogil:
    const uint32_t FASTFEDREC_API_VERSION
    const char* FASTFEDREC_API_NAME
    ctypedef struct fastfedrec_table:
        uint32_t (*version)() noexcept
        size_t (*stream_bytes)() noexcept
        void (*stream_open)(void*, const uint32_t*, uint32_t, uint64_t) noexcept
        uint64_t (*stream_left)(const void*) noexcept
        uint64_t (*stream_next)(void*) noexcept
        int (*stream_read)(void*, uint64_t*, int64_t) noexcept
        double (*stream_uniform)(void*) noexcept
        uint64_t (*stream_below)(void*, uint64_t) noexcept
        int (*binary_response)(void*, double, int64_t) noexcept
        int (*binary_responses)(void*, const double*, int64_t, int64_t, int8_t*) noexcept
        void (*binary_answers)(const double*, const uint64_t*, int64_t, int64_t, int8_t*) noexcept
        int64_t (*discrete_laplace)(void*, const uint64_t*) noexcept
        int64_t (*discrete_gaussian)(void*, const uint64_t*) noexcept
        int64_t (*table_noise)(void*, const uint64_t*, const uint64_t*, const int32_t*, int64_t, int) noexcept
        int (*clip_row_f)(const float*, float*, int64_t, double, int) noexcept
        int (*clip_row_d)(const double*, double*, int64_t, double, int) noexcept
        void* (*als_open_f)(const float*, const double*, int64_t, int64_t, double, int) noexcept
        void* (*als_open_d)(const double*, const double*, int64_t, int64_t, double, int) noexcept
        size_t (*als_scratch_bytes)(const void*) noexcept
        int64_t (*als_n_factors)(const void*) noexcept
        int64_t (*als_solve_f)(
            const void*, const int64_t*, const int32_t*, const float*, int64_t, int64_t, void*, float*
        ) noexcept
        int64_t (*als_solve_d)(
            const void*, const int64_t*, const int32_t*, const double*, int64_t, int64_t, void*, double*
        ) noexcept
        void (*als_close)(void*) noexcept

cdef enum:
    MAX_FACTORS = 256

VERSION = FASTFEDREC_API_VERSION


cdef api uint32_t ffr_version() noexcept nogil:
    return FASTFEDREC_API_VERSION


# ---- streams --------------------------------------------------------------------------------------------------------


cdef void _stop() noexcept nogil:
    """Stop the process: the caller of a single draw has no error to check, and further words would repeat."""
    Py_FatalError("fastfedrec: a stream has ended after 2**35 words; open one of another purpose, round or user")


cdef inline void _refill(BoundedStream* stream) noexcept nogil:
    if not bounded_refill(stream):
        _stop()


cdef inline uint64_t _next(BoundedStream* stream) noexcept nogil:
    if stream.position == stream.end:
        _refill(stream)
    stream.position += 1
    return stream.buffer[stream.position - 1]


cdef api size_t ffr_stream_bytes() noexcept nogil:
    return sizeof(BoundedStream)


cdef api void ffr_stream_open(
    void* stream, const uint32_t* subkey, uint32_t round_number, uint64_t user
) noexcept nogil:
    bounded_open(<BoundedStream*>stream, subkey, round_number, user)


cdef api uint64_t ffr_stream_left(const void* stream) noexcept nogil:
    return bounded_left(<const BoundedStream*>stream)


cdef api uint64_t ffr_stream_next(void* stream) noexcept nogil:
    return _next(<BoundedStream*>stream)


cdef api int ffr_stream_read(void* stream, uint64_t* words, int64_t n) noexcept nogil:
    cdef BoundedStream* source = <BoundedStream*>stream
    cdef int64_t size
    if <uint64_t>n > bounded_left(source):  # a negative number is larger, too
        return -1
    while n > 0:
        if source.position == source.end:
            _refill(source)
        size = min(n, <int64_t>(source.end - source.position))
        memcpy(words, source.buffer + source.position, size * sizeof(uint64_t))
        source.position += <int>size
        words += size
        n -= size
    return 0


cdef api double ffr_stream_uniform(void* stream) noexcept nogil:
    # As `stream_uniform` of _chacha20.pxd: 52 bits, at the middles of their cells.
    return (<double>(_next(<BoundedStream*>stream) >> 12) + 0.5) * 2.220446049250313e-16


cdef api uint64_t ffr_stream_below(void* stream, uint64_t bound) noexcept nogil:
    return mulhi64(_next(<BoundedStream*>stream), bound)


# ---- binary response ------------------------------------------------------------------------------------------------


cdef api int ffr_binary_response(void* stream, double value, int64_t span) noexcept nogil:
    cdef uint64_t word = _next(<BoundedStream*>stream)
    cdef int8_t answer
    respond(&value, &word, 1, span, &answer)
    return answer


cdef api int ffr_binary_responses(
    void* stream, const double* values, int64_t n, int64_t span, int8_t* out
) noexcept nogil:
    cdef BoundedStream* source = <BoundedStream*>stream
    cdef int64_t size
    if <uint64_t>n > bounded_left(source):
        return -1
    while n > 0:
        if source.position == source.end:
            _refill(source)
        size = min(n, <int64_t>(source.end - source.position))
        respond(values, source.buffer + source.position, size, span, out)
        source.position += <int>size
        values += size
        out += size
        n -= size
    return 0


cdef api void ffr_binary_answers(
    const double* values, const uint64_t* words, int64_t n, int64_t span, int8_t* out
) noexcept nogil:
    respond(values, words, n, span, out)


# ---- integer noise --------------------------------------------------------------------------------------------------


cdef api int64_t ffr_discrete_laplace(void* stream, const uint64_t* numbers) noexcept nogil:
    return draw_laplace(numbers, <BoundedStream*>stream, _stop)


cdef api int64_t ffr_discrete_gaussian(void* stream, const uint64_t* numbers) noexcept nogil:
    return draw_gaussian(numbers, <BoundedStream*>stream, _stop)


cdef api int64_t ffr_table_noise(
    void* stream, const uint64_t* high, const uint64_t* low, const int32_t* guide, int64_t n, int shift
) noexcept nogil:
    cdef uint64_t word = _next(<BoundedStream*>stream)
    cdef Py_ssize_t count = find(high, guide, shift, word)
    if high[count] == word:  # a tie: the next word is its low half
        count = find_tied(high, low, n, count, word, _next(<BoundedStream*>stream))
    return count - n // 2


# ---- clipping -------------------------------------------------------------------------------------------------------


cdef api int ffr_clip_row_f(const float* row, float* out, int64_t n, double bound, int order) noexcept nogil:
    return clip_row(row, out, n, bound, order)


cdef api int ffr_clip_row_d(const double* row, double* out, int64_t n, double bound, int order) noexcept nogil:
    return clip_row(row, out, n, bound, order)


# ---- ALS ------------------------------------------------------------------------------------------------------------

cdef struct Handle:
    void* problem             # AlsProblem[float] or AlsProblem[double], without users
    void* memory              # of its arrays
    void* whitened
    double* gram              # (n_factors, n_factors), for users that are solved in double
    size_t scratch_bytes
    size_t exact_bytes        # of these, for such a user
    size_t real_bytes         # of a factor
    int64_t n_factors


cdef void* _als_open(
    const floating* item_factors, const double* gram, int64_t n_items, int64_t n_factors, double weight,
    bint has_values,
) noexcept nogil:
    cdef Handle* handle = <Handle*>calloc(1, sizeof(Handle))
    cdef AlsProblem[floating]* problem = <AlsProblem[floating]*>calloc(1, sizeof(AlsProblem[floating]))
    cdef size_t gram_bytes = n_factors * n_factors * sizeof(double)
    cdef double max_weight
    cdef void* scratch
    cdef Py_ssize_t first
    if handle == NULL or problem == NULL or not 1 <= n_factors <= MAX_FACTORS:
        free(handle)
        free(problem)
        return NULL
    handle.problem = problem
    handle.real_bytes = sizeof(floating)
    handle.n_factors = n_factors
    handle.memory = open_problem(problem, item_factors, gram, n_items, n_factors, weight)
    handle.gram = <double*>malloc(gram_bytes)
    if handle.memory == NULL or handle.gram == NULL:
        ffr_als_close(handle)
        return NULL
    memcpy(handle.gram, gram, gram_bytes)
    handle.exact_bytes = exact_scratch_bytes(n_factors)
    handle.scratch_bytes = handle.exact_bytes + als_scratch_bytes(problem.stride) + ALIGNMENT
    # The same condition as in `als.solve_users`.
    max_weight = als_whitened_weight(problem[0])
    if weight == 0.0 or max_weight <= 0.0 or not (has_values or weight <= max_weight) or n_items == 0:
        return handle
    scratch = malloc(handle.scratch_bytes)
    handle.whitened = open_whitened(problem, n_items)
    if scratch == NULL or handle.whitened == NULL:
        free(scratch)
        ffr_als_close(handle)
        return NULL
    if problem.whitened != NULL:
        first = ALS_ITEMS_AT_ONCE
        while first < n_items:
            als_whiten(
                problem[0], first, min(first + ALS_ITEMS_AT_ONCE, <Py_ssize_t>n_items), aligned(scratch),
                <floating*>problem.whitened,
            )
            first += ALS_ITEMS_AT_ONCE
    free(scratch)
    return handle


cdef int64_t _als_solve(
    const Handle* handle, const int64_t* indptr, const int32_t* items, const floating* values, int64_t first,
    int64_t last, void* scratch, floating* out,
) noexcept nogil:
    cdef AlsProblem[floating] problem
    cdef char* memory = aligned(scratch)
    cdef int64_t singular = last, user = first, stop, singular_user
    if handle.real_bytes != sizeof(floating):
        return -1
    problem = (<const AlsProblem[floating]*>handle.problem)[0]
    problem.indptr, problem.indices, problem.values = indptr, items, values
    while user < last:
        stop = min(user + USERS_AT_ONCE, last)
        singular_user = solve_some(
            &problem, handle.gram, user, stop, memory + handle.exact_bytes, <double*>memory,
            out + (user - first) * handle.n_factors,
        )
        if singular_user < stop and singular == last:
            singular = singular_user
        user = stop
    return singular


cdef api void* ffr_als_open_f(
    const float* item_factors, const double* gram, int64_t n_items, int64_t n_factors, double weight, int has_values
) noexcept nogil:
    return _als_open(item_factors, gram, n_items, n_factors, weight, has_values)


cdef api void* ffr_als_open_d(
    const double* item_factors, const double* gram, int64_t n_items, int64_t n_factors, double weight, int has_values
) noexcept nogil:
    return _als_open(item_factors, gram, n_items, n_factors, weight, has_values)


cdef api size_t ffr_als_scratch_bytes(const void* handle) noexcept nogil:
    return (<const Handle*>handle).scratch_bytes


cdef api int64_t ffr_als_n_factors(const void* handle) noexcept nogil:
    return (<const Handle*>handle).n_factors


cdef api int64_t ffr_als_solve_f(
    const void* handle, const int64_t* indptr, const int32_t* items, const float* values, int64_t first, int64_t last,
    void* scratch, float* out,
) noexcept nogil:
    return _als_solve(<const Handle*>handle, indptr, items, values, first, last, scratch, out)


cdef api int64_t ffr_als_solve_d(
    const void* handle, const int64_t* indptr, const int32_t* items, const double* values, int64_t first, int64_t last,
    void* scratch, double* out,
) noexcept nogil:
    return _als_solve(<const Handle*>handle, indptr, items, values, first, last, scratch, out)


cdef api void ffr_als_close(void* handle) noexcept nogil:
    cdef Handle* opened = <Handle*>handle
    if opened != NULL:
        free(opened.problem)
        free(opened.memory)
        free(opened.whitened)
        free(opened.gram)
        free(opened)


# ---- the table for C ------------------------------------------------------------------------------------------------

cdef fastfedrec_table TABLE

TABLE.version = ffr_version
TABLE.stream_bytes = ffr_stream_bytes
TABLE.stream_open = ffr_stream_open
TABLE.stream_left = ffr_stream_left
TABLE.stream_next = ffr_stream_next
TABLE.stream_read = ffr_stream_read
TABLE.stream_uniform = ffr_stream_uniform
TABLE.stream_below = ffr_stream_below
TABLE.binary_response = ffr_binary_response
TABLE.binary_responses = ffr_binary_responses
TABLE.binary_answers = ffr_binary_answers
TABLE.discrete_laplace = ffr_discrete_laplace
TABLE.discrete_gaussian = ffr_discrete_gaussian
TABLE.table_noise = ffr_table_noise
TABLE.clip_row_f = ffr_clip_row_f
TABLE.clip_row_d = ffr_clip_row_d
TABLE.als_open_f = ffr_als_open_f
TABLE.als_open_d = ffr_als_open_d
TABLE.als_scratch_bytes = ffr_als_scratch_bytes
TABLE.als_n_factors = ffr_als_n_factors
TABLE.als_solve_f = ffr_als_solve_f
TABLE.als_solve_d = ffr_als_solve_d
TABLE.als_close = ffr_als_close

table = PyCapsule_New(&TABLE, FASTFEDREC_API_NAME, NULL)
