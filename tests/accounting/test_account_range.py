"""Accounts at random valid parameters: a figure at or above the true value, or an error that names a limit.

Each push tests a few hundred fixed points, and each night ten thousand others.
"""

import math
import random
import resource
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from naive.accounting import gaussian as naive
from support.accountants import ALL

from fastfedrec.accounting import (
    ZCDP,
    AdvancedAccountant,
    CentralRelease,
    Gaussian,
    Laplace,
    LocalReports,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ShuffledReports,
    UnsupportedEventError,
    ZCDPAccountant,
    gaussian_mu,
)
from fastfedrec.accounting.rdp import ORDERS, poisson_divergence

CLOSE = 1.01
# Maximum number of bytes that an account may allocate.
MEMORY = 2**31


class Points:
    """Random log-uniform parameters; the `usual` ones may not be refused."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def check(self, check, times):
        for _ in range(times):
            check(self)

    def between(self, low, high):
        return 10 ** self.random.uniform(low, high)

    def parameters(self):
        usual = self.random.random() < 0.5
        return {
            "usual": usual,
            "epsilon": self.between(-6, math.log10(50)) if usual else self.between(-12, 300),
            "q": self.between(-9, 0) if usual else self.between(-17, 0),
            "delta": self.between(-12, -1) if usual else self.between(-300, math.log10(0.9)),
            "count": int(self.between(0, 6)) if usual else int(self.between(0, 12)),
            "z": self.between(-1, 3) if usual else self.between(-12, 12),
        }


def exact_sampled(epsilon, q):
    with mpmath.workdps(60):
        epsilon, q = mpmath.mpf(epsilon), mpmath.mpf(q)
        if epsilon < 1000:
            with mpmath.workdps(500):
                return mpmath.log1p(q * mpmath.expm1(epsilon))
        return epsilon + mpmath.log(q)  # except for e^-1000 / q


def is_tight(exact, result):
    """Return whether a figure is from the true value to 1% above it; above the largest float it is infinite."""
    return exact <= result and (result <= CLOSE * exact or (math.isinf(result) and exact > 1.7e308))


# ---- closed forms ---------------------------------------------------------------------------------------------------


def check_pure(points):
    point = points.parameters()
    sampling = {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": point["q"]}
    for fields in (sampling, {"neighboring": "zero_out", "sampling": "none"}):
        event = CentralRelease("m", point["epsilon"], count=point["count"], **fields)
        one = exact_sampled(point["epsilon"], point["q"]) if fields is sampling else mpmath.mpf(point["epsilon"])
        total = one * point["count"]
        pure = PureAccountant().compose(event)
        assert is_tight(total, pure.get_epsilon())
        for other in (AdvancedAccountant, ZCDPAccountant, RDPAccountant):
            assert 0 <= other().compose(event).get_epsilon(point["delta"]) <= pure.get_epsilon()
        with mpmath.workdps(60):
            azuma = point["count"] * one * mpmath.tanh(one / 2)
            azuma += mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(point["delta"])) * point["count"]) * one
        assert is_tight(min(azuma, total), AdvancedAccountant().compose(event).get_epsilon(point["delta"]))


def check_gaussian(points):
    point = points.parameters()
    z, delta = point["z"], point["delta"]
    event = Gaussian(z, neighboring="replace", sampling="none", count=point["count"])
    square = point["count"] / Fraction(z) ** 2
    epsilon = PLDAccountant().compose(event).get_epsilon(delta)
    if math.isfinite(epsilon):
        assert naive.exact_delta(square, epsilon) <= delta
        assert not epsilon or naive.exact_delta(square, epsilon * 0.99) > delta
    for other in (ZCDPAccountant, RDPAccountant):
        assert other().compose(event).get_epsilon(delta) >= epsilon * (1 - 1e-9)
    mu = gaussian_mu(point["epsilon"], delta)
    assert naive.exact_delta(Fraction(mu) ** 2, point["epsilon"]) <= delta
    assert naive.exact_delta(Fraction(mu * 1.01) ** 2, point["epsilon"]) > delta


def check_renyi(points):
    point = points.parameters()
    order = float(ORDERS[point["count"] % 100])
    if not (order == int(order) and 1e-3 < point["z"] < 1e9):
        return
    with mpmath.workdps(80):
        q, z, n = mpmath.mpf(point["q"]), mpmath.mpf(point["z"]), int(order)
        moment = mpmath.fsum(
            mpmath.binomial(n, k) * (1 - q) ** (n - k) * q**k * mpmath.expm1(mpmath.mpf(k * (k - 1)) / (2 * z * z))
            for k in range(2, n + 1)
        )
        exact = mpmath.log1p(moment) / (n - 1)
    assert is_tight(exact, poisson_divergence(order, point["q"], point["z"]))


# At points 1/32 of a stddev apart, with z at least 1/4, the sum is off by e^-150 of its terms.
def any_divergence(order, q, z):
    """Return the mean of w^order - 1 - order (w - 1), which has a last term of mean 0, as a dense sum."""
    with mpmath.workdps(90):
        order, q, z = (mpmath.mpf(value) for value in (order, q, z))
        drift, scale, total = 1 / (2 * z * z), 32, mpmath.mpf(0)
        for i in range(-24 * scale, int((max(order, 2) / z + 24) * scale)):
            x = mpmath.mpf(i) / scale
            y = q * mpmath.expm1(x / z - drift)
            total += mpmath.exp(-x * x / 2) * ((1 + y) ** order - 1 - order * y)
        return mpmath.log1p(total / scale / mpmath.sqrt(2 * mpmath.pi)) / (order - 1)


def check_fractional_renyi(points):
    """Check orders that are not whole, from 1.001 to 10.9: equal within 1e-6, and never below."""
    point = points.parameters()
    orders = ORDERS[(ORDERS < 11) & (ORDERS % 1 > 0)]
    order, q = float(orders[point["count"] % len(orders)]), point["q"]
    # The noise multiplier is from 0.25 to 250.
    z = 10 ** (-0.6 + 3 * math.log10(point["count"] + 1) / 12)
    exact = any_divergence(order, q, z)
    assert exact <= poisson_divergence(order, q, z) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("check", [check_pure, check_gaussian, check_renyi])
def test_closed_forms_at_some_points(check):
    Points(46).check(check, 60)


@pytest.mark.parametrize(("q", "z"), [(0.3, 0.25), (1e-9, 2.0), (0.9, 40.0)])
def test_the_sum_for_fractional_orders_is_that_of_whole_ones(q, z):
    assert is_tight(any_divergence(7, q, z), poisson_divergence(7.0, q, z))
    assert poisson_divergence(7.0, q, z) <= any_divergence(7, q, z) * (1 + 1e-8)


def test_fractional_orders_at_some_points():
    Points(47).check(check_fractional_renyi, 6)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_fractional_orders_at_many_points(seed):
    Points(seed + 200).check(check_fractional_renyi, 100)


@pytest.mark.nightly
@pytest.mark.parametrize("check", [check_pure, check_gaussian, check_renyi])
@pytest.mark.parametrize("seed", range(10))
def test_closed_forms_at_many_points(check, seed):
    Points(seed).check(check, 300)


@pytest.mark.parametrize("wrong", [0.999, 1.02])
def test_the_checks_see_a_wrong_figure(wrong):
    exact = exact_sampled(1.0, 0.1)
    assert is_tight(exact, float(exact) * 1.001)
    assert not is_tight(exact, float(exact) * wrong)


# ---- everything ends in a figure or a named refusal -----------------------------------------------------------------


def any_event(point, points):
    """Return an event of any kind with its parameters."""
    choose, count = points.random.choice, point["count"]
    n_users = int(points.between(0, 6 if point["usual"] else 12)) + 1
    fixed = {"n_users": n_users, "cohort_size": max(1, int(n_users * point["q"]))}
    sampling = choose(
        [
            {"neighboring": choose(["add_remove", "replace", "zero_out"]), "sampling": "none"},
            {"neighboring": choose(["add_remove", "add_remove", "replace", "zero_out"]), "sampling": "poisson",
             "sampling_probability": point["q"]},
            {"neighboring": "replace", "sampling": "without_replacement", **fixed},
        ]
    )  # fmt: skip
    kind = choose([CentralRelease, Laplace, Gaussian, Gaussian, LocalReports, ShuffledReports, ZCDP])
    if kind is CentralRelease:
        return kind("m", point["epsilon"], count=count, **sampling)
    if kind in (Laplace, Gaussian):
        return kind(point["z"], count=count, **sampling)
    if kind is LocalReports:
        return kind("m", point["epsilon"], count, n_users)
    if kind is ShuffledReports:
        # One candidate is a binary response, and several are a largest response.
        candidates = choose([1, int(points.between(0, 2 if point["usual"] else 9))])
        return kind(
            "m", point["epsilon"], int(points.between(0, 3)), n_users, choose([1.0, 0.5 + 0.5 / n_users]),
            neighboring=choose(["replace", "zero_out"]), n_candidates=candidates,
        )  # fmt: skip
    return kind("m", min(point["epsilon"], 1e150), neighboring="replace", sampling="none", count=count)


def composed(kind, event):
    """Return the account, or None if the accountant refuses with a named limit."""
    try:
        return kind().compose(event)
    except UnsupportedEventError:
        return None


def check_any(points, kinds=tuple(ALL)):
    point = points.parameters()
    event = any_event(point, points)
    for kind in kinds:
        accountant = composed(kind, event)
        if accountant is None:
            continue
        epsilon = accountant.get_epsilon(point["delta"])
        assert epsilon >= 0
        assert not point["usual"] or math.isfinite(epsilon)
        assert 0 <= accountant.get_delta(min(point["epsilon"], 1e300)) <= 1
        # Both results are of one account, so delta at that epsilon is the requested delta, except for different grids.
        if epsilon < 1e300 and point["usual"]:
            assert accountant.get_delta(epsilon * 1.00001) <= point["delta"] * 1.01


def test_every_account_ends_at_some_points():
    points = Points(460)
    for _ in range(150):
        check_any(points, [kind for kind in ALL if kind is not PLDAccountant])
    for _ in range(8):
        check_any(points)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_every_account_ends_at_many_points_and_needs_little_memory(seed):
    Points(seed + 100).check(check_any, 100)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MEMORY


# ---- compositions beside an independent convolution ------------------------------------------------------------------


def check_composition(points):
    """Check that the figure is between the optimistic and the pessimistic estimate of the public accountant."""
    from dp_accounting.pld import privacy_loss_distribution as peer

    z, q = points.between(-0.3, 1.3), points.between(-3, 0)
    count, delta = int(points.between(0, 4)), points.between(-12, -1)
    event = Gaussian(z, neighboring="add_remove", sampling="poisson", sampling_probability=q)
    epsilon = PLDAccountant().compose(event, count).get_epsilon(delta)
    if epsilon > 200:
        return
    bounds = [
        peer.from_gaussian_mechanism(
            z, sampling_prob=q, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4,
            use_connect_dots=pessimistic,
        ).self_compose(count).get_epsilon_for_delta(delta)
        for pessimistic in (False, True)
    ]  # fmt: skip
    assert bounds[0] * (1 - 1e-6) - 1e-4 <= epsilon
    assert epsilon <= CLOSE * bounds[1] + 1e-4 or epsilon <= CLOSE * bounds[0] + 1e-4


def exact_pure_delta(epsilon, uses, target):
    """Return the delta of randomized responses, the worst pure releases; the number of truthful ones is binomial."""
    with mpmath.workdps(60):
        truth_probability, target = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon))), mpmath.mpf(target)
        return mpmath.fsum(
            -math.comb(uses, k)
            * truth_probability**k
            * (1 - truth_probability) ** (uses - k)
            * mpmath.expm1(target - loss)
            for k in range(uses + 1)
            if (loss := (2 * k - uses) * mpmath.mpf(epsilon)) > target
        )


def check_pure_composition(points, fewer=0):
    """Check that the figure is at least the true value and within 1%, also for deltas below the transform's errors."""
    epsilon, uses, delta = points.between(-6, math.log10(5)), int(points.between(0.3, 2.5)), points.between(-60, -1)
    account = PLDAccountant().compose(LocalReports("m", epsilon, uses - fewer, 10))
    result = account.get_epsilon(delta)
    assert exact_pure_delta(epsilon, uses, result) <= delta
    assert not result or exact_pure_delta(epsilon, uses, result / CLOSE) > delta
    between = result * 0.7
    exact = exact_pure_delta(epsilon, uses, between)
    assert exact <= account.get_delta(between) <= 1.02 * exact


def test_pure_compositions_at_some_points():
    Points(4601).check(check_pure_composition, 12)


def test_the_check_of_pure_compositions_sees_a_use_that_was_dropped():
    points = Points(4601)
    for _ in range(3):
        with pytest.raises(AssertionError):
            check_pure_composition(points, fewer=1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_pure_compositions_at_many_points(seed):
    Points(seed + 3000).check(check_pure_composition, 100)


def test_compositions_at_some_points():
    Points(4600).check(check_composition, 6)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_compositions_at_many_points(seed):
    Points(seed + 1000).check(check_composition, 50)


def test_one_release_below_the_smallest_of_the_transforms_errors():
    """One release has a closed form, where transforms have no digits."""
    points = Points(7)
    for _ in range(30):
        z, q, delta = points.between(-0.5, 1.5), points.between(-6, 0), points.between(-14, -6)
        event = Gaussian(z, neighboring="add_remove", sampling="poisson", sampling_probability=q)
        epsilon = PLDAccountant().compose(event).get_epsilon(delta)
        if epsilon:
            exact = naive.sampled_delta(z, q, epsilon)
            assert exact <= delta
            assert naive.sampled_delta(z, q, epsilon * 0.99 - 1e-9) > delta or epsilon < 1e-6


def test_points_cover_the_range():
    points = Points(1)
    drawn = [points.parameters() for _ in range(500)]
    for name, low, high in (("epsilon", 1e-10, 1e290), ("q", 1e-16, 0.9), ("delta", 1e-290, 0.05), ("count", 2, 5e11)):
        values = np.array([float(point[name]) for point in drawn])
        assert values.min() < low < high < values.max()
