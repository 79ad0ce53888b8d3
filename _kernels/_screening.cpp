// See _screening.h; compiled once for each level.
//
// A product of 8-bit copies of a user's and an item's factors tells their inner product up to an error that is known: by
// the Cauchy-Schwarz inequality the lengths of what rounding took bound it.  So each item's score has a lower and an upper
// bound, an item whose upper bound is not above the n-th lower bound so far is not among the n best, and only the others
// need their score: 30 of 3,700 items for n = 10 and 128 normal factors.  An instruction multiplies 2.5 times as many of
// these numbers as floats.
#include "_kernels/_screening.h"

#include "_kernels/_selection.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

#if defined(__AVX2__)

bool can_screen() { return true; }

// A tile of sums is TILE_USERS x TILE_VECTORS accumulators.
enum { TILE_USERS = 6, TILE_VECTORS = VECTOR_BYTES == 64 ? 4 : 2, LANES = VECTOR_BYTES / 4, TILE_ITEMS = TILE_VECTORS * LANES };

// Of an item 8 bits hold a number from -LARGEST to LARGEST, and LARGEST is added: the sum of two products is a 16-bit
// integer, as the instruction wants.  So are longer sums if the lengths of both vectors are at most LONGEST; they are
// taken over every other pair of CHUNK quartets of factors.
enum { LARGEST = 90, LONGEST = 181, CHUNK = SCREENED_CHUNK };

typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t Sums __attribute__((vector_size(VECTOR_BYTES)));
typedef Shape<float>::Vector Floats;

// The sums of two products of neighbours: of numbers without sign, and with.
static inline Halves pairs(Halves a, Halves b) {
#if defined(__AVX512BW__)
    return (Halves)_mm512_maddubs_epi16((__m512i)a, (__m512i)b);
#else
    return (Halves)_mm256_maddubs_epi16((__m256i)a, (__m256i)b);
#endif
}

static inline Sums add_halves(Halves a) {
#if defined(__AVX512BW__)
    return (Sums)_mm512_madd_epi16((__m512i)a, _mm512_set1_epi16(1));
#else
    return (Sums)_mm256_madd_epi16((__m256i)a, _mm256_set1_epi16(1));
#endif
}

// A row of factors in its own steps.
struct Quantized {
    float step;
    double whole, rounded, residual;  // lengths: of the row, of its integers, and of the difference
    bool ordinary() const { return step < 1e12f; }
};

template <class Real>
struct Quartet {
    typedef Real Type __attribute__((vector_size(4 * sizeof(Real))));
};

template <class Real>
static inline typename Quartet<Real>::Type quartet(const Real* row, ptrdiff_t n_factors, ptrdiff_t k) {
    Real four[4] = {};
    typename Quartet<Real>::Type v;
    if (4 * k + 4 <= n_factors) {
        __builtin_memcpy(&v, row + 4 * k, sizeof v);
        return v;
    }
    for (ptrdiff_t f = 4 * k; f < n_factors; ++f) four[f - 4 * k] = row[f];
    __builtin_memcpy(&v, four, sizeof v);
    return v;
}

// Writes each quartet as four bytes, `stride` integers from the one before, with `bias` added to each number, and leaves
// `heads` such places before each chunk.
template <class Real>
static inline Quantized quantize(const Real* row, ptrdiff_t n_factors, int bias, int heads, int32_t* out,
                                 ptrdiff_t stride) {
    typedef typename Quartet<Real>::Type Four;
    typedef typename Quartet<float>::Type Singles;
    typedef int32_t Integers __attribute__((vector_size(16)));
    typedef int8_t Bytes __attribute__((vector_size(4)));
    constexpr float ROUND = 12582912.0f;  // added to a number below 2^22 it leaves the nearest integer in the low bits
    const ptrdiff_t n = quartets(n_factors);
    Four peaks{}, squares{};
    Real longest = 0;
    for (ptrdiff_t k = 0; k < n; ++k) {
        const Four v = quartet(row, n_factors, k);
        peaks = v > peaks ? v : peaks;
        peaks = -v > peaks ? -v : peaks;
        squares += v * v;
        if (k % CHUNK == CHUNK - 1 || k == n - 1) {
            const Real low = squares[0] + squares[1], high = squares[2] + squares[3];
            longest = low > longest ? low : longest;
            longest = high > longest ? high : longest;
            squares = Four{};
        }
    }
    Real peak = peaks[0];
    for (int i = 1; i < 4; ++i) peak = peaks[i] > peak ? peaks[i] : peak;
    Quantized q = {__builtin_inff(), 0, 0, 0};
    Real scale = 0;
    if (peak == 0) q.step = 0;
    if (peak >= Real(1e-12) && peak <= Real(1e12)) {
        // A pair of every quartet of a chunk is 32 numbers, and rounding adds at most half a step to each.
        const Real by_length = Real(LONGEST - 2.9) / __builtin_sqrt(longest);
        scale = LARGEST / peak;
        if (by_length < scale) scale = by_length;
        q.step = (float)(1 / scale);
    }
    Singles whole{}, rounded{}, residual{};
    for (ptrdiff_t k = 0; k < n; ++k) {
        const Singles v = __builtin_convertvector(quartet(row, n_factors, k) * scale, Singles), shifted = v + ROUND;
        const Singles integer = shifted - ROUND, rest = v - integer;
        whole += v * v;
        rounded += integer * integer;
        residual += rest * rest;
        const Bytes bytes = __builtin_convertvector((Integers)shifted + bias, Bytes);
        __builtin_memcpy(out + (k + heads * (k / CHUNK + 1)) * stride, &bytes, 4);
    }
    // A little more, because all this was computed in single precision.
    const double more = 1 + 1e-6 * (n_factors + 10), root = __builtin_sqrt((double)n_factors);
    q.whole = more * __builtin_sqrt((double)whole[0] + whole[1] + whole[2] + whole[3]);
    q.rounded = more * __builtin_sqrt((double)rounded[0] + rounded[1] + rounded[2] + rounded[3]);
    q.residual = more * __builtin_sqrt((double)residual[0] + residual[1] + residual[2] + residual[3]) + 2e-5 * root;
    return q;
}

template <class Real>
void Screening<Real>::screened_items(const Real* items, ptrdiff_t first, ptrdiff_t n_items, ptrdiff_t n_factors,
                                     uint8_t* out, float* steps, ItemLengths* lengths) {
    *lengths = {0, 0};
    const ptrdiff_t n = quartets(n_factors);
    for (ptrdiff_t i = first; i < first + 64; ++i) {
        int32_t* const line = (int32_t*)out + i / SCREENED_ITEMS * n * SCREENED_ITEMS + i % SCREENED_ITEMS;
        if (i >= n_items) {
            for (ptrdiff_t k = 0; k < n; ++k) line[k * SCREENED_ITEMS] = 0;
            steps[i] = 0;
            continue;
        }
        const Quantized q = quantize(items + i * n_factors, n_factors, LARGEST, 0, line, SCREENED_ITEMS);
        steps[i] = q.step;
        const float whole = q.ordinary() ? (float)q.whole : __builtin_inff();
        if (whole > lengths->whole) lengths->whole = whole;
        if ((float)q.residual > lengths->residual) lengths->residual = (float)q.residual;
    }
}

// What is added to each of a user's sums because LARGEST was added to the items' numbers: a pair of 16-bit integers.
static inline int32_t start_of_chunk(const int32_t* x, ptrdiff_t n) {
    uint16_t halves[2] = {};
    for (ptrdiff_t k = 0; k < n; ++k) {
        int8_t bytes[4];
        __builtin_memcpy(bytes, x + k * TILE_USERS, 4);
        halves[0] -= (uint16_t)(LARGEST * (bytes[0] + bytes[1]));
        halves[1] -= (uint16_t)(LARGEST * (bytes[2] + bytes[3]));
    }
    int32_t start;
    __builtin_memcpy(&start, halves, 4);
    return start;
}

// Products of TILE_USERS users (x: their starts, then a quartet of all of them, then the next) and TILE_ITEMS items.
static inline void tile(const int32_t* x, const uint8_t* lines, ptrdiff_t n_quartets, ptrdiff_t first,
                        Sums out[TILE_USERS][TILE_VECTORS]) {
    const uint8_t* from[TILE_VECTORS];
    for (int t = 0; t < TILE_VECTORS; ++t) {
        const ptrdiff_t column = first + t * LANES, within = column % SCREENED_ITEMS;
        from[t] = lines + (column - within) * 4 * n_quartets + within * 4;
    }
    for (ptrdiff_t begin = 0; begin < n_quartets; begin += CHUNK) {
        const ptrdiff_t end = begin + CHUNK < n_quartets ? begin + CHUNK : n_quartets;
        Halves sums[TILE_USERS][TILE_VECTORS];
        for (int u = 0; u < TILE_USERS; ++u)
            for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] = (Halves)(x[u] - Sums{});
        x += TILE_USERS;
        for (ptrdiff_t k = begin; k < end; ++k, x += TILE_USERS) {
            Halves v[TILE_VECTORS];
            for (int t = 0; t < TILE_VECTORS; ++t) __builtin_memcpy(&v[t], from[t] + k * LINE_BYTES, sizeof v[t]);
            for (int u = 0; u < TILE_USERS; ++u) {
                const Halves spread = (Halves)(x[u] - Sums{});
                for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] += pairs(v[t], spread);
            }
        }
        for (int u = 0; u < TILE_USERS; ++u)
            for (int t = 0; t < TILE_VECTORS; ++t) out[u][t] = add_halves(sums[u][t]) + (begin ? out[u][t] : Sums{});
    }
}

// A user's candidates: what had an upper bound above the n-th lower bound at its time.
struct Candidates {
    struct Candidate {
        int32_t column;
        float lower;
    };
    ShortList<float> best;  // lower bounds
    float threshold, margin;
    ptrdiff_t size;
    Candidate* list;

    void open(ptrdiff_t n, float margin_, void* list_) {
        best.open(nullptr, nullptr, n, nullptr, 0);
        threshold = best.threshold();
        margin = margin_;
        size = 0;
        list = (Candidate*)list_;
        if (!(margin < __builtin_inff())) give_up();
    }

    void give_up() { threshold = __builtin_inff(); }  // then no upper bound is above it
    bool gave_up() const { return threshold == __builtin_inff(); }

    // Bits of the items whose upper bounds, and of those whose lower bounds are above the threshold.
    void offer(uint64_t upper, uint64_t lower, const float* lower_bounds, const float* steps, ptrdiff_t first) {
        best.offer(upper & lower, lower_bounds, first);
        for (; upper; upper &= upper - 1) {
            const int i = __builtin_ctzll(upper);
            list[size++] = {(int32_t)(first + i), lower_bounds[i]};
        }
        threshold = best.threshold();
        if (size <= SCREENED_CANDIDATES - 64) return;
        drop(steps);
        if (size > SCREENED_CANDIDATES / 2) give_up();
    }

    void drop(const float* steps) {
        ptrdiff_t kept = 0;
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Candidate candidate = list[i];
            list[kept] = candidate;
            kept += candidate.lower + 2 * margin * steps[candidate.column] >= threshold;
        }
        size = kept;
    }
};

template <class Real>
static inline Real fused_number(Real a, Real b, Real c) {
    if constexpr (sizeof(Real) == 4) return __builtin_fmaf(a, b, c);
    else return __builtin_fma(a, b, c);
}

enum { EXACT = 8 };

// Scores of EXACT items, with the roundings of `Ranking::recommend_block`.
template <class Real>
static inline void exact_scores(const Real* x, const Real* const rows[EXACT], ptrdiff_t n_factors, Real out[EXACT]) {
    Real s[EXACT] = {};
    for (ptrdiff_t f = 0; f < n_factors; ++f)
#pragma GCC unroll 8
        for (int i = 0; i < EXACT; ++i) s[i] = fused_number(x[f], rows[i][f], s[i]);
    for (int i = 0; i < EXACT; ++i) out[i] = s[i];
}

template <class Real>
static void best_of_candidates(const Real* x, ptrdiff_t n_factors, const Real* items, const Candidates& candidates,
                               int32_t* out_items, Real* out_scores, ptrdiff_t n) {
    ShortList<Real> best;
    best.open(out_items, out_scores, n, nullptr, 0);
    for (ptrdiff_t start = 0; start < candidates.size; start += EXACT) {
        const ptrdiff_t left = candidates.size - start;
        const Real* rows[EXACT];
        int32_t columns[EXACT];
        Real scores[EXACT];
        for (int i = 0; i < EXACT; ++i) {
            columns[i] = candidates.list[start + (i < left ? i : 0)].column;
            rows[i] = items + columns[i] * n_factors;
        }
        exact_scores(x, rows, n_factors, scores);
        for (int i = 0; i < EXACT && i < left; ++i)
            if (scores[i] > best.threshold()) best.offer(1, scores + i, columns[i]);
    }
    best.close();
}

// Copies of a block of users: those of a tile together, and before each chunk of them what `start_of_chunk` says.
template <class Real>
static inline void quantize_users(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, ItemLengths items,
                                  int32_t* x, float* margins) {
    const ptrdiff_t n = quartets(n_factors), tile_size = screened_length(n_factors) * TILE_USERS;
    for (ptrdiff_t u = 0; u < BLOCK_USERS; ++u) {
        int32_t* const to = x + u / TILE_USERS * tile_size + u % TILE_USERS;
        if (u >= n_users) {
            for (ptrdiff_t i = 0; i < screened_length(n_factors); ++i) to[i * TILE_USERS] = 0;
            continue;
        }
        const Quantized q = quantize(users + u * n_factors, n_factors, 0, 1, to, TILE_USERS);
        for (ptrdiff_t k = 0; k < n; k += CHUNK)
            to[(k + k / CHUNK) * TILE_USERS] =
                start_of_chunk(to + (k + k / CHUNK + 1) * TILE_USERS, n - k < CHUNK ? n - k : CHUNK);
        // By what rounding took from both vectors; by n_factors roundings of the score; and by those of the bounds.
        const double magnitudes = q.whole * items.whole;
        const double error = q.rounded * items.residual + q.residual * items.whole +
                             (double)Shape<Real>::EPSILON * n_factors * magnitudes + 1 + 1e-6 * magnitudes;
        margins[u] = q.ordinary() && q.step > 0 ? (float)error : __builtin_inff();
    }
}

template <class Real>
ptrdiff_t Screening<Real>::recommend_screened(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors,
                                              const Real* items, ptrdiff_t n_items, const uint8_t* lines,
                                              const float* steps, ItemLengths lengths, const int64_t* indptr,
                                              const int32_t* indices, int32_t* out_items, Real* out_scores,
                                              ptrdiff_t n, int32_t* x, uint64_t* taken, char* lists, char* left) {
    const ptrdiff_t n_words = bitmap_words(n_items), n_quartets = quartets(n_factors);
    const ptrdiff_t tile_size = screened_length(n_factors) * TILE_USERS;
    Candidates candidates[BLOCK_USERS];
    float margins[BLOCK_USERS];
    quantize_users(users, n_users, n_factors, lengths, x, margins);
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        candidates[u].open(n, margins[u], lists + u * SCREENED_CANDIDATES * sizeof(Candidates::Candidate));
        mark_taken(indices + indptr[u], indptr[u + 1] - indptr[u], n_items, taken + u * n_words);
    }
    for (ptrdiff_t first = 0; first < n_items; first += TILE_ITEMS) {
        Floats step[TILE_VECTORS];
        for (int t = 0; t < TILE_VECTORS; ++t) step[t] = load(steps + first + t * LANES);
        for (ptrdiff_t start = 0; start < n_users; start += TILE_USERS) {
            Sums sums[TILE_USERS][TILE_VECTORS];
            tile(x + start / TILE_USERS * tile_size, lines, n_quartets, first, sums);
            for (int i = 0; i < TILE_USERS && start + i < n_users; ++i) {
                const ptrdiff_t u = start + i;
                const float threshold = candidates[u].threshold, margin = candidates[u].margin;
                uint64_t upper = 0, lower = 0;
                for (int t = 0; t < TILE_VECTORS; ++t) {
                    const Floats sum = __builtin_convertvector(sums[i][t], Floats);
                    upper |= greater((sum + margin) * step[t], threshold) << (t * LANES);
                }
                upper &= ~(taken[u * n_words + (first >> 6)] >> (first & 63));
                if (!upper) continue;
                Floats bounds[TILE_VECTORS];
                for (int t = 0; t < TILE_VECTORS; ++t) {
                    bounds[t] = (__builtin_convertvector(sums[i][t], Floats) - margin) * step[t];
                    lower |= greater(bounds[t], threshold) << (t * LANES);
                }
                candidates[u].offer(upper, lower, (const float*)bounds, steps, first);
            }
        }
    }
    ptrdiff_t n_left = 0;
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        left[u] = candidates[u].gave_up();
        n_left += left[u];
        if (left[u]) continue;
        candidates[u].drop(steps);
        best_of_candidates(users + u * n_factors, n_factors, items, candidates[u], out_items + u * n,
                           out_scores + u * n, n);
        fill_up(out_items + u * n, n, taken + u * n_words);
    }
    return n_left;
}

#else

bool can_screen() { return false; }

template <class Real>
void Screening<Real>::screened_items(const Real*, ptrdiff_t, ptrdiff_t, ptrdiff_t, uint8_t*, float*, ItemLengths*) {}

template <class Real>
ptrdiff_t Screening<Real>::recommend_screened(const Real*, ptrdiff_t n_users, ptrdiff_t, const Real*, ptrdiff_t,
                                              const uint8_t*, const float*, ItemLengths, const int64_t*, const int32_t*,
                                              int32_t*, Real*, ptrdiff_t, int32_t*, uint64_t*, char*, char* left) {
    for (ptrdiff_t u = 0; u < n_users; ++u) left[u] = 1;
    return n_users;
}

#endif

template struct Screening<float>;
template struct Screening<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
