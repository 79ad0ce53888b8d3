"""A small two-tower network with data and its twin's results, for tests of networks and of updates."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
from naive.compute.networks import two_tower as naive

from fastfedrec import Interactions, Key
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features

KEY = Key.from_seed(1)
HIDDEN = (32, 16)

#: Arguments that every `train_clients` refuses; "nan" replaces some of the case's parameters.
BAD_STEPS = [
    ({"parameters": np.zeros(3)}, r"parameters must have shape \(\d+,\), got \(3,\)"),
    ({"parameters": "nan"}, r"parameters must be finite, got nan at \(7,\)"),
    ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
    ({"n_epochs": -1}, "n_epochs must be at least 0"),
    ({"batch_size": 0}, "batch_size must be at least 1"),
    ({"clip_norm": 0.0}, "clip_norm must be at least"),
    ({"clip_order": 3}, "clip_order must be at most 2"),
    ({"n_threads": -1}, "n_threads must be at least 0"),
    ({"round": -1}, "round must be at least 0"),
]


class Fields:
    """Features of a network's examples, by entry."""

    def fields(self, side, entry):
        """Return the embedding rows of each field of a user, context or item."""
        table = getattr(self.features, side)
        before = {"user": 0, "context": self.features.user.n_values}
        offset = before.get(side, self.features.n_embeddings - self.features.item.n_values)
        n = table.n_features
        bounds = table.indptr[entry * n : entry * n + n + 1]
        return [(table.indices[a:b] + offset).tolist() for a, b in itertools.pairwise(bounds)]

    def client(self, k):
        """Return (users' fields, items' fields, labels) of each example of a client."""
        first, last = self.examples.indptr[k : k + 2]
        user = self.fields("user", self.examples.users[k])
        contexts = self.examples.contexts[first:last]
        user_fields = [user + (self.fields("context", c) if self.features.context.names else []) for c in contexts]
        items = [self.fields("item", i) for i in self.examples.items[first:last]]
        return user_fields, items, self.examples.labels[first:last].astype(float)


class Case(Fields):
    """Small network with data and examples; `contexts` makes the user's side differ between examples."""

    def __init__(
        self, seed=0, n_users=6, n_items=12, n_events=40, negatives=2, user=2, contexts=0, genres=True,
        dtype=np.float64, n_factors=16, hidden=HIDDEN, item_ids=True, batch_size=4,
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        users, items = rng.integers(0, n_users, n_events), rng.integers(0, n_items, n_events)
        users, items = np.r_[users, np.arange(n_users)], np.r_[items, np.zeros(n_users, dtype=np.int64)]
        self.data = Interactions.from_arrays(users, items, duplicates="sum").with_features(
            user_features={f"u{k}": rng.integers(0, 3, n_users) for k in range(user)}
        )
        n_items = self.data.n_items
        tags = [tuple(rng.permutation(5)[: rng.integers(0, 4)].tolist()) for _ in range(n_items)]
        tags[0] = (0, 3)
        self.data = self.data.with_features(item_features={"tags": tags})
        log = {f"c{k}": rng.integers(0, 4, len(users)) for k in range(contexts)}
        self.features = Features.from_interactions(
            self.data, user=[f"u{k}" for k in range(user)], item=["tags"] if genres else [], item_ids=item_ids,
            contexts=log,
        )  # fmt: skip
        events = Events.from_log(self.data, users, items) if contexts else Events.from_interactions(self.data)
        self.network = TwoTower(self.features, n_factors=n_factors, hidden=hidden)
        self.examples = draw_examples(self.data, events, np.arange(n_users), negatives, key=Key.from_seed(seed))
        self.parameters = self.network.initial_parameters(Key.from_seed(seed), dtype=dtype)
        # Otherwise only the biases of layers would matter.
        self.parameters[self.network.n_dense :] *= 10
        self.options = {"learning_rate": 0.3, "n_epochs": 3, "batch_size": batch_size, "key": KEY}

    def train(self, **changes):
        arguments = {"parameters": self.parameters, "examples": self.examples} | self.options | changes
        return self.network.train_clients(**({"n_threads": 1} | arguments))

    def unpacked(self, parameters=None):
        table = self.features
        sizes = table.user.n_features + table.context.n_features, table.item.n_features
        parameters = self.parameters if parameters is None else parameters
        return naive.unpack(parameters, *sizes, self.network.n_factors, self.network.hidden)

    def spread(self, updates, k):
        """Return a client's update, with zeros for the entries that it does not change."""
        return spread(self.network, updates, k)

    def words(self, k, purpose="network.order", round=0):
        user = int(self.examples.global_user_ids[k])
        return KEY.words(purpose, user=user, round=round, size=self.options["n_epochs"] * len(self.examples.items))

    def expected(self, k):
        """Return a client's update computed by the twin."""
        layers, embeddings = self.unpacked()
        options = {name: value for name, value in self.options.items() if name != "key"}
        naive.train_client(layers, embeddings, *self.client(k), self.words(k), **options)
        return naive.pack(layers, embeddings) - self.parameters


def spread(network, updates, k):
    """Return a client's update of a network, an encoder or both, with zeros for the entries that it does not change."""
    out = np.zeros(network.n_parameters, dtype=updates.values.dtype)
    n, width = network.n_dense, network.n_factors
    stored = updates.values[updates.starts[k] : updates.starts[k + 1]]
    rows = updates.rows[updates.row_starts[k] : updates.row_starts[k + 1]]
    out[:n] = stored[:n]
    out[n:].reshape(-1, width)[rows] = stored[n:].reshape(-1, width)
    return out


def assert_equals_twin(case, tolerance):
    """Check each client's update against the twin, relative to the largest entry; return these and the updates."""
    updates, largest = case.train(), []
    for k in range(len(updates.rejected)):
        expected = case.expected(k)
        largest.append(np.abs(expected).max())
        np.testing.assert_allclose(case.spread(updates, k), expected, rtol=0, atol=tolerance * (1 + largest[-1]))
    return largest, updates


def assert_within_bound(case, bound, order):
    """Check in exact arithmetic that updates are within the bound, and are scaled copies of the unclipped ones."""
    free, clipped = case.train(), case.train(clip_norm=bound, clip_order=order)
    for k in range(len(free.rejected)):
        a, b = case.spread(free, k).astype(float), case.spread(clipped, k).astype(float)
        exact = [abs(Fraction(x)) for x in b.tolist() if x]
        assert sum(x**order for x in exact) <= Fraction(bound) ** order
        norm = np.linalg.norm(a, order)
        scale = min(1, bound / norm) if norm else 1
        np.testing.assert_allclose(b, a * scale, rtol=1e-5, atol=1e-6 * np.abs(a).max())


def assert_is_slope(update, parameters, loss):
    """Check that one step of size 1 follows the loss's gradient, by differences at 200 positions."""
    rng = np.random.default_rng(0)
    positions = np.r_[rng.permutation(np.flatnonzero(update))[:150], rng.permutation(len(update))[:50]]
    numeric = []
    for position in positions:
        losses = []
        for h in (1e-6, -1e-6):
            moved = parameters.copy()
            moved[position] += h
            losses.append(loss(moved))
        numeric.append((losses[1] - losses[0]) / 2e-6)
    np.testing.assert_allclose(update[positions], numeric, rtol=1e-5, atol=1e-8)
    assert np.abs(numeric).max() > 1e-3


def assert_order_is_named(case):
    """Check that rounds and purposes determine the order of examples."""
    first = case.train()
    assert (case.train(round=1).values != first.values).any()
    assert (case.train(purpose="other").values != first.values).any()
    assert (case.train().values == first.values).all()


def train_with(case, change):
    """Train with other arguments or columns of examples; one number is put into a column, after a 0."""
    if isinstance(change.get("parameters"), str):
        case.parameters[7] = np.nan
        change = {}
    fields = {name: value for name, value in change.items() if hasattr(case.examples, name)}
    for name, value in fields.items():
        if np.ndim(value) == 0:
            column = getattr(case.examples, name).copy()
            column.flat[0], column.flat[1] = 0, value
            fields[name] = column
    return case.train(**({"examples": replace(case.examples, **fields)} if fields else change))
