// See _two_tower.h; compiled once for each level.
#include "_kernels/compute/networks/_two_tower.h"

#include "_kernels/compute/networks/_step.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// ---- clients -------------------------------------------------------------------------------------------------------

template <class T>
static void train(const Network& network, const NetworkClients<T>& clients, ptrdiff_t client, T* memory, int32_t* slots,
                  int64_t* turn) {
    const ptrdiff_t n_dense = network_n_dense(network), width = network.layers[0].n_out;
    const T* table = clients.parameters + n_dense;
    T* weights = memory + network_room(network);
    T* embeddings = weights + (n_dense + NETWORK_COLUMNS - 1) / NETWORK_COLUMNS * NETWORK_COLUMNS;
    const int32_t* mine = clients.touched + clients.row_starts[client];
    const ptrdiff_t n_mine = clients.row_starts[client + 1] - clients.row_starts[client];
    copy_numbers(clients.parameters, n_dense, weights);
    // The client's copy of the rows it touches, side by side; slots holds the position of each.
    for (ptrdiff_t k = 0; k < n_mine; ++k) {
        slots[mine[k]] = (int32_t)k;
        copy_numbers(table + mine[k] * width, width, embeddings + k * width);
    }
    const int64_t first = clients.starts[client];
    const ptrdiff_t n = clients.starts[client + 1] - first;
    for (ptrdiff_t k = 0; k < n; ++k) turn[k] = first + k;
    int64_t draws = 2 * clients.word_starts[client];
    // Epochs of batches in shuffled order: theta_tau of Wang et al. 2021, equation 6.
    for (ptrdiff_t epoch = 0; epoch < clients.n_epochs; ++epoch) {
        draws = shuffle(turn, n, clients.words, draws);
        for (ptrdiff_t at = 0; at < n; at += clients.batch_size) {
            const ptrdiff_t size = n - at < clients.batch_size ? n - at : clients.batch_size;
            step_batch(network, weights, embeddings, weights, embeddings, slots, clients.users[client], turn + at, size,
                       memory);
        }
    }
    T* update = clients.out + clients.out_starts[client];
    // The client's message: theta_tau - theta_0, dense weights, then touched rows.
    for (ptrdiff_t k = 0; k < n_dense; ++k) update[k] = weights[k] - clients.parameters[k];
    update += n_dense;
    for (ptrdiff_t k = 0; k < n_mine; ++k)
        for (ptrdiff_t j = 0; j < width; ++j)
            update[k * width + j] = embeddings[k * width + j] - table[mine[k] * width + j];
}

// Adds a client's update: dense weights, then rows.
template <class T, class Total>
static void add_update(const T* update, const int32_t* rows, ptrdiff_t n_rows, ptrdiff_t n_dense, ptrdiff_t width,
                       Total* dense, Total* table) {
    for (ptrdiff_t k = 0; k < n_dense; ++k) dense[k] += update[k];
    update += n_dense;
    for (ptrdiff_t k = 0; k < n_rows; ++k)
        for (ptrdiff_t j = 0; j < width; ++j) table[rows[k] * width + j] += update[k * width + j];
}

// ---- scores --------------------------------------------------------------------------------------------------------

// The items' addition to layer 2 before its bias, (n_blocks, n_out, NETWORK_BLOCK).
template <class T>
static void run_items(const Network& network, T* weights, const T* embeddings, ptrdiff_t n_items, const Room<T>& room,
                      T* out) {
    const ptrdiff_t width = network.layers[0].n_out, n_in = network.layers[1].n_in;
    const Layer<T> part = items_part(network, weights, (T*)nullptr);
    for (ptrdiff_t first = 0; first < n_items; first += NETWORK_BLOCK, out += part.n_out * NETWORK_BLOCK) {
        const ptrdiff_t n = n_items - first < NETWORK_BLOCK ? n_items - first : NETWORK_BLOCK;
        for (ptrdiff_t j = 0; j < n; ++j)
            gather(embeddings, (const int32_t*)nullptr, network.items, first + j, width, room.by_example + j * n_in);
        turn_rows(room, 1, n);
        run_layer(weights, room, 1, whole_vectors<T>(n));
        multiply<COLUMNS_OF, true>(part.weights, part.n_out, room.outputs_of(1, room.inputs), NETWORK_BLOCK, part.n_in,
                                   out, NETWORK_BLOCK, part.n_out, whole_vectors<T>(n));
    }
}

template <class T>
static void score(const Network& network, const NetworkQueries<T>& queries, ptrdiff_t first, ptrdiff_t last,
                  T* memory) {
    typedef NativeVector<T> V;
    const ptrdiff_t n_dense = network_n_dense(network), width = network.layers[0].n_out,
                    n_out = network.layers[2].n_out;
    const ptrdiff_t n_embedded = queries.n_parameters - n_dense, n_items = queries.n_items;
    const Room<T> room(network, memory);
    T* weights = memory + network_room(network);
    // Multiples of NETWORK_COLUMNS, so that each part begins at a vector
    T* embeddings = weights + (n_dense + NETWORK_COLUMNS - 1) / NETWORK_COLUMNS * NETWORK_COLUMNS;
    T* from_items = embeddings + n_embedded;
    T* y = room.outputs_of(2, room.inputs);
    for (ptrdiff_t place = first; place < last; ++place) {
        const int64_t query = queries.order[place], client = queries.clients[query];
        // Queries of one client are consecutive: its weights, and the items' addition to layer 2, once for all of them.
        if (place == first || client != queries.clients[queries.order[place - 1]]) {
            copy_numbers(queries.parameters, n_dense, weights);
            copy_numbers(queries.parameters + n_dense, n_embedded, embeddings);
            if (client >= 0) {
                const int64_t rows = queries.row_starts[client];
                add_update(queries.values + queries.starts[client], queries.touched + rows,
                           queries.row_starts[client + 1] - rows, n_dense, width, weights, embeddings);
            }
            run_items(network, weights, embeddings, n_items, room, from_items);
        }
        gather_user(network, embeddings, (const int32_t*)nullptr, queries.users[query], queries.contexts[query],
                    room.user_x);
        run_user(weights, room);
        // Blocks of items: relu of the sum of both additions to layer 2, then the layers behind it.
        for (ptrdiff_t at = 0; at < n_items; at += NETWORK_BLOCK) {
            const ptrdiff_t n = n_items - at < NETWORK_BLOCK ? n_items - at : NETWORK_BLOCK;
            const ptrdiff_t n_columns = whole_vectors<T>(n);
            for (ptrdiff_t o = 0; o < n_out; ++o) {
                T* row = y + o * NETWORK_BLOCK;
                for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES)
                    store(row + j, load<V>(from_items + at * n_out + o * NETWORK_BLOCK + j) + spread<V>(room.bias[o]));
                rectify(row, n_columns);
            }
            for (ptrdiff_t k = 3; k + 1 < network.n_layers; ++k) run_layer(weights, room, k, n_columns);
            run_output(weights, room, n_columns);
            copy_numbers(room.sums, n, queries.out + query * n_items + at);  // query has its own row of `out`
        }
    }
}

#define FASTFEDREC_DEFINE(T) \
    void network_step(const Network& network, T* weights, T* embeddings, const int32_t* slots, int64_t user, \
                      const int64_t* batch, ptrdiff_t n, T* room) { \
        step_batch(network, weights, embeddings, weights, embeddings, slots, user, batch, n, room); \
    } \
    void network_train(const Network& network, const NetworkClients<T>& clients, ptrdiff_t client, T* memory, \
                       int32_t* slots, int64_t* turn) { \
        train(network, clients, client, memory, slots, turn); \
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
