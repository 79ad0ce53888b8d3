"""The two-tower network: the twin's and autograd's trajectories, the same bits on any threads, and norms in bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute.networks import two_tower as naive
from support.child_case import run_python
from support.network_case import (
    BAD_STEPS,
    KEY,
    Case,
    assert_equals_twin,
    assert_is_slope,
    assert_order_is_named,
    train_with,
)
from support.strategies import seeds

from fastfedrec import Interactions, Key, hardware
from fastfedrec.compute.networks.client_examples import ClientExamples, Events, draw_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-11}


CASES = {
    "one user a client": {},
    "contexts": {"contexts": 2},
    "contexts alone": {"contexts": 1, "user": 0},
    "no user features": {"user": 0},
    "item ids alone": {"genres": False},
    "no item ids": {"item_ids": False},
    "one hidden layer": {"hidden": (16,)},
    "wide": {"n_factors": 48, "hidden": (64, 48, 16), "batch_size": 33},
    "batch of one": {"batch_size": 1},
    "all at once": {"batch_size": 1000},
    "no negatives": {"negatives": 0},
}


# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_updates_equal_the_twin(name, dtype):
    case = Case(dtype=dtype, **CASES[name])
    largest, updates = assert_equals_twin(case, TOLERANCE[dtype])
    assert not updates.rejected.any()
    assert min(largest) > 0.01


@settings(max_examples=30)
@given(
    seed=seeds(),
    n_users=st.integers(1, 5),
    n_items=st.integers(1, 9),
    n_events=st.integers(0, 25),
    negatives=st.integers(0, 3),
    user=st.integers(0, 2),
    contexts=st.integers(0, 2),
    n_factors=st.sampled_from([16, 32]),
    hidden=st.sampled_from([(16,), (32, 16), (16, 48, 16)]),
    batch_size=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_updates_equal_the_twin_for_any_shape(seed, dtype, **shape):
    case = Case(seed=seed, dtype=dtype, **shape)
    assert_equals_twin(case, 20 * TOLERANCE[dtype])


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_trajectories_equal_autograd(name):
    import torch
    from support import torch_networks as theirs

    case = Case(**CASES[name])
    updates = case.train()
    for k in range(2):
        arrays, embeddings = case.unpacked()
        layers, table = [[theirs.tensor(part) for part in pair] for pair in arrays], theirs.tensor(embeddings)
        flat = [part for layer in layers for part in layer] + [table]
        optimizer = torch.optim.SGD(flat, lr=case.options["learning_rate"])
        examples = case.client(k)
        halves, order = naive.halves_of(case.words(k)), list(range(len(examples[2])))
        for _ in range(case.options["n_epochs"]):
            order = naive.shuffle(order, halves)
            for first in range(0, len(order), case.options["batch_size"]):
                batch = [[part[x] for x in order[first : first + case.options["batch_size"]]] for part in examples]
                optimizer.zero_grad()
                theirs.tower_loss(layers, table, *batch).backward()
                optimizer.step()
        end = np.concatenate([part.detach().numpy().ravel() for part in flat])
        np.testing.assert_allclose(case.spread(updates, k), end - case.parameters, rtol=0, atol=1e-10)


@pytest.mark.parametrize("contexts", [0, 2])
def test_a_step_goes_down_the_gradient_of_the_loss(contexts):
    case = Case(contexts=contexts, n_events=20, batch_size=1000)
    got = case.spread(case.train(n_epochs=1, learning_rate=1.0), 1)
    fields = case.client(1)
    assert_is_slope(got, case.parameters, lambda moved: naive.mean_loss(*case.unpacked(moved), *fields))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_scores_equal_the_twin(name, dtype):
    case = Case(dtype=dtype, n_items=150, **CASES[name])
    n_contexts = case.features.context.n_entries
    users = np.array([2, 0, 2, 1])
    contexts = np.array([0, 5, 3, 5]) if n_contexts else None
    updates = case.train()
    clients = np.array([1, 4, 0, 4])
    items = [case.fields("item", i) for i in range(case.data.n_items)]
    for answers in ({}, {"updates": updates, "clients": clients}):
        got = case.network.score(case.parameters, users, contexts=contexts, n_threads=1, **answers)
        assert got.dtype == dtype
        for q, user in enumerate(users):
            client_part = case.spread(updates, clients[q]).astype(float) if answers else 0
            user_fields = case.fields("user", user) + (case.fields("context", contexts[q]) if n_contexts else [])
            expected = naive.scores(*case.unpacked(case.parameters + client_part), user_fields, items)
            scale = 1 + np.abs(expected).max()
            np.testing.assert_allclose(got[q], expected, rtol=0, atol=20 * TOLERANCE[dtype] * scale)
            assert expected.std() > 1e-3


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_every_width_of_vectors_equals_the_twin(instruction_set):
    with hardware.use_instruction_set(instruction_set):
        for contexts in (0, 1):
            case = Case(contexts=contexts, n_factors=32)
            updates = case.train()
            np.testing.assert_allclose(case.spread(updates, 2), case.expected(2), rtol=0, atol=1e-11)


# ---- invariants -------------------------------------------------------------------------------------------------


def test_a_client_without_data_and_one_with_one_item():
    case = Case()
    e = case.examples
    few = ClientExamples(
        e.users[:3], e.global_user_ids[:3], np.array([0, 0, 1, 1]), e.items[:1], e.labels[:1], e.contexts[:1]
    )
    updates = case.train(examples=few, clip_norm=1.0)
    assert not updates.rejected.any()
    assert not case.spread(updates, 0).any()
    assert not case.spread(updates, 2).any()
    assert np.diff(updates.row_starts).tolist()[::2] == [0, 0]
    assert case.spread(updates, 1).any()
    no_clients = ClientExamples(
        e.users[:0], e.global_user_ids[:0], np.array([0]), e.items[:0], e.labels[:0], e.contexts[:0]
    )
    assert case.train(examples=no_clients).total().tolist() == [0] * case.network.n_parameters


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_diverges_leaves_nothing_to_the_next(seed):
    # One thread takes all clients, the longest first; batches of 3 leave columns of a vector unused.
    case = Case(seed=seed, contexts=seed % 2, batch_size=3)
    e = case.examples
    longest = np.argmax(np.diff(e.indptr))
    row = case.fields("user", e.users[longest])[0][0]
    case.parameters[case.network.n_dense :].reshape(-1, case.network.n_factors)[row] = 1e200
    other_clients = [k for k, user in enumerate(e.users) if [row] not in case.fields("user", user)]
    assert other_clients
    combined = case.train()
    assert combined.rejected[longest]
    for k in other_clients:
        a, b = e.indptr[k : k + 2]
        client_part = np.array([0, b - a]), e.items[a:b], e.labels[a:b], e.contexts[a:b]
        separate = case.train(examples=ClientExamples(e.users[k : k + 1], e.global_user_ids[k : k + 1], *client_part))
        assert (combined.values[combined.starts[k] : combined.starts[k + 1]] == separate.values).all()
        assert separate.values.any()


def test_rounds_and_purposes_name_the_order():
    assert_order_is_named(Case())


def test_sizes_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    data = Interactions.from_arrays(rng.integers(0, 21, 40_000), np.r_[np.arange(3706), rng.integers(0, 3706, 36_294)])
    data = data.with_features(
        user_features={"gender": np.arange(21) % 2, "age": np.arange(21) % 7, "occupation": np.arange(21)},
        item_features={"genres": [(i % 18,) for i in range(3706)]},
    )
    movielens = Features.from_interactions(data, user=["gender", "age", "occupation"], item=["genres"])
    assert TwoTower(movielens).n_parameters == 288_257
    data = Interactions.from_arrays(np.zeros(4082, dtype=int), np.arange(4082))
    data = data.with_features(item_features={"cost": np.arange(4082) % 2})
    log = {f"c{n}": np.arange(300) % n for n in (7, 2, 3, 9, 80, 233)} | {"weekday": np.arange(300) % 7}
    frappe = Features.from_interactions(data, item=["cost"], contexts=log)
    assert TwoTower(frappe).n_parameters == 347_585


def test_parameters_start_as_described():
    case = Case(n_factors=64, n_items=400, n_events=3000, hidden=(128, 64))
    for dtype in (np.float32, np.float64):
        start = case.network.initial_parameters(KEY, dtype=dtype)
        assert start.dtype == dtype
        layers, embeddings = case.unpacked(start)
        for weights, bias in layers:
            limit = np.sqrt(6 / len(weights))
            assert np.abs(weights).max() <= limit
            assert np.abs(weights).max() > 0.8 * limit
            assert not bias.any()
        assert embeddings.std() == pytest.approx(0.05, rel=0.03)
    assert (case.network.initial_parameters(Key.from_seed(2)) != start).any()


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *BAD_STEPS,
        ({"examples": 3}, "examples must be ClientExamples, got int; use draw_examples"),
        ({"users": [9, 1, 2, 3, 4, 5]}, "examples.users must be from 0 to 5, got 1 to 9"),
        ({"items": 99}, r"examples.items must be from 0 to \d+, got 0 to 99"),
        ({"contexts": 99}, r"examples.contexts must be from 0 to 45, got 0 to 99"),
        ({"labels": np.nan}, "examples.labels must be finite, got nan"),
        ({"labels": 2.0}, "examples.labels must be from 0 to 1, got 0 to 2"),
        ({"indptr": np.zeros(7, dtype=int)}, "examples.indptr must end at the number of examples, 77, got 0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train_with(Case(contexts=1), change)


def test_labels_of_any_type_are_the_same_labels():
    case = Case(contexts=1)
    expected = case.train().values
    labels = case.examples.labels
    for other in (labels.astype(int), labels.astype(np.uint8), labels.astype(">f4"), np.repeat(labels, 2)[::2]):
        result = case.train(examples=replace(case.examples, labels=other)).values
        np.testing.assert_array_equal(result, expected)


def test_bad_networks_are_named():
    features = Case().features
    for change, message in (
        ({"n_factors": 20}, "n_factors must be a multiple of 16"),
        ({"hidden": ()}, "hidden must be a list of at least one width"),
        ({"hidden": (32, 8)}, r"hidden\[1\] must be at least 16"),
        ({"features": 3}, "features must be Features"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            TwoTower(**({"features": features} | change))
    with pytest.raises(TypeError, match="dtype must be float32 or float64, got int32"):
        TwoTower(features).initial_parameters(KEY, dtype=np.int32)


def test_bad_queries_are_named():
    case = Case(contexts=1)
    updates = case.train()
    other = Case(contexts=1, dtype=np.float32).train()
    for arguments, message in (
        ({"users": [6]}, "users must be from 0 to 5, got 6 to 6"),
        ({"contexts": None}, "contexts must not be None, because the features have contexts"),
        ({"contexts": [0, 1]}, "contexts must have 1 entries, got 2"),
        ({"updates": updates}, "updates and clients must be passed together"),
        ({"updates": updates, "clients": [9]}, "clients must be from 0 to 5"),
        ({"updates": updates, "clients": [0, 1]}, r"clients must have one entry for each query \(1\), got 2"),
        ({"updates": other, "clients": [0]}, "updates must be of this network and of float64"),
    ):
        with pytest.raises(ValueError, match=message):
            case.network.score(case.parameters, **({"users": [0], "contexts": [0]} | arguments))
    case.parameters[: case.network.n_dense] = 1e200
    with pytest.raises(ValueError, match="scores of user row 3 are not finite; has the network diverged"):
        case.network.score(case.parameters, [3], contexts=[0])


# ---- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("contexts", [0, 2])
def test_bits_do_not_depend_on_threads(dtype, contexts):
    case = Case(n_users=30, n_items=60, n_events=900, contexts=contexts, dtype=dtype, batch_size=32)
    users, queries = np.arange(30), np.zeros(30, dtype=int) if contexts else None
    runs = []
    for n_threads in (1, 2, 4, 0):
        updates = case.train(n_threads=n_threads, clip_norm=0.4)
        answers = {"contexts": queries, "updates": updates, "clients": users[::-1], "n_threads": n_threads}
        scores = case.network.score(case.parameters, users, **answers)
        runs.append((updates.values.tobytes(), updates.total().tobytes(), scores.tobytes()))
    assert all(run == runs[0] for run in runs)


def test_a_forked_child_can_train():
    code = """if True:
        import os
        from support.network_case import Case
        case = Case()
        before = case.train(n_threads=2).values.tobytes()
        child = os.fork()
        if child == 0:
            os._exit(0 if case.train(n_threads=2).values.tobytes() == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    run_python(code)


# ---- compilation ------------------------------------------------------------------------------------------------


def test_nothing_is_compiled_at_run_time():
    code = """if True:
        import sys
        from support.network_case import Case
        case = Case()
        case.network.score(case.parameters, [0], updates=case.train(), clients=[0])
        assert "numba" not in sys.modules
        """
    run_python(code)


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_planted_tastes_are_learnt():
    # Users of one kind like items of one kind, and only features predict it for items without any interaction.
    rng = np.random.default_rng(0)
    n_users, n_items = 60, 200
    kind, genre = rng.integers(0, 3, n_users), rng.integers(0, 3, n_items)
    liked = [rng.permutation(np.flatnonzero((genre == k) & (np.arange(n_items) < 150)))[:15] for k in kind]
    data = Interactions.from_arrays(
        np.r_[np.repeat(np.arange(n_users), 15), np.zeros(n_items, dtype=int)],
        np.r_[np.concatenate(liked), range(n_items)], duplicates="sum",
    ).with_features(user_features={"kind": kind}, item_features={"genre": genre})  # fmt: skip
    features = Features.from_interactions(data, user=["kind"], item=["genre"], item_ids=False)
    network = TwoTower(features, n_factors=32, hidden=(32, 16))

    def auc(labels_of):
        parameters = network.initial_parameters(KEY)
        events = Events.from_interactions(data)
        for round in range(40):
            examples = draw_examples(data, events, np.arange(1, n_users), 3, key=KEY, round=round)
            examples = replace(examples, labels=labels_of(examples.labels))
            updates = network.train_clients(
                parameters, examples, learning_rate=0.3, n_epochs=2, key=KEY, round=round, batch_size=16
            )
            parameters += (updates.total() / (n_users - 1)).astype(np.float32)
        scores = network.score(parameters, np.arange(1, n_users))[:, 150:]
        good = genre[150:] == kind[1:, None]
        return np.mean([(s[g][:, None] > s[~g]).mean() for s, g in zip(scores, good, strict=True)])

    assert auc(lambda labels: labels) > 0.95
    # The same measure is lower after training on permuted labels.
    assert auc(lambda labels: rng.permutation(labels)) < 0.9
