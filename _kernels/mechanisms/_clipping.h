// Vector code of `clipping`: the norm of a row, and the row times a number, truncated toward zero.
#pragma once
#include <cstddef>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

FASTFEDREC_EACH_LEVEL(
    double norm_sum(const float* row, ptrdiff_t n, double scale, int order);
    double norm_sum(const double* row, ptrdiff_t n, double scale, int order);
    void shrink(const float* row, ptrdiff_t n, double scale, double factor, bool drops_small, float* out);
    void shrink(const double* row, ptrdiff_t n, double scale, double factor, bool drops_small, double* out);
)

// Returns the sum of |x scale| (order 1) or of its square (order 2), in the same number of chains of additions at every
// level, so that all levels give the same bits. Each term is in fewer than n rounded additions, of its chain and of the
// chains.
template <class Real>
static inline double norm_sum(const Real* row, ptrdiff_t n, double scale, int order) {
    return FASTFEDREC_CALL(norm_sum, row, n, scale, order);
}

// Writes out = row * scale * factor, with each product rounded in double precision and then truncated toward zero to
// Real. NaN becomes 0, and if `drops_small`, so do numbers below the normal range of Real. `out` may be `row`.
template <class Real>
static inline void shrink(const Real* row, ptrdiff_t n, double scale, double factor, bool drops_small, Real* out) {
    FASTFEDREC_CALL(shrink, row, n, scale, factor, drops_small, out);
}

}  // namespace fastfedrec
