// Labels of dense rows with few columns, of which a vector has one in each lane.
//
// Only _clustering.cpp may include this file; see _lanes.h.
#pragma once
#include "_kernels/compute/_clustering.h"
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Finds the labels of whole vectors of dense rows with few columns, one row in each lane: the greatest score and the
// second one of a lane need no comparison across lanes. `decide` returns the label of a row that rounding leaves open.
// The result is the first row that is left.
template <int D, class Decide>
FASTFEDREC_INLINE ptrdiff_t nearest_in_lanes(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last,
                                             const Centers<float>& centers, const ExactCenters& exact, int32_t* labels,
                                             Decide decide) {
    constexpr int lanes = Native<float>::LANES, at_once = 2 * lanes;  // two vectors hide the time of a comparison
    typedef typename Vector<float, lanes>::Type V;
    ptrdiff_t u = first;
    for (; u + at_once <= last; u += at_once) {
        float columns[D][at_once];
        double largest_norm = 0;
        for (int i = 0; i < at_once; ++i) {
#pragma GCC unroll 8
            for (int f = 0; f < D; ++f) columns[f][i] = rows.values[(u + i) * D + f];
            largest_norm = exact.row_norms[u + i] > largest_norm ? exact.row_norms[u + i] : largest_norm;
        }
        V x[2][D], greatest[2], second[2];
        greatest[0] = greatest[1] = second[0] = second[1] = spread<V>(-__builtin_inff());
        auto best = greatest[0] > greatest[0], cluster = best, one = best;  // 0 in each lane
        auto best_of_second = best;
        one += 1;
#pragma GCC unroll 8
        for (int f = 0; f < D; ++f) x[0][f] = load<V>(columns[f]), x[1][f] = load<V>(columns[f] + lanes);
        const auto compare = [&](const float* center, ptrdiff_t stride, float start, int v, auto& label)
                                 __attribute__((always_inline)) {
                                     V score = spread<V>(start);
#pragma GCC unroll 8
                                     for (int f = 0; f < D; ++f)
                                         score = multiply_add(x[v][f], spread<V>(center[f * stride]), score);
                                     const auto is_greater = score > greatest[v];
                                     const V lower = is_greater ? greatest[v] : score;
                                     second[v] = lower > second[v] ? lower : second[v];
                                     greatest[v] = is_greater ? score : greatest[v];
                                     label = is_greater ? cluster : label;  // the first of equal ones
                                 };
        const ptrdiff_t n_body = centers.tail ? centers.stride : centers.n;
        for (ptrdiff_t c = 0; c < centers.n; ++c, cluster += one) {
            const float* center = c < n_body ? centers.columns + c : centers.tail + (c - n_body);
            const ptrdiff_t stride = c < n_body ? centers.stride : 16 / (ptrdiff_t)sizeof(float);
            compare(center, stride, centers.start[c], 0, best);
            compare(center, stride, centers.start[c], 1, best_of_second);
        }
        // The bound of `nearest_of_row` for the longest of these rows is valid for all of them.
        const double max_product = exact.largest * (__builtin_sqrt(largest_norm) + exact.largest / 2);
        const float margin = (float)(2 * (D + 4.0) * (__FLT_EPSILON__ * max_product + __FLT_MIN__));
        float gaps[at_once];
        store(gaps, greatest[0] - second[0]);
        store(gaps + lanes, greatest[1] - second[1]);
        for (int i = 0; i < at_once; ++i) {
            labels[u + i] = i < lanes ? best[i] : best_of_second[i - lanes];
            if (!(gaps[i] > margin)) labels[u + i] = (int32_t)decide(u + i);
        }
    }
    return u;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
