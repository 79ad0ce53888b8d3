// See _clustering.h; compiled once for each level.
#include "_kernels/compute/_clustering.h"

#include "_kernels/compute/_distances.h"
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

typedef Vector<uint16_t, VECTOR_BYTES / 2>::Type U16;

// Scores of one row for NV vectors of clusters, and for the tail.  Few vectors have two sums, over even and over
// odd entries: one sum would wait for its own last addition.
template <class T, int NV, bool DENSE, bool TAIL>
FASTFEDREC_INLINE void score(const Rows<T>& rows, int64_t from, int64_t to, const Centers<T>& centers, ptrdiff_t at,
                             T* scores) {
    constexpr int lanes = Native<T>::LANES, n_sums = NV <= 4 ? 2 : 1;
    typedef typename Vector<T, lanes>::Type V;
    typedef typename Vector<T, 16 / sizeof(T)>::Type Tail;
    const T* columns = centers.columns + at;
    V sums[n_sums][NV];
    Tail tails[n_sums];
    // start[c] = -|c|^2 / 2, to which the row's x_f c_f are added.
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
            const Tail rest = load<Tail>(centers.tail + column * (ptrdiff_t)(16 / sizeof(T)));
            tails[s] = multiply_add(spread<Tail>(rows.values[j]), rest, tails[s]);
        }
    };
    int64_t j = from;
    // Entries in their order: the even ones on one sum, the odd ones on another, which are added at the end.
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
    // Padding beyond the last cluster's vector is not read.
    ptrdiff_t left = ((centers.tail ? centers.stride : centers.n) + lanes - 1) / lanes, at = 0;
    while (left > 0) {
        // Up to 8 vectors of clusters at a time; the tail goes with the first of them.
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

// The position of the greatest score, the first of equal ones.  Scores of padding are -infinity, so never the first.
template <class T>
FASTFEDREC_INLINE ptrdiff_t place_of_greatest(const T* scores, const Centers<T>& centers) {
    constexpr int lanes = Native<T>::LANES;
    typedef typename Vector<T, lanes>::Type V;
    V greatest = load<V>(scores);
    auto found = greatest > greatest;  // whole numbers as wide as T: the vector that each lane's greatest is in
    auto vector = found, one = found;
    one += 1;
    const ptrdiff_t n = centers.tail ? centers.stride : centers.n;
    // Lane by lane the greatest so far, and the vector that held it; `>` keeps the first of equal ones.
    for (ptrdiff_t at = lanes; at < n; at += lanes) {
        const V x = load<V>(scores + at);
        vector += one;
        const auto is_greater = x > greatest;
        greatest = is_greater ? x : greatest;
        found = is_greater ? vector : found;
    }
    const T top = greatest_lane(greatest);
    ptrdiff_t place = n;
    // Of the lanes with that greatest value the smallest cluster.
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
        const ptrdiff_t c = (ptrdiff_t)found[i] * lanes + i;
        place = (greatest[i] == top) & (c < place) ? c : place;
    }
    if (place == n) place = 0;  // sums that overflowed
    if (centers.tail)
        for (ptrdiff_t c = centers.stride; c < centers.n; ++c) place = scores[c] > scores[place] ? c : place;
    return place;
}

template <class T>
static void distances(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const Places& centers,
                      const int32_t* labels, double* out) {
    for (ptrdiff_t u = first; u < last; ++u)
        out[u] = distance_of(rows, u, centers.row_norms[u], centers.rows + labels[u] * centers.n_columns,
                             centers.norms[labels[u]], centers.n_columns);
}

void center_distances(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Places& centers,
                      const int32_t* labels, double* out) {
    distances(rows, first, last, centers, labels, out);
}

void center_distances(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const Places& centers,
                      const int32_t* labels, double* out) {
    distances(rows, first, last, centers, labels, out);
}

// The nearest centre, the first of equally near ones.  Scores are in the type of the rows.  Where another score is so
// near the greatest that their rounding leaves the row's label open, as it does where rows are farther from 0 than from
// each other, the distances to all such centres are computed.
template <class T>
static ptrdiff_t nearest_of_row(const Rows<T>& rows, ptrdiff_t u, const Centers<T>& centers, const Places& places,
                                T* scores) {
    constexpr int lanes = Native<T>::LANES;
    constexpr double epsilon = sizeof(T) == 4 ? __FLT_EPSILON__ : __DBL_EPSILON__;
    constexpr double least = sizeof(T) == 4 ? __FLT_MIN__ : __DBL_MIN__;
    typedef typename Vector<T, lanes>::Type V;
    const int64_t from = rows.indptr[u], to = rows.indptr[u + 1];
    if (rows.indices) score_row<T, false>(rows, from, to, centers, scores);
    else score_row<T, true>(rows, from, to, centers, scores);
    const ptrdiff_t label = place_of_greatest(scores, centers);
    // A score is the sum of -|c|^2 / 2, rounded, and n products with rounded centres: n + 3 roundings of half an epsilon,
    // each of at most |x||c| + |c|^2 / 2, and n + 1 numbers below the least normal one.  Two scores, and as much again
    // for this function's own roundings.
    const double most = places.largest * (__builtin_sqrt(places.row_norms[u]) + places.largest / 2);
    const double n = (double)(to - from) + 4;
    const T threshold = scores[label] - (T)(2 * n * (epsilon * most + least));
    const ptrdiff_t body = ((centers.tail ? centers.stride : centers.n) + lanes - 1) / lanes * lanes;
    const V limit = spread<V>(threshold);
    auto counts = limit > limit;  // -1 for each score that is not below; all of them where there is no number
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
        const double distance = distance_of(rows, u, places.row_norms[u], places.rows + c * places.n_columns,
                                            places.norms[c], places.n_columns);
        if (distance < shortest) shortest = distance, nearest = c;
    }
    return nearest;
}

template <class T>
static void nearest(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<T>& centers,
                    const Places& places, T* scores, int32_t* labels) {
    for (ptrdiff_t u = first; u < last; ++u) labels[u] = (int32_t)nearest_of_row(rows, u, centers, places, scores);
}

void nearest_centers(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                     const Places& places, float* scores, int32_t* labels) {
    nearest(rows, first, last, centers, places, scores, labels);
}

void nearest_centers(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<double>& centers,
                     const Places& places, double* scores, int32_t* labels) {
    nearest(rows, first, last, centers, places, scores, labels);
}

// ---- centres in 8 bits ----------------------------------------------------------------------------------------------

#if defined(__AVX2__)

typedef int32_t I32 __attribute__((vector_size(VECTOR_BYTES)));

// Numbers of a line: its vectors of bytes, and four vectors of sums for each vector of bytes.
enum { LINE_VECTORS = ROUNDED_LINE / VECTOR_BYTES, LINE_SUMS = 4 * LINE_VECTORS, SUM_LANES = VECTOR_BYTES / 4 };

// Interleaving within 16 bytes leaves 16-bit sums of low and of high clusters; 32-bit ones are of even and of odd ones.
FASTFEDREC_INLINE ptrdiff_t cluster_of(ptrdiff_t place) {
    const ptrdiff_t lane = place % SUM_LANES, sum = place / SUM_LANES, is_odd = sum % 2, is_high = sum / 2 % 2;
    return sum / 4 * VECTOR_BYTES + lane / 4 * 16 + is_high * 8 + lane % 4 * 2 + is_odd;
}

// Numbers with low bits that are the integers nearest to center * scale + shift.
template <class V>
FASTFEDREC_INLINE void shift_vector(const float* from, float scale, float shift, float* to) {
    constexpr float rounder = 12582912.0f;  // for numbers below 2^22
    store(to, fused(load<V>(from), spread<V>(scale), spread<V>(rounder + shift)));
}

void round_centers(const Centers<float>& centers, ptrdiff_t n_columns, double scale, double shift, int8_t* lines,
                   float* start) {
    float shifted[ROUNDED_LINE] = {};
    // One line of ROUNDED_LINE clusters after another: for each column its centres in 8 bits.
    for (ptrdiff_t first = 0; first < centers.n; first += ROUNDED_LINE) {
        const ptrdiff_t left = centers.stride - first, in_body = left < ROUNDED_LINE ? left : ROUNDED_LINE;
        for (ptrdiff_t f = 0; f < n_columns; ++f, lines += ROUNDED_LINE) {
            for (ptrdiff_t i = 0; i < in_body; i += SUM_LANES)
                shift_vector<F32>(centers.columns + f * centers.stride + first + i, scale, shift, shifted + i);
            if (centers.tail && left < ROUNDED_LINE)
                shift_vector<F4>(centers.tail + f * 4, scale, shift, shifted + left);
            uint32_t bits[ROUNDED_LINE];
            __builtin_memcpy(bits, shifted, sizeof bits);
            // The low byte, two's complement: from -128 to 127
            for (int i = 0; i < ROUNDED_LINE; ++i) lines[i] = (int8_t)bits[i];
        }
    }
    for (ptrdiff_t i = 0; i < (centers.n + ROUNDED_LINE - 1) / ROUNDED_LINE * ROUNDED_LINE; ++i)
        start[i] = cluster_of(i) < centers.n ? centers.start[cluster_of(i)] : -__builtin_inff();
}

// Sums over a row of value times centre, for a line of clusters.
FASTFEDREC_INLINE void add_line(const int8_t* line, const int32_t* indices, const uint8_t* values, int64_t n,
                                int64_t n_pairs, I32* sums) {
    typedef Vector<uint16_t, VECTOR_BYTES / 2>::Type Pair;
#pragma GCC unroll 8
    for (int i = 0; i < LINE_SUMS; ++i) sums[i] = I32{};
    int64_t j = 0;
    while (j < n) {
        U16 halves[2 * LINE_VECTORS] = {};
        const auto add = [&](const int8_t* a, const int8_t* b, uint16_t pair) __attribute__((always_inline)) {
            const U32 x = (U32)spread<Pair>(pair);  // two values of 8 bits without sign, for the two entries
#pragma GCC unroll 2
            for (int v = 0; v < LINE_VECTORS; ++v) {
                // Two values times centres: at most 256 times the largest value, so below 2^15.
                const U32 one = load<U32>(a + v * VECTOR_BYTES), other = load<U32>(b + v * VECTOR_BYTES);
                halves[2 * v] += (U16)byte_pairs(x, interleave_low_bytes(one, other));
                halves[2 * v + 1] += (U16)byte_pairs(x, interleave_high_bytes(one, other));
            }
        };
        // At most n_pairs pairs between two emptyings: the 16 bits of a sum do not overflow (`assign_rounded`).
        const int64_t end = n - j < 2 * n_pairs ? n : j + 2 * n_pairs;
        for (; j + 2 <= end; j += 2) {
            uint16_t pair;
            __builtin_memcpy(&pair, values + j, 2);
            add(line + (ptrdiff_t)indices[j] * ROUNDED_LINE, line + (ptrdiff_t)indices[j + 1] * ROUNDED_LINE, pair);
        }
        if (j < end) {  // the last entry, and 0 times the same
            const int8_t* alone = line + (ptrdiff_t)indices[j] * ROUNDED_LINE;
            add(alone, alone, values[j++]);
        }
#pragma GCC unroll 4
        for (int h = 0; h < 2 * LINE_VECTORS; ++h) {
            sums[2 * h] += (I32)halves[h] << 16 >> 16;  // its lower 16 bits with their sign
            sums[2 * h + 1] += (I32)halves[h] >> 16;  // its upper 16 bits
        }
    }
}

// The cluster of row u, or -1 where the rounding of centres, of the scores and of these sums leaves it undecided: each
// sum, made a score, is at most half of `margin` from the exact one.
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
            // The sum in units of `step`, plus -|c|^2 / 2
            const F32 score = fused(sum, spread<F32>(rounded.step), load<F32>(rounded.start + at));
            store(bounds + at, score);
            greatest = score > greatest ? score : greatest;
        }
    }
    // Twice the bound of n + 2 roundings of a score and of the roundings here; .501 for .5 and a rounded scale.
    const float relative = (float)(n + 3) * __FLT_EPSILON__ + 1e-6f, total = rounded.totals[u];
    const float margin =
        2 * (total * (.501f * rounded.step + relative * rounded.largest_center) + relative * rounded.largest_start);
    // Only clusters above this can have the greatest exact score.
    const float threshold = greatest_lane(greatest) - margin;
    ptrdiff_t place = -1;
    for (ptrdiff_t line = 0; line < rounded.n_lines; ++line) {
        uint64_t bits = 0;
#pragma GCC unroll 8
        for (int i = 0; i < LINE_SUMS; ++i)
            bits |= greater(load<F32>(bounds + line * ROUNDED_LINE + i * SUM_LANES), threshold) << (i * SUM_LANES);
        if (!bits) continue;
        if (place >= 0 || (bits & (bits - 1))) return -1;  // two clusters remain: undecided
        place = line * ROUNDED_LINE + __builtin_ctzll(bits);
    }
    return place < 0 ? -1 : cluster_of(place);
}

ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                          const Places& places, const Rounded& rounded, float* scores, float* bounds, int32_t* labels) {
    ptrdiff_t n_open = 0;
    for (ptrdiff_t u = first; u < last; ++u) {
        ptrdiff_t label = label_of_row(rows, u, rounded, bounds);
        if (label < 0) {
            label = nearest_of_row(rows, u, centers, places, scores);
            ++n_open;
        }
        labels[u] = (int32_t)label;  // labels[u] is of row u alone
    }
    return n_open;
}

#else

void round_centers(const Centers<float>&, ptrdiff_t, double, double, int8_t*, float*) {}

ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                          const Places& places, const Rounded&, float* scores, float*, int32_t* labels) {
    nearest(rows, first, last, centers, places, scores, labels);
    return last - first;
}

#endif

// ---- swaps ---------------------------------------------------------------------------------------------------------

// For NV vectors of candidates, the sums stay in registers.  Two distances of 16 bits are added as one number of 32, and
// the upper one a second time alone: its contribution to the first sum can then be subtracted.
template <int NV>
FASTFEDREC_INLINE void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, ptrdiff_t at, int skip,
                                  int64_t* kept, int64_t* lost) {
    constexpr int lanes = VECTOR_BYTES / 2;
    U32 pairs[2][NV], uppers[2][NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) pairs[0][v] = pairs[1][v] = uppers[0][v] = uppers[1][v] = U32{};
    // Users in their order; whole numbers, so no order matters.
    for (ptrdiff_t i = 0; i < n; ++i) {
        const int32_t u = users[i];
        const uint16_t* row = distances.rows + u * distances.n_candidates + at;  // int32 times ptrdiff_t: 64 bits
        const U16 nearest = U16{} + distances.nearest[u], second = U16{} + distances.second[u];
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
            const U16 d = load<U16>(row + v * lanes), with_nearest = d < nearest ? d : nearest;
            const U16 more = (d < second ? d : second) - with_nearest;
            // n < 2^16 distances below 2^16: `uppers` stay below 2^32; `pairs` may wrap, which is undone below.
            pairs[0][v] += (U32)with_nearest, uppers[0][v] += (U32)with_nearest >> 16;
            pairs[1][v] += (U32)more, uppers[1][v] += (U32)more >> 16;
        }
    }
    for (int v = 0; v < NV; ++v)
        for (int s = 0; s < 2; ++s) {
            // Modulo 2^32 exact, since the sum of the lower distances alone is below 2^32.
            const U32 lower = pairs[s][v] - (uppers[s][v] << 16);
            int64_t* to = (s ? lost : kept) + at + v * lanes;
            for (int i = v ? 0 : skip; i < lanes; ++i) to[i] += i % 2 ? uppers[s][v][i / 2] : lower[i / 2];
        }
}

void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, int64_t* kept, int64_t* lost) {
    constexpr int lanes = VECTOR_BYTES / 2, n_vectors = VECTOR_BYTES == 64 ? 4 : 2;
    const ptrdiff_t n_candidates = distances.n_candidates;
    ptrdiff_t at = 0;
    for (; at + n_vectors * lanes <= n_candidates; at += n_vectors * lanes)
        add_minima<n_vectors>(distances, users, n, at, 0, kept, lost);
    for (; at + lanes <= n_candidates; at += lanes) add_minima<1>(distances, users, n, at, 0, kept, lost);
    if (at == n_candidates) return;
    if (n_candidates >= lanes)  // the last ones, in a vector with some that have been added
        return add_minima<1>(distances, users, n, n_candidates - lanes, (int)(at + lanes - n_candidates), kept, lost);
    for (ptrdiff_t i = 0; i < n; ++i) {
        const uint16_t nearest = distances.nearest[users[i]], second = distances.second[users[i]];
        for (ptrdiff_t c = 0; c < n_candidates; ++c) {
            const uint16_t d = distances.rows[users[i] * n_candidates + c], with_nearest = d < nearest ? d : nearest;
            kept[c] += with_nearest;
            lost[c] += (d < second ? d : second) - with_nearest;
        }
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
