// A user's rows of a table, a few at a time: their products with a vector, and their sum by coefficients.
//
// Included by _als_cg.cpp alone; see _lanes.h for why it may be.
#pragma once
#include "_kernels/compute/_als.h"
#include "_kernels/compute/_rows.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { LONGEST = 256 };  // factors

// N lanes, which divide the stride; NV vectors that a row has, or any number where NV is 0; and a lane for each of the
// few rows with products that are added at once: four may stay in registers, and more share one way to a sum in memory.
template <class T, int N, int NV>
struct Lanes {
    enum { MOST = NV ? 4 : 8, ROWS = N < MOST ? N : MOST };
    typedef typename Vector<T, N>::Type Wide;
    typedef typename Vector<T, ROWS>::Type Narrow;
    typedef Rows<T, N, ROWS, NV> Some;
};

template <int LANES, int VECTORS>
struct Width {
    enum { N = LANES, NV = VECTORS };
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
    // Lane by lane over the row: v'p is the sum of the lanes.
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
    FASTFEDREC_MEMBER void add_vector(int v, const Wide& x) { sums[v] += x; }
    FASTFEDREC_MEMBER void add(const typename Lanes<T, N, NV>::Some& rows, const T* coefficients) {
#pragma GCC unroll 8
        for (int i = 0; i < Lanes<T, N, NV>::ROWS; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) sums[v] = multiply_add(rows.at(i, v), spread<Wide>(coefficients[i]), sums[v]);
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
    FASTFEDREC_MEMBER void add_vector(int v, const Wide& x) { store(y + v * N, load<Wide>(y + v * N) + x); }
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

enum Want {
    PRODUCT,  // sum_i w_ui (v_i'p) v_i
    RESIDUAL,  // sum_i (1 + w_ui - w_ui v_i'p) v_i
    RIGHT_SIDE  // sum_i (1 + w_ui) v_i
};

// Whether later passes over a user's rows prefetch them too. By measurement: rows of four lines, many of them gone
// from the nearest cache (5% less time at 64 floats; with AVX2 beside V'V 1% more on Zen 4, 5% less on a Xeon).
// Shorter ones come soon enough, and longer ones push each other out (10 to 25% more time from 128 floats on).
template <int N, int NV, class T>
static constexpr bool asks_again() {
    return N * NV * sizeof(T) == 256;
}

// The halves are added first, and their halves, so that no lane waits for all before it.
template <int N, class T>
FASTFEDREC_INLINE T lanes_total(const typename Vector<T, N>::Type& x) {
    // Halves of halves: an order that the number of lanes fixes.
    if constexpr (N == 2) return x[0] + x[1];
    else {
        typedef typename Vector<T, N / 2>::Type Half;
        return lanes_total<N / 2, T>(load<Half>((const T*)&x) + load<Half>((const T*)&x + N / 2));
    }
}

// Alternating sums of products: each sum waits for its own last addition alone.
template <int N, class T>
struct Products {
    typedef typename Vector<T, N>::Type Wide;
    enum { TURNS = 4 };
    Wide sums[TURNS] = {};

    // Calls take(f, sum) for the vectors that begin at each f: it adds to the sum.
    template <class Function>
    FASTFEDREC_MEMBER T of(int n, Function take) {
        int f = 0;
        // Vectors of n alternate between TURNS sums, the remainder goes to the first: n alone fixes the order.
        for (; f + TURNS * N <= n; f += TURNS * N)
#pragma GCC unroll 4
            for (int i = 0; i < TURNS; ++i) take(f + i * N, sums[i]);
        for (; f < n; f += N) take(f, sums[0]);
        return lanes_total<N, T>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
};

template <int N, class T>
static T dot(const T* a, const T* b, int n) {
    typedef typename Vector<T, N>::Type Wide;
    return Products<N, T>().of(
        n, [&](int f, Wide& sum) { sum = multiply_add(load<Wide>(a + f), load<Wide>(b + f), sum); });
}

template <class T>
FASTFEDREC_INLINE const T* zero_row() {
    alignas(64) static const T zeros[LONGEST] = {};
    return zeros;
}

// Calls take(rows, w) for a user's rows of `table`, a few at a time; rows past the last are zeros.
template <int N, int NV, bool ASKS_AHEAD, class T, class Function>
FASTFEDREC_INLINE void each_few(const AlsProblem<T>& problem, const T* table, int64_t start, int64_t stop, int stride,
                                Function take) {
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS, ahead = 16, line = 64 / sizeof(T);
    const T* const zeros = zero_row<T>();
    const Narrow weight = spread<Narrow>((T)problem.weight);
    typename Lanes<T, N, NV>::Some rows;
    // k: the user's items in order, n_rows at a time.
    for (int64_t k = start; k < stop; k += n_rows) {
        Narrow w = weight;
        // indices[k + i] < n_items (Interactions checks); 64 bits wide
        if (k + n_rows <= stop) {
#pragma GCC unroll 8
            for (int i = 0; i < n_rows; ++i) rows.starts[i] = table + (ptrdiff_t)problem.indices[k + i] * stride;
            if (problem.values) w *= load<Narrow>(problem.values + k);
        } else
            for (int i = 0; i < n_rows; ++i) {
                // Past the last item a row of zeros, with a coefficient that adds 0.
                rows.starts[i] = k + i < stop ? table + (ptrdiff_t)problem.indices[k + i] * stride : zeros;
                if (problem.values && k + i < stop) w[i] *= problem.values[k + i];
            }
        if (ASKS_AHEAD && k + ahead + n_rows <= stop)  // k + ahead + i < stop: the prefetched index exists
            for (int i = 0; i < n_rows; ++i)
                for (int f = 0; f < stride; f += line)
                    __builtin_prefetch(table + (ptrdiff_t)problem.indices[k + ahead + i] * stride + f);
        rows.hold(0);
        take(rows, w);
    }
}

// The products of some rows with p, and meanwhile the sum of the rows before, with coefficients that are complete: a
// product waits for its last addition, and a coefficient for its product, and here the one's time is used by the other.
template <int N, int NV, class T>
FASTFEDREC_INLINE typename Lanes<T, N, NV>::Narrow products_beside_sum(const typename Lanes<T, N, NV>::Some& rows,
                                                                       const T* p,
                                                                       const typename Lanes<T, N, NV>::Some& before,
                                                                       const T* coefficients, RowSum<N, NV, T>& sum) {
    typedef typename Lanes<T, N, NV>::Wide Wide;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS;
    Wide sums[n_rows];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; ++i) sums[i] = Wide{};
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
        const Wide x = load<Wide>(p + v * N);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; ++i) sums[i] = multiply_add(rows.at(i, v), x, sums[i]);
#pragma GCC unroll 8
        for (int k = v * n_rows; k < (v + 1) * n_rows; ++k)  // a share of all vectors of all rows
            sum.sums[k % NV] =
                multiply_add(before.at(k / NV, k % NV), spread<Wide>(coefficients[k / NV]), sum.sums[k % NV]);
    }
    return row_sums<n_rows>(sums);
}

// Adds the sums that WANT selects over a user's rows of `table`. The first pass over the rows prefetches them.
template <int N, int NV, Want WANT, bool ASKS_AGAIN, class T>
FASTFEDREC_INLINE void add_items(const AlsProblem<T>& problem, const T* table, int64_t start, int64_t stop, const T* p,
                                 int stride, RowSum<N, NV, T>& sum) {
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    typedef typename Lanes<T, N, NV>::Some Some;
    constexpr bool asks = WANT != PRODUCT || ASKS_AGAIN;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS;
    const Narrow one = spread<Narrow>((T)1);
    alignas(64) T coefficients[n_rows] = {};
    const auto set_coefficients = [&](Narrow w, Narrow products) __attribute__((always_inline)) {
        // w v'p, or 1 + w - w v'p for the residual
        store(coefficients, WANT == RESIDUAL ? one + w - w * products : w * products);
    };
    if constexpr (WANT != RIGHT_SIDE && NV > 0 && !Some::HELD) {
        Some before;  // none yet: zeros, times zero
        for (int i = 0; i < n_rows; ++i) before.starts[i] = zero_row<T>();
        const auto add = [&](Some& rows, Narrow w) __attribute__((always_inline)) {
            set_coefficients(w, products_beside_sum<N, NV>(rows, p, before, coefficients, sum));
            before = rows;
        };
        each_few<N, NV, asks>(problem, table, start, stop, stride, add);
        sum.add(before, coefficients);  // the last rows, which had no later rows to overlap with
        return;
    }
    const auto add = [&](Some& rows, Narrow w) __attribute__((always_inline)) {
        if constexpr (WANT == RIGHT_SIDE) store(coefficients, one + w);
        else set_coefficients(w, row_products<N, NV>(rows, p, stride));
        sum.add(rows, coefficients);
    };
    each_few<N, NV, asks>(problem, table, start, stop, stride, add);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
