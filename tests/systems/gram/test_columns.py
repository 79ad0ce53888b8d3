"""DPGram's rounds of columns: the measured directions, and users' contributions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import columns as naive
from support.data import of_dense

from fastfedrec import Key
from fastfedrec.systems.gram import columns
from fastfedrec.systems.gram.columns import N_COLUMNS, next_encoder
from fastfedrec.systems.gram.dp_gram_rounds import CrossSum
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.projection_rounds import SCALE, UNIT, ProjectionSum, SubspaceState


def factors_of(n_items, strengths, seed=3):
    """Return orthogonal columns with these squared norms."""
    rng = np.random.default_rng(seed)
    return np.linalg.qr(rng.normal(size=(n_items, len(strengths))))[0] * np.sqrt(strengths)


STRENGTHS = np.array([400.0, 90.0, 70.0, 30.0, 12.0, 5.0])


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [1, 4, 6])
def test_the_encoder_equals_naive_twin(n_columns):
    factors = factors_of(50, STRENGTHS)
    encoder, expected = next_encoder(factors, n_columns, 1.0), naive.encoder_of(factors @ factors.T, n_columns, 2**12)
    # Eigenvectors are unique up to their signs.
    signs = np.sign((encoder * expected).sum(axis=0))
    np.testing.assert_allclose(encoder * signs, expected, atol=0.5 + 1e-6)
    assert np.linalg.norm(encoder[:, -1].astype(float)) == pytest.approx(2**12, rel=1e-3)


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    n_items=st.integers(1, 60),
    rank=st.integers(0, 60),
    power=st.integers(-40, 40),
    decay=st.floats(0, 30),
    n_columns=st.integers(1, N_COLUMNS),
)
def test_an_encoder_is_one_that_devices_answer(n_items, rank, power, decay, n_columns):
    rank = min(rank, n_items)
    factors = factors_of(n_items, 2.0**power * np.exp(-decay * np.arange(rank) / max(rank, 1)))
    encoder = next_encoder(factors, n_columns, 0.0)
    assert (encoder.dtype, encoder.shape) == (np.int16, (n_items, n_columns))
    n_used = min(rank, n_columns, max(10, rank))
    assert encoder[:, :n_used].any() == (rank > 0)
    assert not encoder[:, n_used:].any()
    assert CrossSum(None, None, 0.0, 0)._objection(SubspaceState(np.zeros(n_items, np.int32), encoder)) is None


@settings(max_examples=20)
@given(
    n_items=st.integers(20, 400),
    n_own=st.integers(1, 20),
    decay=st.floats(0, 8),
    seed=st.integers(0, 99),
    noise=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_users_contributions_come_near_the_unit_and_never_beyond(n_items, n_own, decay, seed, noise):
    rng = np.random.default_rng(seed)
    encoder = next_encoder(factors_of(n_items, 90 * np.exp(-decay * np.arange(10) / 10), seed), N_COLUMNS, noise)
    mean = np.minimum(rng.exponential(SCALE / n_items, n_items), SCALE / np.sqrt(n_items)).astype(np.int32)
    row = np.zeros((1, n_items), np.float32)
    row[0, rng.choice(n_items, n_own, replace=False)] = 1
    data, state = of_dense(row), SubspaceState(mean, encoder)
    (sums,) = CrossSum(None, None, 0.0, 0).local_round(state, data, Key.from_seed(1), 0, n_threads=1).arrays.values()
    square = sum(int(x) ** 2 for x in sums.ravel())
    assert square <= UNIT**2
    assert square >= 0.9 * UNIT**2


@pytest.mark.parametrize("used", [[], [0], [0, 1, 2], [5, 9], list(range(20))])
def test_columns_of_zeros_are_left_out_of_the_work_and_not_of_the_sums(used):
    rng, state = np.random.default_rng(len(used)), np.zeros((30, 20), dtype=np.int16)
    state[:, used] = rng.integers(-900, 900, size=(30, len(used)))
    data = of_dense((rng.random((40, 30)) < 0.3).astype(np.float32))
    broadcast = SubspaceState(np.full(30, 50, dtype=np.int32), state)
    kinds = (CrossSum, ProjectionSum)
    sums, expected = (kind(None, None, 0.0, 0)._sums(broadcast, data, None, 1)["item_projections"] for kind in kinds)
    np.testing.assert_array_equal(sums, expected)
    assert sums.any(axis=0).tolist() == [column in used for column in range(20)]


@settings(max_examples=60)
@given(
    n_strong=st.integers(0, 24),
    n_weak=st.integers(0, 30),
    noise=st.floats(0.1, 50),
    n_columns=st.integers(1, N_COLUMNS),
)
def test_there_are_twice_as_many_columns_as_strong_eigenvalues(n_strong, n_weak, noise, n_columns):
    """There are at least ten columns, but at most as many as the encoder and the factors have."""
    edge = columns._MIN_EIGENVALUE * 2 * noise * np.sqrt(60)
    strengths = np.concatenate([np.linspace(9, 1.1, n_strong), np.linspace(0.9, 0.3, n_weak)]) * edge
    encoder = next_encoder(factors_of(60, strengths), n_columns, noise)
    n_planned = max(columns._COLUMNS_PER_DIRECTION * n_strong, columns._MIN_COLUMNS)
    n_used = min(n_planned, n_columns, n_strong + n_weak)
    np.testing.assert_array_equal(encoder.any(axis=0), np.arange(n_columns) < n_used)


def test_an_estimate_without_factors_has_an_empty_encoder():
    assert not next_encoder(np.zeros((7, 0)), 5, 1.0).any()


def test_the_scale_of_columns_is_that_of_users_answers():
    """The scale of rows of four groups is within a tenth; with half the number of users it would differ."""
    rng = np.random.default_rng(2)
    is_own = rng.integers(0, 4, 4_000)[:, None] == np.arange(40) % 4
    dense = (rng.random((4_000, 40)) < np.where(is_own, 0.6, 0.1)).astype(np.float32)
    data = of_dense(dense)
    rows = dense / np.sqrt(np.maximum(dense.sum(axis=1, keepdims=True), 1))
    form = PairForm.of(rows.mean(axis=0), 4_000)
    centred = rows - form.mean
    squares = np.square(centred).sum(axis=1)
    matrix = form.weight * (1 - form.mean @ form.mean) / 4_000 * (centred / squares[:, None]).T @ centred
    values, vectors = np.linalg.eigh(matrix)
    # The encoder is made of the exact eigenvectors, the strongest first.
    encoder = next_encoder(vectors[:, ::-1] * np.sqrt(values[::-1]), 8, 0.0)
    state = SubspaceState(np.rint(form.mean * SCALE).astype(np.int32), encoder)
    (sums,) = CrossSum(None, None, 0.0, 0).local_round(state, data, Key.from_seed(1), 0, n_threads=1).arrays.values()
    expected = naive.hollow(matrix) @ encoder
    exact = float((expected * sums).sum() / np.square(expected).sum()) / UNIT
    assert form.strength(sums / UNIT, encoder, 4_000) == pytest.approx(exact, rel=0.1)
    assert form.strength(sums / UNIT, encoder, 2_000) != pytest.approx(exact, rel=0.1)
