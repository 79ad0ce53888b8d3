// Binary response on many values at once; _response_threshold.h defines the integers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

FASTFEDREC_EACH_LEVEL(
    void response_thresholds(const double* values, ptrdiff_t n, int64_t span, uint64_t* out);
    void respond(const double* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* out);
    void respond(const float* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* out);
    void respond_alike(uint64_t threshold, const uint64_t* words, ptrdiff_t n, int8_t* out);
    void mark_below(uint64_t threshold, const uint64_t* words, ptrdiff_t n, uint8_t* marks);
)

static inline void response_thresholds(const double* values, ptrdiff_t n, int64_t span, uint64_t* out) {
    FASTFEDREC_CALL(response_thresholds, values, n, span, out);
}

// Writes answers, +1 or -1: whether each word is below the threshold of its value.
template <class Real>
static inline void respond(const Real* values, const uint64_t* words, ptrdiff_t n, int64_t span, int8_t* out) {
    FASTFEDREC_CALL(respond, values, words, n, span, out);
}

// Writes answers for values with a common threshold.
static inline void respond_alike(uint64_t threshold, const uint64_t* words, ptrdiff_t n, int8_t* out) {
    FASTFEDREC_CALL(respond_alike, threshold, words, n, out);
}

// Writes answers as bits: bit i % 8 of byte i / 8, and 0 after the last.
static inline void mark_below(uint64_t threshold, const uint64_t* words, ptrdiff_t n, uint8_t* marks) {
    FASTFEDREC_CALL(mark_below, threshold, words, n, marks);
}

}  // namespace fastfedrec
