// See _nmf.h; compiled once for each level.
#include "_kernels/compute/_nmf.h"

#include "_kernels/compute/_rows.h"
#include "_kernels/compute/_product_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Hsieh and Dhillon's step of one coordinate: x_f <- max(0, x_f + (b - Gx)_f / G_ff).
template <class T>
static void descend(const T* gram, T* right, int n, int stride, int max_sweeps, T tolerance, T* x) {
    // `right` is b - Gx throughout: when x_f moves by `change`, that times row f of G is taken from it.
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    const auto step = [&](int f, T change) __attribute__((always_inline)) {
        const V by = spread<V>(-change);
        for (int g = 0; g < stride; g += lanes)
            store(right + g, multiply_add(by, load<V>(gram + f * stride + g), load<V>(right + g)));
    };
    T inverses[NMF_MAX_STRIDE];
    // `right` comes as b: take G x for the start x from it.
    for (int f = 0; f < n; ++f) {
        const T diagonal = gram[f * stride + f];
        inverses[f] = diagonal > 0 ? 1 / diagonal : 0;  // no division by 0
        if (diagonal <= 0) x[f] = 0;  // a factor that no entry has, without regularisation: any value will do
        if (x[f] != 0) step(f, x[f]);
    }
    for (int sweep = 0; sweep < max_sweeps; ++sweep) {
        T largest = 0, change_most = 0;
        // One sweep: factors in ascending order, each with the gradient that the ones before it left.
        for (int f = 0; f < n; ++f) {
            T to = x[f] + right[f] * inverses[f];
            if (!(to > 0)) to = 0;  // and NaN becomes 0
            const T change = to - x[f], size = change < 0 ? -change : change;
            if (change == 0) continue;
            step(f, change);
            x[f] = to;
            if (to > largest) largest = to;
            if (size > change_most) change_most = size;
        }
        if (change_most <= tolerance * largest) break;
    }
}

void nmf_descend(const float* gram, float* right, int n, int stride, int max_sweeps, float tolerance, float* x) {
    descend(gram, right, n, stride, max_sweeps, tolerance, x);
}

void nmf_descend(const double* gram, double* right, int n, int stride, int max_sweeps, double tolerance, double* x) {
    descend(gram, right, n, stride, max_sweeps, tolerance, x);
}

// Rows sqrt(w) v of n entries into `packed`; adds w x v to `right`.
template <class T>
FASTFEDREC_INLINE void pack(const NmfProblem<T>& problem, int64_t start, int64_t item, int n, T* packed, T* right) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    // Column by column: a row's entries in their order, so the sum has one order.
    for (int column = 0; column < problem.stride; column += lanes) {
        V sum = load<V>(right + column);
        for (int k = 0; k < n; ++k) {
            // A row that holds every item has item k of the block at its place; others name theirs, below n_items.
            const ptrdiff_t i = problem.indices ? problem.indices[start + k] : item + k;
            const V v = load<V>(problem.item_factors + i * problem.stride + column);
            const T x = problem.values[start + k];
            if (problem.weights) {
                const T w = problem.weights[start + k];
                sum = multiply_add(spread<V>(w * x), v, sum);  // w x v
                store(packed + (ptrdiff_t)k * problem.stride + column, spread<V>(square_root(w)) * v);
            } else {
                sum = multiply_add(spread<V>(x), v, sum);
                store(packed + (ptrdiff_t)k * problem.stride + column, v);
            }
        }
        store(right + column, sum);
    }
}

template <class T>
static void solve_by_gram(const NmfProblem<T>& problem, ptrdiff_t row, T* gram, T* packed, T* out) {
    // G = reg I + sum w v v' and b = sum w x v, NMF_PACKED entries at a time.
    const int stride = problem.stride, n_factors = problem.n_factors;
    const int order = to_blocks(n_factors);
    const int64_t first = problem.indptr[row], stop = problem.indptr[row + 1];
    T right[NMF_MAX_STRIDE];
    __builtin_memset(right, 0, stride * sizeof(T));
    const T* base = problem.base;
    for (int64_t start = first; start < stop; start += NMF_PACKED) {
        const int n = stop - start < NMF_PACKED ? (int)(stop - start) : NMF_PACKED;
        pack(problem, start, start - first, n, packed, right);
        // The first block starts from reg I, the others from the sum so far.
        add_products<T>(packed, n, order, stride, base, gram);
        base = gram;
    }
    // The lower triangle too: `descend` takes whole rows.
    for (int f = 1; f < n_factors; ++f)
        for (int g = 0; g < f; ++g) gram[f * stride + g] = gram[g * stride + f];
    descend(gram, right, n_factors, stride, problem.max_sweeps, problem.tolerance, out);
}

// ---- few sweeps ----------------------------------------------------------------------------------------------------
// The same steps without the Gram: a step takes its gradient from the residuals sqrt(w) (x - u'v) of the row's entries,
// which it changes. Entries are lanes, factors are columns. The products between a few factors, `TOGETHER` of them,
// are summed before the first of them moves, so that residuals are read and written once for all of them.
enum { TOGETHER = VECTOR_BYTES == 64 ? 4 : 2, PAIRS = TOGETHER * (TOGETHER + 1) / 2, N_SUMS = TOGETHER + PAIRS };

// One vector of the 128 bits at each of a few places.
FASTFEDREC_INLINE U32 gather_parts(const char* const* from, ptrdiff_t at) {
#if defined(__AVX2__)
    const auto part = [=](int i)
                          __attribute__((always_inline)) { return _mm_loadu_si128((const __m128i*)(from[i] + at)); };
#if defined(__AVX512F__)
    __m512i x = _mm512_zextsi128_si512(part(0));
    x = _mm512_inserti32x4(x, part(1), 1);
    x = _mm512_inserti32x4(x, part(2), 2);
    return (U32)_mm512_inserti32x4(x, part(3), 3);
#else
    return (U32)_mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
#endif
#else
    return load<U32>(from[0] + at);
#endif
}

// Turns rows into columns within each 128 bits: 4 x 4 floats, or 2 x 2 doubles.
FASTFEDREC_INLINE void turn_parts(U32 (&x)[4]) {
    const U32 a = interleave_low(x[0], x[1]), b = interleave_high(x[0], x[1]);
    const U32 c = interleave_low(x[2], x[3]), d = interleave_high(x[2], x[3]);
    x[0] = interleave_low_pairs(a, c), x[1] = interleave_high_pairs(a, c);
    x[2] = interleave_low_pairs(b, d), x[3] = interleave_high_pairs(b, d);
}

FASTFEDREC_INLINE void turn_parts(U32 (&x)[2]) {
    const U32 a = x[0];
    x[0] = interleave_low_pairs(a, x[1]), x[1] = interleave_high_pairs(a, x[1]);
}

// Columns sqrt(w) v of n entries, `width` apart, and residuals sqrt(w) (x - u'v); zeros from n to `width`.
template <class T, bool WEIGHTED>
FASTFEDREC_INLINE void turn(const NmfProblem<T>& problem, int64_t start, int n, int width, int order, const T* minus_u,
                            T* columns, T* residuals) {
    constexpr int lanes = Native<T>::LANES, in_part = 16 / sizeof(T), parts = lanes / in_part;
    typedef typename Vector<T, lanes>::Type V;
    static const T nothing[NMF_MAX_STRIDE] = {};
    const int32_t* indices = problem.indices;
    const T* values = problem.values + start;
    const char* factors = (const char*)problem.item_factors;
    const ptrdiff_t bytes = problem.stride * (ptrdiff_t)sizeof(T);
    // One vector of entries at a time; `width` is n rounded up to whole vectors.
    for (int k = 0; k < width; k += lanes) {
        const char* rows[in_part][parts];
        T roots[lanes] = {};
        V root, rests[in_part] = {};  // several sums: one would wait for its own last addition
        const auto point = [&](int j) __attribute__((always_inline)) {
            rows[j % in_part][j / in_part] = factors + (indices ? (ptrdiff_t)indices[start + k + j] : k + j) * bytes;
            if constexpr (WEIGHTED) roots[j] = square_root(problem.weights[start + k + j]);
        };
        if (k + lanes <= n) {
#pragma GCC unroll 16
            for (int j = 0; j < lanes; ++j) point(j);
            rests[0] = load<V>(values + k);
        } else {
            T x[lanes] = {};
            for (int j = 0; j < n - k; ++j) point(j), x[j] = values[k + j];
            for (int j = n - k; j < lanes; ++j) rows[j % in_part][j / in_part] = (const char*)nothing;
            rests[0] = load<V>(x);
        }
        if constexpr (WEIGHTED) root = load<V>(roots), rests[0] *= root;  // 0 beyond the last entry
        T* to = columns + k;
        for (int f = 0; f < order; f += in_part) {
            U32 block[in_part];
#pragma GCC unroll 4
            for (int j = 0; j < in_part; ++j) block[j] = gather_parts(rows[j], f * sizeof(T));
            turn_parts(block);
#pragma GCC unroll 4
            for (int j = 0; j < in_part; ++j, to += width) {
                V column = (V)block[j];
                if constexpr (WEIGHTED) column *= root;
                store(to, column);
                // x - u'v, one factor after the other
                rests[j] = multiply_add(spread<V>(minus_u[f + j]), column, rests[j]);
            }
        }
#pragma GCC unroll 4
        for (int j = 1; j < in_part; ++j) rests[0] += rests[j];
        store(residuals + k, rests[0]);
    }
}

// Adds `minus_changes` of the factors before times their columns to the residuals; sums of residual x column, then of column x column.
template <class T, bool WITH_PAIRS>
FASTFEDREC_INLINE void sum_columns(const T* before, const T* minus_changes, const T* columns, int width, T* residuals,
                                   T* out) {
    constexpr int lanes = Native<T>::LANES, n_sums = WITH_PAIRS ? N_SUMS : TOGETHER;
    typedef typename Vector<T, lanes>::Type V;
    V sums[(N_SUMS + lanes - 1) / lanes * lanes];
#pragma GCC unroll 16
    for (int i = 0; i < (n_sums + lanes - 1) / lanes * lanes; ++i) sums[i] = V{};
    // Whole vectors: `width` is a multiple of the lanes, and entries past n are 0.
    for (int k = 0; k < width; k += lanes) {
        V r = load<V>(residuals + k), c[TOGETHER];
#pragma GCC unroll 4
        for (int i = 0; i < TOGETHER; ++i)
            // r += the moves of the few factors before, negated, times their columns.
            r = multiply_add(spread<V>(minus_changes[i]), load<V>(before + (ptrdiff_t)i * width + k), r);
        store(residuals + k, r);
#pragma GCC unroll 4
        for (int i = 0; i < TOGETHER; ++i) {
            c[i] = load<V>(columns + (ptrdiff_t)i * width + k);
            sums[i] = multiply_add(r, c[i], sums[i]);
        }
        if constexpr (WITH_PAIRS) {
            int at = TOGETHER;
#pragma GCC unroll 4
            for (int i = 0; i < TOGETHER; ++i)
#pragma GCC unroll 4
                for (int j = 0; j <= i; ++j, ++at) sums[at] = multiply_add(c[i], c[j], sums[at]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_sums; i += lanes) {
        const V total = lane_sums<lanes>(sums + i);
        store(out + i, total);
    }
}

template <class T>
static void solve_by_sweeps(const NmfProblem<T>& problem, ptrdiff_t row, T* scratch, T* out) {
    constexpr int lanes = Native<T>::LANES;
    // (1 + order) columns of `width` numbers: solve_row has seen to it that they fit NMF_SCRATCH.
    const int n_factors = problem.n_factors, order = (n_factors + 3) / 4 * 4;
    const int64_t start = problem.indptr[row];
    const int n = (int)(problem.indptr[row + 1] - start), width = (n + lanes - 1) / lanes * lanes;
    const T regularization = problem.base[0];
    T *residuals = scratch, *columns = scratch + width;
    T x[NMF_MAX_STRIDE], inverses[NMF_MAX_STRIDE], pairs[NMF_MAX_STRIDE / TOGETHER][PAIRS], sums[N_SUMS + lanes];
    for (int f = 0; f < order; ++f) {
        // Factors from n_factors to `order` have columns of zeros: a diagonal of reg, and x stays 0.
        x[f] = f < n_factors ? out[f] : 0;
        inverses[f] = -x[f];
    }
    if (problem.weights) turn<T, true>(problem, start, n, width, order, inverses, columns, residuals);
    else turn<T, false>(problem, start, n, width, order, inverses, columns, residuals);
    T minus_changes[TOGETHER] = {};
    const T* before = columns;  // no factor has moved yet: minus_changes are 0, so any columns will do
    for (int sweep = 0; sweep < problem.max_sweeps; ++sweep)
        for (int f = 0, b = 0; f < order; f += TOGETHER, ++b) {
            const T* own = columns + (ptrdiff_t)f * width;
            const T* pair = pairs[b];
            if (sweep) sum_columns<T, false>(before, minus_changes, own, width, residuals, sums);
            else {
                sum_columns<T, true>(before, minus_changes, own, width, residuals, sums);
                __builtin_memcpy(pairs[b], sums + TOGETHER, sizeof pairs[b]);
#pragma GCC unroll 4
                for (int i = 0; i < TOGETHER; ++i) {
                    // G_ff = sum w v_f^2 + reg; entry (i, i) of a triangle by rows is at i (i + 3) / 2.
                    const T diagonal = pair[i * (i + 3) / 2] + regularization;
                    inverses[f + i] = diagonal > 0 ? 1 / diagonal : 0;
                    x[f + i] = diagonal > 0 ? x[f + i] : 0;  // a factor that no entry has: any value will do
                }
            }
            before = own;
#pragma GCC unroll 4
            for (int i = 0; i < TOGETHER; ++i) {
                T gradient = sums[i] - regularization * x[f + i];  // (b - Gx)_f as it was before any of these few moved
            // Less G_fj times the change of each of the few that has moved since.
#pragma GCC unroll 4
                for (int j = 0; j < i; ++j) gradient += pair[i * (i + 1) / 2 + j] * minus_changes[j];
                const T to = x[f + i] + gradient * inverses[f + i], kept = to > 0 ? to : 0;
                minus_changes[i] = x[f + i] - kept;
                x[f + i] = kept;
            }
        }
    for (int f = 0; f < n_factors; ++f) out[f] = x[f];
}

template <class T>
static void solve_row(const NmfProblem<T>& problem, ptrdiff_t row, T* gram, T* packed, T* out) {
    const int64_t n = problem.indptr[row + 1] - problem.indptr[row];
    // width <= n + 15 and 1 + order <= n_factors + 4, for every number of lanes.
    const bool fits = (n + 16) * (problem.n_factors + 4) <= NMF_SCRATCH;
    if (!n) __builtin_memset(out, 0, problem.n_factors * sizeof(T));
    else if (fits && problem.tolerance == 0 && NMF_FEW_SWEEPS * problem.max_sweeps <= problem.n_factors)
        solve_by_sweeps(problem, row, gram, out);
    else solve_by_gram(problem, row, gram, packed, out);
}

void nmf_solve(const NmfProblem<float>& problem, ptrdiff_t row, float* gram, float* packed, float* out) {
    solve_row(problem, row, gram, packed, out);
}

void nmf_solve(const NmfProblem<double>& problem, ptrdiff_t row, double* gram, double* packed, double* out) {
    solve_row(problem, row, gram, packed, out);
}

// ---- multiplicative steps ------------------------------------------------------------------------------------------
// A few entries at a time: first their products u'v, then both sums, of x v and of (u'v) v. Where the item factors are
// not held in between, more entries at a time have less to add up across lanes.
template <class T, int LANES, int NV>
struct Few {
    enum { N = LANES > 4 && (VECTOR_BYTES == 64 || NV == 1) ? 4 : LANES };
    typedef typename Vector<T, N>::Type Type;
};

template <class T, int LANES, int NV>
struct Sums {
    enum { N = NV <= 2 ? 2 : 1 };  // one sum would wait for its own last addition
    typename Vector<T, LANES>::Type above[N][NV], below[N][NV];
};

template <class T, int LANES, int NV, class Rows>
FASTFEDREC_INLINE void add_entries(const Rows& rows, const typename Few<T, LANES, NV>::Type& xs,
                                   const typename Few<T, LANES, NV>::Type& products, Sums<T, LANES, NV>& to) {
    typedef typename Vector<T, LANES>::Type V;
#pragma GCC unroll 8
    for (int j = 0; j < Few<T, LANES, NV>::N; ++j)
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) {
            const V factors = rows.at(j, v);
            V& above = to.above[j % to.N][v];
            V& below = to.below[j % to.N][v];
            above = multiply_add(spread<V>(xs[j]), factors, above);
            below = multiply_add(spread<V>(products[j]), factors, below);
        }
}

template <class T, int LANES, int NV>
FASTFEDREC_INLINE void move_factors(const Sums<T, LANES, NV>& sums, T regularization, T* u) {
    typedef typename Vector<T, LANES>::Type V;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
        // u <- u (sum w x v) / (sum w (u'v) v + reg u)
        const V x = load<V>(u + v * LANES);
        V above = sums.above[0][v], below = sums.below[0][v];
        if constexpr (sums.N == 2) above += sums.above[1][v], below += sums.below[1][v];
        below = multiply_add(spread<V>(regularization), x, below);
        const V moved = x * above / below;
        store(u + v * LANES, below > 0 ? moved : V{});  // 0 / 0 where the factor is 0 already, or no entry has it
    }
}

// More than NV vectors of factors are added up NV at a time, in memory.
template <class T, int LANES, int NV, bool IN_PARTS, bool WEIGHTED>
static void multiply(const NmfProblem<T>& problem, ptrdiff_t row, T regularization, T* u) {
    constexpr int part = NV * LANES, n_few = Few<T, LANES, NV>::N;
    typedef typename Vector<T, LANES>::Type V;
    typedef typename Few<T, LANES, NV>::Type W;
    const int64_t start = problem.indptr[row], stop = problem.indptr[row + 1];
    const int n_parts = IN_PARTS ? (problem.n_factors + part - 1) / part : 1;
    Rows<T, LANES, n_few, NV> rows;
    Sums<T, LANES, NV> sums[IN_PARTS ? NMF_MAX_STRIDE / part : 1] = {};
    const auto point = [&](int j, int64_t entry) __attribute__((always_inline)) {
        const ptrdiff_t item = problem.indices ? (ptrdiff_t)problem.indices[entry] : entry - start;
        rows.starts[j] = problem.item_factors + item * problem.stride;
    };
    const auto add = [&](W xs, const W* weights) __attribute__((always_inline)) {
        V terms[n_few] = {};
        for (int p = 0; p < n_parts; ++p) {
            rows.hold(p * NV);
#pragma GCC unroll 4
            for (int v = 0; v < NV; ++v) {
                const V x = load<V>(u + p * part + v * LANES);
#pragma GCC unroll 8
                for (int j = 0; j < n_few; ++j) terms[j] = multiply_add(x, rows.at(j, v), terms[j]);
            }
        }
        W products = row_sums<n_few>(terms);
        if (weights) xs *= *weights, products *= *weights;
        rows.keep_or_read_again();
        for (int p = 0; p < n_parts; ++p) {
            if (IN_PARTS) rows.hold(p * NV);
            add_entries<T, LANES, NV>(rows, xs, products, sums[p]);
        }
    };
    // A few entries at a time, in their order: the sums depend on this row alone.
    int64_t k = start;
    for (; k + n_few <= stop; k += n_few) {
#pragma GCC unroll 8
        for (int j = 0; j < n_few; ++j) point(j, k + j);
        if constexpr (WEIGHTED) {
            const W weights = load<W>(problem.weights + k);
            add(load<W>(problem.values + k), &weights);
        } else add(load<W>(problem.values + k), nullptr);
    }
    if (k < stop) {
        W xs, weights;
        for (int j = 0; j < n_few; ++j) {
            const int64_t entry = k + j < stop ? k + j : start;  // the substitute entry adds 0
            point(j, entry);
            xs[j] = problem.values[entry];
            weights[j] = k + j >= stop ? 0 : WEIGHTED ? problem.weights[entry] : 1;
        }
        add(xs, &weights);
    }
    for (int p = 0; p < n_parts; ++p) move_factors<T, LANES, NV>(sums[p], regularization, u + p * part);
}

template <class T, int LANES, int NV, bool IN_PARTS = false>
static void multiply_row(const NmfProblem<T>& problem, ptrdiff_t row, T regularization, T* u) {
    if (problem.weights) multiply<T, LANES, NV, IN_PARTS, true>(problem, row, regularization, u);
    else multiply<T, LANES, NV, IN_PARTS, false>(problem, row, regularization, u);
}

template <class T>
static void multiply_row(const NmfProblem<T>& problem, ptrdiff_t row, T regularization, T* u) {
    constexpr int LANES = Native<T>::LANES;
    if (problem.stride == NMF_MIDDLE_STRIDE) {
        constexpr int lanes = LANES < 8 ? LANES : 8;
        return multiply_row<T, lanes, 3, (3 * lanes < NMF_MIDDLE_STRIDE)>(problem, row, regularization, u);
    }
    switch ((problem.n_factors - 1) / LANES) {
        case 0: return multiply_row<T, LANES, 1>(problem, row, regularization, u);
        case 1: return multiply_row<T, LANES, 2>(problem, row, regularization, u);
        case 2: return multiply_row<T, LANES, 3>(problem, row, regularization, u);
        case 3: return multiply_row<T, LANES, 4>(problem, row, regularization, u);
        default: return multiply_row<T, LANES, 4, true>(problem, row, regularization, u);
    }
}

void nmf_multiply(const NmfProblem<float>& problem, ptrdiff_t row, float regularization, float* u) {
    multiply_row(problem, row, regularization, u);
}

void nmf_multiply(const NmfProblem<double>& problem, ptrdiff_t row, double regularization, double* u) {
    multiply_row(problem, row, regularization, u);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
