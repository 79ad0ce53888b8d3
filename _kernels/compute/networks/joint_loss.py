"""Clients' steps on the recommender's loss and the contrastive ones (sequences.md), in Numba.

    L = cross-entropy of a batch of examples + weight (loss of the items + loss of the segments of a batch of sequences)

This is equation 11 of Wang et al. 2021, divided by its weight of the first term.  The network and the encoder share
only the embeddings of item ids.  A step is therefore one step of `two_tower` and one of `gru` from the same embeddings,
the latter on a copy, and both changes are added: this descends along the gradient of the sum.

Inputs are trusted.  Functions release the GIL and are called from threads; each client belongs to one.
"""

import llvmlite.binding
import numpy as np
from numba import types
from numba.extending import overload

from fastfedrec._kernels.compute.networks import two_tower as network
from fastfedrec._kernels.compute.networks._layers import (
    aligned_zeros,
    compile_kernel,
    compile_part,
    copy,
    shuffle,
    take_next,
)
from fastfedrec._kernels.compute.networks._recurrence import make_scratch
from fastfedrec._kernels.compute.networks.gru import step_batch as step_sequences

# ---- the network's step, which is compiled already: called by a name, so that a cache on disk holds no address -------

_STEPS = {}
for _real, _address in zip((types.float32, types.float64), network.step_addresses(), strict=True):
    llvmlite.binding.add_symbol(f"fastfedrec_network_step_{_real}", _address)
    _STEPS[_real] = types.ExternalFunction(f"fastfedrec_network_step_{_real}", types.void(*[types.int64] * 8))


def step_examples(examples, w, e, slots, user, batch, scratch):
    """Take one step of SGD of the network; this body runs without a compiler."""
    network.step_at(examples, w, e, slots, user, batch, scratch)


@overload(step_examples)
def _compile_step_examples(examples, w, e, slots, user, batch, scratch):
    step = _STEPS[w.dtype]

    def call(examples, w, e, slots, user, batch, scratch):
        step(
            examples, w.ctypes.data, e.ctypes.data, slots.ctypes.data, user, batch.ctypes.data, len(batch),
            scratch.ctypes.data,
        )  # fmt: skip

    return call


# ---- clients ----------------------------------------------------------------------------------------------------


@compile_part
def add_changes(e, after, before):
    """Add the changes of the copy to the embeddings."""
    for k in range(len(e)):
        for j in range(e.shape[1]):
            e[k, j] += after[k, j] - before[k, j]


@compile_kernel
def train_clients(
    parameters,  # IN (n_parameters,) dense weights of the network, then of the encoder, then embeddings
    examples,  # address of a `two_tower.Examples`: examples, features and learning rate
    n_scratch,  # size of the scratch of a step on them, in numbers
    n_network,  # dense weights of the network
    users,  # IN (n_clients,) rows of the user table
    starts,  # IN (n_clients + 1,) where the examples of each client begin
    indptr,  # IN (n_clients + 1,) where the masked examples of each client begin
    sequence_items,  # IN (sequence_starts[-1],) as for `gru`
    sequence_starts,  # IN (n_masked * n_each + 1,)
    candidates,  # IN (n_masked, n_candidates) items
    words,  # IN (n_words,) uint64, uniform, two draws each: for the order of examples
    word_starts,  # IN (n_clients + 1,)
    sequence_words,  # IN (n_sequence_words,) uint64, for masked sequences
    sequence_word_starts,  # IN (n_clients + 1,)
    row_starts,  # IN (n_clients + 1,) where the touched rows of each client begin
    touched,  # IN (n_touched,)
    order,  # IN (n_clients,) order of the clients
    out_starts,  # IN (n_clients + 1,)
    out,  # OUT (out_starts[-1],) each client's update: dense weights, then its touched rows
    counter,  # IN/OUT (1,) 0; shared by all threads
    memory,  # scratch of this thread, as for `gru`
    scratch_shape,  # as for `gru`
    width,
    first_item,  # row of the first item's id among the embeddings
    sequence_rate,  # learning rate times the contrastive weight
    n_epochs,
    batch_size,
    sequence_batch_size,
    lanes,
    rows,
):
    """Train clients by SGD, each separately; every thread passes the same arguments except `memory`."""
    n_dense = n_network + 7 * width * (width + 1)
    embeddings = parameters[n_dense:].reshape(-1, width)
    slots = np.zeros(len(embeddings), dtype=np.int32)
    item_slots = slots[first_item:]
    w, u = aligned_zeros(parameters, n_network), aligned_zeros(parameters, n_dense - n_network)
    scratch = aligned_zeros(parameters, n_scratch)
    sequence_scratch = make_scratch(memory, width, *scratch_shape)
    index = take_next(counter)
    while index < len(order):
        client = order[index]
        copy(parameters[:n_network], w)
        copy(parameters[n_network:n_dense], u)
        client_rows = touched[row_starts[client] : row_starts[client + 1]]
        size = len(client_rows) * width
        flat, before = aligned_zeros(parameters, size), aligned_zeros(parameters, size)
        after = aligned_zeros(parameters, size)
        e, e_after, e_before = (flat.reshape(-1, width), after.reshape(-1, width), before.reshape(-1, width))
        for k in range(len(client_rows)):
            slots[client_rows[k]] = k
            copy(embeddings[client_rows[k]], e[k])
        example_order = np.arange(starts[client], starts[client + 1])
        masked = np.arange(indptr[client], indptr[client + 1])
        draws, sequence_draws, n_used = 2 * word_starts[client], 2 * sequence_word_starts[client], len(masked)
        for _ in range(n_epochs):
            draws = shuffle(example_order, words, draws)
            for b in range(0, len(example_order), batch_size):
                # Both steps start from the same embeddings: the step of the network uses e, and the step of the encoder
                # a copy.
                copy(flat, before)
                copy(flat, after)
                step_examples(examples, w, e, slots, users[client], example_order[b : b + batch_size], scratch)
                if len(masked) == 0:
                    continue
                if n_used >= len(masked):  # all sequences were used: shuffle them again
                    sequence_draws, n_used = shuffle(masked, sequence_words, sequence_draws), 0
                step_sequences(u, e_after, item_slots, sequence_items, sequence_starts, candidates,
                               masked[n_used : n_used + sequence_batch_size], sequence_scratch,
                               sequence_rate, 1.0, 1.0, lanes, rows)  # fmt: skip
                n_used += sequence_batch_size
                add_changes(e, e_after, e_before)  # e += after - before: the part of the encoder in the step
        update = out[out_starts[client] : out_starts[client + 1]]
        for k in range(n_network):
            update[k] = w[k] - parameters[k]
        for k in range(n_dense - n_network):
            update[n_network + k] = u[k] - parameters[n_network + k]
        for k in range(len(client_rows)):
            for j in range(width):
                update[n_dense + k * width + j] = e[k, j] - embeddings[client_rows[k], j]
        index = take_next(counter)
