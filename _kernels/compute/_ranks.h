// Counts that give the ranks of held-out items, in vectors; _kernels/compute/ranks.pyx documents their use.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/compute/_ranking.h"
#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Number of scores per user in memory: the scores of a block of users stay in the second-level cache.
enum { RANK_ITEMS = 1024 };

// Return the sizes of the scratch of one thread: numbers, and counts, for BLOCK_USERS users with `n_held_out` held-out
// items in total.
static inline ptrdiff_t rank_scratch_numbers(ptrdiff_t n_factors, ptrdiff_t n_held_out) {
    return BLOCK_USERS * (n_factors + RANK_ITEMS) + 2 * n_held_out;
}
static inline ptrdiff_t rank_scratch_counts(ptrdiff_t n_held_out) { return 2 * (n_held_out + BLOCK_USERS); }

FASTFEDREC_EACH_LEVEL(
    template <class Real>
    struct Ranks {
        static ptrdiff_t of_factors(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* item_rows,
                                    const Real* items, ptrdiff_t n_items, const int64_t* indptr,
                                    const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                    Real* numbers, int64_t* counts, int64_t* above, int64_t* same);
        static ptrdiff_t of_scores(const Real* all_scores, ptrdiff_t n_users, ptrdiff_t n_items, const int64_t* indptr,
                                   const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                   Real* numbers, int64_t* counts, int64_t* above, int64_t* same);
    };
)

// Counts, for each held-out item of up to BLOCK_USERS users, the unseen items with a greater score, and those with an
// equal score, itself among them. Each user has `width` numbers: factors; or, if `item_rows` is null, the scores of all
// items, which may be infinite. Returns the first user with a score that is not finite (for given scores, one that is
// NaN), or n_users. `item_rows` are the factors of items, and `items` are the same in the layout of `pack_items`.
// `indptr` and `seen_indptr` begin with the first of these users; `seen` is ascending within a user; `above` and `same`
// are of all users.
template <class Real>
static inline ptrdiff_t rank_counts_of_block(const Real* users, ptrdiff_t n_users, ptrdiff_t width,
                                             const Real* item_rows, const Real* items, ptrdiff_t n_items,
                                             const int64_t* indptr, const int32_t* held_out, const int64_t* seen_indptr,
                                             const int32_t* seen, Real* numbers, int64_t* counts, int64_t* above,
                                             int64_t* same) {
    if (item_rows == nullptr)
        return FASTFEDREC_CALL(Ranks<Real>::of_scores, users, n_users, n_items, indptr, held_out, seen_indptr, seen,
                               numbers, counts, above, same);
    return FASTFEDREC_CALL(Ranks<Real>::of_factors, users, n_users, width, item_rows, items, n_items, indptr, held_out,
                           seen_indptr, seen, numbers, counts, above, same);
}

}  // namespace fastfedrec
