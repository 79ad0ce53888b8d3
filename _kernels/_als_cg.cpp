// Conjugate gradients for users' least squares (see _als.h); compiled once for each level.
//
// A is never formed: A p = (V'V + reg I) p + sum_i w_ui (v_i'p) v_i, a few rows at a time.
#include "_kernels/_als.h"

#include "_kernels/_rows.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { LONGEST = 256 };  // factors

// N lanes, which divide the stride; NV vectors that a row has, or any number where NV is 0; and a lane for each of the
// few rows whose products are summed together: four may stay in registers, and more share one way to a sum in memory.
template <class T, int N, int NV>
struct Lanes {
    enum { MOST = NV ? 4 : 8, ROWS = N < MOST ? N : MOST };
    typedef typename Vector<T, N>::Type Wide;
    typedef typename Vector<T, ROWS>::Type Narrow;
    typedef Rows<T, N, ROWS, NV> Some;
};

// v'p for a few rows v.
template <int N, int NV, class T>
FASTFEDREC_INLINE typename Lanes<T, N, NV>::Narrow row_products(const typename Lanes<T, N, NV>::Some& rows, const T* p,
                                                                int stride) {
    typedef typename Lanes<T, N, NV>::Wide Wide;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS;
    Wide sums[n_rows];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; ++i) sums[i] = Wide{};
#pragma GCC unroll 8
    for (int v = 0; v < (NV ? NV : stride / N); ++v) {
        const Wide x = load<Wide>(p + v * N);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; ++i) sums[i] = multiply_add(rows.at(i, v), x, sums[i]);
    }
    return row_sums<n_rows>(sums);
}

// A sum of rows, each times its coefficient: NV vectors in registers, or in memory where NV is 0.
template <int N, int NV, class T>
struct RowSum {
    typedef typename Lanes<T, N, NV>::Wide Wide;
    Wide sums[NV];

    FASTFEDREC_MEMBER void open(T*, int) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) sums[v] = Wide{};
    }
    FASTFEDREC_MEMBER void add(const typename Lanes<T, N, NV>::Some& rows, const T* coefficients) {
#pragma GCC unroll 8
        for (int i = 0; i < Lanes<T, N, NV>::ROWS; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v)
                sums[v] = multiply_add(rows.at(i, v), spread<Wide>(coefficients[i]), sums[v]);
    }
    FASTFEDREC_MEMBER void close(T* y) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) store(y + v * N, sums[v]);
    }
};

template <int N, class T>
struct RowSum<N, 0, T> {
    typedef typename Lanes<T, N, 0>::Wide Wide;
    T* y;
    int stride;

    FASTFEDREC_MEMBER void open(T* to, int n) {
        y = to;
        stride = n;
        __builtin_memset(y, 0, stride * sizeof(T));
    }
    FASTFEDREC_MEMBER void add(const typename Lanes<T, N, 0>::Some& rows, const T* coefficients) {
        for (int v = 0; v < stride / N; ++v) {
            Wide even = load<Wide>(y + v * N), odd = Wide{};
#pragma GCC unroll 8
            for (int i = 0; i < Lanes<T, N, 0>::ROWS; i += 2) {
                even = multiply_add(rows.at(i, v), spread<Wide>(coefficients[i]), even);
                odd = multiply_add(rows.at(i + 1, v), spread<Wide>(coefficients[i + 1]), odd);
            }
            store(y + v * N, even + odd);
        }
    }
    FASTFEDREC_MEMBER void close(T*) {}
};

// y = A p, or the residual y = b - A p, which meets a user's rows first and so prefetches them.
template <int N, int NV, bool RESIDUAL, class T>
static void apply(const AlsProblem<T>& problem, int64_t start, int64_t stop, const T* p, T* y) {
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS, ahead = 16, line = 64 / sizeof(T);
    static const T zeros[LONGEST] = {};
    const int stride = NV ? NV * N : problem.stride;
    const Narrow one = spread<Narrow>((T)1), weight = spread<Narrow>((T)problem.weight);
    alignas(64) T coefficients[n_rows];
    typename Lanes<T, N, NV>::Some rows;
    RowSum<N, NV, T> sum;
    sum.open(y, stride);
    for (int f = 0; f < stride; f += n_rows) {
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; ++i) rows.starts[i] = problem.gram + (f + i) * stride;
        rows.hold(0);
        const Narrow c = load<Narrow>(p + f);
        store(coefficients, RESIDUAL ? -c : c);
        sum.add(rows, coefficients);
    }
    for (int64_t k = start; k < stop; k += n_rows) {
        Narrow w = weight;
        if (k + n_rows <= stop) {
#pragma GCC unroll 8
            for (int i = 0; i < n_rows; ++i)
                rows.starts[i] = problem.item_factors + (ptrdiff_t)problem.indices[k + i] * stride;
            if (problem.values) w *= load<Narrow>(problem.values + k);
        } else
            for (int i = 0; i < n_rows; ++i) {
                rows.starts[i] =
                    k + i < stop ? problem.item_factors + (ptrdiff_t)problem.indices[k + i] * stride : zeros;
                if (problem.values && k + i < stop) w[i] *= problem.values[k + i];
            }
        if (RESIDUAL && k + ahead + n_rows <= stop)
            for (int i = 0; i < n_rows; ++i)
                for (int f = 0; f < stride; f += line)
                    __builtin_prefetch(problem.item_factors + (ptrdiff_t)problem.indices[k + ahead + i] * stride + f);
        rows.hold(0);
        const Narrow products = row_products<N, NV>(rows, p, stride);
        rows.keep_or_read_again();
        store(coefficients, RESIDUAL ? one + w - w * products : w * products);
        sum.add(rows, coefficients);
    }
    sum.close(y);
}

template <int N, class T>
static T dot(const T* a, const T* b, int n) {
    typedef typename Vector<T, N>::Type Wide;
    Wide sums = Wide{};
    for (int f = 0; f < n; f += N) sums = multiply_add(load<Wide>(a + f), load<Wide>(b + f), sums);
    T sum = 0;
    for (int i = 0; i < N; ++i) sum += sums[i];
    return sum;
}

// y = a x + b y
template <int N, class T>
static void combine(T a, const T* x, T b, T* y, int n) {
    typedef typename Vector<T, N>::Type Wide;
    for (int f = 0; f < n; f += N)
        store(y + f, multiply_add(spread<Wide>(a), load<Wide>(x + f), spread<Wide>(b) * load<Wide>(y + f)));
}

template <int N, int NV, class T>
static void solve_cg(const AlsProblem<T>& problem, ptrdiff_t user, int n_steps, T* out) {
    const int64_t start = problem.indptr[user], stop = problem.indptr[user + 1];
    const int n = problem.n_factors, stride = problem.stride;
    alignas(64) T x[LONGEST], r[LONGEST], p[LONGEST], product[LONGEST];
    if (start == stop) {
        __builtin_memset(out, 0, n * sizeof(T));
        return;
    }
    __builtin_memset(x, 0, stride * sizeof(T));
    __builtin_memcpy(x, out, n * sizeof(T));
    apply<N, NV, true>(problem, start, stop, x, r);
    __builtin_memcpy(p, r, stride * sizeof(T));
    T squares = dot<N>(r, r, stride);
    for (int step = 0; step < n_steps; ++step) {
        // Comparisons that a NaN fails: what has overflowed, or is solved already, leaves x as it is.
        if (!(squares > 0)) break;
        apply<N, NV, false>(problem, start, stop, p, product);
        const T length = squares / dot<N>(p, product, stride);
        if (!(length > 0 && length * 0 == 0)) break;
        combine<N>(length, p, (T)1, x, stride);
        combine<N>(-length, product, (T)1, r, stride);
        const T next = dot<N>(r, r, stride);
        combine<N>((T)1, r, next / squares, p, stride);
        squares = next;
    }
    __builtin_memcpy(out, x, n * sizeof(T));
}

template <int N, class T>
static void solve_any_cg(const AlsProblem<T>& problem, ptrdiff_t user, int n_steps, T* out) {
    switch (problem.stride / N) {
        case 1: return solve_cg<N, 1>(problem, user, n_steps, out);
        case 2: return solve_cg<N, 2>(problem, user, n_steps, out);
        case 4: return solve_cg<N, 4>(problem, user, n_steps, out);
        case 8: return solve_cg<N, 8>(problem, user, n_steps, out);
        default: return solve_cg<N, 0>(problem, user, n_steps, out);
    }
}

void als_solve_cg(const AlsProblem<float>& problem, ptrdiff_t user, int n_steps, float* out) {
    constexpr int lanes = Native<float>::LANES;
    if (problem.stride < lanes) solve_any_cg<8>(problem, user, n_steps, out);
    else solve_any_cg<lanes>(problem, user, n_steps, out);
}

void als_solve_cg(const AlsProblem<double>& problem, ptrdiff_t user, int n_steps, double* out) {
    solve_any_cg<Native<double>::LANES>(problem, user, n_steps, out);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
