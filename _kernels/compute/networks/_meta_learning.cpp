// See _meta_learning.h; compiled once for each level.
#include "_kernels/compute/networks/_meta_learning.h"

#include "_kernels/compute/networks/_step.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// ---- Hessian times direction: forward over reverse -----------------------------------------------------------------
//
// Of the step of `_step.h` the derivative along a direction.  With U, b' for the direction's part of a layer and a dot
// for derivatives along it, y = relu(W'x + b) gives
//
//     y. = W'x. + U'x + b'        dx. = W dy. + U dy        dW. = x. dy' + x dy.'        (all 0 where relu cuts off)
//
// and the embeddings, which enter linearly, only gather and scatter.

template <class T>
static void forward_along(const Layer<T>& layer, const Layer<T>& along, const T* x, const T* x_along, const T* y,
                          T* y_along, ptrdiff_t stride, ptrdiff_t n_columns) {
    typedef NativeVector<T> V;
    const ptrdiff_t n_in = layer.n_in, n_out = layer.n_out;
    for (ptrdiff_t o = 0; o < n_out; ++o)
        for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES)
            store(y_along + o * stride + j, spread<V>(along.bias[o]));
    multiply<COLUMNS_OF, false>(layer.weights, n_out, x_along, stride, n_in, y_along, stride, n_out, n_columns);
    multiply<COLUMNS_OF, false>(along.weights, n_out, x, stride, n_in, y_along, stride, n_out, n_columns);
    for (ptrdiff_t o = 0; o < n_out; ++o)
        for (ptrdiff_t j = o * stride; j < o * stride + n_columns; j += Native<T>::LANES)
            store(y_along + j, load<V>(y + j) > 0 ? load<V>(y_along + j) : V{});
}

// One layer back: the steps of its inputs and their derivatives; the derivative of its own step is added to `to`, when
// the last read of this layer in `along` is over.
template <class T>
static void backward_along(T* weights, T* along, T* to_all, const Room<T>& room, const Room<T>& dual, ptrdiff_t k,
                           ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const Layer<T> layer = layer_of(room.network, weights, k), direction = layer_of(room.network, along, k);
    const Layer<T> to = layer_of(room.network, to_all, k);
    const ptrdiff_t stride = room.network.n_columns, n_out = layer.n_out, n_columns = whole_vectors<T>(n);
    const T *x = room.inputs_of(k, room.inputs), *x_along = dual.inputs_of(k, dual.inputs);
    const T* y = room.outputs_of(k, room.inputs);
    T *dy = room.outputs_of(k, room.steps), *dy_along = dual.outputs_of(k, dual.steps);
    for (ptrdiff_t o = 0; o < n_out; ++o)
        for (ptrdiff_t j = o * stride; j < o * stride + n_columns; j += lanes) {
            const auto kept = load<V>(y + j) > 0;
            store(dy + j, kept ? load<V>(dy + j) : V{});
            store(dy_along + j, kept ? load<V>(dy_along + j) : V{});
        }
    T *dx = room.inputs_of(k, room.steps), *dx_along = dual.inputs_of(k, dual.steps);
    multiply<ROWS_OF, true>(layer.weights, n_out, dy_along, stride, n_out, dx_along, stride, layer.n_in, n_columns);
    multiply<ROWS_OF, false>(direction.weights, n_out, dy, stride, n_out, dx_along, stride, layer.n_in, n_columns);
    // Of embeddings only the derivative of the step is needed.
    if (k > 1) multiply<ROWS_OF, true>(layer.weights, n_out, dy, stride, n_out, dx, stride, layer.n_in, n_columns);
    transpose_block(dy, stride, n_out, n_columns, room.by_example, n_out);
    transpose_block(dy_along, stride, n_out, n_columns, dual.by_example, n_out);
    multiply<ROWS_OF, false>(x_along, stride, room.by_example, n_out, n, to.weights, n_out, layer.n_in, n_out);
    multiply<ROWS_OF, false>(x, stride, dual.by_example, n_out, n, to.weights, n_out, layer.n_in, n_out);
    for (ptrdiff_t o = 0; o < n_out; o += lanes) {
        V sum = V{};
        for (ptrdiff_t j = 0; j < n; ++j) sum += load<V>(dual.by_example + j * n_out + o);
        store(to.bias + o, load<V>(to.bias + o) + sum);
    }
}

// The output layer, forward and back.
template <class T>
static void output_along(T* weights, T* along, T* to_all, const Room<T>& room, const Room<T>& dual,
                         const int64_t* batch, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const Network& network = room.network;
    const ptrdiff_t last = network.n_layers - 1, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const Layer<T> layer = layer_of(network, weights, last), direction = layer_of(network, along, last);
    const Layer<T> to = layer_of(network, to_all, last);
    const T *x = room.inputs_of(last, room.inputs), *x_along = dual.inputs_of(last, dual.inputs);
    run_output(weights, room, n_columns);
    for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
        V sum = spread<V>(direction.bias[0]);
        for (ptrdiff_t i = 0; i < layer.n_in; ++i) {
            sum = multiply_add(spread<V>(layer.weights[i]), load<V>(x_along + i * stride + j), sum);
            sum = multiply_add(spread<V>(direction.weights[i]), load<V>(x + i * stride + j), sum);
        }
        store(dual.sums + j, sum);
    }
    T *step = room.sums, *step_along = dual.sums;
    for (ptrdiff_t j = 0; j < n; ++j) {
        const double small = __builtin_exp(-__builtin_fabs((double)step[j]));
        const double probability = (step[j] >= 0 ? 1 : small) / (1 + small);
        const double slope = small / ((1 + small) * (1 + small));  // p (1 - p), without a difference
        step[j] = (T)(network.learning_rate * (network.labels[batch[j]] - probability) / n);
        step_along[j] = (T)(-network.learning_rate * slope * step_along[j] / n);
    }
    for (ptrdiff_t j = n; j < n_columns; ++j) step[j] = step_along[j] = 0;
    T *dx = room.inputs_of(last, room.steps), *dx_along = dual.inputs_of(last, dual.steps);
    for (ptrdiff_t i = 0; i < layer.n_in; i += lanes) {
        V sums[lanes];
        for (int k = 0; k < lanes; ++k) {
            const V weight = spread<V>(layer.weights[i + k]), weight_along = spread<V>(direction.weights[i + k]);
            const ptrdiff_t at = (i + k) * stride;
            sums[k] = V{};
            for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
                const V dz = load<V>(step + j), dz_along = load<V>(step_along + j);
                store(dx + at + j, weight * dz);
                store(dx_along + at + j, multiply_add(weight_along, dz, weight * dz_along));
                sums[k] = multiply_add(load<V>(x + at + j), dz_along, sums[k]);
                sums[k] = multiply_add(load<V>(x_along + at + j), dz, sums[k]);
            }
        }
        const V totals = lane_sums<lanes>(sums);
        store(to.weights + i, load<V>(to.weights + i) + totals);
    }
    for (ptrdiff_t j = 0; j < n; ++j) to.bias[0] += step_along[j];
}

// The embeddings of a batch as columns of the inputs of both towers.
template <class T>
static void gather_batch(const Room<T>& room, const T* embeddings, const int32_t* slots, int64_t user,
                         const int64_t* batch, ptrdiff_t n) {
    const Network& network = room.network;
    const ptrdiff_t width = network.layers[0].n_out, n_user = network.layers[0].n_in, n_item = network.layers[1].n_in;
    for (ptrdiff_t j = 0; j < n; ++j)
        gather_user(network, embeddings, slots, user, network.example_contexts[batch[j]], room.by_example + j * n_user);
    turn_rows(room, 0, n);
    for (ptrdiff_t j = 0; j < n; ++j)
        gather(embeddings, slots, network.items, network.example_items[batch[j]], width, room.by_example + j * n_item);
    turn_rows(room, 1, n);
}

// `to` += minus the rate times H `along`, H the Hessian of the batch's mean loss; both may be the same, as all of a
// layer's direction is read before it is written.
//
// Every example has its own column of the users' tower here, also where all have one user.
template <class T>
static void step_back(const Network& network, T* theta, T* along, T* to, ptrdiff_t dense, const int32_t* slots,
                      int64_t user, const int64_t* batch, ptrdiff_t n, T* memory) {
    const Room<T> room(network, memory), dual(network, memory + network_room(network));
    const ptrdiff_t width = network.layers[0].n_out, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const ptrdiff_t last = network.n_layers - 1, n_user = network.layers[0].n_in, n_item = network.layers[1].n_in;
    T* embeddings = to + dense;
    gather_batch(room, theta + dense, slots, user, batch, n);
    gather_batch(dual, along + dense, slots, user, batch, n);
    for (ptrdiff_t k = 0; k < last; ++k) {
        run_layer(theta, room, k, n_columns);
        forward_along(layer_of(network, theta, k), layer_of(network, along, k), room.inputs_of(k, room.inputs),
                      dual.inputs_of(k, dual.inputs), room.outputs_of(k, room.inputs), dual.outputs_of(k, dual.inputs),
                      stride, n_columns);
    }
    output_along(theta, along, to, room, dual, batch, n);
    for (ptrdiff_t k = last - 1; k >= 0; --k) backward_along(theta, along, to, room, dual, k, n);
    transpose_block(dual.inputs_of(0, dual.steps), stride, n_user, n_columns, dual.by_example, n_user);
    for (ptrdiff_t j = 0; j < n; ++j)
        scatter_user(network, embeddings, slots, user, network.example_contexts[batch[j]],
                     dual.by_example + j * n_user);
    transpose_block(dual.inputs_of(1, dual.steps), stride, n_item, n_columns, dual.by_example, n_item);
    for (ptrdiff_t j = 0; j < n; ++j)
        scatter(embeddings, slots, network.items, network.example_items[batch[j]], width, dual.by_example + j * n_item);
}

// ---- a client's vectors: dense weights up to a whole line, then its rows ---------------------------------------------

template <class T>
struct MetaVectors {
    const int32_t* rows;
    ptrdiff_t n_rows, n_dense, dense, width;

    void read(const T* weights, const T* table, T* out) const {
        copy_numbers(weights, n_dense, out);
        for (ptrdiff_t k = n_dense; k < dense; ++k) out[k] = 0;
        for (ptrdiff_t k = 0; k < n_rows; ++k) copy_numbers(table + rows[k] * width, width, out + dense + k * width);
    }

    void write(const T* sent, const T* of_rates, T* out) const {
        copy_numbers(sent, n_dense, out), out += n_dense;
        if (of_rates) copy_numbers(of_rates, n_dense, out), out += n_dense;
        copy_numbers(sent + dense, n_rows * width, out), out += n_rows * width;
        if (of_rates) copy_numbers(of_rates + dense, n_rows * width, out);
    }
};

template <class T>
FASTFEDREC_INLINE void zero(T* x, ptrdiff_t n) {
    __builtin_memset(x, 0, n * sizeof(T));
}

// out += a b; out may be neither.
template <class T>
static void add_product(const T* a, const T* b, ptrdiff_t n, T* out) {
    typedef NativeVector<T> V;
    for (ptrdiff_t j = 0; j < n; j += Native<T>::LANES)
        store(out + j, multiply_add(load<V>(a + j), load<V>(b + j), load<V>(out + j)));
}

// All that is needed of a client's steps.
template <class T>
struct MetaSteps {
    const Network &network, &unit;  // unit: at rate 1
    const MetaClients<T>& clients;
    const int32_t* slots;
    const int64_t* turns;
    int64_t user;
    ptrdiff_t n_support, batches, dense, size;
    const T* rates;  // the client's; null for one in all
    T* memory;

    const int64_t* batch(ptrdiff_t step, ptrdiff_t* n) const {
        const ptrdiff_t epoch = step / batches, at = step % batches * clients.batch_size;
        *n = n_support - at < clients.batch_size ? n_support - at : clients.batch_size;
        return turns + epoch * n_support + at;
    }

    // theta moves by a step; with rates, `slope` keeps minus the gradient.
    void take(ptrdiff_t step, T* theta, T* slope) const {
        ptrdiff_t n;
        const int64_t* examples = batch(step, &n);
        if (!rates) {
            step_batch(network, theta, theta + dense, theta, theta + dense, slots, user, examples, n, memory);
            return;
        }
        zero(slope, size);
        step_batch(unit, theta, theta + dense, slope, slope + dense, slots, user, examples, n, memory);
        add_product(rates, slope, size, theta);
    }

    // `sent`, minus the gradient after a step from theta, becomes that before it: sent - H (rates sent).  The
    // contribution of the rates is added to `of_rates`.
    void undo(ptrdiff_t step, T* theta, const T* slope, T* sent, T* of_rates, T* scaled) const {
        ptrdiff_t n;
        const int64_t* examples = batch(step, &n);
        if (!rates) {
            step_back(network, theta, sent, sent, dense, slots, user, examples, n, memory);
            return;
        }
        add_product(slope, sent, size, of_rates);
        zero(scaled, size);
        add_product(rates, sent, size, scaled);
        step_back(unit, theta, scaled, sent, dense, slots, user, examples, n, memory);
    }
};

template <class T>
static void meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory, int32_t* slots,
                 int64_t* turns) {
    const MetaPlan plan = network_meta_plan(network, clients, client);
    const ptrdiff_t size = plan.size, n_kept = plan.n_kept;
    const int64_t rows = clients.row_starts[client];
    const MetaVectors<T> own = {clients.touched + rows, (ptrdiff_t)(clients.row_starts[client + 1] - rows),
                                network_n_dense(network), plan.dense, network.layers[0].n_out};
    Network unit = network;
    unit.learning_rate = 1;
    T *theta = memory + 2 * network_room(network), *sent = theta + size, *marks = sent + size;
    T *states = marks + plan.n_segments * size, *rates = nullptr, *of_rates = nullptr, *scaled = nullptr;
    T* slopes = states + n_kept * size;
    own.read(clients.dense, clients.table, theta);
    if (clients.rates) {
        rates = slopes, of_rates = rates + size, scaled = of_rates + size, slopes = scaled + size;
        own.read(clients.rates, clients.rates_table, rates);
        zero(of_rates, size);
    }
    for (ptrdiff_t k = 0; k < own.n_rows; ++k) slots[own.rows[k]] = (int32_t)k;
    const int64_t first = clients.starts[client], n_support = clients.n_support[client];
    const ptrdiff_t n_query = clients.starts[client + 1] - first - n_support;
    const ptrdiff_t batches = (n_support + clients.batch_size - 1) / clients.batch_size;
    int64_t draws = 2 * clients.word_starts[client];
    for (ptrdiff_t epoch = 0; epoch < clients.n_epochs; ++epoch) {
        int64_t* turn = turns + epoch * n_support;
        for (ptrdiff_t k = 0; k < n_support; ++k) turn[k] = epoch ? turn[k - n_support] : first + k;
        draws = shuffle(turn, n_support, clients.words, draws);
    }
    const MetaSteps<T> steps = {network,   unit,    clients,   slots, turns, clients.users[client],
                                n_support, batches, own.dense, size,  rates, memory};
    // Forward, with a mark at the beginning of each segment.
    for (ptrdiff_t t = 0; t < plan.n_steps; ++t) {
        if (n_kept && t % n_kept == 0) copy_numbers(theta, size, marks + t / n_kept * size);
        steps.take(t, theta, slopes);
    }
    T* out = clients.out + clients.out_starts[client];
    if (clients.order == META_ADAPTED) {
        own.read(clients.dense, clients.table, sent);
        for (ptrdiff_t k = 0; k < size; ++k) sent[k] = theta[k] - sent[k];
        return own.write(sent, nullptr, out);
    }
    // Minus the gradient of the mean query loss, a batch after the other; zeros without query examples.
    zero(sent, size);
    int64_t* query = turns + clients.n_epochs * n_support;
    for (ptrdiff_t k = 0; k < n_query; ++k) query[k] = first + n_support + k;
    for (ptrdiff_t at = 0; at < n_query; at += clients.batch_size) {
        const ptrdiff_t n = n_query - at < clients.batch_size ? n_query - at : clients.batch_size;
        Network share = network;
        share.learning_rate = (double)n / n_query;
        step_batch(share, theta, theta + own.dense, sent, sent + own.dense, slots, steps.user, query + at, n, memory);
    }
    // Backward, segment by segment: its parameters are found again from its mark, then its steps undone from the last.
    for (ptrdiff_t s = n_query ? plan.n_segments - 1 : -1; s >= 0; --s) {
        const ptrdiff_t begin = s * n_kept;
        const ptrdiff_t end = begin + n_kept < plan.n_steps ? begin + n_kept : plan.n_steps;
        copy_numbers(marks + s * size, size, theta);
        for (ptrdiff_t t = begin; t < end; ++t) {
            copy_numbers(theta, size, states + (t - begin) * size);
            if (rates || t + 1 < end) steps.take(t, theta, slopes + (t - begin) * size);
        }
        for (ptrdiff_t t = end - 1; t >= begin; --t)
            steps.undo(t, states + (t - begin) * size, slopes + (t - begin) * size, sent, of_rates, scaled);
    }
    own.write(sent, of_rates, out);
}

#define FASTFEDREC_DEFINE(T) \
    void network_meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory, \
                      int32_t* slots, int64_t* turns) { \
        meta(network, clients, client, memory, slots, turns); \
    }
FASTFEDREC_DEFINE(float)
FASTFEDREC_DEFINE(double)
#undef FASTFEDREC_DEFINE

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
