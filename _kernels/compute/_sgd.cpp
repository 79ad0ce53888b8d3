// One level's code of _sgd.h.
//
// For the squared loss, where a branch would cost a tenth of the time, the loop over ratings is specialised by the number
// of lines of a row, up to four, so that two pairs of rows stay in registers if there are enough; by the layout of the
// biases; and by whether ratings have weights.
#include "_kernels/compute/_sgd.h"

#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

namespace {

enum {
    VECTORS_PER_LINE = SGD_LINE_BYTES / VECTOR_BYTES,
    REGISTERS = VECTOR_BYTES == 64 ? 32 : 16,
    PREFETCH_DISTANCE = 16,  // in ratings: rows of a pair of blocks may exceed the first-level cache
};

template <class Real>
struct Lanes {
    enum { N = Native<Real>::LANES };
    typedef typename Vector<Real, N>::Type Wide;
};

FASTFEDREC_INLINE float lane_total(const F4& x) {
    const F4 pairs = x + __builtin_shufflevector(x, x, 2, 3, 0, 1);
    return pairs[0] + pairs[1];
}
FASTFEDREC_INLINE float lane_total(const F8& x) { return lane_total(quarter_sums(x)); }
FASTFEDREC_INLINE float lane_total(const F16& x) { return lane_total(quarter_sums(x)); }

typedef Vector<double, 2>::Type D2;
typedef Vector<double, 4>::Type D4;
typedef Vector<double, 8>::Type D8;
FASTFEDREC_INLINE double lane_total(const D2& x) { return x[0] + x[1]; }
FASTFEDREC_INLINE double lane_total(const D4& x) {
    const D2 halves = __builtin_shufflevector(x, x, 0, 1) + __builtin_shufflevector(x, x, 2, 3);
    return lane_total(halves);
}
FASTFEDREC_INLINE double lane_total(const D8& x) {
    const D4 halves = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
    return lane_total(halves);
}

// ---- pairs of rows ----------------------------------------------------------------------------------------------

// The rows of a rating. If two pairs leave half of the registers free, the step reuses the vectors of the prediction.
template <class Real, int LINES>
struct Pair {
    typedef typename Lanes<Real>::Wide Wide;
    enum { N = Lanes<Real>::N, VECTORS = LINES * VECTORS_PER_LINE, IN_REGISTERS = LINES && 8 * VECTORS <= REGISTERS };

    Real *p, *q;
    Wide user_vectors[IN_REGISTERS ? VECTORS : 1], item_vectors[IN_REGISTERS ? VECTORS : 1];

    FASTFEDREC_MEMBER void load_rows(Real* user_row, Real* item_row) {
        p = user_row;
        q = item_row;
        if constexpr (IN_REGISTERS) {
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) {
                user_vectors[v] = load<Wide>(p + v * N);
                item_vectors[v] = load<Wide>(q + v * N);
            }
        }
    }
    FASTFEDREC_MEMBER Wide user(ptrdiff_t v) const { return IN_REGISTERS ? user_vectors[v] : load<Wide>(p + v * N); }
    FASTFEDREC_MEMBER Wide item(ptrdiff_t v) const { return IN_REGISTERS ? item_vectors[v] : load<Wide>(q + v * N); }
};

// Rows of LINES cache lines, or of any number if LINES is 0.
template <class Real, int LINES, int BIASES>
struct Pairs {
    typedef typename Lanes<Real>::Wide Wide;
    enum { N = Lanes<Real>::N };

    // The compiler knows that no step writes to these copies.
    Real *const user_rows, *const item_rows, *const user_biases, *const item_biases;
    const ptrdiff_t any_width;
    const Real mean;

    explicit Pairs(const SgdModel<Real>& model)
        : user_rows(model.user_rows),
          item_rows(model.item_rows),
          user_biases(model.user_biases),
          item_biases(model.item_biases),
          any_width(model.width),
          mean((Real)model.mean) {}

    FASTFEDREC_MEMBER ptrdiff_t width() const { return LINES ? LINES * SGD_LINE_BYTES / (int)sizeof(Real) : any_width; }

    // Addresses are computed in bytes: with lanes, GCC computes each line of a row anew, which took 1 to 8% of a step.
    FASTFEDREC_MEMBER Real* row(Real* rows, ptrdiff_t at) const {
        return (Real*)((char*)rows + at * (width() * (ptrdiff_t)sizeof(Real)));
    }

    FASTFEDREC_MEMBER void prefetch(ptrdiff_t u, ptrdiff_t i) const {
        for (ptrdiff_t at = 0; at < width(); at += VECTORS_PER_LINE * N) {
            __builtin_prefetch(row(user_rows, u) + at, 1);
            __builtin_prefetch(row(item_rows, i) + at, 1);
        }
    }

    // Returns mean + b_u + c_i + p_u'q_i - target, and loads the rows.
    FASTFEDREC_MEMBER Real predict(ptrdiff_t u, ptrdiff_t i, Real target, Pair<Real, LINES>& rows) const {
        // A line of one vector has two sums, which halves the wait for the last addition.
        constexpr int parts =
            LINES == 4 && VECTORS_PER_LINE == 1 && BIASES != SGD_SEPARATE_BIASES ? 2 : VECTORS_PER_LINE;
        rows.load_rows(row(user_rows, u), row(item_rows, i));
        // The sum starts from mean + b_u + c_i - target; biases in rows are added at the end, as they may arrive late.
        const Real start = (BIASES == SGD_SEPARATE_BIASES ? mean + (user_biases[u] + item_biases[i]) : mean) - target;
        Wide sums[parts] = {};
        if constexpr (BIASES != SGD_SEPARATE_BIASES) sums[0][0] = start;
#pragma GCC unroll 4
        for (int v = 0; v < parts; ++v)
            sums[v] = v || BIASES == SGD_SEPARATE_BIASES ? rows.user(v) * rows.item(v)
                                                         : fused(rows.user(v), rows.item(v), sums[v]);
        // The vectors of p_u'q_i alternate between `parts` sums: an order that does not depend on the data.
#pragma GCC unroll 4
        for (ptrdiff_t first = parts; first < width() / N; first += parts)
#pragma GCC unroll 4
            for (int v = 0; v < parts; ++v) sums[v] = fused(rows.user(first + v), rows.item(first + v), sums[v]);
#pragma GCC unroll 4
        for (int v = 1; v < parts; ++v) sums[0] += sums[v];
        return BIASES == SGD_SEPARATE_BIASES ? start + lane_total(sums[0]) : lane_total(sums[0]);
    }
};

// Coefficients of the rows in one step, without its slope.
template <class Real, int LINES, int BIASES>
struct Steps {
    typedef typename Lanes<Real>::Wide Wide;
    typedef decltype(Wide{} == Wide{}) Mask;
    enum { N = Lanes<Real>::N };

    const Real decay, bias_decay;
    // The last vectors of rows with biases: `bias_decay` applies to the bias, and the 1 next to it stays.
    Wide user_decay, item_decay;
    Mask user_mask, item_mask;

    explicit Steps(const SgdRates& rates)
        // 1 - a l, for factors
        : decay((Real)(1 - rates.learning_rate * rates.regularization)),
          // 1 - a h, for biases
          bias_decay((Real)(1 - rates.learning_rate * rates.bias_regularization)) {
        user_decay = item_decay = spread<Wide>(decay);
        user_mask = item_mask = ~Mask{};
        // A user's row ends in (b_u, 1), an item's in (1, c_i).
        user_decay[N - 2] = item_decay[N - 1] = bias_decay;
        user_decay[N - 1] = item_decay[N - 2] = 1;
        user_mask[N - 1] = item_mask[N - 2] = 0;
    }

    // p_u <- decay p_u + step q_i and q_i <- decay q_i + step p_u, both from the old rows; biases are updated likewise.
    FASTFEDREC_MEMBER void apply(const Pairs<Real, LINES, BIASES>& pairs, const Pair<Real, LINES>& rows, ptrdiff_t u,
                                 ptrdiff_t i, Real step) const {
        if constexpr (BIASES == SGD_SEPARATE_BIASES) {
            // b_u <- (1 - a h) b_u - a g: `step` is -a g
            pairs.user_biases[u] = bias_decay * pairs.user_biases[u] + step;
            pairs.item_biases[i] = bias_decay * pairs.item_biases[i] + step;
        }
        const ptrdiff_t whole = pairs.width() / N - (BIASES == SGD_BIASES_IN_ROWS);
        const Wide steps = spread<Wide>(step), decays = spread<Wide>(decay);
#pragma GCC unroll 16
        for (ptrdiff_t v = 0; v < whole; ++v) {
            // Both p_u and q_i are read before either is written.
            const Wide a = rows.user(v), b = rows.item(v);
            store(rows.p + v * N, fused(steps, b, decays * a));  // the product on the right does not wait for the slope
            store(rows.q + v * N, fused(steps, a, decays * b));
        }
        if constexpr (BIASES == SGD_BIASES_IN_ROWS) {
            const Wide a = rows.user(whole), b = rows.item(whole);
            // The 1 next to a bias has no step, and a factor of 1.
            store(rows.p + whole * N, fused((Wide)((Mask)steps & user_mask), b, user_decay * a));
            store(rows.q + whole * N, fused((Wide)((Mask)steps & item_mask), a, item_decay * b));
        }
    }
};

// ---- losses -----------------------------------------------------------------------------------------------------

// Adds the weighted loss, in double and in units of UNIT, and computes its derivative; returns false if it has no
// value. A loss that depends on the error alone gets the error: its sum begins with the rating.

template <bool WEIGHTS>  // false: all weights are 1
struct Squared {
    static constexpr double UNIT = .5;
    static constexpr bool OF_ERROR = true, WEIGHTED = WEIGHTS;

    Squared() {}
    template <class Real>
    explicit Squared(const SgdModel<Real>&) {}

    template <class Real>
    FASTFEDREC_MEMBER bool operator()(Real error, const SgdRating<Real>& to, double& total, Real& slope) const {
        // `error` is s - r, the derivative of (s - r)^2 / 2; `total` gets w (s - r)^2, in units of 1/2.
        slope = error;
        total = fused((double)error, (double)(WEIGHTED ? error * to.weight : error), total);
        return true;
    }
};

struct AnyLoss {
    static constexpr double UNIT = 1;
    static constexpr bool OF_ERROR = false, WEIGHTED = true;

    const int kind;
    const SgdCustomLoss custom;

    template <class Real>
    explicit AnyLoss(const SgdModel<Real>& model) : kind(model.loss), custom(model.custom_loss) {}

    template <class Real>
    FASTFEDREC_MEMBER bool operator()(Real prediction, const SgdRating<Real>& to, double& total, Real& slope) const {
        double loss;
        const bool has_loss = unweighted_loss(prediction, to, loss, slope);
        total += loss * (double)to.weight;
        return has_loss;
    }

    template <class Real>
    FASTFEDREC_MEMBER bool unweighted_loss(Real prediction, const SgdRating<Real>& to, double& loss,
                                           Real& slope) const {
        const double s = (double)prediction, r = (double)to.rating, error = s - r;
        switch (kind) {
            case SGD_SQUARED:
                slope = prediction - to.rating;
                loss = (double)slope * (double)slope / 2;
                return true;
            case SGD_ABSOLUTE:  // NaN has no sign, but its loss is NaN
                slope = (Real)(error > 0) - (Real)(error < 0);  // sign of s - r; 0 at 0
                loss = __builtin_fabs(error);
                return true;
            case SGD_HUBER: {
                // (s - r)^2 / 2 within 1, |s - r| - 1/2 beyond; the derivative is s - r cut off at +-1.
                const double clipped = error > 1 ? 1 : error < -1 ? -1 : error;
                slope = (Real)clipped;
                loss = clipped * (error - clipped / 2);
                return true;
            }
            case SGD_LOGISTIC: {
                // `small` is at most 1, so neither sigmoid nor logarithm overflows.
                const double small = __builtin_exp(-__builtin_fabs(s));
                slope = (Real)((s >= 0 ? 1 : small) / (1 + small) - r);  // sigmoid(s) - r
                loss = (s > 0 ? s : 0) + __builtin_log1p(small) - r * s;  // log(1 + e^s) - r s
                return true;
            }
            default: {
                double out[3] = {0, 0, 1};  // no loss, until the function reports one
                custom(s, r, out);
                slope = (Real)out[1];
                loss = out[0];
                return out[2] == 0;
            }
        }
    }
};

// ---- passes over ratings ----------------------------------------------------------------------------------------

template <class Real>
FASTFEDREC_INLINE bool fail(Real prediction, Real rating, double* failed) {
    failed[0] = (double)prediction;
    failed[1] = (double)rating;
    return false;
}

// A rating is predicted before the step of the previous rating if the two share no row, with the same numbers: the
// processor starts the next sum before the last one ends. All blocks are one stream: prefetches and predictions for a
// block before its start are 3% of an epoch with blocks of 4,000.
template <class Loss, int LINES, int BIASES, class Real>
bool train(const SgdModel<Real>& model, const SgdRating<Real>* ratings, const uint64_t* starts, ptrdiff_t n_blocks,
           const SgdRates& rates, double* losses, double* failed) {
    const Pairs<Real, LINES, BIASES> pairs(model);
    const Steps<Real, LINES, BIASES> steps(rates);
    const Loss loss_of(model);
    const Real rate = (Real)rates.learning_rate;
    double total = 0;
    Pair<Real, LINES> even, odd;  // rows of alternating ratings, so that none is copied from register to register
    // Predicts a rating, or its error for a loss of the error.
    const auto predict = [&](ptrdiff_t k, Pair<Real, LINES>& rows) __attribute__((always_inline)) {
        return pairs.predict(ratings[k].user, ratings[k].item, Loss::OF_ERROR ? ratings[k].rating : 0, rows);
    };
    const auto take_step = [&](ptrdiff_t k, Real prediction,
                               const Pair<Real, LINES>& rows) __attribute__((always_inline)) {
        const SgdRating<Real>& rating = ratings[k];
        Real slope;  // dloss/ds; the step is -a w times it
        if (!loss_of(prediction, rating, total, slope)) return fail(prediction, rating.rating, failed);
        steps.apply(pairs, rows, rating.user, rating.item, -rate * (Loss::WEIGHTED ? rating.weight : 1) * slope);
        return true;
    };
    // k < n - PREFETCH_DISTANCE in every call: the prefetched and the next rating exist.
    const auto prefetch = [&](ptrdiff_t k) __attribute__((always_inline)) {
        pairs.prefetch(ratings[k + PREFETCH_DISTANCE].user, ratings[k + PREFETCH_DISTANCE].item);
    };
    const auto shares_no_row = [&](ptrdiff_t k) __attribute__((always_inline)) {
        return __builtin_expect(ratings[k].user != ratings[k + 1].user && ratings[k].item != ratings[k + 1].item, 1);
    };
    ptrdiff_t k = (ptrdiff_t)starts[0];
    const ptrdiff_t n = (ptrdiff_t)starts[n_blocks];
    Real prediction = k < n ? predict(k, even) : 0;
    for (ptrdiff_t block = 0; block < n_blocks; ++block) {
        const ptrdiff_t end = (ptrdiff_t)starts[block + 1],
                        pairs_end = end < n - PREFETCH_DISTANCE ? end : n - PREFETCH_DISTANCE;
        total = 0;
        while (k < end) {
            // Pairs of ratings, so that `even` and `odd` alternate without a copy. No step writes to a row that the next
            // prediction reads.
            for (; k + 1 < pairs_end && shares_no_row(k) && shares_no_row(k + 1); k += 2) {
                prefetch(k);
                const Real after = predict(k + 1, odd);
                if (!take_step(k, prediction, even)) return false;
                prefetch(k + 1);
                prediction = predict(k + 2, even);
                if (!take_step(k + 1, after, odd)) return false;
            }
            if (k == end) break;
            // The next rating shares a row, or is the last one of a block: its prediction comes after the step.
            if (k < pairs_end) prefetch(k);
            if (!take_step(k, prediction, even)) return false;
            if (++k < n) prediction = predict(k, even);
        }
        losses[block] = total * Loss::UNIT;
    }
    return true;
}

template <int LINES, int BIASES, class Real>
bool measure(const SgdModel<Real>& model, const SgdRating<Real>* ratings, ptrdiff_t n, double* loss) {
    const Pairs<Real, LINES, BIASES> pairs(model);
    const AnyLoss loss_of(model);
    double total = 0;
    Pair<Real, LINES> rows;
    // Losses are added in the order of ratings, in double.
    for (ptrdiff_t k = 0; k < n; ++k) {
        const Real prediction = pairs.predict(ratings[k].user, ratings[k].item, 0, rows);
        Real slope;
        if (!loss_of(prediction, ratings[k], total, slope)) return fail(prediction, ratings[k].rating, loss);
    }
    loss[0] = total;
    return true;
}

template <int I>
struct Number {
    enum { VALUE = I };
};

// Calls a function with the lines of a row and the layout of the biases as types.
template <int BIASES, class Real, class Call>
FASTFEDREC_INLINE bool with_lines(const SgdModel<Real>& model, const Call& call) {
    switch (model.width * sizeof(Real) / SGD_LINE_BYTES) {
        case 1: return call(Number<1>(), Number<BIASES>());
        case 2: return call(Number<2>(), Number<BIASES>());
        case 3: return call(Number<3>(), Number<BIASES>());
        case 4: return call(Number<4>(), Number<BIASES>());
        default: return call(Number<0>(), Number<BIASES>());
    }
}

template <class Real, class Call>
FASTFEDREC_INLINE bool with_layout(const SgdModel<Real>& model, const Call& call) {
    switch (model.biases) {
        case SGD_NO_BIASES: return with_lines<SGD_NO_BIASES>(model, call);
        case SGD_BIASES_IN_ROWS: return with_lines<SGD_BIASES_IN_ROWS>(model, call);
        default: return with_lines<SGD_SEPARATE_BIASES>(model, call);
    }
}

// Code of AnyLoss: rows of four lines have an order of additions of their own, and a known length saves no time.
constexpr int any_loss_lines(int lines) { return lines == 4 ? 4 : 0; }

template <class Real>
bool any_train(const SgdModel<Real>& model, const SgdRating<Real>* ratings, const uint64_t* starts, ptrdiff_t n_blocks,
               const SgdRates& rates, double* losses, double* failed) {
    return with_layout(model, [&](auto lines, auto biases) {
        constexpr int l = decltype(lines)::VALUE, b = decltype(biases)::VALUE;
        const auto run = model.loss != SGD_SQUARED ? train<AnyLoss, any_loss_lines(l), b, Real>
                         : model.weighted          ? train<Squared<true>, l, b, Real>
                                                   : train<Squared<false>, l, b, Real>;
        return run(model, ratings, starts, n_blocks, rates, losses, failed);
    });
}

template <class Real>
bool any_measure(const SgdModel<Real>& model, const SgdRating<Real>* ratings, ptrdiff_t n, double* loss) {
    return with_layout(model, [&](auto lines, auto biases) {
        return measure<any_loss_lines(decltype(lines)::VALUE), decltype(biases)::VALUE>(model, ratings, n, loss);
    });
}

template <class Real>
bool copy_checked(const Real* numbers, Real* copy, ptrdiff_t n, double limit) {
    typedef typename Lanes<Real>::Wide Wide;
    const Wide high = spread<Wide>((Real)limit);
    auto is_below = high == high;
    for (ptrdiff_t k = 0; k < n; k += Lanes<Real>::N) {
        const Wide x = load<Wide>(numbers + k);
        is_below &= (x < high) & (x > -high);
        store(copy + k, x);
    }
    bool all = true;
    for (int lane = 0; lane < Lanes<Real>::N; ++lane) all &= is_below[lane] != 0;
    return all;
}

template <class Real>
void predict(const int64_t* users, const int64_t* items, ptrdiff_t n, const Real* user_factors,
             const Real* item_factors, ptrdiff_t n_factors, const Real* user_biases, const Real* item_biases,
             double mean, Real* out) {
    typedef typename Lanes<Real>::Wide Wide;
    constexpr int lanes = Lanes<Real>::N;
    for (ptrdiff_t k = 0; k < n; ++k) {
        const Real *p = user_factors + users[k] * n_factors, *q = item_factors + items[k] * n_factors;
        Wide sums = Wide{};
        ptrdiff_t f = 0;
        // Whole vectors come first, then single numbers: the order is the same for each pair.
        for (; f + lanes <= n_factors; f += lanes) sums = fused(load<Wide>(p + f), load<Wide>(q + f), sums);
        Real total = (Real)mean + user_biases[users[k]] + item_biases[items[k]] + lane_total(sums);
        for (; f < n_factors; ++f) total += p[f] * q[f];
        out[k] = total;
    }
}

}  // namespace

#define FASTFEDREC_DEFINE(Real) \
    bool train_blocks(const SgdModel<Real>& model, const SgdRating<Real>* ratings, const uint64_t* starts, \
                      ptrdiff_t n_blocks, const SgdRates& rates, double* losses, double* failed) { \
        return any_train(model, ratings, starts, n_blocks, rates, losses, failed); \
    } \
    bool measure_ratings(const SgdModel<Real>& model, const SgdRating<Real>* ratings, ptrdiff_t n, double* loss) { \
        return any_measure(model, ratings, n, loss); \
    } \
    bool copy_and_check(const Real* numbers, Real* copy, ptrdiff_t n, double limit) { \
        return copy_checked(numbers, copy, n, limit); \
    } \
    void predict_pairs(const int64_t* users, const int64_t* items, ptrdiff_t n, const Real* user_factors, \
                       const Real* item_factors, ptrdiff_t n_factors, const Real* user_biases, \
                       const Real* item_biases, double mean, Real* out) { \
        predict(users, items, n, user_factors, item_factors, n_factors, user_biases, item_biases, mean, out); \
    }
FASTFEDREC_DEFINE(float)
FASTFEDREC_DEFINE(double)
#undef FASTFEDREC_DEFINE

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
