// One user's projection of its centred row, and the largest whole weight within the unit, in exact integers.
//
// No level of its own (_levels.h): the factors of a user's items are cut into halves of 12 bits, so that the
// 16-bit products that any x86-64 adds up in pairs do all of it, and wider vectors only wait for rows from memory.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "_kernels/core/_roots.h"

namespace fastfedrec {

enum {
    HALF_BITS = 12,
    AT_ONCE = 64,  // items, with products that fit into 32 bits together: 2^6 (2^12 - 1) 2^13 < 2^31
    COLUMNS = 8,   // of an encoder, in a vector of 128 bits
};

// Rows of an encoder that a user's items choose, and the halves of each row's factor.
struct Chosen {
    int n = 0;
    const int16_t* rows[AT_ONCE];
    int16_t low[AT_ONCE], high[AT_ONCE];
};

#if defined(__SSE2__)
// Sums of 8 columns in two vectors; `multiply` adds the products of two rows with interleaved entries.
struct Eight {
    __m128i left = _mm_setzero_si128(), right = _mm_setzero_si128();

    void multiply(__m128i lefts, __m128i rights, int16_t first, int16_t second) {
        const __m128i by = _mm_set1_epi32((uint16_t)first | (int32_t)((uint32_t)(uint16_t)second << 16));
        left = _mm_add_epi32(left, _mm_madd_epi16(lefts, by));
        right = _mm_add_epi32(right, _mm_madd_epi16(rights, by));
    }

    void store(int32_t* out) const {
        _mm_storeu_si128((__m128i*)out, left);
        _mm_storeu_si128((__m128i*)(out + 4), right);
    }
};
#endif

// Sums over the rows of 8 columns from `column` on: of the entries, and of their products with either half.
inline void sum_eight(const Chosen& chosen, int column, int32_t* entries, int32_t* lows, int32_t* highs) {
#if defined(__SSE2__)
    Eight entry, low, high;
    for (int p = 0; p < chosen.n; p += 2) {
        const bool two = p + 1 < chosen.n;
        const __m128i a = _mm_loadu_si128((const __m128i*)(chosen.rows[p] + column));
        const __m128i b = two ? _mm_loadu_si128((const __m128i*)(chosen.rows[p + 1] + column)) : _mm_setzero_si128();
        const __m128i lefts = _mm_unpacklo_epi16(a, b), rights = _mm_unpackhi_epi16(a, b);
        entry.multiply(lefts, rights, 1, 1);
        low.multiply(lefts, rights, chosen.low[p], two ? chosen.low[p + 1] : 0);
        high.multiply(lefts, rights, chosen.high[p], two ? chosen.high[p + 1] : 0);
    }
    entry.store(entries), low.store(lows), high.store(highs);
#else
    for (int k = 0; k < COLUMNS; ++k) entries[k] = lows[k] = highs[k] = 0;
    for (int p = 0; p < chosen.n; ++p)
        for (int k = 0; k < COLUMNS; ++k) {
            const int16_t entry = chosen.rows[p][column + k];
            entries[k] += entry, lows[k] += chosen.low[p] * entry, highs[k] += chosen.high[p] * entry;
        }
#endif
}

// Of a row z: p = E'z, sum z^2, g = sum z^3 E_i, sum z^4 |E_i|^2.  The values for a row without items, z = -mean, are
// stored in `projections` and `cubes`, and every item of a user's changes them according to z there.
struct Projection {
    uint128 second = 0, fourth = 0;

    // z moves from 0 to -mean at an item with these encoder entries; `square` is the sum of their squares.
    void leave(int64_t mean, const int16_t* entries, int64_t square, int64_t* projections, int64_t* cubes,
               int n_columns) {
        for (int k = 0; k < n_columns; ++k) {
            projections[k] -= mean * entries[k];
            cubes[k] -= mean * mean * mean * entries[k];
        }
        second += (uint128)(mean * mean);
        fourth += (uint128)(mean * mean) * (uint128)(mean * mean) * (uint128)square;
    }

    // z moves from -mean to share - mean at these items; `share` and entries of `mean` are from 0 to 2^11.
    void take(const int32_t* items, ptrdiff_t n, int64_t share, const int64_t* mean, const int16_t* encoder,
              const int64_t* squares, int64_t* projections, int64_t* cubes, int n_columns) {
        Chosen chosen;
        for (ptrdiff_t p = 0; p < n; ++p) {
            const int64_t item = items[p], of = mean[item], after = share - of;
            // The step of z^3 is share times this, which is from 0 to 3 2^22.
            const int64_t by = share * share - 3 * of * after;
            second += (uint128)(__int128)(share * (after - of));
            fourth += (uint128)(__int128)(after * after * after * after - of * of * of * of) * (uint128)squares[item];
            chosen.rows[chosen.n] = encoder + item * n_columns;
            chosen.low[chosen.n] = (int16_t)(by & ((1 << HALF_BITS) - 1));
            chosen.high[chosen.n] = (int16_t)(by >> HALF_BITS);
            if (++chosen.n == AT_ONCE || p + 1 == n) {
                add(chosen, share, projections, cubes, n_columns);
                chosen.n = 0;
            }
        }
    }

    static void add(const Chosen& chosen, int64_t share, int64_t* projections, int64_t* cubes, int n_columns) {
        int32_t entries[COLUMNS], lows[COLUMNS], highs[COLUMNS];
        int column = 0;
        for (; column + COLUMNS <= n_columns; column += COLUMNS) {
            sum_eight(chosen, column, entries, lows, highs);
            for (int k = 0; k < COLUMNS; ++k) {
                projections[column + k] += share * entries[k];
                cubes[column + k] += share * (lows[k] + (int64_t)highs[k] * (1 << HALF_BITS));
            }
        }
        for (; column < n_columns; ++column)
            for (int p = 0; p < chosen.n; ++p) {
                const int64_t entry = share * chosen.rows[p][column];
                projections[column] += entry;
                cubes[column] += entry * (chosen.low[p] + ((int64_t)chosen.high[p] << HALF_BITS));
            }
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

// Rows of `n_columns` sums of n users, added up modulo 2^64.
inline void add_chosen_rows(const int32_t* users, ptrdiff_t n, const uint64_t* rows, ptrdiff_t n_columns,
                            uint64_t* __restrict sums) {
    for (ptrdiff_t p = 0; p < n; ++p) {
        const uint64_t* __restrict row = rows + users[p] * n_columns;
        for (ptrdiff_t k = 0; k < n_columns; ++k) sums[k] += row[k];
    }
}

}  // namespace fastfedrec
