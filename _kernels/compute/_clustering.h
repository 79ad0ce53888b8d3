// Vector code of `clustering`: the nearest centre of each row, and the sums for all swaps of a candidate.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Rows in compressed form; `indices` is NULL if rows have every column.
template <class T>
struct Rows {
    const int64_t* indptr;
    const int32_t* indices;
    const T* values;
};

// Each cluster is a column, so that an entry of a row reads one line for all clusters. `columns` starts at a cache
// line, and is (n_columns, stride) with whole lines a row. If the clusters after the last whole line have at most 16
// bytes, they are in a separate `tail` (n_columns, 16 bytes) that a near cache holds; otherwise it is NULL.
template <class T>
struct Centers {
    const T* columns;
    const T* tail;
    const T* start;  // (stride, and 16 bytes of a tail): -|c|^2 / 2, and -infinity of padding
    ptrdiff_t n, stride;
};

// Exact centres, and the squared norms of centres and rows.
struct ExactCenters {
    const double* rows;   // (n_clusters, n_columns)
    const double* norms;  // |c|^2 of each
    const double* row_norms;  // |x|^2 of each row
    ptrdiff_t n_columns;
    double largest;  // the greatest norm |c|
};

// Determines most labels with fewer bytes: rows are small whole numbers of units, and centres have 8 bits, as multiples
// of `step` above a common number, which does not change which score is the greatest. Each entry reads one line of
// ROUNDED_LINE clusters.
enum { ROUNDED_LINE = 64 };

struct Rounded {
    const uint8_t* values;  // values of the rows, in units
    const float* totals;    // sum of the values of each row
    const int8_t* lines;    // (n_lines, n_columns, ROUNDED_LINE)
    const float* start;     // (n_lines, ROUNDED_LINE): start values of the centres, in the order of sums
    ptrdiff_t n_columns, n_lines, n_pairs;  // sums over n_pairs pairs of entries fit into 16 bits
    float step, largest_center;  // `largest_center` is for one unit
    float largest_start;
};

// Distances of users to all candidates, and to the two nearest of the chosen candidates.
struct Distances {
    const uint16_t* rows;  // (n_users, n_candidates)
    const uint16_t* nearest;
    const uint16_t* second;
    ptrdiff_t n_candidates;
};

FASTFEDREC_EACH_LEVEL(
    void nearest_centers(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                         const ExactCenters& exact, float* scores, int32_t* labels);
    void nearest_centers(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<double>& centers,
                         const ExactCenters& exact, double* scores, int32_t* labels);
    void center_distances(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const ExactCenters& centers,
                          const int32_t* labels, double* out);
    void center_distances(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const ExactCenters& centers,
                          const int32_t* labels, double* out);
    void round_centers(const Centers<float>& centers, ptrdiff_t n_columns, double scale, double shift, int8_t* lines,
                       float* start);
    ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                              const ExactCenters& exact, const Rounded& rounded, float* scores, float* bounds,
                              int32_t* labels);
    void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, int64_t* nearest_sums,
                    int64_t* excess_sums);
)

// Writes the nearest centre of rows [first, last), the first of equally near ones. `scores` is scratch of the size of
// `start`.
template <class T>
static inline void nearest_centers(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<T>& centers,
                                   const ExactCenters& exact, T* scores, int32_t* labels) {
    FASTFEDREC_CALL(nearest_centers, rows, first, last, centers, exact, scores, labels);
}

// Writes |x - c|^2 of rows [first, last) to the centres of their labels.
template <class T>
static inline void center_distances(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const ExactCenters& centers,
                                    const int32_t* labels, double* out) {
    FASTFEDREC_CALL(center_distances, rows, first, last, centers, labels, out);
}

// Writes round(center * scale) + shift of every cluster, from -128 to 127, and `start` in the order of sums.
static inline void round_centers(const Centers<float>& centers, ptrdiff_t n_columns, double scale, double shift,
                                 int8_t* lines, float* start) {
    FASTFEDREC_CALL(round_centers, centers, n_columns, scale, shift, lines, start);
}

// Writes the labels of `nearest_centers`, and returns the number of rows that needed their scores. `bounds` is scratch
// of the size of `rounded.start`.
static inline ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last,
                                        const Centers<float>& centers, const ExactCenters& exact,
                                        const Rounded& rounded, float* scores, float* bounds, int32_t* labels) {
    return FASTFEDREC_CALL(nearest_rounded, rows, first, last, centers, exact, rounded, scores, bounds, labels);
}

// Adds for each candidate, over n < 2^16 users, min(distance, nearest) to `nearest_sums`, and the excess of
// min(distance, second) over it to `excess_sums`.
static inline void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, int64_t* nearest_sums,
                              int64_t* excess_sums) {
    FASTFEDREC_CALL(add_minima, distances, users, n, nearest_sums, excess_sums);
}

}  // namespace fastfedrec
