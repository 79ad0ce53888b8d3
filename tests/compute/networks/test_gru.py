"""The recurrent encoder: the twin's and autograd's trajectories, the same bits on any threads, and norms in bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute.networks import gru as naive
from support.gru_case import KEY, Case
from support.network_case import (
    BAD_STEPS,
    assert_equals_twin,
    assert_is_slope,
    assert_order_is_named,
    assert_within_bound,
    train_with,
)
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


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_trajectories_equal_autograd(name):
    import torch
    from support import torch_networks as theirs

    case = Case(**CASES[name])
    updates = case.train()
    weights = case.options.get("item_weight", 1.0), case.options.get("segment_weight", 1.0)
    for k in range(2):
        dense, embeddings = naive.unpack(case.parameters, case.encoder.n_factors)
        (gru, layer), table = theirs.recurrent(dense), theirs.tensor(embeddings)
        optimizer = torch.optim.SGD([*gru.parameters(), *layer.parameters(), table], lr=case.options["learning_rate"])
        halves, order = naive.halves_of(case.words(k)), list(range(len(case.client(k))))
        for _ in range(case.options["n_epochs"]):
            order = naive.shuffle(order, halves)
            for first in range(0, len(order), case.options["batch_size"]):
                losses = []
                for x in order[first : first + case.options["batch_size"]]:
                    of_items, of_segments = theirs.contrastive_losses(gru, layer, table, *case.client(k)[x])
                    losses.append(weights[0] * of_items + weights[1] * of_segments)
                optimizer.zero_grad()
                torch.stack(losses).mean().backward()
                optimizer.step()
        end = np.concatenate([theirs.dense_of(gru, layer), table.detach().numpy().ravel()])
        np.testing.assert_allclose(case.spread(updates, k), end - case.parameters, rtol=0, atol=1e-10)


def test_a_step_goes_down_the_gradient_of_the_loss():
    case = Case(n_examples=3, batch_size=100)
    got = case.spread(case.train(n_epochs=1, learning_rate=1.0, item_weight=0.7, segment_weight=1.3), 0)
    client = case.client(0)
    assert_is_slope(got, case.parameters, lambda moved: naive.gradient(*naive.unpack(moved, 16), client, 0.7, 1.3)[0])


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
    separate = ContrastiveExamples(
        e.global_user_ids[:1], np.array([0, b - a]), e.items[first:last], e.starts[5 * a : 5 * b + 1] - first,
        e.candidates[a:b],
    )  # fmt: skip
    assert case.spread(case.train(examples=separate), 0).tobytes() == case.spread(updates, 0).tobytes()
    used = {i for sequences, candidates in case.client(0) for part in (*sequences, candidates) for i in part}
    assert updates.rows[: updates.row_starts[1]].tolist() == sorted(used)
    no_clients = ContrastiveExamples(
        e.global_user_ids[:2], np.zeros(3, dtype=int), e.items[:0], e.starts[:1], e.candidates[:0]
    )
    assert case.train(examples=no_clients).total().tolist() == [0] * case.encoder.n_parameters


def test_encodings_do_not_depend_on_the_other_sequences():
    case = Case(n_examples=60, dtype=np.float32)
    starts, items = case.examples.starts, case.examples.items
    combined = case.encoder.encode_sequences(case.parameters, items, starts)
    for s in (0, 17, len(starts) - 2):
        sequence = items[starts[s] : starts[s + 1]]
        separate = case.encoder.encode_sequences(case.parameters, sequence, [0, len(sequence)])
        assert separate[0].tobytes() == combined[s].tobytes()
    assert case.encoder.encode_sequences(case.parameters, [], [0]).shape == (0, 16)


def test_rounds_and_purposes_name_the_order():
    assert_order_is_named(Case(n_examples=9))


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
        *BAD_STEPS,
        ({"examples": 3}, "examples must be ContrastiveExamples, got int"),
        ({"item_weight": -1.0}, "item_weight must be at least 0"),
        ({"segment_weight": np.nan}, "segment_weight must be finite"),
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
    if isinstance(change.get("starts"), str):
        change = {"starts": np.r_[0, case.examples.starts[2:]]}
    with pytest.raises((TypeError, ValueError), match=message):
        train_with(case, change)


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
    # Items form a circle and sequences walk along it, so the next item depends on the last item alone.
    n_items, length, n = 30, 8, 200
    rng = np.random.default_rng(0)
    encoder = GRUEncoder(n_items, n_factors=32)

    def examples_of(sequences):
        """Item examples: the masked sequence is one item short; segments have weight 0."""
        negatives = rng.integers(0, n_items, (len(sequences), 8))
        lengths = np.tile([length - 1, 1, 1, 1], len(sequences))
        items = np.column_stack([sequences[:, :-1], sequences[:, :3]]).ravel()
        return ContrastiveExamples(
            np.arange(10, dtype=np.uint64), len(sequences) // 10 * np.arange(11), items, np.r_[0, np.cumsum(lengths)],
            np.column_stack([sequences[:, -1], negatives]),
        )  # fmt: skip

    def hits(sequences):
        """Return the share of walks in which the next item has the highest score."""
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
