// The arithmetic of a FedRec round over rows of factors (model.pyx defines it).
//
// Rows of factors, words and sums have a distance of `width` numbers: the number of factors plus one, rounded up to a
// multiple of eight. Factors end in zeros, so products need no special case, and the word after the factors counts the
// user.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum { FEDREC_LANES = 8, FEDREC_ROWS = 4 };  // a width is a multiple of the first, `n_rated` is padded to the second

// Inputs that all users of a round share.
struct FedRecPlan {
    const double* factors;  // (n_items, width)
    ptrdiff_t n_factors, width;
    double learning_rate, regularization, limit;
};

FASTFEDREC_EACH_LEVEL(
    void fedrec_step(const FedRecPlan& plan, const double* rated, const double* ratings, ptrdiff_t n,
                     double* gradient, double* x);
    void fedrec_errors(const FedRecPlan& plan, const double* const* xs, const int32_t* items, const double* ratings,
                       ptrdiff_t n, double* errors);
    void fedrec_words(const FedRecPlan& plan, const double* x, double scale, bool toward_zero, const int32_t* items,
                      const double* errors, ptrdiff_t n, uint64_t* words);
    void fedrec_add(const FedRecPlan& plan, const int32_t* items, const uint64_t* words, const uint64_t* selected,
                    const uint64_t* masks, ptrdiff_t n, uint64_t* sums);
)

// Computes x <- x - rate (mean of (x'v - r) v + reg x) over n > 0 rows v. Zeros pad rows and ratings to a multiple of
// FEDREC_ROWS; gradient (width,) is scratch.
static inline void fedrec_step(const FedRecPlan& plan, const double* rated, const double* ratings, ptrdiff_t n,
                               double* gradient, double* x) {
    FASTFEDREC_CALL(fedrec_step, plan, rated, ratings, n, gradient, x);
}

// Writes xs[j]'v - ratings[j], where v has the factors of items[j].
static inline void fedrec_errors(const FedRecPlan& plan, const double* const* xs, const int32_t* items,
                                 const double* ratings, ptrdiff_t n, double* errors) {
    FASTFEDREC_CALL(fedrec_errors, plan, xs, items, ratings, n, errors);
}

// Writes scale (errors[j] x + reg v) as integers, to the nearest or toward zero, limited to +-limit, and a 1: (n,
// width) words.
static inline void fedrec_words(const FedRecPlan& plan, const double* x, double scale, bool toward_zero,
                                const int32_t* items, const double* errors, ptrdiff_t n, uint64_t* words) {
    FASTFEDREC_CALL(fedrec_words, plan, x, scale, toward_zero, items, errors, n, words);
}

// Adds (words[j] & kept[j]) + masks[j] to the row of items[j]; masks may be null.
static inline void fedrec_add(const FedRecPlan& plan, const int32_t* items, const uint64_t* words,
                              const uint64_t* selected, const uint64_t* masks, ptrdiff_t n, uint64_t* sums) {
    FASTFEDREC_CALL(fedrec_add, plan, items, words, selected, masks, n, sums);
}

}  // namespace fastfedrec
