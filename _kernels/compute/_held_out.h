// Counts that give the ranks of held-out items by inner products, and ranks by scores, in vectors;
// _kernels/compute/ranking.pyx documents their use.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum { HELD_OUT_LINE = 64, HELD_OUT_ROWS = 16 };

// Faults of the input of `held_out_block`, as bits.
enum { NO_MEMORY = 1, NOT_FINITE = 2, OUT_OF_RANGE = 4 };

// Returns the length of a quantized row: 16 or 32 bytes, or whole lines.
static inline ptrdiff_t quantized_length(ptrdiff_t n_factors) {
    return n_factors <= 8 ? 8 : n_factors <= 16 ? 16 : (n_factors + 31) / 32 * 32;
}

FASTFEDREC_EACH_LEVEL(
    template <class Real>
    struct HeldOut {
        static int quantize_items(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, int16_t* out, float* steps);
        static int block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items,
                         ptrdiff_t n_items, const int16_t* quantized, const float* steps, const int64_t* indptr,
                         const int32_t* held_out, const int32_t* other_items, ptrdiff_t n_other_items,
                         const int64_t* counts, int16_t* x, int32_t* sums, float* sum_steps, int64_t* above,
                         int64_t* same);
        static double rank(Real score, const Real* other_scores, ptrdiff_t n);
    };
)

// Writes rows of factors as 16-bit multiples of a step, one step for each row. Returns NOT_FINITE if a row is not
// finite.
template <class Real>
static inline int quantize_items(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, int16_t* out, float* steps) {
    return FASTFEDREC_CALL(HeldOut<Real>::quantize_items, rows, n, n_factors, out, steps);
}

// Counts for each held-out item of up to HELD_OUT_ROWS users how many of the other items of the user are above it, and
// how many are equal. `above` is -1 for all held-out items of a user if a product overflows. Returns the faults of
// users and other items as bits; with a fault it counts no item. `indptr` and `counts` begin at the first user; other
// arguments are for all users. Scratch: x for HELD_OUT_ROWS quantized rows, and sums and their steps of size
// `held_out_sums`.
template <class Real>
static inline int held_out_block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items,
                                 ptrdiff_t n_items, const int16_t* quantized, const float* steps, const int64_t* indptr,
                                 const int32_t* held_out, const int32_t* other_items, ptrdiff_t n_other_items,
                                 const int64_t* counts, int16_t* x, int32_t* sums, float* sum_steps, int64_t* above,
                                 int64_t* same) {
    return FASTFEDREC_CALL(HeldOut<Real>::block, users, n_rows, n_factors, items, n_items, quantized, steps, indptr,
                           held_out, other_items, n_other_items, counts, x, sums, sum_steps, above, same);
}

// Returns the size of the scratch for up to n other items a row.
static inline ptrdiff_t held_out_sums(ptrdiff_t n) { return n + HELD_OUT_LINE; }

// Returns 1 + the number of greater scores + half of the number of equal scores; NaN if a score is NaN.
template <class Real>
static inline double rank(Real score, const Real* other_scores, ptrdiff_t n) {
    return FASTFEDREC_CALL(HeldOut<Real>::rank, score, other_scores, n);
}

}  // namespace fastfedrec
