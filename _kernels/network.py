"""Client updates and scores of the two-tower network (docs/explanation/network.md), in Numba.  Inputs are trusted.

A layer is ``y = relu(W'x + b)``, the loss of a batch its mean binary cross-entropy on logits z, so that

    dz = (sigmoid(z) - label) / n        dW = x dy'        dx = W dy        (dy = 0 where y = 0)

Each client takes steps of SGD on a copy of its own: the dense weights and the embeddings it touches.  The gradient of
the logits is scaled by minus the learning rate where it arises, so every product of the backward pass is already the
step, and is added to the weights where they lie.

All products go through the tile of vector registers in `_layers`, whose size the caller takes from the host.  Widths
are multiples of 16, so tiles have no remainder.  Without contexts a client's user is the same in all its examples: then
the users' tower is run once a step, and what it adds to the first hidden layer is part of that layer's bias.

Numba, because vectors are those of the host.  As in `sgd` there
is no parallel loop: functions release the GIL and are called from threads, each client is computed by one of them.
Fast-math is only {contract, reassoc, nsz, arcp}: NaN must survive to be seen.
"""

import math
from typing import NamedTuple

import numpy as np

from fastfedrec._kernels._layers import (
    add_product,
    aligned_zeros,
    backward,
    backward_one,
    compile_part,
    copy,
    fill,
    forward,
    forward_one,
    gather,
    scatter,
    take_next,
    transpose,
)
from fastfedrec._kernels.sgd import compile_kernel

SCORE_BLOCK = 64  # items


class Tables(NamedTuple):
    """Embedding rows of each field of each user, context and item: those of field f of entry e start at e * n + f."""

    user_starts: np.ndarray
    user_rows: np.ndarray
    context_starts: np.ndarray
    context_rows: np.ndarray
    item_starts: np.ndarray
    item_rows: np.ndarray
    n_user_fields: int
    n_context_fields: int
    n_item_fields: int


# ---- a batch ----------------------------------------------------------------------------------------------------


class Room(NamedTuple):
    """What one thread works in; the inputs of layer k begin at places[k] of `inputs`, and their steps in `steps`."""

    places: np.ndarray
    inputs: np.ndarray
    steps: np.ndarray
    by_example: np.ndarray
    sums: np.ndarray
    user_x: np.ndarray
    user_y: np.ndarray
    user_dx: np.ndarray
    user_dy: np.ndarray
    bias: np.ndarray


@compile_part
def make_room(like, layers, n_columns):
    """Room for that many examples."""
    places, widest = np.zeros(len(layers) + 1, dtype=np.int64), n_columns
    for k in range(len(layers)):
        places[k + 1] = places[k] + layers[k, 0] * n_columns
        widest = max(widest, layers[k, 0], layers[k, 1])
    return Room(
        places,
        aligned_zeros(like, places[-1]),
        aligned_zeros(like, places[-1]),
        aligned_zeros(like, widest * n_columns),
        aligned_zeros(like, widest),
        aligned_zeros(like, layers[0, 0]),
        aligned_zeros(like, layers[0, 1]),
        aligned_zeros(like, layers[0, 0]),
        aligned_zeros(like, layers[0, 1]),
        aligned_zeros(like, layers[2, 1]),
    )


@compile_part
def layer_of(w, layers, k):
    """Weights and bias."""
    n_in, n_out, w_at, b_at = layers[k]
    return w[w_at : w_at + n_in * n_out].reshape(n_in, n_out), w[b_at : b_at + n_out]


@compile_part
def inputs_of(layers, places, k, memory):
    """Inputs of layer k, or their steps, one example a column.  Those of the towers' outputs lie in that of layer 2."""
    return memory[places[k] : places[k + 1]].reshape(layers[k, 0], -1)


@compile_part
def outputs_of(layers, places, k, memory):
    """What layer k writes: the users' tower (0) before the items' (1)."""
    if k > 1:
        return inputs_of(layers, places, k + 1, memory)
    return inputs_of(layers, places, 2, memory)[k * layers[k, 1] : (k + 1) * layers[k, 1]]


@compile_part
def embed_items(e, slots, tables, items, batch, layers, room, n_columns, lanes):
    """Inputs of the items' tower for the examples in `batch`."""
    rows = room.by_example[: n_columns * layers[1, 0]].reshape(n_columns, layers[1, 0])
    for b in range(len(batch)):
        gather(e, slots, tables.item_starts, tables.item_rows, items[batch[b]], rows[b])
    transpose(rows, inputs_of(layers, room.places, 1, room.inputs), n_columns, layers[1, 0], lanes)


@compile_part
def embed_user(e, slots, tables, user, context, out):
    """Inputs of the users' tower for one example."""
    own = tables.n_user_fields * e.shape[1]
    gather(e, slots, tables.user_starts, tables.user_rows, user, out[:own])
    gather(e, slots, tables.context_starts, tables.context_rows, context, out[own:])


@compile_part
def scatter_user(e, slots, tables, user, context, steps):
    """Back from the inputs of the users' tower."""
    own = tables.n_user_fields * e.shape[1]
    scatter(e, slots, tables.user_starts, tables.user_rows, user, steps[:own])
    scatter(e, slots, tables.context_starts, tables.context_rows, context, steps[own:])


@compile_part
def run_layer(w, layers, room, k, n_columns, lanes, rows):
    """One layer, by its number."""
    weights, bias = layer_of(w, layers, k)
    x = inputs_of(layers, room.places, k, room.inputs)
    forward(weights, bias, x, outputs_of(layers, room.places, k, room.inputs), n_columns, lanes, rows)


@compile_part
def step_layer(w, layers, room, k, n, lanes, rows):
    """The step of one layer, by its number."""
    weights, bias = layer_of(w, layers, k)
    x, dx = (inputs_of(layers, room.places, k, room.inputs), inputs_of(layers, room.places, k, room.steps))
    y, dy = (outputs_of(layers, room.places, k, room.inputs), outputs_of(layers, room.places, k, room.steps))
    backward(weights, bias, x, y, dx, dy, room.by_example, room.sums, n, lanes, rows)


@compile_part
def run_user(w, layers, room):
    """The users' tower for a single user, and what it adds to the bias of the first hidden layer."""
    weights, bias = layer_of(w, layers, 0)
    forward_one(weights, bias, room.user_x, room.user_y)
    for o in range(len(room.user_y)):  # NaN stays
        room.user_y[o] = room.user_y.dtype.type(0) if room.user_y[o] < 0 else room.user_y[o]
    weights, bias = layer_of(w, layers, 2)
    forward_one(weights[: len(room.user_y)], bias, room.user_y, room.bias)


@compile_part
def step_user(w, e, slots, layers, tables, user, room):
    """The step of a single user's tower and of what it adds to the first hidden layer, whose own one is in `sums`."""
    first, _ = layer_of(w, layers, 2)
    weights, bias = layer_of(w, layers, 0)
    backward_one(first[: len(bias)], room.user_y, room.user_dy, room.sums[: first.shape[1]])
    for j in range(len(bias)):
        room.user_dy[j] = room.user_dy[j] if room.user_y[j] > 0 else 0.0
        bias[j] += room.user_dy[j]
    backward_one(weights, room.user_x, room.user_dx, room.user_dy)
    scatter_user(e, slots, tables, user, user, room.user_dx)


@compile_part
def run_output(w, layers, room, n_columns):
    """Logits, into `sums`."""
    last = len(layers) - 1
    weights, bias = layer_of(w, layers, last)
    x = inputs_of(layers, room.places, last, room.inputs)
    logits = room.sums[:n_columns]
    fill(logits, bias[0])
    for i in range(len(x)):
        for b in range(n_columns):
            logits[b] += weights[i, 0] * x[i, b]


@compile_part
def step_output(w, layers, room, labels, batch, n_columns, learning_rate):
    """From the logits in `sums`: the step of the output layer, and that of its inputs, from which all others follow."""
    last, n, logits = len(layers) - 1, len(batch), room.sums[:n_columns]
    weights, bias = layer_of(w, layers, last)
    x, dx = inputs_of(layers, room.places, last, room.inputs), inputs_of(layers, room.places, last, room.steps)
    for b in range(n):
        small = math.exp(-abs(logits[b]))
        probability = (1.0 if logits[b] >= 0 else small) / (1 + small)
        logits[b] = learning_rate * (float(labels[batch[b]]) - probability) / n
        bias[0] += logits[b]
    fill(logits[n:], 0)
    for i in range(len(x)):
        total = w.dtype.type(0)
        for b in range(n_columns):
            dx[i, b] = weights[i, 0] * logits[b]
            total += x[i, b] * logits[b]
        weights[i, 0] += total


@compile_part
def step_batch(w, e, slots, layers, tables, user, items, labels, contexts, batch, room, learning_rate, lanes, rows):
    """One step of SGD."""
    n, n_columns = len(batch), -(-len(batch) // len(lanes)) * len(lanes)
    width, last, places, alone = layers[0, 1], len(layers) - 1, room.places, tables.n_context_fields == 0
    first, _ = layer_of(w, layers, 2)
    x, y = inputs_of(layers, places, 2, room.inputs)[width:], outputs_of(layers, places, 2, room.inputs)
    dx, dy = inputs_of(layers, places, 2, room.steps)[width:], outputs_of(layers, places, 2, room.steps)
    user_rows = room.by_example[: n_columns * layers[0, 0]].reshape(n_columns, layers[0, 0])
    item_rows = room.by_example[: n_columns * layers[1, 0]].reshape(n_columns, layers[1, 0])

    embed_items(e, slots, tables, items, batch, layers, room, n_columns, lanes)
    if alone:
        embed_user(e, slots, tables, user, user, room.user_x)
        run_user(w, layers, room)
    else:
        for b in range(n):
            embed_user(e, slots, tables, user, contexts[batch[b]], user_rows[b])
        transpose(user_rows, inputs_of(layers, places, 0, room.inputs), n_columns, layers[0, 0], lanes)
    for k in range(1 if alone else 0, last):
        if k == 2 and alone:
            forward(first[width:], room.bias, x, y, n_columns, lanes, rows)
        else:
            run_layer(w, layers, room, k, n_columns, lanes, rows)
    run_output(w, layers, room, n_columns)

    step_output(w, layers, room, labels, batch, n_columns, learning_rate)
    for k in range(last - 1, 0 if alone else -1, -1):
        if k == 2 and alone:
            _, bias = layer_of(w, layers, k)
            backward(first[width:], bias, x, y, dx, dy, room.by_example, room.sums, n, lanes, rows)
            step_user(w, e, slots, layers, tables, user, room)
        else:
            step_layer(w, layers, room, k, n, lanes, rows)
    if not alone:
        transpose(inputs_of(layers, places, 0, room.steps), user_rows, layers[0, 0], n_columns, lanes)
        for b in range(n):
            scatter_user(e, slots, tables, user, contexts[batch[b]], user_rows[b])
    transpose(inputs_of(layers, places, 1, room.steps), item_rows, layers[1, 0], n_columns, lanes)
    for b in range(n):
        scatter(e, slots, tables.item_starts, tables.item_rows, items[batch[b]], item_rows[b])


# ---- clients ----------------------------------------------------------------------------------------------------


@compile_kernel
def train_clients(
    parameters,  # IN (n_parameters,) dense weights, then embeddings
    layers,  # IN (n_layers, 4) inputs, outputs, first weight, bias: users' tower, items' tower, hidden ones, output
    tables,
    users,  # IN (n_clients,) rows of the user table
    starts,  # IN (n_clients + 1,) where the examples of each client begin
    items,  # IN (n_examples,)
    labels,  # IN (n_examples,)
    contexts,  # IN (n_examples,)
    words,  # IN (n_words,) uint64, uniform, two draws each
    word_starts,  # IN (n_clients + 1,)
    row_starts,  # IN (n_clients + 1,) where the touched rows of each client begin
    touched,  # IN (n_touched,)
    order,  # IN (n_clients,) in which clients are taken
    counter,  # IN/OUT (1,) 0; shared by all threads
    out_starts,  # IN (n_clients + 1,)
    out,  # OUT (out_starts[-1],) each client's update: dense weights, then its touched rows
    learning_rate,
    n_epochs,
    batch_size,
    lanes,
    rows,
):
    """SGD of clients, each on its own; called by every thread with the same arguments."""
    width, n_dense = layers[0, 1], layers[-1, 3] + 1
    embeddings = parameters[n_dense:].reshape(-1, width)
    slots = np.zeros(len(embeddings), dtype=np.int32)
    w = aligned_zeros(parameters, n_dense)
    room = make_room(parameters, layers, -(-batch_size // len(lanes)) * len(lanes))
    place = take_next(counter)
    while place < len(order):
        client = order[place]
        copy(parameters[:n_dense], w)
        mine = touched[row_starts[client] : row_starts[client + 1]]
        e = aligned_zeros(parameters, len(mine) * width).reshape(-1, width)
        for k in range(len(mine)):
            slots[mine[k]] = k
            copy(embeddings[mine[k]], e[k])
        first, n = starts[client], starts[client + 1] - starts[client]
        turn = np.arange(first, first + n)
        draws = 2 * word_starts[client]
        for _ in range(n_epochs):
            for k in range(n - 1, 0, -1):  # Fisher and Yates
                half = words[draws >> 1] >> np.uint64(32 * (draws & 1)) & np.uint64(0xFFFFFFFF)
                draws += 1
                other = np.int64(half) * (k + 1) >> 32
                turn[k], turn[other] = turn[other], turn[k]
            for b in range(0, n, batch_size):
                batch = turn[b : b + batch_size]
                step_batch(w, e, slots, layers, tables, users[client], items, labels, contexts, batch, room,
                           learning_rate, lanes, rows)  # fmt: skip
        update = out[out_starts[client] : out_starts[client + 1]]
        for k in range(n_dense):
            update[k] = w[k] - parameters[k]
        for k in range(len(mine)):
            for j in range(width):
                update[n_dense + k * width + j] = e[k, j] - embeddings[mine[k], j]
        place = take_next(counter)


@compile_kernel
def add_updates(
    values,  # IN (starts[-1],)
    starts,  # IN (n_clients + 1,)
    row_starts,  # IN (n_clients + 1,)
    touched,  # IN (n_touched,)
    out,  # IN/OUT (n_parameters,)
    n_dense,
    width,
    first,
    last,
):
    """Add the updates of a run of clients, one after the other."""
    for client in range(first, last):
        update = values[starts[client] : starts[client + 1]]
        for k in range(n_dense):
            out[k] += update[k]
        for k in range(row_starts[client + 1] - row_starts[client]):
            at = n_dense + touched[row_starts[client] + k] * width
            for j in range(width):
                out[at + j] += update[n_dense + k * width + j]


# ---- scores -----------------------------------------------------------------------------------------------------


@compile_kernel
def score_items(
    parameters,  # IN (n_parameters,)
    layers,  # IN (n_layers, 4)
    tables,
    users,  # IN (n_queries,) rows of the user table
    contexts,  # IN (n_queries,)
    clients,  # IN (n_queries,) whose update is added to the parameters; -1 for none
    order,  # IN (n_queries,) queries, those of a client together
    values,  # IN (starts[-1],) updates
    starts,  # IN (n_clients + 1,)
    row_starts,  # IN (n_clients + 1,)
    touched,  # IN (n_touched,)
    out,  # OUT (n_queries, n_items) logits
    first,
    last,
    lanes,
    rows,
):
    """Logits of all items for the queries order[first:last]; what items contribute is computed once a client."""
    n_dense, n_items = layers[-1, 3] + 1, out.shape[1]
    p = aligned_zeros(parameters, len(parameters))
    w, e = p[:n_dense], p[n_dense:].reshape(-1, layers[0, 1])
    slots, items = np.arange(len(e)), np.arange(n_items)
    room = make_room(parameters, layers, SCORE_BLOCK)
    n_blocks, n_out = -(-n_items // SCORE_BLOCK), layers[2, 1]
    from_items = aligned_zeros(parameters, n_blocks * n_out * SCORE_BLOCK).reshape(n_blocks, n_out, SCORE_BLOCK)
    x = outputs_of(layers, room.places, 1, room.inputs)
    y = outputs_of(layers, room.places, 2, room.inputs)
    for place in range(first, last):
        query = order[place]
        client = clients[query]
        if place == first or client != clients[order[place - 1]]:
            copy(parameters, p)
            if client >= 0:
                add_updates(values, starts, row_starts, touched, p, n_dense, e.shape[1], client, client + 1)
            weights, _ = layer_of(w, layers, 2)
            fill(from_items.reshape(-1), 0)
            for block in range(n_blocks):
                some = items[block * SCORE_BLOCK : (block + 1) * SCORE_BLOCK]
                embed_items(e, slots, tables, items, some, layers, room, SCORE_BLOCK, lanes)
                run_layer(w, layers, room, 1, SCORE_BLOCK, lanes, rows)
                add_product(weights[len(x) :], 1, n_out, x, from_items[block], SCORE_BLOCK, lanes, rows)
        embed_user(e, slots, tables, users[query], contexts[query], room.user_x)
        run_user(w, layers, room)
        for block in range(n_blocks):
            for o in range(n_out):
                for b in range(SCORE_BLOCK):
                    z = from_items[block, o, b] + room.bias[o]
                    y[o, b] = 0 if z < 0 else z
            for k in range(3, len(layers) - 1):
                run_layer(w, layers, room, k, SCORE_BLOCK, lanes, rows)
            run_output(w, layers, room, SCORE_BLOCK)
            n = min(SCORE_BLOCK, n_items - block * SCORE_BLOCK)
            copy(room.sums, out[query, block * SCORE_BLOCK : block * SCORE_BLOCK + n])
