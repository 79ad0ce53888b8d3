// See _als.h; compiled once for each level.
//
// The plain form, `_als.pxd` for every user, took 8, 11, 12 and 16 times as long as this file with AVX-512 at 5, 16, 64
// and 128 factors (the size of MovieLens 1M, float32, one thread). It computes in double, updates a triangle in memory
// for each item, and waits for one pivot after another.
#include "_kernels/compute/_als.h"

#include "_kernels/compute/_als_whiten.h"
#include "_kernels/compute/_product_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum {
    MAX_LANE_FACTORS = 16,  // up to this number of factors, users are solved in batches, one user a lane
    MAX_PACKED = 256,  // items of a batch
    PREFETCH_DISTANCE = 16,  // distance in items at which rows are prefetched
    PACKED_PREFETCH_DISTANCE = 8,  // the same distance for longer rows
    REGISTERS = VECTOR_BYTES == 64 ? 28 : 13,  // registers for sums, of 32 or 16 registers
};

// ---- any number of factors: one user at a time, in tiles

// Converts numbers of type S to a vector V of an equal or wider type, exactly.
template <class V, class S>
FASTFEDREC_INLINE V load_as(const S* from) {
    constexpr int n = sizeof(V) / sizeof(V{}[0]);
    return __builtin_convertvector(load<typename Vector<S, n>::Type>(from), V);
}

// Writes rows sqrt(w) v of n items to `packed`, and adds (1 + w) v to `right`, for NV vectors of columns.
template <class T, class S, int NV>
FASTFEDREC_INLINE void pack_columns(const AlsProblem<S>& problem, const int32_t* items, int n, int column,
                                    const T* confidences, const T* roots, T* packed, T* right) {
    typedef typename Vector<T, Native<T>::LANES>::Type V;
    constexpr int lanes = Native<T>::LANES;
    V sums[NV];
    // The vectors of b, column by column of the padded row.
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) sums[v] = load<V>(right + column + v * lanes);
    // Copies in local variables, because the compiler must assume that a store changes `problem`.
    const S* factors = problem.item_factors + column;
    const ptrdiff_t stride = problem.stride;
    // The items of the batch are taken in their order.
    for (int k = 0; k < n; ++k) {
        // items[k] < n_items (Interactions checks); int32 times ptrdiff_t is 64 bits wide
        const S* row = factors + items[k] * stride;
        // At the end of the batch the last item is prefetched again, so that no index past it is read.
        const S* prefetched =
            factors + items[k + PACKED_PREFETCH_DISTANCE < n ? k + PACKED_PREFETCH_DISTANCE : n - 1] * stride;
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) __builtin_prefetch(prefetched + v * lanes);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
            const V x = load_as<V>(row + v * lanes);
            // sqrt(w) v: the products of these rows sum to sum_i w v v'
            store(packed + k * stride + column + v * lanes, spread<V>(roots[k]) * x);
            // b += (1 + w) v
            sums[v] = multiply_add(spread<V>(confidences[k]), x, sums[v]);
        }
    }
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) store(right + column + v * lanes, sums[v]);
}

template <class T, class S>
static void pack(const AlsProblem<S>& problem, int64_t start, int n, T* packed, T* right) {
    constexpr int lanes = Native<T>::LANES;
    T confidences[MAX_PACKED], roots[MAX_PACKED];
    for (int k = 0; k < n; ++k) {
        // w_ui = weight * r_ui. The root of a negative or NaN w is NaN; a pivot is then not above its lower bound, and
        // `_als.pxd` solves for this user.
        const T w = (T)problem.weight * (problem.values ? (T)problem.values[start + k] : 1);
        confidences[k] = 1 + w;
        roots[k] = square_root(w);
    }
    const int32_t* items = problem.indices + start;
    // Every column of the padded row is taken, by 8, 4, then 1 vectors: the stride is a multiple of the lanes.
    int column = 0;
    if constexpr (VECTOR_BYTES == 64)
        for (; column + 8 * lanes <= problem.stride; column += 8 * lanes)
            pack_columns<T, S, 8>(problem, items, n, column, confidences, roots, packed, right);
    for (; column + 4 * lanes <= problem.stride; column += 4 * lanes)
        pack_columns<T, S, 4>(problem, items, n, column, confidences, roots, packed, right);
    for (; column < problem.stride; column += lanes)
        pack_columns<T, S, 1>(problem, items, n, column, confidences, roots, packed, right);
}

template <class T, class S>
static bool solve_one(const AlsProblem<S>& problem, const T* gram, ptrdiff_t user, char* scratch, S* out) {
    const int stride = problem.stride, n_factors = problem.n_factors;
    const int order = to_blocks(n_factors);
    T* a = (T*)scratch;
    T* packed = a + stride * stride;
    T right[MAX_STRIDE], x[MAX_STRIDE], inverse_roots[MAX_STRIDE];
    __builtin_memset(right, 0, stride * sizeof(T));  // b
    // The capacity of PACKED_BYTES in rows sqrt(w) v is at least 32 * 1024 / (256 * 8) = 16.
    int batch_size = PACKED_BYTES / (stride * (int)sizeof(T));
    if (batch_size > MAX_PACKED) batch_size = MAX_PACKED;
    // A starts from V'V + reg I, and the batches of items are added to it in their order.
    const T* base = gram;
    const int64_t stop = problem.indptr[user + 1];
    for (int64_t start = problem.indptr[user]; start < stop; start += batch_size) {
        const int n = stop - start < batch_size ? (int)(stop - start) : batch_size;
        pack(problem, start, n, packed, right);
        // A = V'V + reg I + sum_i w v v', b = sum_i (1 + w) v (Hu et al., equation 4)
        add_products<T>(packed, n, order, stride, base, a);
        base = a;
    }
    if (base == gram) {  // no items, so x = A^-1 0
        __builtin_memset(out, 0, n_factors * sizeof(S));
        return true;
    }
    if (problem.ridges)
        for (int f = 0; f < n_factors; ++f) a[f * stride + f] += (T)problem.ridges[user];
    if (!factor<T>(a, order, order, stride, pivot_tolerance(T(), n_factors), inverse_roots)) return false;
    // R'R x = b
    solve<T>(a, order, stride, inverse_roots, right, x);
    // Finite pivots may still give an x beyond the range of T.
    if (!is_finite(x, n_factors)) return false;
    for (int f = 0; f < n_factors; ++f) out[f] = (S)x[f];
    return true;
}

// ---- few factors: A in registers while it is summed, then one user a lane

// Sums rows [F0, F1) of sum w v v', and where F1 > F the right-hand side as row F. W is the padded width. Few rows have
// two sums, over even and over odd items, because a single sum would wait for its last addition.
template <class T, int F, int F0, int F1, int W>
FASTFEDREC_INLINE void sum_rows(const AlsProblem<T>& problem, int64_t start, int64_t stop, T* a) {
    constexpr int lanes = W < Native<T>::LANES ? W : Native<T>::LANES, nv = W / lanes;
    constexpr int n_sums = (F1 - F0) * nv * 2 <= REGISTERS ? 2 : 1;
    typedef typename Vector<T, lanes>::Type V;
    V sums[n_sums][F1 - F0][nv];
#pragma GCC unroll 2
    for (int s = 0; s < n_sums; ++s)
#pragma GCC unroll 17
        for (int f = F0; f < F1; ++f)
#pragma GCC unroll 8
            for (int v = 0; v < nv; ++v) sums[s][f - F0][v] = V{};
    const T weight = (T)problem.weight;
    const auto add = [&](int64_t k, int s) __attribute__((always_inline)) {
        // indices[k] < n_items (Interactions checks); 64 bits wide
        const T* row = problem.item_factors + (ptrdiff_t)problem.indices[k] * W;
        const T w = problem.values ? weight * problem.values[k] : weight;
        V x[nv], scaled[nv];
#pragma GCC unroll 8
        for (int v = 0; v < nv; ++v) {
            x[v] = load<V>(row + v * lanes);
            scaled[v] = spread<V>(w) * x[v];
        }
        // A_f += v_f (w v), vectors from the diagonal's on; as row F, b += v + w v.
#pragma GCC unroll 17
        for (int f = F0; f < F1; ++f)
#pragma GCC unroll 8
            for (int v = f < F ? f / lanes : 0; v < nv; ++v) {
                V& sum = sums[s][f - F0][v];
                sum = f < F ? multiply_add(spread<V>(row[f]), scaled[v], sum) : sum + (x[v] + scaled[v]);
            }
    };
    int64_t k = start;
    // k + s + PREFETCH_DISTANCE < stop, as s < n_sums: the prefetched index exists.
    for (; k + n_sums + PREFETCH_DISTANCE <= stop; k += n_sums)
#pragma GCC unroll 2
        for (int s = 0; s < n_sums; ++s) {
            __builtin_prefetch(problem.item_factors + (ptrdiff_t)problem.indices[k + s + PREFETCH_DISTANCE] * W);
            add(k + s, s);
        }
    for (; k + n_sums <= stop; k += n_sums)
#pragma GCC unroll 2
        for (int s = 0; s < n_sums; ++s) add(k + s, s);
    if (k < stop) add(k, 0);  // the last of an odd number of items
    // A = V'V + reg I + even + odd sums; b starts from zero.
#pragma GCC unroll 17
    for (int f = F0; f < F1; ++f)
#pragma GCC unroll 8
        for (int v = f < F ? f / lanes : 0; v < nv; ++v) {
            const V base = f < F ? load<V>(problem.gram + f * W + v * lanes) : V{};
            V sum = sums[0][f - F0][v];
            if constexpr (n_sums == 2) sum += sums[1][f - F0][v];
            store(a + (f < F ? f : W) * W + v * lanes, base + sum);
        }
}

template <class T, int F, int W>
// Returns the first row for which no register is left; a row of A has the vectors from its diagonal on.
constexpr int rows_end(int first) {
    constexpr int lanes = W < Native<T>::LANES ? W : Native<T>::LANES, nv = W / lanes;
    int f = first, used = 0;
    while (f <= F && (used += f < F ? nv - f / lanes : nv) <= REGISTERS) ++f;
    return f;
}

// Computes A and the right-hand side of one user, as W + 1 rows of W.
template <class T, int F, int F0 = 0>
static void sum_user(const AlsProblem<T>& problem, int64_t start, int64_t stop, T* a) {
    constexpr int W = F <= 8 ? 8 : 16;
    constexpr int end = rows_end<T, F, W>(F0);
    sum_rows<T, F, F0, end, W>(problem, start, stop, a);
    if constexpr (end <= F) sum_user<T, F, end>(problem, start, stop, a);
}

template <class T>
using SumUser = void (*)(const AlsProblem<T>&, int64_t, int64_t, T*);

template <class T>
static const SumUser<T> SUM_USER[MAX_LANE_FACTORS] = {
    sum_user<T, 1>,  sum_user<T, 2>,  sum_user<T, 3>,  sum_user<T, 4>,  sum_user<T, 5>,  sum_user<T, 6>,
    sum_user<T, 7>,  sum_user<T, 8>,  sum_user<T, 9>,  sum_user<T, 10>, sum_user<T, 11>, sum_user<T, 12>,
    sum_user<T, 13>, sum_user<T, 14>, sum_user<T, 15>, sum_user<T, 16>};

// Solves one n x n system a lane, at `a` (row-major, rows of W, then the right-hand side, which the solution replaces).
// Returns in each lane -1 where all pivots were above `tolerance` times their diagonal entries, else 0.
template <class T, class V>
static auto solve_lanes(V* a, int n, int W, T tolerance) {
    V* b = a + W * W;
    V inverses[MAX_LANE_FACTORS];
    V min_pivots[MAX_LANE_FACTORS];
    // least: the lower bound of each pivot
    for (int f = 0; f < n; ++f) min_pivots[f] = a[f * W + f] * spread<V>(tolerance);
    auto regular = a[0] == a[0];  // -1 in every lane, but 0 where A is NaN
    // Gaussian elimination exchanges no rows, which a symmetric positive definite A does not need.
    for (int f = 0; f < n; ++f) {
        const V* row = a + f * W;
        regular &= row[f] > min_pivots[f];
        // After a pivot of 0 the lane is infinite or NaN, and already not regular.
        inverses[f] = spread<V>((T)-1) / row[f];
        for (int g = f + 1; g < n; ++g) {
            const V m = row[g] * inverses[f];  // -a_fg / a_ff; by symmetry the multiplier of row g
            V* other = a + g * W;
            for (int h = g; h < n; ++h) other[h] = multiply_add(m, row[h], other[h]);  // upper triangle of row g
            b[g] = multiply_add(m, b[f], b[g]);
        }
    }
    // Backward substitution: x_f = -(sum_{g > f} a_fg x_g - b_f) / a_ff; `inverses` are negated.
    for (int f = n - 1; f >= 0; --f) {
        V sum = -b[f];
        for (int g = f + 1; g < n; ++g) sum = multiply_add(a[f * W + g], b[g], sum);
        b[f] = sum * inverses[f];
    }
    for (int f = 0; f < n; ++f) regular &= b[f] * V{} == V{};  // infinity times 0 is NaN, which is unequal to 0
    return regular;
}

template <class T>
static void solve_small(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* out,
                        unsigned char* solved) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    const int n = problem.n_factors, W = problem.stride, padded = (W * (W + 1) + lanes - 1) / lanes * lanes;
    T* rows = (T*)scratch;  // (lanes, padded): the users' systems
    V* columns = (V*)(rows + lanes * padded);  // (padded,): entry by entry
    __builtin_memset(rows, 0, lanes * padded * sizeof(T));  // a short last batch leaves some rows unset
    // Systems of a batch of `lanes` users are rows first, and then transposed to one user a lane.
    for (ptrdiff_t batch = first; batch < last; batch += lanes) {
        const int n_users = last - batch < lanes ? (int)(last - batch) : lanes;
        for (int user = 0; user < n_users; ++user) {
            // 1 <= n <= MAX_LANE_FACTORS: the caller ensures it
            SUM_USER<T>[n - 1](problem, problem.indptr[batch + user], problem.indptr[batch + user + 1],
                               rows + user* padded);
            if (problem.ridges)
                for (int f = 0; f < n; ++f) rows[user * padded + f * W + f] += problem.ridges[batch + user];
        }
        // The entries are the rows of A, then b as row W.
        for (int entry = 0; entry < padded; entry += lanes) {
            if (entry >= n * W && entry + lanes <= W * W) continue;  // padded rows
            V block[lanes];
#pragma GCC unroll 16
            for (int user = 0; user < lanes; ++user) block[user] = load<V>(rows + user * padded + entry);
            transpose<lanes>(block);
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i) columns[entry + i] = block[i];
        }
        const auto regular = solve_lanes<T, V>(columns, n, W, pivot_tolerance(T(), n));
        for (int f = 0; f < n; ++f)
            for (int user = 0; user < n_users; ++user) out[(batch - first + user) * n + f] = columns[W * W + f][user];
        for (int user = 0; user < n_users; ++user) solved[batch - first + user] = regular[user] != 0;
    }
}

// ---- weight 0: one factored system for all, in double, a user a lane

template <class T>
static void solve_shared(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* out) {
    constexpr int lanes = Native<double>::LANES;
    typedef typename Vector<double, lanes>::Type V;
    const int n = problem.n_factors, stride = problem.stride;
    const double* r = problem.wide_gram;
    double* sums = (double*)scratch;  // (lanes, stride)
    V* x = (V*)(sums + lanes * stride);  // (stride,)
    __builtin_memset(sums, 0, lanes * stride * sizeof(double));  // a short last batch leaves some rows unset
    for (ptrdiff_t batch = first; batch < last; batch += lanes) {
        const int n_users = last - batch < lanes ? (int)(last - batch) : lanes;
        // b = sum_i v_i in double, in the order of the user's items
        for (int user = 0; user < n_users; ++user)
            for (int f = 0; f < stride; f += lanes) {
                V sum = V{};
                for (int64_t k = problem.indptr[batch + user]; k < problem.indptr[batch + user + 1]; ++k)
                    sum += load_as<V>(problem.item_factors + (ptrdiff_t)problem.indices[k] * stride + f);
                store(sums + user * stride + f, sum);
            }
        for (int f = 0; f < stride; f += lanes) {
            V block[lanes];
#pragma GCC unroll 8
            for (int user = 0; user < lanes; ++user) block[user] = load<V>(sums + user * stride + f);
            transpose<lanes>(block);
#pragma GCC unroll 8
            for (int i = 0; i < lanes; ++i) x[f + i] = block[i];
        }
        // R'y = b. The diagonal of R is positive, since factor_gram has accepted it.
        for (int f = 0; f < n; ++f) {
            x[f] /= spread<V>(r[f * stride + f]);
            for (int g = f + 1; g < n; ++g) x[g] = multiply_add(spread<V>(-r[f * stride + g]), x[f], x[g]);
        }
        // R x = y
        for (int f = n - 1; f >= 0; --f) {
            V parts[4] = {x[f], V{}, V{}, V{}};  // four short chains of additions instead of a long one
            for (int g = f + 1; g < n; ++g)
                parts[g & 3] = multiply_add(spread<V>(-r[f * stride + g]), x[g], parts[g & 3]);
            x[f] = (parts[0] + parts[1] + (parts[2] + parts[3])) / spread<V>(r[f * stride + f]);
        }
        // Write results of the users of this batch only: a short last batch has unused lanes.
        for (int f = 0; f < n; ++f)
            for (int user = 0; user < n_users; ++user) out[(batch - first + user) * n + f] = (T)x[f][user];
    }
}

// ---- both types

// See als_add_gram.
template <class T>
static void add_gram(const T* rows, ptrdiff_t n_rows, int n_factors, int stride, double* packed, double* gram) {
    const ptrdiff_t batch_size = ALS_PACKED_NUMBERS / stride;  // at least 16, since a stride is at most MAX_STRIDE
    __builtin_memset(packed, 0, batch_size * stride * sizeof(double));
    for (ptrdiff_t first = 0; first < n_rows; first += batch_size) {
        const ptrdiff_t n = first + batch_size < n_rows ? batch_size : n_rows - first;
        for (ptrdiff_t k = 0; k < n; ++k)
            // Columns from n_factors to `stride` stay 0.
            for (ptrdiff_t f = 0; f < n_factors; ++f) packed[k * stride + f] = rows[(first + k) * n_factors + f];
        // gram += P'P, batch after batch
        add_products<double>(packed, n, to_blocks(n_factors), stride, gram, gram);
    }
}

template <class T>
static void solve_all(const AlsProblem<T>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, T* out,
                      unsigned char* solved) {
    const int n = problem.n_factors;
    // Where w_ui = 0, A is the same for all users and has a Cholesky factor, so all users are solved.
    if (problem.weight == 0) {
        solve_shared(problem, first, last, scratch, out);
        __builtin_memset(solved, 1, last - first);
        return;
    }
    if (n <= MAX_LANE_FACTORS) solve_small(problem, first, last, scratch, out, solved);
    else
        // Users are solved one at a time: first by conjugate gradients if V R^-1 exists, else by the matrix.
        for (ptrdiff_t u = first; u < last; ++u) {
            T* x = out + (u - first) * n;
            solved[u - first] = (problem.whitened && als_solve_whitened(problem, u, x)) ||
                                solve_one<T>(problem, problem.gram, u, scratch, x);
        }
    // A user that float could not solve is solved in double.
    if constexpr (sizeof(T) == 4)
        for (ptrdiff_t u = first; u < last; ++u)
            if (!solved[u - first])
                solved[u - first] = solve_one<double>(problem, problem.wide_gram, u, scratch, out + (u - first) * n);
}

void als_add_gram(const float* rows, ptrdiff_t n_rows, int n_factors, int stride, double* packed, double* gram) {
    add_gram(rows, n_rows, n_factors, stride, packed, gram);
}

void als_add_gram(const double* rows, ptrdiff_t n_rows, int n_factors, int stride, double* packed, double* gram) {
    add_gram(rows, n_rows, n_factors, stride, packed, gram);
}

bool als_whiten(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* whitened) {
    return whiten(problem, first, last, scratch, whitened);
}

bool als_whiten(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, double* whitened) {
    return whiten(problem, first, last, scratch, whitened);
}

void als_solve(const AlsProblem<float>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, float* out,
               unsigned char* solved) {
    solve_all(problem, first, last, scratch, out, solved);
}

void als_solve(const AlsProblem<double>& problem, ptrdiff_t first, ptrdiff_t last, char* scratch, double* out,
               unsigned char* solved) {
    solve_all(problem, first, last, scratch, out, solved);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
