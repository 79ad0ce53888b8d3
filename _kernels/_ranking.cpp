// See _ranking.h; compiled once for each level.
#include "_kernels/_ranking.h"

#include "_kernels/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// A tile of scores is TILE_USERS x TILE_VECTORS accumulators: most of the registers, so that each number that is
// loaded is used several times.
enum { TILE_USERS = 6, TILE_VECTORS = VECTOR_BYTES == 64 ? 4 : 2, LINE_VECTORS = LINE_BYTES / VECTOR_BYTES };

template <class Real>
struct Shape;

template <>
struct Shape<float> {
    typedef int32_t Integer;
    typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    enum { LANES = VECTOR_BYTES / 4, LINE = LINE_BYTES / 4, TILE_ITEMS = TILE_VECTORS * LANES };
};

template <>
struct Shape<double> {
    typedef int64_t Integer;
    typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef int64_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    enum { LANES = VECTOR_BYTES / 8, LINE = LINE_BYTES / 8, TILE_ITEMS = TILE_VECTORS * LANES };
};

template <class Real>
static inline typename Shape<Real>::Vector load(const Real* from) {
    typename Shape<Real>::Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// The lanes of b moved up by one, after the last lane of a.
template <class Vector>
static inline Vector push(Vector a, Vector b) {
    constexpr int n = sizeof(Vector) / sizeof(a[0]);
    if constexpr (n == 2) return __builtin_shufflevector(a, b, 1, 2);
    if constexpr (n == 4) return __builtin_shufflevector(a, b, 3, 4, 5, 6);
    if constexpr (n == 8) return __builtin_shufflevector(a, b, 7, 8, 9, 10, 11, 12, 13, 14);
    if constexpr (n == 16)
        return __builtin_shufflevector(a, b, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
}

// Bit i: whether lane i of a is greater than b.
static inline uint64_t greater(Shape<float>::Vector a, float b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(b), _CMP_GT_OQ);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, _mm256_set1_ps(b), _CMP_GT_OQ));
#elif defined(__x86_64__)
    return (unsigned)_mm_movemask_ps(_mm_cmpgt_ps((__m128)a, _mm_set1_ps(b)));
#else
    uint64_t bits = 0;
    for (int i = 0; i < Shape<float>::LANES; ++i) bits |= (uint64_t)(a[i] > b) << i;
    return bits;
#endif
}

static inline uint64_t greater(Shape<double>::Vector a, double b) {
#if defined(__AVX512F__)
    return _mm512_cmp_pd_mask((__m512d)a, _mm512_set1_pd(b), _CMP_GT_OQ);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, _mm256_set1_pd(b), _CMP_GT_OQ));
#elif defined(__x86_64__)
    return (unsigned)_mm_movemask_pd(_mm_cmpgt_pd((__m128d)a, _mm_set1_pd(b)));
#else
    uint64_t bits = 0;
    for (int i = 0; i < Shape<double>::LANES; ++i) bits |= (uint64_t)(a[i] > b) << i;
    return bits;
#endif
}

// Two ways to keep the n best of the columns offered so far.  Columns are offered in ascending order, and a tie stays
// with the column that came before.  A place that no column has taken yet holds -inf, worse than every score.

// Up to SHORT of them, best first, in vectors: a branch that depends on scores would be mispredicted every other time.
enum { SHORT = 16 };

template <class Real>
struct ShortList {
    typedef Shape<Real> S;
    typedef typename S::Vector Vector;
    typedef typename S::Integers Integers;
    enum { N_VECTORS = SHORT / S::LANES };

    int32_t* out_columns;
    Real* out_scores;
    ptrdiff_t n;
    Integers columns[N_VECTORS];
    Vector scores[N_VECTORS];

    void open(int32_t* columns_, Real* scores_, ptrdiff_t n_) {
        out_columns = columns_;
        out_scores = scores_;
        n = n_;
        for (int t = 0; t < N_VECTORS; ++t) {
            columns[t] = Integers{} + INT32_MAX;
            scores[t] = -__builtin_inf() - Vector{};
        }
    }

    Real threshold() const { return ((const Real*)scores)[n - 1]; }

    void offer(uint64_t bits, const Real* offered, ptrdiff_t first) {
        Integers c[N_VECTORS];
        Vector s[N_VECTORS];
        __builtin_memcpy(c, columns, sizeof c);
        __builtin_memcpy(s, scores, sizeof s);
        for (; bits; bits &= bits - 1) {
            const int i = __builtin_ctzll(bits);
            const Vector score = offered[i] - Vector{};
            const Integers column = Integers{} + (typename S::Integer)(first + i);
            for (int t = N_VECTORS - 1; t >= 0; --t) {
                // Each place keeps what it has, or takes the newcomer, or takes what the place before it had.
                const Vector before = push(t ? s[t - 1] : __builtin_inf() - Vector{}, s[t]);
                const Integers column_before = push(t ? c[t - 1] : Integers{}, c[t]);
                const Integers keeps = s[t] >= score, is_next = before >= score;
                c[t] = keeps ? c[t] : is_next ? column : column_before;
                s[t] = keeps ? s[t] : is_next ? score : before;
            }
        }
        __builtin_memcpy(columns, c, sizeof c);
        __builtin_memcpy(scores, s, sizeof s);
    }

    void close() {
        for (ptrdiff_t i = 0; i < n; ++i) {
            out_columns[i] = (int32_t)((const typename S::Integer*)columns)[i];
            out_scores[i] = ((const Real*)scores)[i];
        }
    }
};

// Any number of them, as a heap with the worst on top: of equal scores the greatest column.
template <class Real>
struct Heap {
    int32_t* columns;
    Real* scores;
    ptrdiff_t n;

    void open(int32_t* columns_, Real* scores_, ptrdiff_t n_) {
        columns = columns_;
        scores = scores_;
        n = n_;
        for (ptrdiff_t i = 0; i < n; ++i) {
            columns[i] = INT32_MAX;
            scores[i] = -__builtin_inf();
        }
    }

    Real threshold() const { return scores[0]; }

    void offer(uint64_t bits, const Real* offered, ptrdiff_t first) {
        for (; bits; bits &= bits - 1) {
            const int i = __builtin_ctzll(bits);
            if (offered[i] > scores[0]) replace_worst((int32_t)(first + i), offered[i], n);
        }
    }

    void close() {
        for (ptrdiff_t size = n - 1; size > 0; --size) {
            const int32_t column = columns[0];
            const Real score = scores[0];
            replace_worst(columns[size], scores[size], size);
            columns[size] = column;
            scores[size] = score;
        }
    }

    // Put a column on top of the first `size` and let it sink until nothing below it is worse.
    void replace_worst(int32_t column, Real score, ptrdiff_t size) {
        ptrdiff_t place = 0, child;
        while ((child = 2 * place + 1) < size) {
            child += child + 1 < size && worse(columns[child + 1], scores[child + 1], columns[child], scores[child]);
            if (!worse(columns[child], scores[child], column, score)) break;
            columns[place] = columns[child];
            scores[place] = scores[child];
            place = child;
        }
        columns[place] = column;
        scores[place] = score;
    }

    static bool worse(int32_t column, Real score, int32_t other_column, Real other_score) {
        return score < other_score || (score == other_score && column > other_column);
    }
};

// Places that are left where too few columns were offered go to the first of those that were taken.
static inline void fill_up(int32_t* columns, ptrdiff_t n, const uint64_t* taken) {
    ptrdiff_t filled = n;
    while (filled && columns[filled - 1] == INT32_MAX) --filled;
    for (ptrdiff_t word = 0; filled < n; ++word)
        for (uint64_t bits = taken[word]; bits && filled < n; bits &= bits - 1)
            columns[filled++] = (int32_t)(64 * word + __builtin_ctzll(bits));
}

// A bitmap of the columns that are not offered: what is seen, and what lies past the last item.
static inline void mark_taken(const int32_t* seen, ptrdiff_t n_seen, ptrdiff_t n_items, uint64_t* taken) {
    const ptrdiff_t n_words = bitmap_words(n_items);
    for (ptrdiff_t word = 0; word < n_words; ++word) taken[word] = 0;
    for (ptrdiff_t i = 0; i < n_seen; ++i) taken[seen[i] >> 6] |= (uint64_t)1 << (seen[i] & 63);
    if (n_items & 63) taken[n_words - 1] |= ~(uint64_t)0 << (n_items & 63);
}

// Scores of TILE_USERS users (x: a factor of all of them, then the next) and TILE_ITEMS items from column `first` on.
// Each is a sum over the factors in ascending order, so it does not depend on what else the tile holds.
template <class Real, class Vector = typename Shape<Real>::Vector>
static inline void tile(const Real* x, const Real* items, ptrdiff_t n_factors, ptrdiff_t first,
                        Vector scores[TILE_USERS][TILE_VECTORS]) {
    typedef Shape<Real> S;
    const Real* lines[TILE_VECTORS];
    for (int t = 0; t < TILE_VECTORS; ++t) {
        const ptrdiff_t column = first + t * S::LANES, within = column % S::LINE;
        lines[t] = items + (column - within) * n_factors + within;
    }
    for (int u = 0; u < TILE_USERS; ++u)
        for (int t = 0; t < TILE_VECTORS; ++t) scores[u][t] = Vector{};
    for (ptrdiff_t f = 0; f < n_factors; ++f) {
        Vector v[TILE_VECTORS];
        for (int t = 0; t < TILE_VECTORS; ++t) v[t] = load(lines[t] + f * S::LINE);
        for (int u = 0; u < TILE_USERS; ++u) {
            const Vector spread = x[f * TILE_USERS + u] - Vector{};
            for (int t = 0; t < TILE_VECTORS; ++t) scores[u][t] = fused(spread, v[t], scores[u][t]);
        }
    }
}

template <class Selection, class Real>
static ptrdiff_t recommend(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* items,
                           ptrdiff_t n_items, const int64_t* indptr, const int32_t* indices, int32_t* out_items,
                           Real* out_scores, ptrdiff_t n, Real* x, uint64_t* taken) {
    typedef Shape<Real> S;
    typedef typename S::Vector Vector;
    const ptrdiff_t n_words = bitmap_words(n_items);
    Vector not_finite[BLOCK_USERS] = {};  // 0, or NaN
    Selection best[BLOCK_USERS];
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        best[u].open(out_items + u * n, out_scores + u * n, n);
        mark_taken(indices + indptr[u], indptr[u + 1] - indptr[u], n_items, taken + u * n_words);
    }
    for (ptrdiff_t u = 0; u < BLOCK_USERS; ++u)
        for (ptrdiff_t f = 0; f < n_factors; ++f)
            x[(u / TILE_USERS * n_factors + f) * TILE_USERS + u % TILE_USERS] =
                u < n_users ? users[u * n_factors + f] : Real(0);
    // The items of one tile stay in the first cache for all users of the block.
    for (ptrdiff_t first = 0; first < n_items; first += S::TILE_ITEMS)
        for (ptrdiff_t start = 0; start < n_users; start += TILE_USERS) {
            Vector scores[TILE_USERS][TILE_VECTORS];
            tile(x + start * n_factors, items, n_factors, first, scores);
            for (int i = 0; i < TILE_USERS && start + i < n_users; ++i) {
                const ptrdiff_t u = start + i;
                const Real threshold = best[u].threshold();
                uint64_t bits = 0;
                for (int t = 0; t < TILE_VECTORS; ++t) {
                    bits |= greater(scores[i][t], threshold) << (t * S::LANES);
                    not_finite[u] = fused(scores[i][t], Vector{}, not_finite[u]);
                }
                bits &= ~(taken[u * n_words + (first >> 6)] >> (first & 63));
                if (bits) {
                    Real offered[S::TILE_ITEMS];
                    __builtin_memcpy(offered, scores[i], sizeof offered);
                    best[u].offer(bits, offered, first);
                }
            }
        }
    ptrdiff_t first_bad = n_users;
    for (ptrdiff_t u = n_users - 1; u >= 0; --u) {
        best[u].close();
        fill_up(out_items + u * n, n, taken + u * n_words);
        for (int lane = 0; lane < S::LANES; ++lane)
            if (not_finite[u][lane] != 0) first_bad = u;
    }
    return first_bad;
}

template <class Real>
ptrdiff_t Ranking<Real>::recommend_block(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, const Real* items,
                                         ptrdiff_t n_items, const int64_t* indptr, const int32_t* indices,
                                         int32_t* out_items, Real* out_scores, ptrdiff_t n, Real* x, uint64_t* taken) {
    const auto function = n <= SHORT ? recommend<ShortList<Real>, Real> : recommend<Heap<Real>, Real>;
    return function(users, n_users, n_factors, items, n_items, indptr, indices, out_items, out_scores, n, x, taken);
}

template <class Selection, class Real>
static void select(const Real* scores, ptrdiff_t n_items, const int32_t* seen, ptrdiff_t n_seen, int32_t* out_items,
                   Real* out_scores, ptrdiff_t n, uint64_t* taken) {
    Selection best;
    best.open(out_items, out_scores, n);
    mark_taken(seen, n_seen, n_items, taken);
    for (ptrdiff_t first = 0; first < n_items; first += 64) {
        Real last[64] = {};
        const Real* offered = scores + first;
        if (n_items - first < 64) {
            __builtin_memcpy(last, offered, (n_items - first) * sizeof(Real));
            offered = last;
        }
        const Real threshold = best.threshold();
        uint64_t bits = 0;
        for (int i = 0; i < 64; i += Shape<Real>::LANES) bits |= greater(load(offered + i), threshold) << i;
        best.offer(bits & ~taken[first >> 6], offered, first);
    }
    best.close();
    fill_up(out_items, n, taken);
}

template <class Real>
void Ranking<Real>::top_k(const Real* scores, ptrdiff_t n_items, const int32_t* seen, ptrdiff_t n_seen,
                          int32_t* out_items, Real* out_scores, ptrdiff_t n, uint64_t* taken) {
    const auto function = n <= SHORT ? select<ShortList<Real>, Real> : select<Heap<Real>, Real>;
    function(scores, n_items, seen, n_seen, out_items, out_scores, n, taken);
}

// The sum of 64 bytes of each of several rows, all in one order: within 16 bytes, then (0 + 1) + (2 + 3) of the four.
typedef float F32x4 __attribute__((vector_size(16)));
typedef double F64x2 __attribute__((vector_size(16)));

template <class Quarter, class Vector>
static inline Quarter add_quarters(const Vector* line) {
    Quarter q[4];
    __builtin_memcpy(q, line, LINE_BYTES);
    return (q[0] + q[1]) + (q[2] + q[3]);
}

static inline void add_lanes(const Shape<float>::Vector rows[4][LINE_VECTORS], float* out) {
    typedef Shape<float>::Vector V;
    V sums[LINE_VECTORS];
    for (int t = 0; t < LINE_VECTORS; ++t) {
        const U32 a = (U32)rows[0][t], b = (U32)rows[1][t], c = (U32)rows[2][t], d = (U32)rows[3][t];
        const U32 ab = (U32)((V)interleave_low(a, b) + (V)interleave_high(a, b));
        const U32 cd = (U32)((V)interleave_low(c, d) + (V)interleave_high(c, d));
        sums[t] = (V)interleave_low_pairs(ab, cd) + (V)interleave_high_pairs(ab, cd);
    }
    const F32x4 sum = add_quarters<F32x4>(sums);
    __builtin_memcpy(out, &sum, sizeof sum);
}

static inline void add_lanes(const Shape<double>::Vector rows[4][LINE_VECTORS], double* out) {
    typedef Shape<double>::Vector V;
    for (int pair = 0; pair < 4; pair += 2) {
        V sums[LINE_VECTORS];
        for (int t = 0; t < LINE_VECTORS; ++t) {
            const U32 a = (U32)rows[pair][t], b = (U32)rows[pair + 1][t];
            sums[t] = (V)interleave_low_pairs(a, b) + (V)interleave_high_pairs(a, b);
        }
        const F64x2 sum = add_quarters<F64x2>(sums);
        __builtin_memcpy(out + pair, &sum, sizeof sum);
    }
}

// Writes up to 3 numbers past the n-th.  Products are rounded before they are added, and lines are added in one order,
// so every level gives the same bits.
template <class Real>
static inline void inner_products(const Real* x, const Real* items, ptrdiff_t n_factors, const int32_t* columns,
                                  ptrdiff_t n, Real* out) {
    typedef Shape<Real> S;
    const ptrdiff_t stride = whole_lines(n_factors, sizeof(Real));
    for (ptrdiff_t i = 0; i < n; i += 4) {
        const Real* rows[4];
        for (int r = 0; r < 4; ++r) rows[r] = items + stride * columns[i + r < n ? i + r : i];
        typename S::Vector sums[4][LINE_VECTORS] = {};
        for (ptrdiff_t f = 0; f < stride; f += S::LINE)
            for (int t = 0; t < LINE_VECTORS; ++t)
                for (int r = 0; r < 4; ++r)
                    sums[r][t] += load(x + f + t * S::LANES) * load(rows[r] + f + t * S::LANES);
        add_lanes(sums, out + i);
    }
}

template <class Real>
double Ranking<Real>::rank(Real score, const Real* others, ptrdiff_t n) {
    int greater = 0, equal = 0, less = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        greater += others[i] > score;
        equal += others[i] == score;
        less += others[i] < score;
    }
    if (score != score || greater + equal + less != n) return __builtin_nan("");  // only NaN is none of the three
    return 1.0 + greater + 0.5 * equal;
}

template <class Real>
void Ranking<Real>::held_out_row(const Real* x, const Real* items, ptrdiff_t n_factors, const int32_t* held_out,
                                 ptrdiff_t n_held_out, const int32_t* others, ptrdiff_t n_others, Real* scores,
                                 double* out) {
    Real* other_scores = scores + n_held_out + 3;
    inner_products(x, items, n_factors, held_out, n_held_out, scores);
    inner_products(x, items, n_factors, others, n_others, other_scores);
    int n_finite = 0;  // x - x is NaN where x is not finite
    for (ptrdiff_t i = 0; i < n_others; ++i) n_finite += other_scores[i] - other_scores[i] == 0;
    for (ptrdiff_t i = 0; i < n_held_out; ++i)
        out[i] = n_finite == n_others && scores[i] - scores[i] == 0 ? rank(scores[i], other_scores, n_others)
                                                                    : __builtin_nan("");
}

template struct Ranking<float>;
template struct Ranking<double>;

// The r-th unseen item is the r-th bit that is not taken.  Where a word's share of the ranks can be deposited in these
// bits at once, that takes no look at the seen items one by one.
void unseen_items(uint64_t* marked, const int32_t* seen, ptrdiff_t n_seen, ptrdiff_t n_items, uint64_t* taken,
                  int32_t* out) {
    const ptrdiff_t n_words = bitmap_words(n_items);
#if defined(__BMI2__)
    mark_taken(seen, n_seen, n_items, taken);
    ptrdiff_t rank = 0;
    for (ptrdiff_t word = 0; word < n_words; ++word) {
        const int shift = rank & 63;
        const uint64_t* from = marked + (rank >> 6);
        uint64_t bits = _pdep_u64(from[0] >> shift | (from[1] << 1) << (63 - shift), ~taken[word]);
        rank += 64 - __builtin_popcountll(taken[word]);
        int32_t* const end = out + __builtin_popcountll(bits);
        do  // most words have no more than four: a loop of their exact number would be mispredicted
            for (int i = 0; i < 4; ++i, bits &= bits - 1) *out++ = (int32_t)(64 * word + _tzcnt_u64(bits));
        while (bits);
        out = end;
    }
    for (ptrdiff_t word = 0; word < n_words; ++word) marked[word] = 0;
#else
    ptrdiff_t below = 0;  // seen items below the unseen one; seen[j] - j unseen items lie below seen[j]
    for (ptrdiff_t word = 0; word < n_words; ++word) {
        for (uint64_t bits = marked[word]; bits; bits &= bits - 1) {
            const ptrdiff_t rank = 64 * word + __builtin_ctzll(bits);
            while (below < n_seen && seen[below] - below <= rank) ++below;
            *out++ = (int32_t)(rank + below);
        }
        marked[word] = 0;
    }
#endif
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
