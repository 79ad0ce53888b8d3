// Vector code of `row_sums`: for each user, the weighted sum of rows of a matrix that the user's items choose.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum { ROW_SUMS_COLUMNS = 32 };  // columns that a thread adds up at a time: in registers, except at the plain level

FASTFEDREC_EACH_LEVEL(
    void add_rows(const int64_t* indptr, const int32_t* indices, const double* weights, ptrdiff_t n_users,
                  const double* rows, ptrdiff_t stride, ptrdiff_t n_columns, double* out, ptrdiff_t out_stride);
)

// Computes out[u] = sum of weights[p] * rows[indices[p]] over the p of the user in order, for up to ROW_SUMS_COLUMNS
// columns of `rows` and of `out`. Each product and each sum is rounded, so every level gives the same bits.
static inline void add_rows(const int64_t* indptr, const int32_t* indices, const double* weights, ptrdiff_t n_users,
                            const double* rows, ptrdiff_t stride, ptrdiff_t n_columns, double* out,
                            ptrdiff_t out_stride) {
    FASTFEDREC_CALL(add_rows, indptr, indices, weights, n_users, rows, stride, n_columns, out, out_stride);
}

}  // namespace fastfedrec
