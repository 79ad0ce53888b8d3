// See _screening.h; compiled once for each level.
//
// The inner product of 8-bit copies of the factors of a user and an item is their score up to a known error: x is x' +
// e and y is y' + d, and x y - x' y' = x' d + e y is at most |x'| |d| + |e| |y|. Each score thus has a lower and an
// upper bound. An item with an upper bound not above the n-th lower bound so far is not among the n best, and few other
// items need their score: of 3,706 items and 128 normal factors, 18 for the best 10. One instruction multiplies four
// times as many of these numbers as floats.
//
// These attempts gained no speed: a queue of tiles with candidates, without a branch; the insertion of two candidates
// without a branch between them; prefetching the factors of candidates; sums over 128 factors, which need wider bounds.
#include "_kernels/compute/_screening.h"

#include "_kernels/core/_lanes.h"
#if defined(__AVX2__)
#include "_kernels/compute/_screening_candidates.h"
#endif

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

#if defined(__AVX2__)

// A tile of sums has TILE_USERS x TILE_VECTORS accumulators.
enum {
    TILE_USERS = 6,
    TILE_VECTORS = VECTOR_BYTES == 64 ? 4 : 2,
    LANES = Shape<float>::LANES,
    TILE_ITEMS = TILE_VECTORS * LANES,
    PER_LINE = LINE_BYTES / VECTOR_BYTES,
};

// The 8-bit numbers of an item are from -MAX_INTEGER to MAX_INTEGER, plus MAX_INTEGER: the sum of two products is a
// 16-bit integer, as the instruction requires. So are longer sums if the lengths of both vectors are at most
// MAX_LENGTH; they are over every other pair of CHUNK quartets of factors.
enum { MAX_INTEGER = 90, MAX_LENGTH = 181, CHUNK = SCREENED_CHUNK };
static_assert(2 * (2 * MAX_INTEGER) * MAX_INTEGER <= INT16_MAX && MAX_LENGTH * MAX_LENGTH <= INT16_MAX && CHUNK == 16,
              "no overflow");

typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES)));

static inline Sums add_halves(Halves a) {
#if defined(__AVX512BW__)
    return (Sums)_mm512_madd_epi16((__m512i)a, _mm512_set1_epi16(1));
#else
    return (Sums)_mm256_madd_epi16((__m256i)a, _mm256_set1_epi16(1));
#endif
}

// The rounding of a row of factors: the lengths of the row, of its integers in steps, and of the rounding error. The
// last is infinite for a row that is too large or too small.
struct Quantized {
    float step;
    double whole, rounded, residual;
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

// Writes each quartet as four bytes, at a distance of `stride` integers, with `bias` added to each number. Before each
// chunk, `n_headers` integers remain free.
template <class Real>
static inline Quantized quantize(const Real* row, ptrdiff_t n_factors, int bias, int n_headers, int32_t* out,
                                 ptrdiff_t stride) {
    typedef typename Quartet<Real>::Type RealQuartet;
    typedef typename Quartet<float>::Type FloatQuartet;
    typedef int32_t Integers __attribute__((vector_size(16)));
    typedef int8_t Bytes __attribute__((vector_size(4)));
    constexpr float ROUND = 12582912.0f;  // plus a number below 2^22, it has the nearest integer in its low bits
    const ptrdiff_t n = quartets(n_factors);
    RealQuartet peaks{}, squares{};
    Real longest = 0;
    // Compute the largest factor, and for each chunk the sums of squares of the first two and of the last two numbers
    // of its quartets.
    for (ptrdiff_t k = 0; k < n; ++k) {
        const RealQuartet v = quartet(row, n_factors, k);
        peaks = v > peaks ? v : peaks;
        peaks = -v > peaks ? -v : peaks;
        squares += v * v;
        if (k % CHUNK == CHUNK - 1 || k == n - 1) {  // the end of a chunk
            const Real low = squares[0] + squares[1], high = squares[2] + squares[3];
            longest = low > longest ? low : longest;
            longest = high > longest ? high : longest;
            squares = RealQuartet{};
        }
    }
    Real peak = peaks[0];
    for (int i = 1; i < 4; ++i) peak = peaks[i] > peak ? peaks[i] : peak;
    Quantized q = {0, 0, 0, 0};
    Real scale = 0;
    const bool ordinary = peak >= Real(1e-12) && peak <= Real(1e12);
    if (ordinary) {
        // A pair of every quartet of a chunk has 32 numbers, and rounding adds at most half a step to each. |x_k| <=
        // MAX_LENGTH - 2.9 before rounding, and rounding adds sqrt(32) / 2 < 2.9: |x_k| <= MAX_LENGTH.
        const Real by_length = Real(MAX_LENGTH - 2.9) / __builtin_sqrt(longest);
        scale = MAX_INTEGER / peak;
        if (by_length < scale) scale = by_length;
        q.step = (float)(1 / scale);
    }
    FloatQuartet whole{}, rounded{}, residual{};
    for (ptrdiff_t k = 0; k < n; ++k) {
        // `shifted` has the nearest integer in its low bits.
        const FloatQuartet v = __builtin_convertvector(quartet(row, n_factors, k) * scale, FloatQuartet),
                           shifted = v + ROUND;
        const FloatQuartet integer = shifted - ROUND, remainder = v - integer;
        whole += v * v;
        rounded += integer * integer;
        residual += remainder * remainder;
        // The low byte plus `bias` is from 0 to 180 for an item, and from -90 to 90 for a user.
        const Bytes bytes = __builtin_convertvector((Integers)shifted + bias, Bytes);
        __builtin_memcpy(out + (k + n_headers * (k / CHUNK + 1)) * stride, &bytes, 4);
    }
    if (peak > 0 && !ordinary) q.residual = __builtin_inff();
    if (!ordinary) return q;
    // The factor is slightly above 1, because the numbers above were computed in single precision.
    const double inflation = 1 + 1e-6 * (n_factors + 10), root = __builtin_sqrt((double)n_factors);
    q.whole = inflation * q.step * __builtin_sqrt((double)whole[0] + whole[1] + whole[2] + whole[3]);
    q.rounded = inflation * __builtin_sqrt((double)rounded[0] + rounded[1] + rounded[2] + rounded[3]);
    q.residual = __builtin_sqrt((double)residual[0] + residual[1] + residual[2] + residual[3]);
    q.residual = inflation * q.step * (q.residual + 2e-5 * root);
    return q;
}

// Returns the address of the step of an item; the length of its rounding error and its own length are SCREENED_ITEMS
// and twice SCREENED_ITEMS numbers after it.
template <class Bounds>
static inline Bounds* bounds_of(Bounds* bounds, ptrdiff_t column) {
    return bounds + column / SCREENED_ITEMS * 3 * SCREENED_ITEMS + column % SCREENED_ITEMS;
}

template <class Real>
void Screening<Real>::screened_items(const Real* items, ptrdiff_t first, ptrdiff_t n_items, ptrdiff_t n_factors,
                                     uint8_t* lines, float* bounds) {
    const ptrdiff_t n = quartets(n_factors);
    for (ptrdiff_t i = first; i < first + 64; ++i) {
        const ptrdiff_t before = i / SCREENED_ITEMS * SCREENED_ITEMS;
        int32_t* const line = (int32_t*)lines + before * n + i - before;
        float* const bound = bounds_of(bounds, i);
        Quantized q = {0, 0, 0, 0};
        if (i < n_items) q = quantize(items + i * n_factors, n_factors, MAX_INTEGER, 0, line, SCREENED_ITEMS);
        else
            for (ptrdiff_t k = 0; k < n; ++k) line[k * SCREENED_ITEMS] = 0;  // zeros after the last item
        bound[0] = q.step;
        bound[SCREENED_ITEMS] = (float)q.residual;
        bound[2 * SCREENED_ITEMS] = (float)q.whole;
    }
}

// Returns the correction that is added to each sum of a user because MAX_INTEGER was added to the numbers of items: a
// pair of 16-bit integers.
static inline int32_t start_of_chunk(const int32_t* x, ptrdiff_t n) {
    uint16_t halves[2] = {};
    for (ptrdiff_t k = 0; k < n; ++k) {
        int8_t bytes[4];
        __builtin_memcpy(bytes, x + k * TILE_USERS, 4);
        // Modulo 2^16: x'(y + MAX_INTEGER) - MAX_INTEGER sum(x) = x'y.
        halves[0] -= (uint16_t)(MAX_INTEGER * (bytes[0] + bytes[1]));
        halves[1] -= (uint16_t)(MAX_INTEGER * (bytes[2] + bytes[3]));
    }
    int32_t start;
    __builtin_memcpy(&start, halves, 4);
    return start;
}

// Adds the products of `n` quartets of TILE_USERS users (x: each quartet of all of them) and TILE_ITEMS items to
// `sums`. Lines of items are at a distance of `line_stride` bytes.
FASTFEDREC_INLINE void add_products(const int32_t* x, const uint8_t* lines, ptrdiff_t line_stride, ptrdiff_t n,
                                    Halves sums[TILE_USERS][TILE_VECTORS]) {
#pragma GCC unroll 2
    for (ptrdiff_t k = 0; k < n; ++k, x += TILE_USERS, lines += LINE_BYTES) {
        Halves v[TILE_VECTORS];
        for (int t = 0; t < TILE_VECTORS; ++t)
            __builtin_memcpy(&v[t], lines + t / PER_LINE * line_stride + t % PER_LINE * VECTOR_BYTES, sizeof v[t]);
        for (int u = 0; u < TILE_USERS; ++u) {
            const Halves spread = (Halves)(x[u] - Sums{});
            // The sum of two products of 8 bits fits into 16: it is at most 2 * 180 * 90 = 32400.
            for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] += (Halves)byte_pairs((U32)v[t], (U32)spread);
        }
    }
}

// Computes products of TILE_USERS users (x: their starts, then a quartet of all of them, then the next) and TILE_ITEMS
// items.
static inline void tile(const int32_t* x, const uint8_t* lines, ptrdiff_t n_quartets, ptrdiff_t first,
                        Sums out[TILE_USERS][TILE_VECTORS]) {
    const ptrdiff_t line_stride = LINE_BYTES * n_quartets;
    lines += first / SCREENED_ITEMS * line_stride;
    for (ptrdiff_t begin = 0; begin < n_quartets; begin += CHUNK) {
        Halves sums[TILE_USERS][TILE_VECTORS];
        for (int u = 0; u < TILE_USERS; ++u)
            for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] = (Halves)(x[u] - Sums{});
        x += TILE_USERS;
        const ptrdiff_t n = n_quartets - begin;
        if (n >= CHUNK) add_products(x, lines, line_stride, CHUNK, sums);
        else add_products(x, lines, line_stride, n, sums);
        x += CHUNK * TILE_USERS;
        lines += CHUNK * LINE_BYTES;
        for (int u = 0; u < TILE_USERS; ++u)
            // The 16-bit sums of a chunk are added in pairs to 32 bits, and to the sums of the previous chunks.
            for (int t = 0; t < TILE_VECTORS; ++t) out[u][t] = add_halves(sums[u][t]) + (begin ? out[u][t] : Sums{});
    }
}

// Writes 8-bit copies of a block of users: users of a tile are side by side, and before each chunk they have the result
// of `start_of_chunk`.
template <class Real>
static inline void quantize_users(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors, int32_t* x,
                                  Scaled* scaled) {
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
        // The error has the rounding error of the user, n_factors roundings of the score, and the roundings of the
        // bounds.
        const double relative = 2e-6 + (double)Shape<Real>::EPSILON * n_factors;
        scaled[u] = {q.step, (float)q.rounded, (float)((q.residual + relative * q.whole) / q.step)};
    }
}

template <class Real>
ptrdiff_t Screening<Real>::recommend_screened(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors,
                                              const Real* items, ptrdiff_t n_items, const uint8_t* lines,
                                              const float* bounds, const int64_t* indptr, const int32_t* indices,
                                              int32_t* out_items, Real* out_scores, ptrdiff_t n, int32_t* x,
                                              uint64_t* taken, char* lists, char* unsolved) {
    const ptrdiff_t n_words = bitmap_words(n_items), n_quartets = quartets(n_factors);
    const ptrdiff_t tile_size = screened_length(n_factors) * TILE_USERS;
    Candidates candidates[BLOCK_USERS];
    Scaled scaled[BLOCK_USERS];
    quantize_users(users, n_users, n_factors, x, scaled);
    for (ptrdiff_t u = n_users; u < BLOCK_USERS; ++u) candidates[u].open(n, {0, 0, 0}, nullptr);
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        candidates[u].open(n, scaled[u], lists + u * SCREENED_CANDIDATES * sizeof(Candidates::Candidate));
        mark_taken(indices + indptr[u], indptr[u + 1] - indptr[u], n_items, taken + u * n_words);
    }
    for (ptrdiff_t first = 0; first < n_items; first += TILE_ITEMS) {
        const float* bound[TILE_VECTORS];
        for (int t = 0; t < TILE_VECTORS; ++t) bound[t] = bounds_of(bounds, first + t * LANES);
        for (ptrdiff_t start = 0; start < n_users; start += TILE_USERS) {
            Sums sums[TILE_USERS][TILE_VECTORS];
            tile(x + start / TILE_USERS * tile_size, lines, n_quartets, first, sums);
            // All comparisons come before the first branch on one of them, so a misprediction does not delay them.
            uint64_t above[TILE_USERS];
            unsigned active_users = 0;
#pragma GCC unroll 6
            for (int i = 0; i < TILE_USERS; ++i) {
                // Candidates are items with an upper bound above the n-th greatest lower bound so far.
                const Candidates& user_candidates = candidates[start + i];
                above[i] = 0;
                for (int t = 0; t < TILE_VECTORS; ++t)
                    above[i] |= greater(user_candidates.user.upper(sums[i][t], bound[t]), user_candidates.threshold)
                                << (t * LANES);
                above[i] &= ~(taken[(start + i) * n_words + (first >> 6)] >> (first & 63));
                active_users |= (unsigned)(above[i] != 0) << i;
            }
            for (; active_users; active_users &= active_users - 1) {
                const int i = __builtin_ctz(active_users);
                Candidates& user_candidates = candidates[start + i];
                Integers lower[TILE_VECTORS];
                Floats upper[TILE_VECTORS];
                for (int t = 0; t < TILE_VECTORS; ++t) {
                    lower[t] = ordered(user_candidates.user.lower(sums[i][t], bound[t]));
                    upper[t] = user_candidates.user.upper(sums[i][t], bound[t]);
                }
                user_candidates.insert(above[i], (const int32_t*)lower, (const float*)upper, first);
            }
        }
    }
    ptrdiff_t n_unsolved = 0;
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        unsolved[u] = candidates[u].is_abandoned();  // the user has no result here: `recommend_block` is used
        if (!unsolved[u]) {
            unsolved[u] = !best_of_candidates(users + u * n_factors, n_factors, items, candidates[u], out_items + u * n,
                                              out_scores + u * n, n);
            fill_up(out_items + u * n, n, taken + u * n_words);
        }
        n_unsolved += unsolved[u];
    }
    return n_unsolved;
}

#else

template <class Real>
void Screening<Real>::screened_items(const Real*, ptrdiff_t, ptrdiff_t, ptrdiff_t, uint8_t*, float*) {}

template <class Real>
ptrdiff_t Screening<Real>::recommend_screened(const Real*, ptrdiff_t n_users, ptrdiff_t, const Real*, ptrdiff_t,
                                              const uint8_t*, const float*, const int64_t*, const int32_t*, int32_t*,
                                              Real*, ptrdiff_t, int32_t*, uint64_t*, char*, char* unsolved) {
    for (ptrdiff_t u = 0; u < n_users; ++u) unsolved[u] = 1;
    return n_users;
}

#endif

template struct Screening<float>;
template struct Screening<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
