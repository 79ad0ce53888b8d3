"""A gated recurrent unit on sequences of items, forth and back, for the kernels of `gru`.  Inputs are trusted.

With x the embedding of an item and h the state, both of the same width (docs/explanation/compute/networks/gru.md):

    r = sigmoid(W_r x + U_r h + ..)    z = sigmoid(W_z x + U_z h + ..)    n = tanh(W_n x + b + r (U_n h + c))
    h' = n + z (h - n)

Sequences of a batch are sorted by length, the longest first, and end at the same step.  Sequences that run at step t
are the first columns, the last states of all are adjacent, and a step computes no absent column but padding.  The
numbers of step t are one block in memory, a row for each unit.  The outputs of U are in the order n, r, z, and the
outputs of W in the order r, z, n, so that each one's are neighbours in a block of gates n_h, r, z, n_x.

Back through time, gates are replaced by their steps in place.  All of them carry minus the learning rate from the
loss on, like in `two_tower`, so the products of the end are the steps of the weights and are added to them.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from fastfedrec._kernels.compute.networks._activations import expm1
from fastfedrec._kernels.compute.networks._layers import add_product, compile_part, copy, fill, transpose

LINE_BYTES = 64  # of a cache


class Weights(NamedTuple):
    """Views of one flat array of parameters."""

    inputs: np.ndarray  # (width, 3 width)
    states: np.ndarray  # (width, 3 width)
    input_bias: np.ndarray
    state_bias: np.ndarray
    items: np.ndarray  # (width, width)
    item_bias: np.ndarray


class Room(NamedTuple):
    """Scratch memory of one thread.

    Columns and rows refer to a batch: sequences at each step, then sequences, then candidate items.
    """

    step_rows: np.ndarray  # (columns, width) embeddings of the sequences' items
    state_rows: np.ndarray  # (columns, width)
    input_rows: np.ndarray  # (columns, 3 width) steps
    own_rows: np.ndarray  # (columns, 3 width) steps
    gates: np.ndarray  # a block of 4 width x n for each step
    states: np.ndarray  # a block of width x n for each step, and the last states
    x: np.ndarray  # (width, n), as the five below
    d_state: np.ndarray
    spare: np.ndarray
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
    chances: np.ndarray
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
def room_sizes(width, n_columns, n_sequences, n_items):
    """Return the size of each part of a `Room` for the columns of all steps, sequences and items: whole vectors."""
    n, wide, of_items = width * n_columns, width * n_sequences, width * n_items
    return (
        n, n, 3 * n, 3 * n, 4 * n, n + wide,
        wide, wide, wide, wide, wide,
        of_items, of_items, of_items, of_items, of_items, of_items, of_items,
        width, max(n_sequences, n_items), 3 * width * width,
    )  # fmt: skip


@register_jitable
def room_length(itemsize, width, n_columns, n_sequences, n_items):
    """Return the size of the memory that holds such a room at any alignment."""
    line, length = LINE_BYTES // itemsize, 0
    for size in room_sizes(width, n_columns, n_sequences, n_items):
        length += -(-size // line) * line
    return length + line


@compile_part
def take_part(memory, used, n):
    """Return the next numbers of a room's memory, set to 0; parts begin on a cache line, as with `aligned_zeros`."""
    line, first = LINE_BYTES // memory.itemsize, used[0]
    used[0] += -(-n // line) * line
    part = memory[first : first + n]
    fill(part, 0)
    return part


@compile_part
def make_room(memory, width, n_columns, n_sequences, n_items):
    """Return a room in `room_length` numbers of memory."""
    sizes = room_sizes(width, n_columns, n_sequences, n_items)
    used = np.array([-memory.ctypes.data % LINE_BYTES // memory.itemsize])
    return Room(
        take_part(memory, used, sizes[0]),
        take_part(memory, used, sizes[1]),
        take_part(memory, used, sizes[2]),
        take_part(memory, used, sizes[3]),
        take_part(memory, used, sizes[4]),
        take_part(memory, used, sizes[5]),
        take_part(memory, used, sizes[6]),
        take_part(memory, used, sizes[7]),
        take_part(memory, used, sizes[8]),
        take_part(memory, used, sizes[9]),
        take_part(memory, used, sizes[10]),
        take_part(memory, used, sizes[11]),
        take_part(memory, used, sizes[12]),
        take_part(memory, used, sizes[13]),
        take_part(memory, used, sizes[14]),
        take_part(memory, used, sizes[15]),
        take_part(memory, used, sizes[16]),
        take_part(memory, used, sizes[17]),
        take_part(memory, used, sizes[18]),
        take_part(memory, used, sizes[19]),
        take_part(memory, used, sizes[20]),
    )


@compile_part
def whole(n, lanes):
    """Return the next multiple of the vector's length."""
    return -(-n // len(lanes)) * len(lanes)


# ---- the recurrence ---------------------------------------------------------------------------------------------


@compile_part
def lay_out(starts, chosen, lanes):
    """Return the chosen sequences, longest first, the number that run at each step, and where its columns start."""
    n_steps = 0
    # The longest sequence has a column at every step.
    for s in chosen:
        n_steps = max(n_steps, starts[s + 1] - starts[s])
    running, firsts = np.zeros(n_steps, dtype=np.int64), np.zeros(n_steps + 1, dtype=np.int64)
    # A sequence of length l starts at step n_steps - l, so that all end together.
    for s in chosen:
        running[n_steps - (starts[s + 1] - starts[s])] += 1
    places = np.zeros(n_steps, dtype=np.int64)  # a counting sort
    for t in range(n_steps):
        if t:
            places[t] = running[t - 1]
            running[t] += running[t - 1]
        firsts[t + 1] = firsts[t] + whole(running[t], lanes)
    # Column of each sequence: the ones that start first come first.
    order = np.empty(len(chosen), dtype=np.int64)
    for k in range(len(chosen)):
        t = n_steps - (starts[chosen[k] + 1] - starts[chosen[k]])
        order[places[t]] = k
        places[t] += 1
    return order, running, firsts


@compile_part
def squash(gates, width, n):
    """Replace the linear parts n_h, r, z, n_x of a step by the gates r, z and n in place; n_h stays."""
    hidden, r, new = gates[: width * n], gates[width * n : 2 * width * n], gates[3 * width * n :]
    both = gates[width * n : 3 * width * n]
    one, two = gates.dtype.type(1), gates.dtype.type(2)
    for k in range(len(both)):
        both[k] = one / (two + expm1(-both[k]))  # sigmoid(x) = 1 / (1 + e^-x), e^-x = 1 + expm1(-x)
    for k in range(len(new)):  # tanh
        less = expm1(two * (new[k] + r[k] * hidden[k]))  # tanh(y) = expm1(2y) / (expm1(2y) + 2), y = n_x + r n_h
        new[k] = less / (less + two)


@compile_part
def run(weights, e, slots, items, starts, chosen, order, running, firsts, room, lanes, rows):
    """Run all steps; the states after the last one are at the end of `states`, the longest sequence first."""
    width, n_steps = e.shape[1], len(running)
    bias, own_bias = weights.input_bias, weights.state_bias
    fill(room.states[: width * firsts[1]], 0)
    for t in range(n_steps):
        first, n = firsts[t], firsts[t + 1] - firsts[t]
        step_rows = room.step_rows[width * first : width * (first + n)].reshape(n, width)
        for c in range(n):
            if c < running[t]:
                # x_t, the embedding of the sequence's item at this step
                copy(e[slots[items[starts[chosen[order[c]] + 1] - n_steps + t]]], step_rows[c])
            else:
                fill(step_rows[c], 0)
        x = room.x[: width * n].reshape(width, n)
        transpose(step_rows, x, n, width, lanes)
        flat = room.gates[4 * width * first : 4 * width * (first + n)]
        gates = flat.reshape(4 * width, n)
        for o in range(width):
            fill(gates[o], own_bias[o])  # c
            fill(gates[width + o], bias[o] + own_bias[width + o])
            fill(gates[2 * width + o], bias[width + o] + own_bias[2 * width + o])
            fill(gates[3 * width + o], bias[2 * width + o])
        states = room.states[width * first : width * (first + n)]
        # W x for the gates r, z, n_x; U h for n_h, r, z.
        add_product(weights.inputs, 1, 3 * width, x, gates[width:], n, lanes, rows)
        if t:  # the first states are zeros
            add_product(weights.states, 1, 3 * width, states.reshape(width, n), gates[: 3 * width], n, lanes, rows)
        squash(flat, width, n)
        n_next = firsts[t + 2] - firsts[t + 1] if t + 1 < n_steps else n
        z, new = flat[2 * width * n : 3 * width * n], flat[3 * width * n :]
        after = room.states[width * (first + n) : width * (first + n + n_next)].reshape(width, n_next)
        if n_next == n:
            advance(states, z, new, after.reshape(-1))
        else:
            # More sequences run at the next step: the states have more columns there.
            advance(states, z, new, room.spare[: width * n])
            copy_columns(room.spare[: width * n].reshape(width, n), after, n)
        clear_columns(after, running[t])  # those that start then start from 0


@compile_part
def copy_columns(x, out, n):
    """Return the first columns."""
    for o in range(len(out)):
        for c in range(n):
            out[o, c] = x[o, c]


@compile_part
def clear_columns(out, first):
    """Set zeros where no sequence runs."""
    for o in range(len(out)):
        for c in range(first, out.shape[1]):
            out[o, c] = 0


@compile_part
def advance(states, z, new, out):
    """Compute the states after a step: n + z (h - n)."""
    for k in range(len(out)):
        out[k] = new[k] + z[k] * (states[k] - new[k])


@compile_part
def unsquash(gates, states, d_state, spare, width, n):
    """Replace gates by the steps of all linear parts, from the steps of the states after; d_state gets z d_state."""
    size = width * n
    hidden, r, z, new = gates[:size], gates[size : 2 * size], gates[2 * size : 3 * size], gates[3 * size :]
    one = gates.dtype.type(1)
    for k in range(size):
        spare[k] = d_state[k] * (states[k] - new[k]) * z[k] * (one - z[k])  # dz = dh' (h - n) z (1 - z)
    for k in range(size):
        new[k] = d_state[k] * (one - z[k]) * (one - new[k] * new[k])  # dn = dh' (1 - z) (1 - n^2)
    for k in range(size):
        d_state[k] *= z[k]  # dh = z dh', and U's part in `run_back`
    copy(spare, z)
    for k in range(size):
        spare[k] = new[k] * r[k]  # dn_h = dn r
    for k in range(size):
        r[k] = new[k] * hidden[k] * r[k] * (one - r[k])  # dr = dn n_h r (1 - r)
    copy(spare, hidden)


@compile_part
def run_back(weights, e, slots, items, starts, chosen, order, running, firsts, room, lanes, rows):
    """Compute the steps of embeddings and of all weights from the steps of the last states in `d_state`."""
    width, n_steps = e.shape[1], len(running)
    for t in range(n_steps - 1, -1, -1):
        first, n = firsts[t], firsts[t + 1] - firsts[t]
        d_state = room.d_state[: width * n]
        flat = room.gates[4 * width * first : 4 * width * (first + n)]
        gates = flat.reshape(4 * width, n)
        states = room.states[width * first : width * (first + n)]
        unsquash(flat, states, d_state, room.spare[: width * n], width, n)
        d_x = room.x[: width * n].reshape(width, n)
        fill(room.x[: width * n], 0)
        # dx = W d(r, z, n_x), by the weights before the step.
        add_product(weights.inputs, 3 * width, 1, gates[width:], d_x, n, lanes, rows)
        d_rows = room.spare[: width * n].reshape(n, width)
        transpose(d_x, d_rows, width, n, lanes)
        for c in range(running[t]):
            # A row may come more than once: its steps are added one after the other.
            row = e[slots[items[starts[chosen[order[c]] + 1] - n_steps + t]]]
            for j in range(width):
                row[j] += d_rows[c, j]
        wide = 3 * width * first, 3 * width * (first + n)
        transpose(gates[width:], room.input_rows[wide[0] : wide[1]].reshape(n, 3 * width), 3 * width, n, lanes)
        transpose(gates, room.own_rows[wide[0] : wide[1]].reshape(n, 3 * width), 3 * width, n, lanes)
        state_rows = room.state_rows[width * first : width * (first + n)].reshape(n, width)
        transpose(states.reshape(width, n), state_rows, width, n, lanes)
        if t:
            d_before = d_state.reshape(width, n)
            # dh = z dh' + U d(n_h, r, z).
            add_product(weights.states, 3 * width, 1, gates[: 3 * width], d_before, n, lanes, rows)
            n_before = first - firsts[t - 1]
            if n_before < n:
                fewer = room.spare[: width * n_before]
                copy_columns(d_before, fewer.reshape(width, n_before), n_before)
                copy(fewer, room.d_state[: width * n_before])
            clear_columns(room.d_state[: width * n_before].reshape(width, n_before), running[t - 1])
    n = firsts[n_steps]
    input_rows = room.input_rows[: 3 * width * n].reshape(n, 3 * width)
    own_rows = room.own_rows[: 3 * width * n].reshape(n, 3 * width)
    add_rows(input_rows, weights.input_bias, room.total)
    add_rows(own_rows, weights.state_bias, room.total)
    add_outer(room.step_rows, input_rows, weights.inputs, room.total, lanes, rows)
    add_outer(room.state_rows, own_rows, weights.states, room.total, lanes, rows)


# Sums over all steps are taken apart from the weights: next to these, single terms would be lost in rounding.


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
