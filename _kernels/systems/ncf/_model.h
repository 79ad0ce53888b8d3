// Vector code of NCF: mini-batches of Adam or SGD on embeddings of users and items and the layers above, and scores.
//
// All widths are multiples of 16: the padding of a narrower embedding or layer is zero, has a gradient of zero, and
// stays zero.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

enum { NCF_COLUMNS = 16, NCF_BLOCK = 64 };  // a multiple of every level's lanes; items scored at once

// A row of the table has an embedding for the product, then one for the layers; either may have width 0.
struct NcfShape {
    ptrdiff_t product, tower;  // widths of both
    ptrdiff_t n_layers;
    const int64_t* widths;  // (n_layers + 1,): inputs of the first layer, 2 tower, then outputs of each layer
    ptrdiff_t n_users;      // rows of the table before the rows of items
};

// Parameters, and the state of Adam for each: means of gradients and of their squares.
template <class T>
struct NcfState {
    T *table, *table_means, *table_squares;  // (n_users + n_items, product + tower)
    int64_t* last;                           // number of steps of each row
    int32_t* slots;                          // index of the gradient of a row that is at the current step
    T *dense, *dense_means, *dense_squares;  // (n_dense,)
    // Factors of step t (the last ones from there on): rate / (1 - b1^t), and 1 / root of 1 - b2^t.
    const T *rates, *roots;
    ptrdiff_t n_rates;
    T regularization;
    bool adam;  // false: SGD, with the first rate
};

static inline ptrdiff_t ncf_width(const NcfShape& shape) { return shape.product + shape.tower; }

static inline ptrdiff_t ncf_n_dense(const NcfShape& shape) {
    ptrdiff_t n = shape.widths[shape.n_layers] + shape.product + NCF_COLUMNS;  // weights and bias of the output
    for (ptrdiff_t k = 0; k < shape.n_layers; ++k) n += (shape.widths[k] + 1) * shape.widths[k + 1];
    return n;
}

static inline ptrdiff_t ncf_widest(const NcfShape& shape) {
    ptrdiff_t widest = ncf_width(shape);
    for (ptrdiff_t k = 0; k <= shape.n_layers; ++k)
        if (shape.widths[k] > widest) widest = shape.widths[k];
    return widest;
}

static inline ptrdiff_t ncf_columns(ptrdiff_t n) { return (n + NCF_COLUMNS - 1) / NCF_COLUMNS * NCF_COLUMNS; }

// Returns the size of the scratch of the layers in numbers, for n_columns columns.
static inline ptrdiff_t ncf_layers_scratch_size(const NcfShape& shape, ptrdiff_t n_columns) {
    ptrdiff_t inputs = 0;
    for (ptrdiff_t k = 0; k <= shape.n_layers; ++k) inputs += shape.widths[k];
    return (2 * inputs + ncf_widest(shape) + 1) * n_columns + 2 * ncf_widest(shape);
}

// Returns the size of the scratch of `ncf_train` in numbers, which are zeros at first.
static inline ptrdiff_t ncf_train_scratch_size(const NcfShape& shape, ptrdiff_t batch_size) {
    const ptrdiff_t n_columns = ncf_columns(batch_size), n_dense = ncf_n_dense(shape);
    return ncf_layers_scratch_size(shape, n_columns) + 2 * n_columns * ncf_width(shape) + 2 * n_dense;
}

// Returns the size of the scratch of `ncf_score` in numbers.
static inline ptrdiff_t ncf_score_scratch_size(const NcfShape& shape) {
    return ncf_layers_scratch_size(shape, NCF_BLOCK) + ncf_widest(shape) + shape.product;
}

// Returns the size of the contribution of the items to the first layer, in numbers.
static inline ptrdiff_t ncf_items_size(const NcfShape& shape, ptrdiff_t n_items) {
    return shape.n_layers ? (n_items + NCF_BLOCK - 1) / NCF_BLOCK * NCF_BLOCK * shape.widths[1] : 0;
}

#define FASTFEDREC_DECLARE_TYPE(T) \
    double ncf_train(const NcfShape& shape, const NcfState<T>& state, const uint64_t* examples, ptrdiff_t n, \
                     ptrdiff_t batch_size, int64_t step, T* memory, int32_t* rows); \
    void ncf_catch_up(const NcfShape& shape, const NcfState<T>& state, ptrdiff_t row, int64_t step, T* memory); \
    void ncf_items(const NcfShape& shape, const T* table, const T* dense, ptrdiff_t first, ptrdiff_t n, T* out, \
                   T* memory); \
    void ncf_score(const NcfShape& shape, const T* table, const T* dense, const T* from_items, ptrdiff_t n_items, \
                   int64_t user, double* out, T* memory);
FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE_TYPE(float) FASTFEDREC_DECLARE_TYPE(double))
#undef FASTFEDREC_DECLARE_TYPE

// Takes the steps after `step` on batches of n examples, one after the other; returns the sum of their losses, each
// before its step. `rows` has a capacity of two batches.
template <class T>
static inline double ncf_train(const NcfShape& shape, const NcfState<T>& state, const uint64_t* examples, ptrdiff_t n,
                               ptrdiff_t batch_size, int64_t step, T* memory, int32_t* rows) {
    return FASTFEDREC_CALL(ncf_train, shape, state, examples, n, batch_size, step, memory, rows);
}

// Takes the steps up to `step` in which the row had a gradient of zero; `memory` has a capacity of one row.
template <class T>
static inline void ncf_catch_up(const NcfShape& shape, const NcfState<T>& state, ptrdiff_t row, int64_t step,
                                T* memory) {
    FASTFEDREC_CALL(ncf_catch_up, shape, state, row, step, memory);
}

// Computes the contribution of n items, at most NCF_BLOCK, to the first layer: (n_out, NCF_BLOCK).
template <class T>
static inline void ncf_items(const NcfShape& shape, const T* table, const T* dense, ptrdiff_t first, ptrdiff_t n,
                             T* out, T* memory) {
    FASTFEDREC_CALL(ncf_items, shape, table, dense, first, n, out, memory);
}

// Computes the logits of a user for all items, from the results of `ncf_items` for every block.
template <class T>
static inline void ncf_score(const NcfShape& shape, const T* table, const T* dense, const T* from_items,
                             ptrdiff_t n_items, int64_t user, double* out, T* memory) {
    FASTFEDREC_CALL(ncf_score, shape, table, dense, from_items, n_items, user, out, memory);
}

}  // namespace fastfedrec
