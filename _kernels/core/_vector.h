// The vectors of one level, in the compilers' portable form, and the few operations that have no operator.
//
// Only files that setup.py compiles for each level may include this file (see _levels.h); everything is static or a
// macro.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX2__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif

typedef uint32_t U32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t U64 __attribute__((vector_size(VECTOR_BYTES)));
typedef float F32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double F64 __attribute__((vector_size(VECTOR_BYTES)));

// Interleaving within each 128 bits: (a0 b0 a1 b1), (a2 b2 a3 b3), and the same of pairs.
#if defined(__AVX512F__)
static inline U32 interleave_low(U32 a, U32 b) { return (U32)_mm512_unpacklo_epi32((__m512i)a, (__m512i)b); }
static inline U32 interleave_high(U32 a, U32 b) { return (U32)_mm512_unpackhi_epi32((__m512i)a, (__m512i)b); }
static inline U32 interleave_low_pairs(U32 a, U32 b) { return (U32)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b); }
static inline U32 interleave_high_pairs(U32 a, U32 b) { return (U32)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
static inline U32 interleave_low(U32 a, U32 b) { return (U32)_mm256_unpacklo_epi32((__m256i)a, (__m256i)b); }
static inline U32 interleave_high(U32 a, U32 b) { return (U32)_mm256_unpackhi_epi32((__m256i)a, (__m256i)b); }
static inline U32 interleave_low_pairs(U32 a, U32 b) { return (U32)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b); }
static inline U32 interleave_high_pairs(U32 a, U32 b) { return (U32)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b); }
#else
static inline U32 interleave_low(U32 a, U32 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
static inline U32 interleave_high(U32 a, U32 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
static inline U32 interleave_low_pairs(U32 a, U32 b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
static inline U32 interleave_high_pairs(U32 a, U32 b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }
#endif

// The even and the odd lanes of two concatenated vectors, and the products of the low 32 bits of lanes.
#if defined(__AVX512F__)
static inline U64 even_lanes(U64 a, U64 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
static inline U64 odd_lanes(U64 a, U64 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
static inline U64 product_of_low_halves(U64 a, U64 b) { return (U64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
static inline U64 even_lanes(U64 a, U64 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
static inline U64 odd_lanes(U64 a, U64 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
static inline U64 product_of_low_halves(U64 a, U64 b) { return (U64)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#else
static inline U64 even_lanes(U64 a, U64 b) { return __builtin_shufflevector(a, b, 0, 2); }
static inline U64 odd_lanes(U64 a, U64 b) { return __builtin_shufflevector(a, b, 1, 3); }
#if defined(__SSE2__)
static inline U64 product_of_low_halves(U64 a, U64 b) { return (U64)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
static inline U64 product_of_low_halves(U64 a, U64 b) { return (a & 0xffffffff) * (b & 0xffffffff); }
#endif
#endif

// Returns a b + c, rounded once if the level has such an instruction (setup.py forbids contraction by the compiler).
template <class Vector>
static inline Vector fused(Vector a, Vector b, Vector c) {
#if defined(__FMA__)
    if constexpr (sizeof(Vector) == 16 && sizeof(a[0]) == 4)
        return (Vector)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
    if constexpr (sizeof(Vector) == 16 && sizeof(a[0]) == 8)
        return (Vector)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c);
    if constexpr (sizeof(Vector) == 32 && sizeof(a[0]) == 4)
        return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    if constexpr (sizeof(Vector) == 32 && sizeof(a[0]) == 8)
        return (Vector)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#endif
#if defined(__AVX512F__)
    if constexpr (sizeof(Vector) == 64 && sizeof(a[0]) == 4)
        return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    if constexpr (sizeof(Vector) == 64 && sizeof(a[0]) == 8)
        return (Vector)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#endif
    return a * b + c;
}

static inline double fused(double a, double b, double c) {
#if defined(__FMA__)
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

// Returns products of unsigned and signed bytes, with the sum of each two, which must fit into 16 bits.
#if defined(__AVX512BW__)
static inline U32 byte_pairs(U32 a, U32 b) { return (U32)_mm512_maddubs_epi16((__m512i)a, (__m512i)b); }
static inline U32 interleave_low_bytes(U32 a, U32 b) { return (U32)_mm512_unpacklo_epi8((__m512i)a, (__m512i)b); }
static inline U32 interleave_high_bytes(U32 a, U32 b) { return (U32)_mm512_unpackhi_epi8((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
static inline U32 byte_pairs(U32 a, U32 b) { return (U32)_mm256_maddubs_epi16((__m256i)a, (__m256i)b); }
static inline U32 interleave_low_bytes(U32 a, U32 b) { return (U32)_mm256_unpacklo_epi8((__m256i)a, (__m256i)b); }
static inline U32 interleave_high_bytes(U32 a, U32 b) { return (U32)_mm256_unpackhi_epi8((__m256i)a, (__m256i)b); }
#endif

// Returns in bit i whether lane i of a is greater than b.
static inline uint64_t greater(F32 a, float b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(b), _CMP_GT_OQ);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, _mm256_set1_ps(b), _CMP_GT_OQ));
#elif defined(__x86_64__)
    return (unsigned)_mm_movemask_ps(_mm_cmpgt_ps((__m128)a, _mm_set1_ps(b)));
#else
    uint64_t bits = 0;
    for (int i = 0; i < VECTOR_BYTES / 4; ++i) bits |= (uint64_t)(a[i] > b) << i;
    return bits;
#endif
}

static inline uint64_t greater(F64 a, double b) {
#if defined(__AVX512F__)
    return _mm512_cmp_pd_mask((__m512d)a, _mm512_set1_pd(b), _CMP_GT_OQ);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, _mm256_set1_pd(b), _CMP_GT_OQ));
#elif defined(__x86_64__)
    return (unsigned)_mm_movemask_pd(_mm_cmpgt_pd((__m128d)a, _mm_set1_pd(b)));
#else
    uint64_t bits = 0;
    for (int i = 0; i < VECTOR_BYTES / 8; ++i) bits |= (uint64_t)(a[i] > b) << i;
    return bits;
#endif
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
