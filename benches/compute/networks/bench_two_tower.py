"""Client updates of the two-tower network at the size of MovieLens 1M, against three implementations in torch.

All implementations take the same steps on the same batches, with a compact table of a client's embeddings.  All clients
have the same number of examples, which two implementations in torch require and ours does not.  torch uses one thread.
"""

import numpy as np

from benches.core_suite import core
from benches.floors import fastest, floor_seconds
from benches.ratios import OnInstructionSet, nan_without_peers, peer, times_faster
from fastfedrec import Key
from fastfedrec.compute.networks.client_examples import ClientExamples, Events, draw_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, N_CLIENTS, N_EXAMPLES, N_EPOCHS, BATCH, RATE = 6_040, 3_706, 8, 165, 5, 32, 0.05
KEY = Key.from_seed(1)


def _problem():
    """Return the network, parameters and clients of 165 examples, with three user features and two genres."""
    rng = np.random.default_rng(0)
    data = generate_implicit(N_USERS, N_ITEMS, key=KEY)
    genres = np.empty(N_ITEMS, dtype=object)
    genres[:] = [tuple(rng.permutation(18)[:2].tolist()) for _ in range(N_ITEMS)]
    users = {"gender": rng.integers(0, 2, N_USERS), "age": rng.integers(0, 7, N_USERS)}
    users["occupation"] = rng.integers(0, 21, N_USERS)
    data = data.with_features(user_features=users, item_features={"genres": genres})
    network = TwoTower(Features.from_interactions(data, user=list(users), item=["genres"]))
    rows = np.flatnonzero(data.interactions_per_user() >= N_EXAMPLES // 5)[:N_CLIENTS]
    drawn = draw_examples(data, Events.from_interactions(data), rows, 4, key=KEY)
    chosen = np.concatenate([
        np.random.default_rng(k).permutation(np.arange(a, b))[:N_EXAMPLES]
        for k, (a, b) in enumerate(zip(drawn.indptr[:-1], drawn.indptr[1:], strict=True))
    ])  # fmt: skip
    starts = N_EXAMPLES * np.arange(N_CLIENTS + 1)
    parts = drawn.items[chosen], drawn.labels[chosen], drawn.contexts[chosen]
    return network, network.initial_parameters(KEY), ClientExamples(drawn.users, drawn.global_user_ids, starts, *parts)


def _orders(examples, n_examples, purpose):
    """Return the order of each client's first examples in each epoch."""
    # The shuffle of Fisher and Yates with the kernel's words, so that all implementations have equal batches.
    orders = np.empty((N_EPOCHS, N_CLIENTS, n_examples), dtype=np.int64)
    for c, user in enumerate(examples.global_user_ids.tolist()):
        words = KEY.words(purpose, user=user, size=N_EPOCHS * n_examples)
        halves = iter(np.column_stack([words & np.uint64(2**32 - 1), words >> np.uint64(32)]).ravel().tolist())
        order = np.arange(n_examples)
        for epoch in range(N_EPOCHS):
            for k in range(n_examples - 1, 0, -1):
                other = next(halves) * (k + 1) >> 32
                order[[k, other]] = order[[other, k]]
            orders[epoch, c] = order
    return orders


def _train(network, parameters, examples, n_threads=1):
    return network.train_clients(
        parameters, examples, learning_rate=RATE, n_epochs=N_EPOCHS, batch_size=BATCH, key=KEY, n_threads=n_threads
    )


def _fastfedrec(network, parameters, examples):
    def run():
        updates = _train(network, parameters, examples)
        return np.stack([updates.values[a : a + network.n_dense] for a in updates.starts[:-1]])

    return run


def flops(network, n_examples, n_batches):
    """Return the operations of all products, forward and backward."""
    # Every product counts three times, as in `bench_gru`.  The user's side is the same for all examples of a batch.
    user, item, *upper = (n_in * n_out for n_in, n_out in network._layers[:, :2].tolist())
    both_sides = upper[0] // 2
    return 3 * 2 * (n_batches * (user + both_sides) + n_examples * (item + both_sides + sum(upper[1:])))


class _Torch:
    """Shared part of the implementations in torch: local tables and batches as tensors, one row for each client."""

    def __init__(self, network, parameters, examples, n_stepped=N_EXAMPLES, purpose="network.order"):
        with peer("torch"):
            import torch
        torch.set_num_threads(1)
        self.torch, self.network = torch, network
        features, embedded = network.features, parameters[network.n_dense :].reshape(-1, network.n_factors)
        user_rows = features.user.indices.reshape(-1, 3)[examples.users]
        item_rows = features.item.indices.reshape(-1, 3)[examples.items].reshape(N_CLIENTS, N_EXAMPLES, 3)
        item_rows = item_rows + features.user.n_values
        touched = [np.unique(np.r_[u, i.ravel()]) for u, i in zip(user_rows, item_rows, strict=True)]
        tables = np.zeros((N_CLIENTS, max(map(len, touched)), network.n_factors), dtype=np.float32)
        for c, rows in enumerate(touched):
            tables[c, : len(rows)] = embedded[rows]
        self.tables = torch.tensor(tables)
        self.users = torch.tensor(np.stack([np.searchsorted(t, u) for t, u in zip(touched, user_rows, strict=True)]))
        self.items = torch.tensor(np.stack([np.searchsorted(t, i) for t, i in zip(touched, item_rows, strict=True)]))
        self.labels = torch.tensor(examples.labels.reshape(N_CLIENTS, N_EXAMPLES))
        self.dense = []
        for n_in, n_out, w_at, b_at, _ in network._layers.tolist():
            self.dense.append(torch.tensor(parameters[w_at : w_at + n_in * n_out].reshape(n_in, n_out)))
            self.dense.append(torch.tensor(parameters[b_at : b_at + n_out]))
        orders = _orders(examples, n_stepped, purpose)
        self.batches = [
            torch.tensor(np.ascontiguousarray(order[:, first : first + BATCH]))
            for order in orders
            for first in range(0, n_stepped, BATCH)
        ]

    # The network has a layer for each side, a hidden layer on both, and upper layers, with ReLU and a logistic loss.
    def loss(self, dense, table, user, items, labels):
        torch = self.torch
        u = torch.relu(table[user].reshape(-1) @ dense[0] + dense[1])
        x = torch.cat([table[items[:, 0]], table[items[:, 1:]].mean(1)], 1)
        v = torch.relu(x @ dense[2] + dense[3])
        h = torch.cat([u.expand(len(v), -1), v], 1)
        for w, b in zip(dense[4:-2:2], dense[5:-2:2], strict=True):
            h = torch.relu(h @ w + b)
        z = (h @ dense[-2] + dense[-1])[:, 0]
        return torch.nn.functional.binary_cross_entropy_with_logits(z, labels)

    def update(self, stacked):
        """Return the updates (n_clients, n_dense) from dense parameters with one row for each client."""
        parts = [(new - old).reshape(N_CLIENTS, -1) for new, old in zip(stacked, self.dense, strict=True)]
        return self.torch.cat(parts, 1).numpy()


def _eager(*problem):
    p = _Torch(*problem)

    def run():
        ends = []
        for c in range(N_CLIENTS):
            parameters = [x.clone().requires_grad_() for x in (*p.dense, p.tables[c])]
            for batches in p.batches:
                batch = batches[c]
                loss = p.loss(parameters[:-1], parameters[-1], p.users[c], p.items[c][batch], p.labels[c][batch])
                gradients = p.torch.autograd.grad(loss, parameters)
                with p.torch.no_grad():
                    p.torch._foreach_add_(parameters, gradients, alpha=-RATE)
            ends.append([x.detach() for x in parameters[:-1]])
        return p.update([p.torch.stack(x) for x in zip(*ends, strict=True)])

    return run


def _vmap(*problem):
    p = _Torch(*problem)
    step = p.torch.func.vmap(p.torch.func.grad(p.loss, argnums=(0, 1)))
    rows = p.torch.arange(N_CLIENTS)[:, None]

    def run():
        dense, tables = [x.expand(N_CLIENTS, *x.shape).clone() for x in p.dense], p.tables.clone()
        for batch in p.batches:
            d_dense, d_tables = step(dense, tables, p.users, p.items[rows, batch], p.labels[rows, batch])
            p.torch._foreach_add_(dense, d_dense, alpha=-RATE)
            tables.add_(d_tables, alpha=-RATE)
        return p.update(dense)

    return run


def _bmm(*problem):
    """Return explicit forward and backward passes on stacked weights, with steps fused into the products."""
    p = _Torch(*problem)
    torch, width, rows = p.torch, p.network.n_factors, p.torch.arange(N_CLIENTS)[:, None]

    def add(w, b, x, dy):  # adds a layer's step to its weights
        w.baddbmm_(x.transpose(1, 2), dy, alpha=-RATE)
        b.add_(dy.sum(1), alpha=-RATE)

    def run():
        dense, tables = [x.expand(N_CLIENTS, *x.shape).clone() for x in p.dense], p.tables.clone()
        # Layers are the user's, the item's, the first joint one, and the upper ones.
        layers = list(zip(dense[::2], dense[1::2], strict=True))
        for batch in p.batches:
            n = batch.shape[1]
            items, labels = p.items[rows, batch], p.labels[rows, batch]
            x_user = tables[rows, p.users].reshape(N_CLIENTS, 1, -1)
            (w_u, b_u), (w_i, b_i), (w_1, b_1) = layers[:3]
            u = torch.baddbmm(b_u[:, None], x_user, w_u).relu_()
            rows_of = tables[rows[:, :, None], items]
            x_item = torch.cat([rows_of[:, :, 0], rows_of[:, :, 1:].mean(2)], 2)
            v = torch.baddbmm(b_i[:, None], x_item, w_i).relu_()
            bias = torch.baddbmm(b_1[:, None], u, w_1[:, :width])
            hs = [torch.baddbmm(bias, v, w_1[:, width:]).relu_()]
            for w, b in layers[3:-1]:
                hs.append(torch.baddbmm(b[:, None], hs[-1], w).relu_())
            w, b = layers[-1]
            z = torch.baddbmm(b[:, None], hs[-1], w)
            # Backward pass: the loss has the gradient sigmoid(z) - label, averaged over the batch.
            dy = (torch.sigmoid(z) - labels[:, :, None]) / n
            for k in range(len(layers) - 1, 2, -1):
                w, b = layers[k]
                dx = torch.bmm(dy, w.transpose(1, 2)).mul_(hs[k - 3] > 0)
                add(w, b, hs[k - 3], dy)
                dy = dx
            dv = torch.bmm(dy, w_1[:, width:].transpose(1, 2)).mul_(v > 0)
            dsum = dy.sum(1, keepdim=True)
            du = torch.bmm(dsum, w_1[:, :width].transpose(1, 2)).mul_(u > 0)
            w_1[:, width:].baddbmm_(v.transpose(1, 2), dy, alpha=-RATE)
            add(w_1[:, :width], b_1, u, dsum)
            d_item, d_user = torch.bmm(dv, w_i.transpose(1, 2)), torch.bmm(du, w_u.transpose(1, 2))
            add(w_i, b_i, x_item, dv)
            add(w_u, b_u, x_user, du)
            # An item's genres are averaged, so each gets half of the gradient.
            genre = d_item[:, :, width:] / 2
            steps = torch.stack([d_item[:, :, :width], genre, genre], 2).reshape(N_CLIENTS, -1, width)
            steps = torch.cat([steps, d_user.reshape(N_CLIENTS, 3, width)], 1)
            index = torch.cat([items.reshape(N_CLIENTS, -1), p.users], 1)[:, :, None].expand(-1, -1, width)
            tables.scatter_add_(1, index, -RATE * steps)
        return p.update(dense)

    return run


IMPLS = {"fastfedrec": _fastfedrec, "torch eager": _eager, "torch vmap": _vmap, "torch bmm": _bmm}


def checked(impls, impl, problem):
    """Return one implementation, after a comparison of its updates with ours."""
    run = impls[impl](*problem)
    expected, got = impls["fastfedrec"](*problem)(), run()
    errors = np.abs(got - expected).reshape(len(got), -1).max(axis=1)
    # One client may have a unit at its kink, where a rounding error decides between two gradients.
    if np.count_nonzero(~(errors < 1e-3 * np.abs(expected).max())) > 1:
        raise AssertionError(f"{impl} is off by {errors.max():.2g} of {np.abs(expected).max():.2g}")
    return run


@core("time_train", impl=["fastfedrec"])
class TrainClients:
    """Eight clients of 165 examples, with five epochs."""

    param_names = ("impl",)
    params = (list(IMPLS),)

    def setup(self, impl):
        self.run = checked(IMPLS, impl, _problem())

    def time_train(self, impl):
        self.run()


@nan_without_peers
class RatioToPeers(OnInstructionSet):
    """Each peer's time over ours, with alternating calls: the figure to publish."""

    param_names = ("instruction_set",)
    params = (["x86-64-v4", "x86-64-v3"],)
    unit = "times faster"

    def setup(self, instruction_set):
        super().setup(instruction_set)
        self.problem = _problem()

    def _ratio(self, other):
        return times_faster(*(checked(IMPLS, impl, self.problem) for impl in (other, "fastfedrec")))

    def track_floor_share(self, instruction_set):
        n_batches = N_CLIENTS * N_EPOCHS * -(-N_EXAMPLES // BATCH)
        n = flops(self.problem[0], N_CLIENTS * N_EPOCHS * N_EXAMPLES, n_batches)
        return floor_seconds(instruction_set, flops=n) / fastest(_fastfedrec(*self.problem))

    track_floor_share.unit = "share of floor"

    def track_times_torch_eager(self, instruction_set):
        return self._ratio("torch eager")

    def track_times_torch_vmap(self, instruction_set):
        return self._ratio("torch vmap")

    def track_times_torch_bmm(self, instruction_set):
        return self._ratio("torch bmm")


class Threads:
    """Time of one thread over the time of two, with alternating calls."""

    unit = "times faster"

    def setup(self):
        self.problem = _problem()

    def track_two_threads(self):
        runs = (lambda n=n: _train(*self.problem, n) for n in (1, 2))
        return times_faster(*runs, min_seconds=10.0, max_turns=5000, processors=2)


class Score:
    """Logits of all items for 50 users, by one network."""

    def setup(self):
        self.network, self.parameters, _ = _problem()
        self.users = np.arange(50)
        self.network.score(self.parameters, self.users)

    def time_score(self):
        self.network.score(self.parameters, self.users, n_threads=1)
