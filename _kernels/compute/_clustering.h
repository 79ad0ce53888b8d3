// Vector code of `clustering`: rows to their nearest centres, and the sums behind all swaps of a candidate.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Rows in compressed form; `indices` is NULL where rows hold every column.
template <class T>
struct Rows {
    const int64_t* indptr;
    const int32_t* indices;
    const T* values;
};

// A column a cluster, so that an entry of a row reads one line for all of them.  `columns` starts at a cache line and is
// (n_columns, stride) with whole lines a row.  Where only a few clusters are more than whole lines, 16 bytes at most, they
// have a `tail` (n_columns, 16 bytes) of their own, which a near cache holds; otherwise it is NULL.
template <class T>
struct Centers {
    const T* columns;
    const T* tail;
    const T* start;  // (stride, and 16 bytes of a tail): -|c|^2 / 2, and -infinity of padding
    ptrdiff_t n, stride;
};

// The same centres as they are, and the rows' distances from 0.
struct Places {
    const double* rows;   // (n_clusters, n_columns)
    const double* norms;  // |c|^2 of each
    const double* row_norms;  // |x|^2 of each row
    ptrdiff_t n_columns;
    double largest;  // |c|
};

// Finds most labels with fewer bytes: rows as small whole numbers of units, and centres in 8 bits, as multiples of
// `step` above a common number, which does not matter to which score is the greatest.  For each entry one line of
// ROUNDED_LINE clusters is read.
enum { ROUNDED_LINE = 64 };

struct Rounded {
    const uint8_t* values;  // of the rows, in units
    const float* totals;    // of each row's values
    const int8_t* lines;    // (n_lines, n_columns, ROUNDED_LINE)
    const float* start;     // (n_lines, ROUNDED_LINE): start values of the centres, in the order of sums
    ptrdiff_t n_columns, n_lines, n_pairs;  // of n_pairs of entries sums fit into 16 bits
    float step, largest_center;  // for one unit
    float largest_start;
};

// Of users to candidates, and to the nearest two of the candidates that are chosen.
struct Distances {
    const uint16_t* rows;  // (n_users, n_candidates)
    const uint16_t* nearest;
    const uint16_t* second;
    ptrdiff_t n_candidates;
};

FASTFEDREC_EACH_LEVEL(
    void nearest_centers(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                         const Places& places, float* scores, int32_t* labels);
    void nearest_centers(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<double>& centers,
                         const Places& places, double* scores, int32_t* labels);
    void center_distances(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Places& centers,
                          const int32_t* labels, double* out);
    void center_distances(const Rows<double>& rows, ptrdiff_t first, ptrdiff_t last, const Places& centers,
                          const int32_t* labels, double* out);
    void round_centers(const Centers<float>& centers, ptrdiff_t n_columns, double scale, double shift, int8_t* lines,
                       float* start);
    ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<float>& centers,
                              const Places& places, const Rounded& rounded, float* scores, float* bounds,
                              int32_t* labels);
    void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, int64_t* kept, int64_t* lost);
)

// For rows [first, last): the nearest centre, the first of equally near ones.  `scores` is scratch of the size of
// `start`.
template <class T>
static inline void nearest_centers(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const Centers<T>& centers,
                                   const Places& places, T* scores, int32_t* labels) {
    FASTFEDREC_CALL(nearest_centers, rows, first, last, centers, places, scores, labels);
}

// For rows [first, last): |x - c|^2 to the centre of its label.
template <class T>
static inline void center_distances(const Rows<T>& rows, ptrdiff_t first, ptrdiff_t last, const Places& centers,
                                    const int32_t* labels, double* out) {
    FASTFEDREC_CALL(center_distances, rows, first, last, centers, labels, out);
}

// Writes round(center * scale) + shift, which is from -128 to 127, of every cluster, and `start` in the order of sums.
static inline void round_centers(const Centers<float>& centers, ptrdiff_t n_columns, double scale, double shift,
                                 int8_t* lines, float* start) {
    FASTFEDREC_CALL(round_centers, centers, n_columns, scale, shift, lines, start);
}

// The labels of `nearest_centers`, and how many rows needed their scores.  `bounds` is scratch of the size of
// `rounded.start`.
static inline ptrdiff_t nearest_rounded(const Rows<float>& rows, ptrdiff_t first, ptrdiff_t last,
                                        const Centers<float>& centers, const Places& places, const Rounded& rounded,
                                        float* scores, float* bounds, int32_t* labels) {
    return FASTFEDREC_CALL(nearest_rounded, rows, first, last, centers, places, rounded, scores, bounds, labels);
}

// For each candidate, summed over n < 2^16 users: kept += min(distance, nearest), and lost += the excess of
// min(distance, second) over that.
static inline void add_minima(const Distances& distances, const int32_t* users, ptrdiff_t n, int64_t* kept,
                              int64_t* lost) {
    FASTFEDREC_CALL(add_minima, distances, users, n, kept, lost);
}

}  // namespace fastfedrec
