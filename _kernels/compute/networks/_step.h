// A step of SGD of the two-tower network, for vector code that trains it; see _lanes.h for where this may be included.
#pragma once
#include "_kernels/compute/networks/_two_tower.h"

#include "_kernels/compute/networks/_layers.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Scratch memory of a step.
template <class T>
struct Room {
    const Network& network;
    T *inputs, *steps, *by_example, *sums, *user_x, *user_y, *user_dx, *user_dy, *bias;

    Room(const Network& network, T* memory) : network(network) {
        const NetworkLayer &last = network.layers[network.n_layers - 1], &user = network.layers[0];
        const ptrdiff_t size = (last.inputs + last.n_in) * network.n_columns;
        inputs = memory, steps = inputs + size;
        user_x = steps + size, user_dx = user_x + user.n_in;
        user_y = user_dx + user.n_in, user_dy = user_y + user.n_out;
        bias = user_dy + user.n_out, by_example = bias + network.layers[2].n_out;
        const ptrdiff_t used = by_example - memory;
        const ptrdiff_t widest = (network_room(network) - used) / (network.n_columns + 1);
        sums = by_example + widest * network.n_columns;
    }

    // Where the inputs of layer k are in `inputs`, and their steps in `steps`, one example a column.
    T* inputs_of(ptrdiff_t k, T* memory) const { return memory + network.layers[k].inputs * network.n_columns; }

    // Outputs of layer k: the users' tower (0) before the items' (1), both into the inputs of layer 2.
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

// Without contexts all examples of a client have the same user: the users' part of layer 2 is then part of its bias.
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

// The embeddings of an entry's fields side by side; the mean where a field has several, 0 where it has none.
template <class T>
static void gather(const T* embeddings, const int32_t* slots, const NetworkTable& table, int64_t entry, ptrdiff_t width,
                   T* out) {
    typedef NativeVector<T> V;
    const int64_t* starts = table.starts + entry * table.n_fields;
    for (ptrdiff_t f = 0; f < table.n_fields; ++f, out += width) {
        // The field's rows are numbers starts[f] to starts[f + 1] - 1.
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

// Adds each field's step to its embeddings, in equal shares.
template <class T>
static void scatter(T* embeddings, const int32_t* slots, const NetworkTable& table, int64_t entry, ptrdiff_t width,
                    const T* steps) {
    typedef NativeVector<T> V;
    const int64_t* starts = table.starts + entry * table.n_fields;
    for (ptrdiff_t f = 0; f < table.n_fields; ++f, steps += width) {
        const int64_t n = starts[f + 1] - starts[f];  // the same shares as in `gather`: the derivative of a mean
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

// Rows of n examples become columns of the inputs of a tower; columns up to whole vectors are zeros, because numbers of
// an earlier batch there need not be finite.
template <class T>
static void turn_rows(const Room<T>& room, ptrdiff_t tower, ptrdiff_t n) {
    const ptrdiff_t n_in = room.network.layers[tower].n_in, n_columns = whole_vectors<T>(n);
    __builtin_memset(room.by_example + n * n_in, 0, (n_columns - n) * n_in * sizeof(T));
    transpose_block(room.by_example, n_in, n_columns, n_in, room.inputs_of(tower, room.inputs), room.network.n_columns);
}

// ---- a batch -------------------------------------------------------------------------------------------------------

template <class T>
static void run_layer(T* weights, const Room<T>& room, ptrdiff_t k, ptrdiff_t n_columns) {
    forward(layer_of(room.network, weights, k), room.inputs_of(k, room.inputs), room.outputs_of(k, room.inputs),
            room.network.n_columns, n_columns);
}

template <class T>
static void step_layer(T* weights, T* to, const Room<T>& room, ptrdiff_t k, ptrdiff_t n) {
    backward(layer_of(room.network, weights, k), layer_of(room.network, to, k), room.inputs_of(k, room.inputs),
             room.outputs_of(k, room.inputs), room.inputs_of(k, room.steps), room.outputs_of(k, room.steps),
             room.by_example, room.sums, room.network.n_columns, n);
}

// The users' tower for a single user, and its addition to the bias of layer 2.
template <class T>
static void run_user(T* weights, const Room<T>& room) {
    forward_one(layer_of(room.network, weights, 0), room.user_x, room.user_y);
    rectify(room.user_y, room.network.layers[0].n_out);
    forward_one(users_part(room.network, weights), room.user_y, room.bias);
}

// The step of a single user's tower and of its addition to layer 2; the step of layer 2 is in `sums`.
template <class T>
static void step_user(T* weights, T* to, T* to_embeddings, const int32_t* slots, int64_t user, const Room<T>& room) {
    const Layer<T> tower = layer_of(room.network, weights, 0), to_tower = layer_of(room.network, to, 0);
    backward_one(users_part(room.network, weights), users_part(room.network, to), room.user_y, room.user_dy, room.sums);
    for (ptrdiff_t o = 0; o < tower.n_out; ++o) {
        if (!(room.user_y[o] > 0)) room.user_dy[o] = 0;  // relu: no step where it cut off
        to_tower.bias[o] += room.user_dy[o];
    }
    backward_one(tower, to_tower, room.user_x, room.user_dx, room.user_dy);
    scatter(to_embeddings, slots, room.network.users, user, room.network.layers[0].n_out, room.user_dx);
}

// Logits, into `sums`.
template <class T>
static void run_output(T* weights, const Room<T>& room, ptrdiff_t n_columns) {
    typedef NativeVector<T> V;
    const ptrdiff_t last = room.network.n_layers - 1, stride = room.network.n_columns;
    const Layer<T> layer = layer_of(room.network, weights, last);
    const T* x = room.inputs_of(last, room.inputs);
    // z = w'x + b, example by example in lanes.
    for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES) {
        V even = spread<V>(layer.bias[0]), odd = V{};
        for (ptrdiff_t i = 0; i < layer.n_in; i += 2) {
            even = multiply_add(spread<V>(layer.weights[i]), load<V>(x + i * stride + j), even);
            odd = multiply_add(spread<V>(layer.weights[i + 1]), load<V>(x + (i + 1) * stride + j), odd);
        }
        store(room.sums + j, even + odd);
    }
}

// From the logits in `sums`: the steps of the output layer and of its inputs, from which all others follow.
template <class T>
static void step_output(T* weights, T* to, const Room<T>& room, const int64_t* batch, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const Network& network = room.network;
    const ptrdiff_t last = network.n_layers - 1, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const Layer<T> layer = layer_of(network, weights, last), out = layer_of(network, to, last);
    const T* x = room.inputs_of(last, room.inputs);
    T *dx = room.inputs_of(last, room.steps), *steps = room.sums;
    for (ptrdiff_t j = 0; j < n; ++j) {
        // At most 1: neither exponential nor quotient overflows
        const double small = __builtin_exp(-__builtin_fabs((double)steps[j]));
        const double probability = (steps[j] >= 0 ? 1 : small) / (1 + small);
        // -rate dz = rate (label - sigmoid(z)) / n (Wang et al. 2021, equation 2)
        steps[j] = (T)(network.learning_rate * (network.labels[batch[j]] - probability) / n);
        out.bias[0] += steps[j];
    }
    for (ptrdiff_t j = n; j < n_columns; ++j) steps[j] = 0;  // columns past the last example add 0
    for (ptrdiff_t i = 0; i < layer.n_in; i += lanes) {
        V sums[lanes];
        for (int k = 0; k < lanes; ++k) {
            const V weight = spread<V>(layer.weights[i + k]);
            sums[k] = V{};
            for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
                const V step = load<V>(steps + j);
                store(dx + (i + k) * stride + j, weight * step);  // dx = w dz, by the weight before its step
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
    const Room<T> room(network, memory);
    const bool alone = has_one_user(network);
    const ptrdiff_t width = network.layers[0].n_out, stride = network.n_columns, n_columns = whole_vectors<T>(n);
    const ptrdiff_t last = network.n_layers - 1, of_items = width * stride;
    const ptrdiff_t n_user = network.layers[0].n_in, n_item = network.layers[1].n_in;

    // Forward: embeddings, towers, hidden layers, logits.
    for (ptrdiff_t j = 0; j < n; ++j)
        gather(embeddings, slots, network.items, network.example_items[batch[j]], width, room.by_example + j * n_item);
    turn_rows(room, 1, n);
    if (alone) {
        gather(embeddings, slots, network.users, user, width, room.user_x);
        run_user(weights, room);
    } else {
        for (ptrdiff_t j = 0; j < n; ++j)
            gather_user(network, embeddings, slots, user, network.example_contexts[batch[j]],
                        room.by_example + j * n_user);
        turn_rows(room, 0, n);
        run_layer(weights, room, 0, n_columns);
    }
    run_layer(weights, room, 1, n_columns);
    if (alone)
        forward(items_part(network, weights, room.bias), room.inputs_of(2, room.inputs) + of_items,
                room.outputs_of(2, room.inputs), stride, n_columns);
    else run_layer(weights, room, 2, n_columns);
    for (ptrdiff_t k = 3; k < last; ++k) run_layer(weights, room, k, n_columns);
    run_output(weights, room, n_columns);

    // Backward, from the last layer to the first: each step is taken where its product arises.
    step_output(weights, to, room, batch, n);
    for (ptrdiff_t k = last - 1; k > 2; --k) step_layer(weights, to, room, k, n);
    if (alone) {
        backward(items_part(network, weights, weights + network.layers[2].bias),
                 items_part(network, to, to + network.layers[2].bias), room.inputs_of(2, room.inputs) + of_items,
                 room.outputs_of(2, room.inputs), room.inputs_of(2, room.steps) + of_items,
                 room.outputs_of(2, room.steps), room.by_example, room.sums, stride, n);
        step_user(weights, to, to_embeddings, slots, user, room);
    } else step_layer(weights, to, room, 2, n);
    step_layer(weights, to, room, 1, n);
    if (!alone) {
        step_layer(weights, to, room, 0, n);
        transpose_block(room.inputs_of(0, room.steps), stride, n_user, n_columns, room.by_example, n_user);
        for (ptrdiff_t j = 0; j < n; ++j)
            scatter_user(network, to_embeddings, slots, user, network.example_contexts[batch[j]],
                         room.by_example + j * n_user);
    }
    transpose_block(room.inputs_of(1, room.steps), stride, n_item, n_columns, room.by_example, n_item);
    for (ptrdiff_t j = 0; j < n; ++j)
        scatter(to_embeddings, slots, network.items, network.example_items[batch[j]], width,
                room.by_example + j * n_item);
}

// Fisher and Yates, from half a word a draw; the place of the next half.
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
