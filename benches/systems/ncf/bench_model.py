"""Steps of NCF on a catalogue of MovieLens 1M's size, against torch on one thread.

Both apply Adam to all parameters in every step.  Parameters after some steps are compared before the measurement.
"""

import numpy as np

from benches.core_suite import BEST, core
from benches.floors import fastest, floor_seconds
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, nan_without_peers, peer, times_faster
from fastfedrec import Key
from fastfedrec.systems.ncf._network import Network, Trainer

N_USERS, N_ITEMS, BATCH, N_BATCHES, RATE = 6_040, 3_706, 256, 100, 0.001
N_COMPARED = 5  # batches in the comparison with torch
KEY = Key.from_seed(1)


def _problem(kind, n_factors):
    layers = (4 * n_factors, 2 * n_factors, n_factors)
    network = Network(n_factors if kind != "mlp" else 0, layers if kind != "gmf" else (), N_USERS, N_ITEMS)
    words = KEY.words("examples", size=BATCH * N_BATCHES)
    users, items, labels = words % N_USERS, (words >> 20) % N_ITEMS, (words >> 60) % 5 == 0
    return network, network.start(KEY, "start"), np.stack([users, items, labels]).astype(np.int64)


def _fastfedrec(network, start, examples):
    users, items, labels = examples.astype(np.uint64)
    # The kernel reads one word for each example: user, item and label.
    coded = users << np.uint64(32) | items << np.uint64(1) | labels

    def run():
        trainer = Trainer(network, *start, learning_rate=RATE)
        trainer.train(coded, BATCH)
        return trainer.parameters()

    return run


def _torch(network, start, examples):
    with peer("torch"):
        import torch
    torch.set_num_threads(1)
    users, items = (torch.tensor(part).split(BATCH) for part in examples[:2])
    labels = torch.tensor(examples[2], dtype=torch.float32).split(BATCH)
    sizes, n_in = [], 2 * network.tower
    for width in network.layers:
        sizes += [n_in * width, width]
        n_in = width
    # Dense parameters are the layers' weights and biases, then the output's.
    parts = np.split(start[1], np.cumsum([*sizes, len(start[1]) - 1 - sum(sizes)]))

    def run():
        table, dense = torch.tensor(start[0], requires_grad=True), [torch.tensor(p, requires_grad=True) for p in parts]
        optimizer = torch.optim.Adam([table, *dense], lr=RATE, foreach=True)
        for user, item, label in zip(users, items, labels, strict=True):
            optimizer.zero_grad()
            p, q = table[user], table[N_USERS + item]
            x = torch.cat([p[:, network.product :], q[:, network.product :]], dim=1)
            for width, weights, bias in zip(network.layers, dense[::2], dense[1::2], strict=False):
                x = torch.relu(torch.addmm(bias, x, weights.view(-1, width)))
            z = torch.cat([p[:, : network.product] * q[:, : network.product], x], dim=1) @ dense[-2] + dense[-1]
            torch.nn.functional.binary_cross_entropy_with_logits(z, label).backward()
            optimizer.step()
        return table.detach().numpy(), torch.cat(dense).detach().numpy()

    return run


@core("time_steps", kind=["neumf"], n_factors=[8], instruction_set=BEST)
@nan_without_peers
class Steps(OnInstructionSet):
    param_names = ("kind", "n_factors", "instruction_set")
    params = (["gmf", "neumf"], [8, 64], INSTRUCTION_SETS)

    def time_steps(self, kind, n_factors, instruction_set):
        _fastfedrec(*_problem(kind, n_factors))()

    def track_floor_share(self, kind, n_factors, instruction_set):
        problem = _problem(kind, n_factors)
        # Products with the layers' weights, forward, backward and for their gradient, and three of both embeddings.
        network = problem[0]
        inputs = (2 * network.tower, *network.layers)
        layers = sum(n_in * n_out for n_in, n_out in zip(inputs, network.layers, strict=False))
        n = BATCH * N_BATCHES * 2 * (3 * layers + 3 * network.product)
        return floor_seconds(instruction_set, flops=n) / fastest(_fastfedrec(*problem))

    track_floor_share.unit = "share of floor"

    def track_times_torch(self, kind, n_factors, instruction_set):
        *model, examples = _problem(kind, n_factors)
        # Only the first steps, of 1e-3 each, are compared: later rounding may switch a unit on in one of the two.
        few = examples[:, : N_COMPARED * BATCH]
        for mine, other in zip(_fastfedrec(*model, few)(), _torch(*model, few)(), strict=True):
            # Adam makes a full step of a gradient that differs from 0 by rounding alone, so the mean is compared.
            assert np.abs(mine - other).mean() < 1e-8
        assert np.abs(mine - model[1][1]).max() > 1e-3
        ours, theirs = _fastfedrec(*model, examples), _torch(*model, examples)
        return times_faster(theirs, ours)

    track_times_torch.unit = "times faster"
