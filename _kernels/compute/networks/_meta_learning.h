// Vector code of `meta_learning`: the message of a client that differentiates through its own steps of SGD.
#pragma once
#include "_kernels/compute/networks/_two_tower.h"

namespace fastfedrec {

// Messages of clients: the change of the parameters, or minus the gradient of their query loss after the steps on their
// support examples, by the parameters after the steps, or by the parameters before them.
enum MetaOrder { META_ADAPTED = 0, META_FIRST_ORDER = 1, META_SECOND_ORDER = 2 };

template <class T>
struct MetaClients {
    const T *dense, *table;              // parameters that every client starts from
    const T *rates, *rates_table;        // learning rates of each of them; null for `network.learning_rate` in all
    const int64_t* users;
    const int64_t* starts;
    const int64_t* n_support;            // number of support examples, the first ones of each client
    const uint64_t* words;
    const int64_t* word_starts;
    const int64_t* row_starts;
    const int32_t* touched;
    const int64_t* out_starts;
    T* out;                              // dense weights, then theirs of the rates; touched rows, then theirs
    ptrdiff_t n_epochs, batch_size, order;
};

// Steps of a client, and how many of them have their parameters in memory at once: about the square root of all.
struct MetaPlan {
    ptrdiff_t n_steps, n_kept, n_segments;
    ptrdiff_t dense, size;  // numbers of a vector of the client's own: dense ones up to a whole line, and all
};

template <class T>
static inline MetaPlan network_meta_plan(const Network& network, const MetaClients<T>& clients, ptrdiff_t client) {
    const ptrdiff_t batches = (clients.n_support[client] + clients.batch_size - 1) / clients.batch_size;
    MetaPlan plan = {clients.n_epochs * batches, 0, 0, 0, 0};
    if (clients.order == META_SECOND_ORDER && plan.n_steps) {
        plan.n_kept = 1;
        while (plan.n_kept * plan.n_kept < plan.n_steps) ++plan.n_kept;
        plan.n_segments = (plan.n_steps + plan.n_kept - 1) / plan.n_kept;
    }
    plan.dense = (network_n_dense(network) + NETWORK_COLUMNS - 1) / NETWORK_COLUMNS * NETWORK_COLUMNS;
    plan.size = plan.dense + (clients.row_starts[client + 1] - clients.row_starts[client]) * network.layers[0].n_out;
    return plan;
}

#define FASTFEDREC_DECLARE_TYPE(T) \
    void network_meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory, \
                      int32_t* slots, int64_t* turns);
FASTFEDREC_EACH_LEVEL(FASTFEDREC_DECLARE_TYPE(float) FASTFEDREC_DECLARE_TYPE(double))
#undef FASTFEDREC_DECLARE_TYPE

// Numbers that `network_meta` needs room for, at a cache line.
template <class T>
static inline ptrdiff_t network_meta_room(const Network& network, const MetaClients<T>& clients, ptrdiff_t client) {
    const MetaPlan plan = network_meta_plan(network, clients, client);
    // The parameters and the message; marks and kept parameters; for rates three, and the slopes of kept steps, or one.
    const ptrdiff_t of_rates = clients.rates ? 3 + (plan.n_kept ? plan.n_kept : 1) : 0;
    return 2 * network_room(network) + (2 + plan.n_segments + plan.n_kept + of_rates) * plan.size;
}

// Computes the message of one client; `slots` has a number for each row of the table, `turns` one for each support
// example of each epoch.
template <class T>
static inline void network_meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory,
                                int32_t* slots, int64_t* turns) {
    FASTFEDREC_CALL(network_meta, network, clients, client, memory, slots, turns);
}

}  // namespace fastfedrec
