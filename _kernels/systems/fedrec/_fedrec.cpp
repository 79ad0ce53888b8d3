// See _fedrec.h; compiled once for each level.  Products and sums are rounded separately and in the same order on every
// level, so all levels send the same integers.
#include "_kernels/systems/fedrec/_fedrec.h"

#include "_kernels/core/_lanes.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

typedef Vector<double, 4>::Type D4;
typedef Vector<double, FEDREC_LANES>::Type D8;
typedef Vector<uint64_t, FEDREC_LANES>::Type W8;
typedef Vector<int64_t, FEDREC_LANES>::Type I8;

// Runs `body` with the number of vectors of a row as a constant if it is small; 0 means any other number.
template <template <int> class Body, class... Arguments>
FASTFEDREC_INLINE void for_width(const FedRecPlan& plan, Arguments... arguments) {
    switch (plan.width / FEDREC_LANES) {
        case 1: return Body<1>::run(plan, arguments...);
        case 2: return Body<2>::run(plan, arguments...);
        case 3: return Body<3>::run(plan, arguments...);
        case 4: return Body<4>::run(plan, arguments...);
        default: return Body<0>::run(plan, arguments...);
    }
}

template <int N>
FASTFEDREC_INLINE ptrdiff_t vectors_of(const FedRecPlan& plan) {
    return N ? N : plan.width / FEDREC_LANES;
}

// Returns the sums of the products in each of four lanes.
template <int N>
FASTFEDREC_INLINE D4 quarters_of_dot(const double* x, const double* y, ptrdiff_t n_vectors) {
    D8 sum = load<D8>(x) * load<D8>(y);
#pragma GCC unroll 4
    for (ptrdiff_t v = 1; v < (N ? N : n_vectors); ++v)
        sum = sum + load<D8>(x + v * FEDREC_LANES) * load<D8>(y + v * FEDREC_LANES);
    return __builtin_shufflevector(sum, sum, 0, 1, 2, 3) + __builtin_shufflevector(sum, sum, 4, 5, 6, 7);
}

template <int N>
struct Step {
    static void run(const FedRecPlan& plan, const double* rated, const double* ratings, ptrdiff_t n, double* gradient,
                    double* x) {
        const ptrdiff_t n_vectors = vectors_of<N>(plan), width = n_vectors * FEDREC_LANES;
        for (ptrdiff_t v = 0; v < n_vectors; ++v) store(gradient + v * FEDREC_LANES, D8{});
        // Sums (x'v - r) v over the rated items, four at a time; rows after n are zeros and add 0.
        for (ptrdiff_t j = 0; j < n; j += FEDREC_ROWS) {
            const double* const rows = rated + j * width;
            D4 quarters[FEDREC_ROWS];
#pragma GCC unroll 4
            for (int i = 0; i < FEDREC_ROWS; ++i) quarters[i] = quarters_of_dot<N>(x, rows + i * width, n_vectors);
            const D4 errors = lane_sums<FEDREC_ROWS>(quarters) - load<D4>(ratings + j);  // x'v - r
#pragma GCC unroll 4
            for (ptrdiff_t v = 0; v < n_vectors; ++v) {
                const double* const at = rows + v * FEDREC_LANES;
                const D8 first = spread<D8>(errors[0]) * load<D8>(at) + spread<D8>(errors[1]) * load<D8>(at + width);
                const D8 last =
                    spread<D8>(errors[2]) * load<D8>(at + 2 * width) + spread<D8>(errors[3]) * load<D8>(at + 3 * width);
                store(gradient + v * FEDREC_LANES, load<D8>(gradient + v * FEDREC_LANES) + (first + last));
            }
        }
        // Computes x <- x - rate (mean of e v + reg x): Liang et al. 2021, equation 7; n > 0.
        for (ptrdiff_t v = 0; v < n_vectors; ++v) {
            const D8 old = load<D8>(x + v * FEDREC_LANES), mean = load<D8>(gradient + v * FEDREC_LANES) / (double)n;
            store(x + v * FEDREC_LANES, old - plan.learning_rate * (mean + plan.regularization * old));
        }
    }
};

template <int N>
struct Errors {
    static void run(const FedRecPlan& plan, const double* const* xs, const int32_t* items, const double* ratings,
                    ptrdiff_t n, double* errors) {
        const ptrdiff_t n_vectors = vectors_of<N>(plan), width = n_vectors * FEDREC_LANES;
        for (ptrdiff_t j = 0; j < n; j += FEDREC_ROWS) {
            D4 quarters[FEDREC_ROWS];
#pragma GCC unroll 4
            for (int i = 0; i < FEDREC_ROWS; ++i) {
                // After n the last item is repeated: its error is computed, but not written.
                const ptrdiff_t k = j + i < n ? j + i : n - 1;
                quarters[i] = quarters_of_dot<N>(xs[k], plan.factors + items[k] * width, n_vectors);
            }
            const D4 dots = lane_sums<FEDREC_ROWS>(quarters);
            for (ptrdiff_t i = 0; i < FEDREC_ROWS && j + i < n; ++i) errors[j + i] = dots[i] - ratings[j + i];
        }
    }
};

// Returns the integer nearest to a value, or the next one toward zero, limited to +-limit < 2^51: the low bits of x +
// 1.5 * 2^52 are the integer. NaN becomes the limit.
template <bool TOWARD_ZERO>
FASTFEDREC_INLINE W8 to_fixed(const D8& value, double limit) {
    const D8 upper = spread<D8>(limit);
    const double magic = 6755399441055744.0;
    // NaN is not below `upper`, so it becomes `upper`.
    D8 x = value < upper ? value : upper;
    x = x > -upper ? x : -upper;
    // |x| <= limit < 2^51, so the sum is from 2^52 to 2^53, where doubles are integers.
    D8 shifted = x + magic;
    if (TOWARD_ZERO) {
        const D8 nearest = shifted - magic;
        // If the nearest integer has a larger magnitude than x, take one step toward zero.
        const I8 is_over = (x > 0.0) & (nearest > x), is_under = (x < 0.0) & (nearest < x);  // -1 if true
        shifted = (D8)((I8)shifted + is_over - is_under);
    }
    return (W8)shifted - (uint64_t)0x4338000000000000;
}

template <int N, bool TOWARD_ZERO>
FASTFEDREC_INLINE void words_of(const FedRecPlan& plan, const double* x, double scale, const int32_t* items,
                                const double* errors, ptrdiff_t n, uint64_t* words) {
    const ptrdiff_t n_vectors = vectors_of<N>(plan), width = n_vectors * FEDREC_LANES;
    for (ptrdiff_t j = 0; j < n; ++j) {
        const double* const row = plan.factors + items[j] * width;
        uint64_t* const word = words + j * width;
#pragma GCC unroll 4
        for (ptrdiff_t v = 0; v < n_vectors; ++v) {
            const D8 user_vector = load<D8>(x + v * FEDREC_LANES), item = load<D8>(row + v * FEDREC_LANES);
            // Writes scale (e x + reg v) as integers: equation 3.
            const D8 gradient = scale * (errors[j] * user_vector + plan.regularization * item);
            // A diverged user sends zeros, because whether it sends must not depend on its data.
            store(word + v * FEDREC_LANES, scale == 0.0 ? W8{} : to_fixed<TOWARD_ZERO>(gradient, plan.limit));
        }
        word[plan.n_factors] = 1;  // the 1 after the factors counts the user; width > n_factors
    }
}

template <int N>
struct Words {
    static void run(const FedRecPlan& plan, const double* x, double scale, bool toward_zero, const int32_t* items,
                    const double* errors, ptrdiff_t n, uint64_t* words) {
        if (toward_zero) words_of<N, true>(plan, x, scale, items, errors, n, words);
        else words_of<N, false>(plan, x, scale, items, errors, n, words);
    }
};

template <int N>
struct Add {
    static void run(const FedRecPlan& plan, const int32_t* items, const uint64_t* words, const uint64_t* selected,
                    const uint64_t* masks, ptrdiff_t n, uint64_t* sums) {
        const ptrdiff_t n_vectors = vectors_of<N>(plan), width = n_vectors * FEDREC_LANES;
        // Each item has one row of sums; additions are modulo 2^64, so in any order.
        for (ptrdiff_t j = 0; j < n; ++j) {
            if (!masks && !selected[j]) continue;
            uint64_t* const sum = sums + items[j] * width;
#pragma GCC unroll 4
            for (ptrdiff_t v = 0; v < n_vectors; ++v) {
                const ptrdiff_t at = v * FEDREC_LANES;
                W8 word = load<W8>(words + j * width + at) & selected[j];
                if (masks) word += load<W8>(masks + j * width + at);
                store(sum + at, load<W8>(sum + at) + word);
            }
        }
    }
};

void fedrec_step(const FedRecPlan& plan, const double* rated, const double* ratings, ptrdiff_t n, double* gradient,
                 double* x) {
    for_width<Step>(plan, rated, ratings, n, gradient, x);
}

void fedrec_errors(const FedRecPlan& plan, const double* const* xs, const int32_t* items, const double* ratings,
                   ptrdiff_t n, double* errors) {
    for_width<Errors>(plan, xs, items, ratings, n, errors);
}

void fedrec_words(const FedRecPlan& plan, const double* x, double scale, bool toward_zero, const int32_t* items,
                  const double* errors, ptrdiff_t n, uint64_t* words) {
    for_width<Words>(plan, x, scale, toward_zero, items, errors, n, words);
}

void fedrec_add(const FedRecPlan& plan, const int32_t* items, const uint64_t* words, const uint64_t* selected,
                const uint64_t* masks, ptrdiff_t n, uint64_t* sums) {
    for_width<Add>(plan, items, words, selected, masks, n, sums);
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
