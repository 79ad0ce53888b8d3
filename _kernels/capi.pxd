# The C API of fastfedrec for Cython: `from fastfedrec._kernels.capi cimport ffr_stream_open`.
# fastfedrec/include/fastfedrec.h documents each function.  An import checks the signature of each that is cimported;
# check `ffr_version() >> 16 == FFR_VERSION >> 16` before you call others.
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    FFR_VERSION = 0x10000

cdef uint32_t ffr_version() noexcept nogil

cdef size_t ffr_stream_bytes() noexcept nogil
cdef void ffr_stream_open(void* stream, const uint32_t* subkey, uint32_t round_number, uint64_t user) noexcept nogil
cdef uint64_t ffr_stream_left(const void* stream) noexcept nogil
cdef uint64_t ffr_stream_next(void* stream) noexcept nogil
cdef int ffr_stream_read(void* stream, uint64_t* words, int64_t n) noexcept nogil
cdef double ffr_stream_uniform(void* stream) noexcept nogil
cdef uint64_t ffr_stream_below(void* stream, uint64_t bound) noexcept nogil

cdef int ffr_binary_response(void* stream, double value, int64_t span) noexcept nogil
cdef int ffr_binary_responses(void* stream, const double* values, int64_t n, int64_t span, int8_t* out) noexcept nogil
cdef void ffr_binary_answers(
    const double* values, const uint64_t* words, int64_t n, int64_t span, int8_t* out
) noexcept nogil

cdef int64_t ffr_discrete_laplace(void* stream, const uint64_t* numbers) noexcept nogil
cdef int64_t ffr_discrete_gaussian(void* stream, const uint64_t* numbers) noexcept nogil
cdef int64_t ffr_table_noise(
    void* stream, const uint64_t* high, const uint64_t* low, const int32_t* guide, int64_t n, int shift
) noexcept nogil

cdef int ffr_clip_row_f(const float* row, float* out, int64_t n, double bound, int order) noexcept nogil
cdef int ffr_clip_row_d(const double* row, double* out, int64_t n, double bound, int order) noexcept nogil

cdef void* ffr_als_open_f(
    const float* item_factors, const double* gram, int64_t n_items, int64_t n_factors, double weight, int has_values
) noexcept nogil
cdef void* ffr_als_open_d(
    const double* item_factors, const double* gram, int64_t n_items, int64_t n_factors, double weight, int has_values
) noexcept nogil
cdef size_t ffr_als_scratch_bytes(const void* handle) noexcept nogil
cdef int64_t ffr_als_n_factors(const void* handle) noexcept nogil
cdef int64_t ffr_als_solve_f(
    const void* handle, const int64_t* indptr, const int32_t* items, const float* values, int64_t first, int64_t last,
    void* scratch, float* out,
) noexcept nogil
cdef int64_t ffr_als_solve_d(
    const void* handle, const int64_t* indptr, const int32_t* items, const double* values, int64_t first, int64_t last,
    void* scratch, double* out,
) noexcept nogil
cdef void ffr_als_close(void* handle) noexcept nogil
