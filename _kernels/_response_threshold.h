// Binary response of a real t in [-1, 1] by one 64-bit comparison (docs/explanation/privacy/binary-response.md).
//
// P(+) = threshold / 2^64 with threshold = 2^63 + offset, offset = t * span rounded toward 0 and clamped to
// [-span, span]; `span` is T - 2^63 for the channel's largest threshold T.  Whatever rounding error t carries, the
// threshold stays in [2^64 - T, T], so epsilon = log(T / (2^64 - T)) holds for what runs.  A value that is not finite
// counts as 0: whether a client answers must not depend on its data.
//
// Written for one value, so that the compiler turns loops over it into vectors at the levels that have the instructions
// (see _levels.h): there without a branch.  Each operation is exact or rounded once by IEEE rules, so all levels give
// the same integers.
#pragma once
#include <cstdint>

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

#if defined(__AVX2__)
// A finite double of magnitude below 2^63, rounded toward 0.
static inline int64_t truncate(double value) {
#if defined(__AVX512DQ__)
    return (int64_t)value;
#else
    // No vector instruction does it here: the significand is shifted by the exponent.
    uint64_t bits;
    __builtin_memcpy(&bits, &value, 8);
    const int64_t left = (int64_t)(bits >> 52 & 0x7ff) - 1075, right = -left;
    const uint64_t significand = (bits & 0xfffffffffffff) | 0x10000000000000;
    uint64_t whole = left > 0 ? significand << (left & 63) : significand >> (right & 63);
    whole = right < 64 ? whole : 0;
    return value < 0.0 ? -(int64_t)whole : (int64_t)whole;
#endif
}
#endif

static inline uint64_t response_threshold(double t, int64_t span) {
    const double size = __builtin_fabs(t);
#if defined(__AVX2__)
    // |t| <= 1 - 2^-53 inside, so the product stays inside int64 even where span rounds up to 2^63 as a double.
    int64_t offset = truncate((size < 1.0 ? t : 0.0) * (double)span);
    offset = offset < -span ? -span : offset;
    offset = offset > span ? span : offset;
    const int64_t end = size >= 1.0 && size <= __DBL_MAX__ ? span : 0;
    offset = size < 1.0 ? offset : t < 0.0 ? -end : end;
#else
    int64_t offset = 0;
    if (size < 1.0) {
        offset = (int64_t)(t * (double)span);
        offset = offset < -span ? -span : offset;
        offset = offset > span ? span : offset;
    } else if (size <= __DBL_MAX__) {
        offset = span * ((t > 0.0) - (t < 0.0));  // the signs of bits cannot be predicted
    }
#endif
    return ((uint64_t)1 << 63) + (uint64_t)offset;
}

// +1 if the word is below the threshold, else -1.
static inline int response(uint64_t word, uint64_t threshold) {
#if defined(__AVX2__)
    return word < threshold ? 1 : -1;
#else
    // The borrow of word - threshold, by hand: a comparison became a branch, and nothing predicts that.
    return 2 * (int)(((~word & threshold) | (~(word ^ threshold) & (word - threshold))) >> 63) - 1;
#endif
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
