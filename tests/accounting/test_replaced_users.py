"""Replacement of a user under Poisson sampling: the pair of two opposite contributions."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import (
    CentralRelease,
    Gaussian,
    Laplace,
    Ledger,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    UnsupportedEventError,
    _renyi,
    seen_event,
)
from fastfedrec.accounting.rounding import replaced_epsilon

RATES = st.floats(-6, -0.02).map(lambda x: 10**x)
NOISES = st.floats(-0.5, 2).map(lambda x: 10**x)


def replaced(kind, z, q, contribution=0.5, **options):
    """Return noise of z times the bound S of one contribution; two contributions are at most S / contribution apart."""
    sampling = {"neighboring": "replace", "sampling": "poisson", "sampling_probability": q}
    return kind(z * contribution, contribution=contribution, **sampling, **options)


# --- oracle ---


@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
@pytest.mark.parametrize(
    ("q", "z", "rounds", "low", "high"),
    [(0.01, 0.7, 1000, 6.52, 6.72), (0.01, 1, 1000, 3.11, 3.31), (0.01, 2, 1000, 1.27, 1.47),
     (0.05, 1, 300, 9.93, 9.99), (0.01, 1, 1, 0.3735, 0.3745)],
)  # fmt: skip
def test_a_ledger_states_the_cost_of_two_opposite_contributions(relation, q, z, rounds, low, high):
    """The brackets are from a transform of losses rounded down and up."""
    event = Gaussian(z, neighboring=relation, sampling="poisson", sampling_probability=q)
    ledger = Ledger(delta=1e-6)
    ledger.record(event)
    ledger.events[event] = rounds
    assert low < ledger.epsilon("public") < high
    one_step = PLDAccountant().compose(event, rounds)
    two_steps = one_step.get_epsilon(1e-6 / (1 + math.exp(2 * one_step.get_epsilon(1e-8))))
    # The figure is below the one of group privacy.
    assert one_step.get_epsilon(1e-6) < ledger.epsilon("public") < 2 * two_steps


def opposite_delta(z, q, epsilon):
    """Return delta by the normal distribution, with the likelihood ratio, which rises, above e^epsilon."""
    with mpmath.workdps(40):
        z, q, g = mpmath.mpf(z), mpmath.mpf(q), mpmath.exp(mpmath.mpf(epsilon))
        k = q * mpmath.exp(-1 / (2 * z * z))
        root = ((1 - q) * (g - 1) + mpmath.sqrt((1 - q) ** 2 * (g - 1) ** 2 + 4 * g * k * k)) / (2 * k)
        x = z * mpmath.log(root)  # in stddevs
        p = (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(1 / z - x)
        return p - g * ((1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(-1 / z - x))


@settings(max_examples=25, deadline=None)
@given(q=RATES, z=NOISES, share=st.floats(0.0, 0.9))
@example(q=1.0, z=1.0, share=0.3)
@example(q=0.5, z=0.02, share=0.9)
@example(q=1e-3, z=1e4, share=0.5)
def test_one_release_is_never_below_the_pair_and_hardly_above(q, z, share):
    total = PLDAccountant().compose(replaced(Gaussian, z, q))
    epsilon = share * total.get_epsilon(1e-9)
    exact, result = opposite_delta(z, q, epsilon), total.get_delta(epsilon)
    assert exact <= result
    # For smaller rates the losses are far smaller than the grid's step.
    assert result <= exact * 1.05 + 1e-12 or q < 1e-3
    # Control: a tenth more noise would be below the true value.
    assert opposite_delta(1.1 * z, q, epsilon) < exact or exact < 1e-30


def opposite_divergence(order, q, z):
    """Return the mean of r g(p / r) as a dense sum, which equals its integral (the integrand is analytic)."""
    with mpmath.workdps(30):
        a, q, z = (mpmath.mpf(value) for value in (order, q, z))
        spacing = min(mpmath.mpf(1) / 16, z / (3 * mpmath.sqrt(a)))
        last = (2 * a if q == 1 else a + 8) / z + 12
        total = mpmath.mpf(0)
        for i in range(-int((12 + 1 / z) / spacing), int(last / spacing)):
            x = i * spacing
            p = 1 - q + q * mpmath.exp(x / z - 1 / (2 * z**2))
            r = 1 - q + q * mpmath.exp(-x / z - 1 / (2 * z**2))
            total += mpmath.npdf(x) * (p**a * r ** (1 - a) - r - a * (p - r))
        return mpmath.log1p(total * spacing) / (a - 1)


@settings(max_examples=10, deadline=None)
@given(
    q=RATES, z=st.floats(-0.3, 2).map(lambda x: 10**x), order=st.sampled_from([1.001, 1.05, 1.7, 2.0, 5.5, 12.0, 24.0])
)
@example(q=1.0, z=2.0, order=3.0)
@example(q=1e-9, z=1e3, order=1.001)
@example(q=0.01, z=0.4, order=9.0)
def test_the_renyi_divergence_is_never_below_quadrature_and_hardly_above(q, z, order):
    result = _renyi.divergence(_renyi.opposite_gaussian(np.array([order]), q, z)[0], order)
    exact = opposite_divergence(order, q, z)
    assert exact <= result <= exact * 1.02


def random_vectors(rng, n, bound):
    """Return two vectors of norm at most 1, at most `bound` apart."""
    while True:
        u, v = (x / max(1.0, np.linalg.norm(x)) for x in rng.normal(size=(2, n)))
        if np.linalg.norm(u - v) <= bound:
            return u, v


@pytest.mark.parametrize("bound", [2.0, math.sqrt(2), 1.1])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_no_two_contributions_cost_more(dimension, bound):
    """Delta is a sum over a grid of the plane of both vectors; the grid is off by less than 0.002 of it."""
    rng = np.random.default_rng(dimension)
    for z, q in ((0.5, 0.05), (1.0, 0.3), (3.0, 0.02)):
        axis = np.arange(-7 * z - 1, 7 * z + 1, z / 12)
        event = replaced(Gaussian, z, q, 1 / bound)
        total, renyi = PLDAccountant().compose(event), RDPAccountant().compose(event)
        farthest = np.eye(2)[0], [1 - bound**2 / 2, bound * math.sqrt(max(0.0, 1 - bound**2 / 4))]
        for u, v in (farthest, *(random_vectors(rng, dimension, bound) for _ in range(5))):
            along = u / np.linalg.norm(u)
            across = np.linalg.norm(v - (along @ v) * along)

            def density(x, y, z=z, axis=axis):
                return np.exp(-((axis[:, None] - x) ** 2 + (axis - y) ** 2) / (2 * z * z)) / (2 * math.pi * 144)

            one = (1 - q) * density(0, 0) + q * density(np.linalg.norm(u), 0)
            other = (1 - q) * density(0, 0) + q * density(along @ v, across)
            for epsilon in (0.0, 0.01, 0.1, 0.5):
                for p, r in ((one, other), (other, one)):
                    exact = np.maximum(p - math.exp(epsilon) * r, 0).sum()
                    assert exact * 0.998 - 1e-9 <= total.get_delta(epsilon) <= renyi.get_delta(epsilon)
    # Control: the pair of adding or removing a user is below the true value.
    one_step = Gaussian(1.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.3)
    assert opposite_delta(1.0, 0.3, 0.1) > 1.2 * PLDAccountant().compose(one_step).get_delta(0.1)


def rounded(z, q, step, side):
    """Return P-masses of the losses of the pair, rounded down or up to a grid: an independent convolution."""
    x = np.arange(-12 * z - 1, 12 * z + 1, z / 4000)

    def mixture(centre):
        cell = z / 4000 * np.exp(-((x - centre) ** 2) / (2 * z * z)) / (z * math.sqrt(2 * math.pi))
        return (1 - q) * z / 4000 * np.exp(-x * x / (2 * z * z)) / (z * math.sqrt(2 * math.pi)) + q * cell

    p, r = mixture(1), mixture(-1)
    cells = (np.floor if side == "down" else np.ceil)(np.log(p / r) / step).astype(int)
    # A loss between two points moves to the lower or the upper point.
    cells += -1 if side == "down" else 1
    return cells.min(), np.bincount(cells - cells.min(), weights=p)


@pytest.mark.parametrize(("z", "q", "rounds"), [(0.8, 0.1, 4), (1.0, 0.5, 4), (2.0, 0.2, 8)])
def test_many_rounds_are_between_losses_rounded_down_and_up(z, q, rounds):
    step, deltas = 1e-3, {}
    total = PLDAccountant().compose(replaced(Gaussian, z, q), rounds)
    for side in ("down", "up"):
        start, one = rounded(z, q, step, side)
        pmf = np.array([1.0])
        for _ in range(rounds):
            pmf = np.convolve(pmf, one)
        losses = step * (rounds * start + np.arange(len(pmf)))
        deltas[side] = [(pmf * -np.expm1(np.minimum(epsilon - losses, 0))).sum() for epsilon in (0.1, 0.3, 0.5)]
    for epsilon, low, high in zip((0.1, 0.3, 0.5), deltas["down"], deltas["up"], strict=True):
        assert low <= total.get_delta(epsilon) <= high
        # Control: the bracket is narrow.
        assert high < 1.5 * low + 1e-9


# --- Laplace noise and pure releases ---


def laplace_mixture(x, centre, z, q):
    return ((1 - q) * np.exp(-np.abs(x) / z) + q * np.exp(-np.abs(x - centre) / z)) / (2 * z)


@settings(max_examples=40, deadline=None)
@given(q=RATES, z=st.floats(0.2, 20), u=st.floats(-1, 1), v=st.floats(-1, 1), share=st.floats(0, 0.95))
@example(q=0.1, z=1.0, u=1.0, v=-1.0, share=0.5)
@example(q=0.5, z=1.0, u=0.5, v=1.0, share=0.1)
def test_no_two_laplace_contributions_cost_more(q, z, u, v, share):
    total = PLDAccountant().compose(replaced(Laplace, z, q))
    epsilon = share * replaced_epsilon(1 / z, q)
    x = np.linspace(-1 - 30 * z, 1 + 30 * z, 200_001)

    def exact(first, second):
        gap = laplace_mixture(x, first, z, q) - math.exp(epsilon) * laplace_mixture(x, second, z, q)
        return np.maximum(gap, 0).sum() * (x[1] - x[0])

    result = total.get_delta(epsilon)
    assert exact(u, v) <= result + 1e-3 * q
    assert abs(exact(1.0, -1.0) - result) <= 1e-3 * q
    assert total.get_delta(replaced_epsilon(1 / z, q) * (1 + 1e-9)) <= 1e-12


@given(st.floats(-12, 3).map(lambda x: 10**x), st.floats(-17, 0).map(lambda x: 10**x))
@example(800.0, 1.0)
@example(50.0, 1 - 2.0**-53)
@example(0.7, 0.5)
@example(10**1.5, 1.0)
def test_the_pure_cost_of_replacing_is_rounded_up(epsilon, q):
    with mpmath.workdps(500):
        e, rate = mpmath.mpf(epsilon), mpmath.mpf(q)
        exact = mpmath.log1p(rate * mpmath.expm1(e)) - mpmath.log1p(rate * mpmath.expm1(-e))
        # The oracle rounds, too: at q = 1 the cost is exactly 2 epsilon, and the last of 500 digits may be above it.
        lowest = exact * (1 - mpmath.mpf(10) ** -100)
    result = replaced_epsilon(epsilon, q)
    assert lowest <= result <= exact * (1 + 1e-10)
    assert result <= 2 * epsilon


@pytest.mark.parametrize(("epsilon", "delta", "q"), [(1.0, 0.0, 0.1), (3.0, 1e-3, 0.02), (0.2, 1e-2, 0.7)])
def test_a_pure_release_is_replaced_by_way_of_none(epsilon, delta, q):
    """The releases attain the bound: randomized response with the user, and the mean of both answers without it."""
    event = CentralRelease("m", epsilon, delta=delta, sampling="poisson", sampling_probability=q)
    seen = seen_event(event, "public")
    assert seen.epsilon == replaced_epsilon(epsilon, q)
    # Outputs: the user's own, two common ones, and one for the absence of the user.
    low = (1 - delta) / (1 + math.exp(epsilon))
    used, other = [delta, 1 - delta - low, low], [0.0, low, 1 - delta - low]
    none = [0.0, 1 - delta - low, low]
    for first, second in ((used, other), (other, used)):
        p = [(1 - q) * a + q * b for a, b in zip(none, first, strict=True)]
        r = [(1 - q) * a + q * b for a, b in zip(none, second, strict=True)]
        true = sum(max(a - math.exp(at) * b, 0) for a, b in zip(p, r, strict=True) for at in (seen.epsilon,))
        assert true <= seen.delta + 1e-15
    # Control: twice the epsilon of one step would be above the true cost.
    assert seen.epsilon < 2 * math.log1p(q * math.expm1(epsilon))


def test_a_ledger_of_sampled_laplace_noise_costs_less_than_two_steps():
    event = Laplace(1.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.1)
    seen = seen_event(event, "public")
    assert (seen.neighboring, seen.noise_multiplier, seen.contribution) == ("replace", 0.5, 0.5)
    pure = CentralRelease("m", replaced_epsilon(1.0, 0.1), neighboring="replace")
    for delta in (1e-3, 1e-9):
        assert PLDAccountant().compose(seen, 20).get_epsilon(delta) < PLDAccountant().compose(pure, 20).get_epsilon(
            delta
        )
    assert PureAccountant().compose(seen, 20).get_epsilon() == PureAccountant().compose(pure, 20).get_epsilon()


# --- invariants ---


@settings(max_examples=12, deadline=None)
@given(z=NOISES, q=RATES, bound=st.floats(1, 2))
def test_what_an_event_does_not_state_costs_no_less(z, q, bound):
    """Without a bound of one contribution it may be as large as the sensitivity."""
    event = replaced(Gaussian, z, q, 1 / bound)
    unstated = Gaussian(z / bound, neighboring="replace", sampling="poisson", sampling_probability=q)
    fixed = Gaussian(z / bound, neighboring="add_remove", sampling="poisson", sampling_probability=q)
    for delta in (1e-3, 1e-6):
        result = PLDAccountant().compose(event, 3).get_epsilon(delta)
        one_step = Gaussian(z, neighboring="add_remove", sampling="poisson", sampling_probability=q)
        assert result >= PLDAccountant().compose(one_step, 3).get_epsilon(delta) * (1 - 1e-6)
        largest_contribution = PLDAccountant().compose(unstated, 3).get_epsilon(delta)
        assert largest_contribution >= PLDAccountant().compose(fixed, 3).get_epsilon(delta) * (1 - 1e-6)
        if bound == 2:
            assert result <= largest_contribution


def test_a_ledger_document_without_a_contribution_is_that_of_before():
    plain = Gaussian(2.0, neighboring="replace", sampling="poisson", sampling_probability=0.1)
    stated = Gaussian(2.0, neighboring="replace", sampling="poisson", sampling_probability=0.1, contribution=0.75)
    ledger = Ledger()
    for event in (plain, stated):
        ledger.record(event)
    fields = [entry["fields"] for entry in ledger.to_dict()["events"]]
    assert "contribution" not in fields[0]
    assert fields[1] == {**fields[0], "contribution": 0.75}
    copy_of_ledger = Ledger.from_json(ledger.to_json())
    assert copy_of_ledger.events == ledger.events
    assert copy_of_ledger.digest() == ledger.digest()


# --- bad inputs ---


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_bad_contributions_are_refused_by_name(kind):
    for bad in (0.4, 1.1, -1.0):
        with pytest.raises(ValueError, match="contribution"):
            replaced(kind, 1.0, 0.1, bad)
    for relation in ("add_remove", "zero_out"):
        with pytest.raises(ValueError, match=f"`contribution` must be None with neighboring='{relation}', got 0.5"):
            kind(1.0, neighboring=relation, sampling="none", contribution=0.5)
    with pytest.raises(ValueError, match=r"must be from 0.5 to 1, got 0.4; it is the bound"):
        kind(1.0, neighboring="replace", sampling="none", contribution=0.4)


def test_laplace_noise_that_does_not_state_a_contribution_is_refused():
    event = Laplace(1.0, neighboring="replace", sampling="poisson", sampling_probability=0.1)
    for accountant in (PureAccountant, RDPAccountant, PLDAccountant):
        with pytest.raises(UnsupportedEventError, match="Laplace noise with a contribution, state how far a unit is"):
            accountant().compose(event)
