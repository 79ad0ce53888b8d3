"""Clients' steps on two contrastive losses, and codes of sequences (gru.md), in Numba.

The unit is in `_recurrence`.  Inputs are trusted.  The gradient of a loss is multiplied by minus the learning rate when
it is computed, as in `two_tower`.  Functions release the GIL and are called from threads; each client belongs to one.
"""

import math

import numpy as np

from fastfedrec._kernels.compute.networks._layers import (
    aligned_zeros,
    backward,
    compile_kernel,
    compile_part,
    copy,
    fill,
    forward,
    shuffle,
    take_next,
    transpose,
)
from fastfedrec._kernels.compute.networks._recurrence import (
    lay_out,
    make_scratch,
    run,
    run_back,
    scratch_size,
    weights_of,
    whole,
)

ENCODE_BLOCK = 64  # number of sequences that are encoded at a time


# ---- a batch ----------------------------------------------------------------------------------------------------


@compile_part
def contrast(anchor, d_anchor, indices, rows, d_rows, probabilities, learning_rate):
    """Compute the steps of a loss -log(exp(a'b_0) / sum_k exp(a'b_k)), where b_k is row indices[k]."""
    # Compute a'b_k, and the largest of them: exponents are at most 0, so none overflows.
    highest = -np.inf
    for k in range(len(indices)):
        total = rows.dtype.type(0)
        for j in range(len(anchor)):
            total += anchor[j] * rows[indices[k], j]
        probabilities[k] = total
        highest = total if k == 0 or total > highest else highest
    total = 0.0
    # The total of the softmax is at least 1, from the largest exponent, so there is no division by 0.
    for k in range(len(indices)):
        probabilities[k] = math.exp(probabilities[k] - highest)
        total += probabilities[k]
    for k in range(len(indices)):
        # -rate d loss / d(a'b_k) = rate (1[k = 0] - softmax_k)
        step = rows.dtype.type(learning_rate * ((k == 0) - probabilities[k] / total))
        for j in range(len(anchor)):
            d_anchor[j] += step * rows[indices[k], j]
            d_rows[indices[k], j] += step * anchor[j]


@compile_part
def step_batch(w, e, slots, items, starts, candidates, batch, scratch, learning_rate, item_weight, segment_weight,
               lanes, rows):  # fmt: skip
    """Take one step of SGD on the mean loss of a batch."""
    width, n, n_candidates = e.shape[1], len(batch), candidates.shape[1]
    weights, n_per_example = weights_of(w, width), (len(starts) - 1) // len(candidates)
    chosen = np.empty(n * n_per_example, dtype=np.int64)
    for b in range(n):
        for k in range(n_per_example):
            chosen[b * n_per_example + k] = n_per_example * batch[b] + k
    order, running, firsts = lay_out(starts, chosen, lanes)
    run(weights, e, slots, items, starts, chosen, order, running, firsts, scratch, lanes, rows)
    n_last, n_steps = whole(len(chosen), lanes), len(running)
    last = scratch.states[width * firsts[n_steps] : width * (firsts[n_steps] + n_last)].reshape(width, n_last)
    last_rows = scratch.last_rows[: width * n_last].reshape(n_last, width)
    d_last_rows = scratch.d_last_rows[: width * n_last].reshape(n_last, width)
    transpose(last, last_rows, width, n_last, lanes)
    fill(scratch.d_last_rows[: width * n_last], 0)
    columns = np.empty(len(chosen), dtype=np.int64)
    # columns[k] is the column of sequence k in `run`.
    for c in range(len(chosen)):
        columns[order[c]] = c

    n_items = whole(n * n_candidates, lanes)
    item_rows = scratch.item_rows[: width * n_items].reshape(n_items, width)
    d_item_rows = scratch.d_item_rows[: width * n_items].reshape(n_items, width)
    for b in range(n):
        for k in range(n_candidates):
            copy(e[slots[candidates[batch[b], k]]], item_rows[b * n_candidates + k])
    item_x = scratch.item_x[: width * n_items].reshape(width, n_items)
    item_y = scratch.item_y[: width * n_items].reshape(width, n_items)
    d_item_x = scratch.d_item_x[: width * n_items].reshape(width, n_items)
    d_item_y = scratch.d_item_y[: width * n_items].reshape(width, n_items)
    transpose(item_rows, item_x, n_items, width, lanes)
    forward(weights.items, weights.item_bias, item_x, item_y, n_items, lanes, rows)
    transpose(item_y, item_rows, width, n_items, lanes)
    fill(scratch.d_item_rows[: width * n_items], 0)

    numbers = np.arange(n_items)
    # Each example has its item loss, then its segment loss (Wang et al. 2021, equations 8 and 9).
    for b in range(n):
        example_columns = columns[b * n_per_example : (b + 1) * n_per_example]
        item_column, segment_column = example_columns[0], example_columns[1]
        item_indices = numbers[b * n_candidates : (b + 1) * n_candidates]
        contrast(last_rows[item_column], d_last_rows[item_column], item_indices, item_rows, d_item_rows,
                 scratch.probabilities, learning_rate * item_weight / n)  # fmt: skip
        contrast(last_rows[segment_column], d_last_rows[segment_column], example_columns[2:], last_rows, d_last_rows,
                 scratch.probabilities, learning_rate * segment_weight / n)  # fmt: skip

    # The backward pass goes through the layer of the items, then through time.
    transpose(d_item_rows, d_item_y, n_items, width, lanes)
    backward(weights.items, weights.item_bias, item_x, item_y, d_item_x, d_item_y, scratch.by_example, scratch.sums,
             n * n_candidates, lanes, rows)  # fmt: skip
    transpose(d_item_x, d_item_rows, width, n_items, lanes)
    transpose(d_last_rows, scratch.d_state[: width * n_last].reshape(width, n_last), n_last, width, lanes)
    run_back(weights, e, slots, items, starts, chosen, order, running, firsts, scratch, lanes, rows)
    # Candidates may repeat: their steps are added one after the other.
    for b in range(n):
        for k in range(n_candidates):
            row = e[slots[candidates[batch[b], k]]]
            for j in range(width):
                row[j] += d_item_rows[b * n_candidates + k, j]


# ---- clients ----------------------------------------------------------------------------------------------------


@compile_kernel
def train_clients(
    parameters,  # IN (n_parameters,) dense weights, then embeddings
    indptr,  # IN (n_clients + 1,) where the examples of each client begin
    items,  # IN (starts[-1],)
    starts,  # IN (n_examples * n_each + 1,) where each sequence begins; none is empty
    candidates,  # IN (n_examples, n_candidates) items
    words,  # IN (n_words,) uint64, uniform, two draws each
    word_starts,  # IN (n_clients + 1,)
    row_starts,  # IN (n_clients + 1,) where the touched rows of each client begin
    touched,  # IN (n_touched,)
    order,  # IN (n_clients,) order of the clients
    out_starts,  # IN (n_clients + 1,)
    out,  # OUT (out_starts[-1],) each client's update: dense weights, then its touched rows
    counter,  # IN/OUT (1,) 0; shared by all threads
    memory,  # scratch (`scratch_size`,) of this thread
    scratch_shape,  # columns of all steps, sequences and items of the largest batch
    width,
    learning_rate,
    n_epochs,
    batch_size,
    item_weight,
    segment_weight,
    lanes,
    rows,
):
    """Train clients by SGD, each separately; every thread passes the same arguments except `memory`.

    An example has a sequence with a replaced item, one with a replaced segment, the true segment, and other segments;
    its candidates are the true item, and other items.
    """
    n_dense = 7 * width * width + 7 * width
    embeddings = parameters[n_dense:].reshape(-1, width)
    slots = np.zeros(len(embeddings), dtype=np.int32)
    w = aligned_zeros(parameters, n_dense)
    scratch = make_scratch(memory, width, *scratch_shape)
    index = take_next(counter)
    # Threads take clients in `order` from the counter; each client has a separate range of `out`.
    while index < len(order):
        client = order[index]
        copy(parameters[:n_dense], w)
        client_rows = touched[row_starts[client] : row_starts[client + 1]]
        e = aligned_zeros(parameters, len(client_rows) * width).reshape(-1, width)
        for k in range(len(client_rows)):
            slots[client_rows[k]] = k
            copy(embeddings[client_rows[k]], e[k])
        example_order = np.arange(indptr[client], indptr[client + 1])
        draws = 2 * word_starts[client]
        for _ in range(n_epochs):
            draws = shuffle(example_order, words, draws)
            for b in range(0, len(example_order), batch_size):
                step_batch(w, e, slots, items, starts, candidates, example_order[b : b + batch_size], scratch,
                           learning_rate, item_weight, segment_weight, lanes, rows)  # fmt: skip
        update = out[out_starts[client] : out_starts[client + 1]]
        for k in range(n_dense):
            update[k] = w[k] - parameters[k]
        for k in range(len(client_rows)):
            for j in range(width):
                update[n_dense + k * width + j] = e[k, j] - embeddings[client_rows[k], j]
        index = take_next(counter)


@compile_kernel
def encode(
    parameters,  # IN (n_parameters,)
    items,  # IN (starts[-1],)
    starts,  # IN (n_sequences + 1,) none is empty
    order,  # IN (n_sequences,) by length
    counter,  # IN/OUT (1,) 0; shared by all threads
    out,  # OUT (n_sequences, width)
    lanes,
    rows,
):
    """Compute the last state of each sequence, in blocks of similar lengths; called by every thread."""
    width = out.shape[1]
    n_dense, longest = 7 * width * width + 7 * width, 0
    for s in range(len(starts) - 1):
        longest = max(longest, starts[s + 1] - starts[s])
    p = aligned_zeros(parameters, len(parameters))
    copy(parameters, p)
    e = p[n_dense:].reshape(-1, width)
    slots, weights = np.arange(len(e)), weights_of(p, width)
    n_last = whole(ENCODE_BLOCK, lanes)
    scratch_shape = (longest * n_last, n_last, len(lanes))
    scratch = make_scratch(np.empty(scratch_size(p.itemsize, width, *scratch_shape), p.dtype), width, *scratch_shape)
    block = take_next(counter)
    while block * ENCODE_BLOCK < len(order):
        chosen = order[block * ENCODE_BLOCK : (block + 1) * ENCODE_BLOCK]
        sequences, running, firsts = lay_out(starts, chosen, lanes)
        run(weights, e, slots, items, starts, chosen, sequences, running, firsts, scratch, lanes, rows)
        n, n_steps = whole(len(chosen), lanes), len(running)
        last = scratch.states[width * firsts[n_steps] : width * (firsts[n_steps] + n)].reshape(width, n)
        last_rows = scratch.last_rows[: width * n].reshape(n, width)
        transpose(last, last_rows, width, n, lanes)
        for c in range(len(chosen)):
            copy(last_rows[c], out[chosen[sequences[c]]])
        block = take_next(counter)
