// Dense layers in register tiles, for vector code of networks; see _lanes.h for where this file may be included.
//
// A batch has one example a column, and `stride` columns, of which the first ones are used, in whole vectors. Forward
// and backward products both broadcast single weights to vectors of examples and read W as stored, so no transposed
// copy of W is needed; only the much smaller dy is transposed, for the step of W. Rows, and columns of W, are multiples
// of 16, so tiles have no remainder.
#pragma once
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { TILE_ROWS = VECTOR_BYTES == 64 ? 8 : 4 };  // with two vectors a row the tile fills the registers

template <class T>
using NativeVector = typename Vector<T, Native<T>::LANES>::Type;

template <class T>
FASTFEDREC_INLINE ptrdiff_t whole_vectors(ptrdiff_t n) {
    return (n + Native<T>::LANES - 1) / Native<T>::LANES * Native<T>::LANES;
}

template <class T>
FASTFEDREC_INLINE void copy_numbers(const T* from, ptrdiff_t n, T* to) {
    __builtin_memcpy(to, from, n * sizeof(T));
}

// ---- products ------------------------------------------------------------------------------------------------------

// The left factor of a product has the rows of `a`, or its columns.
enum Side { ROWS_OF, COLUMNS_OF };

template <class T, int NV, Side SIDE, bool FRESH>
FASTFEDREC_INLINE void multiply_tile(const T* a, ptrdiff_t a_stride, const T* b, ptrdiff_t b_stride, ptrdiff_t n, T* c,
                                     ptrdiff_t c_stride) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    V sums[TILE_ROWS][NV];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) sums[i][v] = FRESH ? V{} : load<V>(c + i * c_stride + v * lanes);
    // c_ij += sum_k a_ik b_kj, k ascending: one chain of fused additions for each number of c.
    for (ptrdiff_t k = 0; k < n; ++k, a += SIDE == ROWS_OF ? 1 : a_stride, b += b_stride) {
        V row[NV];
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) row[v] = load<V>(b + v * lanes);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; ++i) {
            const V x = spread<V>(a[SIDE == ROWS_OF ? i * a_stride : i]);
#pragma GCC unroll 2
            for (int v = 0; v < NV; ++v) sums[i][v] = multiply_add(x, row[v], sums[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) store(c + i * c_stride + v * lanes, sums[i][v]);
}

// Adds sum_k a[i, k] b[k, j] over k < n to c[i, j], or the same with a[k, i]; with FRESH it writes the sum instead.
template <Side SIDE, bool FRESH, class T>
static void multiply(const T* a, ptrdiff_t a_stride, const T* b, ptrdiff_t b_stride, ptrdiff_t n, T* c,
                     ptrdiff_t c_stride, ptrdiff_t n_rows, ptrdiff_t n_columns) {
    // n_rows is a multiple of 16, so of TILE_ROWS, and n_columns is whole vectors: no tile extends beyond c.
    constexpr int lanes = Native<T>::LANES;
    for (ptrdiff_t i = 0; i < n_rows; i += TILE_ROWS) {
        const T* left = a + (SIDE == ROWS_OF ? i * a_stride : i);
        ptrdiff_t j = 0;
        for (; j + 2 * lanes <= n_columns; j += 2 * lanes)
            multiply_tile<T, 2, SIDE, FRESH>(left, a_stride, b + j, b_stride, n, c + i * c_stride + j, c_stride);
        if (j < n_columns)
            multiply_tile<T, 1, SIDE, FRESH>(left, a_stride, b + j, b_stride, n, c + i * c_stride + j, c_stride);
    }
}

// Writes c[j, i] = a[i, j] for the first rows and columns of a, whole vectors of both.
template <class T>
static void transpose_block(const T* a, ptrdiff_t a_stride, ptrdiff_t n_rows, ptrdiff_t n_columns, T* c,
                            ptrdiff_t c_stride) {
    constexpr int lanes = Native<T>::LANES;
    for (ptrdiff_t i = 0; i < n_rows; i += lanes)
        for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
            NativeVector<T> x[lanes];
#pragma GCC unroll 16
            for (int k = 0; k < lanes; ++k) x[k] = load<NativeVector<T>>(a + (i + k) * a_stride + j);
            transpose<lanes>(x);
#pragma GCC unroll 16
            for (int k = 0; k < lanes; ++k) store(c + (j + k) * c_stride + i, x[k]);
        }
}

// ---- layers --------------------------------------------------------------------------------------------------------

// A layer y = relu(W'x + b), where W is row-major and may be some rows of a matrix.
template <class T>
struct Layer {
    T* weights;  // (n_in, n_out)
    T* bias;
    ptrdiff_t n_in, n_out;
};

// Keeps x above 0 and NaN, and sets other numbers to 0.
template <class T>
FASTFEDREC_INLINE void rectify(T* x, ptrdiff_t n) {
    typedef NativeVector<T> V;
    for (ptrdiff_t j = 0; j < n; j += Native<T>::LANES) {
        const V value = load<V>(x + j);
        store(x + j, value < 0 ? V{} : value);
    }
}

template <class T>
static void forward(const Layer<T>& layer, const T* x, T* y, ptrdiff_t stride, ptrdiff_t n_columns) {
    typedef NativeVector<T> V;
    // y = b, then + W'x, then relu.
    for (ptrdiff_t o = 0; o < layer.n_out; ++o)
        for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES) store(y + o * stride + j, spread<V>(layer.bias[o]));
    multiply<COLUMNS_OF, false>(layer.weights, layer.n_out, x, stride, layer.n_in, y, stride, layer.n_out, n_columns);
    for (ptrdiff_t o = 0; o < layer.n_out; ++o) rectify(y + o * stride, n_columns);
}

// Sets dy to 0 where y is 0; computes dx = W dy; then adds x dy' to W of `to`, which may be the layer itself, and the
// sum of dy, which remains in `sums`, to its bias.
template <class T>
static void backward(const Layer<T>& layer, const Layer<T>& to, const T* x, const T* y, T* dx, T* dy, T* by_example,
                     T* sums, ptrdiff_t stride, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const ptrdiff_t n_out = layer.n_out, n_columns = whole_vectors<T>(n);
    // dy = 0 where y = 0: the derivative of relu.
    for (ptrdiff_t o = 0; o < n_out; ++o)
        for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
            const V step = load<V>(dy + o * stride + j);
            store(dy + o * stride + j, load<V>(y + o * stride + j) > 0 ? step : V{});
        }
    // dx = W dy uses the weights before the step.
    multiply<ROWS_OF, true>(layer.weights, n_out, dy, stride, n_out, dx, stride, layer.n_in, n_columns);
    transpose_block(dy, stride, n_out, n_columns, by_example, n_out);
    // W += x dy' over the n examples.
    multiply<ROWS_OF, false>(x, stride, by_example, n_out, n, to.weights, n_out, layer.n_in, n_out);
    // Each bias gets the sum over examples in their order.
    for (ptrdiff_t o = 0; o < n_out; o += lanes) {
        V sum = V{};
        for (ptrdiff_t j = 0; j < n; ++j) sum += load<V>(by_example + j * n_out + o);
        store(sums + o, sum);
        store(to.bias + o, load<V>(to.bias + o) + sum);
    }
}

// Computes y = W'x + b for a single example.
template <class T>
static void forward_one(const Layer<T>& layer, const T* x, T* y) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    for (ptrdiff_t o = 0; o < layer.n_out; o += lanes) {
        // The number of inputs is a multiple of 16, so even.
        V even = load<V>(layer.bias + o), odd = V{};
        for (ptrdiff_t i = 0; i < layer.n_in; i += 2) {
            const T* w = layer.weights + i * layer.n_out + o;
            even = multiply_add(spread<V>(x[i]), load<V>(w), even);
            odd = multiply_add(spread<V>(x[i + 1]), load<V>(w + layer.n_out), odd);
        }
        store(y + o, even + odd);
    }
}

// Computes dx = W dy, then adds x dy' to W of `to`, which may be the layer itself.
template <class T>
static void backward_one(const Layer<T>& layer, const Layer<T>& to, const T* x, T* dx, const T* dy) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    for (ptrdiff_t i = 0; i < layer.n_in; i += lanes) {
        V sums[lanes];
        const T* w = layer.weights + i * layer.n_out;
        T* to_w = to.weights + i * layer.n_out;
        for (int k = 0; k < lanes; ++k, w += layer.n_out, to_w += layer.n_out) {
            V sum = V{};
            for (ptrdiff_t o = 0; o < layer.n_out; o += lanes) {
                // Each weight is read for dx before it is written: dx = W dy uses the old W.
                const V step = load<V>(dy + o);
                sum = multiply_add(load<V>(w + o), step, sum);
                store(to_w + o, multiply_add(spread<V>(x[i + k]), step, load<V>(to_w + o)));
            }
            sums[k] = sum;
        }
        const V totals = lane_sums<lanes>(sums);
        store(dx + i, totals);
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
