import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import Gaussian, Laplace, LocalReports, RDPAccountant, ZCDPAccountant
from fastfedrec.accounting.rdp import ORDERS, poisson_divergence, without_replacement_divergence

# design page on sampling without replacement, "Figures": (N, M) -> RDP at z = 1, T = 1000, delta = 1e-6
WITHOUT_REPLACEMENT = {
    (4800, 5): 0.899,
    (4800, 10): 1.155,
    (4800, 20): 1.709,
    (4800, 30): 2.446,
    (760, 2): 1.275,
    (760, 5): 2.588,
    (760, 10): 5.431,
    (760, 15): 8.511,
}


def gaussian(z, **sampling):
    return Gaussian(z, **({"neighboring": "add_remove", "sampling": "none"} | sampling))


def poisson(z, q):
    return gaussian(z, sampling="poisson", sampling_probability=q)


def fixed(z, n, m):
    return gaussian(z, neighboring="replace", sampling="without_replacement", n_users=n, cohort_size=m)


# --- oracle ---


@pytest.mark.parametrize(("n", "m"), WITHOUT_REPLACEMENT)
def test_figures_of_the_design_page(n, m):
    epsilon = RDPAccountant().compose(fixed(1.0, n, m), 1000).get_epsilon(1e-6)
    assert epsilon == pytest.approx(WITHOUT_REPLACEMENT[n, m], abs=6e-4)


@pytest.mark.parametrize(("order", "q", "z"), [(2, 0.01, 1.0), (5, 0.2, 0.8), (17, 0.05, 3.0), (64, 0.5, 5.0)])
def test_poisson_against_quadrature(order, q, z):
    mpmath = pytest.importorskip("mpmath", reason="the quadrature needs mpmath")
    with mpmath.workdps(40):

        def integrand(x):
            ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * mpmath.mpf(z) ** 2))
            return mpmath.npdf(x, 0, z) * ratio**order

        edges = [-12 * z, *np.linspace(-6 * z, order + 6 * z, 40).tolist(), order + 14 * z]
        exact = mpmath.log(mpmath.quad(integrand, edges)) / (order - 1)
    assert poisson_divergence(order, q, z) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("z", [0.7, 2.0])
def test_laplace_against_quadrature(z):
    mpmath = pytest.importorskip("mpmath", reason="the quadrature needs mpmath")
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
    pytest.importorskip("dp_accounting", reason="the comparison needs dp-accounting")
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    peer = RdpAccountant(orders=[int(order) for order in ORDERS if order >= 2])
    peer.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)), 2000)
    ours = RDPAccountant().compose(poisson(1.1, 0.01), 2000)
    assert ours.get_epsilon(1e-6) == pytest.approx(peer.get_epsilon(1e-6), rel=1e-6)


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


def test_without_replacement_is_the_stated_theorem():
    # Theorem 9 of Wang, Balle and Kasiviswanathan, written out for order 3 without logarithms
    q, z = 0.1, 1.3
    second, third = math.exp(2 / (2 * z**2)), math.exp(2 * 3 / (2 * z**2))
    inside = 1 + 3 * q**2 * min(4 * (second - 1), 2 * second) + 2 * q**3 * third
    assert without_replacement_divergence(3, q, z) == pytest.approx(math.log(inside) / 2, rel=1e-12)
