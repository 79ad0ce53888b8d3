// See _clustering.h; compiled once for each level.
#include "_kernels/_clustering.h"

#include "_kernels/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Scores of one row for NV vectors of clusters.  Few vectors are summed twice, of even and of odd entries: one sum would
// wait for its own last addition.
template <class T, int NV, bool DENSE>
FASTFEDREC_INLINE void score(const Rows<T>& rows, int64_t from, int64_t to, const T* centers, const T* start,
                             ptrdiff_t stride, T* scores) {
    constexpr int lanes = Native<T>::LANES, n_sums = NV <= 4 ? 2 : 1;
    typedef typename Vector<T, lanes>::Type V;
    V sums[n_sums][NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
        sums[0][v] = load<V>(start + v * lanes);
        if constexpr (n_sums == 2) sums[1][v] = V{};
    }
    const auto add = [&](int64_t j, int s) __attribute__((always_inline)) {
        const T* center = centers + (DENSE ? j - from : rows.indices[j]) * stride;
        const V x = spread<V>(rows.values[j]);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) sums[s][v] = multiply_add(x, load<V>(center + v * lanes), sums[s][v]);
    };
    int64_t j = from;
    for (; j + n_sums <= to; j += n_sums)
#pragma GCC unroll 2
        for (int s = 0; s < n_sums; ++s) add(j + s, s);
    if (j < to) add(j, 0);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
        if constexpr (n_sums == 2) sums[0][v] += sums[1][v];
        store(scores + v * lanes, sums[0][v]);
    }
}

template <class T, bool DENSE>
static void score_row(const Rows<T>& rows, int64_t from, int64_t to, const T* centers, const T* start,
                      ptrdiff_t n_clusters, ptrdiff_t stride, T* scores) {
    constexpr int lanes = Native<T>::LANES;
    ptrdiff_t at = 0, left = (n_clusters + lanes - 1) / lanes;
    while (left > 0) {
        const int n = left < 8 ? (int)left : 8;
        const T *c = centers + at, *s = start + at;
        T* out = scores + at;
        switch (n) {
            case 1: score<T, 1, DENSE>(rows, from, to, c, s, stride, out); break;
            case 2: score<T, 2, DENSE>(rows, from, to, c, s, stride, out); break;
            case 3: score<T, 3, DENSE>(rows, from, to, c, s, stride, out); break;
            case 4: score<T, 4, DENSE>(rows, from, to, c, s, stride, out); break;
            case 5: score<T, 5, DENSE>(rows, from, to, c, s, stride, out); break;
            case 6: score<T, 6, DENSE>(rows, from, to, c, s, stride, out); break;
            case 7: score<T, 7, DENSE>(rows, from, to, c, s, stride, out); break;
            default: score<T, 8, DENSE>(rows, from, to, c, s, stride, out);
        }
        at += n * lanes;
        left -= n;
    }
}

template <class T>
static void nearest(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const T* centers, const T* start,
                    ptrdiff_t n_clusters, ptrdiff_t stride, T* scores, int32_t* labels, T* best) {
    for (ptrdiff_t u = first; u < last; ++u) {
        const int64_t from = rows.indptr[u], to = rows.indptr[u + 1];
        if (rows.indices) score_row<T, false>(rows, from, to, centers, start, n_clusters, stride, scores);
        else score_row<T, true>(rows, from, to, centers, start, n_clusters, stride, scores);
        T greatest = scores[0];
        for (ptrdiff_t c = 1; c < n_clusters; ++c) greatest = scores[c] > greatest ? scores[c] : greatest;
        ptrdiff_t label = 0;
        while (label + 1 < n_clusters && scores[label] != greatest) ++label;
        labels[u] = (int32_t)label;
        best[u] = greatest;
    }
}

void nearest_centers(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const float* centers,
                     const float* start, ptrdiff_t n_clusters, ptrdiff_t stride, float* scores, int32_t* labels,
                     float* best) {
    nearest(rows, first, last, centers, start, n_clusters, stride, scores, labels, best);
}

void nearest_centers(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const double* centers,
                     const double* start, ptrdiff_t n_clusters, ptrdiff_t stride, double* scores, int32_t* labels,
                     double* best) {
    nearest(rows, first, last, centers, start, n_clusters, stride, scores, labels, best);
}

void add_minima(const uint16_t* distances, ptrdiff_t n, uint16_t nearest, uint16_t second, uint32_t* kept,
                uint32_t* left) {
    for (ptrdiff_t i = 0; i < n; ++i) {
        const uint16_t d = distances[i];
        kept[i] += d < nearest ? d : nearest;
        left[i] += d < second ? d : second;
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
