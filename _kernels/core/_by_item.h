// The interactions of a block of users in the order of their items.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fastfedrec {

// Sorts a block's interactions by item; those of an item keep the order of users.  Item i has the interactions from
// starts[i] to starts[i + 1] - 1.  `users` gets the user of each, counted from the block's first one, and `positions`,
// if it is not null, its position among the block's interactions before the sort.
inline void sort_by_item(const int64_t* indptr, ptrdiff_t n_users, const int32_t* indices, ptrdiff_t n_items,
                         int64_t* starts,  // of n_items + 2 numbers; the last one is scratch
                         int32_t* users, int32_t* positions) {
    const int32_t* items = indices + indptr[0];
    std::fill(starts, starts + n_items + 2, 0);
    // Counts are two entries ahead.  So the sums are one entry ahead, and each is its item's start after the last loop.
    for (int64_t k = 0; k < indptr[n_users] - indptr[0]; ++k) ++starts[items[k] + 2];
    for (ptrdiff_t i = 2; i < n_items + 2; ++i) starts[i] += starts[i - 1];
    for (ptrdiff_t u = 0; u < n_users; ++u)
        for (int64_t k = indptr[u] - indptr[0]; k < indptr[u + 1] - indptr[0]; ++k) {
            const int64_t sorted = starts[items[k] + 1]++;
            users[sorted] = (int32_t)u;
            if (positions) positions[sorted] = (int32_t)k;
        }
}

}  // namespace fastfedrec
