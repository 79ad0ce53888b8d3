// One level's code of _planted.h.
#include "_kernels/_planted.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

double planted_sum(const double* values, ptrdiff_t n) {
    double sum = 0;
    for (ptrdiff_t i = 0; i < n; ++i) sum += values[i];
    return sum;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
