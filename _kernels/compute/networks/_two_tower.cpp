// See _two_tower.h; compiled once for each level.
#include "_kernels/compute/networks/_two_tower.h"

#include "_kernels/compute/networks/_step.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// ---- clients -------------------------------------------------------------------------------------------------------

template <class T>
static void train(const Network& network, const NetworkClients<T>& clients, ptrdiff_t client, T* memory, int32_t* slots,
                  int64_t* example_order) {
    const ptrdiff_t n_dense = network_n_dense(network), width = network.layers[0].n_out;
    const T* table = clients.parameters + n_dense;
    T* weights = memory + network_scratch_size(network);
    T* embeddings = weights + (n_dense + NETWORK_COLUMNS - 1) / NETWORK_COLUMNS * NETWORK_COLUMNS;
    const int32_t* rows = clients.touched + clients.row_starts[client];
    const ptrdiff_t n_rows = clients.row_starts[client + 1] - clients.row_starts[client];
    copy_numbers(clients.parameters, n_dense, weights);
    // The client has a copy of the rows that it uses, side by side; `slots` has the position of each row.
    for (ptrdiff_t k = 0; k < n_rows; ++k) {
        slots[rows[k]] = (int32_t)k;
        copy_numbers(table + rows[k] * width, width, embeddings + k * width);
    }
    const int64_t first = clients.starts[client];
    const ptrdiff_t n = clients.starts[client + 1] - first;
    for (ptrdiff_t k = 0; k < n; ++k) example_order[k] = first + k;
    int64_t draws = 2 * clients.word_starts[client];
    // Each epoch takes batches in shuffled order: theta_tau of Wang et al. 2021, equation 6.
    for (ptrdiff_t epoch = 0; epoch < clients.n_epochs; ++epoch) {
        draws = shuffle(example_order, n, clients.words, draws);
        for (ptrdiff_t at = 0; at < n; at += clients.batch_size) {
            const ptrdiff_t size = n - at < clients.batch_size ? n - at : clients.batch_size;
            step_batch(network, weights, embeddings, weights, embeddings, slots, clients.users[client],
                       example_order + at, size, memory);
        }
    }
    T* update = clients.out + clients.out_starts[client];
    // The message is theta_tau - theta_0: dense weights, then touched rows.
    for (ptrdiff_t k = 0; k < n_dense; ++k) update[k] = weights[k] - clients.parameters[k];
    update += n_dense;
    for (ptrdiff_t k = 0; k < n_rows; ++k)
        for (ptrdiff_t j = 0; j < width; ++j)
            update[k * width + j] = embeddings[k * width + j] - table[rows[k] * width + j];
}

// Adds the update of a client: dense weights, then rows.
template <class T, class Total>
static void add_update(const T* update, const int32_t* rows, ptrdiff_t n_rows, ptrdiff_t n_dense, ptrdiff_t width,
                       Total* dense, Total* table) {
    for (ptrdiff_t k = 0; k < n_dense; ++k) dense[k] += update[k];
    update += n_dense;
    for (ptrdiff_t k = 0; k < n_rows; ++k)
        for (ptrdiff_t j = 0; j < width; ++j) table[rows[k] * width + j] += update[k * width + j];
}

// ---- scores --------------------------------------------------------------------------------------------------------

// Computes the addition of the items to layer 2 before its bias, (n_blocks, n_out, NETWORK_BLOCK).
template <class T>
static void run_items(const Network& network, T* weights, const T* embeddings, ptrdiff_t n_items,
                      const Scratch<T>& scratch, T* out) {
    const ptrdiff_t width = network.layers[0].n_out, n_in = network.layers[1].n_in;
    const Layer<T> part = items_part(network, weights, (T*)nullptr);
    for (ptrdiff_t first = 0; first < n_items; first += NETWORK_BLOCK, out += part.n_out * NETWORK_BLOCK) {
        const ptrdiff_t n = n_items - first < NETWORK_BLOCK ? n_items - first : NETWORK_BLOCK;
        for (ptrdiff_t j = 0; j < n; ++j)
            gather(embeddings, (const int32_t*)nullptr, network.items, first + j, width, scratch.by_example + j * n_in);
        transpose_inputs(scratch, 1, n);
        run_layer(weights, scratch, 1, whole_vectors<T>(n));
        multiply<COLUMNS_OF, true>(part.weights, part.n_out, scratch.outputs_of(1, scratch.inputs), NETWORK_BLOCK,
                                   part.n_in, out, NETWORK_BLOCK, part.n_out, whole_vectors<T>(n));
    }
}

template <class T>
static void score(const Network& network, const NetworkQueries<T>& queries, ptrdiff_t first, ptrdiff_t last,
                  T* memory) {
    typedef NativeVector<T> V;
    const ptrdiff_t n_dense = network_n_dense(network), width = network.layers[0].n_out,
                    n_out = network.layers[2].n_out;
    const ptrdiff_t n_embedded = queries.n_parameters - n_dense, n_items = queries.n_items;
    const Scratch<T> scratch(network, memory);
    T* weights = memory + network_scratch_size(network);
    // Sizes are multiples of NETWORK_COLUMNS, so that each part begins at a vector.
    T* embeddings = weights + (n_dense + NETWORK_COLUMNS - 1) / NETWORK_COLUMNS * NETWORK_COLUMNS;
    T* from_items = embeddings + n_embedded;
    T* y = scratch.outputs_of(2, scratch.inputs);
    for (ptrdiff_t position = first; position < last; ++position) {
        const int64_t query = queries.order[position], client = queries.clients[query];
        // Queries of one client are consecutive, so its weights, and the addition of the items to layer 2, are computed
        // once for all of them.
        if (position == first || client != queries.clients[queries.order[position - 1]]) {
            copy_numbers(queries.parameters, n_dense, weights);
            copy_numbers(queries.parameters + n_dense, n_embedded, embeddings);
            if (client >= 0) {
                const int64_t rows = queries.row_starts[client];
                add_update(queries.values + queries.starts[client], queries.touched + rows,
                           queries.row_starts[client + 1] - rows, n_dense, width, weights, embeddings);
            }
            run_items(network, weights, embeddings, n_items, scratch, from_items);
        }
        gather_user(network, embeddings, (const int32_t*)nullptr, queries.users[query], queries.contexts[query],
                    scratch.user_x);
        run_user(weights, scratch);
        // A block of items gets relu of the sum of both additions to layer 2, then the following layers.
        for (ptrdiff_t at = 0; at < n_items; at += NETWORK_BLOCK) {
            const ptrdiff_t n = n_items - at < NETWORK_BLOCK ? n_items - at : NETWORK_BLOCK;
            const ptrdiff_t n_columns = whole_vectors<T>(n);
            for (ptrdiff_t o = 0; o < n_out; ++o) {
                T* row = y + o * NETWORK_BLOCK;
                for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES)
                    store(row + j,
                          load<V>(from_items + at * n_out + o * NETWORK_BLOCK + j) + spread<V>(scratch.bias[o]));
                rectify(row, n_columns);
            }
            for (ptrdiff_t k = 3; k + 1 < network.n_layers; ++k) run_layer(weights, scratch, k, n_columns);
            run_output(weights, scratch, n_columns);
            copy_numbers(scratch.sums, n, queries.out + query * n_items + at);  // a row for each query
        }
    }
}

#define FASTFEDREC_DEFINE(T) \
    void network_step(const Network& network, T* weights, T* embeddings, const int32_t* slots, int64_t user, \
                      const int64_t* batch, ptrdiff_t n, T* scratch) { \
        step_batch(network, weights, embeddings, weights, embeddings, slots, user, batch, n, scratch); \
    } \
    void network_train(const Network& network, const NetworkClients<T>& clients, ptrdiff_t client, T* memory, \
                       int32_t* slots, int64_t* example_order) { \
        train(network, clients, client, memory, slots, example_order); \
    } \
    void network_score(const Network& network, const NetworkQueries<T>& queries, ptrdiff_t first, ptrdiff_t last, \
                       T* memory) { \
        score(network, queries, first, last, memory); \
    } \
    void network_add_double(const T* update, const int32_t* rows, ptrdiff_t n_rows, ptrdiff_t n_dense, \
                            ptrdiff_t width, double* out) { \
        add_update(update, rows, n_rows, n_dense, width, out, out + n_dense); \
    }
FASTFEDREC_DEFINE(float)
FASTFEDREC_DEFINE(double)
#undef FASTFEDREC_DEFINE

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
