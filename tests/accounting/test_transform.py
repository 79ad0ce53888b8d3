"""Rounding changes a sum by FFT by less than its bound, and the bound is small enough to detect faults."""

import tracemalloc

import mpmath
import numpy as np
import pytest
import scipy

from fastfedrec.accounting import _transform
from fastfedrec.accounting._transform import convolve_masses, fast_length


def binomial(n, p, length):
    """Return the masses modulo `length`, exact to 40 digits."""
    masses = [mpmath.mpf(0)] * length
    with mpmath.workdps(60):
        p, mass = mpmath.mpf(p), mpmath.power(1 - mpmath.mpf(p), n)
        for k in range(n + 1):
            masses[k % length] += mass
            mass *= mpmath.mpf(n - k) / (k + 1) * p / (1 - p)
    return masses


def difference(masses, exact):
    return float(mpmath.fsum(abs(mpmath.mpf(float(a)) - b) for a, b in zip(masses, exact, strict=True)))


@pytest.mark.parametrize("n", [1, 2, 100, 5_000])
@pytest.mark.parametrize("p", [0.5, 0.015625])
@pytest.mark.parametrize("least", [60, 4096, 10_125])
def test_errors_are_below_their_bound(n, p, least):
    length = fast_length(least)
    masses, error = convolve_masses([(np.array([1 - p, p]), n)], length, 0)
    result = difference(masses, binomial(n, p, length))
    assert result <= error
    # Each use adds one error, in the Euclidean norm of a spectrum of this length.
    assert error <= 1e-13 * n * length**0.5


def test_a_transform_with_larger_errors_is_seen(monkeypatch):
    """The comparison fails for a transform with errors of a hundred times the bound."""
    rfft = scipy.fft.rfft
    monkeypatch.setattr(scipy.fft, "rfft", lambda x: rfft(x) * (1 + 1e-12))
    n, length = 5_000, 4096
    masses, error = convolve_masses([(np.array([0.5, 0.5]), n)], length, 0)
    assert difference(masses, binomial(n, 0.5, length)) > error


@pytest.mark.parametrize("length", [2, 30, 1000, 2**17, 3**10, 5**7])
def test_one_transform_is_within_its_part_of_the_bound(length):
    """The transform is compared with extended precision by value, and its inverse in the Euclidean norm."""
    rng = np.random.default_rng(length)
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("there is no extended precision here")
    unit = _transform.UNIT * _transform.PER_BIT * np.log2(length)
    for x in (rng.random(length), np.eye(1, length, length // 2)[0], rng.standard_normal(length) ** 3):
        exact = scipy.fft.rfft(x.astype(np.longdouble))
        assert np.abs(scipy.fft.rfft(x) - exact).max() <= unit * np.abs(x).sum()
        back = scipy.fft.irfft(exact.astype(complex), length)
        also = scipy.fft.irfft(exact.astype(complex).astype(np.clongdouble), length)
        assert np.linalg.norm((back - also).astype(float)) <= unit * np.linalg.norm(x)
    assert fast_length(length) == length


def test_powers_of_several_parts_and_a_shift():
    a, b = np.array([0.2, 0.3, 0.5]), np.array([0.9, 0.0, 0.1])
    expected_masses = np.convolve(np.convolve(a, a), b)
    masses, error = convolve_masses([(a, 2), (b, 1)], 8, 3)
    assert np.allclose(masses, np.roll(np.concatenate([expected_masses, [0.0]]), -3), atol=1e-14)
    assert error < 1e-12
    assert masses.min() >= 0


def test_no_mass_is_no_error():
    masses, error = convolve_masses([(np.zeros(4), 3)], 8, 0)
    assert not masses.any()
    assert error < 1e-100


def test_longer_sums_have_larger_bounds():
    bounds = [convolve_masses([(np.array([0.5, 0.5]), n)], 4096, 0)[1] for n in (1, 10**3, 10**6, 10**9, 10**12)]
    assert bounds == sorted(bounds)
    assert bounds[1] < 1e-9 < bounds[2] < 1e-5 < bounds[4] < 10


def test_memory_does_not_grow_with_the_number_of_parts():
    def peak(n_parts):
        tracemalloc.start()
        convolve_masses([(np.array([0.5, 0.5]), 10)] * n_parts, 2**16, 0)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)
    # The factor of one part takes half a MiB.
    assert peak(40) - peak(4) < 2**19
