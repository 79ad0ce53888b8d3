// The largest whole weight that keeps a user's pairs within the unit, in exact integers of 128 bits.
#pragma once
#include <cstdint>

#include "_kernels/core/_roots.h"

namespace fastfedrec {

// Sums of z^2 and of z^4 over all items, for z = share - mean if the user has the item, and z = -mean otherwise.
struct Moments {
    uint128 second = 0, fourth = 0;
    void add(int64_t z) {
        // z^2 is exact, below 2^127; sums are modulo 2^128, and exact if the last sums fit.
        uint128 square = (uint128)((__int128)z * z);
        second += square;
        fourth += square * square;
    }
    void remove(int64_t z) {
        uint128 square = (uint128)((__int128)z * z);
        second -= square;
        fourth -= square * square;
    }
};

// Returns the largest w such that the w z_i z_j of all pairs i < j have a norm of at most `unit`; 0 if all of them are
// 0. Their squares add up to w^2 ((sum z^2)^2 - sum z^4) / 2, which is an integer.
inline uint64_t pair_weight(uint64_t unit, const Moments& m) {
    uint128 pairs = (m.second * m.second - m.fourth) / 2;
    return pairs ? floor_sqrt((uint128)unit * unit / pairs) : 0;
}

// Returns the largest w such that the full matrix w z z', including the diagonal, has a squared norm of at most 2
// unit^2; 0 if z is 0. Its entries i < j have a norm of at most `unit`, and the entries of two users differ by at most
// sqrt(2) unit.
inline uint64_t full_weight(uint64_t unit, const Moments& m) {
    uint128 square = m.second * m.second;
    return square ? floor_sqrt((uint128)unit * unit * 2 / square) : 0;
}

}  // namespace fastfedrec
