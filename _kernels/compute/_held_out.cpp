// See _held_out.h; compiled once for each level.
//
// Most items are compared by 16-bit copies of the factors. They have half or a quarter of the bytes, an instruction
// multiplies two or four times as many, and sums of integers are exact. The distance of such a sum from the inner
// product has a known bound, so only items within that distance of the held-out item need the inner product: 1.4 in a
// thousand for 64 normal factors.
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
    // A number below 2^22 plus ROUND has the nearest integer in its low bits.
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

// Returns in bit i whether lane i is not 0, for lanes with all bits equal.
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
    const Real* end;  // end of the readable memory; usually more rows follow

    void line(ptrdiff_t f, Vector out[VECTORS]) const {
        const Real* from = numbers + f;
        Real copy[LINE];
        if (end - from < LINE) {  // no number after `end` is read
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
    // Returns whether products and their quotients stay far from the ends of the range of the type.
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

// Writes the row times scale, rounded to integers.
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

// Scales of rows: the magnitudes of an item sum to `items`, and no number of a user is greater than `users`. A sum of
// products is then a 32-bit integer, with a margin for rounding: sum_f |x_f y_f| is at most about users (items + n / 2)
// = 2.1e9, below 2^31.
struct Scales {
    double items, users;
    explicit Scales(ptrdiff_t n_factors) {
        items = 16384 * __builtin_sqrt((double)n_factors);
        users = 2.1e9 / (items + 0.51 * n_factors);
        if (users > 32767) users = 32767;
    }
};

// Returns an inner product. Products are rounded before they are added, all in one order, so every level gives the same
// bits.
template <class Real>
static inline Real product(const Row<Real>& x, const Row<Real>& y) {
    typedef typename Lane<Real>::Vector Vector;
    typedef typename Lane<Real>::Quarter Quarter;
    Vector sums[Row<Real>::VECTORS] = {};
    for (ptrdiff_t f = 0; f < x.n; f += Row<Real>::LINE) {
        Vector a[Row<Real>::VECTORS], b[Row<Real>::VECTORS];
        x.line(f, a);
        y.line(f, b);
        // `sums` has one chain of additions for each position in a line, so the order is the same at every level.
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
    int faults = 0;
    for (ptrdiff_t r = 0; r < n; ++r, out += quantized_length(n_factors)) {
        const Row<Real> row = {rows + r * n_factors, n_factors, rows + n * n_factors};
        const Size<Real> s = size(row);
        Real scale = 0;
        steps[r] = 0;  // correct for a row of zeros
        if (s.ordinary()) {
            scale = (Real)scales.items / s.sum;
            if (scale * s.peak > 32767) scale = 32767 / s.peak;
            steps[r] = (float)(1 / scale);
        } else if (s.sum != 0) {
            steps[r] = __builtin_nanf("");  // no comparison with it is true
            if (!all_finite(row)) faults = NOT_FINITE;
        }
        quantize(row, scale, out);
    }
    return faults;
}

// Returns a bound on the distance of a sum from the result of `product`, in steps of both rows. The bound has three
// parts: half a step of each number times the magnitudes of the other row (those of the user have the sum `sum`), with
// a margin because numbers were rounded before they became integers; n_factors + 8 roundings of the sum of the
// magnitudes of products, which is below 2.4e9; and the rounding of the comparison in single precision.
template <class Real>
static inline float uncertainty(const Scales& scales, ptrdiff_t n_factors, double sum) {
    return (float)(0.52 * (sum + scales.items + n_factors) + (n_factors + 8) * 2.4e9 * Lane<Real>::EPSILON + 4096);
}

// Returns whether each of the first counts[r] columns of every row is below the limit.
static bool in_range(const int32_t* columns, ptrdiff_t n_rows, ptrdiff_t n_columns, const int64_t* counts,
                     uint32_t limit) {
    enum { LANES = VECTOR_BYTES / sizeof(int32_t) };
    U32 too_large = {};
    bool all_below = true;
    // Entries after the first counts[r] columns of a row are not read as an index.
    for (ptrdiff_t r = 0; r < n_rows; ++r, columns += n_columns) {
        ptrdiff_t i = 0;
        for (; i + LANES <= counts[r]; i += LANES)
            too_large |= load<U32>(columns + i) >= limit;  // a negative column is too large as well
        for (; i < counts[r]; ++i) all_below &= (uint32_t)columns[i] < limit;
    }
    return all_below && !mask((Sums)too_large);
}

// The scale of a user, for comparison with sums of products in steps of the numbers of the user.
template <class Real>
struct Scaled {
    Real scale;
    float uncertainty;
};

template <class Real>
static inline int quantize_user(const Row<Real>& user, const Scales& scales, int16_t* out, Scaled<Real>* scaled) {
    const Size<Real> s = size(user);
    int faults = 0;
    *scaled = {0, __builtin_inff()};  // no comparison with it is true
    if (s.ordinary()) {
        const Real scale = (Real)scales.users / s.peak;
        *scaled = {scale, uncertainty<Real>(scales, user.n, (double)scale * s.sum)};
    } else if (!all_finite(user)) {
        faults = NOT_FINITE;
    }
    quantize(user, scaled->scale, out);
    return faults;
}

// Counts how many of n sums are above a score, and how many are equal to it; `exact_score` computes the score of an
// item. Returns whether all computed scores are finite.
//
// Most users have no sum within the uncertainty, and then no branch depends on one: with branches ranking took up to a
// quarter of the time, in some processes and not in others.
template <class Real, class Exact>
static inline bool count_scores(Real score, const Scaled<Real>& user, const int32_t* sums, const float* steps,
                                ptrdiff_t n, const Exact& exact_score, int64_t* above, int64_t* same) {
    enum { LANES = VECTOR_BYTES / sizeof(float) };
    const float scaled = (float)(score * user.scale);
    // (sum - uncertainty) step > score: the score of the item is greater for every rounding.
    const auto is_above = [&](ptrdiff_t i) __attribute__((always_inline)) {
        const Floats lower = __builtin_convertvector(load<Sums>(sums + i), Floats) - user.uncertainty;
        return (Sums)(lower * load<Floats>(steps + i) > scaled);
    };
    // (sum + uncertainty) step < score: the score of the item is less for every rounding.
    const auto is_below = [&](ptrdiff_t i) __attribute__((always_inline)) {
        const Floats upper = __builtin_convertvector(load<Sums>(sums + i), Floats) + user.uncertainty;
        return (Sums)(upper * load<Floats>(steps + i) < scaled);
    };
    Sums n_above = {}, uncertain = {};
    // The last vector is padded with sums that are below any score (`quantized_products`).
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const Sums greater = is_above(i);
        n_above -= greater;
        uncertain |= ~(greater | is_below(i));
    }
    const FourSums parts = add_parts(n_above);
    *above = (int64_t)parts[0] + parts[1] + parts[2] + parts[3];
    *same = 0;
    bool finite = score - score == 0;
    if (mask(uncertain))
        for (ptrdiff_t i = 0; i < n; i += LANES)
            for (uint64_t bits = mask(~(is_above(i) | is_below(i))); bits; bits &= bits - 1) {
                const ptrdiff_t k = i + __builtin_ctzll(bits);
                if (k >= n) break;  // after the last sum
                const Real other = exact_score(k);
                finite &= other - other == 0;
                *above += other > score;
                *same += other == score;
            }
    return finite;
}

template <class Real>
int HeldOut<Real>::block(const Real* users, ptrdiff_t n_rows, ptrdiff_t n_factors, const Real* items, ptrdiff_t n_items,
                         const int16_t* quantized, const float* steps, const int64_t* indptr, const int32_t* held_out,
                         const int32_t* other_items, ptrdiff_t n_other_items, const int64_t* counts, int16_t* x,
                         int32_t* sums, float* sum_steps, int64_t* above, int64_t* same) {
    const ptrdiff_t length = quantized_length(n_factors);
    const auto user = [=](ptrdiff_t r) {
        return Row<Real>{users + r * n_factors, n_factors, users + n_rows * n_factors};
    };
    const auto item = [=](ptrdiff_t i) {
        return Row<Real>{items + i * n_factors, n_factors, items + n_items * n_factors};
    };
    // Prefetch rows that the processor cannot predict. Here these are single rows of factors; below, each row
    // prefetches one of the next block, because all of them at once would delay the reads in progress.
    for (ptrdiff_t h = indptr[0]; h < indptr[n_rows]; ++h)
        for (ptrdiff_t f = 0; f < n_factors; f += Row<Real>::LINE) __builtin_prefetch(item(held_out[h]).numbers + f);

    const uint32_t limit = (uint32_t)(n_items < INT32_MAX ? n_items : INT32_MAX);
    int faults = in_range(other_items, n_rows, n_other_items, counts, limit) ? 0 : OUT_OF_RANGE;
    const Scales scales(n_factors);
    Scaled<Real> scaled[HELD_OUT_ROWS];
    for (ptrdiff_t r = 0; r < n_rows; ++r) faults |= quantize_user(user(r), scales, x + r * length, scaled + r);
    if (faults) return faults;  // before any column is used as an index

    for (ptrdiff_t r = 0; r < n_rows; ++r) {
        const int32_t* const columns = other_items + r * n_other_items;
        for (ptrdiff_t f = 0; f < n_factors; f += Row<Real>::LINE) __builtin_prefetch(user(n_rows + r).numbers + f);
        for (ptrdiff_t i = 0; i < n_other_items; i += HELD_OUT_LINE / sizeof *other_items)
            __builtin_prefetch(columns + n_rows * n_other_items + i);
        if (indptr[r] == indptr[r + 1]) continue;
        quantized_products(x + r * length, quantized, steps, length, columns, counts[r], sums, sum_steps);
        bool finite = true;
        // Each held-out item of the user is compared with the same other items.
        for (ptrdiff_t h = indptr[r]; h < indptr[r + 1]; ++h) {
            const Real score = product(user(r), item(held_out[h]));
            finite &= count_scores(
                score, scaled[r], sums, sum_steps, counts[r],
                [=](ptrdiff_t i) { return product(user(r), item(columns[i])); }, above + h, same + h);
        }
        if (!finite)
            for (ptrdiff_t h = indptr[r]; h < indptr[r + 1]; ++h) above[h] = -1;
    }
    return 0;
}

template <class Real>
double HeldOut<Real>::rank(Real score, const Real* other_scores, ptrdiff_t n) {
    int greater = 0, equal = 0, less = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        greater += other_scores[i] > score;
        equal += other_scores[i] == score;
        less += other_scores[i] < score;
    }
    if (score != score || greater + equal + less != n) return __builtin_nan("");  // a NaN
    return 1.0 + greater + 0.5 * equal;
}

template struct HeldOut<float>;
template struct HeldOut<double>;

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
