// Sum of the first values, by vector code of each level.
#pragma once
#include <cstddef>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

FASTFEDREC_EACH_LEVEL(double planted_sum(const double* values, ptrdiff_t n);)

static inline double planted_sum(const double* values, ptrdiff_t n) { return FASTFEDREC_CALL(planted_sum, values, n); }

}  // namespace fastfedrec
