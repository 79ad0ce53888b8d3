"""Gradients through clients' steps at the size of MovieLens 1M, against two implementations in torch.

The clients are those in `bench_two_tower`.  Each client steps on its first 80 examples and takes the loss of the
remaining ones.  torch stores the graph of all steps, and we store the parameters at every sqrt(n)-th step.  torch uses
one thread.
"""

import numpy as np

from benches.compute.networks import bench_two_tower as steps
from benches.floors import fastest, floor_seconds
from benches.ratios import OnInstructionSet, nan_without_peers, times_faster
from fastfedrec.compute.networks.meta_learning import METHODS, MetaNetwork

N_SUPPORT, PURPOSE = 80, "meta_learning.order"


def _send(method, network, parameters, examples, n_threads=1):
    meta = MetaNetwork(network, method, learning_rate=steps.RATE)
    support = np.full(steps.N_CLIENTS, N_SUPPORT)
    return meta.train_clients(
        meta.join(parameters), examples, support, n_epochs=steps.N_EPOCHS, batch_size=steps.BATCH, key=steps.KEY,
        n_threads=n_threads,
    )  # fmt: skip


def _fastfedrec(*problem):
    def run():
        updates = _send("maml", *problem)
        return np.stack([updates.values[a : a + problem[0].n_dense] for a in updates.starts[:-1]])

    return run


def _outer(p):
    """Return the loss of the query examples after steps by `gradient`, as a function of a client's tensors."""

    def outer(gradient, dense, table, user, items, labels, batches):
        # Steps must create new tensors, so that autograd can differentiate through them.
        for batch in batches:
            d_dense, d_table = gradient(dense, table, user, items[batch], labels[batch])
            dense = [x - steps.RATE * d for x, d in zip(dense, d_dense, strict=True)]
            table = table - steps.RATE * d_table
        return p.loss(dense, table, user, items[N_SUPPORT:], labels[N_SUPPORT:])

    return outer


def _eager(*problem):
    p = steps._Torch(*problem, N_SUPPORT, PURPOSE)
    outer = _outer(p)

    def gradient(dense, table, *batch):
        *d_dense, d_table = p.torch.autograd.grad(p.loss(dense, table, *batch), [*dense, table], create_graph=True)
        return d_dense, d_table

    def run():
        sent = []
        for c in range(steps.N_CLIENTS):
            start = [x.clone().requires_grad_() for x in (*p.dense, p.tables[c])]
            batches = [batch[c] for batch in p.batches]
            loss = outer(gradient, start[:-1], start[-1], p.users[c], p.items[c], p.labels[c], batches)
            gradients = p.torch.autograd.grad(loss, start)
            sent.append(-p.torch.cat([x.ravel() for x in gradients[:-1]]))
        return p.torch.stack(sent).numpy()

    return run


def _func(*problem):
    p = steps._Torch(*problem, N_SUPPORT, PURPOSE)
    outer, gradient = _outer(p), p.torch.func.grad(p.loss, argnums=(0, 1))

    def of_client(dense, table, user, items, labels, *batches):
        return outer(gradient, dense, table, user, items, labels, batches)

    in_dims = (None, 0, 0, 0, 0, *[0] * len(p.batches))
    every = p.torch.func.vmap(p.torch.func.grad(of_client, argnums=(0, 1)), in_dims=in_dims)

    def run():
        d_dense, _ = every(p.dense, p.tables, p.users, p.items, p.labels, *p.batches)
        return -p.torch.cat([x.reshape(steps.N_CLIENTS, -1) for x in d_dense], 1).numpy()

    return run


IMPLS = {"fastfedrec": _fastfedrec, "torch eager": _eager, "torch.func": _func}


class TrainClients:
    """Eight clients with five epochs of 80 examples, and the loss of 85 examples."""

    param_names = ("method",)
    params = (METHODS,)

    def setup(self, method):
        self.problem = steps._problem()
        _send(method, *self.problem)

    def time_train(self, method):
        _send(method, *self.problem)


@nan_without_peers
class RatioToPeers(OnInstructionSet):
    """Each peer's time over ours, with alternating calls: the figure to publish."""

    param_names = ("instruction_set",)
    params = (["x86-64-v4", "x86-64-v3"],)
    unit = "times faster"

    def setup(self, instruction_set):
        super().setup(instruction_set)
        self.problem = steps._problem()

    def _ratio(self, other):
        return times_faster(*(steps.checked(IMPLS, impl, self.problem) for impl in (other, "fastfedrec")))

    def track_floor_share(self, instruction_set):
        """Count each layer's product 3 times for a step, and 8 times for the backward pass through the step."""
        n_examples = steps.N_CLIENTS * steps.N_EPOCHS * N_SUPPORT
        n_batches = steps.N_CLIENTS * steps.N_EPOCHS * -(-N_SUPPORT // steps.BATCH)
        n = 11 / 3 * steps.flops(self.problem[0], n_examples, n_batches)
        return floor_seconds(instruction_set, flops=n) / fastest(_fastfedrec(*self.problem))

    track_floor_share.unit = "share of floor"

    def track_times_torch_eager(self, instruction_set):
        return self._ratio("torch eager")

    def track_times_torch_func(self, instruction_set):
        return self._ratio("torch.func")


class Threads:
    """Time of one thread over the time of two, with alternating calls."""

    unit = "times faster"

    def setup(self):
        self.problem = steps._problem()

    def track_two_threads(self):
        runs = (lambda n=n: _send("maml", *self.problem, n) for n in (1, 2))
        return times_faster(*runs, min_seconds=10.0, max_turns=5000, processors=2)


class Orders:
    """Time over the time of the first-order method, which has no backward pass through steps."""

    unit = "times as long"

    def setup(self):
        self.problem = steps._problem()

    def track_times_the_first_order(self):
        return times_faster(*(lambda m=m: _send(m, *self.problem) for m in ("maml", "first-order-maml")))
