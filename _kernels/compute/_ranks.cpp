// See _ranks.h; compiled once for each level.
#include "_kernels/compute/_ranks.h"

#include "_kernels/compute/_best_n.h"
#include "_kernels/compute/_score_tiles.h"
#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// The count of a held-out item that is also seen stays below 0 after every addition.
static const int64_t NOT_RANKED = INT64_MIN / 2;

// From MIN_SORTED held-out items on, each score is found among them by a binary search instead of being compared with
// all.
enum { MIN_SORTED = 160, TARGETS_AT_ONCE = 4, CHAINS = 8 };

template <class Real>
static inline Real multiply_add(Real a, Real b, Real c) {
#if defined(__FMA__)
    if constexpr (sizeof(Real) == 4) return __builtin_fmaf(a, b, c);
    else return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

// Computes the scores of the held-out items of a user, with the operations of `tile` in its order: the same bits.
template <class Real>
static void target_scores(const Real* user, ptrdiff_t n_factors, const Real* item_rows, const int32_t* held_out,
                          ptrdiff_t n, Real* targets) {
    for (ptrdiff_t start = 0; start < n; start += CHAINS) {
        const Real* rows[CHAINS];
        Real sums[CHAINS] = {};
        // Several sums are computed side by side, because each waits for its own additions; the last item fills unused
        // sums.
        for (ptrdiff_t i = 0; i < CHAINS; ++i)
            rows[i] = item_rows + held_out[start + i < n ? start + i : n - 1] * n_factors;
        for (ptrdiff_t f = 0; f < n_factors; ++f)
            for (ptrdiff_t i = 0; i < CHAINS; ++i) sums[i] = multiply_add(user[f], rows[i][f], sums[i]);
        for (ptrdiff_t i = start; i < n && i < start + CHAINS; ++i) targets[i] = sums[i - start];
    }
}

// Counts greater scores, lane by lane: a comparison that holds is -1.
template <class Real, class V = typename Shape<Real>::Vector, class I = typename Shape<Real>::Integers>
static inline I add_greater(I counts, V scores, V target) {
#if defined(__AVX512F__)  // one instruction less than compilers generate
    if constexpr (sizeof(Real) == 4)
        return (I)_mm512_mask_sub_epi32((__m512i)counts, _mm512_cmp_ps_mask((__m512)scores, (__m512)target, _CMP_GT_OQ),
                                        (__m512i)counts, _mm512_set1_epi32(-1));
    else
        return (I)_mm512_mask_sub_epi64((__m512i)counts,
                                        _mm512_cmp_pd_mask((__m512d)scores, (__m512d)target, _CMP_GT_OQ),
                                        (__m512i)counts, _mm512_set1_epi64(-1));
#else
    return counts - (I)(scores > target);
#endif
}

// Records whether any score is equal: a lane becomes 0 at an equal score. Lanes begin as -1, and there is no -0.
template <class Real, class V = typename Shape<Real>::Vector, class I = typename Shape<Real>::Integers>
static inline I mark_equal(I marks, V scores, V target) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Real) == 4) return (I)_mm512_min_epu32((__m512i)marks, (__m512i)((I)scores ^ (I)target));
    else return (I)_mm512_min_epu64((__m512i)marks, (__m512i)((I)scores ^ (I)target));
#else
    return marks & ~(I)(scores == target);
#endif
}

// Adds for each of the n `targets` the numbers of greater and of equal scores. Equal scores are rare: whether there is
// any costs less to compute than their number.
template <class Real>
static void compare_all(const Real* scores, ptrdiff_t n_scores, const Real* targets, ptrdiff_t n, int64_t* above,
                        int64_t* same) {
    typedef Shape<Real> S;
    for (ptrdiff_t start = 0; start < n; start += TARGETS_AT_ONCE) {
        typename S::Vector spread[TARGETS_AT_ONCE];
        typename S::Integers greater[TARGETS_AT_ONCE] = {}, marks[TARGETS_AT_ONCE];
        for (ptrdiff_t i = 0; i < TARGETS_AT_ONCE; ++i) {
            spread[i] = targets[start + i < n ? start + i : n - 1] - typename S::Vector{};
            marks[i] = typename S::Integers{} - 1;
        }
        // n_scores is a multiple of the lanes.
        for (ptrdiff_t at = 0; at < n_scores; at += S::LANES) {
            const auto v = load(scores + at);
            for (ptrdiff_t i = 0; i < TARGETS_AT_ONCE; ++i) {
                greater[i] = add_greater<Real>(greater[i], v, spread[i]);
                marks[i] = mark_equal<Real>(marks[i], v, spread[i]);
            }
        }
        for (ptrdiff_t i = start; i < n && i < start + TARGETS_AT_ONCE; ++i) {
            bool has_equal = false;
            for (int lane = 0; lane < S::LANES; ++lane) {
                above[i] += greater[i - start][lane];
                has_equal |= marks[i - start][lane] == 0;
            }
            if (has_equal)
                for (ptrdiff_t at = 0; at < n_scores; ++at) same[i] += scores[at] == targets[i];
        }
    }
}

// Sorts in ascending order, by a heap.
template <class Real>
static void sort(Real* x, ptrdiff_t n) {
    for (ptrdiff_t step = n / 2 + n - 1; step > 0; --step) {
        ptrdiff_t root = step >= n ? step - n : 0, end = step >= n ? n : step;
        if (step < n) {  // the greatest moves to the end of the heap
            const Real last = x[step];
            x[step] = x[0];
            x[0] = last;
        }
        const Real value = x[root];
        for (ptrdiff_t child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && x[child] < x[child + 1]) ++child;
            if (!(value < x[child])) break;
            x[root] = x[child];
        }
        x[root] = value;
    }
}

// Returns how many of n sorted numbers are below x, and 0 if x is NaN.
template <class Real>
static inline ptrdiff_t count_below(const Real* sorted, ptrdiff_t n, Real x) {
    ptrdiff_t base = 0;
    while (n > 1) {
        const ptrdiff_t half = n / 2;
        base += sorted[base + half - 1] < x ? half : 0;
        n -= half;
    }
    return base + (sorted[base] < x);
}

// Counts scores by the number p of sorted held-out scores below them: all of them in counts[2 p], and those that equal
// the next held-out score in counts[2 p + 1].
template <class Real>
static void count_by_search(const Real* scores, ptrdiff_t n_scores, const Real* sorted, ptrdiff_t n, int64_t* counts) {
    for (ptrdiff_t i = 0; i < n_scores; ++i) {
        const ptrdiff_t p = count_below(sorted, n, scores[i]);
        ++counts[2 * p];
        counts[2 * p + 1] += p < n && sorted[p] == scores[i];
    }
}

template <class Real>
static void write_searched_counts(const Real* targets, const Real* sorted, ptrdiff_t n, int64_t* counts, int64_t* above,
                                  int64_t* same) {
    // From here on counts[2 p] is the number of scores with at least p sorted ones below them.
    for (ptrdiff_t p = n - 1; p >= 0; --p) counts[2 * p] += counts[2 * p + 2];
    for (ptrdiff_t i = 0; i < n; ++i) {
        const ptrdiff_t first = count_below(sorted, n, targets[i]);
        ptrdiff_t last = first;  // after all equal scores
        while (last < n && sorted[last] == targets[i]) ++last;
        above[i] = counts[2 * last];
        same[i] = counts[2 * first + 1];
    }
}

// Counts for each user of a block, added over the parts of the items.
template <class Real>
struct RankCounter {
    const int64_t* indptr;
    const int32_t* held_out;
    const int64_t* seen_indptr;
    const int32_t* seen;
    Real* all_targets;
    Real* all_sorted;
    int64_t* all_counts;
    int64_t* above;
    int64_t* same;
    const int32_t* next_seen[BLOCK_USERS];

    Real* targets(ptrdiff_t u) const { return all_targets + (indptr[u] - indptr[0]); }
    Real* sorted(ptrdiff_t u) const { return all_sorted + (indptr[u] - indptr[0]); }
    int64_t* counts(ptrdiff_t u) const { return all_counts + 2 * (indptr[u] - indptr[0] + u); }
    ptrdiff_t n(ptrdiff_t u) const { return indptr[u + 1] - indptr[u]; }

    // The caller has written `targets(u)`.
    void begin(ptrdiff_t u) {
        next_seen[u] = seen + seen_indptr[u];
        for (ptrdiff_t i = indptr[u]; i < indptr[u + 1]; ++i) above[i] = same[i] = 0;
        if (n(u) < MIN_SORTED) {
            // Held-out items are compared with each other here; among the other scores they are NaN.
            Real padded[MIN_SORTED + 64];
            for (ptrdiff_t i = 0; i < MIN_SORTED + 64; ++i)
                padded[i] = i < n(u) ? targets(u)[i] : (Real)__builtin_nanf("");
            compare_all(padded, (n(u) + 63) / 64 * 64, targets(u), n(u), above + indptr[u], same + indptr[u]);
            return;
        }
        for (ptrdiff_t i = 0; i < n(u); ++i) sorted(u)[i] = targets(u)[i];
        sort(sorted(u), n(u));
        for (ptrdiff_t i = 0; i < 2 * n(u) + 2; ++i) counts(u)[i] = 0;
    }

    // Counts scores of the n_items items from `first` on; the scores are overwritten.
    void count(ptrdiff_t u, ptrdiff_t first, ptrdiff_t n_items, Real* scores) {
        const ptrdiff_t end = first + RANK_ITEMS < n_items ? first + RANK_ITEMS : n_items;
        const ptrdiff_t n_scores = (end - first + 63) / 64 * 64;
        // Absent and seen items have NaN, which is neither greater nor equal.
        for (ptrdiff_t i = end - first; i < n_scores; ++i) scores[i] = __builtin_nanf("");
        for (; next_seen[u] < seen + seen_indptr[u + 1] && *next_seen[u] < end; ++next_seen[u])
            scores[*next_seen[u] - first] = __builtin_nanf("");
        if (n(u) < MIN_SORTED) {
            for (ptrdiff_t i = indptr[u]; i < indptr[u + 1]; ++i)
                if (held_out[i] >= first && held_out[i] < end) {
                    Real& score = scores[held_out[i] - first];
                    if (score != score && targets(u)[i - indptr[u]] == targets(u)[i - indptr[u]]) same[i] = NOT_RANKED;
                    score = __builtin_nanf("");
                }
            compare_all(scores, n_scores, targets(u), n(u), above + indptr[u], same + indptr[u]);
        } else count_by_search(scores, end - first, sorted(u), n(u), counts(u));
    }

    void finish(ptrdiff_t u) {
        if (n(u) >= MIN_SORTED)
            write_searched_counts(targets(u), sorted(u), n(u), counts(u), above + indptr[u], same + indptr[u]);
    }
};

template <class Real>
ptrdiff_t Ranks<Real>::of_factors(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* item_rows,
                                  const Real* items, ptrdiff_t n_items, const int64_t* indptr, const int32_t* held_out,
                                  const int64_t* seen_indptr, const int32_t* seen, Real* numbers, int64_t* counts,
                                  int64_t* above, int64_t* same) {
    typedef Shape<Real> S;
    typedef typename S::Vector Vector;
    Vector not_finite[BLOCK_USERS] = {};  // 0, or NaN
    Real* const x = numbers;
    Real* const block = x + BLOCK_USERS * n_factors;
    Real* const targets = block + BLOCK_USERS * RANK_ITEMS;
    Real* const sorted = targets + (indptr[n_users] - indptr[0]);
    RankCounter<Real> counter = {indptr, held_out, seen_indptr, seen, targets, sorted, counts, above, same, {}};
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        target_scores(users + u * n_factors, n_factors, item_rows, held_out + indptr[u], counter.n(u),
                      counter.targets(u));
        counter.begin(u);
    }
    pack_users(users, (const int64_t*)nullptr, n_users, n_factors, x);
    for (ptrdiff_t part = 0; part < n_items; part += RANK_ITEMS) {
        const ptrdiff_t end = part + RANK_ITEMS < n_items ? part + RANK_ITEMS : n_items;
        // The items of one tile stay in the first cache for all users of the block. The last tile may extend into
        // zeros.
        for (ptrdiff_t first = part; first < end; first += TILE_VECTORS * S::LANES)
            for (ptrdiff_t start = 0; start < n_users; start += TILE_USERS) {
                Vector scores[TILE_USERS][TILE_VECTORS];
                tile(x + start * n_factors, items, n_factors, first, scores);
                for (ptrdiff_t i = 0; i < TILE_USERS; ++i)
                    for (int t = 0; t < TILE_VECTORS; ++t) {
                        Real* to = block + (start + i) * RANK_ITEMS + (first - part) + t * S::LANES;
                        __builtin_memcpy(to, &scores[i][t], sizeof(Vector));
                        not_finite[start + i] = fused(scores[i][t], Vector{}, not_finite[start + i]);
                    }
            }
        for (ptrdiff_t u = 0; u < n_users; ++u) counter.count(u, part, n_items, block + u * RANK_ITEMS);
    }
    ptrdiff_t first_bad = n_users;
    for (ptrdiff_t u = n_users - 1; u >= 0; --u) {
        counter.finish(u);
        for (int lane = 0; lane < S::LANES; ++lane)  // NaN is unequal to 0 as well
            if (not_finite[u][lane] != 0) first_bad = u;
    }
    return first_bad;
}

template <class Real>
ptrdiff_t Ranks<Real>::of_scores(const Real* all_scores, ptrdiff_t n_users, ptrdiff_t n_items, const int64_t* indptr,
                                 const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                 Real* numbers, int64_t* counts, int64_t* above, int64_t* same) {
    Real* const targets = numbers + RANK_ITEMS;
    Real* const sorted = targets + (indptr[n_users] - indptr[0]);
    RankCounter<Real> counter = {indptr, held_out, seen_indptr, seen, targets, sorted, counts, above, same, {}};
    ptrdiff_t first_bad = n_users;
    for (ptrdiff_t u = n_users - 1; u >= 0; --u) {
        const Real* scores = all_scores + u * n_items;
        for (ptrdiff_t i = 0; i < counter.n(u); ++i) counter.targets(u)[i] = scores[held_out[indptr[u] + i]] + Real(0);
        counter.begin(u);
        for (ptrdiff_t part = 0; part < n_items; part += RANK_ITEMS) {
            const ptrdiff_t end = part + RANK_ITEMS < n_items ? part + RANK_ITEMS : n_items;
            int is_nan = 0;
            for (ptrdiff_t i = part; i < end; ++i) {
                is_nan |= scores[i] != scores[i];
                numbers[i - part] = scores[i] + Real(0);  // -0 becomes 0, which is equal to it
            }
            if (is_nan) first_bad = u;
            counter.count(u, part, n_items, numbers);
        }
        counter.finish(u);
    }
    return first_bad;
}

template struct Ranks<float>;
template struct Ranks<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
