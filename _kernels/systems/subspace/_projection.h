// The projection of the centred row of a user, and its largest whole weight within the unit, in exact integers.
//
// The code has no separate levels (_levels.h): factors of the items of a user have halves of 12 bits, so that the
// 16-bit products that any x86-64 adds in pairs suffice, and wider vectors would only wait for rows from memory.
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
    BATCH_ITEMS = 64,  // items: the sum of their products fits into 32 bits, 2^6 (2^12 - 1) 2^13 < 2^31
    COLUMNS = 8,   // columns of an encoder in a vector of 128 bits
};

// Rows of an encoder for items of a user, and the halves of the factor of each row.
struct ItemBatch {
    int n = 0;
    const int16_t* rows[BATCH_ITEMS];
    int16_t low[BATCH_ITEMS], high[BATCH_ITEMS];
};

#if defined(__SSE2__)
// Sums of 8 columns in two vectors; `multiply` adds the products of two rows with interleaved entries.
struct ColumnSums {
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

// Sums over the rows of 8 columns from `column` on the entries, and their products with each half.
inline void sum_columns(const ItemBatch& batch, int column, int32_t* entries, int32_t* lows, int32_t* highs) {
#if defined(__SSE2__)
    ColumnSums entry, low, high;
    for (int p = 0; p < batch.n; p += 2) {
        const bool two = p + 1 < batch.n;
        const __m128i a = _mm_loadu_si128((const __m128i*)(batch.rows[p] + column));
        const __m128i b = two ? _mm_loadu_si128((const __m128i*)(batch.rows[p + 1] + column)) : _mm_setzero_si128();
        const __m128i lefts = _mm_unpacklo_epi16(a, b), rights = _mm_unpackhi_epi16(a, b);
        entry.multiply(lefts, rights, 1, 1);
        low.multiply(lefts, rights, batch.low[p], two ? batch.low[p + 1] : 0);
        high.multiply(lefts, rights, batch.high[p], two ? batch.high[p + 1] : 0);
    }
    entry.store(entries), low.store(lows), high.store(highs);
#else
    for (int k = 0; k < COLUMNS; ++k) entries[k] = lows[k] = highs[k] = 0;
    for (int p = 0; p < batch.n; ++p)
        for (int k = 0; k < COLUMNS; ++k) {
            const int16_t entry = batch.rows[p][column + k];
            entries[k] += entry, lows[k] += batch.low[p] * entry, highs[k] += batch.high[p] * entry;
        }
#endif
}

// Moments of a row z: p = E'z, sum z^2, g = sum z^3 E_i, sum z^4 |E_i|^2. `projections` and `cubes` have the values of
// a row without items, z = -mean, and every item of a user changes them.
struct Projection {
    uint128 second = 0, fourth = 0;

    // Changes z from 0 to -mean at an item with these encoder entries; `square` is the sum of their squares.
    void subtract_mean(int64_t mean, const int16_t* entries, int64_t square, int64_t* projections, int64_t* cubes,
                       int n_columns) {
        for (int k = 0; k < n_columns; ++k) {
            projections[k] -= mean * entries[k];
            cubes[k] -= mean * mean * mean * entries[k];
        }
        second += (uint128)(mean * mean);
        fourth += (uint128)(mean * mean) * (uint128)(mean * mean) * (uint128)square;
    }

    // Changes z from -mean to share - mean at these items; `share` and entries of `mean` are from 0 to 2^11.
    void add_items(const int32_t* items, ptrdiff_t n, int64_t share, const int64_t* mean, const int16_t* encoder,
                   const int64_t* squares, int64_t* projections, int64_t* cubes, int n_columns) {
        ItemBatch batch;
        for (ptrdiff_t p = 0; p < n; ++p) {
            const int64_t item = items[p], item_mean = mean[item], after = share - item_mean;
            // The change of z^3 is share times this, which is from 0 to 3 2^22.
            const int64_t by = share * share - 3 * item_mean * after;
            second += (uint128)(__int128)(share * (after - item_mean));
            fourth +=
                (uint128)(__int128)(after * after * after * after - item_mean * item_mean * item_mean * item_mean) *
                (uint128)squares[item];
            batch.rows[batch.n] = encoder + item * n_columns;
            batch.low[batch.n] = (int16_t)(by & ((1 << HALF_BITS) - 1));
            batch.high[batch.n] = (int16_t)(by >> HALF_BITS);
            if (++batch.n == BATCH_ITEMS || p + 1 == n) {
                add(batch, share, projections, cubes, n_columns);
                batch.n = 0;
            }
        }
    }

    static void add(const ItemBatch& batch, int64_t share, int64_t* projections, int64_t* cubes, int n_columns) {
        int32_t entries[COLUMNS], lows[COLUMNS], highs[COLUMNS];
        int column = 0;
        for (; column + COLUMNS <= n_columns; column += COLUMNS) {
            sum_columns(batch, column, entries, lows, highs);
            for (int k = 0; k < COLUMNS; ++k) {
                projections[column + k] += share * entries[k];
                cubes[column + k] += share * (lows[k] + (int64_t)highs[k] * (1 << HALF_BITS));
            }
        }
        for (; column < n_columns; ++column)
            for (int p = 0; p < batch.n; ++p) {
                const int64_t entry = share * batch.rows[p][column];
                projections[column] += entry;
                cubes[column] += entry * (batch.low[p] + ((int64_t)batch.high[p] << HALF_BITS));
            }
    }

    // Returns the largest w such that all rows w z_i (p - z_i E_i) have a norm of at most `unit`; 0 if they are 0.
    // Their squares add up to w^2 (sum z^2 |p|^2 - 2 g.p + sum z^4 |E_i|^2), which is an integer.
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

// Adds up rows of `n_columns` numbers of n users, modulo 2^64.
inline void add_user_rows(const int32_t* users, ptrdiff_t n, const uint64_t* rows, ptrdiff_t n_columns,
                          uint64_t* sums) {
    ptrdiff_t column = 0;
    // The sums of a cache line of columns stay in registers.
    for (; column + COLUMNS <= n_columns; column += COLUMNS) {
        uint64_t line[COLUMNS] = {};
        for (ptrdiff_t p = 0; p < n; ++p) {
            const uint64_t* row = rows + users[p] * n_columns + column;
            for (int k = 0; k < COLUMNS; ++k) line[k] += row[k];
        }
        for (int k = 0; k < COLUMNS; ++k) sums[column + k] += line[k];
    }
    for (ptrdiff_t p = 0; column < n_columns && p < n; ++p)
        for (ptrdiff_t k = column; k < n_columns; ++k) sums[k] += rows[users[p] * n_columns + k];
}

}  // namespace fastfedrec
