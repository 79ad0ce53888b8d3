"""Prototypes: sums against a loop, sensitivities against all neighbours, and item choice against Gumbel noise."""

import itertools
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms import exponential as naive_selection
from support.significance import counts_are
from support.strategies import seeds

from fastfedrec import Interactions, Key
from fastfedrec.accounting import PureAccountant, ZCDPAccountant
from fastfedrec.core.numbers import float_up
from fastfedrec.mechanisms import DiscreteGaussian, DiscreteLaplace
from fastfedrec.mechanisms.bounded_rows import limit_contributions
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes

KEY = Key.from_seed(5)
ALMOST_NONE = 10.0**6  # so large that exact noise is 0


def ratings(n_users=20, n_items=6, seed=0, max_entries=4):
    rng = np.random.default_rng(seed)
    held = rng.random((n_users, n_items)) < 0.6
    held[:, 0] = True
    users, items = np.nonzero(held)
    x = Interactions.from_arrays(users, items, rng.integers(1, 6, len(users)).astype(float))
    return limit_contributions(x, max_entries, value_range=(1.0, 5.0), key=KEY)


def recovery(kind="masked", **changes):
    low = 1.0 if kind == "masked" else 0.0
    return Recovery(kind, **{"max_entries": 4, "value_range": (low, 5.0), "epsilon": ALMOST_NONE} | changes)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(seed=seeds(), kind=st.sampled_from(["zero_filled", "masked"]))
def test_prototypes_without_noise_are_means(seed, kind):
    x = ratings(seed=seed)
    labels = np.random.default_rng(seed).integers(0, 3, x.n_users)
    dense = x.to_scipy().toarray()
    for rule in (recovery(kind), recovery(kind, epsilon=None)):
        prototypes = recover_prototypes(x, labels, 3, rule, key=KEY)
        for c in range(3):
            mine = dense[labels == c]
            if kind == "zero_filled":
                assert prototypes.counts[c] == len(mine)
                assert prototypes.sums[c].tolist() == mine.sum(axis=0).tolist()
            else:
                assert prototypes.counts[c].tolist() == (mine > 0).sum(axis=0).tolist()
                assert prototypes.sums[c].tolist() == np.where(mine > 0, mine - 3, 0).sum(axis=0).tolist()


@given(seed=seeds(), kind=st.sampled_from(["zero_filled", "masked"]))
def test_without_noise_the_largest_are_selected(seed, kind):
    x, labels = ratings(seed=seed), np.random.default_rng(seed).integers(-1, 2, 20)
    every = recover_prototypes(x, labels, 2, recovery(kind), key=KEY)
    for rule in (
        recovery(kind, epsilon=None, support_size=3),
        recovery(kind, support_size=3, support_epsilon=ALMOST_NONE),
    ):
        prototypes = recover_prototypes(x, labels, 2, rule, key=KEY)
        for c in range(2):
            scores = every.counts[c] if kind == "masked" else every.sums[c]
            assert sorted(scores[prototypes.items[c]]) == sorted(scores)[-3:]
            assert prototypes.sums[c].tolist() == every.sums[c][prototypes.items[c]].tolist()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_sensitivities_are_those_of_the_specification():
    zero, masked = recovery("zero_filled", max_entries=150), recovery("masked", max_entries=150)
    assert zero.sensitivity == 150 * 5 + 1
    assert zero.squared_norm_sensitivity == 150 * 25 + 1
    assert masked.sensitivity == 3 * 150
    assert masked.squared_norm_sensitivity == 5 * 150
    chosen = recovery("masked", max_entries=150, support_size=20, support_epsilon=1.0)
    assert chosen.sensitivity == 3 * 20
    fine = recovery("masked", max_entries=150, steps_per_unit=4)
    assert fine.sensitivity == 4 * 3 * 150
    gaussian = recovery("masked", epsilon=None, rho=0.3)
    assert gaussian.noise.rho(1) * gaussian.squared_norm_sensitivity <= Fraction(0.3)
    assert gaussian.noise.rho(1) * gaussian.squared_norm_sensitivity > Fraction(0.3) * Fraction(999_999, 10**6)


@pytest.mark.parametrize("kind", ["zero_filled", "masked"])
@pytest.mark.parametrize("steps", [1, 3])
def test_no_user_exceeds_the_bound_of_the_sums_and_one_reaches_it(monkeypatch, kind, steps):
    released = []

    def no_noise(self, values, **_):
        released.append(np.array(values).reshape(-1))
        return np.asarray(values)

    monkeypatch.setattr(DiscreteLaplace, "add_noise", no_noise)
    rule, largest = recovery(kind, max_entries=2, steps_per_unit=steps), 0

    def sums(x):
        released.clear()
        recover_prototypes(x, np.zeros(x.n_users, dtype=int), 1, rule, key=KEY)
        return np.concatenate(released)

    for values in itertools.product([1.0, 2.4, 3.0, 5.0], repeat=2):
        x = Interactions.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [2.0, 3.0, *values])
        change = sums(x) - sums(x.select_users(np.array([0])))
        assert np.abs(change).sum() <= rule.sensitivity
        assert (change**2).sum() <= rule.squared_norm_sensitivity
        largest = max(largest, np.abs(change).sum())
    assert largest == rule.sensitivity


def test_removing_a_user_changes_no_noise_scale_and_no_shape():
    x = ratings()
    rule = recovery(epsilon=1.0, support_size=3, support_epsilon=1.0)
    labels = np.arange(x.n_users) % 2
    for some, theirs in ((x, labels), (x.select_users(np.arange(1, x.n_users)), labels[1:])):
        prototypes = recover_prototypes(some, theirs, 2, rule, key=KEY)
        assert prototypes.items.shape == prototypes.counts.shape == prototypes.sums.shape == (2, 3)
        assert (np.diff(prototypes.items, axis=1) > 0).all()


def test_the_ledgers_sum_is_the_stated_epsilon():
    rule = recovery(epsilon=0.5, support_size=3, support_epsilon=0.25)
    assert PureAccountant().compose(rule.events(2, 6)).get_epsilon() == 0.75
    (choice, values) = rule.events(2, 6, accounting="zcdp").events
    assert choice.count * Fraction(choice.rho) == pytest.approx(float(3 * Fraction(1, 12) ** 2 / 8))
    assert values.epsilon == 0.5
    table = recovery(epsilon=None, rho=0.5, sampler="table").events(2, 6, accounting="zcdp")
    assert ZCDPAccountant().compose(table).get_epsilon(1e-5) > 0
    assert table.events[0].distance > 0
    assert (
        replace(rule, epsilon=None, rho=0.5, support_size=None, support_epsilon=None)
        .events(2, 6, accounting="zcdp")
        .events[0]
        .distance
        == 0
    )
    rows = recovery(epsilon=0.5, support_size=3, support_epsilon=0.25).events(2, 6, n_rows=4)
    assert PureAccountant().compose(rows).get_epsilon() == 3.0
    (rho,) = recovery(epsilon=None, rho=0.5).events(2, 6, accounting="zcdp", n_rows=4).events
    assert rho.rho == 8.0


@pytest.mark.parametrize("support", [{}, {"support_size": 3, "support_epsilon": 0.25}])
@pytest.mark.parametrize("kind", ["zero_filled", "masked"])
def test_every_draw_of_sums_and_counts_is_charged(monkeypatch, kind, support):
    """Check that the table's total-variation distance covers all draws, for every row that a user may have."""
    add_noise, drawn = DiscreteGaussian.add_noise, []

    def recorded(self, values, **options):
        drawn.append(values.size)
        return add_noise(self, values, **options)

    monkeypatch.setattr(DiscreteGaussian, "add_noise", recorded)
    rule, x = recovery(kind, epsilon=None, rho=0.5, sampler="table", **support), ratings()
    recover_prototypes(x, np.arange(20) % 2, 2, rule, key=KEY)
    assert len(drawn) == 2
    for n_rows in (1, 4):
        event = rule.events(2, x.n_items, accounting="zcdp", n_rows=n_rows).events[-1]
        assert event.distance == float_up(n_rows * sum(drawn) * rule.noise.total_variation) > 0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    x, labels = ratings(), np.zeros(20, dtype=int)
    with pytest.raises(ValueError, match="give epsilon or rho"):
        recovery(rho=1.0)
    with pytest.raises(ValueError, match="exact sums have no guarantee"):
        recovery(epsilon=None).events(1, 1)
    with pytest.raises(ValueError, match="value_range must start at 0"):
        recovery("zero_filled", value_range=(1.0, 5.0))
    with pytest.raises(ValueError, match="support_size and support_epsilon must be given together"):
        recovery(support_size=3)
    with pytest.raises(ValueError, match="accounting must be 'zcdp' for noise with rho"):
        recovery(epsilon=None, rho=1.0).events(1, 1)
    with pytest.raises(ValueError, match="interactions must have at most 2 a user"):
        recover_prototypes(x, labels, 1, recovery(max_entries=2), key=KEY)
    with pytest.raises(ValueError, match=r"interactions must have values in \(1\.0, 3\.0\)"):
        recover_prototypes(x, labels, 1, recovery(value_range=(1.0, 3.0)), key=KEY)
    with pytest.raises(ValueError, match=r"labels must be in \[-1, 1\), got 2 to 2"):
        recover_prototypes(x, labels + 2, 1, recovery(), key=KEY)
    with pytest.raises(ValueError, match="labels must be integers, one a user"):
        recover_prototypes(x, labels[1:], 1, recovery(), key=KEY)
    with pytest.raises(TypeError, match="key must be Key, got NoneType"):
        recover_prototypes(x, labels, 1, recovery(), key=None)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_a_bit():
    x, rule = ratings(), recovery(epsilon=1.0, sampler="table")
    one, four = (recover_prototypes(x, np.zeros(20, dtype=int), 1, rule, key=KEY, n_threads=n).sums for n in (1, 4))
    assert one.tobytes() == four.tobytes()


def test_a_private_recovery_of_a_frame_reports_no_repeated_pair():
    frame = pd.DataFrame({"user": [0, 0, 1], "item": [0, 0, 1], "value": [1.0, 1.0, 4.0]})
    for epsilon, n_warnings in ((1.0, 0), (None, 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            recover_prototypes(frame, np.zeros(2, dtype=int), 1, recovery(epsilon=epsilon), key=KEY)
        assert len(caught) == n_warnings


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_chosen_items_follow_one_shot_gumbel_noise():
    # The counts are 3, 2 and 1.
    x = Interactions.from_arrays([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 2], np.ones(6))
    rule, n = recovery(support_size=2, support_epsilon=2.0), 20_000
    seen = {}
    for r in range(n):
        items = recover_prototypes(x, np.zeros(3, dtype=int), 1, rule, key=Key.from_seed(r)).items[0]
        seen[tuple(items.tolist())] = seen.get(tuple(items.tolist()), 0) + 1

    # A set's probability includes both orders of the two largest noisy scores.
    def probabilities(beta):
        orders = naive_selection.order_probabilities([3, 2, 1], beta, 2)
        return [sum(p for o, p in orders.items() if set(o) == set(pair)) for pair in pairs]

    pairs = [(0, 1), (0, 2), (1, 2)]
    observed = [seen[pair] for pair in pairs]
    # The noise has scale s / epsilon and is drawn independently here.
    gumbel = np.array([3, 2, 1]) + np.random.default_rng(1).gumbel(scale=1.0, size=(n, 3))
    best = [tuple(sorted(row)) for row in np.argsort(-gumbel, axis=1)[:, :2].tolist()]
    assert counts_are([best.count(pair) for pair in pairs], probabilities(1.0))
    assert counts_are(observed, probabilities(1.0))
    assert not counts_are(observed, probabilities(0.9))
    assert not counts_are(observed, probabilities(1.1))
