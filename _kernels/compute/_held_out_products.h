// Inner products of 16-bit numbers, by which `_held_out.cpp` ranks items; it is compiled with that file for each level.
#pragma once
#include "_kernels/compute/_held_out.h"

#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

typedef int32_t Sums __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t FourSums __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));

template <class Vector>
static inline Vector load(const void* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <class Vector>
static inline void store(void* to, const Vector& v) {
    __builtin_memcpy(to, &v, sizeof v);
}

// Returns the products of 16-bit numbers, with the sum of each two.
template <class Vector>
static inline Vector add_pairs(Vector a, Vector b) {
#if defined(__AVX512BW__)
    if constexpr (sizeof(Vector) == 64) return (Vector)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#endif
#if defined(__AVX2__)
    if constexpr (sizeof(Vector) == 32) return (Vector)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
#if defined(__SSE2__)
    if constexpr (sizeof(Vector) == 16) return (Vector)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
}

// Adds up the 16 bytes of each of four vectors, within each 16 bytes: the result has one sum for each vector.
template <class Vector>
static inline Vector add_quarters(const Vector rows[4]) {
    if constexpr (sizeof(Vector) == 16) {
        const FourSums ab = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5) +
                            __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
        const FourSums cd = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5) +
                            __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
        return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    } else {
        const U32 a = (U32)rows[0], b = (U32)rows[1], c = (U32)rows[2], d = (U32)rows[3];
        const U32 ab = interleave_low(a, b) + interleave_high(a, b), cd = interleave_low(c, d) + interleave_high(c, d);
        return (Vector)(interleave_low_pairs(ab, cd) + interleave_high_pairs(ab, cd));
    }
}

// Adds up the parts of 16 bytes of a vector.
template <class Vector>
static inline FourSums add_parts(const Vector& v) {
    FourSums parts[sizeof(Vector) / 16];
    __builtin_memcpy(parts, &v, sizeof v);
    for (int i = sizeof(Vector) / 32; i; i /= 2)
        for (int j = 0; j < i; ++j) parts[j] += parts[j + i];
    return parts[0];
}

// Adds up the parts of as many vectors as a vector has parts, side by side.
template <class Vector>
static inline Vector add_parts_of_each(const Vector* v) {
    if constexpr (sizeof(Vector) == 64) {
        const auto add = [](const Vector& a, const Vector& b) {
            return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                   __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
        };
        return add(add(v[0], v[1]), add(v[2], v[3]));
    } else if constexpr (sizeof(Vector) == 32) {
        return __builtin_shufflevector(v[0], v[1], 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(v[0], v[1], 4, 5, 6, 7, 12, 13, 14, 15);
    } else {
        return v[0];
    }
}

// Computes inner products of the quantized row x and n of `items`, with their steps. A vector of products that are
// below any score follows. Rows have N vectors, or n_vectors if N is 0: a constant number keeps x in registers.
template <class Vector, int N>
static void quantized_products(const int16_t* x, const int16_t* items, const float* steps, ptrdiff_t n_vectors,
                               const int32_t* columns, ptrdiff_t n, int32_t* out, float* out_steps) {
    enum { LANES = sizeof(Vector) / sizeof(int16_t), PARTS = sizeof(Vector) / sizeof(FourSums) };
    const ptrdiff_t n_known = N ? N : n_vectors;
    Vector x_vectors[N ? N : 1];
    for (int v = 0; v < N; ++v) x_vectors[v] = load<Vector>(x + v * LANES);
    const auto four = [&](const int32_t* four_columns, float* four_steps) __attribute__((always_inline)) {
        const int16_t* rows[4];
        for (int r = 0; r < 4; ++r) {
            const ptrdiff_t column = four_columns[r];
            rows[r] = items + LANES * n_known * column;
            four_steps[r] = steps[column];
        }
        Vector sums[4] = {};
        for (ptrdiff_t v = 0; v < n_known; ++v)
            for (int r = 0; r < 4; ++r)
                sums[r] += add_pairs(N ? x_vectors[v] : load<Vector>(x + v * LANES), load<Vector>(rows[r] + v * LANES));
        return add_quarters(sums);
    };
    ptrdiff_t i = 0;
    for (; i + 4 * PARTS <= n; i += 4 * PARTS) {
        Vector sums[PARTS];
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) sums[p] = four(columns + i + 4 * p, out_steps + i + 4 * p);
        store(out + i, add_parts_of_each(sums));
    }
    for (; i < n; i += 4) {
        int32_t last[4] = {};
        for (int r = 0; r < 4 && i + r < n; ++r) last[r] = columns[i + r];
        store(out + i, add_parts(four(last, out_steps + i)));
    }
    store(out + n, INT32_MIN / 2 - Sums{});
    store(out_steps + n, 1e30f - Floats{});
}

static inline void quantized_products(const int16_t* x, const int16_t* items, const float* steps, ptrdiff_t length,
                                      const int32_t* columns, ptrdiff_t n, int32_t* out, float* out_steps) {
    enum { LINE = HELD_OUT_LINE / VECTOR_BYTES };
    const ptrdiff_t bytes = length * sizeof(int16_t);
    const auto function = bytes == 16    ? quantized_products<FourSums, 1>
                          : bytes == 32  ? quantized_products<FourSums, 2>
                          : bytes == 64  ? quantized_products<Sums, LINE>
                          : bytes == 128 ? quantized_products<Sums, 2 * LINE>
                                         : quantized_products<Sums, 0>;
    function(x, items, steps, bytes / VECTOR_BYTES, columns, n, out, out_steps);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
