// A step of SGD of the two-tower network, for vector code that trains it; see _lanes.h for where this file may be
// included.
#pragma once
#include "_kernels/compute/networks/_two_tower.h"

#include "_kernels/compute/networks/_layers.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Scratch memory of a step.
template <class T>
struct Scratch {
    const Network& network;
    T *inputs, *steps, *by_example, *sums, *user_x, *user_y, *user_dx, *user_dy, *bias;

    Scratch(const Network& network, T* memory) : network(network) {
        const NetworkLayer &last = network.layers[network.n_layers - 1], &user = network.layers[0];
        const ptrdiff_t size = (last.inputs + last.n_in) * network.n_columns;
        inputs = memory, steps = inputs + size;
        user_x = steps + size, user_dx = user_x + user.n_in;
        user_y = user_dx + user.n_in, user_dy = user_y + user.n_out;
        bias = user_dy + user.n_out, by_example = bias + network.layers[2].n_out;
        const ptrdiff_t used = by_example - memory;
        const ptrdiff_t widest = (network_scratch_size(network) - used) / (network.n_columns + 1);
        sums = by_example + widest * network.n_columns;
    }

    // Returns the inputs of layer k in `inputs`, or their steps in `steps`, one example a column.
    T* inputs_of(ptrdiff_t k, T* memory) const { return memory + network.layers[k].inputs * network.n_columns; }

    // Returns the outputs of layer k. The inputs of layer 2 are the outputs of the users' tower (0), then of the items'
    // tower (1).
    T* outputs_of(ptrdiff_t k, T* memory) const {
        return k > 1 ? inputs_of(k + 1, memory)
                     : inputs_of(2, memory) + k * network.layers[k].n_out * network.n_columns;
    }
};

template <class T>
FASTFEDREC_INLINE Layer<T> layer_of(const Network& network, T* weights, ptrdiff_t k) {
    const NetworkLayer& layer = network.layers[k];
    return {weights + layer.weights, weights + layer.bias, layer.n_in, layer.n_out};
}

// Without contexts, all examples of a client have the same user: the users' part of layer 2 is then part of its bias.
FASTFEDREC_INLINE bool has_one_user(const Network& network) { return network.contexts.n_fields == 0; }

template <class T>
FASTFEDREC_INLINE Layer<T> items_part(const Network& network, T* weights, T* bias) {
    const NetworkLayer& layer = network.layers[2];
    const ptrdiff_t width = network.layers[0].n_out;
    return {weights + layer.weights + width * layer.n_out, bias, layer.n_in - width, layer.n_out};
}

template <class T>
FASTFEDREC_INLINE Layer<T> users_part(const Network& network, T* weights) {
    const NetworkLayer& layer = network.layers[2];
    return {weights + layer.weights, weights + layer.bias, network.layers[0].n_out, layer.n_out};
}

// ---- embeddings ----------------------------------------------------------------------------------------------------

FASTFEDREC_INLINE ptrdiff_t row_of(const int32_t* slots, int32_t row) { return slots ? slots[row] : row; }

// Writes the embeddings of the fields of an entry side by side: the mean if a field has several, and 0 if it has none.
template <class T>
static void gather(const T* embeddings, const int32_t* slots, const NetworkTable& table, int64_t entry, ptrdiff_t width,
                   T* out) {
    typedef NativeVector<T> V;
    const int64_t* starts = table.starts + entry * table.n_fields;
    for (ptrdiff_t f = 0; f < table.n_fields; ++f, out += width) {
        // The rows of the field have indices from starts[f] to starts[f + 1] - 1.
        const int64_t first = starts[f], n = starts[f + 1] - first;
        if (n == 1) {
            copy_numbers(embeddings + row_of(slots, table.rows[first]) * width, width, out);
            continue;
        }
        const V share = spread<V>(T(1) / T(n ? n : 1));  // no division by 0
        for (ptrdiff_t j = 0; j < width; j += Native<T>::LANES) {
            V sum = V{};
            for (int64_t k = first; k < first + n; ++k)
                sum = multiply_add(share, load<V>(embeddings + row_of(slots, table.rows[k]) * width + j), sum);
            store(out + j, sum);
        }
    }
}

// Adds the step of each field to its embeddings, in equal shares.
template <class T>
static void scatter(T* embeddings, const int32_t* slots, const NetworkTable& table, int64_t entry, ptrdiff_t width,
                    const T* steps) {
    typedef NativeVector<T> V;
    const int64_t* starts = table.starts + entry * table.n_fields;
    for (ptrdiff_t f = 0; f < table.n_fields; ++f, steps += width) {
        const int64_t n = starts[f + 1] - starts[f];  // the derivative of the mean in `gather`
        const V share = spread<V>(T(1) / T(n ? n : 1));
        for (int64_t k = starts[f]; k < starts[f + 1]; ++k) {
            T* row = embeddings + row_of(slots, table.rows[k]) * width;
            for (ptrdiff_t j = 0; j < width; j += Native<T>::LANES)
                store(row + j, multiply_add(share, load<V>(steps + j), load<V>(row + j)));
        }
    }
}

template <class T>
FASTFEDREC_INLINE void gather_user(const Network& network, const T* embeddings, const int32_t* slots, int64_t user,
                                   int64_t context, T* out) {
    const ptrdiff_t width = network.layers[0].n_out;
    gather(embeddings, slots, network.users, user, width, out);
    gather(embeddings, slots, network.contexts, context, width, out + network.users.n_fields * width);
}

template <class T>
FASTFEDREC_INLINE void scatter_user(const Network& network, T* embeddings, const int32_t* slots, int64_t user,
                                    int64_t context, const T* steps) {
    const ptrdiff_t width = network.layers[0].n_out;
    scatter(embeddings, slots, network.users, user, width, steps);
    scatter(embeddings, slots, network.contexts, context, width, steps + network.users.n_fields * width);
}

// Transposes rows of n examples to columns of the inputs of a tower. Columns up to whole vectors are zeros, because
// numbers of an earlier batch there may be infinite.
template <class T>
static void transpose_inputs(const Scratch<T>& scratch, ptrdiff_t tower, ptrdiff_t n) {
    const ptrdiff_t n_in = scratch.network.layers[tower].n_in, n_columns = whole_vectors<T>(n);
    __builtin_memset(scratch.by_example + n * n_in, 0, (n_columns - n) * n_in * sizeof(T));
    transpose_block(scratch.by_example, n_in, n_columns, n_in, scratch.inputs_of(tower, scratch.inputs),
                    scratch.network.n_columns);
}

// ---- a batch -------------------------------------------------------------------------------------------------------

template <class T>
static void run_layer(T* weights, const Scratch<T>& scratch, ptrdiff_t k, ptrdiff_t n_columns) {
    forward(layer_of(scratch.network, weights, k), scratch.inputs_of(k, scratch.inputs),
            scratch.outputs_of(k, scratch.inputs), scratch.network.n_columns, n_columns);
}

template <class T>
static void step_layer(T* weights, T* to, const Scratch<T>& scratch, ptrdiff_t k, ptrdiff_t n) {
    backward(layer_of(scratch.network, weights, k), layer_of(scratch.network, to, k),
             scratch.inputs_of(k, scratch.inputs), scratch.outputs_of(k, scratch.inputs),
             scratch.inputs_of(k, scratch.steps), scratch.outputs_of(k, scratch.steps), scratch.by_example,
             scratch.sums, scratch.network.n_columns, n);
}

// Runs the users' tower for a single user, and computes its addition to the bias of layer 2.
template <class T>
static void run_user(T* weights, const Scratch<T>& scratch) {
    forward_one(layer_of(scratch.network, weights, 0), scratch.user_x, scratch.user_y);
    rectify(scratch.user_y, scratch.network.layers[0].n_out);
    forward_one(users_part(scratch.network, weights), scratch.user_y, scratch.bias);
}

// Takes the step of the tower of a single user and of its addition to layer 2; `sums` has the step of layer 2.
template <class T>
static void step_user(T* weights, T* to, T* to_embeddings, const int32_t* slots, int64_t user,
                      const Scratch<T>& scratch) {
    const Layer<T> tower = layer_of(scratch.network, weights, 0), to_tower = layer_of(scratch.network, to, 0);
    backward_one(users_part(scratch.network, weights), users_part(scratch.network, to), scratch.user_y, scratch.user_dy,
                 scratch.sums);
    for (ptrdiff_t o = 0; o < tower.n_out; ++o) {
        if (!(scratch.user_y[o] > 0)) scratch.user_dy[o] = 0;  // relu: outputs of 0 have no step
        to_tower.bias[o] += scratch.user_dy[o];
    }
    backward_one(tower, to_tower, scratch.user_x, scratch.user_dx, scratch.user_dy);
    scatter(to_embeddings, slots, scratch.network.users, user, scratch.network.layers[0].n_out, scratch.user_dx);
}

// Writes logits to `sums`.
template <class T>
static void run_output(T* weights, const Scratch<T>& scratch, ptrdiff_t n_columns) {
    typedef NativeVector<T> V;
    const ptrdiff_t last = scratch.network.n_layers - 1, stride = scratch.network.n_columns;
    const Layer<T> layer = layer_of(scratch.network, weights, last);
    const T* x = scratch.inputs_of(last, scratch.inputs);
    // z = w'x + b, with one example a lane.
    for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES) {
        V even = spread<V>(layer.bias[0]), odd = V{};
        for (ptrdiff_t i = 0; i < layer.n_in; i += 2) {
            even = multiply_add(spread<V>(layer.weights[i]), load<V>(x + i * stride + j), even);
            odd = multiply_add(spread<V>(layer.weights[i + 1]), load<V>(x + (i + 1) * stride + j), odd);
        }
        store(scratch.sums + j, even + odd);
    }
}

// Computes from the logits in `sums` the steps of the output layer and of its inputs; all other steps follow from
// these.
template <class T>
static void step_output(T* weights, T* to, const Scratch<T>& scratch, const int64_t* batch, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const Network& network = scratch.network;
    const ptrdiff_t last = network.n_layers - 1, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const Layer<T> layer = layer_of(network, weights, last), out = layer_of(network, to, last);
    const T* x = scratch.inputs_of(last, scratch.inputs);
    T *dx = scratch.inputs_of(last, scratch.steps), *steps = scratch.sums;
    for (ptrdiff_t j = 0; j < n; ++j) {
        // The exponential is at most 1, so neither it nor the quotient overflows.
        const double small = __builtin_exp(-__builtin_fabs((double)steps[j]));
        const double probability = (steps[j] >= 0 ? 1 : small) / (1 + small);
        // -rate dz = rate (label - sigmoid(z)) / n (Wang et al. 2021, equation 2)
        steps[j] = (T)(network.learning_rate * (network.labels[batch[j]] - probability) / n);
        out.bias[0] += steps[j];
    }
    for (ptrdiff_t j = n; j < n_columns; ++j) steps[j] = 0;  // columns after the last example add 0
    for (ptrdiff_t i = 0; i < layer.n_in; i += lanes) {
        V sums[lanes];
        for (int k = 0; k < lanes; ++k) {
            const V weight = spread<V>(layer.weights[i + k]);
            sums[k] = V{};
            for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
                const V step = load<V>(steps + j);
                store(dx + (i + k) * stride + j, weight * step);  // dx = w dz uses the weight before its step
                sums[k] = multiply_add(load<V>(x + (i + k) * stride + j), step, sums[k]);
            }
        }
        const V totals = lane_sums<lanes>(sums);
        store(out.weights + i, load<V>(out.weights + i) + totals);
    }
}

// Adds the step of a batch to `to` and `to_embeddings`, which are the weights and embeddings themselves in SGD.
template <class T>
static void step_batch(const Network& network, T* weights, T* embeddings, T* to, T* to_embeddings, const int32_t* slots,
                       int64_t user, const int64_t* batch, ptrdiff_t n, T* memory) {
    const Scratch<T> scratch(network, memory);
    const bool is_single = has_one_user(network);
    const ptrdiff_t width = network.layers[0].n_out, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const ptrdiff_t last = network.n_layers - 1, item_offset = width * stride;
    const ptrdiff_t n_user = network.layers[0].n_in, n_item = network.layers[1].n_in;

    // The forward pass computes embeddings, towers, hidden layers and logits.
    for (ptrdiff_t j = 0; j < n; ++j)
        gather(embeddings, slots, network.items, network.example_items[batch[j]], width,
               scratch.by_example + j * n_item);
    transpose_inputs(scratch, 1, n);
    if (is_single) {
        gather(embeddings, slots, network.users, user, width, scratch.user_x);
        run_user(weights, scratch);
    } else {
        for (ptrdiff_t j = 0; j < n; ++j)
            gather_user(network, embeddings, slots, user, network.example_contexts[batch[j]],
                        scratch.by_example + j * n_user);
        transpose_inputs(scratch, 0, n);
        run_layer(weights, scratch, 0, n_columns);
    }
    run_layer(weights, scratch, 1, n_columns);
    if (is_single)
        forward(items_part(network, weights, scratch.bias), scratch.inputs_of(2, scratch.inputs) + item_offset,
                scratch.outputs_of(2, scratch.inputs), stride, n_columns);
    else run_layer(weights, scratch, 2, n_columns);
    for (ptrdiff_t k = 3; k < last; ++k) run_layer(weights, scratch, k, n_columns);
    run_output(weights, scratch, n_columns);

    // The backward pass goes from the last layer to the first, and takes each step when its product is computed.
    step_output(weights, to, scratch, batch, n);
    for (ptrdiff_t k = last - 1; k > 2; --k) step_layer(weights, to, scratch, k, n);
    if (is_single) {
        backward(items_part(network, weights, weights + network.layers[2].bias),
                 items_part(network, to, to + network.layers[2].bias),
                 scratch.inputs_of(2, scratch.inputs) + item_offset, scratch.outputs_of(2, scratch.inputs),
                 scratch.inputs_of(2, scratch.steps) + item_offset, scratch.outputs_of(2, scratch.steps),
                 scratch.by_example, scratch.sums, stride, n);
        step_user(weights, to, to_embeddings, slots, user, scratch);
    } else step_layer(weights, to, scratch, 2, n);
    step_layer(weights, to, scratch, 1, n);
    if (!is_single) {
        step_layer(weights, to, scratch, 0, n);
        transpose_block(scratch.inputs_of(0, scratch.steps), stride, n_user, n_columns, scratch.by_example, n_user);
        for (ptrdiff_t j = 0; j < n; ++j)
            scatter_user(network, to_embeddings, slots, user, network.example_contexts[batch[j]],
                         scratch.by_example + j * n_user);
    }
    transpose_block(scratch.inputs_of(1, scratch.steps), stride, n_item, n_columns, scratch.by_example, n_item);
    for (ptrdiff_t j = 0; j < n; ++j)
        scatter(to_embeddings, slots, network.items, network.example_items[batch[j]], width,
                scratch.by_example + j * n_item);
}

// Shuffles (Fisher and Yates) with half a word a draw; returns the index of the next half.
FASTFEDREC_INLINE int64_t shuffle(int64_t* order, ptrdiff_t n, const uint64_t* words, int64_t draws) {
    // k = n - 1, ..., 1: `other` is from 0 to k, 32 bits times at most n.
    for (ptrdiff_t k = n - 1; k > 0; --k, ++draws) {
        const int64_t half = words[draws >> 1] >> (32 * (draws & 1)) & 0xffffffff, other = half * (k + 1) >> 32;
        const int64_t moved = order[k];
        order[k] = order[other], order[other] = moved;
    }
    return draws;
}

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
