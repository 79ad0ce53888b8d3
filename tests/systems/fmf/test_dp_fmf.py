"""DPFMF: the exact norm bound of one user's contribution, the budget, and the quality of the model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.fmf import fmf_ldp as naive
from scipy.sparse import csr_array
from support.data import of_dense
from support.movielens_users import hit_ratio, leave_one_out_users, resampled
from support.noise_case import mu_found
from support.strategies import interaction_matrices

from fastfedrec import DPFMF, Interactions, Key, Popularity, datasets, hardware
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems.factor_rounds import UNIT, FactorState
from fastfedrec.systems.fmf.dp_fmf_rounds import GradientRound

KEY = Key.from_seed(1)


def state_of(n_items, n_factors, seed, scale=0.5):
    return FactorState(np.zeros(n_items), scale * np.random.default_rng(seed).normal(size=(n_items, n_factors)))


def sums_of(state, data, n_threads=1, regularization=0.1):
    system = GradientRound(1.0, *state.item_factors.shape, KEY, regularization)
    return system.local_round(state, data, KEY, 0, n_threads=n_threads).arrays["gradients"]


def generated(n_users=3000, n_items=60):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(1))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(interaction_matrices(), st.integers(0, 99), st.integers(1, 5))
@settings(max_examples=40)
def test_sums_are_those_of_normalised_gradients(data, seed, n_factors):
    state = state_of(data.n_items, n_factors, seed)
    expected = np.zeros(state.item_factors.shape)
    for user in range(data.n_users):
        items = data.indices[data.indptr[user] : data.indptr[user + 1]]
        x = naive.solve_user(items, np.ones(len(items)), state.item_factors, 0.1, 0.0)
        expected += naive.normalize(naive.gradient(items, np.ones(len(items)), state.item_factors, x, 0.0))
    # Two vectors are rounded to multiples of 2^-18 after sums in single precision.
    np.testing.assert_allclose(sums_of(state, data) / UNIT, expected, atol=2e-5 * max(1, data.n_users))


@pytest.mark.parametrize("exponent", [0, 100, 138, 139, 142, 150, 155, *range(157, 165), 170, 200, 300])
def test_one_users_sums_have_norm_1_at_most_for_any_regularization(exponent):
    # Squares of the user's factors overflow doubles from about 1e154.
    for seed in range(5):
        state = state_of(3, 2, seed, scale=1.0)
        data = Interactions.from_arrays([1, 1, 1], [1, 2, 3])
        sums = sums_of(state, data, regularization=10.0**exponent)
        square = sum(x * x for x in sums.ravel().tolist())
        assert square <= UNIT**2
        assert (square >= 0.99 * UNIT**2) == (exponent < 140)


def test_the_size_of_the_servers_step_follows_the_noise():
    system = GradientRound(1.0, 300, 4, KEY, 0.1)
    state = state_of(300, 4, 1)
    moved = system.apply(state, system.zero_update(state, 5)).item_factors - state.item_factors
    assert moved.std() == pytest.approx(0.06 / 1.5, rel=0.15)
    signal = np.zeros((300, 4), dtype=np.int64)
    signal[2, 3] = 2**40
    update = system.zero_update(state, 5)
    update.arrays["gradients"][:] = signal
    further = system.apply(state, update).item_factors - state.item_factors
    assert (further - moved)[2, 3] == pytest.approx(-0.04 * 2**40 / UNIT, rel=1e-6)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(interaction_matrices(max_users=1), st.integers(0, 999), st.integers(1, 6), st.sampled_from([1e-12, 1.0, 1e6]))
@settings(max_examples=150)
def test_no_contribution_exceeds_the_bound_in_exact_arithmetic(data, seed, n_factors, scale):
    sums = sums_of(state_of(data.n_items, n_factors, seed, scale), data, regularization=0.1 * scale**2)
    square = sum(int(x) ** 2 for x in sums.reshape(-1))
    assert square <= UNIT**2
    if data.n_interactions:
        # The norm is close to the bound, so the noise is not larger than needed.
        assert square >= 0.99 * UNIT**2
    else:
        assert square == 0


@pytest.mark.parametrize("n_items", [1000, 20_000])
def test_long_vectors_come_close_to_the_bound_and_never_exceed_it(n_items):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        row = csr_array((rng.random((1, n_items)) < 0.1).astype(float))
        square = sum(int(x) ** 2 for x in sums_of(state_of(n_items, 3, seed), Interactions.from_scipy(row)).reshape(-1))
        assert 0.98 * UNIT**2 <= square <= UNIT**2


@given(interaction_matrices(), st.integers(0, 99))
@settings(max_examples=30)
def test_sums_do_not_depend_on_the_shards(data, seed):
    state = state_of(data.n_items, 3, seed)
    sum_of_shards = sum(sums_of(state, shard) for shard in data.shard(data.n_users))
    np.testing.assert_array_equal(sums_of(state, data), sum_of_shards)


@pytest.mark.every_instruction_set
def test_sums_are_the_same_on_every_instruction_set():
    state, data = state_of(60, 5, 1), generated(300)
    expected = sums_of(state, data)
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            np.testing.assert_array_equal(sums_of(state, data), expected)


def test_a_user_without_items_has_no_effect_and_is_served():
    dense = generated(500).to_scipy().toarray()
    dense[7] = 0
    data = of_dense(dense)
    model = DPFMF(4.0, n_factors=3).fit(data, key=Key.from_seed(2))
    expected = model.item_factors_ @ model.item_factors_.mean(axis=0)
    np.testing.assert_allclose(model.recommend(data.user_ids[7:8], n=5)[1][0], np.sort(expected)[::-1][:5])


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_data():
    data = generated(50, 40)
    with pytest.raises(ValueError, match="n_factors must be at most 40"):
        DPFMF(n_factors=41).fit(data, key=KEY)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "stddev", "holds"), [(1.0, 1.0, True), (1.1, 1.0, False), (1.0, 0.9, False)])
def test_audit_stays_within_the_claim_and_detects_a_wrong_norm_or_noise(norm, stddev, holds):
    contribution = sums_of(state_of(5, 2, 1), of_dense(np.array([[1.0, 0, 1, 0, 0]]))).reshape(-1)
    noise = GradientRound(stddev**-1, 5, 2, KEY, 0.1).noises["gradients"].gaussian
    mu = mu_found(contribution, noise, UNIT, norm)
    assert (mu <= 1.0) == holds
    assert mu > 0.95


@pytest.mark.slow
def test_it_beats_popularity_on_generated_data_with_enough_users():
    data = datasets.generate_implicit(20_000, 1_000, key=Key.from_seed(1), mean_interactions=93)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    hit_ratios = [
        evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99), key=Key.from_seed(1))["hr@10"]
        for model in (Popularity().fit(train), DPFMF(1.0).fit(train, key=Key.from_seed(3)))
    ]
    assert hit_ratios[1] > hit_ratios[0] + 0.03


@pytest.mark.nightly
def test_movielens():
    as_they_are = leave_one_out_users()
    train, test = resampled(*as_they_are, 50_000)
    assert hit_ratio(DPFMF(0.5).fit(train, key=Key.from_seed(3)), train, test) >= 0.53
    for epsilon, minimum in ((0.5, 0.38), (1.0, 0.47), (2.0, 0.55)):
        assert hit_ratio(DPFMF(epsilon).fit(as_they_are.train, key=Key.from_seed(3)), *as_they_are) >= minimum
