// See _clustering.h; compiled once for each level.
#include "_kernels/compute/_clustering.h"

#include "_kernels/compute/_clustering_lanes.h"
#include "_kernels/compute/_distances.h"
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

typedef Vector<uint16_t, VECTOR_BYTES / 2>::Type U16;

// Computes the scores of one row for NV vectors of clusters, and for the tail. Few vectors have two sums, over even and
// over odd entries, because a single sum would wait for its last addition.
template <class T, int NV, bool DENSE, bool TAIL>
FASTFEDREC_INLINE void score(const Rows<T>& rows, int64_t from, int64_t to, const Centers<T>& centers, ptrdiff_t at,
                             T* scores) {
    constexpr int lanes = Native<T>::LANES, n_sums = NV <= 4 ? 2 : 1;
    typedef typename Vector<T, lanes>::Type V;
    typedef typename Vector<T, 16 / sizeof(T)>::Type Tail;
    const T* columns = centers.columns + at;
    V sums[n_sums][NV];
    Tail tails[n_sums];
    // start[c] = -|c|^2 / 2; the x_f c_f of the row are added to it.
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
        sums[0][v] = load<V>(centers.start + at + v * lanes);
        if constexpr (n_sums == 2) sums[1][v] = V{};
    }
    if constexpr (TAIL) {
        tails[0] = load<Tail>(centers.start + centers.stride);
        if constexpr (n_sums == 2) tails[1] = Tail{};
    }
    const auto add = [&](int64_t j, int s) __attribute__((always_inline)) {
        const ptrdiff_t column = DENSE ? j - from : rows.indices[j];  // column < n_columns
        const T* center = columns + column * centers.stride;
        const V x = spread<V>(rows.values[j]);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) sums[s][v] = multiply_add(x, load<V>(center + v * lanes), sums[s][v]);
        if constexpr (TAIL) {
            const Tail tail_vector = load<Tail>(centers.tail + column * (ptrdiff_t)(16 / sizeof(T)));
            tails[s] = multiply_add(spread<Tail>(rows.values[j]), tail_vector, tails[s]);
        }
    };
    int64_t j = from;
    // Entries are added in their order, the even ones to one sum and the odd ones to another; the end adds the two
    // sums.
    for (; j + n_sums <= to; j += n_sums)
#pragma GCC unroll 2
        for (int s = 0; s < n_sums; ++s) add(j + s, s);
    if (j < to) add(j, 0);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
        if constexpr (n_sums == 2) sums[0][v] += sums[1][v];
        store(scores + at + v * lanes, sums[0][v]);
    }
    if constexpr (TAIL) {
        if constexpr (n_sums == 2) tails[0] += tails[1];
        store(scores + centers.stride, tails[0]);
    }
}

template <class T, bool DENSE, bool TAIL>
FASTFEDREC_INLINE void score_vectors(const Rows<T>& rows, int64_t from, int64_t to, const Centers<T>& centers,
                                     ptrdiff_t at, int n, T* scores) {
    switch (n) {
        case 1: return score<T, 1, DENSE, TAIL>(rows, from, to, centers, at, scores);
        case 2: return score<T, 2, DENSE, TAIL>(rows, from, to, centers, at, scores);
        case 3: return score<T, 3, DENSE, TAIL>(rows, from, to, centers, at, scores);
        case 4: return score<T, 4, DENSE, TAIL>(rows, from, to, centers, at, scores);
        case 5: return score<T, 5, DENSE, TAIL>(rows, from, to, centers, at, scores);
        case 6: return score<T, 6, DENSE, TAIL>(rows, from, to, centers, at, scores);
        case 7: return score<T, 7, DENSE, TAIL>(rows, from, to, centers, at, scores);
        default: return score<T, 8, DENSE, TAIL>(rows, from, to, centers, at, scores);
    }
}

template <class T, bool DENSE>
static void score_row(const Rows<T>& rows, int64_t from, int64_t to, const Centers<T>& centers, T* scores) {
    constexpr int lanes = Native<T>::LANES;
    // Padding after the vector of the last cluster is not read.
    ptrdiff_t left = ((centers.tail ? centers.stride : centers.n) + lanes - 1) / lanes, at = 0;
    while (left > 0) {
        // At most 8 vectors of clusters are computed at a time, and the tail with the first of them.
        const int n = left < 8 ? (int)left : 8;
        if (centers.tail && at == 0) score_vectors<T, DENSE, true>(rows, from, to, centers, at, n, scores);
        else score_vectors<T, DENSE, false>(rows, from, to, centers, at, n, scores);
        at += n * lanes;
        left -= n;
    }
}

template <class V>
FASTFEDREC_INLINE auto greatest_lane(const V& x) {
    constexpr int lanes = sizeof(V) / sizeof(x[0]);
    decltype(x[0] + x[0]) tops[lanes];
    store(tops, x);
#pragma GCC unroll 4
    for (int half = lanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; ++i) tops[i] = tops[i + half] > tops[i] ? tops[i + half] : tops[i];
    return tops[0];
}

// Returns the position of the greatest score, the first of equal ones. Scores of padding are -infinity, so never the
// first.
template <class T>
FASTFEDREC_INLINE ptrdiff_t argmax(const T* scores, const Centers<T>& centers) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    V greatest = load<V>(scores);
    auto best_vectors = greatest > greatest;  // integers as wide as T: the vector of the greatest score
    auto vector = best_vectors, one = best_vectors;
    one += 1;
    const ptrdiff_t n = centers.tail ? centers.stride : centers.n;
    // Each lane has its greatest score so far, and the vector that contains it; `>` keeps the first of equal ones.
    for (ptrdiff_t at = lanes; at < n; at += lanes) {
        const V x = load<V>(scores + at);
        vector += one;
        const auto is_greater = x > greatest;
        greatest = is_greater ? x : greatest;
        best_vectors = is_greater ? vector : best_vectors;
    }
    const T top = greatest_lane(greatest);
    ptrdiff_t position = n;
    // Of the lanes with the greatest score, take the one with the smallest cluster.
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
        const ptrdiff_t c = (ptrdiff_t)best_vectors[i] * lanes + i;
        position = (greatest[i] == top) & (c < position) ? c : position;
    }
    if (position == n) position = 0;  // sums have overflowed
    if (centers.tail)
        for (ptrdiff_t c = centers.stride; c < centers.n; ++c) position = scores[c] > scores[position] ? c : position;
    return position;
}

template <class T>
static void distances(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const ExactCenters& centers,
                      const int32_t* labels, double* out) {
    for (ptrdiff_t u = first; u < last; ++u)
        out[u] = distance_of(rows, u, centers.row_norms[u], centers.rows + labels[u] * centers.n_columns,
                             centers.norms[labels[u]], centers.n_columns);
}

void center_distances(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const ExactCenters& centers,
                      const int32_t* labels, double* out) {
    distances(rows, first, last, centers, labels, out);
}

void center_distances(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const ExactCenters& centers,
                      const int32_t* labels, double* out) {
    distances(rows, first, last, centers, labels, out);
}

// Returns the nearest centre, the first of equally near ones. Scores have the type of the rows. Where rounding leaves
// open which of the greatest scores is the greatest, as where rows are farther from 0 than from each other, distances
// to all such centres are computed.
template <class T>
static ptrdiff_t nearest_of_row(const Rows<T>& rows, ptrdiff_t u, const Centers<T>& centers, const ExactCenters& exact,
                                T* scores) {
    constexpr int lanes = Native<T>::LANES;
    constexpr double epsilon = sizeof(T) == 4 ? __FLT_EPSILON__ : __DBL_EPSILON__;
    constexpr double tiny = sizeof(T) == 4 ? __FLT_MIN__ : __DBL_MIN__;
    typedef typename Vector<T, lanes>::Type V;
    const int64_t from = rows.indptr[u], to = rows.indptr[u + 1];
    if (rows.indices) score_row<T, false>(rows, from, to, centers, scores);
    else score_row<T, true>(rows, from, to, centers, scores);
    const ptrdiff_t label = argmax(scores, centers);
    // A score is the sum of -|c|^2 / 2, rounded, and n products with rounded centres. Its error is n + 3 roundings of
    // half an epsilon, each of at most |x||c| + |c|^2 / 2, and n + 1 numbers below the least normal one. The factor 2
    // counts two scores, and doubles again for the roundings of this function.
    const double max_product = exact.largest * (__builtin_sqrt(exact.row_norms[u]) + exact.largest / 2);
    const double n = (double)(to - from) + 4;
    const T threshold = scores[label] - (T)(2 * n * (epsilon * max_product + tiny));
    const ptrdiff_t body = ((centers.tail ? centers.stride : centers.n) + lanes - 1) / lanes * lanes;
    const V limit = spread<V>(threshold);
    auto counts = limit > limit;  // -1 for each score that is not below the limit, and for NaN
    for (ptrdiff_t at = 0; at < body; at += lanes) counts += ~(load<V>(scores + at) < limit);
    ptrdiff_t n_near = 0;
    for (int i = 0; i < lanes; ++i) n_near -= counts[i];
    if (centers.tail)
        for (ptrdiff_t c = centers.stride; c < centers.n; ++c) n_near += !(scores[c] < threshold);
    if (n_near == 1) return label;
    ptrdiff_t nearest = label;
    double shortest = __builtin_inf();
    for (ptrdiff_t c = 0; c < centers.n; ++c) {
        if (scores[c] < threshold) continue;
        const double distance =
            distance_of(rows, u, exact.row_norms[u], exact.rows + c * exact.n_columns, exact.norms[c], exact.n_columns);
        if (distance < shortest) shortest = distance, nearest = c;
    }
    return nearest;
}

template <class T>
static void nearest(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<T>& centers,
                    const ExactCenters& exact, T* scores, int32_t* labels) {
    // Products of rows and centres with norms below 1e18 are finite. In double, distances are hardly more exact than
    // scores, so another order of sums could change a label.
    if constexpr (sizeof(T) == 4)
        if (!rows.indices && exact.largest < 1e18) {
            const auto decide = [&](ptrdiff_t u) { return nearest_of_row(rows, u, centers, exact, scores); };
            switch (exact.n_columns) {
                case 1: first = nearest_in_lanes<1>(rows, first, last, centers, exact, labels, decide); break;
                case 2: first = nearest_in_lanes<2>(rows, first, last, centers, exact, labels, decide); break;
                case 3: first = nearest_in_lanes<3>(rows, first, last, centers, exact, labels, decide); break;
                case 4: first = nearest_in_lanes<4>(rows, first, last, centers, exact, labels, decide); break;
            }
        }
    for (ptrdiff_t u = first; u < last; ++u) labels[u] = (int32_t)nearest_of_row(rows, u, centers, exact, scores);
}

void nearest_centers(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                     const ExactCenters& exact, float* scores, int32_t* labels) {
    nearest(rows, first, last, centers, exact, scores, labels);
}

void nearest_centers(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<double>& centers,
                     const ExactCenters& exact, double* scores, int32_t* labels) {
    nearest(rows, first, last, centers, exact, scores, labels);
}

// ---- centres in 8 bits ----------------------------------------------------------------------------------------------

#if defined(__AVX2__)

typedef int32_t I32 __attribute__((vector_size(VECTOR_BYTES)));

// Numbers of vectors in a line: vectors of bytes, and four vectors of sums for each of them.
enum { LINE_VECTORS = ROUNDED_LINE / VECTOR_BYTES, LINE_SUMS = 4 * LINE_VECTORS, SUM_LANES = VECTOR_BYTES / 4 };

// Returns the cluster of a position: interleaving within 16 bytes gives 16-bit sums of low and of high clusters, and
// the 32-bit sums are of even and of odd clusters.
FASTFEDREC_INLINE ptrdiff_t cluster_of(ptrdiff_t position) {
    const ptrdiff_t lane = position % SUM_LANES, sum = position / SUM_LANES, is_odd = sum % 2, is_high = sum / 2 % 2;
    return sum / 4 * VECTOR_BYTES + lane / 4 * 16 + is_high * 8 + lane % 4 * 2 + is_odd;
}

// Writes numbers with low bits that are the integers nearest to center * scale + shift.
template <class V>
FASTFEDREC_INLINE void shift_vector(const float* from, float scale, float shift, float* to) {
    constexpr float rounder = 12582912.0f;  // for numbers below 2^22
    store(to, fused(load<V>(from), spread<V>(scale), spread<V>(rounder + shift)));
}

void round_centers(const Centers<float>& centers, ptrdiff_t n_columns, double scale, double shift, int8_t* lines,
                   float* start) {
    float shifted[ROUNDED_LINE] = {};
    // Lines of ROUNDED_LINE clusters follow each other: for each column, a line has its centres in 8 bits.
    for (ptrdiff_t first = 0; first < centers.n; first += ROUNDED_LINE) {
        const ptrdiff_t left = centers.stride - first, in_body = left < ROUNDED_LINE ? left : ROUNDED_LINE;
        for (ptrdiff_t f = 0; f < n_columns; ++f, lines += ROUNDED_LINE) {
            for (ptrdiff_t i = 0; i < in_body; i += SUM_LANES)
                shift_vector<F32>(centers.columns + f * centers.stride + first + i, scale, shift, shifted + i);
            if (centers.tail && left < ROUNDED_LINE)
                shift_vector<F4>(centers.tail + f * 4, scale, shift, shifted + left);
            uint32_t bits[ROUNDED_LINE];
            __builtin_memcpy(bits, shifted, sizeof bits);
            // The low byte in two's complement is from -128 to 127.
            for (int i = 0; i < ROUNDED_LINE; ++i) lines[i] = (int8_t)bits[i];
        }
    }
    for (ptrdiff_t i = 0; i < (centers.n + ROUNDED_LINE - 1) / ROUNDED_LINE * ROUNDED_LINE; ++i)
        start[i] = cluster_of(i) < centers.n ? centers.start[cluster_of(i)] : -__builtin_inff();
}

// Sums value times centre over a row, for a line of clusters.
FASTFEDREC_INLINE void add_line(const int8_t* line, const int32_t* indices, const uint8_t* values, int64_t n,
                                int64_t n_pairs, I32* sums) {
    typedef Vector<uint16_t, VECTOR_BYTES / 2>::Type Pair;
#pragma GCC unroll 8
    for (int i = 0; i < LINE_SUMS; ++i) sums[i] = I32{};
    int64_t j = 0;
    while (j < n) {
        U16 halves[2 * LINE_VECTORS] = {};
        const auto add = [&](const int8_t* a, const int8_t* b, uint16_t pair) __attribute__((always_inline)) {
            const U32 x = (U32)spread<Pair>(pair);  // two unsigned values of 8 bits, one for each entry
#pragma GCC unroll 2
            for (int v = 0; v < LINE_VECTORS; ++v) {
                // Two values times centres are at most 256 times the largest value, so below 2^15.
                const U32 one = load<U32>(a + v * VECTOR_BYTES), other = load<U32>(b + v * VECTOR_BYTES);
                halves[2 * v] += (U16)byte_pairs(x, interleave_low_bytes(one, other));
                halves[2 * v + 1] += (U16)byte_pairs(x, interleave_high_bytes(one, other));
            }
        };
        // At most n_pairs pairs are added before the sums are emptied, so their 16 bits do not overflow
        // (`assign_rounded`).
        const int64_t end = n - j < 2 * n_pairs ? n : j + 2 * n_pairs;
        for (; j + 2 <= end; j += 2) {
            uint16_t pair;
            __builtin_memcpy(&pair, values + j, 2);
            add(line + (ptrdiff_t)indices[j] * ROUNDED_LINE, line + (ptrdiff_t)indices[j + 1] * ROUNDED_LINE, pair);
        }
        if (j < end) {  // the last entry, paired with 0 times itself
            const int8_t* entry = line + (ptrdiff_t)indices[j] * ROUNDED_LINE;
            add(entry, entry, values[j++]);
        }
#pragma GCC unroll 4
        for (int h = 0; h < 2 * LINE_VECTORS; ++h) {
            sums[2 * h] += (I32)halves[h] << 16 >> 16;  // its lower 16 bits with their sign
            sums[2 * h + 1] += (I32)halves[h] >> 16;  // its upper 16 bits
        }
    }
}

// Returns the cluster of row u, or -1 where the rounding of centres, scores and sums leaves it undecided: as a score,
// each sum has an error of at most half of `margin`.
FASTFEDREC_INLINE ptrdiff_t label_of_row(const Rows<float>& rows, ptrdiff_t u, const Rounded& rounded, float* bounds) {
    const int64_t from = rows.indptr[u], n = rows.indptr[u + 1] - from;
    F32 greatest = spread<F32>(-__builtin_inff());
    for (ptrdiff_t line = 0; line < rounded.n_lines; ++line) {
        I32 sums[LINE_SUMS];
        add_line(rounded.lines + line * rounded.n_columns * ROUNDED_LINE, rows.indices + from, rounded.values + from, n,
                 rounded.n_pairs, sums);
#pragma GCC unroll 8
        for (int i = 0; i < LINE_SUMS; ++i) {
            const ptrdiff_t at = line * ROUNDED_LINE + i * SUM_LANES;
            const F32 sum = __builtin_convertvector(sums[i], F32);
            // A score is the sum in units of `step`, plus -|c|^2 / 2.
            const F32 score = fused(sum, spread<F32>(rounded.step), load<F32>(rounded.start + at));
            store(bounds + at, score);
            greatest = score > greatest ? score : greatest;
        }
    }
    // The margin is twice the bound of n + 2 roundings of a score and of the roundings here; .501 is .5 with a rounded
    // scale.
    const float relative = (float)(n + 3) * __FLT_EPSILON__ + 1e-6f, total = rounded.totals[u];
    const float margin =
        2 * (total * (.501f * rounded.step + relative * rounded.largest_center) + relative * rounded.largest_start);
    // Only clusters above the threshold can have the greatest exact score.
    const float threshold = greatest_lane(greatest) - margin;
    ptrdiff_t position = -1;
    for (ptrdiff_t line = 0; line < rounded.n_lines; ++line) {
        uint64_t bits = 0;
#pragma GCC unroll 8
        for (int i = 0; i < LINE_SUMS; ++i)
            bits |= greater(load<F32>(bounds + line * ROUNDED_LINE + i * SUM_LANES), threshold) << (i * SUM_LANES);
        if (!bits) continue;
        if (position >= 0 || (bits & (bits - 1))) return -1;  // two clusters remain: undecided
        position = line * ROUNDED_LINE + __builtin_ctzll(bits);
    }
    return position < 0 ? -1 : cluster_of(position);
}

ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                          const ExactCenters& exact, const Rounded& rounded, float* scores, float* bounds,
                          int32_t* labels) {
    ptrdiff_t n_open = 0;
    for (ptrdiff_t u = first; u < last; ++u) {
        ptrdiff_t label = label_of_row(rows, u, rounded, bounds);
        if (label < 0) {
            label = nearest_of_row(rows, u, centers, exact, scores);
            ++n_open;
        }
        labels[u] = (int32_t)label;  // labels[u] is of row u alone
    }
    return n_open;
}

#else

void round_centers(const Centers<float>&, ptrdiff_t, double, double, int8_t*, float*) {}

ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                          const ExactCenters& exact, const Rounded&, float* scores, float*, int32_t* labels) {
    nearest(rows, first, last, centers, exact, scores, labels);
    return last - first;
}

#endif

// ---- swaps ---------------------------------------------------------------------------------------------------------

// Adds the minima for NV vectors of candidates, with sums in registers. Two 16-bit distances are added as one 32-bit
// number, and the upper one again separately, so that its contribution to the first sum can be subtracted.
template <int NV>
FASTFEDREC_INLINE void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, ptrdiff_t at, int skip,
                                  int64_t* nearest_sums, int64_t* excess_sums) {
    constexpr int lanes = VECTOR_BYTES / 2;
    U32 pairs[2][NV], uppers[2][NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) pairs[0][v] = pairs[1][v] = uppers[0][v] = uppers[1][v] = U32{};
    // The sums are of integers, so the order of users does not matter.
    for (ptrdiff_t i = 0; i < n; ++i) {
        const int32_t u = users[i];
        const uint16_t* row = distances.rows + u * distances.n_candidates + at;  // int32 times ptrdiff_t: 64 bits
        const U16 nearest = U16{} + distances.nearest[u], second = U16{} + distances.second[u];
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
            const U16 d = load<U16>(row + v * lanes), with_nearest = d < nearest ? d : nearest;
            const U16 excess = (d < second ? d : second) - with_nearest;
            // n < 2^16 distances are below 2^16, so `uppers` stay below 2^32; `pairs` may wrap, which is undone below.
            pairs[0][v] += (U32)with_nearest, uppers[0][v] += (U32)with_nearest >> 16;
            pairs[1][v] += (U32)excess, uppers[1][v] += (U32)excess >> 16;
        }
    }
    for (int v = 0; v < NV; ++v)
        for (int s = 0; s < 2; ++s) {
            // This is exact modulo 2^32, because the sum of the lower distances is below 2^32.
            const U32 lower = pairs[s][v] - (uppers[s][v] << 16);
            int64_t* to = (s ? excess_sums : nearest_sums) + at + v * lanes;
            for (int i = v ? 0 : skip; i < lanes; ++i) to[i] += i % 2 ? uppers[s][v][i / 2] : lower[i / 2];
        }
}

void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, int64_t* nearest_sums,
                int64_t* excess_sums) {
    constexpr int lanes = VECTOR_BYTES / 2, n_vectors = VECTOR_BYTES == 64 ? 4 : 2;
    const ptrdiff_t n_candidates = distances.n_candidates;
    ptrdiff_t at = 0;
    for (; at + n_vectors * lanes <= n_candidates; at += n_vectors * lanes)
        add_minima<n_vectors>(distances, users, n, at, 0, nearest_sums, excess_sums);
    for (; at + lanes <= n_candidates; at += lanes)
        add_minima<1>(distances, users, n, at, 0, nearest_sums, excess_sums);
    if (at == n_candidates) return;
    if (n_candidates >= lanes)  // the last candidates share a vector with some that are already added
        return add_minima<1>(distances, users, n, n_candidates - lanes, (int)(at + lanes - n_candidates), nearest_sums,
                             excess_sums);
    for (ptrdiff_t i = 0; i < n; ++i) {
        const uint16_t nearest = distances.nearest[users[i]], second = distances.second[users[i]];
        for (ptrdiff_t c = 0; c < n_candidates; ++c) {
            const uint16_t d = distances.rows[users[i] * n_candidates + c], with_nearest = d < nearest ? d : nearest;
            nearest_sums[c] += with_nearest;
            excess_sums[c] += (d < second ? d : second) - with_nearest;
        }
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
