"""Exponential mechanisms: the losses of each choice have a range of at most its epsilon."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.accountants import ALL

from fastfedrec import Interactions, Key, choose_items
from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    Gaussian,
    Ledger,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ZCDPAccountant,
    composed_epsilon,
    seen_event,
)
from fastfedrec.accounting._renyi import bounded_range_rho
from fastfedrec.accounting.rdp import ORDERS
from fastfedrec.mechanisms import ExponentialMechanism

EPSILONS = st.floats(-6, 1.5).map(lambda x: 10**x)


def choices(epsilon, count=1, n_choices=1, **fields):
    return CentralRelease("m", epsilon, count=count, n_choices=n_choices, **{"neighboring": "replace"} | fields)


def two_outputs(epsilon, top):
    """Return the pair of two outputs with losses `top` and `top` - epsilon, at the extremes of all of this range."""
    e, t = mpmath.exp(mpmath.mpf(epsilon)), mpmath.exp(mpmath.mpf(top))
    p = (e - t) / (e - 1)
    return [p, 1 - p], [p / t, (1 - p) * e / t]


def hockey_stick(p, q, at):
    return mpmath.fsum(max(a - mpmath.exp(at) * b, 0) for a, b in zip(p, q, strict=True))


def composed(p, q, uses):
    """Return delta for two outputs: the number of times that the first is drawn is binomial."""
    counts = [(math.comb(uses, k), k, uses - k) for k in range(uses + 1)]
    return [[n * x[0] ** i * x[1] ** j for n, i, j in counts] for x in (p, q)]


# --- oracle ---


@settings(max_examples=60, deadline=None)
@given(EPSILONS, st.floats(-3, 3.6).map(lambda x: 1 + 10**x), st.floats(0, 1))
def test_no_pair_of_this_range_diverges_more(epsilon, order, place):
    with mpmath.workdps(60):
        p, q = two_outputs(epsilon, place * mpmath.mpf(epsilon))
        a = mpmath.mpf(order)
        divergence = mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True) if x)) / (a - 1)
    assert divergence <= order * mpmath.mpf(bounded_range_rho(epsilon))
    (divergences,) = RDPAccountant().compose(choices(epsilon))._costs.values()
    nearest = int(np.abs(ORDERS - order).argmin())
    with mpmath.workdps(60):
        a = mpmath.mpf(float(ORDERS[nearest]))
        divergence = mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True) if x)) / (a - 1)
    assert divergence <= divergences[nearest]


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 50.0])
def test_the_divergences_are_the_least(epsilon):
    """The divergences are attained at the worst position of the two losses, which is known for each order."""
    (divergences,) = RDPAccountant().compose(choices(epsilon))._costs.values()
    with mpmath.workdps(60):
        e = mpmath.exp(mpmath.mpf(epsilon))
        for i in (0, 10, 30, 200, 369):
            a = mpmath.mpf(float(ORDERS[i]))
            top = mpmath.log((a - 1) * (e - e ** (1 - a)) / (a * (1 - e ** (1 - a))))
            p, q = two_outputs(epsilon, top)
            exact = mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))) / (a - 1)
            assert exact <= divergences[i] <= exact * (1 + 1e-5)
        # A smaller rho fails at orders near 1.
        a = 1 + mpmath.mpf(10) ** -9
        p, q = two_outputs(epsilon, mpmath.log((e - 1) / epsilon))
        nearly = mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))) / (a - 1)
        assert nearly / a <= bounded_range_rho(epsilon) <= nearly * (1 + 1e-5)
    assert bounded_range_rho(epsilon) <= epsilon**2 / 8 * (1 + 1e-11)


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 1.3).map(lambda x: 10**x), st.floats(0.01, 0.99))
def test_one_choice_is_the_worst_of_all_pairs(epsilon, share):
    total, at = PLDAccountant().compose(choices(epsilon)), share * epsilon
    with mpmath.workdps(40):
        exact = max(hockey_stick(*two_outputs(epsilon, epsilon * k / mpmath.mpf(200)), at) for k in range(201))
        closed = (mpmath.exp(epsilon / mpmath.mpf(2)) - mpmath.exp(at / mpmath.mpf(2))) ** 2 / mpmath.expm1(epsilon)
        # Control: for a range 10% smaller the delta is below the true value.
        smaller = PLDAccountant().compose(choices(0.9 * epsilon)).get_delta(at)
        # For some shares the worst pair is among these, and both are equal up to rounding.
        assert exact <= closed * (1 + mpmath.mpf(10) ** -35)
    assert closed <= total.get_delta(at) <= closed * 1.01 + 1e-12
    assert smaller < exact


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-2, 0.7).map(lambda x: 10**x), st.integers(1, 12), st.floats(0.02, 0.98), st.floats(0, 0.9),
    st.sampled_from(ALL),
)  # fmt: skip
@example(0.5, 8, 0.5, 0.2, RDPAccountant)
@example(1e-4, 12, 0.5, 0.9, ZCDPAccountant)
def test_many_choices_are_at_least_the_worst_pair_so_often(epsilon, uses, place, share, accountant):
    total, at = accountant().compose(choices(epsilon, uses)), share * uses * epsilon
    with mpmath.workdps(40):
        exact = hockey_stick(*composed(*two_outputs(epsilon, place * epsilon), uses), at)
    assert exact <= total.get_delta(at)
    # Control: half the range is below the true value, near the middle and not far out.
    if accountant is PLDAccountant and 0.3 < place < 0.7 and share < 0.1:
        assert exact > accountant().compose(choices(epsilon / 2, uses)).get_delta(at)


def peeled(scores, beta, n):
    """Return the probabilities of each order of `n` items, one exponential mechanism after the other."""
    chances = {}
    for order in itertools.permutations(range(len(scores)), n):
        remaining, chance = set(range(len(scores))), 1.0
        for item in order:
            weights = {i: math.exp((scores[i] - max(scores)) / beta) for i in remaining}
            chance *= weights[item] / sum(weights.values())
            remaining.remove(item)
        chances[order] = chance
    return list(chances.values())


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0.1, 4), st.integers(1, 3), st.booleans(), st.floats(0, 0.9))
def test_the_mechanism_itself_costs_no_more_than_its_event(data, epsilon, n, monotone, share):
    """All outputs are enumerated, for any scores and any change of them within the sensitivity."""
    scores = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=4))
    change = data.draw(st.lists(st.floats(0 if monotone else -1, 1), min_size=len(scores), max_size=len(scores)))
    mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=monotone)
    beta, other = float(mechanism.beta), [s + c for s, c in zip(scores, change, strict=True)]
    pair = peeled(scores, beta, n), peeled(other, beta, n)
    event = mechanism.event(len(scores), neighboring="replace")
    for accountant in (ZCDPAccountant, RDPAccountant, PLDAccountant):
        total = accountant().compose(event)
        for p, q in (pair, pair[::-1]):
            assert float(hockey_stick(p, q, share * epsilon)) <= total.get_delta(share * epsilon) + 1e-12


# --- figures ---


@pytest.mark.parametrize(("epsilon", "count", "figure"), [(0.1, 100, 2.42), (0.01, 1000, 0.70)])
def test_many_choices_cost_half_of_what_pure_releases_do(epsilon, count, figure):
    event = choices(epsilon, count)
    zcdp = ZCDPAccountant().compose(event).get_epsilon(1e-6)
    stated = ZCDP("m", epsilon**2 / 8, neighboring="replace", sampling="none", count=count)
    assert round(zcdp, 2) == figure
    assert 0.999 * zcdp < ZCDPAccountant().compose(stated).get_epsilon(1e-6) * 0.9999 < zcdp * 1.001
    assert PLDAccountant().compose(event).get_epsilon(1e-6) <= zcdp
    pure = CentralRelease("m", epsilon, neighboring="replace", count=count)
    assert 1.9 * zcdp < PLDAccountant().compose(pure).get_epsilon(1e-6)
    assert PureAccountant().compose(event).get_epsilon() == PureAccountant().compose(pure).get_epsilon()


@given(st.floats(-323, 308).map(lambda x: 10**x), st.integers(1, 10**6), st.floats(-12, -1).map(lambda x: 10**x))
def test_a_choice_never_costs_more_than_another_pure_release(epsilon, count, delta):
    epsilon = max(epsilon, 5e-324)
    pure = CentralRelease("m", epsilon, neighboring="replace", count=count)
    for accountant in (ZCDPAccountant, RDPAccountant):
        result = accountant().compose(choices(epsilon, count)).get_epsilon(delta)
        assert 0 <= result <= accountant().compose(pure).get_epsilon(delta) * (1 + 1e-9)


# --- events ---


def test_replacing_doubles_the_range_and_sampling_ends_it():
    seen = seen_event(choices(0.5, 3, 4, neighboring="add_remove"), "public")
    assert (seen.epsilon, seen.n_choices, seen.count) == (1.0, 4, 3)
    sampling = {"sampling": "poisson", "sampling_probability": 0.1}
    sampled = choices(0.5, 3, 4, neighboring="add_remove", **sampling)
    assert seen_event(sampled, "public").n_choices is None
    fixed = {"sampling": "without_replacement", "n_users": 10, "cohort_size": 5}
    plain = CentralRelease("m", 0.5, neighboring="replace", **fixed)
    for accountant in (ZCDPAccountant, RDPAccountant, PLDAccountant):
        result = accountant().compose(choices(0.5, **fixed)).get_epsilon(1e-6)
        assert result == accountant().compose(plain).get_epsilon(1e-6)


def test_several_choices_of_one_release_are_as_many_releases():
    for accountant in (ZCDPAccountant, RDPAccountant, PLDAccountant):
        one, several = accountant().compose(choices(1.0, 1, 8)), accountant().compose(choices(0.125, 8))
        assert one.get_epsilon(1e-4) == pytest.approx(several.get_epsilon(1e-4), rel=1e-9)


def test_a_ledger_takes_the_range_of_the_choice_of_items():
    ledger = Ledger(delta=1e-6)
    data = Interactions.from_arrays(range(200), [u % 7 for u in range(200)], item_ids=list(range(20)))
    choose_items(data, 5, 1.0, key=Key.from_seed(1), ledger=ledger)
    (event,) = ledger.events
    assert event == CentralRelease("exponential mechanism on item counts", 1.0, n_choices=5)
    noise = Gaussian(3.0, neighboring="add_remove", sampling="none")
    plain = CentralRelease("exponential mechanism on item counts", 1.0)
    result, before = (composed_epsilon({e: 10, noise: 1}, "public", 1e-6) for e in (event, plain))
    assert result < 0.6 * before


@pytest.mark.parametrize("sampler", ["exact", "gumbel"])
def test_the_event_of_the_mechanism(sampler):
    mechanism = ExponentialMechanism(0.7, n_selected=3, sampler=sampler)
    event = mechanism.event(100, neighboring="zero_out")
    assert (event.epsilon, event.n_choices, event.neighboring, event.delta) == (0.7, 3, "zero_out", 0.0)
    assert (1 + math.exp(0.7)) * event.distance == pytest.approx(mechanism.delta(100), rel=1e-9)
    assert (event.distance == 0) == (sampler == "exact")


# --- bad inputs ---


def test_bad_numbers_of_choices_are_refused_by_name():
    with pytest.raises(ValueError, match="n_choices must be at least 1, got 0"):
        choices(1.0, n_choices=0)
    with pytest.raises(TypeError, match="n_choices must be"):
        choices(1.0, n_choices=1.5)
    with pytest.raises(ValueError, match=r"`delta` must be 0.0 with n_choices, got 1e-09; state how far"):
        choices(1.0, delta=1e-9)
    with pytest.raises(ValueError, match="n_scores must be at least 1"):
        ExponentialMechanism(1.0).event(0, neighboring="replace")
