// See _binary_response.h; compiled once for each level.
#include "_kernels/_binary_response.h"

#include "_kernels/_response_threshold.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

void response_thresholds(const double* values, ptrdiff_t n, int64_t span, uint64_t* __restrict__ out) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = response_threshold(values[i], span);
}

void respond(const double* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* __restrict__ out) {
    responses(values, words, n, span, out);
}

void respond(const float* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* __restrict__ out) {
    responses(values, words, n, span, out);
}

void respond_alike(uint64_t threshold, const uint64_t* words, ptrdiff_t n, int8_t* __restrict__ out) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = (int8_t)response(words[i], threshold);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
