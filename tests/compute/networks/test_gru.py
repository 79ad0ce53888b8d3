"""The recurrent encoder: the twin's and autograd's trajectories, the same bits on any threads, and norms in bounds."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute.networks import gru as naive
from support.gru_case import KEY, Case
from support.network_case import assert_equals_twin, assert_within_bound
from support.strategies import any_bound, seeds

from fastfedrec import Key, hardware
from fastfedrec.compute.networks.gru import ContrastiveExamples, GRUEncoder

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-11}

CASES = {
    "ragged": {},
    "one step": {"longest": 1, "segment": 1},
    "long": {"longest": 50, "n_examples": 3, "segment": 20, "scale": 2.0},
    "many columns": {"n_examples": 30, "batch_size": 30, "longest": 4},
    "wide": {"n_factors": 48, "n_candidates": 9, "n_segments": 5},
    "two of each": {"n_segments": 2, "n_candidates": 2},
    "batch of one": {"batch_size": 1},
    "items alone": {"segment_weight": 0.0},
    "segments alone": {"item_weight": 0.0, "segment_weight": 0.5},
}


# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_updates_equal_the_twin(name, dtype):
    case = Case(dtype=dtype, **CASES[name])
    largest, updates = assert_equals_twin(case, TOLERANCE[dtype])
    assert not updates.rejected.any()
    assert all(size > 0.01 or not case.client(k) for k, size in enumerate(largest))


@settings(max_examples=30)
@given(
    seed=seeds(),
    n_clients=st.integers(1, 4),
    n_items=st.integers(1, 9),
    n_examples=st.integers(0, 6),
    longest=st.integers(1, 9),
    segment=st.integers(1, 9),
    n_segments=st.integers(2, 4),
    n_candidates=st.integers(2, 5),
    n_factors=st.sampled_from([16, 32]),
    batch_size=st.integers(1, 9),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_updates_equal_the_twin_for_any_shape(seed, dtype, **shape):
    case = Case(seed=seed, dtype=dtype, **shape)
    assert_equals_twin(case, 20 * TOLERANCE[dtype])


def torch_of(case):
    """(torch, a GRU with the same weights, items' layer, embeddings)."""
    torch = pytest.importorskip("torch", reason="torch is an oracle of this test, no dependency")
    width = case.encoder.n_factors
    dense, embeddings = naive.unpack(case.parameters, width)

    def reordered(part):  # n, r, z to torch's r, z, n
        n, r, z = np.split(part, 3, axis=-1)
        return np.concatenate([r, z, n], axis=-1)

    gru = torch.nn.GRU(width, width, batch_first=True, dtype=torch.float64)
    layer = torch.nn.Linear(width, width, dtype=torch.float64)
    table = torch.nn.Embedding.from_pretrained(torch.tensor(embeddings), freeze=False)
    with torch.no_grad():
        gru.weight_ih_l0.copy_(torch.tensor(dense["w"].T.copy()))
        gru.weight_hh_l0.copy_(torch.tensor(reordered(dense["u"]).T.copy()))
        gru.bias_ih_l0.copy_(torch.tensor(dense["b"]))
        gru.bias_hh_l0.copy_(torch.tensor(reordered(dense["c"])))
        layer.weight.copy_(torch.tensor(dense["v"].T.copy()))
        layer.bias.copy_(torch.tensor(dense["d"]))
    return torch, gru, layer, table


def torch_state(torch, gru, table, sequence):
    return gru(table(torch.tensor(sequence))[None])[1][0, 0]


@pytest.mark.parametrize("name", CASES)
def test_trajectories_equal_autograd(name):
    case = Case(**CASES[name])
    updates = case.train()
    width = case.encoder.n_factors
    for k in range(2):
        torch, gru, layer, table = torch_of(case)
        parameters = [*gru.parameters(), *layer.parameters(), *table.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=case.options["learning_rate"])
        halves, order = naive.halves_of(case.words(k)), list(range(len(case.client(k))))
        for _ in range(case.options["n_epochs"]):
            order = naive.shuffle(order, halves)
            for first in range(0, len(order), case.options["batch_size"]):
                losses = []
                for x in order[first : first + case.options["batch_size"]]:
                    sequences, candidates = case.client(k)[x]
                    states = [torch_state(torch, gru, table, s) for s in sequences]
                    items = torch.relu(layer(table(torch.tensor(candidates))))
                    zero = torch.tensor([0])
                    of_items = torch.nn.functional.cross_entropy((items @ states[0])[None], zero)
                    of_segments = torch.nn.functional.cross_entropy((torch.stack(states[2:]) @ states[1])[None], zero)
                    weights = case.options.get("item_weight", 1.0), case.options.get("segment_weight", 1.0)
                    losses.append(weights[0] * of_items + weights[1] * of_segments)
                optimizer.zero_grad()
                torch.stack(losses).mean().backward()
                optimizer.step()
        r, z, n = (gru.weight_hh_l0.detach().numpy()[a * width : (a + 1) * width].T for a in range(3))
        own = gru.bias_hh_l0.detach().numpy()
        end = [
            gru.weight_ih_l0.detach().numpy().T,
            np.hstack([n, r, z]),
            gru.bias_ih_l0.detach().numpy(),
            np.r_[own[2 * width :], own[: 2 * width]],
            layer.weight.detach().numpy().T,
            layer.bias.detach().numpy(),
            table.weight.detach().numpy(),
        ]
        end = np.concatenate([part.ravel() for part in end])
        np.testing.assert_allclose(case.spread(updates, k), end - case.parameters, rtol=0, atol=1e-10)


def test_a_step_goes_down_the_gradient_of_the_loss():
    case = Case(n_examples=3, batch_size=100)
    got = case.spread(case.train(n_epochs=1, learning_rate=1.0, item_weight=0.7, segment_weight=1.3), 0)
    rng = np.random.default_rng(0)
    places = np.r_[rng.permutation(np.flatnonzero(got))[:150], rng.permutation(len(got))[:50]]
    numeric = []
    for place in places:
        losses = []
        for h in (1e-6, -1e-6):
            moved = case.parameters.copy()
            moved[place] += h
            losses.append(naive.gradient(*naive.unpack(moved, 16), case.client(0), 0.7, 1.3)[0])
        numeric.append((losses[1] - losses[0]) / 2e-6)
    np.testing.assert_allclose(got[places], numeric, rtol=1e-5, atol=1e-8)
    assert np.abs(numeric).max() > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("longest", [1, 9])
def test_encodings_equal_the_twin(longest, dtype):
    case = Case(dtype=dtype, n_examples=40, longest=longest)
    got = case.encoder.encode_sequences(case.parameters, case.examples.items, case.examples.starts)
    dense, embeddings = naive.unpack(case.parameters, 16)
    pairs = itertools.pairwise(case.examples.starts)
    expected = [naive.encode(dense, embeddings, case.examples.items[a:b])[0] for a, b in pairs]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE[dtype])
    assert np.std(got) > 0.1
    items = case.encoder.encode_items(case.parameters)
    np.testing.assert_allclose(items, np.maximum(embeddings @ dense["v"] + dense["d"], 0), atol=TOLERANCE[dtype])
    assert items.dtype == dtype


@pytest.mark.nightly  # each compiles anew; on the best, and on none, all tests of this file run
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_every_width_of_vectors_equals_the_twin(instruction_set):
    with hardware.use_instruction_set(instruction_set):
        case = Case(n_factors=32)
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)


# ---- invariants -------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@any_bound
def test_clipped_norms_never_exceed_the_bound(seed, bound, order, dtype):
    case = Case(seed=seed, dtype=dtype, n_clients=2)
    assert_within_bound(case, bound, order)


def test_an_update_that_is_not_finite_is_rejected_and_named():
    case = Case(dtype=np.float32, n_clients=1)
    for bound in (None, 0.5):
        updates = case.train(learning_rate=1e38, n_epochs=5, clip_norm=bound)
        assert updates.rejected.all()
        assert not updates.values.any()


def test_extreme_weights_saturate_the_gates_as_in_the_twin():
    case = Case(dtype=np.float64)
    case.parameters[: case.encoder.n_dense] *= 300
    got = case.encoder.encode_sequences(case.parameters, case.examples.items, case.examples.starts)
    dense, embeddings = naive.unpack(case.parameters, 16)
    pairs = itertools.pairwise(case.examples.starts)
    with np.errstate(over="ignore"):
        expected = [naive.encode(dense, embeddings, case.examples.items[a:b])[0] for a, b in pairs]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)
    assert (np.abs(got) > 0.999).any()


def test_updates_do_not_depend_on_the_other_clients_and_nothing_else_changes():
    case = Case(n_examples=6)
    before, e = case.parameters.copy(), case.examples
    updates = case.train()
    assert (case.parameters == before).all()
    a, b = e.indptr[0:2]
    first, last = e.starts[5 * a], e.starts[5 * b]
    alone = ContrastiveExamples(
        e.global_user_ids[:1], np.array([0, b - a]), e.items[first:last], e.starts[5 * a : 5 * b + 1] - first,
        e.candidates[a:b],
    )  # fmt: skip
    assert case.spread(case.train(examples=alone), 0).tobytes() == case.spread(updates, 0).tobytes()
    used = {i for sequences, candidates in case.client(0) for part in (*sequences, candidates) for i in part}
    assert updates.rows[: updates.row_starts[1]].tolist() == sorted(used)
    nobody = ContrastiveExamples(
        e.global_user_ids[:2], np.zeros(3, dtype=int), e.items[:0], e.starts[:1], e.candidates[:0]
    )
    assert case.train(examples=nobody).total().tolist() == [0] * case.encoder.n_parameters


def test_encodings_do_not_depend_on_the_other_sequences():
    case = Case(n_examples=60, dtype=np.float32)
    starts, items = case.examples.starts, case.examples.items
    together = case.encoder.encode_sequences(case.parameters, items, starts)
    for s in (0, 17, len(starts) - 2):
        own = items[starts[s] : starts[s + 1]]
        alone = case.encoder.encode_sequences(case.parameters, own, [0, len(own)])
        assert alone[0].tobytes() == together[s].tobytes()
    assert case.encoder.encode_sequences(case.parameters, [], [0]).shape == (0, 16)


def test_rounds_and_purposes_name_the_order():
    case = Case(n_examples=9)
    first = case.train()
    assert (case.train(round=1).values != first.values).any()
    assert (case.train(purpose="other").values != first.values).any()
    assert (case.train().values == first.values).all()


def test_parameters_start_as_described():
    encoder = GRUEncoder(400, n_factors=64)
    for dtype in (np.float32, np.float64):
        start = encoder.initial_parameters(KEY, dtype=dtype)
        assert start.dtype == dtype
        dense, embeddings = naive.unpack(start, 64)
        for name, limit in {"w": 1 / 8, "u": 1 / 8, "v": np.sqrt(6 / 64)}.items():
            assert 0.95 * limit < np.abs(dense[name]).max() <= limit
        assert not any(dense[name].any() for name in "bcd")
        assert embeddings.std() == pytest.approx(0.05, rel=0.03)
        assert (encoder.embeddings(start) == embeddings.astype(dtype)).all()
    assert (encoder.initial_parameters(Key.from_seed(2)) != start).any()


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": np.zeros(3)}, r"parameters must have shape \(\d+,\), got \(3,\)"),
        ({"parameters": "nan"}, r"parameters must be finite, got nan at \(7,\)"),
        ({"examples": 3}, "examples must be ContrastiveExamples, got int"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"n_epochs": -1}, "n_epochs must be at least 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"item_weight": -1.0}, "item_weight must be at least 0"),
        ({"segment_weight": np.nan}, "segment_weight must be finite"),
        ({"clip_norm": 0.0}, "clip_norm must be at least"),
        ({"clip_order": 3}, "clip_order must be at most 2"),
        ({"n_threads": -1}, "n_threads must be at least 0"),
        ({"round": -1}, "round must be at least 0"),
        ({"items": 12}, "examples.items must be from 0 to 11, got 0 to 12"),
        ({"candidates": 12}, "examples.candidates must be from 0 to 11, got 0 to 12"),
        ({"candidates": np.zeros((5, 1), dtype=int)}, r"at least 2 columns, got shape \(5, 1\)"),
        ({"indptr": np.zeros(5, dtype=int)}, "examples.indptr must end at the number of examples, .* got 0"),
        ({"starts": 0}, "examples.starts must ascend strictly, got an empty sequence at 0; leave it out"),
        ({"starts": np.array([0.0, 1.0])}, "examples.starts must be integers from 0 to"),
        ({"starts": "short"}, "examples.starts must describe at least 4 sequences for each of"),
    ],
)
def test_bad_arguments_are_named(change, message):
    case = Case()
    if isinstance(change.get("parameters"), str):
        case.parameters[7] = np.nan
        change = {}
    if isinstance(change.get("starts"), str):
        change = {"starts": np.r_[0, case.examples.starts[2:]]}
    fields = {name: change[name] for name in ("items", "candidates", "indptr", "starts") if name in change}
    for name, value in fields.items():
        if np.ndim(value) == 0:
            column = getattr(case.examples, name).copy()
            column.flat[0], column.flat[1] = 0, value
            fields[name] = column
    if fields:
        change = {"examples": replace(case.examples, **fields)}
    with pytest.raises((TypeError, ValueError), match=message):
        case.train(**change)


def test_bad_encoders_and_sequences_are_named():
    for arguments, message in (
        ({"n_items": 0}, "n_items must be at least 1"),
        ({"n_items": 3, "n_factors": 20}, "n_factors must be a multiple of 16"),
    ):
        with pytest.raises(ValueError, match=message):
            GRUEncoder(**arguments)
    encoder = GRUEncoder(3, n_factors=16)
    with pytest.raises(TypeError, match="dtype must be float32 or float64, got int32"):
        encoder.initial_parameters(KEY, dtype=np.int32)
    parameters = encoder.initial_parameters(KEY)
    for items, starts, message in (
        ([3], [0, 1], "items must be from 0 to 2, got 3 to 3"),
        ([1, 2], [0, 0, 2], "starts must ascend strictly, got an empty sequence at 0"),
        ([1, 2], [0, 1], "starts must be integers from 0 to 2, the number of items"),
    ):
        with pytest.raises(ValueError, match=message):
            encoder.encode_sequences(parameters, items, starts)


# ---- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.nightly)])  # compiles anew
def test_bits_do_not_depend_on_threads(dtype):
    case = Case(n_clients=20, n_examples=12, longest=20, dtype=dtype)
    runs = []
    for n_threads in (1, 2, 4, 0):
        updates = case.train(n_threads=n_threads, clip_norm=0.4)
        sequences = case.examples.items, case.examples.starts
        states = case.encoder.encode_sequences(case.parameters, *sequences, n_threads=n_threads)
        runs.append((updates.values.tobytes(), updates.total().tobytes(), states.tobytes()))
    assert all(run == runs[0] for run in runs)


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_planted_orders_are_learnt():
    # Items stand in a circle and sequences walk along it: what comes next follows from the item before alone.
    n_items, length, n = 30, 8, 200
    rng = np.random.default_rng(0)
    encoder = GRUEncoder(n_items, n_factors=32)

    def examples_of(sequences):
        """Item examples: the masked sequence is one item short; segments say nothing (weight 0)."""
        others = rng.integers(0, n_items, (len(sequences), 8))
        lengths = np.tile([length - 1, 1, 1, 1], len(sequences))
        items = np.column_stack([sequences[:, :-1], sequences[:, :3]]).ravel()
        return ContrastiveExamples(
            np.arange(10, dtype=np.uint64), len(sequences) // 10 * np.arange(11), items, np.r_[0, np.cumsum(lengths)],
            np.column_stack([sequences[:, -1], others]),
        )  # fmt: skip

    def hits(sequences):
        """How often the item that comes next in a walk is scored highest."""
        parameters = encoder.initial_parameters(KEY)
        for round in range(30):
            updates = encoder.train_clients(
                parameters, examples_of(sequences), learning_rate=0.5, n_epochs=5, batch_size=4, segment_weight=0.0,
                key=KEY, round=round,
            )  # fmt: skip
            parameters += (updates.total() / 10).astype(np.float32)
        walks = (np.arange(n_items)[:, None] + np.arange(length)) % n_items
        starts = (length - 1) * np.arange(n_items + 1)
        states = encoder.encode_sequences(parameters, walks[:, :-1].ravel(), starts)
        scores = states @ encoder.encode_items(parameters).T
        return np.mean(scores.argmax(axis=1) == walks[:, -1])

    walks = (rng.integers(0, n_items, n)[:, None] + np.arange(length)) % n_items
    assert hits(walks) > 0.8
    # The instrument sees sequences without order.
    assert hits(rng.integers(0, n_items, walks.shape)) < 0.3
