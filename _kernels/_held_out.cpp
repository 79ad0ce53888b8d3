// See _held_out.h; compiled once for each level.
#include "_kernels/_held_out.h"

#include "_kernels/_vector.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

enum { LINE_VECTORS = HELD_OUT_LINE / VECTOR_BYTES };

template <class Real>
struct Lane;

template <>
struct Lane<float> {
    typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef float Quarter __attribute__((vector_size(16)));  // of a line
};

template <>
struct Lane<double> {
    typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef double Quarter __attribute__((vector_size(16)));
};

typedef Lane<float>::Vector Floats;
typedef Lane<double>::Vector Doubles;

template <class Real>
static inline typename Lane<Real>::Vector load(const Real* from) {
    typename Lane<Real>::Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// The sum of all lanes, by 16 bytes as long as they go: lane by lane it takes longer than what it is the sum of.
template <class Vector>
static inline auto add_all(Vector v) {
    typedef decltype(v[0] + 0) Sum;
    typedef Sum Part __attribute__((vector_size(16)));
    Part parts[VECTOR_BYTES / 16];
    __builtin_memcpy(parts, &v, sizeof v);
    for (int i = 1; i < VECTOR_BYTES / 16; ++i) parts[0] += parts[i];
    Sum sum = 0;
    for (unsigned i = 0; i < 16 / sizeof(Sum); ++i) sum += parts[0][i];
    return sum;
}

// The sum of the line of each of several rows, all in one order: within 16 bytes, then (0 + 1) + (2 + 3) of the four.
template <class Quarter, class Vector>
static inline Quarter add_quarters(const Vector* line) {
    Quarter q[4];
    __builtin_memcpy(q, line, HELD_OUT_LINE);
    return (q[0] + q[1]) + (q[2] + q[3]);
}

static inline void add_lanes(const Floats rows[4][LINE_VECTORS], float* out) {
    Floats sums[LINE_VECTORS];
    for (int t = 0; t < LINE_VECTORS; ++t) {
        const U32 a = (U32)rows[0][t], b = (U32)rows[1][t], c = (U32)rows[2][t], d = (U32)rows[3][t];
        const U32 ab = (U32)((Floats)interleave_low(a, b) + (Floats)interleave_high(a, b));
        const U32 cd = (U32)((Floats)interleave_low(c, d) + (Floats)interleave_high(c, d));
        sums[t] = (Floats)interleave_low_pairs(ab, cd) + (Floats)interleave_high_pairs(ab, cd);
    }
    const Lane<float>::Quarter sum = add_quarters<Lane<float>::Quarter>(sums);
    __builtin_memcpy(out, &sum, sizeof sum);
}

static inline void add_lanes(const Doubles rows[4][LINE_VECTORS], double* out) {
    for (int pair = 0; pair < 4; pair += 2) {
        Doubles sums[LINE_VECTORS];
        for (int t = 0; t < LINE_VECTORS; ++t) {
            const U32 a = (U32)rows[pair][t], b = (U32)rows[pair + 1][t];
            sums[t] = (Doubles)interleave_low_pairs(a, b) + (Doubles)interleave_high_pairs(a, b);
        }
        const Lane<double>::Quarter sum = add_quarters<Lane<double>::Quarter>(sums);
        __builtin_memcpy(out + pair, &sum, sizeof sum);
    }
}

// Inner products of x with n rows of `items`, n a multiple of 4.  Rows are of N_LINES lines, or of n_lines where that is
// 0: a number that is known makes this nearly twice as fast, by a loop less.  Products are rounded before
// they are added, and lines are added in one order, so every level gives the same bits.  Reads AHEAD columns past the
// last: items lie anywhere in the second-level cache, and the processor cannot guess where the next one is.
template <int N_LINES, class Real>
static inline void inner_products(const Real* x, const Real* items, ptrdiff_t n_lines, const int32_t* columns,
                                  ptrdiff_t n, Real* out) {
    typedef typename Lane<Real>::Vector Vector;
    enum { LINE = HELD_OUT_LINE / sizeof(Real), LANES = VECTOR_BYTES / sizeof(Real) };
    const ptrdiff_t stride = (N_LINES ? N_LINES : n_lines) * LINE;
    for (ptrdiff_t i = 0; i < n; i += 4) {
        const Real *rows[4], *later[4];
        for (int r = 0; r < 4; ++r) rows[r] = items + stride * columns[i + r];
        for (int r = 0; r < 4; ++r) later[r] = items + stride * columns[i + r + AHEAD];
        Vector sums[4][LINE_VECTORS] = {};
#pragma GCC unroll 8
        for (ptrdiff_t f = 0; f < stride; f += LINE) {
            for (int r = 0; r < 4; ++r) __builtin_prefetch(later[r] + f);
            for (int t = 0; t < LINE_VECTORS; ++t)
                for (int r = 0; r < 4; ++r) sums[r][t] += load(x + f + t * LANES) * load(rows[r] + f + t * LANES);
        }
        add_lanes(sums, out + i);
    }
}

// Whether all of n whole lines are finite: a number times 0 is 0, or NaN.
template <class Real>
static inline bool all_finite(const Real* lines, ptrdiff_t n) {
    typename Lane<Real>::Vector sum = {};
    for (ptrdiff_t i = 0; i < n; i += VECTOR_BYTES / sizeof(Real)) sum += load(lines + i) * 0;
    return add_all(sum) == 0;
}

// 1 + greater + equal / 2 among n scores without NaN, in memory that goes on for a line.
template <class Real>
static inline double rank_among(Real score, const Real* others, ptrdiff_t n) {
    enum { LANES = VECTOR_BYTES / sizeof(Real) };
    typename Lane<Real>::Vector v;
    decltype(v > v) twice = {}, lane;
    for (int i = 0; i < LANES; ++i) lane[i] = i;
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        v = load(others + i);
        twice -= ((v > score) + (v >= score)) & (lane < (decltype(lane[0] + 0))(n - i));
    }
    return 1.0 + 0.5 * (double)add_all(twice);
}

template <class Real>
int HeldOut<Real>::pack_rows(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, Real* out) {
    const ptrdiff_t stride = whole_lines(n_factors, sizeof(Real));
    for (ptrdiff_t r = 0; r < n; ++r) {
        __builtin_memcpy(out + r * stride, rows + r * n_factors, n_factors * sizeof(Real));
        for (ptrdiff_t f = n_factors; f < stride; ++f) out[r * stride + f] = 0;
    }
    return all_finite(out, n * stride) ? 0 : NOT_FINITE;
}

template <class Real>
int HeldOut<Real>::block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items,
                         ptrdiff_t n_items, const int64_t* indptr, const int32_t* held_out, const int32_t* others,
                         ptrdiff_t n_others, const int64_t* counts, Real* x, Real* scores, int32_t* columns,
                         double* out) {
    const ptrdiff_t stride = whole_lines(n_factors, sizeof(Real));
    int wrong = pack_rows(users, n_rows, n_factors, x);

    // The columns of each row: its other items, its held-out ones, and any of these up to a multiple of 4.
    const uint32_t limit = (uint32_t)(n_items < INT32_MAX ? n_items : INT32_MAX);
    ptrdiff_t begins[HELD_OUT_ROWS + 1] = {};
    for (ptrdiff_t r = 0; r < n_rows; ++r) {
        const int32_t* const row = others + r * n_others;
        const ptrdiff_t n_row = counts[r];
        int32_t* end = columns + begins[r];
        int out_of_range = 0;
        for (ptrdiff_t i = 0; i < n_row; ++i) out_of_range |= (uint32_t)row[i] >= limit;  // so is a negative one
        if (out_of_range) wrong |= OUT_OF_RANGE;
        if (indptr[r] < indptr[r + 1]) {
            __builtin_memcpy(end, row, n_row * sizeof *row);
            end += n_row;
            for (ptrdiff_t i = indptr[r]; i < indptr[r + 1]; ++i) *end++ = held_out[i];
            while ((end - columns) % 4) *end++ = held_out[indptr[r]];
        }
        begins[r + 1] = end - columns;
    }
    if (wrong) return wrong;

    const ptrdiff_t n = begins[n_rows], n_lines = whole_lines(n, sizeof(Real));
    for (int i = 0; i < AHEAD; ++i) columns[n + i] = 0;
    const ptrdiff_t lines = stride * sizeof(Real) / HELD_OUT_LINE;
    const auto products = lines == 1   ? inner_products<1, Real>
                          : lines == 2 ? inner_products<2, Real>
                          : lines == 4 ? inner_products<4, Real>
                          : lines == 8 ? inner_products<8, Real>
                                       : inner_products<0, Real>;
    for (ptrdiff_t r = 0; r < n_rows; ++r)
        products(x + r * stride, items, lines, columns + begins[r], begins[r + 1] - begins[r], scores + begins[r]);
    for (ptrdiff_t i = n; i < n_lines; ++i) scores[i] = 0;
    const bool finite = all_finite(scores, n_lines);
    for (ptrdiff_t r = 0; r < n_rows; ++r) {
        const Real* const row = scores + begins[r];
        bool row_finite = true;
        if (!finite)
            for (ptrdiff_t i = begins[r]; i < begins[r + 1]; ++i) row_finite &= scores[i] - scores[i] == 0;
        for (ptrdiff_t i = indptr[r]; i < indptr[r + 1]; ++i)
            out[i] = row_finite ? rank_among(row[counts[r] + i - indptr[r]], row, counts[r]) : __builtin_nan("");
    }
    return 0;
}

template <class Real>
double HeldOut<Real>::rank(Real score, const Real* others, ptrdiff_t n) {
    int greater = 0, equal = 0, less = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        greater += others[i] > score;
        equal += others[i] == score;
        less += others[i] < score;
    }
    if (score != score || greater + equal + less != n) return __builtin_nan("");  // only NaN is none of the three
    return 1.0 + greater + 0.5 * equal;
}

template struct HeldOut<float>;
template struct HeldOut<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
