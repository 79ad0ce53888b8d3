// Scores of tiles of users and items in registers, for the best items and the ranks of held-out items.
//
// Only files that setup.py compiles for each level may include this file (see _levels.h); everything is static and
// inlined.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/compute/_best_n.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// A tile of scores has TILE_USERS x TILE_VECTORS accumulators: most of the registers, so that each loaded number is
// used several times.
enum { TILE_USERS = 6, TILE_VECTORS = VECTOR_BYTES == 64 ? 4 : 2 };

// Computes scores of TILE_USERS users (x: a factor of all of them, then the next) and TILE_ITEMS items from column
// `first` on. Each is a sum over the factors in ascending order, so it does not depend on the other scores of the tile.
template <class Real, class Vector = typename Shape<Real>::Vector>
static inline void tile(const Real* x, const Real* items, ptrdiff_t n_factors, ptrdiff_t first,
                        Vector scores[TILE_USERS][TILE_VECTORS]) {
    typedef Shape<Real> S;
    Vector sums[TILE_USERS][TILE_VECTORS] = {};  // in registers, unlike the array of the caller
    const Real* lines[TILE_VECTORS];
    // Each vector of items has a start: a line of factor f is S::LINE numbers after the line of f - 1.
    for (int t = 0; t < TILE_VECTORS; ++t) {
        const ptrdiff_t column = first + t * S::LANES, within = column % S::LINE;
        lines[t] = items + (column - within) * n_factors + within;
    }
    // s_ui += x_uf v_if, f ascending: one chain of fused additions for each score.
    for (ptrdiff_t f = 0; f < n_factors; ++f) {
        Vector v[TILE_VECTORS];
        for (int t = 0; t < TILE_VECTORS; ++t) v[t] = load(lines[t] + f * S::LINE);
        for (int u = 0; u < TILE_USERS; ++u) {
            const Vector spread = x[f * TILE_USERS + u] - Vector{};
            for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] = fused(spread, v[t], sums[u][t]);
        }
    }
    for (int u = 0; u < TILE_USERS; ++u)
        for (int t = 0; t < TILE_VECTORS; ++t) scores[u][t] = sums[u][t];
}

// Writes factors in the layout of `tile`: for each tile of users factor after factor, six users side by side, and zeros
// for users after the last. User u of n_users is row `rows[u]`, or u if there are no `rows`.
template <class Real>
static inline void pack_users(const Real* users, const int64_t* rows, ptrdiff_t n_users, ptrdiff_t n_factors, Real* x) {
    for (ptrdiff_t u = 0; u < BLOCK_USERS; ++u)
        for (ptrdiff_t f = 0; f < n_factors; ++f)
            x[(u / TILE_USERS * n_factors + f) * TILE_USERS + u % TILE_USERS] =
                u < n_users ? users[(rows ? rows[u] : u) * n_factors + f] : Real(0);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
