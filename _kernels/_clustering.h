// Vector code of `clustering`: rows to their nearest centres, and the sums behind all swaps of a candidate.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/_levels.h"

namespace fastfedrec {

// Rows in compressed form; `indices` is NULL where rows hold every column.
template <class T>
struct Rows {
    const int64_t* indptr;
    const int32_t* indices;
    const T* values;
};

}  // namespace fastfedrec

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    void nearest_centers(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const float* centers, \
                         const float* start, ptrdiff_t n_clusters, ptrdiff_t stride, float* scores, int32_t* labels, \
                         float* best); \
    void nearest_centers(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const double* centers, \
                         const double* start, ptrdiff_t n_clusters, ptrdiff_t stride, double* scores, \
                         int32_t* labels, double* best); \
    void add_minima(const uint16_t* distances, ptrdiff_t n, uint16_t nearest, uint16_t second, uint32_t* kept, \
                    uint32_t* left); \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

// Columns that `stride` and `start` are padded to: a multiple of every level's lanes.
enum { CENTERS_AT_ONCE = 16 };

// For rows [first, last): the cluster with the greatest start[c] + x'center[c], the first of equal ones, and that
// greatest value.  `centers` is (n_columns, stride), one column a cluster; `scores` is scratch of `stride`.
template <class T>
static inline void nearest_centers(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const T* centers,
                                   const T* start, ptrdiff_t n_clusters, ptrdiff_t stride, T* scores, int32_t* labels,
                                   T* best) {
    FASTFEDREC_CALL(nearest_centers, rows, first, last, centers, start, n_clusters, stride, scores, labels, best);
}

// kept[i] += min(distances[i], nearest) and left[i] += min(distances[i], second), for n candidates.
static inline void add_minima(const uint16_t* distances, ptrdiff_t n, uint16_t nearest, uint16_t second,
                              uint32_t* kept, uint32_t* left) {
    FASTFEDREC_CALL(add_minima, distances, n, nearest, second, kept, left);
}

}  // namespace fastfedrec
