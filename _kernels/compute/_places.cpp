// See _places.h; compiled once for each level.
#include "_kernels/compute/_places.h"

#include "_kernels/compute/_best_n.h"
#include "_kernels/compute/_score_tiles.h"
#include "_kernels/core/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Count of a held-out item that is also seen: it stays below 0 after every addition.
static const int64_t NOT_RANKED = INT64_MIN / 2;

// From MANY held-out items on, each score is looked up among them instead of compared with all.
enum { MANY = 160, TOGETHER = 4, CHAINS = 8 };

template <class Real>
static inline Real multiply_add(Real a, Real b, Real c) {
#if defined(__FMA__)
    if constexpr (sizeof(Real) == 4) return __builtin_fmaf(a, b, c);
    else return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

// Scores of a user's held-out items, with the operations of `tile` in its order: the same bits.
template <class Real>
static void own_scores(const Real* user, ptrdiff_t n_factors, const Real* item_rows, const int32_t* held_out,
                       ptrdiff_t n, Real* own) {
    for (ptrdiff_t start = 0; start < n; start += CHAINS) {
        const Real* rows[CHAINS];
        Real sums[CHAINS] = {};
        // Several sums side by side, since each waits for itself; the last item fills up.
        for (ptrdiff_t i = 0; i < CHAINS; ++i)
            rows[i] = item_rows + held_out[start + i < n ? start + i : n - 1] * n_factors;
        for (ptrdiff_t f = 0; f < n_factors; ++f)
            for (ptrdiff_t i = 0; i < CHAINS; ++i) sums[i] = multiply_add(user[f], rows[i][f], sums[i]);
        for (ptrdiff_t i = start; i < n && i < start + CHAINS; ++i) own[i] = sums[i - start];
    }
}

// How many scores are greater, lane by lane: a comparison that holds is -1.
template <class Real, class V = typename Shape<Real>::Vector, class I = typename Shape<Real>::Integers>
static inline I add_greater(I counts, V scores, V own) {
#if defined(__AVX512F__)  // one instruction less than compilers make of it
    if constexpr (sizeof(Real) == 4)
        return (I)_mm512_mask_sub_epi32((__m512i)counts, _mm512_cmp_ps_mask((__m512)scores, (__m512)own, _CMP_GT_OQ),
                                        (__m512i)counts, _mm512_set1_epi32(-1));
    else
        return (I)_mm512_mask_sub_epi64((__m512i)counts, _mm512_cmp_pd_mask((__m512d)scores, (__m512d)own, _CMP_GT_OQ),
                                        (__m512i)counts, _mm512_set1_epi64(-1));
#else
    return counts - (I)(scores > own);
#endif
}

// Whether any score is equal: numbers that are 0 in a lane where one was, which begin as -1.  There is no -0.
template <class Real, class V = typename Shape<Real>::Vector, class I = typename Shape<Real>::Integers>
static inline I note_equal(I noted, V scores, V own) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Real) == 4) return (I)_mm512_min_epu32((__m512i)noted, (__m512i)((I)scores ^ (I)own));
    else return (I)_mm512_min_epu64((__m512i)noted, (__m512i)((I)scores ^ (I)own));
#else
    return noted & ~(I)(scores == own);
#endif
}

// Adds for each of n scores `own` how many of some scores are greater, and how many equal.  Equal ones are rare: whether
// there is any costs less than their number.
template <class Real>
static void compare_all(const Real* scores, ptrdiff_t n_scores, const Real* own, ptrdiff_t n, int64_t* above,
                        int64_t* same) {
    typedef Shape<Real> S;
    for (ptrdiff_t start = 0; start < n; start += TOGETHER) {
        typename S::Vector spread[TOGETHER];
        typename S::Integers greater[TOGETHER] = {}, noted[TOGETHER];
        for (ptrdiff_t i = 0; i < TOGETHER; ++i) {
            spread[i] = own[start + i < n ? start + i : n - 1] - typename S::Vector{};
            noted[i] = typename S::Integers{} - 1;
        }
        // n_scores is whole vectors.
        for (ptrdiff_t at = 0; at < n_scores; at += S::LANES) {
            const auto v = load(scores + at);
            for (ptrdiff_t i = 0; i < TOGETHER; ++i) {
                greater[i] = add_greater<Real>(greater[i], v, spread[i]);
                noted[i] = note_equal<Real>(noted[i], v, spread[i]);
            }
        }
        for (ptrdiff_t i = start; i < n && i < start + TOGETHER; ++i) {
            bool has_equal = false;
            for (int lane = 0; lane < S::LANES; ++lane) {
                above[i] += greater[i - start][lane];
                has_equal |= noted[i - start][lane] == 0;
            }
            if (has_equal)
                for (ptrdiff_t at = 0; at < n_scores; ++at) same[i] += scores[at] == own[i];
        }
    }
}

// In ascending order, by a heap.
template <class Real>
static void sort(Real* x, ptrdiff_t n) {
    for (ptrdiff_t turn = n / 2 + n - 1; turn > 0; --turn) {
        ptrdiff_t root = turn >= n ? turn - n : 0, end = turn >= n ? n : turn;
        if (turn < n) {  // the greatest goes behind the heap
            const Real last = x[turn];
            x[turn] = x[0];
            x[0] = last;
        }
        const Real sinking = x[root];
        for (ptrdiff_t child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && x[child] < x[child + 1]) ++child;
            if (!(sinking < x[child])) break;
            x[root] = x[child];
        }
        x[root] = sinking;
    }
}

// How many of n sorted numbers are below x; 0 where x is NaN.
template <class Real>
static inline ptrdiff_t below(const Real* sorted, ptrdiff_t n, Real x) {
    ptrdiff_t base = 0;
    while (n > 1) {
        const ptrdiff_t half = n / 2;
        base += sorted[base + half - 1] < x ? half : 0;
        n -= half;
    }
    return base + (sorted[base] < x);
}

// Counts each score under the number of sorted held-out scores below it: in counts[2 p] all of these, in
// counts[2 p + 1] those that equal the next one.
template <class Real>
static void look_up_all(const Real* scores, ptrdiff_t n_scores, const Real* sorted, ptrdiff_t n, int64_t* counts) {
    for (ptrdiff_t i = 0; i < n_scores; ++i) {
        const ptrdiff_t p = below(sorted, n, scores[i]);
        ++counts[2 * p];
        counts[2 * p + 1] += p < n && sorted[p] == scores[i];
    }
}

template <class Real>
static void tell_looked_up(const Real* own, const Real* sorted, ptrdiff_t n, int64_t* counts, int64_t* above,
                           int64_t* same) {
    // From here on counts[2 p]: scores with at least p sorted ones below them.
    for (ptrdiff_t p = n - 1; p >= 0; --p) counts[2 * p] += counts[2 * p + 2];
    for (ptrdiff_t i = 0; i < n; ++i) {
        const ptrdiff_t first = below(sorted, n, own[i]);
        ptrdiff_t last = first;  // behind all that equal it
        while (last < n && sorted[last] == own[i]) ++last;
        above[i] = counts[2 * last];
        same[i] = counts[2 * first + 1];
    }
}

// Counts of each user of a block, added over the parts of the items.
template <class Real>
struct Counting {
    const int64_t* indptr;
    const int32_t* held_out;
    const int64_t* seen_indptr;
    const int32_t* seen;
    Real* all_own;
    Real* all_sorted;
    int64_t* all_counts;
    int64_t* above;
    int64_t* same;
    const int32_t* next_seen[BLOCK_USERS];

    Real* own(ptrdiff_t u) const { return all_own + (indptr[u] - indptr[0]); }
    Real* sorted(ptrdiff_t u) const { return all_sorted + (indptr[u] - indptr[0]); }
    int64_t* counts(ptrdiff_t u) const { return all_counts + 2 * (indptr[u] - indptr[0] + u); }
    ptrdiff_t n(ptrdiff_t u) const { return indptr[u + 1] - indptr[u]; }

    // `own(u)` is written already.
    void open(ptrdiff_t u) {
        next_seen[u] = seen + seen_indptr[u];
        for (ptrdiff_t i = indptr[u]; i < indptr[u + 1]; ++i) above[i] = same[i] = 0;
        if (n(u) < MANY) {
            // Held-out items among themselves; among the others' scores they are not.
            Real padded[MANY + 64];
            for (ptrdiff_t i = 0; i < MANY + 64; ++i) padded[i] = i < n(u) ? own(u)[i] : (Real)__builtin_nanf("");
            compare_all(padded, (n(u) + 63) / 64 * 64, own(u), n(u), above + indptr[u], same + indptr[u]);
            return;
        }
        for (ptrdiff_t i = 0; i < n(u); ++i) sorted(u)[i] = own(u)[i];
        sort(sorted(u), n(u));
        for (ptrdiff_t i = 0; i < 2 * n(u) + 2; ++i) counts(u)[i] = 0;
    }

    // Counts the scores of n_items items from `first` on; the scores are overwritten.
    void count(ptrdiff_t u, ptrdiff_t first, ptrdiff_t n_items, Real* scores) {
        const ptrdiff_t end = first + PLACES_ITEMS < n_items ? first + PLACES_ITEMS : n_items;
        const ptrdiff_t n_scores = (end - first + 63) / 64 * 64;
        // NaN is neither greater nor equal: absent and seen items.
        for (ptrdiff_t i = end - first; i < n_scores; ++i) scores[i] = __builtin_nanf("");
        for (; next_seen[u] < seen + seen_indptr[u + 1] && *next_seen[u] < end; ++next_seen[u])
            scores[*next_seen[u] - first] = __builtin_nanf("");
        if (n(u) < MANY) {
            for (ptrdiff_t i = indptr[u]; i < indptr[u + 1]; ++i)
                if (held_out[i] >= first && held_out[i] < end) {
                    Real& score = scores[held_out[i] - first];
                    if (score != score && own(u)[i - indptr[u]] == own(u)[i - indptr[u]]) same[i] = NOT_RANKED;
                    score = __builtin_nanf("");
                }
            compare_all(scores, n_scores, own(u), n(u), above + indptr[u], same + indptr[u]);
        } else look_up_all(scores, end - first, sorted(u), n(u), counts(u));
    }

    void close(ptrdiff_t u) {
        if (n(u) >= MANY) tell_looked_up(own(u), sorted(u), n(u), counts(u), above + indptr[u], same + indptr[u]);
    }
};

template <class Real>
ptrdiff_t Places<Real>::of_factors(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* item_rows,
                                   const Real* items, ptrdiff_t n_items, const int64_t* indptr, const int32_t* held_out,
                                   const int64_t* seen_indptr, const int32_t* seen, Real* numbers, int64_t* counts,
                                   int64_t* above, int64_t* same) {
    typedef Shape<Real> S;
    typedef typename S::Vector Vector;
    Vector not_finite[BLOCK_USERS] = {};  // 0, or NaN
    Real* const x = numbers;
    Real* const block = x + BLOCK_USERS * n_factors;
    Real* const own = block + BLOCK_USERS * PLACES_ITEMS;
    Real* const sorted = own + (indptr[n_users] - indptr[0]);
    Counting<Real> counting = {indptr, held_out, seen_indptr, seen, own, sorted, counts, above, same, {}};
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        own_scores(users + u * n_factors, n_factors, item_rows, held_out + indptr[u], counting.n(u), counting.own(u));
        counting.open(u);
    }
    pack_users(users, (const int64_t*)nullptr, n_users, n_factors, x);
    for (ptrdiff_t part = 0; part < n_items; part += PLACES_ITEMS) {
        const ptrdiff_t end = part + PLACES_ITEMS < n_items ? part + PLACES_ITEMS : n_items;
        // The items of one tile stay in the first cache for all users of the block.  The last tile may go on to zeros.
        for (ptrdiff_t first = part; first < end; first += TILE_VECTORS * S::LANES)
            for (ptrdiff_t start = 0; start < n_users; start += TILE_USERS) {
                Vector scores[TILE_USERS][TILE_VECTORS];
                tile(x + start * n_factors, items, n_factors, first, scores);
                for (ptrdiff_t i = 0; i < TILE_USERS; ++i)
                    for (int t = 0; t < TILE_VECTORS; ++t) {
                        Real* to = block + (start + i) * PLACES_ITEMS + (first - part) + t * S::LANES;
                        __builtin_memcpy(to, &scores[i][t], sizeof(Vector));
                        not_finite[start + i] = fused(scores[i][t], Vector{}, not_finite[start + i]);
                    }
            }
        for (ptrdiff_t u = 0; u < n_users; ++u) counting.count(u, part, n_items, block + u * PLACES_ITEMS);
    }
    ptrdiff_t first_bad = n_users;
    for (ptrdiff_t u = n_users - 1; u >= 0; --u) {
        counting.close(u);
        for (int lane = 0; lane < S::LANES; ++lane)  // NaN is not 0 either
            if (not_finite[u][lane] != 0) first_bad = u;
    }
    return first_bad;
}

template <class Real>
ptrdiff_t Places<Real>::of_scores(const Real* all, ptrdiff_t n_users, ptrdiff_t n_items, const int64_t* indptr,
                                  const int32_t* held_out, const int64_t* seen_indptr, const int32_t* seen,
                                  Real* numbers, int64_t* counts, int64_t* above, int64_t* same) {
    Real* const own = numbers + PLACES_ITEMS;
    Real* const sorted = own + (indptr[n_users] - indptr[0]);
    Counting<Real> counting = {indptr, held_out, seen_indptr, seen, own, sorted, counts, above, same, {}};
    ptrdiff_t first_bad = n_users;
    for (ptrdiff_t u = n_users - 1; u >= 0; --u) {
        const Real* scores = all + u * n_items;
        for (ptrdiff_t i = 0; i < counting.n(u); ++i) counting.own(u)[i] = scores[held_out[indptr[u] + i]] + Real(0);
        counting.open(u);
        for (ptrdiff_t part = 0; part < n_items; part += PLACES_ITEMS) {
            const ptrdiff_t end = part + PLACES_ITEMS < n_items ? part + PLACES_ITEMS : n_items;
            int is_nan = 0;
            for (ptrdiff_t i = part; i < end; ++i) {
                is_nan |= scores[i] != scores[i];
                numbers[i - part] = scores[i] + Real(0);  // of -0 it makes 0, which equals it
            }
            if (is_nan) first_bad = u;
            counting.count(u, part, n_items, numbers);
        }
        counting.close(u);
    }
    return first_bad;
}

template struct Places<float>;
template struct Places<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
