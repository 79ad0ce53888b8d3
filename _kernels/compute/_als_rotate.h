// Coordinates in which V'V + reg I is tridiagonal, for conjugate gradients. The product with a vector then costs a few
// operations a factor instead of a row, at every step of every user, and a rotation changes none of the steps.
//
// Only _als_cg.cpp may include this file; see _lanes.h.
#pragma once
#include "_kernels/compute/_als.h"
#include "_kernels/compute/_product_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { ROTATED_ROWS = VECTOR_BYTES == 64 ? 8 : 6 };  // with two vectors a row the tile fills the registers

// Householder reflections of a symmetric matrix, in double (Golub and Van Loan, "Matrix Computations", 8.3.1). Rows are
// whole vectors: entries that a reflection does not change are zeros in `v` and `w`.
struct Tridiagonalizer {
    typedef Vector<double, Native<double>::LANES>::Type Wide;
    enum { N = Native<double>::LANES };
    const int n, stride;
    double* a;  // (n, stride): symmetric; then row k holds reflection k from column k + 1 on
    double* q;  // (n, stride)
    double diagonal[MAX_STRIDE] = {}, off_diagonal[MAX_STRIDE] = {}, betas[MAX_STRIDE] = {};
    alignas(64) double v[MAX_STRIDE] = {}, w[MAX_STRIDE] = {};

    // Computes to[first vector of `from`, ...) = sum of v_i rows_i for i >= from.
    void add_rows(const double* rows, int from, double* to) const {
        const int begin = from / N * N;
        for (int f = begin; f < stride; f += N) store(to + f, Wide{});
        for (int i = from; i < n; ++i) {
            const Wide x = spread<Wide>(v[i]);
            for (int f = begin; f < stride; f += N)
                store(to + f, multiply_add(x, load<Wide>(rows + i * stride + f), load<Wide>(to + f)));
        }
    }
    // Adds left_i right to rows_i for i >= from.
    void add_product(double* rows, int from, const double* left, const double* right) const {
        for (int i = from; i < n; ++i) {
            const Wide x = spread<Wide>(left[i]);
            for (int f = from / N * N; f < stride; f += N)
                store(rows + i * stride + f, multiply_add(x, load<Wide>(right + f), load<Wide>(rows + i * stride + f)));
        }
    }
    void set_reflection(int k) {
        for (int f = 0; f < stride; ++f) v[f] = f > k ? a[k * stride + f] : 0;
    }

    void reduce() {
        for (int k = 0; k < n; ++k) {
            const int from = k + 1;
            double* row = a + k * stride;
            diagonal[k] = row[k];
            if (from == n) break;
            // The squared norm of row k right of its second entry: these entries become 0.
            double squares = 0;
            for (int f = from + 1; f < n; ++f) squares += row[f] * row[f];
            off_diagonal[k] = row[from];
            if (!(squares > 0)) continue;  // the row needs no reflection
            const double norm = __builtin_sqrt(row[from] * row[from] + squares);  // > 0, since squares > 0
            // off_diagonal = -sign(x_1) |x|: x_1 - off_diagonal has no cancellation, and is not 0.
            off_diagonal[k] = row[from] > 0 ? -norm : norm;
            betas[k] =
                (off_diagonal[k] - row[from]) / off_diagonal[k];  // beta of H = I - beta v v' with v_1 = 1: from 1 to 2
            const double pivot = row[from] - off_diagonal[k];
            // v replaces row k, which reduce() does not read again.
            for (int f = from; f < n; ++f) row[f] = f == from ? 1 : row[f] / pivot;
            set_reflection(k);
            add_rows(a, from, w);  // w = A v, A symmetric
            // v'A v
            double inner = 0;
            for (int f = from; f < n; ++f) inner += w[f] * v[f];
            // w = -beta (A v - beta (v'A v) / 2 v)
            for (int f = 0; f < stride; ++f) w[f] = f < from ? 0 : -betas[k] * (w[f] - betas[k] * inner / 2 * v[f]);
            // H A H = A + v w' + w v'
            add_product(a, from, v, w);
            add_product(a, from, w, v);
        }
    }

    // Multiplies all reflections, the last one first, so that each changes only the rows and columns after its own
    // index.
    void multiply_out() {
        // Q = I, then H_k Q for k = n - 3, ..., 0: row n - 2 has one off-diagonal entry, so it needs no reflection.
        for (int i = 0; i < n; ++i)
            for (int f = 0; f < stride; ++f) q[i * stride + f] = i == f;
        for (int k = n - 3; k >= 0; --k) {
            if (betas[k] == 0) continue;
            set_reflection(k);
            add_rows(q, k + 1, w);  // w = Q'v
            // H_k Q = Q - beta v (v'Q), in rows and columns beyond k
            for (int f = 0; f < stride; ++f) w[f] = f > k ? -betas[k] * w[f] : 0;
            add_product(q, k + 1, v, w);
        }
    }
};

// Computes `rotation` from problem.wide_gram, which is scaled so that no square leaves the range of double. `scratch`
// has two matrices of the padded size.
template <class T>
static void tridiagonalize(const AlsProblem<T>& problem, double* scratch, const AlsRotation<T>& rotation) {
    const int n = problem.n_factors, stride = problem.stride;
    double largest = 0;
    for (int i = 0; i < n; ++i)
        for (int f = 0; f < n; ++f) {
            const double x = __builtin_fabs(problem.wide_gram[i * stride + f]);
            largest = x > largest ? x : largest;
        }
    const double scale = largest > 0 ? largest : 1;  // entries are at most 1 then, and a sum of squares at most n
    Tridiagonalizer reduction{n, stride, scratch, scratch + n * stride};
    for (int i = 0; i < n; ++i)
        for (int f = 0; f < stride; ++f)
            reduction.a[i * stride + f] = f < n ? problem.wide_gram[i * stride + f] / scale : 0;
    reduction.reduce();
    reduction.multiply_out();
    // A = Q T Q': a row x is x Q in the new coordinates, and T has `diagonal` and `off_diagonal`.
    for (int i = 0; i < stride; ++i) {
        for (int f = 0; f < stride; ++f) {
            rotation.to_rotated[i * stride + f] = i < n ? (T)reduction.q[i * stride + f] : 0;
            rotation.to_original[i * stride + f] = f < n && i < n ? (T)reduction.q[f * stride + i] : 0;
        }
        rotation.diagonal[i] = i < n ? (T)(reduction.diagonal[i] * scale) : 1;  // padded unknowns keep a diagonal of 1
        rotation.above[i] = i + 1 < n ? (T)(reduction.off_diagonal[i] * scale) : 0;
        rotation.below[i] = i > 0 && i < n ? (T)(reduction.off_diagonal[i - 1] * scale) : 0;
    }
}

// Multiplies a register tile of rows by a matrix of the padded size. No row of `to` is a row of `from`; both have
// ALS_ROWS_AT_ONCE rows.
template <class T, int NV>
FASTFEDREC_INLINE void rotate_tile(const T* from, const T* matrix, int stride, T* to) {
    typedef typename Vector<T, Native<T>::LANES>::Type V;
    V sums[ROTATED_ROWS][NV];
#pragma GCC unroll 8
    for (int i = 0; i < ROTATED_ROWS; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) sums[i][v] = V{};
    // sums_i += x_ik matrix_k, k ascending
    for (int k = 0; k < stride; ++k) {
        V row[NV];
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) row[v] = load<V>(matrix + k * stride + v * Native<T>::LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROTATED_ROWS; ++i) {
            const V x = spread<V>(from[i * stride + k]);
#pragma GCC unroll 2
            for (int v = 0; v < NV; ++v) sums[i][v] = multiply_add(x, row[v], sums[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROTATED_ROWS; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) store(to + i * stride + v * Native<T>::LANES, sums[i][v]);
}

template <class T>
static void rotate_rows(const T* from, const T* matrix, int n_rows, int stride, T* to) {
    constexpr int lanes = Native<T>::LANES;
    for (int f = 0; f < stride; f += 2 * lanes)
        // ALS_ROWS_AT_ONCE is a multiple of ROTATED_ROWS, so a last tile stays within the rows of `from` and `to`.
        for (int i = 0; i < n_rows; i += ROTATED_ROWS) {
            if (f + 2 * lanes <= stride) rotate_tile<T, 2>(from + i * stride, matrix + f, stride, to + i * stride + f);
            else rotate_tile<T, 1>(from + i * stride, matrix + f, stride, to + i * stride + f);
        }
}

// Converts padded rows to the new coordinates.
template <class T>
static void rotate_in_place(const AlsRotation<T>& rotation, int stride, int n_rows, char* scratch, T* rows) {
    T *from = (T*)scratch, *to = from + ALS_ROWS_AT_ONCE * stride;
    const size_t bytes = (size_t)n_rows * stride * sizeof(T);
    __builtin_memset(from, 0, ALS_ROWS_AT_ONCE * stride * sizeof(T));  // rows beyond n_rows are zeros
    __builtin_memcpy(from, rows, bytes);
    rotate_rows(from, rotation.to_rotated, n_rows, stride, to);
    __builtin_memcpy(rows, to, bytes);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
