// Negatives and the best items, in vectors; _kernels/compute/ranking.pyx documents their use.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

// All levels have one layout, in lines of 64 bytes: a caller packs once for calls on any level.
enum { LINE_BYTES = 64, BLOCK_USERS = 48 };

// Up to SHORT best items are kept in registers, and more in a list of candidates that is reduced when it is full.
enum { SHORT = 16 };
static inline ptrdiff_t list_capacity(ptrdiff_t n, ptrdiff_t n_items) {
    if (n <= SHORT) return 0;
    return 64 + (4 * n < n_items ? 4 * n : n_items);
}

// A candidate is its score, of `size` bytes, and its column.
static inline ptrdiff_t list_bytes(ptrdiff_t n, ptrdiff_t n_items, ptrdiff_t size) {
    return 2 * size * list_capacity(n, n_items);
}

static inline ptrdiff_t bitmap_words(ptrdiff_t n) { return (n + 63) >> 6; }

FASTFEDREC_EACH_LEVEL(
    template <class Real>
    struct Ranking {
        static ptrdiff_t recommend_block(const Real* users, const int64_t* rows, ptrdiff_t n_users,
                                         ptrdiff_t n_factors, const Real* items, ptrdiff_t n_items,
                                         const int64_t* indptr, const int32_t* indices, int32_t* out_items,
                                         Real* out_scores, ptrdiff_t n, Real* x, uint64_t* taken, char* candidates);
        static bool top_k(const Real* scores, ptrdiff_t n_items, const int32_t* seen, ptrdiff_t n_seen,
                          int32_t* out_items, Real* out_scores, ptrdiff_t n, uint64_t* taken, char* candidates);
    };
    void unseen_items(uint64_t* marked, const int32_t* seen, ptrdiff_t n_seen, ptrdiff_t n_items, uint64_t* taken,
                      int32_t* out);
)

// Writes items in the layout of `recommend_block`: a line has one factor of as many items as fit, the lines of these
// items follow each other, and zeros fill up to a multiple of 64 items.
template <class Real>
static inline void pack_items(const Real* items, ptrdiff_t n_items, ptrdiff_t n_factors, Real* out) {
    const ptrdiff_t line = LINE_BYTES / sizeof(Real);
    for (ptrdiff_t start = 0; start < 64 * bitmap_words(n_items); start += line)
        for (ptrdiff_t f = 0; f < n_factors; ++f)
            for (ptrdiff_t i = start; i < start + line; ++i) *out++ = i < n_items ? items[i * n_factors + f] : Real(0);
}

// Writes the n best items of up to BLOCK_USERS users, best first; returns the first user with a score that is not
// finite, or n_users. `rows` lists the users, and other arguments are for all users. Scratch: x for BLOCK_USERS *
// n_factors numbers, `taken` for BLOCK_USERS bitmaps of the items, and `candidates` for BLOCK_USERS lists.
template <class Real>
static inline ptrdiff_t recommend_block(const Real* users, const int64_t* rows, ptrdiff_t n_users, ptrdiff_t n_factors,
                                        const Real* items, ptrdiff_t n_items, const int64_t* indptr,
                                        const int32_t* indices, int32_t* out_items, Real* out_scores, ptrdiff_t n,
                                        Real* x, uint64_t* taken, char* candidates) {
    return FASTFEDREC_CALL(Ranking<Real>::recommend_block, users, rows, n_users, n_factors, items, n_items, indptr,
                           indices, out_items, out_scores, n, x, taken, candidates);
}

// Writes the n best items of one row of scores; returns whether all scores are finite. Scratch: one bitmap and one
// list.
template <class Real>
static inline bool top_k(const Real* scores, ptrdiff_t n_items, const int32_t* seen, ptrdiff_t n_seen,
                         int32_t* out_items, Real* out_scores, ptrdiff_t n, uint64_t* taken, char* candidates) {
    return FASTFEDREC_CALL(Ranking<Real>::top_k, scores, n_items, seen, n_seen, out_items, out_scores, n, taken,
                           candidates);
}

// Converts ranks among the unseen items to items, ascending. `marked` is a bitmap of ranks with one word more than
// n_items need, and is cleared. Scratch: one bitmap. Writes up to 4 numbers past the last.
static inline void unseen_items(uint64_t* marked, const int32_t* seen, ptrdiff_t n_seen, ptrdiff_t n_items,
                                uint64_t* taken, int32_t* out) {
    FASTFEDREC_CALL(unseen_items, marked, seen, n_seen, n_items, taken, out);
}

}  // namespace fastfedrec
