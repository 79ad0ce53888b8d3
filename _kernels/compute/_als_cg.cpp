// Conjugate gradients for users' least squares (see _als.h); compiled once for each level.
//
// A is never formed: A p = (V'V + reg_u I) p + sum_i w_ui (v_i'p) v_i is computed a few rows at a time. Users take a
// few steps from a start, or steps to the precision of the type in coordinates in which the condition number is small.
#include "_kernels/compute/_als.h"

#include "_kernels/compute/_als_items.h"
#include "_kernels/compute/_als_rotate.h"
#include "_kernels/compute/_product_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum {
    MARGIN = 16,     // zeros before and after a vector, so that the neighbours of its ends can be read
    STEP_SHARE = 5,  // a step costs about STEP_SHARE / n_factors of a user's matrix and its Cholesky factor
};

// Returns the number that is added to the diagonal of a user in addition to reg.
template <class T>
FASTFEDREC_INLINE T ridge_of(const AlsProblem<T>& problem, ptrdiff_t user) {
    return problem.ridges ? problem.ridges[user] : 0;
}

// Adds c (V'V + (reg + ridge) I) p. Rotated coordinates need the neighbours of the numbers of p instead of the matrix;
// no rotation changes ridge I.
template <int N, int NV, class T>
FASTFEDREC_INLINE void add_gram(const AlsProblem<T>& problem, T ridge, T c, const T* p, int stride,
                                RowSum<N, NV, T>& sum) {
    typedef typename Lanes<T, N, NV>::Wide Wide;
    if (problem.rotation) {
        const AlsRotation<T>& rotation = *problem.rotation;
        // c (T p)_f = c (d_f p_f + above_f p_{f+1} + below_f p_{f-1}); p has zeros on both sides (WithMargins).
#pragma GCC unroll 8
        for (int v = 0; v < (NV ? NV : stride / N); ++v) {
            const int f = v * N;
            Wide x = (load<Wide>(rotation.diagonal + f) + spread<Wide>(ridge)) * load<Wide>(p + f);
            x = multiply_add(load<Wide>(rotation.above + f), load<Wide>(p + f + 1), x);
            x = multiply_add(load<Wide>(rotation.below + f), load<Wide>(p + f - 1), x);
            sum.add_vector(v, spread<Wide>(c) * x);
        }
        return;
    }
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    constexpr int n_rows = Lanes<T, N, NV>::ROWS;
    alignas(64) T coefficients[n_rows];
    typename Lanes<T, N, NV>::RowGroup rows;
    // c sum_f p_f gram_f: gram is symmetric, so its rows are its columns.
    for (int f = 0; f < stride; f += n_rows) {
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; ++i) rows.starts[i] = problem.gram + (f + i) * stride;
        rows.load_rows(0);
        store(coefficients, spread<Narrow>(c) * load<Narrow>(p + f));
        sum.add(rows, coefficients);
    }
    if (ridge == 0) return;
#pragma GCC unroll 8
    for (int v = 0; v < (NV ? NV : stride / N); ++v) sum.add_vector(v, spread<Wide>(c * ridge) * load<Wide>(p + v * N));
}

// Computes y = A p, the residual y = b - A p, or the right-hand side y = b.
template <int N, int NV, ItemSum SUM, class T>
static void apply(const AlsProblem<T>& problem, ptrdiff_t user, const T* p, T* y) {
    const int64_t start = problem.indptr[user], stop = problem.indptr[user + 1];
    const int stride = NV ? NV * N : problem.stride;
    RowSum<N, NV, T> sum;
    sum.begin(y, stride);
    if constexpr (SUM != RIGHT_SIDE)
        add_gram<N, NV>(problem, ridge_of(problem, user), SUM == RESIDUAL ? (T)-1 : (T)1, p, stride, sum);
    add_items<N, NV, SUM, prefetches_again<N, NV, T>()>(problem, problem.item_factors, start, stop, p, stride, sum);
    sum.finish(y);
}

// Computes p'A p, which reads the rows of a user once, while A p reads them twice. Overwrites y.
template <int N, int NV, class T>
static T curvature(const AlsProblem<T>& problem, ptrdiff_t user, const T* p, T* y) {
    typedef typename Lanes<T, N, NV>::Narrow Narrow;
    typedef typename Lanes<T, N, NV>::RowGroup RowGroup;
    const int stride = NV ? NV * N : problem.stride;
    RowSum<N, NV, T> gram;
    gram.begin(y, stride);
    add_gram<N, NV>(problem, ridge_of(problem, user), (T)1, p, stride, gram);
    gram.finish(y);
    Narrow squares = Narrow{};
    // v'p for a group of rows v, then sum_i w (v'p)^2; rows after the last one are zeros.
    const auto add = [&](RowGroup& rows, Narrow w) __attribute__((always_inline)) {
        const Narrow products = row_products<N, NV>(rows, p, stride);
        squares = multiply_add(w * products, products, squares);
    };
    for_row_groups<N, NV, prefetches_again<N, NV, T>()>(problem, problem.item_factors, problem.indptr[user],
                                                        problem.indptr[user + 1], stride, add);
    // p'(V'V + reg_u I) p + sum_i w (v'p)^2 = p'A p
    T sum = dot<N>(p, y, stride);
    for (int i = 0; i < Lanes<T, N, NV>::ROWS; ++i) sum += squares[i];  // in the order of the lanes
    return sum;
}

// Computes y = Z'WZ p, or the right-hand side Z'(1 + w), where Z has the rows of V R^-1.
template <int N, int NV, ItemSum SUM, class T>
static void apply_whitened(const AlsProblem<T>& problem, int64_t start, int64_t stop, const T* p, T* y) {
    const int stride = NV ? NV * N : problem.stride;
    RowSum<N, NV, T> sum;
    sum.begin(y, stride);
    const T* table = problem.whitened + (ptrdiff_t)(stride + 1) * stride;
    add_items<N, NV, SUM, prefetches_again<N, NV, T>()>(problem, table, start, stop, p, stride, sum);
    sum.finish(y);
}

// y = a x + b y
template <int N, class T>
static void combine(T a, const T* x, T b, T* y, int n) {
    typedef typename Vector<T, N>::Type Wide;
    for (int f = 0; f < n; f += N)
        store(y + f, multiply_add(spread<Wide>(a), load<Wide>(x + f), spread<Wide>(b) * load<Wide>(y + f)));
}

// Computes the step length along p, where `curvature` is p'A p. Returns false if it overflows.
template <class T>
FASTFEDREC_INLINE bool step_length(T squares, T curvature, T& length) {
    length = squares / curvature;
    return length > 0 && length * 0 == 0;  // a NaN fails both
}

// Takes one step along p, where `product` is A p, and changes all but `product`. Returns false, without a change, if it
// overflows.
template <int N, class T>
static bool advance(const T* product, T* x, T* r, T* p, T& squares, int stride) {
    typedef typename Vector<T, N>::Type Wide;
    T length;
    if (!step_length(squares, dot<N>(p, product, stride), length)) return false;  // a = r'r / p'A p
    // x += a p, r -= a A p, and r'r of the new r
    const T next = Products<N, T>().of(stride, [&](int f, Wide& sum) {
        const Wide residual = multiply_add(spread<Wide>(-length), load<Wide>(product + f), load<Wide>(r + f));
        store(x + f, multiply_add(spread<Wide>(length), load<Wide>(p + f), load<Wide>(x + f)));
        store(r + f, residual);
        sum = multiply_add(residual, residual, sum);
    });
    // p = r + (r'r / former r'r) p; callers ensure that the former is above 0.
    combine<N>((T)1, r, next / squares, p, stride);
    squares = next;
    return true;
}

// A vector with zeros before and after; its first number is at `numbers`.
template <class T>
struct WithMargins {
    alignas(64) T all[MARGIN + MAX_FACTORS + MARGIN];
    T* const numbers = all + MARGIN;

    explicit WithMargins(int stride) {
        __builtin_memset(all, 0, MARGIN * sizeof(T));
        __builtin_memset(numbers + stride, 0, MARGIN * sizeof(T));
    }
};

// Takes steps from x (stride,), which the result replaces; returns false if there was no step to take.
template <int N, int NV, class T>
static bool solve_cg(const AlsProblem<T>& problem, ptrdiff_t user, int n_steps, T* x) {
    const int stride = problem.stride;
    alignas(64) T r[MAX_FACTORS], product[MAX_FACTORS];
    WithMargins<T> direction(stride);
    T* const p = direction.numbers;
    if (problem.indptr[user] == problem.indptr[user + 1]) {
        __builtin_memset(x, 0, stride * sizeof(T));
        return true;
    }
    bool from_zeros = true;
    // Start: r = b - A x, or r = b where x = 0; p = r.
    for (int f = 0; f < stride; ++f) from_zeros &= x[f] == 0;
    if (from_zeros) apply<N, NV, RIGHT_SIDE>(problem, user, x, r);
    else {
        __builtin_memcpy(p, x, stride * sizeof(T));
        apply<N, NV, RESIDUAL>(problem, user, p, r);
    }
    __builtin_memcpy(p, r, stride * sizeof(T));
    T squares = dot<N>(r, r, stride), length;  // r'r
    int step = 0;
    bool continues = squares > 0;  // false if it has overflowed, or is already solved
    // These are all steps but the last, which needs fewer operations.
    for (; step + 1 < n_steps && continues; step += continues) {
        apply<N, NV, PRODUCT>(problem, user, p, product);
        continues = advance<N>(product, x, r, p, squares, stride);
        if (continues && !(squares > 0)) return true;  // r = 0: solved exactly
    }
    // The last step needs no residual.
    if (!continues || !step_length(squares, curvature<N, NV>(problem, user, p, product), length)) return step > 0;
    // x += a p
    combine<N>(length, p, (T)1, x, stride);
    return true;
}

// Returns the number of halvings from 1 to |x|, to a tenth, from the bits of x: the same on every machine. It is
// negative for NaN and infinity.
FASTFEDREC_INLINE float halvings(float x) {
    int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return (float)(0x3f800000 - (bits & 0x7fffffff)) / (1 << 23);
}

// Solves to the precision of T in the coordinates Rx, where the system is (I + Z'WZ) y = Z'(1 + w). No eigenvalue is
// below 1, so the error is at most the residual, and none is above 1 + the largest weight. Returns false if the number
// of steps would make the matrix the cheaper method.
template <int N, int NV, class T>
static bool solve_whitened(const AlsProblem<T>& problem, ptrdiff_t user, T* out) {
    const int64_t start = problem.indptr[user], stop = problem.indptr[user + 1];
    const int n = problem.n_factors, stride = problem.stride;
    const float max_steps = (float)n / STEP_SHARE;
    const float target = sizeof(T) == 4 ? 42 : 92;  // halvings of the residual's square: to 2^-21, to 2^-46
    // y = R x; start from y = 0, so that r = Z'(1 + w)
    alignas(64) T y[MAX_FACTORS], r[MAX_FACTORS], p[MAX_FACTORS], product[MAX_FACTORS];
    T largest = problem.values ? 0 : 1;
    if (problem.values)
        for (int64_t k = start; k < stop; ++k) largest = problem.values[k] > largest ? problem.values[k] : largest;
    if (problem.weight * largest > als_whitened_weight(problem)) return false;
    __builtin_memset(y, 0, stride * sizeof(T));
    apply_whitened<N, NV, RIGHT_SIDE>(problem, start, stop, y, r);
    __builtin_memcpy(p, r, stride * sizeof(T));
    T squares = dot<N>(r, r, stride);
    const T first = squares;
    if (!(first > (T)1e-25f)) return false;  // the decrease would be outside the range of float
    float decrease = 0;
    for (int step = 1; decrease < target; ++step) {
        // A p = Z'WZ p + p
        apply_whitened<N, NV, PRODUCT>(problem, start, stop, p, product);
        combine<N>((T)1, p, (T)1, product, stride);
        if (!advance<N>(product, y, r, p, squares, stride)) return false;
        decrease = halvings((float)(squares / first));  // 127 where squares is 0, which ends the loop
        // Extrapolates the average decrease so far. A residual that does not decrease, or is NaN, decreases too slowly.
        if (step * (target - decrease) > max_steps * decrease || step > 2 * max_steps) return false;
    }
    // x = R^-1 y
    const T* roots = problem.whitened + (ptrdiff_t)stride * stride;
    solve_triangle<T>(problem.whitened, to_blocks(n), stride, roots, y, p);
    if (!is_finite(p, n)) return false;
    __builtin_memcpy(out, p, n * sizeof(T));
    return true;
}

// Calls f with the lanes of a vector and the vectors of a row; the latter are 0 for rows without code for their length.
// No row is shorter than MIN_STRIDE, so that shorter ones get no code of their own.
template <class T, int MIN_STRIDE, class Function>
FASTFEDREC_INLINE auto with_widths(int stride, Function f) {
    constexpr int lanes = Native<T>::LANES;
    constexpr auto vectors = [](int n) { return n * lanes < MIN_STRIDE ? 0 : n; };
    if constexpr (MIN_STRIDE <= 8)
        if (stride < lanes) return f(Width<8, 1>());
    switch (stride / lanes) {
        case 1: return f(Width<lanes, vectors(1)>());
        case 2: return f(Width<lanes, vectors(2)>());
        case 4: return f(Width<lanes, vectors(4)>());
        case 8: return f(Width<lanes, vectors(8)>());
        default: return f(Width<lanes, 0>());
    }
}

// Solves for users with rows of n_factors in `out`. A user that takes no step keeps its row, rotated or not.
template <class T>
static void solve_any_cg(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, int n_steps, char* scratch,
                         T* out) {
    const int n = problem.n_factors, stride = problem.stride, n_rows = (int)(last - first);
    const auto solve = [&](ptrdiff_t user, T* x) {
        return with_widths<T, 1>(stride, [&](auto width) {
            return solve_cg<decltype(width)::N, decltype(width)::NV>(problem, user, n_steps, x);
        });
    };
    if (!problem.rotation) {
        // Users are solved one at a time, in the coordinates of the factors.
        alignas(64) T x[MAX_FACTORS] = {};
        for (ptrdiff_t i = 0; i < n_rows; ++i) {
            __builtin_memcpy(x, out + i * n, n * sizeof(T));  // x keeps zeros from n to `stride`
            if (solve(first + i, x)) __builtin_memcpy(out + i * n, x, n * sizeof(T));
        }
        return;
    }
    T *rows = (T*)scratch, *rotated = rows + ALS_ROWS_AT_ONCE * stride;
    bool from_zeros = true, has_moved[ALS_ROWS_AT_ONCE];
    for (ptrdiff_t k = 0; k < (ptrdiff_t)n_rows * n; ++k) from_zeros &= out[k] == 0;
    __builtin_memset(rows, 0, als_rotated_bytes(stride));
    if (!from_zeros) {
        for (ptrdiff_t i = 0; i < n_rows; ++i) __builtin_memcpy(rows + i * stride, out + i * n, n * sizeof(T));
        rotate_rows(rows, problem.rotation->to_rotated, n_rows, stride, rotated);
    }
    // Each user reads and writes its own row of `rotated`.
    for (ptrdiff_t i = 0; i < n_rows; ++i) has_moved[i] = solve(first + i, rotated + i * stride);
    rotate_rows(rotated, problem.rotation->to_original, n_rows, stride, rows);
    for (ptrdiff_t i = 0; i < n_rows; ++i)
        if (has_moved[i]) __builtin_memcpy(out + i * n, rows + i * stride, n * sizeof(T));
}

template <class T>
static bool solve_any_whitened(const AlsProblem<T>& problem, ptrdiff_t user, T* out) {
    return with_widths<T, als_whitened_from<T>()>(problem.stride, [&](auto width) {
        return solve_whitened<decltype(width)::N, decltype(width)::NV>(problem, user, out);
    });
}

void als_solve_cg(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, int n_steps, char* scratch,
                  float* out) {
    solve_any_cg(problem, first, last, n_steps, scratch, out);
}

void als_solve_cg(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, int n_steps, char* scratch,
                  double* out) {
    solve_any_cg(problem, first, last, n_steps, scratch, out);
}

void als_find_rotation(const AlsProblem<float>& problem, double* scratch, const AlsRotation<float>& rotation) {
    tridiagonalize(problem, scratch, rotation);
}

void als_find_rotation(const AlsProblem<double>& problem, double* scratch, const AlsRotation<double>& rotation) {
    tridiagonalize(problem, scratch, rotation);
}

void als_rotate_rows(const AlsRotation<float>& rotation, int stride, int n_rows, char* scratch, float* rows) {
    rotate_in_place(rotation, stride, n_rows, scratch, rows);
}

void als_rotate_rows(const AlsRotation<double>& rotation, int stride, int n_rows, char* scratch, double* rows) {
    rotate_in_place(rotation, stride, n_rows, scratch, rows);
}

bool als_solve_whitened(const AlsProblem<float>& problem, ptrdiff_t user, float* out) {
    return solve_any_whitened(problem, user, out);
}

bool als_solve_whitened(const AlsProblem<double>& problem, ptrdiff_t user, double* out) {
    return solve_any_whitened(problem, user, out);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
