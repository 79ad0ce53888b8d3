// Binary response of a real t in [-1, 1] by a 64-bit comparison
// (docs/explanation/mechanisms/channels/binary-response.md).
//
// P(+) = threshold / 2^64 with threshold = 2^63 + offset, offset = t * span rounded toward 0 and clamped to
// [-span, span]; `span` is T - 2^63 for the channel's largest threshold T.  For every rounding error of t, the
// threshold stays in [2^64 - T, T], so epsilon = log(T / (2^64 - T)) holds for this code.  A value that is not finite
// counts as 0: whether a client answers must not depend on its data.
//
// Each operation is exact, or rounded once by IEEE rules, so all levels give the same integers. From AVX2 on,
// operations use vectors without a branch: code for single values took two to three times as long, and with AVX2,
// compilers would otherwise generate branches that cannot be predicted.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_branchless.h"
#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Returns +1 if the word is below the threshold, else -1.
static inline int response(uint64_t word, uint64_t threshold) {
#if defined(__AVX2__)
    return word < threshold ? 1 : -1;
#else
    // The borrow of word - threshold is computed from bits, because a comparison became a branch that cannot be
    // predicted.
    return 2 * (int)(((~word & threshold) | (~(word ^ threshold) & (word - threshold))) >> 63) - 1;
#endif
}

#if defined(__AVX2__)

enum { RESPONSES = VECTOR_BYTES / 8 };
typedef int64_t I64 __attribute__((vector_size(VECTOR_BYTES)));

// Converts doubles from 0 to below 2^63 to integers, rounded toward 0.
static inline I64 truncate(F64 values) {
#if defined(__AVX512DQ__)
    return (I64)_mm512_cvttpd_epi64((__m512d)values);
#else
    // Without such an instruction, the significand is shifted by the exponent, and a shift by 64 or more (or less than
    // 0) gives 0.
    const U64 left = ((U64)values >> 52) - 1075, significand = ((U64)values & 0xfffffffffffff) | 0x10000000000000;
    return (I64)_mm256_sllv_epi64((__m256i)significand, (__m256i)left) |
           (I64)_mm256_srlv_epi64((__m256i)significand, (__m256i)-left);
#endif
}

// Returns the larger of each number and the least normal one, and the latter for NaN.
static inline F64 at_least_normal(F64 numbers) {
#if defined(__AVX512F__)
    return (F64)_mm512_max_pd((__m512d)numbers, _mm512_set1_pd(__DBL_MIN__));
#else
    return (F64)_mm256_max_pd((__m256d)numbers, _mm256_set1_pd(__DBL_MIN__));
#endif
}

// Returns thresholds minus 2^63.
static inline I64 response_offsets(F64 t, int64_t span) {
    // |t|, or the least normal number if |t| is below or NaN: both have offset 0, and products with a number below the
    // normal range take longer.
    const F64 size = at_least_normal((F64)((U64)t & ~SIGN_BIT));
    // Infinity is neither inside nor finite, and has offset 0 as well, a fair coin.
    const I64 is_inside = (I64)(size < 1.0), is_finite = (I64)(size <= __DBL_MAX__), sign = (I64)t < 0;
    // Inside means |t| <= 1 - 2^-53, so the product is below 2^63 even if span rounds up to that as a double.
    I64 offset = FASTFEDREC_LEVEL::truncate((F64)(is_inside & (I64)size) * (double)span);
    // The offset is at most span, for every rounding of the double of span.
    offset = offset > span ? I64{} + span : offset;
    // For finite |t| >= 1 the offset is span.
    offset |= ~is_inside & is_finite & span;
    // The offset gets the sign of t, in two's complement.
    return (offset ^ sign) - sign;
}

// Writes answers, +1 or -1, for the values of a vector.
template <class Answer>
static inline void respond_vector(F64 t, U64 words, int64_t span, Answer* answers) {
    // word < 2^63 + offset is compared as signed integers, both minus 2^63. The result is -1 or 1.
    const I64 offsets = response_offsets(t, span), centred = (I64)(words ^ ((uint64_t)1 << 63));
    const I64 wide = (I64)(centred >= offsets) | 1;
    if constexpr (sizeof(Answer) == 8) {
        __builtin_memcpy(answers, &wide, sizeof wide);
    } else {
#if defined(__AVX512F__)
        _mm_storel_epi64((__m128i*)answers, _mm512_cvtepi64_epi8((__m512i)wide));
#else
        // The bytes of each half come first; then the lower and the upper half are joined.
        const __m256i bytes = _mm256_shuffle_epi8((__m256i)wide, _mm256_set1_epi16(0x0800));
        const uint32_t four = (uint32_t)_mm_cvtsi128_si32(
            _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
        __builtin_memcpy(answers, &four, sizeof four);
#endif
    }
}

static inline F64 load_values(const double* values) {
    F64 t;
    __builtin_memcpy(&t, values, sizeof t);
    return t;
}

static inline F64 load_values(const float* values) {
#if defined(__AVX512F__)
    return (F64)_mm512_cvtps_pd(_mm256_loadu_ps(values));
#else
    return (F64)_mm256_cvtps_pd(_mm_loadu_ps(values));
#endif
}

// Writes answers, +1 or -1, for n values.
template <class Real, class Answer>
static inline void responses(const Real* values, const uint64_t* words, ptrdiff_t n, int64_t span, Answer* answers) {
    U64 word;
    for (; n >= RESPONSES; n -= RESPONSES, values += RESPONSES, words += RESPONSES, answers += RESPONSES) {
        // Whole vectors come first, then the last values and zeros; answers for zeros are not copied.
        __builtin_memcpy(&word, words, sizeof word);
        respond_vector(load_values(values), word, span, answers);
    }
    if (n <= 0) return;
    Real last[RESPONSES] = {};
    Answer last_answers[RESPONSES];
    word = U64{};
    __builtin_memcpy(last, values, n * sizeof(Real));
    __builtin_memcpy(&word, words, n * sizeof(uint64_t));
    respond_vector(load_values(last), word, span, last_answers);
    __builtin_memcpy(answers, last_answers, n * sizeof(Answer));
}

static inline uint64_t response_threshold(double t, int64_t span) {
    return ((uint64_t)1 << 63) + (uint64_t)response_offsets(F64{} + t, span)[0];
}

#else

static inline uint64_t response_threshold(double t, int64_t span) {
    // As `response_offsets`.
    const uint64_t bits = bits_of(t), sign = 0 - (bits >> 63), limit = (uint64_t)span;
    const uint64_t size = bits & ~SIGN_BIT & ~mask_below(bits & ~SIGN_BIT, NORMAL_BITS);
    const uint64_t is_inside = mask_below(size, ONE_BITS), is_finite = mask_below(size, INFINITE_BITS);
    uint64_t offset = (uint64_t)(int64_t)(number_of(size & is_inside) * (double)span);
    offset = choose(mask_below(offset, limit), offset, limit);
    offset = choose(is_inside, offset, is_finite & limit);
    return ((uint64_t)1 << 63) + ((offset ^ sign) - sign);
}

template <class Real, class Answer>
static inline void responses(const Real* values, const uint64_t* words, ptrdiff_t n, int64_t span, Answer* answers) {
    for (ptrdiff_t i = 0; i < n; ++i) answers[i] = (Answer)response(words[i], response_threshold(values[i], span));
}

#endif

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
