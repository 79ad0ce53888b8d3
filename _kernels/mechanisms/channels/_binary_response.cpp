// See _binary_response.h; compiled once for each level.
#include "_kernels/mechanisms/channels/_binary_response.h"

#include "_kernels/mechanisms/channels/_response_threshold.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

void response_thresholds(const double* values, ptrdiff_t n, int64_t span, uint64_t* __restrict__ out) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = response_threshold(values[i], span);
}

void respond(const double* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* __restrict__ out) {
    responses(values, words, n, span, out);
}

void respond(const float* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* __restrict__ out) {
    responses(values, words, n, span, out);
}

void respond_alike(uint64_t threshold, const uint64_t* words, ptrdiff_t n, int8_t* __restrict__ out) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = (int8_t)response(words[i], threshold);
}

void mark_below(uint64_t threshold, const uint64_t* words, ptrdiff_t n, uint8_t* __restrict__ marks) {
    ptrdiff_t i = 0;
#if defined(__AVX512F__)
    const __m512i bound = _mm512_set1_epi64((int64_t)threshold);
    for (; i + 8 <= n; i += 8) *marks++ = _mm512_cmplt_epu64_mask(_mm512_loadu_si512(words + i), bound);
#elif defined(__AVX2__)
    const uint64_t top = (uint64_t)1 << 63;  // with a flipped sign bit, words compare like signed integers
    U64 half[2];
    for (; i + 8 <= n; i += 8) {
        __builtin_memcpy(half, words + i, sizeof half);
        const I64 low = (I64)(half[0] ^ top) < (int64_t)(threshold ^ top);
        const I64 high = (I64)(half[1] ^ top) < (int64_t)(threshold ^ top);
        *marks++ = (uint8_t)(_mm256_movemask_pd((__m256d)low) | _mm256_movemask_pd((__m256d)high) << 4);
    }
#endif
    for (; i < n; i += 8, ++marks) {
        *marks = 0;
        for (ptrdiff_t j = 0; j < 8 && i + j < n; ++j) *marks |= (uint8_t)((words[i + j] < threshold) << j);
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
