"""Forward and backward passes of a gated recurrent unit, alone and in a client's complete step, against torch.

The sizes are those in PrivRec's first stage: width 64, sequences of 50 items.  torch uses one thread.
"""

import functools

import numpy as np

from benches.floors import fastest, floor_seconds
from benches.ratios import OnInstructionSet, nan_without_peers, peer, times_faster
from fastfedrec import Key
from fastfedrec._kernels.compute.networks import _recurrence as kernel
from fastfedrec._kernels.compute.networks._layers import compile_kernel
from fastfedrec.compute.networks.gru import ContrastiveExamples, GRUEncoder
from fastfedrec.compute.networks.tiles import tile_of

N_ITEMS, N_CLIENTS, WIDTH, LENGTH, BATCH, RATE = 1_682, 8, 64, 50, 16, 0.05
SEGMENT, N_SEGMENTS, N_CANDIDATES = 5, 5, 5
KEY = Key.from_seed(1)


def _torch():
    with peer("torch"):
        import torch
    torch.set_num_threads(1)
    return torch


def _torch_layers(torch, parameters):
    """Return torch's GRU, the items' layer and the embeddings with the same weights."""
    # The kernel's states and state biases have the gates in another order than torch's.
    w = kernel.weights_of.py_func(parameters, WIDTH)
    states = w.states.reshape(WIDTH, 3, WIDTH)[:, [1, 2, 0]].reshape(WIDTH, -1)
    bias = w.state_bias.reshape(3, WIDTH)[[1, 2, 0]].ravel()
    gru = torch.nn.GRU(WIDTH, WIDTH)
    layer = torch.nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        for ours, theirs in (
            (w.inputs.T, gru.weight_ih_l0),
            (states.T, gru.weight_hh_l0),
            (w.input_bias, gru.bias_ih_l0),
            (bias, gru.bias_hh_l0),
            (w.items.T, layer.weight),
            (w.item_bias, layer.bias),
        ):
            theirs.copy_(torch.tensor(np.ascontiguousarray(ours)))
    table = torch.tensor(parameters[-N_ITEMS * WIDTH :].reshape(N_ITEMS, WIDTH))
    return gru, layer, table


# ---- the unit alone ---------------------------------------------------------------------------------------------


# A cache on disk would not notice a change of the kernel.
@functools.partial(compile_kernel, cache=False)
def _there_and_back(parameters, w, e, slots, items, starts, d_last, scratch, lanes, rows):
    """Add the steps of all weights to w, and the steps of the embeddings to e, with a buffer from `make_scratch`."""
    width = e.shape[1]
    weights = kernel.weights_of(w, width)
    chosen = np.arange(len(starts) - 1)
    order, running, firsts = kernel.lay_out(starts, chosen, lanes)
    kernel.run(weights, e, slots, items, starts, chosen, order, running, firsts, scratch, lanes, rows)
    n = kernel.whole(len(chosen), lanes)
    columns = scratch.d_state[: width * n].reshape(width, n)
    for c in range(len(chosen)):
        for j in range(width):
            columns[j, c] = d_last[order[c], j]
    kernel.run_back(weights, e, slots, items, starts, chosen, order, running, firsts, scratch, lanes, rows)


@functools.partial(compile_kernel, cache=False)
def _make(memory, width, n_columns, n_sequences, n_items):
    return kernel.make_scratch(memory, width, n_columns, n_sequences, n_items)


def _problem_alone():
    encoder = GRUEncoder(N_ITEMS, n_factors=WIDTH)
    parameters = encoder.initial_parameters(KEY)
    rng = np.random.default_rng(0)
    items = rng.permutation(N_ITEMS)[: BATCH * LENGTH]
    d_last = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
    return encoder, parameters, items, d_last


def _ours_alone(encoder, parameters, items, d_last):
    w, e = parameters[: encoder.n_dense].copy(), encoder.embeddings(parameters)[items].copy()
    slots = np.zeros(N_ITEMS, dtype=np.int32)
    slots[items] = np.arange(len(items))
    lanes, rows = tile_of(parameters)
    shape = BATCH * LENGTH, BATCH, BATCH
    scratch = _make(np.empty(kernel.scratch_size(4, WIDTH, *shape), dtype=np.float32), WIDTH, *shape)
    starts = LENGTH * np.arange(BATCH + 1)
    start_w, start_e = w.copy(), e.copy()

    def run():
        np.copyto(w, start_w)  # the client's copy, which each step changes
        np.copyto(e, start_e)
        _there_and_back(parameters, w, e, slots, items, starts, d_last, scratch, lanes, rows)
        return np.concatenate([(w - start_w)[: 3 * WIDTH * WIDTH], (e - start_e).ravel()])

    return run


def _torch_alone(encoder, parameters, items, d_last):
    torch = _torch()
    gru, _, table = _torch_layers(torch, parameters)
    index, gradient = torch.tensor(items.reshape(BATCH, LENGTH).T.copy()), torch.tensor(d_last)[None]

    def run():
        x = table[index].requires_grad_()
        _, last = gru(x)
        dx, dw, *_ = torch.autograd.grad(last, [x, *gru.parameters()], gradient)
        return np.concatenate([dw.numpy().T.ravel(), dx.numpy().transpose(1, 0, 2).ravel()])

    return run


# ---- clients' epochs --------------------------------------------------------------------------------------------


def _problem_epoch():
    """Return one batch for each of 8 clients, with two sequences of 50 and 5 segments of 5 for each example."""
    rng = np.random.default_rng(0)
    lengths = np.tile([LENGTH] * 2 + [SEGMENT] * N_SEGMENTS, N_CLIENTS * BATCH)
    examples = ContrastiveExamples(
        np.arange(N_CLIENTS, dtype=np.uint64),
        BATCH * np.arange(N_CLIENTS + 1),
        rng.integers(0, N_ITEMS, lengths.sum()),
        np.r_[0, np.cumsum(lengths)],
        rng.integers(0, N_ITEMS, (N_CLIENTS * BATCH, N_CANDIDATES)),
    )
    encoder = GRUEncoder(N_ITEMS, n_factors=WIDTH)
    return encoder, encoder.initial_parameters(KEY), examples


def _ours_epoch(encoder, parameters, examples, n_threads=1):
    def run():
        updates = encoder.train_clients(
            parameters, examples, learning_rate=RATE, n_epochs=1, batch_size=BATCH, key=KEY, n_threads=n_threads
        )
        return np.stack([updates.values[a : a + 3 * WIDTH * WIDTH] for a in updates.starts[:-1]])

    return run


def _torch_epoch(encoder, parameters, examples):
    torch = _torch()
    gru, layer, table = _torch_layers(torch, parameters)
    n_parts, start = 2 + N_SEGMENTS, [p.detach().clone() for p in (*gru.parameters(), *layer.parameters())]
    sequences = np.array(np.split(examples.items, examples.starts[1:-1]), dtype=object)
    sequences = sequences.reshape(N_CLIENTS, BATCH, n_parts)
    zeros = torch.zeros(BATCH, dtype=torch.int64)

    def stacked(parts):  # one row for each time step
        return torch.tensor(np.stack(parts.ravel().tolist()).T.copy())

    clients = [
        (stacked(examples_of[:, :2].T), stacked(examples_of[:, 2:]), torch.tensor(candidates))
        for examples_of, candidates in zip(sequences, np.split(examples.candidates, N_CLIENTS), strict=True)
    ]

    def update(long, short, candidates):
        weights = [*gru.parameters(), *layer.parameters()]
        with torch.no_grad():
            torch._foreach_copy_(weights, start)
        rows = torch.cat([long.ravel(), short.ravel(), candidates.ravel()]).unique()  # items that the client touches
        e = table[rows].requires_grad_()
        long, short, candidates = (torch.searchsorted(rows, x) for x in (long, short, candidates))
        states = gru(e[long])[1][0]
        segments = gru(e[short])[1][0].reshape(BATCH, N_SEGMENTS, WIDTH)
        items = torch.relu(layer(e[candidates]))
        loss = torch.nn.functional.cross_entropy(torch.einsum("bkw,bw->bk", items, states[:BATCH]), zeros)
        loss = loss + torch.nn.functional.cross_entropy(torch.einsum("bkw,bw->bk", segments, states[BATCH:]), zeros)
        parts = [*weights, e]
        gradients = torch.autograd.grad(loss, parts)
        with torch.no_grad():
            torch._foreach_add_(parts, gradients, alpha=-RATE)
        return (weights[0].detach() - start[0]).numpy().T.ravel()

    return lambda: np.stack([update(*client) for client in clients])


def flops(width, starts, n_candidates=0):
    """Return the operations of all products, without elementwise functions and sums over time steps."""
    # Every product with weights counts three times: forward, backward, and for the weights' gradient.  The first state
    # of a sequence is 0 and has no product.
    n_steps = int(starts[-1])
    return 3 * 2 * width**2 * (3 * n_steps + 3 * (n_steps - len(starts) + 1) + n_candidates)


PROBLEMS = {"unit": _problem_alone, "epoch": _problem_epoch}
IMPLS = {
    "unit": {"fastfedrec": _ours_alone, "torch": _torch_alone},
    "epoch": {"fastfedrec": _ours_epoch, "torch": _torch_epoch},
}


def _checked(task, impl, problem):
    run = IMPLS[task][impl](*problem)
    expected, got = IMPLS[task]["fastfedrec"](*problem)(), run()
    if not np.abs(got - expected).max() < 1e-3 * np.abs(expected).max():
        raise AssertionError(f"{impl} is off by {np.abs(got - expected).max():.2g} of {np.abs(expected).max():.2g}")
    return run


class ThereAndBack:
    """Gradients of 16 sequences of 50 items, or complete steps of eight clients on 16 examples each."""

    param_names = ("task", "impl")
    params = (list(PROBLEMS), ["fastfedrec", "torch"])

    def setup(self, task, impl):
        self.run = _checked(task, impl, PROBLEMS[task]())

    def time_train(self, task, impl):
        self.run()


@nan_without_peers
class RatioToPeers(OnInstructionSet):
    """torch's time over ours, with alternating calls: the figure to publish."""

    param_names = ("task", "instruction_set")
    params = (list(PROBLEMS), ["x86-64-v4", "x86-64-v3"])
    unit = "times faster"

    def setup(self, task, instruction_set):
        super().setup(instruction_set)
        self.problem = PROBLEMS[task]()

    def track_times_torch(self, task, instruction_set):
        return times_faster(*(_checked(task, impl, self.problem) for impl in ("torch", "fastfedrec")))

    def track_floor_share(self, task, instruction_set):
        if task == "unit":
            n = flops(WIDTH, LENGTH * np.arange(BATCH + 1))
        else:
            n = flops(WIDTH, self.problem[-1].starts, self.problem[-1].candidates.size)
        return floor_seconds(instruction_set, flops=n) / fastest(IMPLS[task]["fastfedrec"](*self.problem))

    track_floor_share.unit = "share of floor"


class Threads:
    """Time of one thread over the time of two for eight clients, with alternating calls."""

    unit = "times faster"

    def setup(self):
        problem = _problem_epoch()
        self.runs = [_ours_epoch(*problem, n_threads=n) for n in (1, 2)]

    def track_two_threads(self):
        return times_faster(*self.runs, min_seconds=10.0, max_turns=5000, processors=2)
