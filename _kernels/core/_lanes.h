// Vectors of any element and lane count, and the shuffles that turn rows into columns.
//
// Only files that setup.py compiles for each level may include this file (see _levels.h); everything is static and
// inlined.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_vector.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call, because all functions are inlined
#endif

#define FASTFEDREC_INLINE static inline __attribute__((always_inline))
#define FASTFEDREC_MEMBER inline __attribute__((always_inline))

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

template <class T>
struct Native {
    enum { LANES = VECTOR_BYTES / sizeof(T) };
};

template <class T, int N>
struct Vector {
    typedef T Type __attribute__((vector_size(N * sizeof(T))));
};

template <class V, class T>
FASTFEDREC_INLINE V load(const T* from) {
    V x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}

template <class V, class T>
FASTFEDREC_INLINE void store(T* to, const V& x) {
    __builtin_memcpy(to, &x, sizeof x);
}

template <class V, class T>
FASTFEDREC_INLINE V spread(T x) {
    return x - V{};  // an addition of 0 is not possible: 0 + -0 is 0, so compilers could not remove it
}

// Returns a b + c; the compiler splits a vector that is wider than the vectors of the level.
template <class V>
FASTFEDREC_INLINE V multiply_add(const V& a, const V& b, const V& c) {
    if constexpr (sizeof(V) > VECTOR_BYTES) return a * b + c;
    else return fused(a, b, c);
}

// Return lanes a0 b0 a1 b1 ... of the first (low) or second halves of a and b.
template <class V>
FASTFEDREC_INLINE V interleave_low(const V& a, const V& b) {
    constexpr int n = sizeof(V) / sizeof(a[0]);
    if constexpr (n == 2) return __builtin_shufflevector(a, b, 0, 2);
    else if constexpr (n == 4) return __builtin_shufflevector(a, b, 0, 4, 1, 5);
    else if constexpr (n == 8) return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    else return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

template <class V>
FASTFEDREC_INLINE V interleave_high(const V& a, const V& b) {
    constexpr int n = sizeof(V) / sizeof(a[0]);
    if constexpr (n == 2) return __builtin_shufflevector(a, b, 1, 3);
    else if constexpr (n == 4) return __builtin_shufflevector(a, b, 2, 6, 3, 7);
    else if constexpr (n == 8) return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    else return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Transposes N vectors of N lanes.
template <int N, class V>
FASTFEDREC_INLINE void transpose(V* x) {
#pragma GCC unroll 4
    for (int stage = 1; stage < N; stage *= 2) {
        V y[N];
#pragma GCC unroll 8
        for (int i = 0; i < N / 2; ++i) {
            y[2 * i] = interleave_low(x[i], x[i + N / 2]);
            y[2 * i + 1] = interleave_high(x[i], x[i + N / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) x[i] = y[i];
    }
}

// Returns the sums of the lanes of each of N vectors of N lanes; overwrites x.
template <int N, class V>
FASTFEDREC_INLINE V lane_sums(V* x) {
#pragma GCC unroll 4
    for (int half = N / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; ++i) x[i] = interleave_low(x[i], x[i + half]) + interleave_high(x[i], x[i + half]);
    return x[0];
}

// Returns the sums for 8 vectors of 8 or 16 floats, with shuffles that stay within 128 bits as long as they can.
typedef Vector<float, 4>::Type F4;
typedef Vector<float, 8>::Type F8;
typedef Vector<float, 16>::Type F16;

FASTFEDREC_INLINE F8 pair_sums(const F8& a, const F8& b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) +
           __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}

FASTFEDREC_INLINE F16 pair_sums(const F16& a, const F16& b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}

FASTFEDREC_INLINE F4 quarter_sums(const F8& x) {
    return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
}

FASTFEDREC_INLINE F4 quarter_sums(const F16& x) {
    const F8 halves = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                      __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    return quarter_sums(halves);
}

template <class V>
FASTFEDREC_INLINE F8 eight_sums(const V* x) {
    const V even = pair_sums(pair_sums(x[0], x[4]), pair_sums(x[2], x[6]));  // rows 0 2 4 6 in each 128 bits
    const V odd = pair_sums(pair_sums(x[1], x[5]), pair_sums(x[3], x[7]));
    return __builtin_shufflevector(quarter_sums(even), quarter_sums(odd), 0, 4, 1, 5, 2, 6, 3, 7);
}

template <>
inline __attribute__((always_inline)) F8 lane_sums<8, F8>(F8* x) {
    return eight_sums(x);
}

// Returns the sums of the lanes of each of R vectors, of R lanes or more; may overwrite x.
template <int R, class V>
FASTFEDREC_INLINE auto row_sums(V* x) {
    constexpr int n = sizeof(V) / sizeof(x[0][0]);
    if constexpr (R == n) return lane_sums<R>(x);
    else if constexpr (sizeof(x[0][0]) == 4 && R == 8) return eight_sums(x);
    else if constexpr (sizeof(x[0][0]) == 4) {
        static_assert(R == 4);
        return quarter_sums(pair_sums(pair_sums(x[0], x[2]), pair_sums(x[1], x[3])));
    } else {
        static_assert(R == 4 && n == 8);
        const V sums = lane_sums<R>(x);
        return __builtin_shufflevector(sums, sums, 0, 1, 2, 3) + __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
