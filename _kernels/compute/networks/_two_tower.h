// Vector code of `two_tower`: a step of SGD of the two-tower network, a client's steps, and scores of all items.
#pragma once
#include <cstddef>
#include <cstdint>

#include "_kernels/core/_levels.h"

namespace fastfedrec {

struct NetworkLayer {
    int64_t n_in, n_out, weights, bias;  // numbers of inputs and outputs; indices of the first weight and bias
    int64_t inputs;                      // number of inputs of all previous layers
};

// Embedding rows of each field of each entry: rows of field f of entry e start at starts[e * n_fields + f].
struct NetworkTable {
    const int64_t* starts;
    const int32_t* rows;
    ptrdiff_t n_fields;
};

// A network and examples of its clients.
struct Network {
    const NetworkLayer* layers;  // users' tower, items' tower, hidden ones, output
    ptrdiff_t n_layers;
    NetworkTable users, contexts, items;
    const int64_t* example_items;
    const float* labels;
    const int64_t* example_contexts;
    ptrdiff_t n_columns;  // capacity in examples: a multiple of NETWORK_COLUMNS
    double learning_rate;
};

template <class T>
struct NetworkClients {
    const T* parameters;
    const int64_t* users;
    const int64_t* starts;
    const uint64_t* words;
    const int64_t* word_starts;
    const int64_t* row_starts;
    const int32_t* touched;
    const int64_t* out_starts;
    T* out;
    ptrdiff_t n_epochs, batch_size;
};

template <class T>
struct NetworkQueries {
    const T* parameters;
    ptrdiff_t n_parameters;
    const int64_t* users;
    const int64_t* contexts;
    const int64_t* clients;  // the client with the update that is added to the parameters; -1 for none
    const int64_t* order;    // queries, a client's queries consecutive
    const T* values;
    const int64_t* starts;
    const int64_t* row_starts;
    const int32_t* touched;
    T* out;
    ptrdiff_t n_items;
};

enum { NETWORK_COLUMNS = 16, NETWORK_BLOCK = 64 };  // a multiple of every level's lanes; items scored at once

static inline ptrdiff_t network_n_dense(const Network& network) {
    return network.layers[network.n_layers - 1].bias + 1;
}

// Returns the size of the scratch of `network_step` in numbers; it is a multiple of NETWORK_COLUMNS, like all its
// parts.
static inline ptrdiff_t network_scratch_size(const Network& network) {
    const NetworkLayer& last = network.layers[network.n_layers - 1];
    ptrdiff_t widest = network.n_columns;
    for (ptrdiff_t k = 0; k + 1 < network.n_layers; ++k) {
        if (network.layers[k].n_in > widest) widest = network.layers[k].n_in;
        if (network.layers[k].n_out > widest) widest = network.layers[k].n_out;
    }
    const NetworkLayer& user = network.layers[0];
    return 2 * (last.inputs + last.n_in) * network.n_columns + widest * (network.n_columns + 1) +
           2 * (user.n_in + user.n_out) + network.layers[2].n_out;
}

#define FASTFEDREC_DECLARE_TYPE(T) \
    void network_step(const Network& network, T* weights, T* embeddings, const int32_t* slots, int64_t user, \
                      const int64_t* batch, ptrdiff_t n, T* scratch); \
    void network_train(const Network& network, const NetworkClients<T>& clients, ptrdiff_t client, T* memory, \
                       int32_t* slots, int64_t* example_order); \
    void network_score(const Network& network, const NetworkQueries<T>& queries, ptrdiff_t first, ptrdiff_t last, \
                       T* memory); \
    void network_add_double(const T* update, const int32_t* rows, ptrdiff_t n_rows, ptrdiff_t n_dense, \
                            ptrdiff_t width, double* out);
FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE_TYPE(float) FASTFEDREC_DECLARE_TYPE(double))
#undef FASTFEDREC_DECLARE_TYPE

// Takes one step on n examples of a client; `slots` has the position of each row of the table in its embeddings.
template <class T>
static inline void network_step(const Network& network, T* weights, T* embeddings, const int32_t* slots, int64_t user,
                                const int64_t* batch, ptrdiff_t n, T* scratch) {
    FASTFEDREC_CALL(network_step, network, weights, embeddings, slots, user, batch, n, scratch);
}

// Returns the size of the scratch of `network_train` in numbers, at a cache line, for clients with at most `max_rows`
// rows.
static inline ptrdiff_t network_train_scratch_size(const Network& network, ptrdiff_t max_rows) {
    return network_scratch_size(network) + network_n_dense(network) + NETWORK_COLUMNS +
           max_rows * network.layers[0].n_out;
}

// Takes all steps of one client, and writes its update. `slots` has a number for each row of the table, and
// `example_order` one for each example.
template <class T>
static inline void network_train(const Network& network, const NetworkClients<T>& clients, ptrdiff_t client, T* memory,
                                 int32_t* slots, int64_t* example_order) {
    FASTFEDREC_CALL(network_train, network, clients, client, memory, slots, example_order);
}

// Returns the size of the scratch of `network_score` in numbers, at a cache line; `network.n_columns` is NETWORK_BLOCK.
static inline ptrdiff_t network_score_scratch_size(const Network& network, ptrdiff_t n_parameters, ptrdiff_t n_items) {
    const ptrdiff_t n_blocks = (n_items + NETWORK_BLOCK - 1) / NETWORK_BLOCK;
    return network_scratch_size(network) + n_parameters + 2 * NETWORK_COLUMNS +
           n_blocks * NETWORK_BLOCK * network.layers[2].n_out;
}

// Computes logits of all items for the queries order[first:last]; the part of the items is computed once for each
// client.
template <class T>
static inline void network_score(const Network& network, const NetworkQueries<T>& queries, ptrdiff_t first,
                                 ptrdiff_t last, T* memory) {
    FASTFEDREC_CALL(network_score, network, queries, first, last, memory);
}

// Adds the update of a client in double.
template <class T>
static inline void network_add_double(const T* update, const int32_t* rows, ptrdiff_t n_rows, ptrdiff_t n_dense,
                                      ptrdiff_t width, double* out) {
    FASTFEDREC_CALL(network_add_double, update, rows, n_rows, n_dense, width, out);
}

}  // namespace fastfedrec
