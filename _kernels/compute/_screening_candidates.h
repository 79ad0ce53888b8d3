// Candidates of a user in `_screening.cpp`, their scores and the best of them; compiled with that file for each level
// from AVX2 on.
#pragma once
#include "_kernels/compute/_screening.h"

#include "_kernels/compute/_best_n.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

typedef int32_t Sums __attribute__((vector_size(VECTOR_BYTES)));
typedef Shape<float>::Vector Floats;
typedef Shape<float>::Integers Integers;

// The bounds of a user, in units of its step. The error of a product is at most `per_residual` times the length of the
// rounding error of the item, plus `per_length` times the length of the item.
struct Scaled {
    float step, per_residual, per_length;
    bool ordinary() const { return step > 0 && per_length < __builtin_inff(); }
    Floats margin(const float* bound) const {
        // |x y - x' y'| <= per_residual |d| + per_length |y|: the lengths of the item's rounding error and of the item.
        return per_residual * load(bound + SCREENED_ITEMS) + per_length * load(bound + 2 * SCREENED_ITEMS);
    }
    Floats upper(Sums sums, const float* bound) const {
        return fused(__builtin_convertvector(sums, Floats), load(bound), margin(bound));
    }
    Floats lower(Sums sums, const float* bound) const {
        return fused(__builtin_convertvector(sums, Floats), load(bound), -margin(bound));
    }
};

// Returns the bits of a number as an integer of the same order, and back (for numbers that are not NaN; -0 is below 0).
static inline int32_t ordered(int32_t bits) { return bits ^ (bits >> 31 & INT32_MAX); }
static inline Integers ordered(Floats a) { return (Integers)a ^ ((Integers)a >> 31 & INT32_MAX); }
static inline float number(int32_t a) {
    const int32_t bits = ordered(a);
    float number;
    __builtin_memcpy(&number, &bits, 4);
    return number;
}

// Candidates of a user: items with an upper bound above the n-th lower bound at their time. Lower bounds are integers
// of the same order: processors of Intel compute the lesser of two integers in one cycle, and of two floats in four.
struct Candidates {
    struct Candidate {
        int32_t column, lower;
        float upper;
        bool is_below(float score) const { return upper < score; }
    };
    enum { N_VECTORS = SHORT / Shape<float>::LANES };
    Integers best[N_VECTORS];  // lower bounds, the greatest first
    float threshold;
    Scaled user;
    ptrdiff_t n, size;
    Candidate* list;

    void open(ptrdiff_t n_, const Scaled& user_, void* list_) {
        n = n_;
        user = user_;
        size = 0;
        list = (Candidate*)list_;
        for (int t = 0; t < N_VECTORS; ++t) best[t] = ordered(-__builtin_inff() - Floats{});
        threshold = -__builtin_inff();
        if (!user.ordinary()) abandon();
    }

    void abandon() { threshold = __builtin_inff(); }  // no upper bound is above it
    bool is_abandoned() const { return threshold == __builtin_inff(); }
    int32_t nth_bound() const { return ((const int32_t*)best)[n - 1]; }  // 1 <= n <= SHORT

    // Mostly there is one item: a branch on whether its lower bound is above the threshold would be mispredicted.
    void insert(uint64_t bits, const int32_t* lower, const float* upper, ptrdiff_t first) {
        Integers b[N_VECTORS];
        __builtin_memcpy(b, best, sizeof b);
        Candidate* next = list + size;
        do {
            const int i = __builtin_ctzll(bits);
            // Each rank keeps the greater of its bound and the lesser of the new bound and the bound of the previous
            // rank.
            const Integers bound = lower[i] - Integers{};
            for (int t = N_VECTORS - 1; t >= 0; --t) {
                const Integers previous = push(t ? b[t - 1] : INT32_MAX - Integers{}, b[t]);
                const Integers lesser = previous < bound ? previous : bound;
                b[t] = b[t] > lesser ? b[t] : lesser;
            }
            // Before each call size <= SCREENED_CANDIDATES - 64, so that 64 more fit.
            *next++ = {(int32_t)(first + i), lower[i], upper[i]};
        } while (bits &= bits - 1);
        __builtin_memcpy(best, b, sizeof b);
        size = next - list;
        threshold = number(nth_bound());
        if (size <= SCREENED_CANDIDATES - 64) return;
        discard();
        if (size > SCREENED_CANDIDATES / 2) abandon();
    }

    void discard() {
        ptrdiff_t n_remaining = 0;
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Candidate candidate = list[i];  // n_remaining <= i
            list[n_remaining] = candidate;
            n_remaining += !candidate.is_below(threshold);
        }
        size = n_remaining;
    }
};

// Returns a vector with 16 bytes of each of its rows.
template <class Real>
static inline typename Shape<Real>::Vector pieces(const Real* const* rows, ptrdiff_t f) {
    enum { PIECE = 16 / sizeof(Real) };
    __m128i piece[VECTOR_BYTES / 16];
    // The caller ensures f + PIECE <= n_factors: no number past a row is read.
    for (int i = 0; i < VECTOR_BYTES / 16; ++i) piece[i] = _mm_loadu_si128((const __m128i*)(rows[i * PIECE] + f));
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(piece[0]), piece[1], 1);
#if defined(__AVX512BW__)
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(piece[2]), piece[3], 1);
    return (typename Shape<Real>::Vector)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
    return (typename Shape<Real>::Vector)low;
#endif
}

// Transposes squares of 16 bytes by 16.
static inline void transpose_pieces(F32* v) {
    const U32 a = interleave_low((U32)v[0], (U32)v[2]), b = interleave_high((U32)v[0], (U32)v[2]);
    const U32 c = interleave_low((U32)v[1], (U32)v[3]), d = interleave_high((U32)v[1], (U32)v[3]);
    v[0] = (F32)interleave_low(a, c);
    v[1] = (F32)interleave_high(a, c);
    v[2] = (F32)interleave_low(b, d);
    v[3] = (F32)interleave_high(b, d);
}

static inline void transpose_pieces(F64* v) {
    const U32 a = (U32)v[0], b = (U32)v[1];
    v[0] = (F64)interleave_low_pairs(a, b);
    v[1] = (F64)interleave_high_pairs(a, b);
}

// Computes scores of items, with the roundings of `Ranking::recommend_block`: each is a chain of additions, and a lane
// is an item.
template <class Real>
static void exact_scores(const Real* x, ptrdiff_t n_factors, const Real* items,
                         const typename Shape<Real>::Integer* columns, ptrdiff_t n, Real* scores) {
    typedef typename Shape<Real>::Vector Vector;
    enum { PIECE = 16 / sizeof(Real), N_LANES = Shape<Real>::LANES, GROUPS = LINE_BYTES / VECTOR_BYTES };
    for (ptrdiff_t start = 0; start < n; start += GROUPS * N_LANES) {
        const Real* rows[GROUPS * N_LANES];
        for (ptrdiff_t i = 0; i < GROUPS * N_LANES; ++i)
            // After the last item the first is repeated: its scores are written after the others, within the capacity
            // of `scores`.
            rows[i] = items + columns[start + i < n ? start + i : start] * n_factors;
        Vector s[GROUPS] = {};
        ptrdiff_t f = 0;
        for (; f + PIECE <= n_factors; f += PIECE)
#pragma GCC unroll 2
            for (int g = 0; g < GROUPS; ++g) {
                Vector v[PIECE];
#pragma GCC unroll 4
                for (int q = 0; q < PIECE; ++q) v[q] = pieces(rows + g * N_LANES + q, f);
                transpose_pieces(v);
            // f ascending: the chain of additions of `recommend_block`.
#pragma GCC unroll 4
                for (int q = 0; q < PIECE; ++q) s[g] = fused(x[f + q] - Vector{}, v[q], s[g]);
            }
        for (; f < n_factors; ++f)
            for (int g = 0; g < GROUPS; ++g) {
                Vector v;
                for (int i = 0; i < N_LANES; ++i) v[i] = rows[g * N_LANES + i][f];
                s[g] = fused(x[f] - Vector{}, v, s[g]);
            }
        __builtin_memcpy(scores + start, s, sizeof s);
    }
}

// Writes the n best items, of equal scores the smaller column first, each at its rank: the number of items before it.
// `scores` and `columns` fill whole vectors.
template <class Real>
static void write_best(const Real* scores, const typename Shape<Real>::Integer* columns, ptrdiff_t n_scores,
                       int32_t* out_columns, Real* out_scores, ptrdiff_t n) {
    typedef typename Shape<Real>::Vector Vector;
    typedef typename Shape<Real>::Integers Integers;
    enum { N_LANES = Shape<Real>::LANES };
    Real sorted_scores[SCREENED_CANDIDATES];
    int32_t sorted_columns[SCREENED_CANDIDATES];
    for (int i = 0; i < SHORT; ++i) {
        sorted_scores[i] = -__builtin_inf();
        sorted_columns[i] = INT32_MAX;
    }
    for (ptrdiff_t start = 0; start < n_scores; start += N_LANES) {
        const Vector s = load(scores + start);
        Integers c, before{};
        __builtin_memcpy(&c, columns + start, sizeof c);
        for (ptrdiff_t i = 0; i < n_scores; ++i) {
            const Vector other = scores[i] - Vector{};
            before -= (other > s) | ((other == s) & (columns[i] - Integers{} < c));  // -1 for each item before it
        }
        typename Shape<Real>::Integer ranks[N_LANES];
        __builtin_memcpy(ranks, &before, sizeof ranks);
        for (int i = 0; i < N_LANES && start + i < n_scores; ++i) {
            // A rank counts the other items only, so it is below n_scores.
            sorted_scores[ranks[i]] = scores[start + i];
            sorted_columns[ranks[i]] = (int32_t)columns[start + i];
        }
    }
    for (ptrdiff_t i = 0; i < n; ++i) {
        out_scores[i] = sorted_scores[i];
        out_columns[i] = sorted_columns[i];
    }
}

// A candidate with a lower bound among the n greatest is rarely below the n-th best, so these scores come first. Only
// candidates with an upper bound not below the smallest of them need their scores. Returns whether all computed scores
// are finite.
template <class Real>
static bool best_of_candidates(const Real* x, ptrdiff_t n_factors, const Real* items, const Candidates& candidates,
                               int32_t* out_items, Real* out_scores, ptrdiff_t n) {
    enum { CAPACITY = SCREENED_CANDIDATES + LINE_BYTES / sizeof(float) };
    Real scores[CAPACITY];
    typename Shape<Real>::Integer columns[CAPACITY];
    Candidates::Candidate pending[SCREENED_CANDIDATES + 1];
    const int32_t min_bound = candidates.nth_bound();
    ptrdiff_t n_known = 0, n_pending = 0;
    for (ptrdiff_t i = 0; i < candidates.size; ++i) {
        const Candidates::Candidate candidate = candidates.list[i];
        const bool is_known = candidate.lower >= min_bound;
        // Entries are always written, and kept where the count increases: n_known and n_pending are at most i.
        columns[n_known] = candidate.column;
        pending[n_pending] = candidate;
        n_known += is_known;
        n_pending += !is_known & !candidate.is_below(candidates.threshold);
    }
    exact_scores(x, n_factors, items, columns, n_known, scores);
    Real min_score = __builtin_inf();
    bool finite = true;
    for (ptrdiff_t i = 0; i < n_known; ++i) {
        min_score = scores[i] < min_score ? scores[i] : min_score;
        finite &= scores[i] - scores[i] == 0;
    }
    ptrdiff_t n_scores = n_known;
    if (n_pending) {  // n scores are then known
        const float scaled = (float)(min_score / candidates.user.step);
        // The limit is slightly below the smallest known score in steps of the user, because it was rounded.
        const float below = scaled - 1e-6f * (scaled < 0 ? -scaled : scaled);
        for (ptrdiff_t i = 0; i < n_pending; ++i) {
            columns[n_scores] = pending[i].column;
            n_scores += !pending[i].is_below(below);
        }
        exact_scores(x, n_factors, items, columns + n_known, n_scores - n_known, scores + n_known);
        const ptrdiff_t end = n_scores;
        n_scores = n_known;
        for (ptrdiff_t i = n_known; i < end; ++i) {
            finite &= scores[i] - scores[i] == 0;
            scores[n_scores] = scores[i];
            columns[n_scores] = columns[i];
            n_scores += !(scores[i] < min_score);  // below n known scores: not among the n best
        }
    }
    write_best(scores, columns, n_scores, out_items, out_scores, n);
    return finite;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
