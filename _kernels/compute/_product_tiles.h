// Symmetric positive definite systems in register tiles: products, Cholesky factor, and solution.
//
// A matrix is row-major with a stride that is a multiple of 8 and of the lanes of the level. Only its upper triangle is
// used: entries that a tile writes below it are never read. See _lanes.h for where this file may be included.
#pragma once
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum {
    BLOCK = 8,  // rows of a tile
    MAX_STRIDE = 256,
    // The bytes of rows to multiply at a time. With AVX-512 they may exceed the first-level cache, and sums are then
    // loaded and stored half as often; with AVX2, which loads twice as often, that is 3% slower.
    PACKED_BYTES = (VECTOR_BYTES == 64 ? 64 : 32) * 1024,
};

// A pivot below this part of its initial diagonal entry counts as singular: docs/explanation/compute/als.md has the
// measurements.
FASTFEDREC_INLINE float pivot_tolerance(float, int) { return 0.03f; }
FASTFEDREC_INLINE double pivot_tolerance(double, int order) { return 64 * order * 2.220446049250313e-16; }

FASTFEDREC_INLINE int to_blocks(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

template <class T>
static inline bool is_finite(const T* x, int n) {
    T sum = 0;
    for (int f = 0; f < n; ++f) sum += x[f] * 0;  // infinity and NaN times 0 are NaN
    return sum == 0;
}

FASTFEDREC_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
FASTFEDREC_INLINE double square_root(double x) { return __builtin_sqrt(x); }

// NV vectors of N lanes in 8 rows: three vectors of AVX-512 fit into its 32 registers. With 16 registers, tiles have
// LOW_ROWS rows.
template <class T, int NV, int N = Native<T>::LANES>
struct Tile {
    typedef typename Vector<T, N>::Type V;
    V x[BLOCK][NV];
};

template <class T, int NV, int N>
FASTFEDREC_INLINE void load_tile(const T* a, ptrdiff_t stride, Tile<T, NV, N>& tile) {
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) tile.x[i][v] = load<typename Tile<T, NV, N>::V>(a + i * stride + v * N);
}

template <class T, int NV, int N>
FASTFEDREC_INLINE void store_tile(T* a, ptrdiff_t stride, const Tile<T, NV, N>& tile) {
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) store(a + i * stride + v * N, tile.x[i][v]);
}

// Sums over n rows of p the products (row + i, column + lane).
template <class T, int NV, int N>
FASTFEDREC_INLINE void products(const T* p, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t row, ptrdiff_t column,
                                Tile<T, NV, N>& tile) {
    typedef typename Tile<T, NV, N>::V V;
    V sums[BLOCK][NV];  // a local copy, which the compiler keeps in registers
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) sums[i][v] = V{};
    const T* left = p + row;
    const T* right = p + column;
    // Rows of p in their order: one chain of fused additions for each entry of the tile.
    for (ptrdiff_t k = 0; k < n; ++k, left += stride, right += stride) {
        V b[NV];
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) b[v] = load<V>(right + v * N);
#pragma GCC unroll 8
        for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
            for (int v = 0; v < NV; ++v) sums[i][v] = multiply_add(spread<V>(left[i]), b[v], sums[i][v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) tile.x[i][v] = sums[i][v];
}

// Calls f(column, tile) for tiles from `column`, a multiple of 8, to `end`, with wide tiles as far as they fit. If the
// start is within a vector, the first tile is half a vector: a start at the vector would multiply 6% more at 128
// factors, and 11% at 64.
template <class T, class Function>
FASTFEDREC_INLINE void for_each_tile(ptrdiff_t column, ptrdiff_t end, Function f) {
    constexpr int lanes = Native<T>::LANES;
    if constexpr (lanes == 2 * BLOCK)
        if (column % lanes) {
            Tile<T, 1, BLOCK> tile;
            f(column, tile);
            column += BLOCK;
        }
    if constexpr (VECTOR_BYTES == 64) {
        ptrdiff_t n_vectors = (end - column + lanes - 1) / lanes;  // a single vector at the end would cost the most
        for (; n_vectors == 3 || n_vectors > 4; n_vectors -= 3, column += 3 * lanes) {
            Tile<T, 3> tile;
            f(column, tile);
        }
        for (; n_vectors >= 2; n_vectors -= 2, column += 2 * lanes) {
            Tile<T, 2> tile;
            f(column, tile);
        }
    }
    for (; column < end; column += lanes) {
        Tile<T, 1> tile;
        f(column, tile);
    }
}

// Computes a = base + P'P, or base - P'P, in 4 rows and NV vectors, the most that 16 registers hold. A tile of 8 rows
// and one vector, which leaves half of them unused, loads more than it multiplies: .74 of the floor instead of .82 with
// AVX2, and a quarter slower without.
enum { LOW_ROWS = 4, LOW_VECTORS = 3, IS_LOW = VECTOR_BYTES < 64 };

template <class T, int NV, bool SUBTRACT>
FASTFEDREC_INLINE void update_low_tile(const T* p, ptrdiff_t n, ptrdiff_t row, ptrdiff_t column, ptrdiff_t stride,
                                       const T* base, T* a) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    V sums[LOW_ROWS][NV];
#pragma GCC unroll 4
    for (int i = 0; i < LOW_ROWS; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) sums[i][v] = V{};
    const T* left = p + row;
    const T* right = p + column;
    // Rows of p in their order, as in `products`.
    for (ptrdiff_t k = 0; k < n; ++k, left += stride, right += stride) {
        V b[NV];
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) b[v] = load<V>(right + v * lanes);
#pragma GCC unroll 4
        for (int i = 0; i < LOW_ROWS; ++i) {
            const V l = spread<V>(left[i]);
#pragma GCC unroll 3
            for (int v = 0; v < NV; ++v) sums[i][v] = multiply_add(l, b[v], sums[i][v]);
        }
    }
    // `base` may be `a`: each entry is read once, and then written.
#pragma GCC unroll 4
    for (int i = 0; i < LOW_ROWS; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) {
            const ptrdiff_t at = (row + i) * stride + column + v * lanes;
            const V before = load<V>(base + at);
            store(a + at, SUBTRACT ? before - sums[i][v] : before + sums[i][v]);
        }
}

// Computes the same for a block of rows, from `column` to `end`.
template <class T, bool SUBTRACT>
FASTFEDREC_INLINE void update_block(const T* p, ptrdiff_t n, ptrdiff_t row, ptrdiff_t column, ptrdiff_t end,
                                    ptrdiff_t stride, const T* base, T* a) {
    constexpr ptrdiff_t lanes = Native<T>::LANES;
    // The last tile ends where the rows end: end - column is whole vectors.
    for (ptrdiff_t low = row; low < row + BLOCK; low += LOW_ROWS) {
        ptrdiff_t at = column, n_vectors = (end - column) / lanes;  // a single vector at the end would cost the most
        for (; n_vectors == LOW_VECTORS || n_vectors > 4; n_vectors -= LOW_VECTORS, at += LOW_VECTORS * lanes)
            update_low_tile<T, LOW_VECTORS, SUBTRACT>(p, n, low, at, stride, base, a);
        for (; n_vectors >= 2; n_vectors -= 2, at += 2 * lanes)
            update_low_tile<T, 2, SUBTRACT>(p, n, low, at, stride, base, a);
        if (n_vectors) update_low_tile<T, 1, SUBTRACT>(p, n, low, at, stride, base, a);
    }
}

// Computes a = base + P'P for the n rows of p; `order` is a multiple of 8.
template <class T>
static void add_products(const T* p, ptrdiff_t n, ptrdiff_t order, ptrdiff_t stride, const T* base, T* a) {
    // A row block of the upper triangle has columns from the first row of the block on.
    for (ptrdiff_t row = 0; row < order; row += BLOCK) {
        if constexpr (IS_LOW) {
            update_block<T, false>(p, n, row, row, order, stride, base, a);
            continue;
        }
        const auto add = [=](ptrdiff_t column, auto& tile) __attribute__((always_inline)) {
            auto start = tile;
            products(p, stride, n, row, column, tile);
            load_tile(base + row * stride + column, stride, start);
#pragma GCC unroll 8
            for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
                for (size_t v = 0; v < sizeof tile.x[0] / sizeof tile.x[0][0]; ++v) tile.x[i][v] += start.x[i][v];
            store_tile(a + row * stride + column, stride, tile);
        };
        for_each_tile<T>(row, order, add);
    }
}

// Subtracts R'R of the finished rows above a row block from its tile.
template <class T, int NV, int N>
FASTFEDREC_INLINE void subtract_products(const T* a, ptrdiff_t stride, ptrdiff_t row, ptrdiff_t column,
                                         Tile<T, NV, N>& tile) {
    Tile<T, NV, N> start;
    products(a, stride, row, row, column, tile);
    load_tile(a + row * stride + column, stride, start);
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) tile.x[i][v] = start.x[i][v] - tile.x[i][v];
}

// Applies the elimination of an 8 x 8 diagonal block to the other columns of its rows.
template <class T>
struct Elimination {
    T minus_multipliers[BLOCK][BLOCK];  // row i over its pivot
    T inverse_roots[BLOCK];  // 1 / root of the pivots
};

// Returns false if a pivot is not above its minimum; the chain from pivot to pivot has no square root.
template <class T>
FASTFEDREC_INLINE bool factor_block(const T* a, ptrdiff_t stride, const T* min_pivots, Elimination<T>& out) {
    typedef typename Vector<T, BLOCK>::Type V;
    V d[BLOCK];
    T pivots[BLOCK];
    bool regular = true;
    // Load the rows of the 8 x 8 block.
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i) d[i] = load<V>(a + i * stride);
    // Eliminate row i from the rows below: row k -= (d_ik / d_ii) row i, which by symmetry needs row i alone.
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i) {
        pivots[i] = d[i][i];
        regular &= pivots[i] > min_pivots[i];
        // A pivot of 0 gives infinity or NaN, and `regular` is already false.
        const V m = d[i] * spread<V>(-1 / pivots[i]);
        store(out.minus_multipliers[i], m);
#pragma GCC unroll 8
        for (int k = i + 1; k < BLOCK; ++k) d[k] = multiply_add(spread<V>(m[k]), d[i], d[k]);
    }
    for (int i = 0; i < BLOCK; ++i) out.inverse_roots[i] = 1 / square_root(pivots[i]);  // 1 / r_ii
    return regular;
}

// Eliminates the same from columns to the right; rows of R are these rows over the roots of their pivots.
template <class T, int NV, int N>
FASTFEDREC_INLINE void eliminate(const Elimination<T>& by, Tile<T, NV, N>& tile) {
    typedef typename Tile<T, NV, N>::V V;
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 8
        for (int k = i + 1; k < BLOCK; ++k)
#pragma GCC unroll 3
            for (int v = 0; v < NV; ++v)
                tile.x[k][v] = multiply_add(spread<V>(by.minus_multipliers[i][k]), tile.x[i][v], tile.x[k][v]);
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < NV; ++v) tile.x[i][v] *= spread<V>(by.inverse_roots[i]);
}

// Replaces the upper triangle of A by R, A = R'R, left-looking: a block of rows is finished before the next is started.
// Columns C after A, from `order` to `width`, become R^-T C. Returns false if a pivot is not above `tolerance` times
// its initial diagonal entry.
template <class T>
static bool factor(T* a, ptrdiff_t order, ptrdiff_t width, ptrdiff_t stride, T tolerance, T* inverse_roots) {
    // Rows above a block are already rows of R, and rows below are unchanged.
    for (ptrdiff_t row = 0; row < order; row += BLOCK) {
        T min_pivots[BLOCK];
        Elimination<T> elimination;
        // Save the initial diagonal for the lower bounds of the pivots.
        for (int i = 0; i < BLOCK; ++i) min_pivots[i] = tolerance * a[(row + i) * (stride + 1)];
        bool regular = true;
        const auto factor_diagonal = [&]() {
            regular = factor_block(a + row * (stride + 1), stride, min_pivots, elimination);
            for (int i = 0; i < BLOCK; ++i) inverse_roots[row + i] = elimination.inverse_roots[i];
        };
        if constexpr (IS_LOW) {
            update_block<T, true>(a, row, row, row, width, stride, a, a);
            factor_diagonal();
        }
        const auto finish = [&](ptrdiff_t column, auto& tile) __attribute__((always_inline)) {
            if constexpr (IS_LOW) load_tile(a + row * stride + column, stride, tile);
            else subtract_products(a, stride, row, column, tile);
            if (!IS_LOW && column == row) {  // the processor starts the next tile while the diagonal is factored
                store_tile(a + row * stride + column, stride, tile);
                factor_diagonal();
            }
            eliminate(elimination, tile);
            store_tile(a + row * stride + column, stride, tile);
        };
        for_each_tile<T>(row, width, finish);
        if (!regular) return false;
    }
    return true;
}

// Returns the coefficients of a solved unknown i in the remaining equations, above or below it: x there negated, 0
// elsewhere.
template <bool ABOVE, class V>
FASTFEDREC_INLINE V taken(const V& x, int i) {
    V mask;
    for (int k = 0; k < BLOCK; ++k) mask[k] = (ABOVE ? k > i : k < i) ? -1 : 0;
    return mask * x;
}

// Solves R'y = b; overwrites b. Entries outside the triangle of R are finite, and are multiplied by zeros only.
template <class T>
static void solve_transposed(const T* r, ptrdiff_t order, ptrdiff_t stride, const T* inverse_roots, T* b, T* y) {
    typedef typename Vector<T, BLOCK>::Type V;
    typedef typename Vector<T, Native<T>::LANES>::Type Wide;
    constexpr ptrdiff_t lanes = Native<T>::LANES;
    // Forward substitution, a block of 8 unknowns at a time.
    for (ptrdiff_t row = 0; row < order; row += BLOCK) {
        const T* rows = r + row * stride;
        const V inverses = load<V>(inverse_roots + row);
        V t = load<V>(b + row) * inverses;  // coefficients of a unit diagonal, so that y is the remainder of t
        // Unknown i of the block is t_i; r_ij t_i / r_jj is subtracted from the unknowns after it.
#pragma GCC unroll 8
        for (int i = 0; i < BLOCK - 1; ++i)
            t = multiply_add(spread<V>(t[i]), taken<true>(load<V>(rows + i * stride + row) * inverses, i), t);
        store(y + row, t);
        // Subtract the part of these rows from b, from the vector on in which the next block begins: earlier numbers
        // are not reused.
        for (ptrdiff_t column = (row + BLOCK) / lanes * lanes; column < order; column += lanes) {
            Wide even = load<Wide>(b + column), odd = Wide{};
#pragma GCC unroll 8
            for (int i = 0; i < BLOCK; i += 2) {
                even = multiply_add(spread<Wide>(-t[i]), load<Wide>(rows + i * stride + column), even);
                odd = multiply_add(spread<Wide>(-t[i + 1]), load<Wide>(rows + (i + 1) * stride + column), odd);
            }
            store(b + column, even + odd);
        }
    }
}

// Solves R x = y.
template <class T>
static void solve_triangle(const T* r, ptrdiff_t order, ptrdiff_t stride, const T* inverse_roots, const T* y, T* x) {
    typedef typename Vector<T, BLOCK>::Type V;
    __builtin_memset(x, 0, stride * sizeof(T));
    // Backward substitution, the last block first.
    for (ptrdiff_t row = order - BLOCK; row >= 0; row -= BLOCK) {
        const T* rows = r + row * stride;
        V sums[BLOCK], columns[BLOCK];
#pragma GCC unroll 8
        for (int i = 0; i < BLOCK; ++i) {
            columns[i] = load<V>(rows + i * stride + row);
            sums[i] = V{};
        }
        transpose<BLOCK>(columns);
        // sums_i = sum over known unknowns r_ij x_j, by 8 lanes.
        for (ptrdiff_t column = row + BLOCK; column < order; column += BLOCK) {
            const V known = load<V>(x + column);
#pragma GCC unroll 8
            for (int i = 0; i < BLOCK; ++i) sums[i] = multiply_add(load<V>(rows + i * stride + column), known, sums[i]);
        }
        const V inverses = load<V>(inverse_roots + row);
        V t = (load<V>(y + row) - lane_sums<BLOCK>(sums)) * inverses;
#pragma GCC unroll 8
        for (int i = BLOCK - 1; i > 0; --i)
            t = multiply_add(spread<V>(t[i]), taken<false>(columns[i] * inverses, i), t);
        store(x + row, t);
    }
}

// Solves R'R x = b; overwrites b.
template <class T>
static void solve(const T* r, ptrdiff_t order, ptrdiff_t stride, const T* inverse_roots, T* b, T* x) {
    T y[MAX_STRIDE];
    solve_transposed(r, order, stride, inverse_roots, b, y);
    solve_triangle(r, order, stride, inverse_roots, y, x);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
