// Vector code of `meta_learning`: the message of a client that differentiates through its own steps of SGD.
#pragma once
#include "_kernels/compute/networks/_two_tower.h"

namespace fastfedrec {

// Messages of clients: the change of the parameters; minus the gradient of the query loss after the steps on support
// examples, by the parameters after the steps; or the same gradient by the parameters before them.
enum MetaOrder { META_ADAPTED = 0, META_FIRST_ORDER = 1, META_SECOND_ORDER = 2 };

template <class T>
struct MetaClients {
    const T *dense, *table;              // parameters that every client starts from
    const T *rates, *rates_table;        // learning rates of the parameters; null for `network.learning_rate`
    const int64_t* users;
    const int64_t* starts;
    const int64_t* n_support;            // number of support examples, the first ones of each client
    const uint64_t* words;
    const int64_t* word_starts;
    const int64_t* row_starts;
    const int32_t* touched;
    const int64_t* out_starts;
    T* out;                              // dense weights, then their rates; touched rows, then their rates
    ptrdiff_t n_epochs, batch_size, order;
};

// Steps of a client. A segment has about sqrt(n_steps) of them, and their parameters are in memory at the same time.
struct MetaPlan {
    ptrdiff_t n_steps, segment_length, n_segments;
    ptrdiff_t dense, size;  // sizes of a vector of the client: dense weights up to a whole line, and all
};

template <class T>
static inline MetaPlan network_meta_plan(const Network& network, const MetaClients<T>& clients, ptrdiff_t client) {
    const ptrdiff_t batches = (clients.n_support[client] + clients.batch_size - 1) / clients.batch_size;
    MetaPlan plan = {clients.n_epochs * batches, 0, 0, 0, 0};
    if (clients.order == META_SECOND_ORDER && plan.n_steps) {
        plan.segment_length = 1;
        while (plan.segment_length * plan.segment_length < plan.n_steps) ++plan.segment_length;
        plan.n_segments = (plan.n_steps + plan.segment_length - 1) / plan.segment_length;
    }
    plan.dense = (network_n_dense(network) + NETWORK_COLUMNS - 1) / NETWORK_COLUMNS * NETWORK_COLUMNS;
    plan.size = plan.dense + (clients.row_starts[client + 1] - clients.row_starts[client]) * network.layers[0].n_out;
    return plan;
}

#define FASTFEDREC_DECLARE_TYPE(T) \
    void network_meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory, \
                      int32_t* slots, int64_t* example_orders);
FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE_TYPE(float) FASTFEDREC_DECLARE_TYPE(double))
#undef FASTFEDREC_DECLARE_TYPE

// Returns the size of the scratch of `network_meta` in numbers, at a cache line.
template <class T>
static inline ptrdiff_t network_meta_scratch_size(const Network& network, const MetaClients<T>& clients,
                                                  ptrdiff_t client) {
    const MetaPlan plan = network_meta_plan(network, clients, client);
    // The scratch has the parameters and the message, checkpoints and the parameters of a segment. Rates need three
    // more vectors, and the slopes of the steps of a segment, or of one step.
    const ptrdiff_t n_rate_vectors = clients.rates ? 3 + (plan.segment_length ? plan.segment_length : 1) : 0;
    return 2 * network_scratch_size(network) + (2 + plan.n_segments + plan.segment_length + n_rate_vectors) * plan.size;
}

// Computes the message of one client. `slots` has a number for each row of the table, and `example_orders` has one for
// each support example of each epoch, and for each query example.
template <class T>
static inline void network_meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory,
                                int32_t* slots, int64_t* example_orders) {
    FASTFEDREC_CALL(network_meta, network, clients, client, memory, slots, example_orders);
}

}  // namespace fastfedrec
