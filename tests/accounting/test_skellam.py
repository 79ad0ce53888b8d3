"""The cost of Skellam noise against sums over its distribution in many digits, and the shares of nodes that count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.noise import skellam as naive

from fastfedrec.accounting import (
    Gaussian,
    Ledger,
    PLDAccountant,
    RDPAccountant,
    SkellamRelease,
    SkellamShares,
    UnsupportedEventError,
    ZCDPAccountant,
    _renyi,
)
from fastfedrec.accounting.views import seen_event

REPLACED = {"neighboring": "replace", "sampling": "none"}
ZERO_OUT = {"neighboring": "zero_out", "sampling": "none"}
PARAMETERS = [(1.0, 1), (1.5, 3), (4.0, 1), (16.0, 2), (100.0, 10), (100.0, 25), (10.0, 40)]


def shares(**changed):
    fields = {"n_nodes": 100, "n_answers": 95, "honest_fraction": 0.7} | ZERO_OUT | changed
    return SkellamShares(10.0, 16.0, 50, **fields)


def release(variance, **changed):
    return SkellamRelease(variance, 16.0, 50, "Skellam noise in shares", **(ZERO_OUT | changed))


def cost(event, accountant=RDPAccountant):
    return accountant().compose(event).get_epsilon(1e-6)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variance", "shift"), PARAMETERS)
def test_divergences_are_never_below_sums_over_the_distribution(variance, shift):
    orders = np.array([1.01, 1.5, 2.0, 2.25, 3.0, 7.5, 20.0, 64.0])
    bounds = _renyi.skellam(orders, variance, float(shift), float(shift))
    for order, bound in zip(orders.tolist(), bounds.tolist(), strict=True):
        exact = naive.renyi_divergence(order, variance, shift)
        assert exact <= bound
        # A control: at small orders the bound is close, so noise with four fifths of the variance breaks it.
        if variance == 100 and order in (2, 3):
            assert naive.renyi_divergence(order, 0.8 * variance, shift) > bound


@pytest.mark.parametrize("shifts", [(1, 2), (3, 1, 1), (1,) * 12])
def test_divergences_of_vectors_are_never_below_sums_over_their_values(shifts):
    # Values have independent noise, so the divergence of a vector is the sum of those of its values.
    l1, l2 = float(sum(shifts)), math.sqrt(sum(shift**2 for shift in shifts))

    def exact(order, variance):
        return sum(naive.renyi_divergence(order, variance, shift) for shift in shifts)

    for variance in (0.25, 1.0, 64.0):
        orders = np.array([1.25, 2.0, 6.0])
        for order, bound in zip(orders.tolist(), _renyi.skellam(orders, variance, l1, l2).tolist(), strict=True):
            assert exact(order, variance) <= bound
    # A control: noise with four fifths of the last variance breaks the last bound at order 2.
    assert exact(2.0, 0.8 * variance) > _renyi.skellam(np.array([2.0]), variance, l1, l2)[0]


@pytest.mark.parametrize("orders", [np.linspace(1.001, 12, 500), np.array([2.0**30, 2.0**40 + 0.5])])
def test_bounds_between_whole_orders_are_chords(orders):
    # (a - 1) D(a) is convex: the chord through the whole orders' bounds, computed by itself.
    variance, l1, l2 = 30.0, 40.0, 8.0

    def line(n, slope, level):
        return (n - 1) * (slope * n + level)

    slope = l2**2 / (2 * variance)
    lines = (slope * (1 + 1 / variance), (6 * l1 - l2**2) / (4 * variance**2)), (slope, 1.5 * l1 / variance)
    low, t = np.floor(orders), orders - np.floor(orders)
    chords = [((1 - t) * line(low, *one) + t * line(low + 1, *one)) / (orders - 1) for one in lines]
    assert _renyi.skellam(orders, variance, l1, l2) == pytest.approx(np.minimum(*chords), rel=1e-9)


@pytest.mark.parametrize(("variance", "shift"), PARAMETERS)
def test_the_loss_of_one_number_is_that_of_the_distribution(variance, shift):
    ours = PLDAccountant().compose(SkellamRelease(variance, float(shift), 1, **REPLACED))
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        exact = float(naive.hockey_stick(variance, shift, epsilon))
        assert exact <= ours.get_delta(epsilon) <= exact * (1 + 1e-3) + 1e-12
    assert cost(SkellamRelease(variance, float(shift), 1, **REPLACED), PLDAccountant) <= cost(
        SkellamRelease(variance, float(shift), 1, **REPLACED)
    )


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_loss_of_three_numbers_is_the_convolution(epsilon):
    variance, shift = 9.0, 3
    # Three independent uses: all triples of outputs.
    p = [float(x) for x in naive.probabilities(variance, 40)]
    points = range(-30, 31)
    first = np.array([p[abs(x - shift)] for x in points])
    second = np.array([p[abs(x)] for x in points])
    three = [np.multiply.outer(np.multiply.outer(a, a), a) for a in (first, second)]
    exact = float(np.maximum(0, three[0] - math.exp(epsilon) * three[1]).sum())
    ours = PLDAccountant().compose(SkellamRelease(variance, float(shift), 1, **REPLACED), 3).get_delta(epsilon)
    assert exact * (1 - 1e-9) <= ours <= exact * 1.01


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_much_noise_costs_as_much_as_gaussian_noise():
    # The two corrections vanish with the variance; the rest is the chords between whole orders.
    event = SkellamRelease(2.0**40, 2.0**20, 100, **ZERO_OUT)
    gaussian = cost(Gaussian(1.0, **ZERO_OUT))
    assert gaussian <= cost(event) <= gaussian * (1 + 1e-3)


@given(l2=st.floats(1, 1e6), n_values=st.integers(1, 10**9), l1=st.floats(1, 1e9))
def test_the_l1_bound_is_the_smallest_that_holds(l2, n_values, l1):
    event = SkellamRelease(10.0, l2, n_values, l1_sensitivity=l1, **ZERO_OUT)
    bounds = l2 * l2, math.sqrt(n_values) * l2, l1
    assert min(bounds) <= event._l1_bound <= min(bounds) * (1 + 1e-9)


def test_a_replaced_user_changes_l2_by_root_2_and_l1_by_2():
    for stated, factor in ((None, 2.0), (math.sqrt(2), math.sqrt(2))):
        event = SkellamRelease(100.0, 16.0, 50, l1_sensitivity=40.0, replace_sensitivity=stated, **ZERO_OUT)
        seen = seen_event(event, "public")
        assert (seen.neighboring, seen.l1_sensitivity) == ("replace", 80.0)
        assert seen.l2_sensitivity == pytest.approx(16 * factor, rel=1e-12)
        assert seen_event(event, "server") is None
    # The factors are attained: two contributions to different sums.
    first, second = np.array([16, 0]), np.array([0, 16])
    assert np.linalg.norm(first - second) == pytest.approx(16 * math.sqrt(2))
    assert np.abs(first - second).sum() == 2 * 16


def test_views_count_the_shares_that_each_adversary_does_not_know():
    event = shares(adding_fraction=1.0)
    assert cost(seen_event(event, "server")) == cost(seen_event(release(650.0), "public"))
    assert cost(seen_event(event, "public")) == cost(seen_event(release(950.0), "public"))
    assert cost(seen_event(shares(), "public")) == cost(seen_event(release(650.0), "public"))
    assert seen_event(event, "key_holder") is None
    assert seen_event(shares(n_answers=30), "server") is None


def test_the_ledger_counts_the_answers():
    ledger = Ledger()
    ledger.record(shares())
    expected = [cost(seen_event(release(variance), "public")) for variance in (650.0, 500.0)]
    assert ledger.epsilon("server") == expected[0]
    ledger.amend(shares(), 80)
    assert ledger.epsilon("server") == expected[1]
    assert Ledger.from_json(ledger.to_json()).epsilon("server") == expected[1]
    assert "80 of 100 nodes, 0.7 honest" in ledger.summary()
    assert "500" not in ledger.summary() or "the noise of 50 nodes that add their shares" in ledger.summary()
    ledger.amend(shares(n_answers=80), 30)
    assert ledger.epsilon("server") == ledger.epsilon("public") == math.inf
    assert "too few nodes answered for a share to count" in ledger.summary()
    # A later, larger number of answers changes nothing.
    ledger.amend(shares(n_answers=30), 90)
    assert ledger.epsilon("server") == math.inf


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_events_without_a_theorem_are_refused_by_name():
    for event in (
        SkellamRelease(10.0, 3.0, 2, **REPLACED),
        SkellamRelease(2.0**21, 3.0, 1, **REPLACED),
        SkellamRelease(10.0, 600.0, 1, **REPLACED),
    ):
        with pytest.raises(UnsupportedEventError, match=r"are known for one value, variance up to 1\.04858e\+06, and"):
            cost(event, PLDAccountant)
        assert cost(event) > 0
        with pytest.raises(UnsupportedEventError, match="no pure epsilon"):
            cost(event, ZCDPAccountant)
    with pytest.raises(UnsupportedEventError, match="no share of the noise counts"):
        cost(shares(n_answers=20))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"replace_sensitivity": 2.5}, "`replace_sensitivity` must be from 1 to 2, got 2.5"),
        ({"replace_sensitivity": 1.5, "neighboring": "replace"}, "multiply l2_sensitivity by it instead"),
        ({"l1_sensitivity": 0.0}, "l1_sensitivity must be greater than 0"),
        ({"n_answers": 101}, "n_answers must be .*100"),
        ({"honest_fraction": 1.5}, "honest_fraction must be at most 1"),
        ({"adding_fraction": 0.5}, "adding_fraction must be .*0.7"),
        ({"trust": "central"}, "trust must be"),
        ({"sampling": "poisson", "sampling_probability": 0.5}, "sampling must be"),
    ],
)
def test_bad_fields(changed, message):
    with pytest.raises(ValueError, match=message):
        shares(**changed)
