// Positions of held-out items, in vectors; _kernels/compute/places.pyx documents their use.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/compute/_ranking.h"
#include "_kernels/core/_levels.h"

namespace fastfedrec {

// Number of scores per user in memory: the scores of a block of users stay in the second cache.
enum { PLACES_ITEMS = 1024 };

// Scratch of one thread: numbers, and counts, for BLOCK_USERS users with `n_held_out` held-out items together.
static inline ptrdiff_t places_numbers(ptrdiff_t n_factors, ptrdiff_t n_held_out) {
    return BLOCK_USERS * (n_factors + PLACES_ITEMS) + 2 * n_held_out;
}
static inline ptrdiff_t places_counts(ptrdiff_t n_held_out) { return 2 * (n_held_out + BLOCK_USERS); }

FASTFEDREC_EACH_LEVEL(
    template <class Real>
    struct Places {
        static ptrdiff_t of_factors(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* item_rows,
                                    const Real* items, ptrdiff_t n_items, const int64_t* indptr,
                                    const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                    Real* numbers, int64_t* counts, int64_t* above, int64_t* same);
        static ptrdiff_t of_scores(const Real* all, ptrdiff_t n_users, ptrdiff_t n_items, const int64_t* indptr,
                                   const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                   Real* numbers, int64_t* counts, int64_t* above, int64_t* same);
    };
)

// How many of the items that are not seen have a greater score than each held-out item, and how many the same, itself
// among them, for up to BLOCK_USERS users.  Of each user there are `width` numbers: factors; or where `item_rows` is
// null the scores of all items, which may be infinite.  Returns the first user with a score that is not finite, of given
// scores with one that is NaN, or n_users.  `item_rows` are the factors of items as they are, `items` the same as
// `pack_items` lays them.  `indptr` and `seen_indptr` begin with these users' first; `seen` is ascending within a user;
// `above` and `same` are of all users.
template <class Real>
static inline ptrdiff_t places_of_block(const Real* users, ptrdiff_t n_users, ptrdiff_t width, const Real* item_rows,
                                        const Real* items, ptrdiff_t n_items, const int64_t* indptr,
                                        const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                        Real* numbers, int64_t* counts, int64_t* above, int64_t* same) {
    if (item_rows == nullptr)
        return FASTFEDREC_CALL(Places<Real>::of_scores, users, n_users, n_items, indptr, held_out, seen_indptr, seen,
                               numbers, counts, above, same);
    return FASTFEDREC_CALL(Places<Real>::of_factors, users, n_users, width, item_rows, items, n_items, indptr, held_out,
                           seen_indptr, seen, numbers, counts, above, same);
}

}  // namespace fastfedrec
