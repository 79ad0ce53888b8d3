"""Adaptive weights: integer arithmetic, a norm bound for all rows and counts, and the gain on skewed data."""

import functools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive.systems.dp_als import model as naive
from support.data import of_sets

from fastfedrec import DPALS, Interactions, Key, datasets
from fastfedrec.evaluation import UserHoldout, evaluate
from fastfedrec.systems.dp_als import rounds
from fastfedrec.systems.dp_als.rounds import LeastSquaresRound, StartRound
from fastfedrec.systems.dp_als.weights import FrequencyWeights
from fastfedrec.systems.factor_rounds import SCALE, UNIT, FactorState

KEY = Key.from_seed(1)
N_ITEMS, N_FACTORS, MAX_ITEMS = 9, 3, 4
OPTIONS = {"regularization": 1e-3, "confidence_weight": 3.0, "noise_regularization": 2.0}


def systems(weights):
    shape = (MAX_ITEMS, N_ITEMS, N_FACTORS, KEY)
    return (
        StartRound((1.0,), *shape, weights=weights),
        LeastSquaresRound((0.1, 0.5, 0.8), *shape, weights=weights, **OPTIONS),
    )


def a_state(counts):
    return FactorState(np.asarray(counts, dtype=float), np.random.default_rng(3).normal(size=(N_ITEMS, N_FACTORS)))


rows_of_items = st.lists(st.sets(st.integers(0, N_ITEMS - 1)), min_size=1, max_size=6)
some_counts = st.lists(st.floats(0.0, 1e12), min_size=N_ITEMS, max_size=N_ITEMS)
some_weights = st.builds(FrequencyWeights, st.floats(0.0, 4.0), st.floats(1e-6, 1e12))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(rows_of_items, some_counts, some_weights)
def test_weights_are_those_of_whole_numbers_in_python(rows, counts, weights):
    levels = weights.item_levels(np.array(counts)).tolist()
    data = of_sets(rows, N_ITEMS)
    weights_of_users = weights.of_users(data, np.array(counts), SCALE).tolist()
    expected = [naive.user_weights([levels[item] for item in sorted(row)], SCALE) for row in rows if row]
    assert weights_of_users == [weight for row_weights in expected for weight in row_weights]


@given(rows_of_items, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_weighted_sums_are_those_of_loops(rows, n_factors, seed):
    rng = np.random.default_rng(seed)
    data, values = of_sets(rows, N_ITEMS), rng.integers(-SCALE, SCALE, size=(len(rows), n_factors))
    weights = rng.integers(0, SCALE + 1, size=data.n_interactions).astype(np.int32)
    rows_of_weights = [
        weights[start:end].tolist() for start, end in zip(data.indptr[:-1], data.indptr[1:], strict=True)
    ]
    sums_of_items = rounds.sum_by_item(data, values, n_factors * (n_factors + 1) // 2, 2, weights)
    sums, products = naive.weighted_sum_by_item(rows, rows_of_weights, values.tolist(), N_ITEMS, SCALE)
    assert sums_of_items[0].tolist() == sums
    assert sums_of_items[1].tolist() == products


def test_levels_fall_with_the_counts_and_the_rarest_has_the_highest():
    weights = FrequencyWeights(0.5, 4.0)
    assert weights.item_levels(np.array([0.0, 4.0, 16.0, 400.0, 1e18])).tolist() == [32768, 32768, 16384, 3276, 1]
    assert set(FrequencyWeights(0.0, 1.0).item_levels(np.array([0.0, 5.0, 1e9]))) == {32768}


def test_a_user_with_max_items_equally_frequent_items_weighs_as_without_weights():
    state, row = a_state(np.full(N_ITEMS, 5.0)), [{0, 2, 3, 7}]
    (start, squares), (plain_start, plain) = systems(FrequencyWeights(1.0, 1.0)), systems(None)
    for system, other in ((start, plain_start), (squares, plain)):
        uniform, expected = (s.local_round(state, of_sets(row, N_ITEMS), KEY, 0).arrays for s in (system, other))
        for name in uniform:
            factor = 1 if name == "all_products" else math.sqrt(MAX_ITEMS)
            np.testing.assert_allclose(uniform[name] * factor, expected[name], rtol=1e-3, atol=1e-4 * UNIT)
    assert plain._ridge == pytest.approx(squares._ridge, rel=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(rows_of_items, some_counts, some_weights)
@example([set(range(N_ITEMS))], [0.0] * N_ITEMS, FrequencyWeights(0.0, 1.0))
@example([set(range(N_ITEMS)), {0}, {0, 1}], [1e12, 1e12, *[0.0] * (N_ITEMS - 2)], FrequencyWeights(4.0, 1e-6))
# The vector of levels is short.
@example([{0, 1}], [669.0, 16385.0, *[0.0] * (N_ITEMS - 2)], FrequencyWeights(1.0, 1.0))
def test_no_users_weights_have_a_norm_above_the_scale(rows, counts, weights):
    data = of_sets(rows, N_ITEMS)
    row_weights = weights.of_users(data, np.array(counts), SCALE).tolist()
    for start, end in zip(data.indptr[:-1], data.indptr[1:], strict=True):
        assert sum(weight * weight for weight in row_weights[start:end]) <= SCALE**2
        assert (start == end) or sum(weight * weight for weight in row_weights[start:end]) > (0.999 * SCALE) ** 2


@given(rows_of_items, some_counts, some_weights)
@example([{0, 1}, {0}], [0.0] * N_ITEMS, FrequencyWeights(1.0, 1.0))
def test_weighted_sums_change_by_a_users_contribution_within_the_sensitivity(rows, counts, weights):
    for system in systems_of(weights):
        parts = (rows, [set(), *rows[1:]], rows[:1])
        with_user, without, single = (
            system.local_round(a_state(counts), of_sets(part, N_ITEMS), KEY, 0).arrays for part in parts
        )
        for name, sums in with_user.items():
            contribution = sums - without[name]
            np.testing.assert_array_equal(contribution, single[name])
            assert sum(int(x) ** 2 for x in contribution.ravel()) <= UNIT**2


@functools.cache
def _one_row():
    return systems(FrequencyWeights(1.0, 1.0))  # the tables of noise are built once


def systems_of(weights):
    """Return the two rounds with these weights; their noise does not depend on the weights."""
    for system in _one_row():
        system.weights = weights
        assert all(noise.sensitivity >= UNIT for noise in system.noises.values())
        yield system


def test_the_sensitivity_is_that_of_one_row_and_is_reached():
    system = systems(FrequencyWeights(0.25, 1.0))[1]
    state = FactorState(np.arange(N_ITEMS) + 1.0, np.eye(N_ITEMS, N_FACTORS) * 0.3)
    contribution = system.local_round(state, of_sets([{0, 3, 4, 5}], N_ITEMS), KEY, 0).arrays
    for name, noise in system.noises.items():
        assert float(noise.sensitivity) == pytest.approx(UNIT, rel=1e-9)
        assert math.sqrt(sum(int(x) ** 2 for x in contribution[name].ravel())) > 0.98 * UNIT, name


def test_a_long_row_has_the_same_norm():
    data = of_sets([set(range(5000))], 5000)
    norms = FrequencyWeights(0.25, 1.0).of_users(data, np.arange(5000.0), SCALE).astype(object)
    assert 0.98 * SCALE < math.sqrt(sum(norms**2)) <= SCALE


def test_counts_cost_the_frequency_share_of_the_budget():
    data = datasets.generate_implicit(100, 60, key=KEY)
    for share in (0.05, 0.3):
        model = DPALS(4.0, n_factors=2, max_items=5, weights="adaptive", frequency_share=share).fit(data, key=KEY)
        events = list(model.ledger_.events)
        assert events[0].mechanism == "Gaussian noise on item counts"
        spent = [times * event.noise_multiplier**-2 for event, times in model.ledger_.events.items()]
        assert spent[0] / sum(spent) == pytest.approx(share, rel=1e-6)


def test_weights_change_the_model_and_the_default_is_uniform():
    data = datasets.generate_implicit(100, 60, key=KEY)
    given = ({}, {"weights": "uniform"}, *({"weights": "adaptive", "frequency_exponent": e} for e in (0.25, 1.0)))
    models = [DPALS(8.0, n_factors=2, max_items=5, **options).fit(data, key=KEY) for options in given]
    np.testing.assert_array_equal(models[0].item_factors_, models[1].item_factors_)
    for one, other in ((1, 2), (2, 3)):
        assert np.abs(models[one].item_factors_ - models[other].item_factors_).max() > 1e-3


# ---- bad inputs -----------------------------------------------------------------------------------------------------


# ---- statistics -----------------------------------------------------------------------------------------------------


def _flat(n_users=3000, n_items=600, row_length=50):
    """Return rows of equal length over groups of equally popular items."""
    rng = np.random.default_rng(3)
    draws = rng.random((n_users, n_items))
    draws *= np.where(rng.integers(4, size=n_users)[:, None] == np.arange(n_items) % 4, 0.25, 1.0)
    items = np.argsort(draws, axis=1)[:, :row_length]
    return Interactions.from_arrays(np.repeat(np.arange(n_users), row_length), items.ravel())


def _recalls(data, **options):
    train, test, known = next(UserHoldout(0.2, given=0.8).split(data, key=KEY))
    for seed in range(3):
        model = DPALS(1.0, n_factors=8, max_items=50, **options).fit(train, key=Key.from_seed(seed))
        yield evaluate(model, train, test, given=known, metrics=["recall@20"])["recall@20"]


@pytest.mark.slow
@pytest.mark.parametrize("is_skewed", [True, False])
def test_adaptive_weights_raise_recall_at_the_same_epsilon_on_skewed_data(is_skewed):
    """Check the gain in recall; in the control, with equal lengths and popularities, only the noise differs."""
    data = datasets.generate_implicit(3000, 1000, key=KEY, mean_interactions=60.0) if is_skewed else _flat()
    adaptive, uniform = (list(_recalls(data, weights=weights)) for weights in ("adaptive", "uniform"))
    assert (min(adaptive) > max(uniform)) == is_skewed
    if not is_skewed:
        assert np.mean(adaptive) == pytest.approx(np.mean(uniform), rel=0.1)


@pytest.mark.parametrize("is_skewed", [True, False])
def test_rare_items_get_more_of_the_budget_if_there_are_any(is_skewed):
    data = datasets.generate_implicit(1000, 500, key=KEY) if is_skewed else _flat(1000, 500)
    counts = data.interactions_per_item().astype(float)
    rare = counts[data.indices] <= np.quantile(counts, 0.3)
    shares = [FrequencyWeights(exponent, 1.0).of_users(data, counts, SCALE)[rare].sum() for exponent in (0.0, 0.5)]
    assert (shares[1] > 1.3 * shares[0]) == is_skewed
