"""Clients' gradients of FedGNN, one thread, against torch, which differentiates one client's graph at a time."""

import numpy as np

from benches.core_suite import BEST, core
from benches.floors import fastest, floor_seconds
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, nan_without_peers, peer, times_faster
from fastfedrec import Key
from fastfedrec.systems.fedgnn._clients import Entries, Parameters, find_gradients

N_CLIENTS, N_ENTRIES, N_ITEMS, N_NEIGHBORS, RATE, N_STEPS = 64, 100, 3_706, 10, 1.0, 4
KEY = Key.from_seed(1)


def _problem(d):
    normal = KEY.normal("start", size=d * d + 2 * d + N_ITEMS * d)
    parameters = Parameters.of(normal / np.sqrt(d), d)
    items = np.concatenate([KEY.permutation("items", user=c, size=N_ITEMS)[:N_ENTRIES] for c in range(N_CLIENTS)])
    targets = KEY.normal("wanted", size=len(items))
    kinds = (KEY.words("kinds", size=len(items)) % 2).astype(np.uint8)
    entries = Entries(N_ENTRIES * np.arange(N_CLIENTS + 1), items.astype(np.int32), targets, kinds)
    neighbors = KEY.normal("neighbors", size=N_CLIENTS * N_NEIGHBORS * d).reshape(N_CLIENTS, N_NEIGHBORS, d)
    return parameters, entries, neighbors


def _fastfedrec(parameters, entries, neighbors):
    projected = parameters.projected()

    def run():
        gradients = find_gradients(parameters, projected, entries, neighbors, RATE, N_STEPS, 1, with_moments=False)
        return gradients.shared, gradients.rows

    return run


def _torch(parameters, entries, neighbors):
    with peer("torch"):
        import torch
    torch.set_num_threads(1)
    bend = torch.nn.functional.leaky_relu
    d = len(parameters.weights)
    w, a, table = (torch.tensor(part, requires_grad=True) for part in parameters)
    clients = [
        (table.detach()[items].requires_grad_(), torch.tensor(targets), torch.tensor(kinds) == 0, torch.tensor(near))
        for items, targets, kinds, near in zip(
            *(torch.tensor(part).split(N_ENTRIES) for part in (entries.items.astype(np.int64),)),
            *(np.split(part, N_CLIENTS) for part in (entries.targets, entries.kinds)), neighbors, strict=True
        )
    ]  # fmt: skip

    def loss(user, rows, targets, joined, near):
        z_user, z, z_near = w @ user, rows @ w.T, near @ w.T
        nodes = torch.cat([z_user[None], z[joined], z_near])
        h = torch.softmax(bend(a[0] @ z_user + nodes @ a[1], 0.2), 0) @ nodes
        looks = z[~joined] @ a.T
        share = torch.sigmoid(bend(looks.sum(1), 0.2) - bend(looks[:, 0] + a[1] @ z_user, 0.2))
        predicted = share * (z[~joined] @ h) + (1 - share) * (z_user @ h)
        return ((predicted - targets[~joined]) ** 2).mean()

    def run():
        shared, rows = [], []
        for client_rows, targets, joined, near in clients:
            user = torch.zeros(d, dtype=torch.float64, requires_grad=True)
            # The user's vector takes gradient steps of bounded length on alternating halves of the entries.
            for step in range(N_STEPS):
                part = joined if (N_STEPS - step) % 2 == 0 else ~joined
                (by_user,) = torch.autograd.grad(loss(user, client_rows, targets, part, near), user)
                user = (user - RATE * by_user / by_user.norm().clamp(min=1)).detach().requires_grad_()
            final_loss = loss(user.detach(), client_rows, targets, joined, near)
            d_w, d_a, d_rows = torch.autograd.grad(final_loss, (w, a, client_rows))
            shared.append(torch.cat([d_w.ravel(), d_a.ravel()]))
            rows.append(d_rows)
        return torch.stack(shared).numpy(), torch.cat(rows).numpy()

    return run


@core("time_gradients", n_factors=[32], instruction_set=BEST)
@nan_without_peers
class Gradients(OnInstructionSet):
    """64 clients with 100 items and 10 neighbours each."""

    param_names = ("n_factors", "instruction_set")
    params = ([32, 64], INSTRUCTION_SETS)

    def time_gradients(self, n_factors, instruction_set):
        _fastfedrec(*_problem(n_factors))()

    def track_floor_share(self, n_factors, instruction_set):
        # Each node has a product of its gradient with its embedding, and one with W.  A pass has five sums along rows.
        d, nodes = n_factors, N_CLIENTS * (1 + N_ENTRIES + N_NEIGHBORS)
        flops = 2 * nodes * (2 * d * d + 5 * d * (N_STEPS + 1))
        return floor_seconds(instruction_set, flops=flops) / fastest(_fastfedrec(*_problem(n_factors)))

    track_floor_share.unit = "share of floor"

    def track_times_torch(self, n_factors, instruction_set):
        problem = _problem(n_factors)
        ours, theirs = _fastfedrec(*problem), _torch(*problem)
        for mine, other in zip(ours(), theirs(), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)
        return times_faster(theirs, ours)

    track_times_torch.unit = "times faster"
