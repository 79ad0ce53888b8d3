// See _nmf.h; compiled once for each level.
#include "_kernels/compute/_nmf.h"

#include "_kernels/compute/_rows.h"
#include "_kernels/compute/_product_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Runs coordinate descent with the step of Hsieh and Dhillon: x_f <- max(0, x_f + (b - Gx)_f / G_ff).
template <class T>
static void descend(const T* gram, T* right, int n, int stride, int max_sweeps, T tolerance, T* x) {
    // `right` is b - Gx throughout: when x_f changes by `change`, the product of `change` and row f of G is subtracted.
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    const auto step = [&](int f, T change) __attribute__((always_inline)) {
        const V negated = spread<V>(-change);
        for (int g = 0; g < stride; g += lanes)
            store(right + g, multiply_add(negated, load<V>(gram + f * stride + g), load<V>(right + g)));
    };
    T inverses[NMF_MAX_STRIDE];
    // `right` is initially b: subtract G x for the start x.
    for (int f = 0; f < n; ++f) {
        const T diagonal = gram[f * stride + f];
        inverses[f] = diagonal > 0 ? 1 / diagonal : 0;  // no division by 0
        if (diagonal <= 0) x[f] = 0;  // a factor without entries and regularisation may have any value
        if (x[f] != 0) step(f, x[f]);
    }
    for (int sweep = 0; sweep < max_sweeps; ++sweep) {
        T largest = 0, max_change = 0;
        // A sweep updates factors in ascending order, each by the gradient after the previous updates.
        for (int f = 0; f < n; ++f) {
            T to = x[f] + right[f] * inverses[f];
            if (!(to > 0)) to = 0;  // NaN becomes 0 as well
            const T change = to - x[f], size = change < 0 ? -change : change;
            if (change == 0) continue;
            step(f, change);
            x[f] = to;
            if (to > largest) largest = to;
            if (size > max_change) max_change = size;
        }
        if (max_change <= tolerance * largest) break;
    }
}

void nmf_descend(const float* gram, float* right, int n, int stride, int max_sweeps, float tolerance, float* x) {
    descend(gram, right, n, stride, max_sweeps, tolerance, x);
}

void nmf_descend(const double* gram, double* right, int n, int stride, int max_sweeps, double tolerance, double* x) {
    descend(gram, right, n, stride, max_sweeps, tolerance, x);
}

// Writes rows sqrt(w) v of n entries to `packed`, and adds w x v to `right`.
template <class T>
FASTFEDREC_INLINE void pack(const NmfProblem<T>& problem, int64_t start, int64_t item, int n, T* packed, T* right) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    // Each column adds the entries of a row in their order, so the sum has one order.
    for (int column = 0; column < problem.stride; column += lanes) {
        V sum = load<V>(right + column);
        for (int k = 0; k < n; ++k) {
            // A row with every item has item `item + k` here; other rows have indices below n_items.
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
    // G = reg I + sum w v v' and b = sum w x v are summed over NMF_PACKED entries at a time.
    const int stride = problem.stride, n_factors = problem.n_factors;
    const int order = to_blocks(n_factors);
    const int64_t first = problem.indptr[row], stop = problem.indptr[row + 1];
    T right[NMF_MAX_STRIDE];
    __builtin_memset(right, 0, stride * sizeof(T));
    const T* base = problem.base;
    for (int64_t start = first; start < stop; start += NMF_PACKED) {
        const int n = stop - start < NMF_PACKED ? (int)(stop - start) : NMF_PACKED;
        pack(problem, start, start - first, n, packed, right);
        // The first block starts from reg I, and the next ones from the sum so far.
        add_products<T>(packed, n, order, stride, base, gram);
        base = gram;
    }
    // Fill the lower triangle too, because `descend` reads whole rows.
    for (int f = 1; f < n_factors; ++f)
        for (int g = 0; g < f; ++g) gram[f * stride + g] = gram[g * stride + f];
    descend(gram, right, n_factors, stride, problem.max_sweeps, problem.tolerance, out);
}

// ---- few sweeps ----------------------------------------------------------------------------------------------------
// The same steps without the Gram: a step takes its gradient from the residuals sqrt(w) (x - u'v) of the entries of the
// row, and changes them. Entries are lanes, and factors are columns. Products between the factors of a group of GROUP
// factors are summed before the first of them changes, so that residuals are read and written once for the group.
enum { GROUP = VECTOR_BYTES == 64 ? 4 : 2, PAIRS = GROUP * (GROUP + 1) / 2, N_SUMS = GROUP + PAIRS };

// Returns one vector of 128-bit parts from several rows.
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

// Transposes rows to columns within each 128 bits: 4 x 4 floats, or 2 x 2 doubles.
FASTFEDREC_INLINE void transpose_parts(U32 (&x)[4]) {
    const U32 a = interleave_low(x[0], x[1]), b = interleave_high(x[0], x[1]);
    const U32 c = interleave_low(x[2], x[3]), d = interleave_high(x[2], x[3]);
    x[0] = interleave_low_pairs(a, c), x[1] = interleave_high_pairs(a, c);
    x[2] = interleave_low_pairs(b, d), x[3] = interleave_high_pairs(b, d);
}

FASTFEDREC_INLINE void transpose_parts(U32 (&x)[2]) {
    const U32 a = x[0];
    x[0] = interleave_low_pairs(a, x[1]), x[1] = interleave_high_pairs(a, x[1]);
}

// Writes columns sqrt(w) v of n entries, at a distance of `width`, and residuals sqrt(w) (x - u'v); numbers from n to
// `width` are zeros.
template <class T, bool WEIGHTED>
FASTFEDREC_INLINE void transpose_entries(const NmfProblem<T>& problem, int64_t start, int n, int width, int order,
                                         const T* minus_u, T* columns, T* residuals) {
    constexpr int lanes = Native<T>::LANES, per_part = 16 / sizeof(T), parts = lanes / per_part;
    typedef typename Vector<T, lanes>::Type V;
    static const T zeros[NMF_MAX_STRIDE] = {};
    const int32_t* indices = problem.indices;
    const T* values = problem.values + start;
    const char* factors = (const char*)problem.item_factors;
    const ptrdiff_t bytes = problem.stride * (ptrdiff_t)sizeof(T);
    // Entries are taken a vector at a time; `width` is n rounded up to whole vectors.
    for (int k = 0; k < width; k += lanes) {
        const char* rows[per_part][parts];
        T roots[lanes] = {};
        V root, partial_residuals[per_part] = {};  // a single sum would wait for its last addition
        const auto set_row = [&](int j) __attribute__((always_inline)) {
            rows[j % per_part][j / per_part] = factors + (indices ? (ptrdiff_t)indices[start + k + j] : k + j) * bytes;
            if constexpr (WEIGHTED) roots[j] = square_root(problem.weights[start + k + j]);
        };
        if (k + lanes <= n) {
#pragma GCC unroll 16
            for (int j = 0; j < lanes; ++j) set_row(j);
            partial_residuals[0] = load<V>(values + k);
        } else {
            T x[lanes] = {};
            for (int j = 0; j < n - k; ++j) set_row(j), x[j] = values[k + j];
            for (int j = n - k; j < lanes; ++j) rows[j % per_part][j / per_part] = (const char*)zeros;
            partial_residuals[0] = load<V>(x);
        }
        if constexpr (WEIGHTED) root = load<V>(roots), partial_residuals[0] *= root;  // 0 after the last entry
        T* to = columns + k;
        for (int f = 0; f < order; f += per_part) {
            U32 block[per_part];
#pragma GCC unroll 4
            for (int j = 0; j < per_part; ++j) block[j] = gather_parts(rows[j], f * sizeof(T));
            transpose_parts(block);
#pragma GCC unroll 4
            for (int j = 0; j < per_part; ++j, to += width) {
                V column = (V)block[j];
                if constexpr (WEIGHTED) column *= root;
                store(to, column);
                // x - u'v is computed factor by factor.
                partial_residuals[j] = multiply_add(spread<V>(minus_u[f + j]), column, partial_residuals[j]);
            }
        }
#pragma GCC unroll 4
        for (int j = 1; j < per_part; ++j) partial_residuals[0] += partial_residuals[j];
        store(residuals + k, partial_residuals[0]);
    }
}

// Adds `minus_changes` times the columns of the previous group to the residuals. Sums residual x column, and then
// column x column, over the entries.
template <class T, bool WITH_PAIRS>
FASTFEDREC_INLINE void sum_columns(const T* previous, const T* minus_changes, const T* columns, int width, T* residuals,
                                   T* out) {
    constexpr int lanes = Native<T>::LANES, n_sums = WITH_PAIRS ? N_SUMS : GROUP;
    typedef typename Vector<T, lanes>::Type V;
    V sums[(N_SUMS + lanes - 1) / lanes * lanes];
#pragma GCC unroll 16
    for (int i = 0; i < (n_sums + lanes - 1) / lanes * lanes; ++i) sums[i] = V{};
    // `width` is a multiple of the lanes, and entries after n are 0.
    for (int k = 0; k < width; k += lanes) {
        V r = load<V>(residuals + k), c[GROUP];
#pragma GCC unroll 4
        for (int i = 0; i < GROUP; ++i)
            // r is reduced by the changes of the previous group times their columns.
            r = multiply_add(spread<V>(minus_changes[i]), load<V>(previous + (ptrdiff_t)i * width + k), r);
        store(residuals + k, r);
#pragma GCC unroll 4
        for (int i = 0; i < GROUP; ++i) {
            c[i] = load<V>(columns + (ptrdiff_t)i * width + k);
            sums[i] = multiply_add(r, c[i], sums[i]);
        }
        if constexpr (WITH_PAIRS) {
            int at = GROUP;
#pragma GCC unroll 4
            for (int i = 0; i < GROUP; ++i)
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
    // There are (1 + order) columns of `width` numbers: solve_row ensures that they fit into NMF_SCRATCH.
    const int n_factors = problem.n_factors, order = (n_factors + 3) / 4 * 4;
    const int64_t start = problem.indptr[row];
    const int n = (int)(problem.indptr[row + 1] - start), width = (n + lanes - 1) / lanes * lanes;
    const T regularization = problem.base[0];
    T *residuals = scratch, *columns = scratch + width;
    T x[NMF_MAX_STRIDE], inverses[NMF_MAX_STRIDE], pairs[NMF_MAX_STRIDE / GROUP][PAIRS], sums[N_SUMS + lanes];
    for (int f = 0; f < order; ++f) {
        // Factors from n_factors to `order` have columns of zeros: a diagonal of reg, and x stays 0.
        x[f] = f < n_factors ? out[f] : 0;
        inverses[f] = -x[f];
    }
    if (problem.weights) transpose_entries<T, true>(problem, start, n, width, order, inverses, columns, residuals);
    else transpose_entries<T, false>(problem, start, n, width, order, inverses, columns, residuals);
    T minus_changes[GROUP] = {};
    const T* previous = columns;  // no factor has changed yet: minus_changes are 0, so any columns may be used
    for (int sweep = 0; sweep < problem.max_sweeps; ++sweep)
        for (int f = 0, b = 0; f < order; f += GROUP, ++b) {
            const T* group_columns = columns + (ptrdiff_t)f * width;
            const T* pair = pairs[b];
            if (sweep) sum_columns<T, false>(previous, minus_changes, group_columns, width, residuals, sums);
            else {
                sum_columns<T, true>(previous, minus_changes, group_columns, width, residuals, sums);
                __builtin_memcpy(pairs[b], sums + GROUP, sizeof pairs[b]);
#pragma GCC unroll 4
                for (int i = 0; i < GROUP; ++i) {
                    // G_ff = sum w v_f^2 + reg; entry (i, i) of a triangle by rows is at i (i + 3) / 2.
                    const T diagonal = pair[i * (i + 3) / 2] + regularization;
                    inverses[f + i] = diagonal > 0 ? 1 / diagonal : 0;
                    x[f + i] = diagonal > 0 ? x[f + i] : 0;  // a factor without entries may have any value
                }
            }
            previous = group_columns;
#pragma GCC unroll 4
            for (int i = 0; i < GROUP; ++i) {
                T gradient = sums[i] - regularization * x[f + i];  // (b - Gx)_f before any change in this group
            // Subtract G_fj times the change of each factor of the group that has changed since.
#pragma GCC unroll 4
                for (int j = 0; j < i; ++j) gradient += pair[i * (i + 1) / 2 + j] * minus_changes[j];
                const T to = x[f + i] + gradient * inverses[f + i], clipped = to > 0 ? to : 0;
                minus_changes[i] = x[f + i] - clipped;
                x[f + i] = clipped;
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
// A group of entries is taken at a time: first the products u'v, then both sums, of x v and of (u'v) v. If the item
// factors do not stay in registers in between, larger groups have fewer sums across lanes.
template <class T, int LANES, int NV>
struct EntryGroup {
    enum { N = LANES > 4 && (VECTOR_BYTES == 64 || NV == 1) ? 4 : LANES };
    typedef typename Vector<T, N>::Type Type;
};

template <class T, int LANES, int NV>
struct Sums {
    enum { N = NV <= 2 ? 2 : 1 };  // a single sum would wait for its last addition
    typename Vector<T, LANES>::Type above[N][NV], below[N][NV];
};

template <class T, int LANES, int NV, class Rows>
FASTFEDREC_INLINE void add_entries(const Rows& rows, const typename EntryGroup<T, LANES, NV>::Type& xs,
                                   const typename EntryGroup<T, LANES, NV>::Type& products, Sums<T, LANES, NV>& to) {
    typedef typename Vector<T, LANES>::Type V;
#pragma GCC unroll 8
    for (int j = 0; j < EntryGroup<T, LANES, NV>::N; ++j)
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
FASTFEDREC_INLINE void multiply_factors(const Sums<T, LANES, NV>& sums, T regularization, T* u) {
    typedef typename Vector<T, LANES>::Type V;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
        // u <- u (sum w x v) / (sum w (u'v) v + reg u)
        const V x = load<V>(u + v * LANES);
        V above = sums.above[0][v], below = sums.below[0][v];
        if constexpr (Sums<T, LANES, NV>::N == 2) above += sums.above[1][v], below += sums.below[1][v];
        below = multiply_add(spread<V>(regularization), x, below);
        const V updated = x * above / below;
        store(u + v * LANES, below > 0 ? updated : V{});  // 0 / 0 if the factor is already 0, or no entry has it
    }
}

// More than NV vectors of factors are added up in memory, NV at a time.
template <class T, int LANES, int NV, bool IN_PARTS, bool WEIGHTED>
static void multiply(const NmfProblem<T>& problem, ptrdiff_t row, T regularization, T* u) {
    constexpr int part = NV * LANES, group_size = EntryGroup<T, LANES, NV>::N;
    typedef typename Vector<T, LANES>::Type V;
    typedef typename EntryGroup<T, LANES, NV>::Type W;
    const int64_t start = problem.indptr[row], stop = problem.indptr[row + 1];
    const int n_parts = IN_PARTS ? (problem.n_factors + part - 1) / part : 1;
    Rows<T, LANES, group_size, NV> rows;
    Sums<T, LANES, NV> sums[IN_PARTS ? NMF_MAX_STRIDE / part : 1] = {};
    const auto set_row = [&](int j, int64_t entry) __attribute__((always_inline)) {
        const ptrdiff_t item = problem.indices ? (ptrdiff_t)problem.indices[entry] : entry - start;
        rows.starts[j] = problem.item_factors + item * problem.stride;
    };
    const auto add = [&](W xs, const W* weights) __attribute__((always_inline)) {
        V terms[group_size] = {};
        for (int p = 0; p < n_parts; ++p) {
            rows.load_rows(p * NV);
#pragma GCC unroll 4
            for (int v = 0; v < NV; ++v) {
                const V x = load<V>(u + p * part + v * LANES);
#pragma GCC unroll 8
                for (int j = 0; j < group_size; ++j) terms[j] = multiply_add(x, rows.at(j, v), terms[j]);
            }
        }
        W products = row_sums<group_size>(terms);
        if (weights) xs *= *weights, products *= *weights;
        rows.keep_or_reload();
        for (int p = 0; p < n_parts; ++p) {
            if (IN_PARTS) rows.load_rows(p * NV);
            add_entries<T, LANES, NV>(rows, xs, products, sums[p]);
        }
    };
    // Groups of entries are taken in their order, so the sums depend on this row alone.
    int64_t k = start;
    for (; k + group_size <= stop; k += group_size) {
#pragma GCC unroll 8
        for (int j = 0; j < group_size; ++j) set_row(j, k + j);
        if constexpr (WEIGHTED) {
            const W weights = load<W>(problem.weights + k);
            add(load<W>(problem.values + k), &weights);
        } else add(load<W>(problem.values + k), nullptr);
    }
    if (k < stop) {
        W xs, weights;
        for (int j = 0; j < group_size; ++j) {
            const int64_t entry = k + j < stop ? k + j : start;  // the substitute entry adds 0
            set_row(j, entry);
            xs[j] = problem.values[entry];
            weights[j] = k + j >= stop ? 0 : WEIGHTED ? problem.weights[entry] : 1;
        }
        add(xs, &weights);
    }
    for (int p = 0; p < n_parts; ++p) multiply_factors<T, LANES, NV>(sums[p], regularization, u + p * part);
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
