// One user's projection of its centred row, and the largest whole weight within the unit, in integers of 128 bits.
#pragma once
#include <cstdint>

#include "_kernels/core/_roots.h"

namespace fastfedrec {

// Of a row z: p = E'z, sum z^2, g = sum z^3 E_i, sum z^4 |E_i|^2.  Those of a row without items, z = -mean, are kept
// beside, in `projections` and `cubes`, and every item of a user's changes them by what z is there.
struct Projection {
    uint128 second = 0, fourth = 0;

    // z moves from `before` to `after` at an item with these encoder entries, whose squares add up to `square`.
    void move(
        int64_t before, int64_t after, const int16_t* entries, int64_t square, int64_t* projections, int64_t* cubes,
        int n_columns
    ) {
        int64_t square_before = before * before, square_after = after * after;
        int64_t step = after - before, cube = square_after * after - square_before * before;
        for (int k = 0; k < n_columns; ++k) {
            projections[k] += step * entries[k];
            cubes[k] += cube * entries[k];
        }
        second += (uint128)(__int128)(square_after - square_before);
        fourth += ((uint128)square_after * square_after - (uint128)square_before * square_before) * (uint128)square;
    }

    // The largest w such that all rows w z_i (p - z_i E_i) together have a norm of at most `unit`; 0 where they are 0.
    // Their squares add up to w^2 (sum z^2 |p|^2 - 2 g.p + sum z^4 |E_i|^2), a whole number.
    uint64_t weight(const int64_t* projections, const int64_t* cubes, int n_columns, uint64_t unit) const {
        uint128 length = 0, inner = 0;
        for (int k = 0; k < n_columns; ++k) {
            length += (uint128)((__int128)projections[k] * projections[k]);
            inner += (uint128)((__int128)cubes[k] * projections[k]);
        }
        uint128 rows = second * length - 2 * inner + fourth;
        return rows ? floor_sqrt((uint128)unit * unit / rows) : 0;
    }
};

}  // namespace fastfedrec
