// The best items of users by 8-bit copies of the factors and then by the factors, in vectors; ranking.pyx documents
// their use.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/compute/_ranking.h"

namespace fastfedrec {

// A line holds a quartet of factors of SCREENED_ITEMS items; quartets are added up in chunks; the last constant is the
// capacity of a user's list of candidates.
enum { SCREENED_ITEMS = LINE_BYTES / 4, SCREENED_CHUNK = 16, SCREENED_CANDIDATES = 320 };

static inline ptrdiff_t quartets(ptrdiff_t n_factors) { return (n_factors + 3) / 4; }

// Returns the length of a user: its quartets, and one more number for each chunk.
static inline ptrdiff_t screened_length(ptrdiff_t n_factors) {
    return quartets(n_factors) + (quartets(n_factors) + SCREENED_CHUNK - 1) / SCREENED_CHUNK;
}

// Return the bytes of the copies of all items, the number of their bounds, and the bytes of a block of users and of
// their candidates.
static inline ptrdiff_t screened_items_bytes(ptrdiff_t n_items, ptrdiff_t n_factors) {
    return 64 * bitmap_words(n_items) * 4 * quartets(n_factors);
}
static inline ptrdiff_t screened_bounds(ptrdiff_t n_items) { return 3 * 64 * bitmap_words(n_items); }
static inline ptrdiff_t screened_users_bytes(ptrdiff_t n_factors) {
    return BLOCK_USERS * 4 * screened_length(n_factors);
}
static inline ptrdiff_t screened_candidates_bytes() { return BLOCK_USERS * SCREENED_CANDIDATES * 12; }

FASTFEDREC_EACH_LEVEL(
    template <class Real>
    struct Screening {
        static void screened_items(const Real* items, ptrdiff_t first, ptrdiff_t n_items, ptrdiff_t n_factors,
                                   uint8_t* lines, float* bounds);
        static ptrdiff_t recommend_screened(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors,
                                            const Real* items, ptrdiff_t n_items, const uint8_t* lines,
                                            const float* bounds, const int64_t* indptr, const int32_t* indices,
                                            int32_t* out_items, Real* out_scores, ptrdiff_t n, int32_t* x,
                                            uint64_t* taken, char* candidates, char* unsolved);
    };
)

// Writes copies of up to 64 items from `first` on, and bounds on their distance from the items.
template <class Real>
static inline void screened_items(const Real* items, ptrdiff_t first, ptrdiff_t n_items, ptrdiff_t n_factors,
                                  uint8_t* lines, float* bounds) {
    FASTFEDREC_CALL(Screening<Real>::screened_items, items, first, n_items, n_factors, lines, bounds);
}

// Writes the n <= SHORT best items of up to BLOCK_USERS users, equal to those of `recommend_block`. Users with too many
// candidates, or too large or small factors, have no result: they are marked in `unsolved`, and their number is
// returned; plain code marks all. Scratch: x for `screened_users_bytes`, `taken` for BLOCK_USERS bitmaps of the items,
// `candidates` for `screened_candidates_bytes`.
template <class Real>
static inline ptrdiff_t recommend_screened(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* items,
                                           ptrdiff_t n_items, const uint8_t* lines, const float* bounds,
                                           const int64_t* indptr, const int32_t* indices, int32_t* out_items,
                                           Real* out_scores, ptrdiff_t n, int32_t* x, uint64_t* taken, char* candidates,
                                           char* unsolved) {
    return FASTFEDREC_CALL(Screening<Real>::recommend_screened, users, n_users, n_factors, items, n_items, lines,
                           bounds, indptr, indices, out_items, out_scores, n, x, taken, candidates, unsolved);
}

}  // namespace fastfedrec
