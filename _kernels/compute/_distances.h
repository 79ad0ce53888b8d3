// Distances of rows to centres in double, which determine labels that scores in the type of the rows leave open.
//
// Only files that setup.py compiles for each level may include this file (see _levels.h).
#pragma once
#include "_kernels/compute/_clustering.h"
#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Returns the squared distance of the numbers of a row to a centre, in double; `center` is (n_columns,).
template <class T>
static double dense_distance(const T* row, const double* center, ptrdiff_t n) {
    constexpr int lanes = Native<double>::LANES;
    typedef typename Vector<double, lanes>::Type V;
    typedef typename Vector<T, lanes>::Type Row;
    V sums = {};
    ptrdiff_t f = 0;
    for (; f + lanes <= n; f += lanes) {
        const V d = __builtin_convertvector(load<Row>(row + f), V) - load<V>(center + f);
        sums = multiply_add(d, d, sums);
    }
    double total = 0;
    for (int i = 0; i < lanes; ++i) total += sums[i];
    for (; f < n; ++f) total += (row[f] - center[f]) * (row[f] - center[f]);
    return total;
}

// Returns the same for a row that is 0 where it has no entry.
template <class T>
static double sparse_distance(const int32_t* columns, const T* values, int64_t n, const double* center,
                              ptrdiff_t n_columns) {
    double total = 0;
    ptrdiff_t f = 0;
    for (int64_t j = 0; j < n; ++j) {  // columns ascend
        for (; f < columns[j]; ++f) total += center[f] * center[f];
        total += (values[j] - center[f]) * (values[j] - center[f]);
        ++f;
    }
    for (; f < n_columns; ++f) total += center[f] * center[f];
    return total;
}

// Returns |x - c|^2 to ten digits, for all positions of rows: by differences, or for short rows as |x|^2 - 2 x'c +
// |c|^2 if that loses at most six of the sixteen digits of a double.
template <class T>
static double distance_of(const Rows<T>& rows, ptrdiff_t u, double row_norm, const double* center, double center_norm,
                          ptrdiff_t n_columns) {
    const int64_t from = rows.indptr[u], n = rows.indptr[u + 1] - from;
    if (!rows.indices) return dense_distance(rows.values + from, center, n_columns);
    double products[4] = {};  // a single sum would wait for its last addition
    int64_t j = from;
    for (; j + 4 <= from + n; j += 4)
        for (int i = 0; i < 4; ++i) products[i] += rows.values[j + i] * center[rows.indices[j + i]];
    for (; j < from + n; ++j) products[0] += rows.values[j] * center[rows.indices[j]];
    const double product = (products[0] + products[1]) + (products[2] + products[3]);
    const double distance = row_norm - 2 * product + center_norm;
    if (distance > 1e-6 * (row_norm + center_norm)) return distance;  // false where an overflow gave infinity or NaN
    return sparse_distance(rows.indices + from, rows.values + from, n, center, n_columns);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
