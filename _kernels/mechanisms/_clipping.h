// Vector code of `clipping`: the norm of a row, and the row times a number, cut toward zero.
#pragma once
#include <cstddef>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

FASTFEDREC_EACH_LEVEL(
    double norm_sum(const float* row, ptrdiff_t n, double scale, int order);
    double norm_sum(const double* row, ptrdiff_t n, double scale, int order);
    void shrink(const float* row, ptrdiff_t n, double scale, double factor, float* out);
    void shrink(const double* row, ptrdiff_t n, double scale, double factor, double* out);
)

// The sum of |x scale| (order 1) or of its square (order 2), in as many chains of additions at every level, so that all
// give the same bits; of the additions to each term, a chain's and the chains', fewer than n are rounded.
template <class Real>
static inline double norm_sum(const Real* row, ptrdiff_t n, double scale, int order) {
    return FASTFEDREC_CALL(norm_sum, row, n, scale, order);
}

// out = row * scale * factor, each product rounded in double precision and then cut toward zero to Real; numbers below
// Real's normal range becomes 0.  `out` may be `row`.
template <class Real>
static inline void shrink(const Real* row, ptrdiff_t n, double scale, double factor, Real* out) {
    FASTFEDREC_CALL(shrink, row, n, scale, factor, out);
}

}  // namespace fastfedrec
