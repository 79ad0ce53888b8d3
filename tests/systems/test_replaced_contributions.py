"""Replacing a user moves sums by at most sqrt(2) times one contribution if inner products are not negative."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.systems.gram import dp_gram as naive
from support.data import of_sets
from support.noise_case import gaussian_delta

from fastfedrec import DPALS, DPFMF, DPGram, DPSubspace, Key, datasets
from fastfedrec.accounting import Gaussian, seen_event
from fastfedrec.audit import audit
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.systems import projection_rounds as subspace
from fastfedrec.systems.dp_als import rounds as als_rounds
from fastfedrec.systems.dp_als.rounds import CountRound, LeastSquaresRound, StartRound
from fastfedrec.systems.factor_rounds import FactorState
from fastfedrec.systems.gradient_rounds.central import CentralPrivacy
from fastfedrec.systems.gram.dp_gram_rounds import SCALE, UNIT, GramState, PairSum, RepeatedShareSum, ShareSum
from fastfedrec.testing import ALPHA

NOISE, KEY = LayeredGaussian(UNIT), Key.from_seed(1)


def sums_of(system, rows, mean, n_threads=1):
    data = of_sets(rows, len(mean))
    (sums,) = system.local_round(GramState(mean), data, KEY, 0, n_threads=n_threads).arrays.values()
    return sums


def square_distance(a, b):
    return sum((int(x) - int(y)) ** 2 for x, y in zip(a.ravel(), b.ravel(), strict=True))


def system_of(kind):
    return (ShareSum if kind == "shares" else PairSum)(NOISE, KEY, 0.0)


def mean_of(kind, mean):
    """Return the mean in a state; zeros select the uncentred form, and precede the first release."""
    return mean if kind == "full" else 0 * mean


@st.composite
def pairs_of_users(draw):
    """Return rows of two users, and a public mean from 0 to SCALE."""
    n_items = draw(st.integers(2, 9))
    rows = [draw(st.sets(st.integers(0, n_items - 1))) for _ in range(2)]
    entry = st.integers(0, SCALE) | st.integers(0, 40) | st.just(SCALE // 3)
    return rows, np.array(draw(st.lists(entry, min_size=n_items, max_size=n_items)), dtype=np.int64)


CLAIMED = ["shares", "uncentred", "full"]
#: Two rows with one pair, which has opposite signs after centring.
OPPOSITE = [{0}, {0, 1}], np.array([SCALE // 3, SCALE // 10], dtype=np.int64)


# ---- oracle ----------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(case=pairs_of_users(), form=st.sampled_from(["uncentred", "full"]))
def test_sums_of_both_forms_equal_the_naive_twin_in_whole_numbers(case, form):
    rows, mean = case[0], mean_of(form, case[1])
    expected = naive.pair_sums(rows, mean.tolist(), SCALE, UNIT)
    for n_threads in (1, 2):
        assert sums_of(system_of(form), rows, mean, n_threads).tolist() == expected


# ---- invariants ------------------------------------------------------------------------------------------------------


@settings(max_examples=400)
@given(case=pairs_of_users(), kind=st.sampled_from(CLAIMED))
@example(case=OPPOSITE, kind="full")
def test_no_two_users_are_further_apart_than_sqrt_2_in_exact_arithmetic(case, kind):
    rows, mean = case[0], mean_of(kind, case[1])
    system = system_of(kind)
    a, b = (sums_of(system, [row], mean) for row in rows)
    assert square_distance(a, 0 * a) <= UNIT**2
    assert square_distance(a, b) <= 2 * UNIT**2
    assert 2 <= Fraction(system.round_event(1).replace_sensitivity) ** 2 <= 2 * (1 + Fraction(1, 2**50))


@settings(max_examples=25)
@given(n_items=st.integers(50, 400), n_own=st.integers(1, 50), seed=st.integers(0, 999), kind=st.sampled_from(CLAIMED))
def test_long_rows_are_at_most_sqrt_2_apart_and_disjoint_ones_nearly(n_items, n_own, seed, kind):
    rng = np.random.default_rng(seed)
    items = rng.permutation(n_items)
    mean = mean_of(kind, rng.integers(0, 2 * SCALE // math.isqrt(n_items), n_items))
    rows = [set(items[:n_own].tolist()), set(items[n_own : 2 * n_own].tolist()) or {0}]
    system = system_of(kind)
    square = square_distance(*(sums_of(system, [row], mean) for row in rows))
    assert square <= 2 * UNIT**2
    if 2 * n_own <= n_items and (kind == "shares" or (kind == "uncentred" and n_own > 1)):
        # No smaller number could be claimed.
        assert square >= 2 * UNIT**2 * (1 - 0.01)


def test_pairs_of_centred_rows_scaled_to_one_unit_have_no_such_bound():
    """Check the control: without the diagonal in the norm, two users can be 2 bounds apart."""
    rows, mean = OPPOSITE
    contributions = []
    for row in rows:
        entry = math.isqrt(SCALE**2 // len(row))
        z = [entry * (item in row) - m for item, m in enumerate(mean.tolist())]
        (pair,) = (a * b for a, b in itertools.combinations(z, 2))
        contributions.append(UNIT // abs(pair) * pair)
    assert (contributions[0] - contributions[1]) ** 2 > 3.99 * UNIT**2
    full = [int(sums_of(system_of("full"), [row], mean)[0]) for row in rows]
    assert full[0] * full[1] < 0
    assert (full[0] - full[1]) ** 2 <= 2 * UNIT**2


def test_the_mean_in_the_state_decides_on_the_form():
    rows = [{0, 2}, {1, 2, 3}]
    mean = np.array([3000, 10, 500, 8000, 1])
    assert sums_of(system_of("uncentred"), rows, 0 * mean).min() == 0
    # Control: this form subtracts the mean.
    assert sums_of(system_of("full"), rows, mean).min() < 0


@pytest.mark.parametrize("kind", ["shares", "uncentred", "full"])
def test_all_data_of_three_users_and_two_items(kind):
    """Check each of 64 data sets, each user and each replacement of its row; for "full", over a grid of means."""
    rows = [set(), {0}, {1}, {0, 1}]
    system, largest = system_of(kind), 0
    grid = (0, SCALE // 4, SCALE // 2, 5793, SCALE) if kind == "full" else (0,)
    for mean in itertools.product(grid, repeat=2):
        mean = np.array(mean, dtype=np.int64)
        for data in itertools.product(rows, repeat=3):
            before = sums_of(system, list(data), mean)
            for user, row in itertools.product(range(3), rows):
                after = sums_of(system, [*data[:user], row, *data[user + 1 :]], mean)
                largest = max(largest, square_distance(before, after))
    assert largest <= 2 * UNIT**2
    # One pair of items is one number, which is never negative without a mean.
    attained = {"shares": 2 * UNIT**2, "uncentred": UNIT**2, "full": 2 * UNIT**2}[kind]
    assert largest >= attained * (1 - 1e-3)
    # The cost that the ledger states is never below the cost of the two most distant releases, and little above it.
    seen = seen_event(system.round_event(1), "public")
    claimed, exact = gaussian_delta(1.0, 1 / seen.noise_multiplier), gaussian_delta(1.0, math.sqrt(largest) / UNIT)
    assert exact <= claimed
    assert claimed <= exact * 1.01 or kind == "uncentred"
    # Control: a sensitivity of 1.2 would be too small.
    assert gaussian_delta(1.0, 1.2) < exact or kind == "uncentred"


def test_subspaces_mean_has_the_same_bound_and_projections_keep_2():
    first, later = subspace.ShareSum(NOISE, KEY, 0.0), subspace.ProjectionSum(NOISE, KEY, 0.0, 0)
    assert first.round_event(1).replace_sensitivity == math.sqrt(2)
    assert later.round_event(1).replace_sensitivity is None


def test_a_round_that_a_release_chose_states_2():
    """Check that the plan it replaces may cost 2 for a replaced user."""
    system = RepeatedShareSum(NOISE, KEY, 0.0)
    assert system.round_event(1).replace_sensitivity == math.sqrt(2)
    system.is_chosen = True
    assert system.round_event(1).replace_sensitivity is None


# ---- other systems ---------------------------------------------------------------------------------------------------


def als_system(kind, max_items, n_items, n_factors, mus=(0.3, 0.3, 0.9)):
    shape = max_items, n_items, n_factors, KEY
    if kind is LeastSquaresRound:
        return kind(mus, *shape, regularization=1.0, confidence_weight=4.0, noise_regularization=1.0)
    return kind(mus[:1], *shape)


def als_square(system, sums):
    """Return the squared distance of two users' sums, each kind over its standard deviation, and the claimed one."""
    parts = [
        square_distance(*(one[name] for one in sums)) / noise.gaussian.noise_multiplier(noise.sensitivity) ** 2
        / float(noise.sensitivity) ** 2
        for name, noise in system.noises.items()
    ]  # fmt: skip
    event = system.round_event(1)
    return sum(parts), ((event.replace_sensitivity or 2.0) / event.noise_multiplier) ** 2


@settings(max_examples=150, deadline=None)
@given(
    rows=st.tuples(*[st.sets(st.integers(0, 4))] * 2),
    angles=st.tuples(*[st.floats(-4, 4)] * 2),
    lengths=st.tuples(*[st.sampled_from([0.0, 0.4, 1.0, 9.0])] * 2),
    mus=st.tuples(*[st.floats(0.05, 1.0)] * 3),
)
@example(rows=({0, 1}, {0, 1}), angles=(0.0, math.pi), lengths=(1.0, 1.0), mus=(0.15, 0.3, 0.95))
@example(rows=({0, 1}, {0, 1}), angles=(0.8, 2.9), lengths=(1.0, 1.0), mus=(0.5, 0.5, 0.5))
def test_no_two_users_of_dpals_are_further_apart_than_its_event_states(rows, angles, lengths, mus):
    """Check all factors of two users, also those that are no solution of least squares."""
    data = of_sets(rows, 5)
    factors = np.array([[r * math.cos(a), r * math.sin(a)] for a, r in zip(angles, lengths, strict=True)])
    state = FactorState(np.arange(5.0), np.zeros((5, 2)))
    for kind in (LeastSquaresRound, CountRound):
        system, sums = als_system(kind, 2, 5, 2, mus), []
        for user in range(2):
            with pytest.MonkeyPatch.context() as patch:
                user_factors = factors[user : user + 1]
                patch.setattr(
                    als_rounds.als, "solve_own_users", lambda *_, user_factors=user_factors, **__: user_factors.copy()
                )
                sums.append(system._sums(state, data._take_users(np.array([user])), KEY, 1))
        square, claimed = als_square(system, sums)
        assert square <= claimed * (1 + 1e-9)


def test_dpals_claims_hardly_more_than_two_users_can_reach():
    state, rows = FactorState(np.zeros(3), np.zeros((3, 2))), of_sets([{0, 1}], 3)
    system, sums = als_system(LeastSquaresRound, 2, 3, 2, (0.02**0.5, 0.1**0.5, 0.88**0.5)), []
    for sign in (1.0, -1.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(als_rounds.als, "solve_own_users", lambda *_, sign=sign, **__: np.array([[sign, 0.0]]))
            sums.append(system._sums(state, rows, KEY, 1))
    square, claimed = als_square(system, sums)
    assert 0.96 * claimed <= square <= claimed
    assert system.round_event(1).replace_sensitivity == pytest.approx(math.sqrt(3.64), rel=1e-6)
    # With equal noise on every kind, the products have more effect.
    even = als_system(LeastSquaresRound, 2, 3, 2, (0.5, 0.5, 0.5)).round_event(1).replace_sensitivity
    assert even == pytest.approx(math.sqrt(6.5 / 3), rel=1e-6)
    assert als_system(CountRound, 2, 3, 2).round_event(1).replace_sensitivity == math.sqrt(2)
    assert als_system(StartRound, 2, 3, 2).round_event(1).replace_sensitivity is None


def test_gradients_of_dpfmf_keep_2_since_two_users_can_be_opposite():
    """Check one factor and two items: the rows {0} and {1} have opposite gradients of norm 1."""
    data = of_sets([{0}, {1}], 2)
    ((system, _, _),) = DPFMF(2.0, n_factors=1)._plan(data, KEY)
    state = FactorState(np.zeros(2), np.full((2, 1), 0.5**0.5))
    one, other = (system._sums(state, data._take_users(np.array([u])), KEY, 1)["gradients"] for u in range(2))
    square = square_distance(one, other)
    assert square > 3.9 * UNIT**2
    assert system.round_event(1).replace_sensitivity is None


def test_fedrecs_counts_of_raters_cost_the_distance_of_two_disjoint_lists():
    central = CentralPrivacy(clip_norm=0.5, noise_multiplier=2.0, divisor=None, max_items=9)
    square = Fraction(central.replaced_count_sensitivity) ** 2
    # Each list has 9 items.
    assert 18 <= square <= 18 * (1 + Fraction(1, 2**50))
    assert Fraction(central.count_noise.noise_multiplier(central.replaced_count_sensitivity)) <= Fraction(2.0) / 1.41421


@pytest.mark.parametrize(
    ("model", "expected"),
    [(DPGram(2.0), math.sqrt(2)), (DPSubspace(2.0), math.sqrt(2)),
     (DPALS(2.0), math.sqrt(2))],
)  # fmt: skip
def test_a_fits_first_release_costs_less_for_a_replaced_user(model, expected):
    data = datasets.generate_implicit(200, 40, key=KEY)
    ledger = model.fit(data, key=KEY).ledger_
    first, *later = [event for event in ledger.events if isinstance(event, Gaussian)]
    assert first.replace_sensitivity == expected
    bounds = [(event.replace_sensitivity or 2) / event.noise_multiplier for event in ledger.events.elements()]
    doubled = [2 / event.noise_multiplier for event in ledger.events.elements()]
    assert gaussian_delta(ledger.epsilon("public"), math.hypot(*bounds)) == pytest.approx(ledger.delta, rel=1e-3)
    assert gaussian_delta(ledger.epsilon("public"), math.hypot(*doubled)) > ledger.delta * 1.02  # control
    assert later


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLAIMED)
@pytest.mark.parametrize(("claimed", "holds"), [(math.sqrt(2), True), (1.2, False)])
def test_an_audit_of_two_users_stays_within_sqrt_2_and_detects_a_smaller_claim(kind, claimed, holds):
    """Check an adversary who knows all other users and projects noisy sums on the difference of the two candidates."""
    rows, mean = [{0, 1, 2}, {3, 4, 5}], np.zeros(6, dtype=np.int64)
    # The centred rows have equal length in both items, and opposite signs.
    if kind == "full":
        rows, mean = [{0}, {0, 1}], np.full(2, SCALE // 2)
    system = system_of(kind)
    releases = sums_of(system, [{0}, {1}, {0, 1}], mean)
    one, other = (sums_of(system, [row], mean) for row in rows)
    difference = (one - other) / UNIT

    def release(present, n):
        sums = np.tile(releases + (one if present else other), (n, 1))
        noisy = NOISE.add_noise(sums, key=Key.from_seed(4), purpose=f"audit.{present}")
        return (noisy - releases) @ difference / UNIT

    bound = audit(release, 0, 1, claimed, n=200_000, measure="mu", alpha=ALPHA, check_repeats=False).lower_bound
    assert (bound <= claimed) == holds
    assert bound > 1.3
