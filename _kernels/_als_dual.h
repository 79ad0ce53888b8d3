// Users with fewer items than factors: a system of the items, by the matrix inversion lemma (Woodbury).
//
// With R'R = V'V + reg I, Z = diag(sqrt w) V R^-1 over the user's items, and c = (1 + w) / sqrt w,
//
//     x = R^-1 Z' (I + Z Z')^-1 c.
//
// V R^-1 of all items is computed once a call. Included by _als.cpp alone; see _lanes.h for why it may be.
#pragma once
#include "_kernels/_als.h"
#include "_kernels/_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// x is no better than R, so in double too R must be as float32 wants it.
static constexpr float DUAL_TOLERANCE = 0.03f;

template <class T>
FASTFEDREC_INLINE bool is_dual(const AlsProblem<T>& problem, ptrdiff_t user) {
    const int64_t n = problem.indptr[user + 1] - problem.indptr[user];
    return problem.dual && n > 0 && 8 * n <= 7 * problem.n_factors;
}

FASTFEDREC_INLINE int to_blocks(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

// The transpose of a square of `lanes` rows, each scaled, of which row i begins at rows[i] + offset.
template <class T>
FASTFEDREC_INLINE void transpose_square(const T* const* rows, int offset, const T* scales, T* to, ptrdiff_t stride) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    V square[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) square[i] = spread<V>(scales[i]) * load<V>(rows[i] + offset);
    transpose<lanes>(square);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) store(to + i * stride, square[i]);
}

// The Cholesky factor of [gram | V'] for a block of items; gram is factored again for each, V'V itself costs far more.
template <class T>
static bool whiten(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* dual) {
    constexpr int lanes = Native<T>::LANES;
    const int stride = problem.stride, n = (int)(last - first), width = stride + (n + lanes - 1) / lanes * lanes;
    T* a = (T*)scratch;                // (stride, width)
    T* roots = dual + stride * stride;
    T* table = roots + stride;
    const T* rows[lanes];
    T ones[lanes], inverse_roots[MAX_STRIDE], square[lanes * lanes];
    for (int i = 0; i < lanes; ++i) ones[i] = 1;
    for (int f = 0; f < stride; ++f) __builtin_memcpy(a + f * width, problem.gram + f * stride, stride * sizeof(T));
    for (int k = 0; k < n; k += lanes) {
        for (int i = 0; i < lanes; ++i)
            rows[i] = problem.item_factors + (first + (k + i < n ? k + i : k)) * stride;
        for (int f = 0; f < stride; f += lanes) transpose_square(rows, f, ones, a + f * width + stride + k, width);
    }
    if (!factor<T>(a, to_blocks(problem.n_factors), width, width, DUAL_TOLERANCE, inverse_roots)) return false;
    for (int k = 0; k < n; k += lanes)
        for (int f = 0; f < stride; f += lanes) {
            for (int i = 0; i < lanes; ++i) rows[i] = a + (f + i) * width + stride + k;
            transpose_square(rows, 0, ones, square, lanes);
            for (int i = 0; i < lanes && k + i < n; ++i)
                __builtin_memcpy(table + (first + k + i) * stride + f, square + i * lanes, lanes * sizeof(T));
        }
    if (first > 0) return true;
    for (int f = 0; f < stride; ++f) __builtin_memcpy(dual + f * stride, a + f * width, stride * sizeof(T));
    __builtin_memcpy(roots, inverse_roots, to_blocks(problem.n_factors) * sizeof(T));
    return true;
}

template <class T>
static bool solve_dual(const AlsProblem<T>& problem, ptrdiff_t user, char* scratch, T* out) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    const int64_t start = problem.indptr[user];
    const int32_t* items = problem.indices + start;
    const int n = (int)(problem.indptr[user + 1] - start), order = to_blocks(n), width = (n + 15) / 16 * 16;
    const int stride = problem.stride, n_factors = problem.n_factors;
    const T* roots_of_gram = problem.dual + stride * stride;
    const T* table = roots_of_gram + stride;
    T* a = (T*)scratch;             // (width, width): I + Z Z'
    T* packed = a + width * width;  // some rows of Z'
    const T* rows[MAX_STRIDE];
    T roots[MAX_STRIDE], c[MAX_STRIDE], y[MAX_STRIDE], inverse_roots[MAX_STRIDE], right[MAX_STRIDE], x[MAX_STRIDE];
    __builtin_memset(a, 0, width * width * sizeof(T));
    for (int k = 0; k < width; ++k) {  // beside the items a first item of weight 0
        const T w = k < n ? (T)problem.weight * (problem.values ? problem.values[start + k] : 1) : 0;
        a[k * (width + 1)] = 1;
        roots[k] = square_root(w);
        c[k] = k < n ? (1 + w) / roots[k] : 0;
        rows[k] = table + (ptrdiff_t)items[k < n ? k : 0] * stride;
    }
    const int most = PACKED_BYTES / (width * (int)sizeof(T)) / lanes * lanes;
    for (int begin = 0; begin < stride; begin += most) {
        const int end = begin + most < stride ? begin + most : stride;
        for (int k = 0; k < width; k += lanes)
            for (int f = begin; f < end; f += lanes)
                transpose_square(rows + k, f, roots + k, packed + (f - begin) * width + k, width);
        add_products<T>(packed, end - begin, order, width, a, a);
    }
    if (!factor<T>(a, order, order, width, pivot_tolerance(T(), n), inverse_roots)) return false;
    solve<T>(a, order, width, inverse_roots, c, y);
    for (int k = 0; k < width; ++k) y[k] *= roots[k];
    for (int f = 0; f < stride; f += lanes) {
        V sums[4] = {};  // a single one would wait for its own last addition; beside the items y is 0
        for (int k = 0; k < width; k += 4)
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i)
                sums[i] = multiply_add(spread<V>(y[k + i]), load<V>(rows[k + i] + f), sums[i]);
        store(right + f, sums[0] + sums[1] + (sums[2] + sums[3]));
    }
    solve_triangle<T>(problem.dual, to_blocks(n_factors), stride, roots_of_gram, right, x);
    if (!is_finite(x, n_factors)) return false;
    __builtin_memcpy(out, x, n_factors * sizeof(T));
    return true;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
