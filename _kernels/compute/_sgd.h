// Vector code of `sgd`: steps of stochastic gradient descent on pairs of rows, and predictions from them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum { SGD_LINE_BYTES = 64 };  // a row is whole cache lines; its last lanes are 0 or biases
enum SgdBiases {
    SGD_NO_BIASES,       // rows have only factors
    SGD_BIASES_IN_ROWS,  // a user's row ends in (b_u, 1), an item's in (1, c_i): p_u'q_i includes them
    SGD_SEPARATE_BIASES,   // in separate arrays, for rows without two free lanes
};
enum SgdLoss { SGD_SQUARED, SGD_ABSOLUTE, SGD_HUBER, SGD_LOGISTIC, SGD_CUSTOM_LOSS };

// Writes the loss of a prediction and a rating to the first number, its derivative by the prediction to the second, and
// a non-zero third number if it has no value, which ends the training.
typedef void (*SgdCustomLoss)(double prediction, double rating, double* out);

template <class Real>
struct SgdRating {  // a record of `_sgd_blocks`
    uint32_t user, item;
    Real rating, weight;
};

template <class Real>
struct SgdModel {
    Real *user_rows, *item_rows, *user_biases, *item_biases;
    ptrdiff_t width;  // lanes of a row
    double mean;
    int biases, loss;
    bool weighted;  // false: all weights are 1
    SgdCustomLoss custom_loss;
};

struct SgdRates {
    double learning_rate, regularization, bias_regularization;
};

#define FASTFEDREC_DECLARE_TYPE(Real) \
    bool train_blocks(const SgdModel<Real>& model, const SgdRating<Real>* ratings, const uint64_t* starts, \
                      ptrdiff_t n_blocks, const SgdRates& rates, double* losses, double* failed); \
    bool measure_ratings(const SgdModel<Real>& model, const SgdRating<Real>* ratings, ptrdiff_t n, double* loss); \
    bool copy_and_check(const Real* numbers, Real* copy, ptrdiff_t n, double limit); \
    void predict_pairs(const int64_t* users, const int64_t* items, ptrdiff_t n, const Real* user_factors, \
                       const Real* item_factors, ptrdiff_t n_factors, const Real* user_biases, \
                       const Real* item_biases, double mean, Real* out);
FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE_TYPE(float) FASTFEDREC_DECLARE_TYPE(double))
#undef FASTFEDREC_DECLARE_TYPE

// Takes one step for each rating of consecutive blocks, in order. Block b has ratings[starts[b]] to ratings[starts[b +
// 1] - 1], and losses[b] is the weighted sum of its losses before each step. If the custom loss has no value, it
// returns false, with the prediction and the rating in failed[0] and failed[1].
template <class Real>
static inline bool train_blocks(const SgdModel<Real>& model, const SgdRating<Real>* ratings, const uint64_t* starts,
                                ptrdiff_t n_blocks, const SgdRates& rates, double* losses, double* failed) {
    return FASTFEDREC_CALL(train_blocks, model, ratings, starts, n_blocks, rates, losses, failed);
}

// Computes the weighted sum of losses of n ratings without a step. If a loss has no value, it returns false, with the
// prediction and the rating in loss[0] and loss[1].
template <class Real>
static inline bool measure_ratings(const SgdModel<Real>& model, const SgdRating<Real>* ratings, ptrdiff_t n,
                                   double* loss) {
    return FASTFEDREC_CALL(measure_ratings, model, ratings, n, loss);
}

// Copies n numbers, which are whole cache lines; returns whether each magnitude is below `limit`, which is false for
// NaN.
template <class Real>
static inline bool copy_and_check(const Real* numbers, Real* copy, ptrdiff_t n, double limit) {
    return FASTFEDREC_CALL(copy_and_check, numbers, copy, n, limit);
}

template <class Real>
static inline void predict_pairs(const int64_t* users, const int64_t* items, ptrdiff_t n, const Real* user_factors,
                                 const Real* item_factors, ptrdiff_t n_factors, const Real* user_biases,
                                 const Real* item_biases, double mean, Real* out) {
    FASTFEDREC_CALL(predict_pairs, users, items, n, user_factors, item_factors, n_factors, user_biases, item_biases,
                    mean, out);
}

}  // namespace fastfedrec
