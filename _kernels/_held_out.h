// Ranks of held-out items by inner products or scores, in vectors; _kernels/ranking.pyx says what they are for.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/_levels.h"

namespace fastfedrec {

// Rows are packed for all levels alike, in lines of 64 bytes.  AHEAD: items whose factors are fetched before their turn.
enum { HELD_OUT_LINE = 64, HELD_OUT_ROWS = 16, AHEAD = 16 };

// What is wrong with the input of `held_out_block` or `pack_rows`, as bits.
enum { NO_MEMORY = 1, NOT_FINITE = 2, OUT_OF_RANGE = 4 };

// Numbers of `size` bytes in the lines that hold n.
static inline ptrdiff_t whole_lines(ptrdiff_t n, ptrdiff_t size) {
    const ptrdiff_t line = HELD_OUT_LINE / size;
    return (n + line - 1) / line * line;
}

}  // namespace fastfedrec

#define FASTFEDREC_DECLARE(level) \
    namespace level { \
    template <class Real> \
    struct HeldOut { \
        static int pack_rows(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, Real* out); \
        static int block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items, \
                         ptrdiff_t n_items, const int64_t* indptr, const int32_t* held_out, const int32_t* others, \
                         ptrdiff_t n_others, const int64_t* counts, Real* x, Real* scores, int32_t* columns, \
                         double* out); \
        static double rank(Real score, const Real* others, ptrdiff_t n); \
    }; \
    }
namespace fastfedrec { FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE) }
#undef FASTFEDREC_DECLARE

namespace fastfedrec {

// Rows as `held_out_block` reads them: each from the beginning of a line, with zeros to the end of its last one.  Returns
// NOT_FINITE where that is so of any.
template <class Real>
static inline int pack_rows(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, Real* out) {
    return FASTFEDREC_CALL(HeldOut<Real>::pack_rows, rows, n, n_factors, out);
}

// Ranks of the held-out items of up to HELD_OUT_ROWS users among their other items; all ranks of a user are NaN if one
// of the products overflows.  Returns what is wrong with users and others, and then ranks nothing; items are packed, `indptr` and `counts` are
// those of the first of the users, and what else is given is of all.  Scratch: x for HELD_OUT_ROWS packed rows, scores and columns for
// `held_out_scratch` numbers.
template <class Real>
static inline int held_out_block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items,
                                 ptrdiff_t n_items, const int64_t* indptr, const int32_t* held_out,
                                 const int32_t* others, ptrdiff_t n_others, const int64_t* counts, Real* x,
                                 Real* scores, int32_t* columns, double* out) {
    return FASTFEDREC_CALL(HeldOut<Real>::block, users, n_rows, n_factors, items, n_items, indptr, held_out, others,
                           n_others, counts, x, scores, columns, out);
}

// For users with up to n items, held-out and others.
static inline ptrdiff_t held_out_scratch(ptrdiff_t n) { return HELD_OUT_ROWS * (n + 3) + HELD_OUT_LINE; }

// 1 + how many of the others are greater + half of those that are equal; NaN if a NaN is among them.
template <class Real>
static inline double rank(Real score, const Real* others, ptrdiff_t n) {
    return FASTFEDREC_CALL(HeldOut<Real>::rank, score, others, n);
}

}  // namespace fastfedrec
