// Positions of held-out items by inner products, and their ranks by scores, in vectors; _kernels/compute/ranking.pyx
// documents their use.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum { HELD_OUT_LINE = 64, HELD_OUT_ROWS = 16 };

// Faults of the input of `held_out_block`, as bits.
enum { NO_MEMORY = 1, NOT_FINITE = 2, OUT_OF_RANGE = 4 };

// Length of a quantized row: 16 or 32 bytes, or whole lines.
static inline ptrdiff_t quantized_length(ptrdiff_t n_factors) {
    return n_factors <= 8 ? 8 : n_factors <= 16 ? 16 : (n_factors + 31) / 32 * 32;
}

FASTFEDREC_EACH_LEVEL(
    template <class Real>
    struct HeldOut {
        static int quantize_items(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, int16_t* out, float* steps);
        static int block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items,
                         ptrdiff_t n_items, const int16_t* quantized, const float* steps, const int64_t* indptr,
                         const int32_t* held_out, const int32_t* others, ptrdiff_t n_others, const int64_t* counts,
                         int16_t* x, int32_t* sums, float* sum_steps, int64_t* above, int64_t* same);
        static double rank(Real score, const Real* others, ptrdiff_t n);
    };
)

// Rows of factors as 16-bit multiples of a step, one for each row.  Returns NOT_FINITE where that is so of any.
template <class Real>
static inline int quantize_items(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, int16_t* out, float* steps) {
    return FASTFEDREC_CALL(HeldOut<Real>::quantize_items, rows, n, n_factors, out, steps);
}

// For each held-out item of up to HELD_OUT_ROWS users, how many of the user's other items are above it, and how many
// are as good; all of a user's are -1 above if one of the products overflows.  Returns the faults of users and
// others as bits, and then counts no item.  `indptr` and `counts` begin at the first user; other arguments are of
// all.  Scratch: x for HELD_OUT_ROWS quantized rows, sums and their steps for `held_out_sums`.
template <class Real>
static inline int held_out_block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items,
                                 ptrdiff_t n_items, const int16_t* quantized, const float* steps, const int64_t* indptr,
                                 const int32_t* held_out, const int32_t* others, ptrdiff_t n_others,
                                 const int64_t* counts, int16_t* x, int32_t* sums, float* sum_steps, int64_t* above,
                                 int64_t* same) {
    return FASTFEDREC_CALL(HeldOut<Real>::block, users, n_rows, n_factors, items, n_items, quantized, steps, indptr,
                           held_out, others, n_others, counts, x, sums, sum_steps, above, same);
}

// For up to n other items a row.
static inline ptrdiff_t held_out_sums(ptrdiff_t n) { return n + HELD_OUT_LINE; }

// 1 + how many of the others are greater + half of those that are equal; NaN if a NaN is among them.
template <class Real>
static inline double rank(Real score, const Real* others, ptrdiff_t n) {
    return FASTFEDREC_CALL(HeldOut<Real>::rank, score, others, n);
}

}  // namespace fastfedrec
