// See _screening.h; compiled once for each level.
//
// A product of 8-bit copies of a user's and an item's factors gives their inner product up to a known error: x
// is x' + e and y is y' + d, and x y - x' y' = x' d + e y is at most |x'| |d| + |e| |y|.  So each item's score has a lower
// and an upper bound, an item with an upper bound not above the n-th lower bound so far is not in the n best, and few
// others need their score: of 3,706 items and 128 normal factors, 18 for the best 10.  One instruction multiplies four
// times as many of these numbers as floats.
//
// Tried without a gain in speed: to keep tiles with candidates in a queue, without a branch; to insert two candidates
// without a branch between them; to fetch the factors of candidates ahead; sums over 128 factors, which need wider bounds.
#include "_kernels/compute/_screening.h"

#include "_kernels/core/_lanes.h"
#if defined(__AVX2__)
#include "_kernels/compute/_screening_candidates.h"
#endif

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

#if defined(__AVX2__)

// A tile of sums is TILE_USERS x TILE_VECTORS accumulators.
enum {
    TILE_USERS = 6,
    TILE_VECTORS = VECTOR_BYTES == 64 ? 4 : 2,
    LANES = Shape<float>::LANES,
    TILE_ITEMS = TILE_VECTORS * LANES,
    PER_LINE = LINE_BYTES / VECTOR_BYTES,
};

// Of an item 8 bits hold a number from -LARGEST to LARGEST, and LARGEST is added: the sum of two products is a 16-bit
// integer, as the instruction wants.  So are longer sums if the lengths of both vectors are at most LONGEST; they are
// taken over every other pair of CHUNK quartets of factors.
enum { LARGEST = 90, LONGEST = 181, CHUNK = SCREENED_CHUNK };
static_assert(2 * (2 * LARGEST) * LARGEST <= INT16_MAX && LONGEST * LONGEST <= INT16_MAX && CHUNK == 16, "no overflow");

typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES)));

static inline Sums add_halves(Halves a) {
#if defined(__AVX512BW__)
    return (Sums)_mm512_madd_epi16((__m512i)a, _mm512_set1_epi16(1));
#else
    return (Sums)_mm256_madd_epi16((__m256i)a, _mm256_set1_epi16(1));
#endif
}

// Rounding of a row of factors: lengths are of the row, of its integers in steps, and of the rounding error.  For a
// row that is too large or too small for this, the last is infinite.
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

// Writes each quartet as four bytes, `stride` integers from the one before, with `bias` added to each number, and
// leaves `heads` such places before each chunk.
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
    // The largest factor, and the squares of a chunk: of the first two of each quartet, and of the last two.
    for (ptrdiff_t k = 0; k < n; ++k) {
        const Four v = quartet(row, n_factors, k);
        peaks = v > peaks ? v : peaks;
        peaks = -v > peaks ? -v : peaks;
        squares += v * v;
        if (k % CHUNK == CHUNK - 1 || k == n - 1) {  // the end of a chunk
            const Real low = squares[0] + squares[1], high = squares[2] + squares[3];
            longest = low > longest ? low : longest;
            longest = high > longest ? high : longest;
            squares = Four{};
        }
    }
    Real peak = peaks[0];
    for (int i = 1; i < 4; ++i) peak = peaks[i] > peak ? peaks[i] : peak;
    Quantized q = {0, 0, 0, 0};
    Real scale = 0;
    const bool ordinary = peak >= Real(1e-12) && peak <= Real(1e12);
    if (ordinary) {
        // A pair of every quartet of a chunk is 32 numbers, and rounding adds at most half a step to each.
        // |x_k| <= LONGEST - 2.9 before rounding, and sqrt(32) / 2 < 2.9 more after it: |x_k| <= LONGEST.
        const Real by_length = Real(LONGEST - 2.9) / __builtin_sqrt(longest);
        scale = LARGEST / peak;
        if (by_length < scale) scale = by_length;
        q.step = (float)(1 / scale);
    }
    Singles whole{}, rounded{}, residual{};
    for (ptrdiff_t k = 0; k < n; ++k) {
        // `shifted` has the nearest integer in its low bits.
        const Singles v = __builtin_convertvector(quartet(row, n_factors, k) * scale, Singles), shifted = v + ROUND;
        const Singles integer = shifted - ROUND, rest = v - integer;
        whole += v * v;
        rounded += integer * integer;
        residual += rest * rest;
        // Its low byte: with `bias` from 0 to 180 for an item, else from -90 to 90.
        const Bytes bytes = __builtin_convertvector((Integers)shifted + bias, Bytes);
        __builtin_memcpy(out + (k + heads * (k / CHUNK + 1)) * stride, &bytes, 4);
    }
    if (peak > 0 && !ordinary) q.residual = __builtin_inff();
    if (!ordinary) return q;
    // A little more, because all this was computed in single precision.
    const double more = 1 + 1e-6 * (n_factors + 10), root = __builtin_sqrt((double)n_factors);
    q.whole = more * q.step * __builtin_sqrt((double)whole[0] + whole[1] + whole[2] + whole[3]);
    q.rounded = more * __builtin_sqrt((double)rounded[0] + rounded[1] + rounded[2] + rounded[3]);
    q.residual = __builtin_sqrt((double)residual[0] + residual[1] + residual[2] + residual[3]);
    q.residual = more * q.step * (q.residual + 2e-5 * root);
    return q;
}

// The step of an item; the length of its rounding error and its own length are SCREENED_ITEMS and twice that
// number after it.
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
        if (i < n_items) q = quantize(items + i * n_factors, n_factors, LARGEST, 0, line, SCREENED_ITEMS);
        else
            for (ptrdiff_t k = 0; k < n; ++k) line[k * SCREENED_ITEMS] = 0;  // zeros, for items that there are not
        bound[0] = q.step;
        bound[SCREENED_ITEMS] = (float)q.residual;
        bound[2 * SCREENED_ITEMS] = (float)q.whole;
    }
}

// Correction added to each of a user's sums because LARGEST was added to the items' numbers: a pair of 16-bit integers.
static inline int32_t start_of_chunk(const int32_t* x, ptrdiff_t n) {
    uint16_t halves[2] = {};
    for (ptrdiff_t k = 0; k < n; ++k) {
        int8_t bytes[4];
        __builtin_memcpy(bytes, x + k * TILE_USERS, 4);
        // Modulo 2^16: x'(y + LARGEST) - LARGEST sum(x) = x'y.
        halves[0] -= (uint16_t)(LARGEST * (bytes[0] + bytes[1]));
        halves[1] -= (uint16_t)(LARGEST * (bytes[2] + bytes[3]));
    }
    int32_t start;
    __builtin_memcpy(&start, halves, 4);
    return start;
}

// Adds the products of `n` quartets of TILE_USERS users (x: each quartet of all of them) and TILE_ITEMS items to `sums`;
// items past a line are `apart` bytes from the items before.
FASTFEDREC_INLINE void add_products(const int32_t* x, const uint8_t* lines, ptrdiff_t apart, ptrdiff_t n,
                                    Halves sums[TILE_USERS][TILE_VECTORS]) {
#pragma GCC unroll 2
    for (ptrdiff_t k = 0; k < n; ++k, x += TILE_USERS, lines += LINE_BYTES) {
        Halves v[TILE_VECTORS];
        for (int t = 0; t < TILE_VECTORS; ++t)
            __builtin_memcpy(&v[t], lines + t / PER_LINE * apart + t % PER_LINE * VECTOR_BYTES, sizeof v[t]);
        for (int u = 0; u < TILE_USERS; ++u) {
            const Halves spread = (Halves)(x[u] - Sums{});
            // Two products of 8 bits in 16: at most 2 * 180 * 90 = 32400.
            for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] += (Halves)byte_pairs((U32)v[t], (U32)spread);
        }
    }
}

// Products of TILE_USERS users (x: their starts, then a quartet of all of them, then the next) and TILE_ITEMS items.
static inline void tile(const int32_t* x, const uint8_t* lines, ptrdiff_t n_quartets, ptrdiff_t first,
                        Sums out[TILE_USERS][TILE_VECTORS]) {
    const ptrdiff_t apart = LINE_BYTES * n_quartets;
    lines += first / SCREENED_ITEMS * apart;
    for (ptrdiff_t begin = 0; begin < n_quartets; begin += CHUNK) {
        Halves sums[TILE_USERS][TILE_VECTORS];
        for (int u = 0; u < TILE_USERS; ++u)
            for (int t = 0; t < TILE_VECTORS; ++t) sums[u][t] = (Halves)(x[u] - Sums{});
        x += TILE_USERS;
        const ptrdiff_t n = n_quartets - begin;
        if (n >= CHUNK) add_products(x, lines, apart, CHUNK, sums);
        else add_products(x, lines, apart, n, sums);
        x += CHUNK * TILE_USERS;
        lines += CHUNK * LINE_BYTES;
        for (int u = 0; u < TILE_USERS; ++u)
            // The 16-bit sums of a chunk are added in pairs to 32 bits, and to the sums of the chunks before.
            for (int t = 0; t < TILE_VECTORS; ++t) out[u][t] = add_halves(sums[u][t]) + (begin ? out[u][t] : Sums{});
    }
}

// Copies of a block of users: a tile's users together, and before each chunk of them the result of `start_of_chunk`.
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
        // Beside the rounding error of the user: n_factors roundings of the score, and the roundings of the bounds.
        const double relative = 2e-6 + (double)Shape<Real>::EPSILON * n_factors;
        scaled[u] = {q.step, (float)q.rounded, (float)((q.residual + relative * q.whole) / q.step)};
    }
}

template <class Real>
ptrdiff_t Screening<Real>::recommend_screened(const Real* users, ptrdiff_t n_users, ptrdiff_t n_factors,
                                              const Real* items, ptrdiff_t n_items, const uint8_t* lines,
                                              const float* bounds, const int64_t* indptr, const int32_t* indices,
                                              int32_t* out_items, Real* out_scores, ptrdiff_t n, int32_t* x,
                                              uint64_t* taken, char* lists, char* left) {
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
            // All comparisons come before the first branch on one of them: where it is mispredicted, they are done.
            uint64_t above[TILE_USERS];
            unsigned any = 0;
#pragma GCC unroll 6
            for (int i = 0; i < TILE_USERS; ++i) {
                // Candidates are items with an upper bound above the n-th greatest lower bound so far.
                const Candidates& of = candidates[start + i];
                above[i] = 0;
                for (int t = 0; t < TILE_VECTORS; ++t)
                    above[i] |= greater(of.user.upper(sums[i][t], bound[t]), of.threshold) << (t * LANES);
                above[i] &= ~(taken[(start + i) * n_words + (first >> 6)] >> (first & 63));
                any |= (unsigned)(above[i] != 0) << i;
            }
            for (; any; any &= any - 1) {
                const int i = __builtin_ctz(any);
                Candidates& of = candidates[start + i];
                Integers lower[TILE_VECTORS];
                Floats upper[TILE_VECTORS];
                for (int t = 0; t < TILE_VECTORS; ++t) {
                    lower[t] = ordered(of.user.lower(sums[i][t], bound[t]));
                    upper[t] = of.user.upper(sums[i][t], bound[t]);
                }
                of.offer(above[i], (const int32_t*)lower, (const float*)upper, first);
            }
        }
    }
    ptrdiff_t n_left = 0;
    for (ptrdiff_t u = 0; u < n_users; ++u) {
        left[u] = candidates[u].gave_up();  // no result: this user is left to `recommend_block`
        if (!left[u]) {
            left[u] = !best_of_candidates(users + u * n_factors, n_factors, items, candidates[u], out_items + u * n,
                                          out_scores + u * n, n);
            fill_up(out_items + u * n, n, taken + u * n_words);
        }
        n_left += left[u];
    }
    return n_left;
}

#else

template <class Real>
void Screening<Real>::screened_items(const Real*, ptrdiff_t, ptrdiff_t, ptrdiff_t, uint8_t*, float*) {}

template <class Real>
ptrdiff_t Screening<Real>::recommend_screened(const Real*, ptrdiff_t n_users, ptrdiff_t, const Real*, ptrdiff_t,
                                              const uint8_t*, const float*, const int64_t*, const int32_t*, int32_t*,
                                              Real*, ptrdiff_t, int32_t*, uint64_t*, char*, char* left) {
    for (ptrdiff_t u = 0; u < n_users; ++u) left[u] = 1;
    return n_users;
}

#endif

template struct Screening<float>;
template struct Screening<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
