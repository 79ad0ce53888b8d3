"""Gradients through clients' steps: derivatives of the twin by complex steps, one bound on all, bits on any threads."""

import itertools

import numpy as np
import pytest
from naive.compute.networks import meta_learning as naive
from support.network_case import KEY, Case, spread

from fastfedrec import Key, hardware
from fastfedrec.compute.networks.client_examples import ClientExamples, Events, draw_examples
from fastfedrec.compute.networks.meta_learning import METHODS, MetaNetwork, split_examples

CASES = {
    "one user a client": {},
    "contexts": {"contexts": 2},
    "no user features": {"user": 0},
    "one hidden layer": {"hidden": (16,), "genres": False},
    "wide": {"n_factors": 48, "hidden": (64, 48, 16), "batch_size": 33},
    "batch of one": {"batch_size": 1},
}
EPOCHS = 3


class MetaCase(Case):
    """A small network and the split examples of its clients."""

    def __init__(self, method, **options):
        super().__init__(**options)
        self.meta = MetaNetwork(self.network, method, learning_rate=0.3)
        self.examples, self.n_support = split_examples(self.examples, key=KEY)
        rng = np.random.default_rng(5)
        # Off the kinks of relu, where a tower without inputs would start.
        self.parameters[: self.network.n_dense] += rng.normal(0, 0.05, self.network.n_dense)
        self.rates = np.full(self.network.n_parameters, self.meta.learning_rate)
        if self.meta.has_rates:  # each its own, some below 0
            self.rates = rng.normal(0.2, 0.2, self.network.n_parameters)
        self.all = self.meta.join(self.parameters, self.rates)

    def send(self, **changes):
        arguments = {"examples": self.examples, "n_support": self.n_support, "n_epochs": EPOCHS, "key": KEY}
        arguments |= {"batch_size": self.options["batch_size"], "n_threads": 1}
        return self.meta.train_clients(self.all, **(arguments | changes))

    def sent(self, updates, k):
        """Return a client's update of the parameters and of their rates."""
        whole = spread(self.meta, updates, k)
        return self.meta._parts(whole) if self.meta.has_rates else (whole, None)

    def twin(self, k):
        """The arguments of the twin's functions: (support, query, words)."""
        n, parts = self.n_support[k], self.client(k)
        words = KEY.words("meta_learning.order", user=int(self.examples.global_user_ids[k]), size=EPOCHS * n)
        return [part[:n] for part in parts], [part[n:] for part in parts], words

    def twin_options(self):
        return {"n_epochs": EPOCHS, "batch_size": self.options["batch_size"]}


def blocks(case):
    """A random direction within each layer's weights, each bias, and the embeddings."""
    rng = np.random.default_rng(2)
    layers, embeddings = case.unpacked()
    ends = np.cumsum([0, *(part.size for layer in layers for part in layer), embeddings.size])
    for a, b in itertools.pairwise(ends):
        direction = np.zeros(ends[-1])
        direction[a:b] = rng.normal(size=b - a)
        if b > a:
            yield direction


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["maml", "meta-sgd"])
def test_what_clients_send_is_the_derivative_of_the_twin(method, name):
    case = MetaCase(method, **CASES[name])
    like, updates = case.unpacked(), case.send()
    k = int(np.argmax(np.diff(case.examples.indptr)))
    support, query, words = case.twin(k)
    sent, of_rates = case.sent(updates, k)
    largest = 0.0
    for direction in blocks(case):

        def by_parameters(x):
            return naive.outer_loss(x, case.rates, like, support, query, words, **case.twin_options())

        def by_rates(x):
            return naive.outer_loss(case.parameters, x, like, support, query, words, **case.twin_options())

        expected = -naive.along(by_parameters, case.parameters, direction)
        np.testing.assert_allclose(sent @ direction, expected, rtol=1e-10, atol=1e-11)
        largest = max(largest, abs(expected))
        if of_rates is not None:
            expected = -naive.along(by_rates, case.rates, direction)
            np.testing.assert_allclose(of_rates @ direction, expected, rtol=1e-10, atol=1e-11)
    assert largest > 0.01


@pytest.mark.parametrize("name", CASES)
def test_the_first_order_is_the_gradient_after_the_steps(name):
    case = MetaCase("first-order-maml", **CASES[name])
    updates, second = case.send(), MetaCase("maml", **CASES[name]).send()
    for k in range(3):
        expected = -naive.first_order(
            case.parameters, case.rates, case.unpacked(), *case.twin(k), **case.twin_options()
        )
        np.testing.assert_allclose(case.sent(updates, k)[0], expected, rtol=0, atol=1e-11)
    # The orders differ, so no test above takes one for the other.
    assert np.abs(second.total() - updates.total()).max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_is_near_the_double(method):
    for options in ({}, {"contexts": 1, "batch_size": 32}):
        double, single = (MetaCase(method, dtype=dtype, **options).send() for dtype in (np.float64, np.float32))
        assert single.values.dtype == np.float32
        scale = np.abs(double.values).max()
        np.testing.assert_allclose(single.values, double.values, rtol=0, atol=2e-4 * scale)


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_every_width_of_vectors_gives_the_same(instruction_set):
    case = MetaCase("meta-sgd", contexts=1, n_factors=32)
    expected = case.send().values
    with hardware.use_instruction_set(instruction_set):
        np.testing.assert_allclose(case.send().values, expected, rtol=0, atol=1e-12)


def test_devices_step_at_the_rates_that_were_learnt():
    case = MetaCase("meta-sgd")
    result = case.meta.adapt_clients(case.all, case.examples, n_epochs=EPOCHS, batch_size=4, key=KEY)
    for k in range(3):
        parts = case.client(k)
        user = int(case.examples.global_user_ids[k])
        words = KEY.words("meta_learning.order", user=user, size=EPOCHS * len(parts[2]))
        after = naive.adapt(case.parameters, case.rates, case.unpacked(), parts, words, **case.twin_options())
        np.testing.assert_allclose(spread(case.network, result, k), after - case.parameters, rtol=0, atol=1e-11)
    # With one rate for all parameters the steps equal the steps of the network's clients.
    same = case.meta.join(case.parameters)
    result = case.meta.adapt_clients(
        same, case.examples, n_epochs=EPOCHS, batch_size=4, key=KEY, purpose="network.order"
    )
    np.testing.assert_allclose(result.values, case.train().values, rtol=0, atol=1e-12)


def test_without_steps_both_orders_send_the_gradient_of_the_query_loss():
    first, second = (MetaCase(method) for method in METHODS[:2])
    np.testing.assert_array_equal(first.send(n_epochs=0).values, second.send(n_epochs=0).values)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_double_backward(name):
    import torch
    from support import torch_networks as theirs

    case = MetaCase("meta-sgd", **CASES[name])
    updates = case.send()
    shapes = [part.shape for layer in case.unpacked()[0] for part in layer] + [case.unpacked()[1].shape]
    for k in range(2):
        support, query, words = case.twin(k)
        theta, rates = theirs.tensor(case.parameters), theirs.tensor(case.rates)

        def loss(flat, examples):
            parts = torch.split(flat, [int(np.prod(shape)) for shape in shapes])
            *dense, table = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
            return theirs.tower_loss(list(zip(dense[::2], dense[1::2], strict=True)), table, *examples)

        moved = theta
        halves, order = naive.halves_of(words), list(range(len(support[2])))
        for _ in range(EPOCHS):
            order = naive.shuffle(order, halves)
            for at in range(0, len(order), case.options["batch_size"]):
                batch = [[part[j] for j in order[at : at + case.options["batch_size"]]] for part in support]
                (slope,) = torch.autograd.grad(loss(moved, batch), moved, create_graph=True)
                moved = moved - rates * slope
        expected = torch.autograd.grad(loss(moved, query), (theta, rates))
        for got, result in zip(case.sent(updates, k), expected, strict=True):
            np.testing.assert_allclose(got, -result.numpy(), rtol=0, atol=1e-10)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_order", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_no_client_sends_more_than_the_bound(method, clip_order):
    case = MetaCase(method)
    free, bound = case.send(), 0.05
    norms = [np.linalg.norm(part, clip_order) for part in np.split(free.values, free.starts[1:-1])]
    assert min(norms) > bound  # so that each is cut, and the bound reached
    clipped = case.send(clip_norm=bound, clip_order=clip_order)
    result = np.array([np.linalg.norm(part, clip_order) for part in np.split(clipped.values, clipped.starts[1:-1])])
    assert (result <= bound).all()
    np.testing.assert_allclose(result, bound, rtol=1e-6)
    # An update within the bound is unchanged; with rates, the norm covers both parts.
    np.testing.assert_array_equal(case.send(clip_norm=2 * max(norms), clip_order=clip_order).values, free.values)
    if case.meta.has_rates:
        assert all(min(np.abs(part).max() for part in case.sent(clipped, k)) > 1e-5 for k in range(3))


@pytest.mark.parametrize("method", METHODS)
def test_bits_do_not_depend_on_threads_or_on_other_clients(method):
    case = MetaCase(method, n_users=12, n_items=30, n_events=200, dtype=np.float32, batch_size=16)
    combined = case.send()
    assert all(case.send(n_threads=n).values.tobytes() == combined.values.tobytes() for n in (2, 0))
    e = case.examples
    for k in (0, 7):
        a, b = e.indptr[k : k + 2]
        own = np.array([0, b - a]), e.items[a:b], e.labels[a:b], e.contexts[a:b]
        separate = ClientExamples(e.users[k : k + 1], e.global_user_ids[k : k + 1], *own)
        result = case.send(examples=separate, n_support=case.n_support[k : k + 1]).values
        assert result.tobytes() == combined.values[combined.starts[k] : combined.starts[k + 1]].tobytes()


@pytest.mark.parametrize("method", METHODS)
def test_clients_without_a_query_set_send_zeros_and_those_that_diverge_leave_nothing(method):
    case = MetaCase(method)
    n_support = case.n_support.copy()
    n_support[1] = np.diff(case.examples.indptr)[1]
    n_support[2] = 0  # the gradient where it starts
    updates = case.send(n_support=n_support)
    for k, empty in ((1, True), (2, False), (3, False)):
        assert case.sent(updates, k)[0].any() != empty
    assert not updates.rejected.any()
    table = case.meta.network_part(case.all)[case.network.n_dense :].reshape(-1, case.network.n_factors).copy()
    row = case.fields("user", case.examples.users[0])[0][0]
    table[row] = 1e200
    broken = case.parameters.copy()
    broken[case.network.n_dense :] = table.ravel()
    case.all = case.meta.join(broken, case.rates)
    updates = case.send()
    assert updates.rejected[0]
    assert not case.sent(updates, 0)[0].any()
    other_clients = [k for k, user in enumerate(case.examples.users) if [row] not in case.fields("user", user)]
    case.all = case.meta.join(case.parameters, case.rates)
    for k in other_clients:
        np.testing.assert_array_equal(case.sent(updates, k)[0], case.sent(case.send(), k)[0])
    assert other_clients


def test_a_split_keeps_negatives_with_their_positives():
    case = Case(n_users=20, n_items=40, n_events=150, negatives=3, contexts=1)
    split, n_support = split_examples(case.examples, key=KEY, support_share=0.3)
    seen = []
    for k, (a, b) in enumerate(itertools.pairwise(case.examples.indptr)):
        before = case.examples.items[a:b], case.examples.labels[a:b], case.examples.contexts[a:b]
        n = int(before[1].sum())
        groups = [[tuple(part[j] for part in before) for j in range(p, b - a, n)] for p in range(n)]
        after = list(zip(split.items[a:b], split.labels[a:b], split.contexts[a:b], strict=True))
        chosen = [sorted(group) for group in groups if group[0] in after[: n_support[k]]]
        support = sorted(example for group in chosen for example in group)
        assert sorted(after) == sorted(example for group in groups for example in group)
        if len(set(map(tuple, map(sorted, groups)))) == n:  # no positive occurs twice
            assert sorted(after[: n_support[k]]) == support
            assert len(chosen) == np.ceil(0.3 * n)
        seen.append(n_support[k])
    assert len(set(seen)) > 2
    repeated = split_examples(case.examples, key=KEY, support_share=0.3)[0]
    np.testing.assert_array_equal(repeated.items, split.items)
    assert (split_examples(case.examples, key=KEY, support_share=0.3, round=1)[0].items != split.items).any()
    everything, n_support = split_examples(case.examples, key=KEY, support_share=1.0)
    np.testing.assert_array_equal(everything.items, case.examples.items)
    np.testing.assert_array_equal(n_support, np.diff(case.examples.indptr))


def test_a_split_of_nobody_or_of_users_without_positives():
    case = Case()
    no_clients = draw_examples(case.data, Events.from_interactions(case.data), [], 2, key=KEY)
    assert split_examples(no_clients, key=KEY)[1].tolist() == []
    none = Events.from_interactions(case.data.binarize(1e9))
    split, n_support = split_examples(draw_examples(case.data, none, [0, 1], 2, key=KEY), key=KEY)
    assert n_support.tolist() == [0, 0]
    for method in METHODS:
        meta = MetaNetwork(case.network, method, learning_rate=0.1)
        sent = meta.train_clients(meta.join(case.parameters), split, n_support, n_epochs=2, key=KEY)
        assert not sent.values.any()


def test_every_positive_is_as_likely_in_the_support():
    case = Case(n_users=1, n_items=9, n_events=8, negatives=0)
    n, times = len(case.examples.items), 4000
    counts = dict.fromkeys(case.examples.items.tolist(), 0)
    for number in range(times):
        split, n_support = split_examples(case.examples, key=Key.from_seed(9), round=number)
        for item in split.items[: n_support[0]].tolist():
            counts[item] += 1
    share = np.ceil(n / 2) / n
    # Six standard deviations; 10% off would be twelve.
    assert np.abs(np.array(list(counts.values())) / times - share).max() < 6 * np.sqrt(share * (1 - share) / times)


def test_bad_arguments_are_named():
    case = MetaCase("maml")
    for change, message in (
        ({"n_support": [1, 2]}, r"n_support must have one integer for each client \(6\)"),
        ({"n_support": np.full(6, 10**6)}, r"n_support\[0\] must be from 0 to the client's"),
        ({"n_support": np.full(6, 0.5)}, "n_support must have one integer for each client"),
        ({"n_epochs": -1}, "n_epochs must be"),
        ({"examples": 3}, "examples must be ClientExamples"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            case.send(**change)
    for arguments, message in (
        ((case.network, "maml-2"), "method must be one of"),
        ((case.features, "maml"), "network must be TwoTower"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            MetaNetwork(*arguments, learning_rate=0.1)
    with pytest.raises(ValueError, match="learning_rate must be"):
        MetaNetwork(case.network, "maml", learning_rate=0.0)
    with pytest.raises(ValueError, match="support_share must be above 0"):
        split_examples(case.examples, key=KEY, support_share=0.0)
    rated = MetaNetwork(case.network, "meta-sgd", learning_rate=0.1)
    with pytest.raises(ValueError, match="rates must"):
        rated.join(case.parameters, case.rates[:-1])
    with pytest.raises(ValueError, match="parameters must"):
        rated.network_part(case.parameters)
