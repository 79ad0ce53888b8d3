import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    LocalReports,
    PLDAccountant,
    RDPAccountant,
    ZCDPAccountant,
    _renyi,
)
from fastfedrec.accounting.rdp import ORDERS, poisson_divergence, without_replacement_divergence

# docs/explanation/accounting/sampling-without-replacement.md, "Figures": (N, M) -> RDP at z = 1, T = 1000, delta = 1e-6
WITHOUT_REPLACEMENT = {
    (4800, 5): 0.8794,
    (4800, 10): 1.0508,
    (4800, 20): 1.4254,
    (4800, 30): 1.8627,
    (760, 2): 1.1627,
    (760, 5): 1.9380,
    (760, 10): 3.6976,
    (760, 15): 5.6808,
}


def gaussian(z, **sampling):
    return Gaussian(z, **({"neighboring": "add_remove", "sampling": "none"} | sampling))


def poisson(z, q):
    return gaussian(z, sampling="poisson", sampling_probability=q)


def fixed(z, n, m):
    return gaussian(z, neighboring="replace", sampling="without_replacement", n_users=n, cohort_size=m)


# --- oracle ---


@pytest.mark.parametrize(("n", "m"), WITHOUT_REPLACEMENT)
def test_figures_of_the_page(n, m):
    epsilon = RDPAccountant().compose(fixed(1.0, n, m), 1000).get_epsilon(1e-6)
    assert epsilon == pytest.approx(WITHOUT_REPLACEMENT[n, m], abs=1e-4)


def poisson_oracle(order, q, z):
    """Return the mean of w^order - 1 - order (w - 1), which has a last term of mean 0, by quadrature."""
    with mpmath.workdps(40):
        order, q, z = (mpmath.mpf(value) for value in (order, q, z))

        def integrand(x):
            w = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * z**2))
            return mpmath.npdf(x, 0, z) * (w**order - 1 - order * (w - 1))

        edges = [-14 * z + (order + 2 + 28 * z) * i / 60 for i in range(61)]
        return mpmath.log1p(mpmath.quad(integrand, edges)) / (order - 1)


@pytest.mark.parametrize(
    ("order", "q", "z"),
    [
        (2, 0.01, 1.0), (5, 0.2, 0.8), (17, 0.05, 3.0), (64, 0.5, 5.0), (2, 1e-3, 1e3), (2, 1e-9, 30.0),
        (1.001, 0.1, 0.5), (1.05, 1e-7, 2.0), (1.5, 0.9, 0.4), (2.3, 1e-3, 100.0), (7.7, 0.3, 0.7), (10.9, 1e-12, 1.0),
        (1.1, 0.5, 0.1),
    ],
)  # fmt: skip
def test_poisson_is_not_below_quadrature_and_hardly_above(order, q, z):
    exact = poisson_oracle(order, q, z)
    assert exact <= poisson_divergence(order, q, z) <= exact * (1 + 1e-7)


def test_what_needs_too_many_points_is_bounded_by_whole_orders(monkeypatch):
    monkeypatch.setattr(_renyi, "_MAX_POINTS", 0)
    for order in (1.3, 2.7, 7.5):
        exact, bound = poisson_oracle(order, 0.1, 1.0), poisson_divergence(order, 0.1, 1.0)
        assert exact <= bound <= exact * 1.8


@pytest.mark.parametrize(
    ("order", "q", "z"), [(2, 0.01, 1.0), (1.5, 0.3, 0.7), (1.05, 1e-6, 3.0), (9, 0.05, 2.0), (40, 1e-3, 30.0)]
)
def test_without_replacement_is_the_divergence_of_its_pair(order, q, z):
    with mpmath.workdps(40):
        alpha, rate, noise = (mpmath.mpf(value) for value in (order, q, z))

        def g(v):
            return v**alpha - 1 - alpha * (v - 1)

        def integrand(x):
            w = 1 - rate + rate * mpmath.exp((2 * x - 1) / (2 * noise**2))
            return mpmath.npdf(x, 0, noise) * (g(w) + w * g(1 / w))

        edges = [mpmath.mpf(1) / 2 + (alpha + 2 + 14 * noise) * i / 60 for i in range(61)]
        exact = mpmath.log1p(mpmath.quad(integrand, edges)) / (alpha - 1)
    assert exact <= without_replacement_divergence(order, q, z) <= exact * 1.01


@pytest.mark.parametrize("z", [0.7, 2.0])
def test_laplace_against_quadrature(z):
    costs = RDPAccountant().compose(Laplace(z, neighboring="replace", sampling="none"))._costs
    (divergences,) = costs.values()
    for i in (3, 19, 25):
        order = float(ORDERS[i])

        def integrand(x, order=order):
            return mpmath.exp(-order * abs(x) / z - (1 - order) * abs(x - 1) / z) / (2 * z)

        exact = mpmath.log(mpmath.quad(integrand, [-mpmath.inf, 0, 1, mpmath.inf])) / (order - 1)
        assert divergences[i] == pytest.approx(float(exact), rel=1e-9)


@given(st.integers(2, 4000), st.floats(0.3, 50))
def test_poisson_with_everybody_is_no_sampling(order, z):
    assert poisson_divergence(order, 1.0, z) == pytest.approx(order / (2 * z**2), rel=1e-9)


def test_public_accountant_agrees():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    peer = RdpAccountant(orders=[float(order) for order in ORDERS if order >= 1.5])
    peer.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)), 2000)
    ours = RDPAccountant().compose(poisson(1.1, 0.01), 2000)
    assert ours.get_epsilon(1e-6) == pytest.approx(peer.get_epsilon(1e-6), rel=1e-6)


@pytest.mark.parametrize(
    ("q", "z", "count"),
    [(0.1, 0.5, 100), (0.01, 1.1, 2000), (1e-3, 1e3, 1), (0.5, 0.3, 1), (1e-4, 0.2, 100), (0.9, 50, 10)],
)
def test_never_above_the_public_accountant_with_its_own_orders(q, z, count):
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    peer = RdpAccountant().compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), count)
    ours = RDPAccountant().compose(poisson(z, q), count)
    for delta in (1e-3, 1e-6, 1e-10):
        assert ours.get_epsilon(delta) <= peer.get_epsilon(delta) * (1 + 1e-6)


def dense_divergence(order, z, densities):
    """Return the mean of r g(p / r) as a dense sum, at points 1/16 of a stddev apart, for much noise."""
    with mpmath.workdps(60):
        a, z, total = mpmath.mpf(order), mpmath.mpf(z), mpmath.mpf(0)
        for i in range(-16 * 24, int(16 * (24 + 2 * a / z))):
            p, r = densities(mpmath.mpf(i) / 16, z)
            total += mpmath.npdf(mpmath.mpf(i) / 16) * (p * (p / r) ** (a - 1) - r - a * (p - r))
        return mpmath.log1p(total / 16) / (a - 1)


@pytest.mark.parametrize(("order", "z"), [(4096 * 2**0.5, 100.0), (8192.0, 3e4), (1e6, 3e4), (1e7, 5e5)])
@pytest.mark.parametrize("q", [1e-3, 0.02, 0.6])
def test_large_orders_are_not_below_quadrature(order, z, q):
    def mixture(x, z):
        return 1 - q + q * mpmath.exp(x / z - 1 / (2 * z * z))

    orders = np.array([order])
    exact = dense_divergence(order, z, lambda x, z: (mixture(x, z), 1))
    assert exact <= poisson_divergence(min(order, 2**20), q, z) <= exact * (1 + 1e-6) or order > 2**20
    assert exact <= _renyi.divergence(_renyi.poisson_gaussian(orders, q, z)[0], order) <= exact * (1 + 1e-6)
    opposite = dense_divergence(order, z, lambda x, z: (mixture(x, z), mixture(-x, z)))
    assert opposite <= _renyi.divergence(_renyi.opposite_gaussian(orders, q, z)[0], order) <= opposite * 1.02
    assert exact <= _renyi.divergence(_renyi.fixed_size_gaussian(orders, q, z)[0], order) <= exact * 1.05


TINY = [
    gaussian(3e4),
    gaussian(1e5),
    gaussian(3e4, sampling="poisson", sampling_probability=0.01),
    fixed(3e4, 1000, 10),
    gaussian(1e3, neighboring="replace", sampling="poisson", sampling_probability=0.1, contribution=0.5),
    Laplace(1e7, neighboring="replace", sampling="none", count=100),
    CentralRelease("m", 1e-7, neighboring="replace", count=1000),
    CentralRelease("m", 1e-7, neighboring="replace", count=1000, n_choices=1),
]


@pytest.mark.parametrize("event", TINY)
@pytest.mark.parametrize("delta", [1e-8, 1e-10])
def test_tiny_divergences_are_not_held_up_by_the_largest_order(event, delta):
    renyi, exact = RDPAccountant().compose(event), PLDAccountant().compose(event)
    epsilon = exact.get_epsilon(delta)
    assert epsilon * (1 - 2e-9) <= renyi.get_epsilon(delta) <= 1.5 * epsilon
    # Control: the bound of orders up to 4,096 is much larger.
    assert -math.log(delta) / 4095 > 1.5 * epsilon
    assert exact.get_delta(epsilon) <= renyi.get_delta(epsilon)
    assert renyi.get_delta(renyi.get_epsilon(delta)) <= delta * (1 + 1e-6)


def test_a_mixture_with_zcdp_of_much_noise():
    zcdp = ZCDP("z", 1e-11, neighboring="replace", sampling="none")
    both = RDPAccountant().compose(zcdp).compose(fixed(1e5, 1000, 10), 50)
    zcdp_epsilon = ZCDPAccountant().compose(zcdp).get_epsilon(1e-8)
    assert zcdp_epsilon < both.get_epsilon(1e-8) < 1.2 * zcdp_epsilon


# --- invariants ---


@settings(max_examples=20)
@given(st.floats(0.5, 20), st.integers(2, 500), st.floats(0.01, 1))
def test_sampling_never_adds(z, n, share):
    m = max(1, int(share * n))
    for sampled in (poisson(z, m / n), fixed(z, n, m)):
        plain = gaussian(z, neighboring=sampled.neighboring)
        for delta in (1e-3, 1e-9):
            low = RDPAccountant().compose(sampled, 20).get_epsilon(delta)
            assert low <= RDPAccountant().compose(plain, 20).get_epsilon(delta) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_pure_mechanisms_are_bounded_by_their_epsilon_and_its_square(epsilon):
    (divergences,) = RDPAccountant().compose(LocalReports("m", epsilon, 1, 10))._costs.values()
    assert (divergences <= np.minimum(epsilon, ORDERS * epsilon**2 / 2) * (1 + 1e-9)).all()
    assert (np.diff(divergences) >= -1e-12).all()


@given(st.floats(0.5, 10), st.integers(1, 10_000), st.floats(1e-12, 0.1))
def test_plain_gaussian_is_close_to_zcdp(z, count, delta):
    rdp = RDPAccountant().compose(gaussian(z), count).get_epsilon(delta)
    zcdp = ZCDPAccountant().compose(gaussian(z), count).get_epsilon(delta)
    assert rdp >= zcdp * (1 - 1e-5) - 1e-6
    if 0.2 < zcdp < 20:
        assert rdp <= zcdp * 1.05


@pytest.mark.parametrize("sampled", [poisson, lambda z, q: fixed(z, 1000, int(1000 * q))])
def test_monotone_in_everything(sampled):
    def epsilon(z=1.0, q=0.02, count=100, delta=1e-6):
        return RDPAccountant().compose(sampled(z, q), count).get_epsilon(delta)

    base = epsilon()
    assert epsilon(z=1.1) < base < epsilon(z=0.9)
    assert epsilon(q=0.01) < base < epsilon(q=0.03)
    assert epsilon(count=90) < base < epsilon(count=110)
    assert epsilon(delta=1e-5) < base < epsilon(delta=1e-7)


def test_delta_undoes_epsilon():
    accountant = RDPAccountant().compose(poisson(1.0, 0.01), 1000)
    for delta in (1e-3, 1e-6, 1e-30):
        assert accountant.get_delta(accountant.get_epsilon(delta)) == pytest.approx(delta, rel=1e-6)
    assert accountant.get_delta(0.0) <= 1


@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 5.0, 800.0, 1e300])
def test_randomized_response_is_not_below_its_formula(epsilon):
    (divergences,) = RDPAccountant().compose(LocalReports("m", epsilon, 1, 10))._costs.values()
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        for i in (0, 20, 200, -1):
            a = mpmath.mpf(float(ORDERS[i]))
            exact = mpmath.log1p(mpmath.expm1((a - 1) * e) * -mpmath.expm1(-a * e) / (1 + mpmath.exp(-e))) / (a - 1)
            assert exact <= divergences[i] <= exact * (1 + 1e-8)


@pytest.mark.parametrize("scale", [1e-3, 0.7, 40.0, 1e6, 1e12])
def test_laplace_is_not_below_its_formula(scale):
    (divergences,) = RDPAccountant().compose(Laplace(scale, neighboring="replace", sampling="none"))._costs.values()
    with mpmath.workdps(60):
        s = mpmath.mpf(scale)
        for i in (0, 20, 200, -1):
            a = mpmath.mpf(float(ORDERS[i]))
            moment = (a * mpmath.exp((a - 1) / s) + (a - 1) * mpmath.exp(-a / s)) / (2 * a - 1)
            exact = mpmath.log(moment) / (a - 1)
            assert exact <= divergences[i] <= exact * (1 + 1e-6)


def test_pure_events_cost_at_most_their_sum():
    reports = LocalReports("m", 0.5, 3, 10)
    assert RDPAccountant().compose(reports).get_epsilon(1e-9) == 1.5
    assert RDPAccountant().compose(reports, 10_000).get_epsilon(1e-9) < 15_000


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("x", [5e-324, 1e-310, 1e-160, 1e-17, 1.0, 700.0, 1e17, 1e155, 1e308])
@pytest.mark.parametrize("count", [1, 10**12, 2**63 - 1])
def test_extreme_events_end_in_a_figure_without_a_warning(x, count):
    none = {"neighboring": "replace", "sampling": "none", "count": count}
    sampled = {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": 1e-300, "count": count}
    everybody = none | {"sampling": "without_replacement", "n_users": 10, "cohort_size": 10}
    events = [LocalReports("m", x, count, 10), ZCDP("m", x, **none), DiscreteGaussianRelease(x, 1, **none)]
    events += [kind(x, **fields) for kind in (Gaussian, Laplace) for fields in (none, sampled, everybody)]
    events += [CentralRelease("m", x, **fields) for fields in (none, sampled, everybody)]
    for event in events:
        accountant = RDPAccountant().compose(event)
        for delta in (5e-324, 1e-12, 1 - 2.0**-53):
            epsilon = accountant.get_epsilon(delta)
            assert epsilon >= 0
            assert 0 <= accountant.get_delta(min(epsilon, 1e300)) <= 1


@pytest.mark.parametrize("divergence", [poisson_divergence, without_replacement_divergence])
def test_extreme_orders_and_rates(divergence):
    # Every sample is empty.
    assert divergence(3.0, 0.0, 2.0) == 0.0
    assert 0 < divergence(2.0**20, 0.5, 2.0) <= 2.0**20 / 8 * 2 * 1.001  # at most the divergence without sampling
    for order in (2.0**20 * 1.01, 1e300, 1.7e308):
        with pytest.raises(ValueError, match=r"order must be at most 1048576\.0"):
            divergence(order, 0.5, 2.0)
    with pytest.raises(ValueError, match=r"order must be greater than 1.0, got 1.0"):
        divergence(1.0, 0.5, 2.0)
