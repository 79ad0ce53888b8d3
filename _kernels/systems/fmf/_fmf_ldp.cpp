// See _fmf_ldp.h; compiled once for each level.
//
// There is no fused multiply-add, and sums have one fixed order on every level. So the integers, the solved factors,
// and with them every report are the same on all levels.
#include "_kernels/systems/fmf/_fmf_ldp.h"

#include "_kernels/compute/_hadamard_passes.h"
#include "_kernels/core/_branchless.h"
#include "_kernels/mechanisms/channels/_response_threshold.h"
#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { LANES = VECTOR_BYTES / 8, PER_CHUNK = 8 / LANES, TILE = 128 };

static inline F64 load(const double* from) {
    F64 v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// Computes out = sum_f coefficients[f] * vectors[f].
static inline void combine(const double* vectors, const double* coefficients, ptrdiff_t n_vectors, ptrdiff_t width,
                           double* out) {
    // Columns are taken in chunks of 8; f ascends, with one chain of additions for each column.
    for (ptrdiff_t chunk = 0; chunk < width; chunk += 8) {
        F64 sum[PER_CHUNK] = {};
        for (ptrdiff_t f = 0; f < n_vectors; ++f)
            for (int c = 0; c < PER_CHUNK; ++c)
                sum[c] += coefficients[f] * load(vectors + f * width + chunk + LANES * c);
        __builtin_memcpy(out + chunk, sum, sizeof sum);
    }
}

// Adds up the rows of the user's items in columns `chunk` to `chunk` + 7, and marks the items, without a branch or an
// address that depends on them: each other item of the catalogue is a dummy, of weight 0. Items ascend.
static inline void add_padded(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks,
                              ptrdiff_t chunk, F64 sums[4][PER_CHUNK]) {
    const int32_t none = -1;
    const int32_t* const row = n ? items : &none;
    uint64_t n_passed = 0;  // items of the user before this one
    for (ptrdiff_t item = 0; item < round.n_items; ++item) {
        const uint64_t has_more = mask_below(n_passed, (uint64_t)n);
        // After the last item this reads the first one, which is below `item`.
        const uint64_t has_item = mask_below((uint64_t)((int64_t)row[n_passed & has_more] ^ item), 1);
        for (uint64_t s = 0; s < 4; ++s) {
            const uint64_t adds = has_item & mask_below((n_passed ^ s) & 3, 1);  // every fourth item, as below
            for (int c = 0; c < PER_CHUNK; ++c)
                sums[s][c] += (F64)((U64)load(round.rows + item * round.width + chunk + LANES * c) & adds);
        }
        marks[item] = (uint8_t)(mark & has_item);
        n_passed -= has_item;
    }
}

void fmf_solve(const FMFRound& round, const int32_t* items, ptrdiff_t n, uint8_t mark, uint8_t* marks, double* scratch,
               double* x) {
    const ptrdiff_t width = round.width;
    // b = sum of v_i over the user's items, chunk by chunk (Minto et al. 2021, equation 4, with c = 1).
    for (ptrdiff_t chunk = 0; chunk < width; chunk += 8) {
        F64 sums[4][PER_CHUNK] = {};  // of every fourth item: a single sum would wait for its last addition
        const double* rows = round.rows + chunk;
        ptrdiff_t j = round.is_padded ? n : 0;
        if (round.is_padded) add_padded(round, items, n, mark, marks, chunk, sums);
        for (; j + 4 <= n; j += 4)
            for (int s = 0; s < 4; ++s) {
                const ptrdiff_t item = items[j + s];  // items are below n_items
                for (int c = 0; c < PER_CHUNK; ++c) sums[s][c] += load(rows + item * width + LANES * c);
                marks[item] = mark;
            }
        for (int s = 0; j + s < n; ++s) {
            const ptrdiff_t item = items[j + s];
            for (int c = 0; c < PER_CHUNK; ++c) sums[s][c] += load(rows + item * width + LANES * c);
            marks[item] = mark;
        }
        // The order is ((0 + 1) + (2 + 3)) on every level.
        for (int c = 0; c < PER_CHUNK; ++c) sums[0][c] = (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]);
        __builtin_memcpy(scratch + chunk, sums[0], sizeof sums[0]);
    }
    // x = M'M b = (V'V + reg I)^-1 b.
    combine(round.columns, scratch, round.n_factors, width, scratch + width);
    combine(round.inverse, scratch + width, round.n_factors, width, x);
}

// Computes the coordinates of 8 reports: the high half of word x (n_items n_factors), as item and factor without a
// division. The high half of word x n_items is the item, and the high half of (its low half) x n_factors is the factor:
// both are exact.
static inline void draw_coordinates(ptrdiff_t n_rows, ptrdiff_t n_columns, const uint64_t* words, uint64_t* item,
                                    uint64_t* factor, int64_t* coordinates, uint64_t* answer_words) {
    const U64 n_items = U64{} + (uint64_t)n_rows, n_factors = U64{} + (uint64_t)n_columns;
    for (int c = 0; c < PER_CHUNK; ++c) {
        U64 a, b;
        __builtin_memcpy(&a, words + 2 * LANES * c, sizeof a);
        __builtin_memcpy(&b, words + 2 * LANES * c + LANES, sizeof b);
        const U64 word = even_lanes(a, b), answer = odd_lanes(a, b);
        // word n_items = i 2^64 + rest, and rest n_factors = f 2^64 + ...; n_items and n_factors are below 2^32.
        const U64 low = product_of_low_halves(word, n_items);
        const U64 high = product_of_low_halves(word >> 32, n_items) + (low >> 32);  // below 2^64
        const U64 i = high >> 32;  // below n_items
        const U64 f =  // below n_factors
            (product_of_low_halves(high, n_factors) + (product_of_low_halves(low, n_factors) >> 32)) >> 32;
        const U64 coordinate = product_of_low_halves(i, n_factors) + f;
        __builtin_memcpy(item + LANES * c, &i, sizeof i);
        __builtin_memcpy(factor + LANES * c, &f, sizeof f);
        __builtin_memcpy(coordinates + LANES * c, &coordinate, sizeof coordinate);
        __builtin_memcpy(answer_words + LANES * c, &answer, sizeof answer);
    }
}

// Computes x'v of 8 items: lanes are multiplied and added up chunk by chunk, then in the order ((0 1)(2 3))((4 5)(6
// 7)).
static inline void predict(const double* x, const double* rows, ptrdiff_t width, const uint64_t* item, double* out) {
    F64 sums[8][PER_CHUNK];
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < PER_CHUNK; ++c) sums[r][c] = load(x + LANES * c) * load(rows + item[r] * width + LANES * c);
    for (ptrdiff_t chunk = 8; chunk < width; chunk += 8)
        for (int r = 0; r < 8; ++r)
            for (int c = 0; c < PER_CHUNK; ++c)
                sums[r][c] += load(x + chunk + LANES * c) * load(rows + item[r] * width + chunk + LANES * c);
#if defined(__AVX512F__)
    __m512d pairs[4], fours[2];
    for (int r = 0; r < 4; ++r) {
        const __m512d a = (__m512d)sums[2 * r][0], b = (__m512d)sums[2 * r + 1][0];
        pairs[r] = _mm512_unpacklo_pd(a, b) + _mm512_unpackhi_pd(a, b);
    }
    for (int r = 0; r < 2; ++r) {
        const __m512d a = pairs[2 * r], b = pairs[2 * r + 1];
        fours[r] = _mm512_shuffle_f64x2(a, b, 0x88) + _mm512_shuffle_f64x2(a, b, 0xdd);
    }
    const __m512d all = _mm512_shuffle_f64x2(fours[0], fours[1], 0x88) + _mm512_shuffle_f64x2(fours[0], fours[1], 0xdd);
    __builtin_memcpy(out, &all, sizeof all);
#elif defined(__AVX2__)
    for (int r = 0; r < 8; r += 4) {
        __m256d fours[2];
        for (int c = 0; c < 2; ++c) {
            const __m256d ab = _mm256_hadd_pd((__m256d)sums[r][c], (__m256d)sums[r + 1][c]);
            const __m256d cd = _mm256_hadd_pd((__m256d)sums[r + 2][c], (__m256d)sums[r + 3][c]);
            fours[c] = _mm256_permute2f128_pd(ab, cd, 0x20) + _mm256_permute2f128_pd(ab, cd, 0x31);
        }
        const __m256d all = fours[0] + fours[1];
        __builtin_memcpy(out + r, &all, sizeof all);
    }
#else
    for (int r = 0; r < 8; ++r) {
        double s[8];
        __builtin_memcpy(s, sums[r], sizeof s);
        out[r] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
#endif
}

// Minto et al. 2021, Algorithm 1, for each report: lines 2 and 4 draw, line 3 projects, lines 5 to 10 answer.
int64_t fmf_reports(const FMFRound& round, const FMFUser& user, const uint64_t* words, int64_t* coordinates,
                    int64_t* answers) {
    const double scale = round.scale;
    const int64_t span = round.span;
    const double* x = user.x;
    const uint8_t *marks = user.marks, mark = user.mark;
    uint64_t item[TILE], factor[TILE], answer_words[TILE], has_item[TILE];
    double prediction[TILE], confidence[TILE], x_factor[TILE], gradient[TILE];
    int64_t clipped = 0;
    for (ptrdiff_t start = 0; start < round.n_reports; start += TILE) {
        const int n = round.n_reports - start < TILE ? (int)(round.n_reports - start) : TILE;
        // At most 7 entries after n are written: TILE is a multiple of 8, and the arrays of callers have the capacity.
        for (int r = 0; r < n; r += 8)
            draw_coordinates(round.n_items, round.n_factors, words + 2 * (start + r), item + r, factor + r,
                             coordinates + start + r, answer_words + r);
        for (int r = 0; r < n; ++r) {
            has_item[r] =
                marks[item[r]] == mark;  // an integer, because a double became a branch that cannot be predicted
            x_factor[r] = x[factor[r]];
        }
        for (int r = 0; r < n; ++r) confidence[r] = 1.0;
        if (user.confidence)
            for (int r = 0; r < n; ++r)
                if (has_item[r]) confidence[r] = user.confidence[user.position[item[r]]];
        if (round.width == 8)
            for (int r = 0; r < n; r += 8) predict(x, round.rows, 8, item + r, prediction + r);
        else
            for (int r = 0; r < n; r += 8) predict(x, round.rows, round.width, item + r, prediction + r);
        for (int r = 0; r < n; ++r) {
            const double preference = has_item[r] ? 1.0 : 0.0;  // p_ui
            // -2 times equation 5: g = -2 c_ui (p_ui - x_u'v_i) x_uf.
            gradient[r] = scale * confidence[r] * (prediction[r] - preference) * x_factor[r];
            clipped += __builtin_fabs(gradient[r]) > 1.0;
        }
        // `responses` limits values to [-1, 1] and answers them; NaN and infinity count as 0.
        responses(gradient, answer_words, n, span, answers + start);
    }
    return clipped;
}

double fmf_residual(const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* residual) {
    enum { WIDE = 16 };
    double squares[WIDE] = {}, x_square = 0.0;  // a fixed number of sums, on every level
    for (ptrdiff_t start = 0; start < normal.length; start += WIDE) {
        float y[WIDE] = {};
        // x_u'v_i in float, f ascending.
        for (ptrdiff_t f = 0; f < round.n_factors; ++f) {
            const float x = (float)user.x[f];
            const float* const row = normal.rows + f * normal.length + start;
            for (int c = 0; c < WIDE; ++c) y[c] += x * row[c];
        }
        __builtin_memcpy(residual + start, y, sizeof y);
    }
    // c (x'v - p). At the items that the user does not have, c = 1 and p = 0, so it is x'v.
    if (round.is_padded)
        for (ptrdiff_t i = 0; i < round.n_items; ++i) {
            const float with_item = (float)((double)residual[i] - 1.0);
            uint32_t bits[2];
            __builtin_memcpy(bits, &residual[i], sizeof with_item);
            __builtin_memcpy(bits + 1, &with_item, sizeof with_item);
            bits[0] ^= (bits[0] ^ bits[1]) & (uint32_t)mask_below((uint64_t)(user.marks[i] ^ user.mark), 1);
            __builtin_memcpy(&residual[i], bits, sizeof with_item);
        }
    else
        for (ptrdiff_t j = 0; j < user.n_user_items; ++j) {
            float* const r = residual + user.items[j];
            *r = (float)((user.confidence ? user.confidence[j] : 1.0) * ((double)*r - 1.0));
        }
    for (ptrdiff_t start = 0; start < normal.length; start += WIDE)
        for (int c = 0; c < WIDE; ++c) squares[c] += (double)residual[start + c] * (double)residual[start + c];
    for (int c = 1; c < WIDE; ++c) squares[0] += squares[c];
    for (ptrdiff_t f = 0; f < round.n_factors; ++f) x_square += user.x[f] * user.x[f];
    // |c (x'v - p) x'| = |c (x'v - p)| |x|, because the matrix has rank one.
    const double inverse = 1.0 / (__builtin_sqrt(squares[0]) * __builtin_sqrt(x_square));
    return inverse <= __DBL_MAX__ ? inverse : 0.0;  // also 0 for infinity and NaN, so there is no division by 0
}

int64_t fmf_normalized_reports(const FMFRound& round, const FMFNormal& normal, const FMFUser& user,
                               const uint64_t* words, float* scratch, int64_t* coordinates, int64_t* answers) {
    const ptrdiff_t length = normal.length, n_factors = round.n_factors;
    float *residual = scratch, *between = scratch + length, *rotated = scratch + 2 * length;
    const double inverse = FASTFEDREC_LEVEL::fmf_residual(round, normal, user, residual);
    for (ptrdiff_t f = 0; f < n_factors; ++f) {
        float* const column = rotated + f * length;
        float* const start = normal.n_passes % 2 ? between : column;  // where the passes want it
        const float* const signs = normal.signs + f * length;
        // The matrix has norm 1 before the rotation. If the residual is so short that x is infinite, entries are
        // infinite or NaN, and `responses` answers those with a fair coin.
        const float x = (float)(normal.scale * inverse * user.x[f]);
        for (ptrdiff_t i = 0; i < length; ++i) start[i] = x * signs[i] * residual[i];
        if (normal.n_passes) hadamard_passes(column, between, normal.n_passes);
    }
    uint64_t row[TILE], factor[TILE], answer_words[TILE];
    double values[TILE];
    int64_t clipped = 0;
    for (ptrdiff_t start = 0; start < round.n_reports; start += TILE) {
        const int n = round.n_reports - start < TILE ? (int)(round.n_reports - start) : TILE;
        for (int r = 0; r < n; r += 8)
            draw_coordinates(normal.n_rows, normal.n_columns, words + 2 * (start + r), row + r, factor + r,
                             coordinates + start + r, answer_words + r);
        for (int r = 0; r < n; ++r) {
            const float* const mix = normal.mix + factor[r] * n_factors;
            float value = 0.0f;
            // Column `factor` of the gradient times the rotation is summed with f ascending.
            for (ptrdiff_t f = 0; f < n_factors; ++f) value += mix[f] * rotated[f * length + row[r]];
            values[r] = value;
        }
        for (int r = 0; r < n; ++r) clipped += __builtin_fabs(values[r]) > 1.0;
        responses(values, answer_words, n, round.span, answers + start);
    }
    return clipped;
}

void fmf_add_gradient(const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* scratch,
                      int64_t* sums) {
    float* const residual = scratch;
    int32_t* const whole = (int32_t*)(scratch + normal.length);
    const double inverse = FASTFEDREC_LEVEL::fmf_residual(round, normal, user, residual);
    if (inverse == 0.0) return;
    double x_square = 0.0;
    for (ptrdiff_t f = 0; f < round.n_factors; ++f) x_square += user.x[f] * user.x[f];
    const double x_norm = __builtin_sqrt(x_square);
    // The margin is far above the rounding errors of the norms, so no vector is longer than allowed.
    const double margin = 1.0 - 1.0 / (1 << 30);
    const double row_scale = normal.scale * margin * inverse * x_norm, x_scale = normal.scale * margin / x_norm;
    // Norms are at most normal.scale < 2^31, so neither conversion overflows.
    for (ptrdiff_t i = 0; i < normal.length; ++i) whole[i] = (int32_t)(row_scale * (double)residual[i]);
    for (ptrdiff_t f = 0; f < round.n_factors; ++f) {
        const int64_t x = (int64_t)(x_scale * user.x[f]);
        int64_t* const sum = sums + f * normal.length;
        // The sum has at most scale^2 for each user: 2^36 for the scale of the caller, so sums of 2^27 users fit.
        for (ptrdiff_t i = 0; i < normal.length; ++i) sum[i] += x * whole[i];
    }
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
