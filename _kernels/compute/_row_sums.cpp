// One level's code of _row_sums.h.
#include "_kernels/compute/_row_sums.h"

#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

namespace {

enum { LANES = VECTOR_BYTES / 8, VECTORS = ROW_SUMS_COLUMNS / LANES };
// With 32 columns, the registers of the baseline level hold a quarter, in addition to the factors.
enum { N_VECTORS = VECTORS <= 8 ? VECTORS : 4 };

typedef double F64Unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

template <int N>
void whole(const int32_t* items, const double* weights, ptrdiff_t n, const double* rows, ptrdiff_t stride,
           double* out) {
    F64 sums[N] = {};
    // The user's entries p are added in order: each of N vectors of columns has one chain of additions.
    for (ptrdiff_t p = 0; p < n; ++p) {
        const double* row = rows + items[p] * stride;  // int32 times ptrdiff_t: 64 bits
        const double weight = weights[p];
        for (int k = 0; k < N; ++k) sums[k] += *(const F64Unaligned*)(row + k * LANES) * weight;
    }
    for (int k = 0; k < N; ++k) *(F64Unaligned*)(out + k * LANES) = sums[k];
}

}  // namespace

void add_rows(const int64_t* indptr, const int32_t* indices, const double* weights, ptrdiff_t n_users,
              const double* rows, ptrdiff_t stride, ptrdiff_t n_columns, double* out, ptrdiff_t out_stride) {
    for (ptrdiff_t user = 0; user < n_users; ++user) {
        const int32_t* items = indices + indptr[user];
        const double* user_weights = weights + indptr[user];
        const ptrdiff_t n = indptr[user + 1] - indptr[user];
        double* to = out + user * out_stride;
        ptrdiff_t column = 0;
        // Columns are added by N_VECTORS vectors, then by one vector, then singly: the sum of a column is the same in
        // each way.
        for (; column + N_VECTORS * LANES <= n_columns; column += N_VECTORS * LANES)
            whole<N_VECTORS>(items, user_weights, n, rows + column, stride, to + column);
        for (; column + LANES <= n_columns; column += LANES)
            whole<1>(items, user_weights, n, rows + column, stride, to + column);
        for (; column < n_columns; ++column) {
            double sum = 0;
            for (ptrdiff_t p = 0; p < n; ++p) sum += rows[items[p] * stride + column] * user_weights[p];
            to[column] = sum;
        }
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
