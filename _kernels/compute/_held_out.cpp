// See _held_out.h; compiled once for each level.
//
// Most items are compared by 16-bit copies of the factors: half or a quarter of the bytes, two or four times the
// products of an instruction, and integer sums, which are exact.  How far such a sum can be from the inner product is
// known, so only items within that distance of the held-out one need the product itself: 1.4 in a thousand of 64 normal
// factors.
#include "_kernels/compute/_held_out.h"

#include "_kernels/compute/_held_out_products.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

template <class Real>
struct Lane;

template <>
struct Lane<float> {
    typedef int32_t Integer;
    typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    typedef int16_t Shorts __attribute__((vector_size(VECTOR_BYTES / 2)));
    typedef float Quarter __attribute__((vector_size(16)));  // of a line
    // Added to a number below 2^22 it leaves the nearest integer in the low bits.
    static constexpr float ROUND = 12582912.0f, EPSILON = __FLT_EPSILON__;
};

template <>
struct Lane<double> {
    typedef int64_t Integer;
    typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
    typedef int64_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    typedef int16_t Shorts __attribute__((vector_size(VECTOR_BYTES / 4)));
    typedef double Quarter __attribute__((vector_size(16)));
    static constexpr double ROUND = 6755399441055744.0, EPSILON = __DBL_EPSILON__;
};

// Bit i: whether lane i is not 0, where all bits of a lane are the same.
static inline uint64_t mask(Sums lanes) {
#if defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)lanes);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_ps((__m256)lanes);
#elif defined(__SSE2__)
    return (unsigned)_mm_movemask_ps((__m128)lanes);
#else
    uint64_t bits = 0;
    for (unsigned i = 0; i < sizeof lanes / sizeof lanes[0]; ++i) bits |= (uint64_t)(lanes[i] & 1) << i;
    return bits;
#endif
}

// A row of factors, read in lines of 64 bytes, with zeros after its last number.
template <class Real>
struct Row {
    typedef typename Lane<Real>::Vector Vector;
    typedef typename Lane<Real>::Integers Integers;
    enum { LINE = HELD_OUT_LINE / sizeof(Real), LANES = VECTOR_BYTES / sizeof(Real), VECTORS = LINE / LANES };

    const Real* numbers;
    ptrdiff_t n;
    const Real* end;  // end of the readable rows; usually there are more rows

    void line(ptrdiff_t f, Vector out[VECTORS]) const {
        const Real* from = numbers + f;
        Real copy[LINE];
        if (end - from < LINE) {  // no number beyond `end` is read
            for (int i = 0; i < LINE; ++i) copy[i] = i < end - from ? from[i] : Real(0);
            from = copy;
        }
        for (int t = 0; t < VECTORS; ++t) out[t] = load<Vector>(from + t * LANES);
        // Numbers of the next row are masked out.
        if (n - f < LINE) {
            Integers lane;
            for (int i = 0; i < LANES; ++i) lane[i] = i;
            for (int t = 0; t < VECTORS; ++t)
                out[t] = (Vector)((Integers)out[t] & (lane + t * LANES < (typename Lane<Real>::Integer)(n - f)));
        }
    }
};

template <class Real>
struct Size {
    Real peak, sum;  // of the magnitudes of a row
    // Whether neither products nor their quotients come near the ends of the type's range.
    bool ordinary() const { return sum >= Real(1e-12) && sum <= Real(1e12); }
};

template <class Real>
static inline Size<Real> size(const Row<Real>& row) {
    typedef typename Lane<Real>::Vector Vector;
    typedef typename Lane<Real>::Integers Integers;
    typedef typename Lane<Real>::Quarter Quarter;
    constexpr auto MAGNITUDE = (typename Lane<Real>::Integer)(~(uint64_t)0 >> (65 - 8 * sizeof(Real)));
    Vector peaks[Row<Real>::VECTORS] = {}, sums[Row<Real>::VECTORS] = {};
    for (ptrdiff_t f = 0; f < row.n; f += Row<Real>::LINE) {
        Vector v[Row<Real>::VECTORS];
        row.line(f, v);
        for (int t = 0; t < Row<Real>::VECTORS; ++t) {
            v[t] = (Vector)((Integers)v[t] & MAGNITUDE);
            peaks[t] = v[t] > peaks[t] ? v[t] : peaks[t];
            sums[t] += v[t];
        }
    }
    Quarter peak[4], sum[4];
    __builtin_memcpy(peak, peaks, sizeof peak);
    __builtin_memcpy(sum, sums, sizeof sum);
    for (int i = 1; i < 4; ++i) {
        peak[0] = peak[i] > peak[0] ? peak[i] : peak[0];
        sum[0] += sum[i];
    }
    Size<Real> out = {0, 0};
    for (unsigned i = 0; i < sizeof(Quarter) / sizeof(Real); ++i) {
        out.peak = peak[0][i] > out.peak ? peak[0][i] : out.peak;
        out.sum += sum[0][i];
    }
    return out;
}

template <class Real>
static inline bool all_finite(const Row<Real>& row) {
    bool finite = true;
    for (ptrdiff_t i = 0; i < row.n; ++i) finite &= row.numbers[i] - row.numbers[i] == 0;
    return finite;
}

// The row times scale, rounded to integers.
template <class Real>
static inline void quantize(const Row<Real>& row, Real scale, int16_t* out) {
    typedef typename Lane<Real>::Integers Integers;
    typedef typename Lane<Real>::Shorts Shorts;
    enum { LINE = Row<Real>::LINE };
    const ptrdiff_t length = quantized_length(row.n);
    ptrdiff_t f = 0;
    for (; f < row.n; f += LINE) {
        typename Lane<Real>::Vector v[Row<Real>::VECTORS];
        Shorts line[Row<Real>::VECTORS];
        row.line(f, v);
        for (int t = 0; t < Row<Real>::VECTORS; ++t)
            // |v scale| <= 32767, so the low 16 bits are the whole integer.
            line[t] = __builtin_convertvector((Integers)(v[t] * scale + Lane<Real>::ROUND), Shorts);
        if (LINE > 8 && length == 8) __builtin_memcpy(out, line, 16);
        else __builtin_memcpy(out + f, line, LINE * sizeof *out);
    }
    for (; f < length; ++f) out[f] = 0;
}

// Scales of rows: an item's magnitudes have the sum `items`, and no number of a user is greater than `users`.
// So a sum of products is a 32-bit integer, with a margin for rounding.
// sum_f |x_f y_f| is at most about users (items + n / 2) = 2.1e9, below 2^31.
struct Scales {
    double items, users;
    explicit Scales(ptrdiff_t n_factors) {
        items = 16384 * __builtin_sqrt((double)n_factors);
        users = 2.1e9 / (items + 0.51 * n_factors);
        if (users > 32767) users = 32767;
    }
};

// An inner product.  Products are rounded before they are added, and all are added in one order: every level gives the
// same bits.
template <class Real>
static inline Real product(const Row<Real>& x, const Row<Real>& y) {
    typedef typename Lane<Real>::Vector Vector;
    typedef typename Lane<Real>::Quarter Quarter;
    Vector sums[Row<Real>::VECTORS] = {};
    for (ptrdiff_t f = 0; f < x.n; f += Row<Real>::LINE) {
        Vector a[Row<Real>::VECTORS], b[Row<Real>::VECTORS];
        x.line(f, a);
        y.line(f, b);
        // Line by line: `sums` has one chain of additions for each place in a line, so one order at every level.
        for (int t = 0; t < Row<Real>::VECTORS; ++t) sums[t] += a[t] * b[t];
    }
    Quarter q[4];
    __builtin_memcpy(q, sums, sizeof q);
    const Quarter sum = (q[0] + q[1]) + (q[2] + q[3]);
    if constexpr (sizeof(Real) == 8) return sum[0] + sum[1];
    else return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

template <class Real>
int HeldOut<Real>::quantize_items(const Real* rows, ptrdiff_t n, ptrdiff_t n_factors, int16_t* out, float* steps) {
    const Scales scales(n_factors);
    int wrong = 0;
    for (ptrdiff_t r = 0; r < n; ++r, out += quantized_length(n_factors)) {
        const Row<Real> row = {rows + r * n_factors, n_factors, rows + n * n_factors};
        const Size<Real> s = size(row);
        Real scale = 0;
        steps[r] = 0;  // right for a row of zeros
        if (s.ordinary()) {
            scale = (Real)scales.items / s.sum;
            if (scale * s.peak > 32767) scale = 32767 / s.peak;
            steps[r] = (float)(1 / scale);
        } else if (s.sum != 0) {
            steps[r] = __builtin_nanf("");  // then no comparison is true
            if (!all_finite(row)) wrong = NOT_FINITE;
        }
        quantize(row, scale, out);
    }
    return wrong;
}

// Bound on the distance of a sum from the result of `product`, in steps of both rows.  Half a step of each number times
// the other row's magnitudes (the user's have the sum `sum`) and a little, because numbers were rounded before being
// rounded to integers; by n_factors + 8 roundings of the sum of the products' magnitudes, which is below 2.4e9; and by
// the rounding of the comparison, in single precision.
template <class Real>
static inline float uncertainty(const Scales& scales, ptrdiff_t n_factors, double sum) {
    return (float)(0.52 * (sum + scales.items + n_factors) + (n_factors + 8) * 2.4e9 * Lane<Real>::EPSILON + 4096);
}

// Whether each of the first counts[r] columns of every row is below limit.
static bool in_range(const int32_t* columns, ptrdiff_t n_rows, ptrdiff_t n_columns, const int64_t* counts,
                     uint32_t limit) {
    enum { LANES = VECTOR_BYTES / sizeof(int32_t) };
    U32 beyond = {};
    bool rest = true;
    // Only the first counts[r] columns of a row: entries behind them are not read as an index.
    for (ptrdiff_t r = 0; r < n_rows; ++r, columns += n_columns) {
        ptrdiff_t i = 0;
        for (; i + LANES <= counts[r]; i += LANES) beyond |= load<U32>(columns + i) >= limit;  // so is a negative one
        for (; i < counts[r]; ++i) rest &= (uint32_t)columns[i] < limit;
    }
    return rest && !mask((Sums)beyond);
}

// A user as the sums of products are compared: in steps of the user's numbers.
template <class Real>
struct Scaled {
    Real scale;
    float uncertainty;
};

template <class Real>
static inline int quantize_user(const Row<Real>& user, const Scales& scales, int16_t* out, Scaled<Real>* scaled) {
    const Size<Real> s = size(user);
    int wrong = 0;
    *scaled = {0, __builtin_inff()};  // then no comparison is true
    if (s.ordinary()) {
        const Real scale = (Real)scales.users / s.peak;
        *scaled = {scale, uncertainty<Real>(scales, user.n, (double)scale * s.sum)};
    } else if (!all_finite(user)) {
        wrong = NOT_FINITE;
    }
    quantize(user, scaled->scale, out);
    return wrong;
}

// How many of n sums are above a score, and how many are the same; `exact` gives the score of one of them.  Whether all
// of these are finite.
//
// Most users have no sum within the uncertainty, and then no branch depends on one: with branches ranking took up
// to a quarter of the time, in some processes and not in others.
template <class Real, class Exact>
static inline bool count_among(Real score, const Scaled<Real>& user, const int32_t* sums, const float* steps,
                               ptrdiff_t n, const Exact& exact, int64_t* above, int64_t* same) {
    enum { LANES = VECTOR_BYTES / sizeof(float) };
    const float scaled = (float)(score * user.scale);
    // (sum - uncertainty) step > score: greater for every rounding.
    const auto is_above = [&](ptrdiff_t i) __attribute__((always_inline)) {
        const Floats least = __builtin_convertvector(load<Sums>(sums + i), Floats) - user.uncertainty;
        return (Sums)(least * load<Floats>(steps + i) > scaled);
    };
    // (sum + uncertainty) step < score: less for every rounding.
    const auto is_below = [&](ptrdiff_t i) __attribute__((always_inline)) {
        const Floats most = __builtin_convertvector(load<Sums>(sums + i), Floats) + user.uncertainty;
        return (Sums)(most * load<Floats>(steps + i) < scaled);
    };
    Sums n_above = {}, near = {};
    // The last vector ends in sums that are below any score (`quantized_products`).
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const Sums greater = is_above(i);
        n_above -= greater;
        near |= ~(greater | is_below(i));
    }
    const FourSums parts = add_parts(n_above);
    *above = (int64_t)parts[0] + parts[1] + parts[2] + parts[3];
    *same = 0;
    bool finite = score - score == 0;
    if (mask(near))
        for (ptrdiff_t i = 0; i < n; i += LANES)
            for (uint64_t bits = mask(~(is_above(i) | is_below(i))); bits; bits &= bits - 1) {
                const ptrdiff_t k = i + __builtin_ctzll(bits);
                if (k >= n) break;  // beyond the last sum
                const Real other = exact(k);
                finite &= other - other == 0;
                *above += other > score;
                *same += other == score;
            }
    return finite;
}

template <class Real>
int HeldOut<Real>::block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items, ptrdiff_t n_items,
                         const int16_t* quantized, const float* steps, const int64_t* indptr, const int32_t* held_out,
                         const int32_t* others, ptrdiff_t n_others, const int64_t* counts, int16_t* x, int32_t* sums,
                         float* sum_steps, int64_t* above, int64_t* same) {
    const ptrdiff_t length = quantized_length(n_factors);
    const auto user = [=](ptrdiff_t r) {
        return Row<Real>{users + r * n_factors, n_factors, users + n_rows * n_factors};
    };
    const auto item = [=](ptrdiff_t i) {
        return Row<Real>{items + i * n_factors, n_factors, items + n_items * n_factors};
    };
    // Prefetch rows that the processor cannot predict: single rows of factors, and below each row's of the next block,
    // because all of them at once delay the reads in progress.
    for (ptrdiff_t h = indptr[0]; h < indptr[n_rows]; ++h)
        for (ptrdiff_t f = 0; f < n_factors; f += Row<Real>::LINE) __builtin_prefetch(item(held_out[h]).numbers + f);

    const uint32_t limit = (uint32_t)(n_items < INT32_MAX ? n_items : INT32_MAX);
    int wrong = in_range(others, n_rows, n_others, counts, limit) ? 0 : OUT_OF_RANGE;
    const Scales scales(n_factors);
    Scaled<Real> scaled[HELD_OUT_ROWS];
    for (ptrdiff_t r = 0; r < n_rows; ++r) wrong |= quantize_user(user(r), scales, x + r * length, scaled + r);
    if (wrong) return wrong;  // before any column is used as an index

    for (ptrdiff_t r = 0; r < n_rows; ++r) {
        const int32_t* const columns = others + r * n_others;
        for (ptrdiff_t f = 0; f < n_factors; f += Row<Real>::LINE) __builtin_prefetch(user(n_rows + r).numbers + f);
        for (ptrdiff_t i = 0; i < n_others; i += HELD_OUT_LINE / sizeof *others)
            __builtin_prefetch(columns + n_rows * n_others + i);
        if (indptr[r] == indptr[r + 1]) continue;
        quantized_products(x + r * length, quantized, steps, length, columns, counts[r], sums, sum_steps);
        bool finite = true;
        // Each held-out item of the user, among the same other items.
        for (ptrdiff_t h = indptr[r]; h < indptr[r + 1]; ++h) {
            const Real score = product(user(r), item(held_out[h]));
            finite &= count_among(
                score, scaled[r], sums, sum_steps, counts[r],
                [=](ptrdiff_t i) { return product(user(r), item(columns[i])); }, above + h, same + h);
        }
        if (!finite)
            for (ptrdiff_t h = indptr[r]; h < indptr[r + 1]; ++h) above[h] = -1;
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
