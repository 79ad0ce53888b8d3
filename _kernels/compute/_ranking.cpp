// See _ranking.h; compiled once for each level.
#include "_kernels/compute/_ranking.h"

#include "_kernels/compute/_best_n.h"
#include "_kernels/compute/_score_tiles.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

template <class Selection, class Real>
static ptrdiff_t recommend(const Real* users, const int64_t* rows, ptrdiff_t n_users, ptrdiff_t n_factors,
                           const Real* items, ptrdiff_t n_items, const int64_t* indptr, const int32_t* indices,
                           int32_t* out_items, Real* out_scores, ptrdiff_t n, Real* x, uint64_t* taken,
                           char* candidates) {
    typedef Shape<Real> S;
    typedef typename S::Vector Vector;
    const ptrdiff_t n_words = bitmap_words(n_items), capacity = list_capacity(n, n_items);
    Vector not_finite[BLOCK_USERS] = {};  // 0, or NaN
    Selection best[BLOCK_USERS];
    // Each user of the block has a list; only this thread writes to the output rows of the block.
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        best[u].open(out_items + rows[u] * n, out_scores + rows[u] * n, n,
                     candidates + u * list_bytes(n, n_items, sizeof(Real)), capacity);
        mark_taken(indices + indptr[rows[u]], indptr[rows[u] + 1] - indptr[rows[u]], n_items, taken + u * n_words);
    }
    // The last tile computes the scores of six users too; users after the last have no list.
    for (ptrdiff_t u = n_users; u < BLOCK_USERS; ++u) best[u].open(nullptr, nullptr, n, candidates, 0);
    pack_users(users, rows, n_users, n_factors, x);
    // The items of one tile stay in the first-level cache for all users of the block.
    for (ptrdiff_t first = 0; first < n_items; first += TILE_VECTORS * S::LANES)
        for (ptrdiff_t start = 0; start < n_users; start += TILE_USERS) {
            Vector scores[TILE_USERS][TILE_VECTORS];
            tile(x + start * n_factors, items, n_factors, first, scores);
            // All comparisons come before the first branch on one of them, so a misprediction does not delay them.
            uint64_t above[TILE_USERS];
            unsigned any = 0;
#pragma GCC unroll 6
            for (int i = 0; i < TILE_USERS; ++i) {
                const ptrdiff_t u = start + i;
                const Real threshold = best[u].threshold();
                above[i] = 0;
                for (int t = 0; t < TILE_VECTORS; ++t) {
                    // Bit t LANES + lane is 1 if that score is above the worst of the best of the user.
                    above[i] |= greater(scores[i][t], threshold) << (t * S::LANES);
                    // 0 stays 0 while scores are finite, and infinity or NaN times 0 is NaN.
                    not_finite[u] = fused(scores[i][t], Vector{}, not_finite[u]);
                }
                // A tile is at most 64 items and begins at a multiple of its width: its bits are in one word.
                above[i] &= ~(taken[u * n_words + (first >> 6)] >> (first & 63));
                any |= (unsigned)(above[i] != 0) << i;
            }
            // Users after the last have no list; their words of `taken` were not written.
            if (n_users - start < TILE_USERS) any &= (1u << (n_users - start)) - 1;
            for (; any; any &= any - 1) {
                const int i = __builtin_ctz(any);
                best[start + i].offer(above[i], (const Real*)scores[i], first);
            }
        }
    ptrdiff_t first_bad = n_users;
    for (ptrdiff_t u = n_users - 1; u >= 0; --u) {
        best[u].close();
        fill_up(out_items + rows[u] * n, n, taken + u * n_words);
        for (int lane = 0; lane < S::LANES; ++lane)  // NaN is unequal to 0 as well
            if (not_finite[u][lane] != 0) first_bad = u;
    }
    return first_bad;
}

template <class Real>
ptrdiff_t Ranking<Real>::recommend_block(const Real* users, const int64_t* rows, ptrdiff_t n_users, ptrdiff_t n_factors,
                                         const Real* items, ptrdiff_t n_items, const int64_t* indptr,
                                         const int32_t* indices, int32_t* out_items, Real* out_scores, ptrdiff_t n,
                                         Real* x, uint64_t* taken, char* candidates) {
    const auto function = n <= SHORT ? recommend<ShortList<Real>, Real> : recommend<LongList<Real>, Real>;
    return function(users, rows, n_users, n_factors, items, n_items, indptr, indices, out_items, out_scores, n, x,
                    taken, candidates);
}

template <class Selection, class Real>
static bool best_of_row(const Real* scores, ptrdiff_t n_items, const int32_t* seen, ptrdiff_t n_seen,
                        int32_t* out_items, Real* out_scores, ptrdiff_t n, uint64_t* taken, char* candidates) {
    typedef Shape<Real> S;
    typename S::Vector not_finite[64 / S::LANES] = {};  // 0, or NaN; one vector would wait for its last addition
    Selection best;
    best.open(out_items, out_scores, n, candidates, list_capacity(n, n_items));
    mark_taken(seen, n_seen, n_items, taken);
    for (ptrdiff_t first = 0; first < n_items; first += 64) {
        Real last[64] = {};  // the last items, then zeros
        const Real* offered = scores + first;
        if (n_items - first < 64) {
            __builtin_memcpy(last, offered, (n_items - first) * sizeof(Real));
            offered = last;
        }
        const Real threshold = best.threshold();
        uint64_t bits = 0;
        for (int t = 0; t < 64 / S::LANES; ++t) {
            const auto v = load(offered + t * S::LANES);
            bits |= greater(v, threshold) << (t * S::LANES);
            not_finite[t] = fused(v, typename S::Vector{}, not_finite[t]);
        }
        // Bits after the last item are taken (mark_taken), so the zeros there are no candidates.
        best.offer(bits & ~taken[first >> 6], offered, first);
    }
    best.close();
    fill_up(out_items, n, taken);
    bool finite = true;
    for (int i = 0; i < 64; ++i) finite &= ((const Real*)not_finite)[i] == 0;
    return finite;
}

template <class Real>
bool Ranking<Real>::top_k(const Real* scores, ptrdiff_t n_items, const int32_t* seen, ptrdiff_t n_seen,
                          int32_t* out_items, Real* out_scores, ptrdiff_t n, uint64_t* taken, char* candidates) {
    const auto function = n <= SHORT ? best_of_row<ShortList<Real>, Real> : best_of_row<LongList<Real>, Real>;
    return function(scores, n_items, seen, n_seen, out_items, out_scores, n, taken, candidates);
}

template struct Ranking<float>;
template struct Ranking<double>;

// The r-th unseen item is the r-th bit that is not taken. If the ranks of a word can be deposited in these bits by one
// instruction, no loop over the seen items is needed.
void unseen_items(uint64_t* marked, const int32_t* seen, ptrdiff_t n_seen, ptrdiff_t n_items, uint64_t* taken,
                  int32_t* out) {
    const ptrdiff_t n_words = bitmap_words(n_items);
#if defined(__BMI2__)
    mark_taken(seen, n_seen, n_items, taken);
    ptrdiff_t rank = 0;
    for (ptrdiff_t word = 0; word < n_words; ++word) {
        // There are `rank` unseen items before this word: its marks begin at that bit. `marked` has an extra word.
        const int shift = rank & 63;
        const uint64_t* from = marked + (rank >> 6);
        // Mark k becomes the k-th bit of the word that is not taken; a shift by 63 - shift is always defined.
        uint64_t bits = _pdep_u64(from[0] >> shift | (from[1] << 1) << (63 - shift), ~taken[word]);
        rank += 64 - __builtin_popcountll(taken[word]);  // the unseen items of this word
        int32_t* const end = out + __builtin_popcountll(bits);
        do  // most words have at most four: a loop of their exact number would be mispredicted
            // Up to 4 numbers are written in excess, and the next word overwrites them: `out` has a capacity of 4 past
            // the last.
            for (int i = 0; i < 4; ++i, bits &= bits - 1) *out++ = (int32_t)(64 * word + _tzcnt_u64(bits));
        while (bits);
        out = end;
    }
    for (ptrdiff_t word = 0; word < n_words; ++word) marked[word] = 0;
#else
    ptrdiff_t below = 0;  // seen items below the unseen one; seen[j] - j unseen items are below seen[j]
    for (ptrdiff_t word = 0; word < n_words; ++word) {
        for (uint64_t bits = marked[word]; bits; bits &= bits - 1) {
            const ptrdiff_t rank = 64 * word + __builtin_ctzll(bits);
            // The unseen item of this rank is `rank` plus the number of seen items below it; both ascend, so one walk
            // suffices.
            while (below < n_seen && seen[below] - below <= rank) ++below;
            *out++ = (int32_t)(rank + below);
        }
        marked[word] = 0;
    }
#endif
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
