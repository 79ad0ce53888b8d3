// See _meta_learning.h; compiled once for each level.
#include "_kernels/compute/networks/_meta_learning.h"

#include "_kernels/compute/networks/_step.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// ---- Hessian times direction: forward over reverse -----------------------------------------------------------------
//
// The derivative of the step of `_step.h` along a direction. With U, b' for the part of a layer in the direction and a
// dot for derivatives along it, y = relu(W'x + b) gives
//
//     y. = W'x. + U'x + b'        dx. = W dy. + U dy        dW. = x. dy' + x dy.'        (all 0 where relu cuts off)
//
// Embeddings enter linearly, so they only gather and scatter.

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

// Goes back by one layer: computes the steps of its inputs and their derivatives. The derivative of the step of the
// layer is added to `to` after the last read of this layer in `along`.
template <class T>
static void backward_along(T* weights, T* along, T* to_all, const Scratch<T>& scratch, const Scratch<T>& dual,
                           ptrdiff_t k, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const Layer<T> layer = layer_of(scratch.network, weights, k), direction = layer_of(scratch.network, along, k);
    const Layer<T> to = layer_of(scratch.network, to_all, k);
    const ptrdiff_t stride = scratch.network.n_columns, n_out = layer.n_out, n_columns = whole_vectors<T>(n);
    const T *x = scratch.inputs_of(k, scratch.inputs), *x_along = dual.inputs_of(k, dual.inputs);
    const T* y = scratch.outputs_of(k, scratch.inputs);
    T *dy = scratch.outputs_of(k, scratch.steps), *dy_along = dual.outputs_of(k, dual.steps);
    for (ptrdiff_t o = 0; o < n_out; ++o)
        for (ptrdiff_t j = o * stride; j < o * stride + n_columns; j += lanes) {
            const auto is_active = load<V>(y + j) > 0;
            store(dy + j, is_active ? load<V>(dy + j) : V{});
            store(dy_along + j, is_active ? load<V>(dy_along + j) : V{});
        }
    T *dx = scratch.inputs_of(k, scratch.steps), *dx_along = dual.inputs_of(k, dual.steps);
    multiply<ROWS_OF, true>(layer.weights, n_out, dy_along, stride, n_out, dx_along, stride, layer.n_in, n_columns);
    multiply<ROWS_OF, false>(direction.weights, n_out, dy, stride, n_out, dx_along, stride, layer.n_in, n_columns);
    // Embeddings need the derivative of the step only.
    if (k > 1) multiply<ROWS_OF, true>(layer.weights, n_out, dy, stride, n_out, dx, stride, layer.n_in, n_columns);
    transpose_block(dy, stride, n_out, n_columns, scratch.by_example, n_out);
    transpose_block(dy_along, stride, n_out, n_columns, dual.by_example, n_out);
    multiply<ROWS_OF, false>(x_along, stride, scratch.by_example, n_out, n, to.weights, n_out, layer.n_in, n_out);
    multiply<ROWS_OF, false>(x, stride, dual.by_example, n_out, n, to.weights, n_out, layer.n_in, n_out);
    for (ptrdiff_t o = 0; o < n_out; o += lanes) {
        V sum = V{};
        for (ptrdiff_t j = 0; j < n; ++j) sum += load<V>(dual.by_example + j * n_out + o);
        store(to.bias + o, load<V>(to.bias + o) + sum);
    }
}

// Runs the output layer forward and back.
template <class T>
static void output_along(T* weights, T* along, T* to_all, const Scratch<T>& scratch, const Scratch<T>& dual,
                         const int64_t* batch, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const Network& network = scratch.network;
    const ptrdiff_t last = network.n_layers - 1, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const Layer<T> layer = layer_of(network, weights, last), direction = layer_of(network, along, last);
    const Layer<T> to = layer_of(network, to_all, last);
    const T *x = scratch.inputs_of(last, scratch.inputs), *x_along = dual.inputs_of(last, dual.inputs);
    run_output(weights, scratch, n_columns);
    for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
        V sum = spread<V>(direction.bias[0]);
        for (ptrdiff_t i = 0; i < layer.n_in; ++i) {
            sum = multiply_add(spread<V>(layer.weights[i]), load<V>(x_along + i * stride + j), sum);
            sum = multiply_add(spread<V>(direction.weights[i]), load<V>(x + i * stride + j), sum);
        }
        store(dual.sums + j, sum);
    }
    T *step = scratch.sums, *step_along = dual.sums;
    for (ptrdiff_t j = 0; j < n; ++j) {
        const double small = __builtin_exp(-__builtin_fabs((double)step[j]));
        const double probability = (step[j] >= 0 ? 1 : small) / (1 + small);
        const double slope = small / ((1 + small) * (1 + small));  // p (1 - p), without a difference
        step[j] = (T)(network.learning_rate * (network.labels[batch[j]] - probability) / n);
        step_along[j] = (T)(-network.learning_rate * slope * step_along[j] / n);
    }
    for (ptrdiff_t j = n; j < n_columns; ++j) step[j] = step_along[j] = 0;
    T *dx = scratch.inputs_of(last, scratch.steps), *dx_along = dual.inputs_of(last, dual.steps);
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

// Writes the embeddings of a batch as columns of the inputs of both towers.
template <class T>
static void gather_batch(const Scratch<T>& scratch, const T* embeddings, const int32_t* slots, int64_t user,
                         const int64_t* batch, ptrdiff_t n) {
    const Network& network = scratch.network;
    const ptrdiff_t width = network.layers[0].n_out, n_user = network.layers[0].n_in, n_item = network.layers[1].n_in;
    for (ptrdiff_t j = 0; j < n; ++j)
        gather_user(network, embeddings, slots, user, network.example_contexts[batch[j]],
                    scratch.by_example + j * n_user);
    transpose_inputs(scratch, 0, n);
    for (ptrdiff_t j = 0; j < n; ++j)
        gather(embeddings, slots, network.items, network.example_items[batch[j]], width,
               scratch.by_example + j * n_item);
    transpose_inputs(scratch, 1, n);
}

// Adds minus the rate times H `along` to `to`, with H the Hessian of the mean loss of the batch. Both may be the same,
// because the direction of a layer is read before it is written.
//
// Every example has a separate column of the users' tower here, even if all have the same user.
template <class T>
static void hessian_step(const Network& network, T* theta, T* along, T* to, ptrdiff_t dense, const int32_t* slots,
                         int64_t user, const int64_t* batch, ptrdiff_t n, T* memory) {
    const Scratch<T> scratch(network, memory), dual(network, memory + network_scratch_size(network));
    const ptrdiff_t width = network.layers[0].n_out, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const ptrdiff_t last = network.n_layers - 1, n_user = network.layers[0].n_in, n_item = network.layers[1].n_in;
    T* embeddings = to + dense;
    gather_batch(scratch, theta + dense, slots, user, batch, n);
    gather_batch(dual, along + dense, slots, user, batch, n);
    for (ptrdiff_t k = 0; k < last; ++k) {
        run_layer(theta, scratch, k, n_columns);
        forward_along(layer_of(network, theta, k), layer_of(network, along, k), scratch.inputs_of(k, scratch.inputs),
                      dual.inputs_of(k, dual.inputs), scratch.outputs_of(k, scratch.inputs),
                      dual.outputs_of(k, dual.inputs), stride, n_columns);
    }
    output_along(theta, along, to, scratch, dual, batch, n);
    for (ptrdiff_t k = last - 1; k >= 0; --k) backward_along(theta, along, to, scratch, dual, k, n);
    transpose_block(dual.inputs_of(0, dual.steps), stride, n_user, n_columns, dual.by_example, n_user);
    for (ptrdiff_t j = 0; j < n; ++j)
        scatter_user(network, embeddings, slots, user, network.example_contexts[batch[j]],
                     dual.by_example + j * n_user);
    transpose_block(dual.inputs_of(1, dual.steps), stride, n_item, n_columns, dual.by_example, n_item);
    for (ptrdiff_t j = 0; j < n; ++j)
        scatter(embeddings, slots, network.items, network.example_items[batch[j]], width, dual.by_example + j * n_item);
}

// ---- vectors of a client: dense weights up to a whole line, then its rows -------------------------------------------

template <class T>
struct MetaVectors {
    const int32_t* rows;
    ptrdiff_t n_rows, n_dense, dense, width;

    void read(const T* weights, const T* table, T* out) const {
        copy_numbers(weights, n_dense, out);
        for (ptrdiff_t k = n_dense; k < dense; ++k) out[k] = 0;
        for (ptrdiff_t k = 0; k < n_rows; ++k) copy_numbers(table + rows[k] * width, width, out + dense + k * width);
    }

    void write(const T* sent, const T* rate_updates, T* out) const {
        copy_numbers(sent, n_dense, out), out += n_dense;
        if (rate_updates) copy_numbers(rate_updates, n_dense, out), out += n_dense;
        copy_numbers(sent + dense, n_rows * width, out), out += n_rows * width;
        if (rate_updates) copy_numbers(rate_updates + dense, n_rows * width, out);
    }
};

template <class T>
FASTFEDREC_INLINE void zero(T* x, ptrdiff_t n) {
    __builtin_memset(x, 0, n * sizeof(T));
}

// Adds a b to out, which differs from both.
template <class T>
static void add_product(const T* a, const T* b, ptrdiff_t n, T* out) {
    typedef NativeVector<T> V;
    for (ptrdiff_t j = 0; j < n; j += Native<T>::LANES)
        store(out + j, multiply_add(load<V>(a + j), load<V>(b + j), load<V>(out + j)));
}

// Inputs of all steps of a client.
template <class T>
struct MetaSteps {
    const Network &network, &unit_network;  // the latter has rate 1
    const MetaClients<T>& clients;
    const int32_t* slots;
    const int64_t* example_orders;
    int64_t user;
    ptrdiff_t n_support, batches, dense, size;
    const T* rates;  // rates of the client; null for a common rate
    T* memory;

    const int64_t* batch(ptrdiff_t step, ptrdiff_t* n) const {
        const ptrdiff_t epoch = step / batches, at = step % batches * clients.batch_size;
        *n = n_support - at < clients.batch_size ? n_support - at : clients.batch_size;
        return example_orders + epoch * n_support + at;
    }

    // Adds a step to theta; with rates, `slope` keeps minus the gradient.
    void take_step(ptrdiff_t step, T* theta, T* slope) const {
        ptrdiff_t n;
        const int64_t* examples = batch(step, &n);
        if (!rates) {
            step_batch(network, theta, theta + dense, theta, theta + dense, slots, user, examples, n, memory);
            return;
        }
        zero(slope, size);
        step_batch(unit_network, theta, theta + dense, slope, slope + dense, slots, user, examples, n, memory);
        add_product(rates, slope, size, theta);
    }

    // Converts `sent` from minus the gradient after a step from theta to that before the step: sent - H (rates sent).
    // The contribution to the gradient by rates is added to `rate_updates`.
    void step_back(ptrdiff_t step, T* theta, const T* slope, T* sent, T* rate_updates, T* scaled) const {
        ptrdiff_t n;
        const int64_t* examples = batch(step, &n);
        if (!rates) {
            hessian_step(network, theta, sent, sent, dense, slots, user, examples, n, memory);
            return;
        }
        add_product(slope, sent, size, rate_updates);
        zero(scaled, size);
        add_product(rates, sent, size, scaled);
        hessian_step(unit_network, theta, scaled, sent, dense, slots, user, examples, n, memory);
    }
};

template <class T>
static void meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory, int32_t* slots,
                 int64_t* example_orders) {
    const MetaPlan plan = network_meta_plan(network, clients, client);
    const ptrdiff_t size = plan.size, segment_length = plan.segment_length;
    const int64_t rows = clients.row_starts[client];
    const MetaVectors<T> vectors = {clients.touched + rows, (ptrdiff_t)(clients.row_starts[client + 1] - rows),
                                    network_n_dense(network), plan.dense, network.layers[0].n_out};
    Network unit_network = network;
    unit_network.learning_rate = 1;
    T *theta = memory + 2 * network_scratch_size(network), *sent = theta + size, *checkpoints = sent + size;
    T *states = checkpoints + plan.n_segments * size, *rates = nullptr, *rate_updates = nullptr, *scaled = nullptr;
    T* slopes = states + segment_length * size;
    vectors.read(clients.dense, clients.table, theta);
    if (clients.rates) {
        rates = slopes, rate_updates = rates + size, scaled = rate_updates + size, slopes = scaled + size;
        vectors.read(clients.rates, clients.rates_table, rates);
        zero(rate_updates, size);
    }
    for (ptrdiff_t k = 0; k < vectors.n_rows; ++k) slots[vectors.rows[k]] = (int32_t)k;
    const int64_t first = clients.starts[client], n_support = clients.n_support[client];
    const ptrdiff_t n_query = clients.starts[client + 1] - first - n_support;
    const ptrdiff_t batches = (n_support + clients.batch_size - 1) / clients.batch_size;
    int64_t draws = 2 * clients.word_starts[client];
    for (ptrdiff_t epoch = 0; epoch < clients.n_epochs; ++epoch) {
        int64_t* example_order = example_orders + epoch * n_support;
        for (ptrdiff_t k = 0; k < n_support; ++k) example_order[k] = epoch ? example_order[k - n_support] : first + k;
        draws = shuffle(example_order, n_support, clients.words, draws);
    }
    const MetaSteps<T> steps = {network,   unit_network, clients,       slots, example_orders, clients.users[client],
                                n_support, batches,      vectors.dense, size,  rates,          memory};
    // Run forward, with a checkpoint at the beginning of each segment.
    for (ptrdiff_t t = 0; t < plan.n_steps; ++t) {
        if (segment_length && t % segment_length == 0)
            copy_numbers(theta, size, checkpoints + t / segment_length * size);
        steps.take_step(t, theta, slopes);
    }
    T* out = clients.out + clients.out_starts[client];
    if (clients.order == META_ADAPTED) {
        vectors.read(clients.dense, clients.table, sent);
        for (ptrdiff_t k = 0; k < size; ++k) sent[k] = theta[k] - sent[k];
        return vectors.write(sent, nullptr, out);
    }
    // Sum minus the gradient of the mean query loss over batches; it is zero without query examples.
    zero(sent, size);
    int64_t* query = example_orders + clients.n_epochs * n_support;
    for (ptrdiff_t k = 0; k < n_query; ++k) query[k] = first + n_support + k;
    for (ptrdiff_t at = 0; at < n_query; at += clients.batch_size) {
        const ptrdiff_t n = n_query - at < clients.batch_size ? n_query - at : clients.batch_size;
        Network query_network = network;
        query_network.learning_rate = (double)n / n_query;
        step_batch(query_network, theta, theta + vectors.dense, sent, sent + vectors.dense, slots, steps.user,
                   query + at, n, memory);
    }
    // Run backward by segments: recompute the parameters of a segment from its checkpoint, then go back through its
    // steps.
    for (ptrdiff_t s = n_query ? plan.n_segments - 1 : -1; s >= 0; --s) {
        const ptrdiff_t begin = s * segment_length;
        const ptrdiff_t end = begin + segment_length < plan.n_steps ? begin + segment_length : plan.n_steps;
        copy_numbers(checkpoints + s * size, size, theta);
        for (ptrdiff_t t = begin; t < end; ++t) {
            copy_numbers(theta, size, states + (t - begin) * size);
            if (rates || t + 1 < end) steps.take_step(t, theta, slopes + (t - begin) * size);
        }
        for (ptrdiff_t t = end - 1; t >= begin; --t)
            steps.step_back(t, states + (t - begin) * size, slopes + (t - begin) * size, sent, rate_updates, scaled);
    }
    vectors.write(sent, rate_updates, out);
}

#define FASTFEDREC_DEFINE(T) \
    void network_meta(const Network& network, const MetaClients<T>& clients, ptrdiff_t client, T* memory, \
                      int32_t* slots, int64_t* example_orders) { \
        meta(network, clients, client, memory, slots, example_orders); \
    }
FASTFEDREC_DEFINE(float)
FASTFEDREC_DEFINE(double)
#undef FASTFEDREC_DEFINE

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
