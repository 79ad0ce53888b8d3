// Square roots of whole numbers, rounded down exactly, and shares of a norm.
#pragma once
#include <cmath>
#include <cstdint>

namespace fastfedrec {

typedef unsigned __int128 uint128;

// Returns the largest w with w * w <= x.
inline uint64_t floor_sqrt(uint128 x) {
    // The square root of a double has a rounding error, which a step or two by exact products correct.
    uint64_t w = (uint64_t)std::sqrt((double)x);
    while ((uint128)w * w > x) --w;
    while ((uint128)(w + 1) * (w + 1) <= x) ++w;
    return w;
}

// Returns floor(unit / sqrt(n)): n such entries have a norm of at most `unit`.
inline int64_t share_of_unit(uint64_t unit, uint64_t n) { return (int64_t)floor_sqrt((uint128)unit * unit / n); }

}  // namespace fastfedrec
