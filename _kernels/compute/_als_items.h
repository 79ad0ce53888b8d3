// Rows of a table that belong to one user, a group at a time: products with a vector, and a weighted sum.
//
// Only _als_cg.cpp may include this file; see _lanes.h.
#pragma once
#include "_kernels/compute/_als.h"
#include "_kernels/compute/_rows.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { MAX_FACTORS = 256 };

// N is the number of lanes, which divides the stride. NV is the number of vectors of a row, or 0 for any number. A
// group has a lane for each row: four rows may stay in registers, and more share one pass over a sum in memory.
template <class T, int N, int NV>
struct Lanes {
    enum { MAX_ROWS = NV ? 4 : 8, ROWS = N < MAX_ROWS ? N : MAX_ROWS };
    typedef typename Vector<T, N>::Type Wide;
    typedef typename Vector<T, ROWS>::Type Narrow;
    typedef Rows<T, N, ROWS, NV> RowGroup;
};

template <int LANES, int VECTORS>
struct Width {
    enum { N = LANES, NV = VECTORS };
};

// Computes v'p for each row v of a group.
template <int N, int NV, class T>
FASTFEDREC_INLINE typename Lanes<T, N, NV>::Narrow row_products(const typename Lanes<T, N, NV>::RowGroup& rows,
                                                                const T* p, int stride) {
    typedef typename Lanes<T, N, NV>::Wide Wide;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS;
    Wide sums[n_rows];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; ++i) sums[i] = Wide{};
    // v'p is the sum of the lanes, which are added up after the last vector.
#pragma GCC unroll 8
    for (int v = 0; v < (NV ? NV : stride / N); ++v) {
        const Wide x = load<Wide>(p + v * N);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; ++i) sums[i] = multiply_add(rows.at(i, v), x, sums[i]);
    }
    return row_sums<n_rows>(sums);
}

// A weighted sum of rows: NV vectors in registers, or a vector in memory where NV is 0.
template <int N, int NV, class T>
struct RowSum {
    typedef typename Lanes<T, N, NV>::Wide Wide;
    Wide sums[NV];

    FASTFEDREC_MEMBER void begin(T*, int) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) sums[v] = Wide{};
    }
    FASTFEDREC_MEMBER void add_vector(int v, const Wide& x) { sums[v] += x; }
    FASTFEDREC_MEMBER void add(const typename Lanes<T, N, NV>::RowGroup& rows, const T* coefficients) {
#pragma GCC unroll 8
        for (int i = 0; i < Lanes<T, N, NV>::ROWS; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) sums[v] = multiply_add(rows.at(i, v), spread<Wide>(coefficients[i]), sums[v]);
    }
    FASTFEDREC_MEMBER void finish(T* y) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) store(y + v * N, sums[v]);
    }
};

template <int N, class T>
struct RowSum<N, 0, T> {
    typedef typename Lanes<T, N, 0>::Wide Wide;
    T* y;
    int stride;

    FASTFEDREC_MEMBER void begin(T* to, int n) {
        y = to;
        stride = n;
        __builtin_memset(y, 0, stride * sizeof(T));
    }
    FASTFEDREC_MEMBER void add_vector(int v, const Wide& x) { store(y + v * N, load<Wide>(y + v * N) + x); }
    FASTFEDREC_MEMBER void add(const typename Lanes<T, N, 0>::RowGroup& rows, const T* coefficients) {
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
    FASTFEDREC_MEMBER void finish(T*) {}
};

enum ItemSum {
    PRODUCT,  // sum_i w_ui (v_i'p) v_i
    RESIDUAL,  // sum_i (1 + w_ui - w_ui v_i'p) v_i
    RIGHT_SIDE  // sum_i (1 + w_ui) v_i
};

// Returns whether later passes over the rows of a user prefetch them too. By measurement, rows of four lines gain,
// because many of them are gone from the nearest cache (5% less time at 64 floats; with AVX2 in addition to V'V 1% more
// on Zen 4, 5% less on a Xeon). Shorter rows arrive in time, and longer ones evict each other (10 to 25% more time from
// 128 floats on).
template <int N, int NV, class T>
static constexpr bool prefetches_again() {
    return N * NV * sizeof(T) == 256;
}

// Adds the two halves, then the halves of the result, so that no lane waits for all lanes before it.
template <int N, class T>
FASTFEDREC_INLINE T lanes_total(const typename Vector<T, N>::Type& x) {
    // The number of lanes determines the order.
    if constexpr (N == 2) return x[0] + x[1];
    else {
        typedef typename Vector<T, N / 2>::Type Half;
        return lanes_total<N / 2, T>(load<Half>((const T*)&x) + load<Half>((const T*)&x + N / 2));
    }
}

// Alternating sums of products: each sum waits for the last addition to itself only.
template <int N, class T>
struct Products {
    typedef typename Vector<T, N>::Type Wide;
    enum { N_SUMS = 4 };
    Wide sums[N_SUMS] = {};

    // Calls visit(f, sum) for the vector at each f; it adds to the sum.
    template <class Function>
    FASTFEDREC_MEMBER T of(int n, Function visit) {
        int f = 0;
        // Vectors of n alternate between N_SUMS sums, and the remainder goes to the first: n alone determines the
        // order.
        for (; f + N_SUMS * N <= n; f += N_SUMS * N)
#pragma GCC unroll 4
            for (int i = 0; i < N_SUMS; ++i) visit(f + i * N, sums[i]);
        for (; f < n; f += N) visit(f, sums[0]);
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
    alignas(64) static const T zeros[MAX_FACTORS] = {};
    return zeros;
}

// Calls visit(rows, w) for the rows of a user in `table`, a group at a time; rows after the last one are zeros.
template <int N, int NV, bool PREFETCH, class T, class Function>
FASTFEDREC_INLINE void for_row_groups(const AlsProblem<T>& problem, const T* table, int64_t start, int64_t stop,
                                      int stride, Function visit) {
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS, distance = 16, line = 64 / sizeof(T);
    const T* const zeros = zero_row<T>();
    const Narrow weight = spread<Narrow>((T)problem.weight);
    typename Lanes<T, N, NV>::RowGroup rows;
    // The items of the user are taken in their order, n_rows at a time.
    for (int64_t k = start; k < stop; k += n_rows) {
        Narrow w = weight;
        // indices[k + i] < n_items (Interactions checks); 64 bits wide
        if (k + n_rows <= stop) {
#pragma GCC unroll 8
            for (int i = 0; i < n_rows; ++i) rows.starts[i] = table + (ptrdiff_t)problem.indices[k + i] * stride;
            if (problem.values) w *= load<Narrow>(problem.values + k);
        } else
            for (int i = 0; i < n_rows; ++i) {
                // After the last item there is a row of zeros, with a coefficient that adds 0.
                rows.starts[i] = k + i < stop ? table + (ptrdiff_t)problem.indices[k + i] * stride : zeros;
                if (problem.values && k + i < stop) w[i] *= problem.values[k + i];
            }
        if (PREFETCH && k + distance + n_rows <= stop)  // k + ahead + i < stop: the prefetched index exists
            for (int i = 0; i < n_rows; ++i)
                for (int f = 0; f < stride; f += line)
                    __builtin_prefetch(table + (ptrdiff_t)problem.indices[k + distance + i] * stride + f);
        rows.load_rows(0);
        visit(rows, w);
    }
}

// Computes the products of a group of rows with p, and at the same time the sum of the previous group, with
// coefficients that are complete. A product waits for its last addition, and a coefficient for its product; this
// overlaps the two.
template <int N, int NV, class T>
FASTFEDREC_INLINE typename Lanes<T, N, NV>::Narrow products_and_sum(const typename Lanes<T, N, NV>::RowGroup& rows,
                                                                    const T* p,
                                                                    const typename Lanes<T, N, NV>::RowGroup& previous,
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
        for (int k = v * n_rows; k < (v + 1) * n_rows; ++k)  // an equal part of all vectors of all rows
            sum.sums[k % NV] =
                multiply_add(previous.at(k / NV, k % NV), spread<Wide>(coefficients[k / NV]), sum.sums[k % NV]);
    }
    return row_sums<n_rows>(sums);
}

// Adds the sums that SUM selects over the rows of a user in `table`. The first pass over the rows prefetches them.
template <int N, int NV, ItemSum SUM, bool PREFETCH_AGAIN, class T>
FASTFEDREC_INLINE void add_items(const AlsProblem<T>& problem, const T* table, int64_t start, int64_t stop, const T* p,
                                 int stride, RowSum<N, NV, T>& sum) {
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    typedef typename Lanes<T, N, NV>::RowGroup RowGroup;
    constexpr bool prefetch = SUM != PRODUCT || PREFETCH_AGAIN;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS;
    const Narrow one = spread<Narrow>((T)1);
    alignas(64) T coefficients[n_rows] = {};
    const auto set_coefficients = [&](Narrow w, Narrow products) __attribute__((always_inline)) {
        // w v'p, or 1 + w - w v'p for the residual
        store(coefficients, SUM == RESIDUAL ? one + w - w * products : w * products);
    };
    if constexpr (SUM != RIGHT_SIDE && NV > 0 && !RowGroup::IN_REGISTERS) {
        RowGroup previous;  // there is none yet: zeros, times zero
        for (int i = 0; i < n_rows; ++i) previous.starts[i] = zero_row<T>();
        const auto add = [&](RowGroup& rows, Narrow w) __attribute__((always_inline)) {
            set_coefficients(w, products_and_sum<N, NV>(rows, p, previous, coefficients, sum));
            previous = rows;
        };
        for_row_groups<N, NV, prefetch>(problem, table, start, stop, stride, add);
        sum.add(previous, coefficients);  // the last group has no later group to overlap with
        return;
    }
    const auto add = [&](RowGroup& rows, Narrow w) __attribute__((always_inline)) {
        if constexpr (SUM == RIGHT_SIDE) store(coefficients, one + w);
        else set_coefficients(w, row_products<N, NV>(rows, p, stride));
        sum.add(rows, coefficients);
    };
    for_row_groups<N, NV, prefetch>(problem, table, start, stop, stride, add);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
