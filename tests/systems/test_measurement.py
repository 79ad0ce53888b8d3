"""The measurement of DPGram: its metric, the bound of one user's contribution, and its decision."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.data import of_dense, of_sets

from fastfedrec import DPGram, Key, datasets
from fastfedrec.systems import measurement
from fastfedrec.systems._noisy_sum import NoisySum, layered_noise
from fastfedrec.systems.measurement import (
    UNIT,
    HitSum,
    MeasurementState,
    NoisyMean,
    candidates_with,
    expected_ndcgs,
)
from fastfedrec.testing import ALPHA

KEY = Key.from_seed(4)
N_ITEMS = 30
ROWS = st.lists(st.sets(st.integers(0, N_ITEMS - 1), max_size=12), min_size=1, max_size=6)


def system_with(noise=2.0**20, stride=1, ridge="auto", number=0):
    return HitSum(layered_noise(noise, ""), KEY, 0.0, number, stride, candidates_with(ridge))


def state_of(seed=1, rank=5, scale=1.0):
    """Return random models of the right shapes."""
    rng = np.random.default_rng(seed)
    popularity = rng.random(N_ITEMS)
    return MeasurementState(
        (scale * rng.normal(size=(N_ITEMS, rank))).astype(np.float32), popularity, rng.random(N_ITEMS),
        0.1 + rng.random(N_ITEMS), np.array([0.5]),
    )  # fmt: skip


def sums_of(rows, state=None, n_threads=1, **options):
    rows = of_sets(rows, N_ITEMS)
    return system_with(**options)._sums(state or state_of(), rows, KEY, n_threads)["hits"]


# ---- oracle ----------------------------------------------------------------------------------------------------------


def metric_of(scores, row, held_out):
    """Return the mean of 1 / log2(2 + k) if k < 10 of 99 unseen items score higher; ties count as half."""
    unseen = np.setdiff1d(np.arange(len(scores)), list(row))
    above = np.mean((scores[unseen] > scores[held_out]) + 0.5 * (scores[unseen] == scores[held_out]))
    return sum(math.comb(99, k) * above**k * (1 - above) ** (99 - k) / math.log2(2 + k) for k in range(10))


@given(seed=st.integers(0, 999), n_levels=st.sampled_from([3, 1000]))
def test_the_metric_is_the_mean_of_ndcg_over_draws(seed, n_levels):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, n_levels, size=N_ITEMS).astype(np.float32)
    row = np.sort(rng.choice(N_ITEMS, size=rng.integers(2, 12), replace=False))
    held_out = row[int(rng.integers(len(row)))]
    seen = of_sets([set(row.tolist()) - {int(held_out)}], N_ITEMS)
    ndcg = expected_ndcgs(np.ones((1, 1), np.float32), scores[:, None], np.array([held_out], np.int32), seen, 1)
    assert ndcg[0] == pytest.approx(metric_of(scores, row, held_out), abs=1e-12)


def test_an_answer_is_the_differences_of_the_metric():
    row, state = {1, 4, 7, 9}, state_of()
    contribution, items = sums_of([row], state) / UNIT, sorted(row)
    held_out = items[int(measurement._hashes(of_sets([row], N_ITEMS))[0]) % 4]
    training_items = [item for item in items if item != held_out]
    pairs = measurement.PairMatrix(np.empty((0, 0), np.float32), 0.5, state.diagonal, state.popularity)
    hits = [metric_of(values, row, held_out) for values in (state.popularity, state.noisier)]
    for candidate in candidates_with("auto"):
        scoring = pairs.score(state.factors, candidate, 0.5)
        # The device scores with the factors of its training items.
        hits.append(metric_of(scoring.left[training_items].sum(axis=0) @ scoring.right.T, row, held_out))
    differences = np.array([hits[1] - hits[0], hits[2] - hits[0], *(hit - hits[2] for hit in hits[3:])])
    np.testing.assert_allclose(contribution, differences / max(1, np.linalg.norm(differences)), atol=1e-8)


# ---- invariants ------------------------------------------------------------------------------------------------------


@given(rows=ROWS, seed=st.integers(0, 99), scale=st.sampled_from([1e-30, 1.0, 1e30]))
def test_no_contribution_exceeds_the_unit_for_any_state(rows, seed, scale):
    for row in rows:
        square = sum(int(entry) ** 2 for entry in sums_of([row], state_of(seed, scale=scale)))
        assert square <= UNIT**2
        if len(row) < 2:
            assert square == 0


@given(rows=ROWS, seed=st.integers(0, 99), stride=st.sampled_from([1, 2]))
def test_an_answer_depends_on_no_other_user(rows, seed, stride):
    """The sums of all users equal the total of separate users in every bit, for any number of threads."""
    state = state_of(seed)
    all_sums = sums_of(rows, state, n_threads=1, stride=stride)
    np.testing.assert_array_equal(all_sums, sum(sums_of([row], state, stride=stride) for row in rows))
    np.testing.assert_array_equal(all_sums, sums_of(rows, state, n_threads=3, stride=stride))


def test_an_answer_depends_on_no_other_user_where_kernels_work_in_blocks():
    """There are more users, items and factors than one step of vector code processes."""
    data, rng = datasets.generate_implicit(600, 150, key=KEY, mean_interactions=30), np.random.default_rng(1)
    factors = rng.normal(size=(150, 96)).astype(np.float32)
    state = MeasurementState(factors, *rng.random((2, 150)), 1 + rng.random(150), np.ones(1))
    single_sums = [
        system_with()._sums(state, data._take_users(np.array([user])), KEY, 1)["hits"] for user in range(600)
    ]
    np.testing.assert_array_equal(system_with()._sums(state, data, KEY, 2)["hits"], sum(single_sums))


def test_one_of_stride_users_takes_part():
    rng = np.random.default_rng(3)
    rows = [set(rng.choice(N_ITEMS, 5, replace=False).tolist()) for _ in range(2_000)]
    taking_part = measurement._hashes(of_sets(rows, N_ITEMS)) // 2**16 % 4 == 0
    assert abs(taking_part.mean() - 0.25) < 6 * math.sqrt(0.25 * 0.75 / 2_000)
    chosen = [row for row, takes_part in zip(rows, taking_part, strict=True) if takes_part]
    np.testing.assert_array_equal(sums_of(rows, stride=4), sums_of(chosen))
    assert (sums_of(rows) != sums_of(chosen)).any()


def test_a_state_of_no_model_is_refused():
    state, system = state_of(), system_with()
    assert system._objection(state) is None
    for name in ("diagonal", "noise"):
        spoiled = state_of()
        getattr(spoiled, name)[0] = 0.0
        assert system._objection(spoiled) == "diagonal and noise must be above 0"


def test_a_given_ridge_is_the_ridge_of_all_candidates():
    assert {candidate.ridge for candidate in candidates_with(3.0)} == {3.0}
    model = DPGram(4.0, ridge=3.0).fit(datasets.generate_implicit(3000, 60, key=Key.from_seed(1)), key=KEY)
    assert {candidate.ridge for candidate in model.decision_.scores if candidate.personal_weight} == {3.0}


def test_no_two_measurements_draw_from_one_stream():
    noise = layered_noise(2.0**30, "")
    state = state_of()
    systems = [HitSum(noise, KEY, 0.0, number, 1, candidates_with("auto")) for number in (0, 1)]
    a, b = (system.apply(state, system.zero_update(state, 0)).noisy for system in systems)
    assert (a != b).all()


# ---- the decision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("doubled", "gain", "spared", "is_personal"),
    [(0.0, 0.5, 0.9, True), (0.0, 0.01, 0.9, False), (-0.6, 0.5, 0.9, False), (-0.6, 0.5, 0.0, True),
     (0.0, -0.1, 0.0, False), (0.0, 0.01, 0.0, True)],
)  # fmt: skip
def test_a_candidate_has_to_beat_popularity_with_the_rest_of_the_budget(doubled, gain, spared, is_personal):
    system, n_users = system_with(noise=2.0**28), 100  # the error is .01
    noisy = np.rint(np.array([doubled, gain, *[0.0] * (len(system.candidates) - 1)]) * n_users * UNIT).astype(np.int64)
    decision = system.decide(noisy, n_users, spared)
    assert decision.is_personal is is_personal
    assert decision.gain == pytest.approx(gain + spared * doubled, abs=1e-6)
    assert decision.error == pytest.approx(0.01 * math.hypot(1.0, spared), rel=1e-3)


def test_a_mean_needs_more_where_its_noise_is_large():
    values = np.full(100, 0.1)
    assert not NoisyMean(values, 0.01, 1.0).is_noisy(1.0)
    assert NoisyMean(values, 0.07, 1.0).is_noisy(1.0)
    assert not NoisyMean(values, 0.07, 1.0).is_noisy(4.0)  # with four times the budget
    assert NoisyMean(np.zeros(100), 0.01, 1.0).is_noisy(4.0)
    assert NoisyMean(values, 0.01, 1.0).spared(3.0) == 0.75


def test_twice_the_noise_is_added_to_a_mean_without_any():
    noisier = NoisyMean(np.zeros(4_000), 0.5, 1.0).noisier()
    assert abs(noisier.std() / 0.5 - 1) < 6 / math.sqrt(8_000)


# ---- statistics ------------------------------------------------------------------------------------------------------


def planted(n_users, n_groups, seed):
    """Return users with items of one group, or with any items if there is one group."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, n_users)
    dense = np.zeros((n_users, N_ITEMS), dtype=np.float32)
    for row, group in zip(dense, groups, strict=True):
        row[rng.choice(np.arange(N_ITEMS)[group::n_groups], 4, replace=False)] = 1
    return of_dense(dense)


@pytest.mark.parametrize("n_groups", [5, 1])
def test_devices_distinguish_groups_from_random_rows(n_groups):
    model = DPGram(0.5).fit(planted(4_000, n_groups, seed=1), key=KEY)
    assert model.is_personal_ is (n_groups == 5)
    assert model.decision_.is_personal is model.is_personal_


@pytest.mark.slow
def test_the_error_of_a_gain_is_that_of_its_noise():
    """The error is compared over many draws, with half the noise as a control."""
    system, n_users, draws = system_with(noise=2.0**28), 100, []
    for seed in range(2_000):
        noise = np.random.default_rng(seed).normal(size=1 + len(system.candidates)) * 2.0**28
        decision = system.decide(np.rint(noise).astype(np.int64), n_users, 0.9)
        draws.append(
            decision.scores[system.candidates[0]]
            - decision.scores[min(decision.scores, key=lambda c: c.personal_weight)]
        )
    spread, expected = np.std(draws), 0.01 * math.hypot(1.0, 0.9)
    margin = math.sqrt(-2 * math.log(ALPHA / 2)) / math.sqrt(2 * len(draws))
    assert abs(spread / expected - 1) < margin
    assert abs(spread / (expected / 2) - 1) > margin


def test_it_is_a_sum_with_the_cost_of_two_opposite_answers():
    assert issubclass(HitSum, NoisySum)
    event = system_with().round_event(10)
    assert event.neighboring == "zero_out"
    assert event.replace_sensitivity is None  # None counts as 2
