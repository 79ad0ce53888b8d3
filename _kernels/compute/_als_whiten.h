// The part of the systems that all users share: R with R'R = V'V + reg I, and V R^-1, computed once for each call.
//
// Only _als.cpp may include this file; see _lanes.h.
#pragma once
#include "_kernels/compute/_als.h"
#include "_kernels/compute/_product_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// x is only as accurate as R, so the tolerance of float32 applies to double as well.
static constexpr float WHITEN_TOLERANCE = 0.03f;

// Transposes a square of `lanes` rows; row i begins at rows[i] + offset.
template <class T>
FASTFEDREC_INLINE void transpose_square(const T* const* rows, int offset, T* to, ptrdiff_t stride) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    V square[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) square[i] = load<V>(rows[i] + offset);
    transpose<lanes>(square);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) store(to + i * stride, square[i]);
}

// Computes the Cholesky factor of [gram | V'] for a block of items. Each block factors gram again, which costs far less
// than V'V.
template <class T>
static bool whiten(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* whitened) {
    constexpr int lanes = Native<T>::LANES;
    const int stride = problem.stride, n = (int)(last - first), width = stride + (n + lanes - 1) / lanes * lanes;
    T* a = (T*)scratch;                // (stride, width)
    T* roots = whitened + stride * stride;
    T* table = roots + stride;
    const T* rows[lanes];
    T inverse_roots[MAX_STRIDE], square[lanes * lanes];
    // a = [gram | V'], V' of this block's items
    for (int f = 0; f < stride; ++f) __builtin_memcpy(a + f * width, problem.gram + f * stride, stride * sizeof(T));
    for (int k = 0; k < n; k += lanes) {
        for (int i = 0; i < lanes; ++i)
            // After the last item the row of k is repeated: those columns are not copied to the result.
            rows[i] = problem.item_factors + (first + (k + i < n ? k + i : k)) * stride;
        for (int f = 0; f < stride; f += lanes) transpose_square(rows, f, a + f * width + stride + k, width);
    }
    // [R | R^-T V']: a column of R^-T V' is a row of V R^-1
    if (!factor<T>(a, to_blocks(problem.n_factors), width, width, WHITEN_TOLERANCE, inverse_roots)) return false;
    for (int k = 0; k < n; k += lanes)
        for (int f = 0; f < stride; f += lanes) {
            for (int i = 0; i < lanes; ++i) rows[i] = a + (f + i) * width + stride + k;
            transpose_square(rows, 0, square, lanes);
            // Rows [first, last) of the table: no other block writes them.
            for (int i = 0; i < lanes && k + i < n; ++i)
                __builtin_memcpy(table + (first + k + i) * stride + f, square + i * lanes, lanes * sizeof(T));
        }
    // R and the inverse roots are the same for every block, so only the first block writes them.
    if (first > 0) return true;
    for (int f = 0; f < stride; ++f) __builtin_memcpy(whitened + f * stride, a + f * width, stride * sizeof(T));
    __builtin_memcpy(roots, inverse_roots, to_blocks(problem.n_factors) * sizeof(T));
    return true;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
