// See _nmf.h; compiled once for each level.
#include "_kernels/_nmf.h"

#include "_kernels/_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// `right` holds the negative gradient b - Gx, so a step of one coordinate takes one row of G from it.
template <class T>
static void descend(const T* gram, T* right, int n, int stride, int max_sweeps, T tolerance, T* x) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    const auto step = [&](int f, T change) __attribute__((always_inline)) {
        const V by = spread<V>(-change);
        for (int g = 0; g < stride; g += lanes)
            store(right + g, multiply_add(by, load<V>(gram + f * stride + g), load<V>(right + g)));
    };
    T inverses[NMF_MAX_STRIDE];
    for (int f = 0; f < n; ++f) {
        const T diagonal = gram[f * stride + f];
        inverses[f] = diagonal > 0 ? 1 / diagonal : 0;
        if (diagonal <= 0) x[f] = 0;  // a factor that no entry has, without regularisation: any value will do
        if (x[f] != 0) step(f, x[f]);
    }
    for (int sweep = 0; sweep < max_sweeps; ++sweep) {
        T largest = 0, change_most = 0;
        for (int f = 0; f < n; ++f) {
            T to = x[f] + right[f] * inverses[f];
            if (!(to > 0)) to = 0;
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
    for (int column = 0; column < problem.stride; column += lanes) {
        V sum = load<V>(right + column);
        for (int k = 0; k < n; ++k) {
            const ptrdiff_t i = problem.indices ? problem.indices[start + k] : item + k;
            const V v = load<V>(problem.item_factors + i * problem.stride + column);
            const T x = problem.values[start + k];
            if (problem.weights) {
                const T w = problem.weights[start + k];
                sum = multiply_add(spread<V>(w * x), v, sum);
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
static void solve_row(const NmfProblem<T>& problem, ptrdiff_t row, T* gram, T* packed, T* out) {
    const int stride = problem.stride, n_factors = problem.n_factors;
    const int order = (n_factors + BLOCK - 1) / BLOCK * BLOCK;
    const int64_t first = problem.indptr[row], stop = problem.indptr[row + 1];
    T right[NMF_MAX_STRIDE];
    __builtin_memset(right, 0, stride * sizeof(T));
    const T* base = problem.base;
    for (int64_t start = first; start < stop; start += NMF_PACKED) {
        const int n = stop - start < NMF_PACKED ? (int)(stop - start) : NMF_PACKED;
        pack(problem, start, start - first, n, packed, right);
        add_products<T>(packed, n, order, stride, base, gram);
        base = gram;
    }
    if (stop > first) {
        for (int f = 1; f < n_factors; ++f)
            for (int g = 0; g < f; ++g) gram[f * stride + g] = gram[g * stride + f];
        descend(gram, right, n_factors, stride, problem.max_sweeps, problem.tolerance, out);
    } else __builtin_memset(out, 0, n_factors * sizeof(T));
}

void nmf_solve(const NmfProblem<float>& problem, ptrdiff_t row, float* gram, float* packed, float* out) {
    solve_row(problem, row, gram, packed, out);
}

void nmf_solve(const NmfProblem<double>& problem, ptrdiff_t row, double* gram, double* packed, double* out) {
    solve_row(problem, row, gram, packed, out);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
