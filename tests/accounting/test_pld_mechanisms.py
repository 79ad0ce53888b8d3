"""Tests of privacy loss distributions of discrete Gaussian and of Laplace noise."""

import math

import mpmath
import numpy as np
import pytest

from fastfedrec.accounting import (
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    PLDAccountant,
    UnsupportedEventError,
    ZCDPAccountant,
)


def poisson(z, q, kind=Gaussian, **fields):
    return kind(z, neighboring="add_remove", sampling="poisson", sampling_probability=q, **fields)


def pld(event, count=1):
    return PLDAccountant().compose(event, count)


def discrete_gaussian_delta(stddev, sensitivity, uses, epsilon):
    """Return delta of `uses` releases by convolution; their loss depends only on the sum of their outputs."""
    half = int(13 * stddev) + 2
    x = np.arange(-half, half + 1.0)
    noise = np.exp(-x * x / (2 * stddev**2))
    noise /= noise.sum()
    total, points = noise, x
    for _ in range(uses - 1):
        total = np.convolve(total, noise)
    # Sum of the outputs, less uses * sensitivity.
    points = np.arange(len(total)) - uses * half
    losses = sensitivity * (2 * points + uses * sensitivity) / (2 * stddev**2)
    return float((total * np.maximum(0, -np.expm1(np.minimum(0, epsilon - losses)))).sum())


@pytest.mark.parametrize(("stddev", "sensitivity"), [(0.6, 1), (1.5, 1), (4.0, 3), (20.0, 50), (1.0, 2)])
@pytest.mark.parametrize("uses", [1, 2, 9])
def test_discrete_gaussian_is_the_convolution(stddev, sensitivity, uses):
    event = DiscreteGaussianRelease(stddev, sensitivity, neighboring="replace", sampling="none")
    ours, zcdp = pld(event, uses), ZCDPAccountant().compose(event, uses)
    for delta in (1e-2, 1e-5, 1e-7):
        epsilon = ours.get_epsilon(delta)
        assert epsilon < zcdp.get_epsilon(delta)
        assert discrete_gaussian_delta(stddev, sensitivity, uses, epsilon) <= delta
        assert discrete_gaussian_delta(stddev, sensitivity, uses, epsilon * 0.99) > delta
    assert ours.get_epsilon(1e-12) < zcdp.get_epsilon(1e-12)


@pytest.mark.parametrize(("stddev", "sensitivity"), [(1e-200, 1), (5e-324, 10**18), (1e-3, 5), (1e4, 10**9)])
def test_extreme_discrete_gaussians_end_in_a_figure(stddev, sensitivity):
    event = DiscreteGaussianRelease(stddev, sensitivity, neighboring="replace", sampling="none", count=10**6)
    assert pld(event).get_epsilon(1e-6) > 1e5
    assert 0 <= pld(event).get_delta(1.0) <= 1


def test_discrete_gaussian_of_too_many_points_is_refused_by_name():
    event = DiscreteGaussianRelease(1e9, 1, neighboring="replace", sampling="none")
    with pytest.raises(UnsupportedEventError, match="stddev must be at most 32768 here, got 1e\\+09; use ZCDPAcc"):
        pld(event)
    with pytest.raises(ValueError, match="sensitivity must be at least 1"):
        DiscreteGaussianRelease(1.0, 0, neighboring="replace", sampling="none")


@pytest.mark.parametrize("z", [0.5, 2.0])
def test_one_laplace_release_is_the_closed_form(z):
    total = pld(Laplace(z, neighboring="replace", sampling="none"))
    for epsilon in (0.0, 0.2 / z, 0.9 / z):
        exact = -math.expm1((epsilon - 1 / z) / 2)
        assert exact <= total.get_delta(epsilon) <= exact + 1e-6
    assert total.get_delta(1 / z) == 0
    assert total.get_epsilon(1e-12) == 1 / z


def test_two_laplace_releases_against_quadrature():
    z, q, epsilon = 1.0, 0.25, 0.3

    def noise(x):
        return mpmath.exp(-abs(x) / z) / (2 * z)

    def mixture(x):
        return (1 - q) * noise(x) + q * noise(x - 1)

    # Given the first release, the delta of the second is a closed form with a shifted epsilon.
    def tail(x):
        shifted = float(epsilon - mpmath.log(mixture(x) / noise(x)))
        return mixture(x) * one_release(shifted)

    def one_release(excess):
        low, high = math.log(1 - q + q * math.exp(-1 / z)), math.log(1 - q + q * math.exp(1 / z))
        if excess <= low:
            return 1 - math.exp(excess)
        if excess >= high:
            return 0.0
        base = math.log1p(math.expm1(excess) / q)
        above = 1 - math.exp((base - 1 / z) / 2) / 2, math.exp(-(base + 1 / z) / 2) / 2
        return (1 - q) * above[1] + q * above[0] - math.exp(excess) * above[1]

    exact = float(mpmath.quad(tail, [-mpmath.inf, -4, 0, 0.25, 0.5, 0.75, 1, 5, mpmath.inf]))
    (removed, _) = pld(poisson(z, q, Laplace), 2)._totals()
    assert exact * (1 - 1e-6) <= removed.delta(epsilon) <= exact + 2e-6


def test_laplace_agrees_with_dp_accounting():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant as Peer

    for q in (1.0, 0.1):
        peer = Peer().compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.LaplaceDpEvent(3.0)), 20)
        ours = pld(poisson(3.0, q, Laplace), 20)
        assert ours.get_epsilon(1e-6) == pytest.approx(peer.get_epsilon(1e-6), abs=1e-3)
