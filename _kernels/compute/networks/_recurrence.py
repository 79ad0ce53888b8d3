"""A gated recurrent unit on sequences of items, forward and backward, for the kernels of `gru`.  Inputs are trusted.

With x the embedding of an item and h the state, both of the same width (docs/explanation/compute/networks/gru.md):

    r = sigmoid(W_r x + U_r h + ..)    z = sigmoid(W_z x + U_z h + ..)    n = tanh(W_n x + b + r (U_n h + c))
    h' = n + z (h - n)

Sequences of a batch are sorted by length, the longest first, and end at the same step.  Sequences that run at step t
are the first columns, the last states of all are adjacent, and a step computes no absent column except padding.  The
numbers of step t are one block in memory, a row for each unit.  The outputs of U are in the order n, r, z, and the
outputs of W in the order r, z, n, so that both are contiguous in a block of gates n_h, r, z, n_x.

The backward pass replaces gates by their steps in place.  All steps contain minus the learning rate from the loss on,
as in `two_tower`, so the final products are the steps of the weights and are added to them.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from fastfedrec._kernels.compute.networks._activations import expm1
from fastfedrec._kernels.compute.networks._layers import add_product, compile_part, copy, fill, transpose

LINE_BYTES = 64  # of a cache line


class Weights(NamedTuple):
    """Views of one flat array of parameters."""

    inputs: np.ndarray  # (width, 3 width)
    states: np.ndarray  # (width, 3 width)
    input_bias: np.ndarray
    state_bias: np.ndarray
    items: np.ndarray  # (width, width)
    item_bias: np.ndarray


class Scratch(NamedTuple):
    """Scratch memory of one thread.

    Columns and rows refer to a batch: sequences at each step, then sequences, then candidate items.
    """

    step_rows: np.ndarray  # (columns, width) embeddings of the sequences' items
    state_rows: np.ndarray  # (columns, width)
    input_rows: np.ndarray  # (columns, 3 width) steps
    recurrent_rows: np.ndarray  # (columns, 3 width) steps
    gates: np.ndarray  # a block of 4 width x n for each step
    states: np.ndarray  # a block of width x n for each step, and the last states
    x: np.ndarray  # (width, n), like the next two
    d_state: np.ndarray
    buffer: np.ndarray
    last_rows: np.ndarray  # (sequences, width)
    d_last_rows: np.ndarray
    item_x: np.ndarray  # (width, items)
    item_y: np.ndarray
    d_item_x: np.ndarray
    d_item_y: np.ndarray
    item_rows: np.ndarray  # (items, width)
    d_item_rows: np.ndarray
    by_example: np.ndarray
    sums: np.ndarray
    probabilities: np.ndarray
    total: np.ndarray  # (width, 3 width)


@compile_part
def weights_of(w, width):
    """Return the views of the dense parameters, by name."""
    square = width * width
    return Weights(
        w[: 3 * square].reshape(width, 3 * width),
        w[3 * square : 6 * square].reshape(width, 3 * width),
        w[6 * square : 6 * square + 3 * width],
        w[6 * square + 3 * width : 6 * square + 6 * width],
        w[6 * square + 6 * width : 7 * square + 6 * width].reshape(width, width),
        w[7 * square + 6 * width : 7 * square + 7 * width],
    )


@register_jitable
def scratch_sizes(width, n_columns, n_sequences, n_items):
    """Return the size of each part of a `Scratch` for the columns of all steps, sequences and items: whole vectors."""
    n, n_last, n_candidate = width * n_columns, width * n_sequences, width * n_items
    return (
        n, n, 3 * n, 3 * n, 4 * n, n + n_last,
        n_last, n_last, n_last, n_last, n_last,
        n_candidate, n_candidate, n_candidate, n_candidate, n_candidate, n_candidate, n_candidate,
        width, max(n_sequences, n_items), 3 * width * width,
    )  # fmt: skip


@register_jitable
def scratch_size(itemsize, width, n_columns, n_sequences, n_items):
    """Return the size of memory for a `Scratch` at any alignment."""
    line, length = LINE_BYTES // itemsize, 0
    for size in scratch_sizes(width, n_columns, n_sequences, n_items):
        length += -(-size // line) * line
    return length + line


@compile_part
def take_part(memory, n_used, n):
    """Return the next numbers of the memory, set to 0; parts begin on a cache line, as with `aligned_zeros`."""
    line, first = LINE_BYTES // memory.itemsize, n_used[0]
    n_used[0] += -(-n // line) * line
    part = memory[first : first + n]
    fill(part, 0)
    return part


@compile_part
def make_scratch(memory, width, n_columns, n_sequences, n_items):
    """Return a `Scratch` in `scratch_size` numbers of memory."""
    sizes = scratch_sizes(width, n_columns, n_sequences, n_items)
    n_used = np.array([-memory.ctypes.data % LINE_BYTES // memory.itemsize])
    return Scratch(
        take_part(memory, n_used, sizes[0]),
        take_part(memory, n_used, sizes[1]),
        take_part(memory, n_used, sizes[2]),
        take_part(memory, n_used, sizes[3]),
        take_part(memory, n_used, sizes[4]),
        take_part(memory, n_used, sizes[5]),
        take_part(memory, n_used, sizes[6]),
        take_part(memory, n_used, sizes[7]),
        take_part(memory, n_used, sizes[8]),
        take_part(memory, n_used, sizes[9]),
        take_part(memory, n_used, sizes[10]),
        take_part(memory, n_used, sizes[11]),
        take_part(memory, n_used, sizes[12]),
        take_part(memory, n_used, sizes[13]),
        take_part(memory, n_used, sizes[14]),
        take_part(memory, n_used, sizes[15]),
        take_part(memory, n_used, sizes[16]),
        take_part(memory, n_used, sizes[17]),
        take_part(memory, n_used, sizes[18]),
        take_part(memory, n_used, sizes[19]),
        take_part(memory, n_used, sizes[20]),
    )


@compile_part
def whole(n, lanes):
    """Return the next multiple of the vector's length."""
    return -(-n // len(lanes)) * len(lanes)


# ---- the recurrence ---------------------------------------------------------------------------------------------


@compile_part
def lay_out(starts, chosen, lanes):
    """Return the order of the sequences, longest first, the number that run at each step, and its first column."""
    n_steps = 0
    # The longest sequence has a column at every step.
    for s in chosen:
        n_steps = max(n_steps, starts[s + 1] - starts[s])
    running, firsts = np.zeros(n_steps, dtype=np.int64), np.zeros(n_steps + 1, dtype=np.int64)
    # A sequence of length l starts at step n_steps - l, so that all end together.
    for s in chosen:
        running[n_steps - (starts[s + 1] - starts[s])] += 1
    next_columns = np.zeros(n_steps, dtype=np.int64)  # for a counting sort
    for t in range(n_steps):
        if t:
            next_columns[t] = running[t - 1]
            running[t] += running[t - 1]
        firsts[t + 1] = firsts[t] + whole(running[t], lanes)
    # Each sequence has a column: sequences that start first come first.
    order = np.empty(len(chosen), dtype=np.int64)
    for k in range(len(chosen)):
        t = n_steps - (starts[chosen[k] + 1] - starts[chosen[k]])
        order[next_columns[t]] = k
        next_columns[t] += 1
    return order, running, firsts


@compile_part
def apply_gates(gates, width, n):
    """Replace the linear parts n_h, r, z, n_x of a step by the gates r, z and n in place; n_h stays."""
    hidden, r, new = gates[: width * n], gates[width * n : 2 * width * n], gates[3 * width * n :]
    sigmoid_gates = gates[width * n : 3 * width * n]
    one, two = gates.dtype.type(1), gates.dtype.type(2)
    for k in range(len(sigmoid_gates)):
        sigmoid_gates[k] = one / (two + expm1(-sigmoid_gates[k]))  # sigmoid(x) = 1 / (1 + e^-x), e^-x = 1 + expm1(-x)
    for k in range(len(new)):  # tanh
        shifted_exp = expm1(two * (new[k] + r[k] * hidden[k]))  # tanh(y) = expm1(2y) / (expm1(2y) + 2), y = n_x + r n_h
        new[k] = shifted_exp / (shifted_exp + two)


@compile_part
def run(weights, e, slots, items, starts, chosen, order, running, firsts, scratch, lanes, rows):
    """Run all steps; the last states are at the end of `states`, the longest sequence first."""
    width, n_steps = e.shape[1], len(running)
    bias, recurrent_bias = weights.input_bias, weights.state_bias
    fill(scratch.states[: width * firsts[1]], 0)
    for t in range(n_steps):
        first, n = firsts[t], firsts[t + 1] - firsts[t]
        step_rows = scratch.step_rows[width * first : width * (first + n)].reshape(n, width)
        for c in range(n):
            if c < running[t]:
                # x_t, the embedding of the sequence's item at this step
                copy(e[slots[items[starts[chosen[order[c]] + 1] - n_steps + t]]], step_rows[c])
            else:
                fill(step_rows[c], 0)
        x = scratch.x[: width * n].reshape(width, n)
        transpose(step_rows, x, n, width, lanes)
        flat = scratch.gates[4 * width * first : 4 * width * (first + n)]
        gates = flat.reshape(4 * width, n)
        for o in range(width):
            fill(gates[o], recurrent_bias[o])  # c
            fill(gates[width + o], bias[o] + recurrent_bias[width + o])
            fill(gates[2 * width + o], bias[width + o] + recurrent_bias[2 * width + o])
            fill(gates[3 * width + o], bias[2 * width + o])
        states = scratch.states[width * first : width * (first + n)]
        # Add W x to the gates r, z, n_x, and U h to n_h, r, z.
        add_product(weights.inputs, 1, 3 * width, x, gates[width:], n, lanes, rows)
        if t:  # the first states are zeros
            add_product(weights.states, 1, 3 * width, states.reshape(width, n), gates[: 3 * width], n, lanes, rows)
        apply_gates(flat, width, n)
        n_next = firsts[t + 2] - firsts[t + 1] if t + 1 < n_steps else n
        z, new = flat[2 * width * n : 3 * width * n], flat[3 * width * n :]
        next_states = scratch.states[width * (first + n) : width * (first + n + n_next)].reshape(width, n_next)
        if n_next == n:
            advance(states, z, new, next_states.reshape(-1))
        else:
            # More sequences run at the next step: the states have more columns there.
            advance(states, z, new, scratch.buffer[: width * n])
            copy_columns(scratch.buffer[: width * n].reshape(width, n), next_states, n)
        clear_columns(next_states, running[t])  # sequences that start at the next step start from 0


@compile_part
def copy_columns(x, out, n):
    """Copy the first columns."""
    for o in range(len(out)):
        for c in range(n):
            out[o, c] = x[o, c]


@compile_part
def clear_columns(out, first):
    """Set columns from `first` on to 0: no sequence runs there."""
    for o in range(len(out)):
        for c in range(first, out.shape[1]):
            out[o, c] = 0


@compile_part
def advance(states, z, new, out):
    """Compute the states after a step: n + z (h - n)."""
    for k in range(len(out)):
        out[k] = new[k] + z[k] * (states[k] - new[k])


@compile_part
def differentiate_gates(gates, states, d_state, buffer, width, n):
    """Replace gates by the steps of all linear parts, from the steps of the next states; d_state becomes z d_state."""
    size = width * n
    hidden, r, z, new = gates[:size], gates[size : 2 * size], gates[2 * size : 3 * size], gates[3 * size :]
    one = gates.dtype.type(1)
    for k in range(size):
        buffer[k] = d_state[k] * (states[k] - new[k]) * z[k] * (one - z[k])  # dz = dh' (h - n) z (1 - z)
    for k in range(size):
        new[k] = d_state[k] * (one - z[k]) * (one - new[k] * new[k])  # dn = dh' (1 - z) (1 - n^2)
    for k in range(size):
        d_state[k] *= z[k]  # dh = z dh'; `run_back` adds the part of U
    copy(buffer, z)
    for k in range(size):
        buffer[k] = new[k] * r[k]  # dn_h = dn r
    for k in range(size):
        r[k] = new[k] * hidden[k] * r[k] * (one - r[k])  # dr = dn n_h r (1 - r)
    copy(buffer, hidden)


@compile_part
def run_back(weights, e, slots, items, starts, chosen, order, running, firsts, scratch, lanes, rows):
    """Compute the steps of embeddings and of all weights from the steps of the last states in `d_state`."""
    width, n_steps = e.shape[1], len(running)
    for t in range(n_steps - 1, -1, -1):
        first, n = firsts[t], firsts[t + 1] - firsts[t]
        d_state = scratch.d_state[: width * n]
        flat = scratch.gates[4 * width * first : 4 * width * (first + n)]
        gates = flat.reshape(4 * width, n)
        states = scratch.states[width * first : width * (first + n)]
        differentiate_gates(flat, states, d_state, scratch.buffer[: width * n], width, n)
        d_x = scratch.x[: width * n].reshape(width, n)
        fill(scratch.x[: width * n], 0)
        # dx = W d(r, z, n_x) uses the weights before the step.
        add_product(weights.inputs, 3 * width, 1, gates[width:], d_x, n, lanes, rows)
        d_rows = scratch.buffer[: width * n].reshape(n, width)
        transpose(d_x, d_rows, width, n, lanes)
        for c in range(running[t]):
            # A row may occur more than once: its steps are added one after the other.
            row = e[slots[items[starts[chosen[order[c]] + 1] - n_steps + t]]]
            for j in range(width):
                row[j] += d_rows[c, j]
        begin, end = 3 * width * first, 3 * width * (first + n)
        transpose(gates[width:], scratch.input_rows[begin:end].reshape(n, 3 * width), 3 * width, n, lanes)
        transpose(gates, scratch.recurrent_rows[begin:end].reshape(n, 3 * width), 3 * width, n, lanes)
        state_rows = scratch.state_rows[width * first : width * (first + n)].reshape(n, width)
        transpose(states.reshape(width, n), state_rows, width, n, lanes)
        if t:
            d_before = d_state.reshape(width, n)
            # dh = z dh' + U d(n_h, r, z).
            add_product(weights.states, 3 * width, 1, gates[: 3 * width], d_before, n, lanes, rows)
            n_before = first - firsts[t - 1]
            if n_before < n:
                shrunk = scratch.buffer[: width * n_before]
                copy_columns(d_before, shrunk.reshape(width, n_before), n_before)
                copy(shrunk, scratch.d_state[: width * n_before])
            clear_columns(scratch.d_state[: width * n_before].reshape(width, n_before), running[t - 1])
    n = firsts[n_steps]
    input_rows = scratch.input_rows[: 3 * width * n].reshape(n, 3 * width)
    recurrent_rows = scratch.recurrent_rows[: 3 * width * n].reshape(n, 3 * width)
    add_rows(input_rows, weights.input_bias, scratch.total)
    add_rows(recurrent_rows, weights.state_bias, scratch.total)
    add_outer(scratch.step_rows, input_rows, weights.inputs, scratch.total, lanes, rows)
    add_outer(scratch.state_rows, recurrent_rows, weights.states, scratch.total, lanes, rows)


# Sums over all steps are separate from the weights: a single term added to a weight would be lost in rounding.


@compile_part
def add_rows(rows, out, total):
    """Add the sum of all rows."""
    fill(total[: len(out)], 0)
    for c in range(len(rows)):
        for o in range(len(out)):
            total[o] += rows[c, o]
    for o in range(len(out)):
        out[o] += total[o]


@compile_part
def add_outer(a, b, out, total, lanes, rows):
    """Add a'b."""
    fill(total, 0)
    total = total.reshape(out.shape)
    add_product(a, 1, len(out), b, total, out.shape[1], lanes, rows)
    for k in range(len(out)):
        for o in range(out.shape[1]):
            out[k, o] += total[k, o]
