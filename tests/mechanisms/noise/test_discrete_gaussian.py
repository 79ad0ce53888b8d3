"""Discrete Gaussian noise against the paper's algorithm on fractions and against the exact distribution."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms.noise import discrete_gaussian as naive
from support.significance import assert_only, integers_are

from fastfedrec import Key
from fastfedrec.mechanisms import DiscreteGaussian

STDDEVS = [Fraction(1, 2), 1, 3.5, 30]

# ---- oracle ---------------------------------------------------------------------------------------------------------

stddevs = st.one_of(
    st.fractions(min_value=Fraction(1, 50), max_value=1000),
    st.floats(min_value=0.02, max_value=1e6),
    st.integers(min_value=1, max_value=2**80),
)


@settings(max_examples=50)
@given(stddev=stddevs, seed=st.integers(0, 2**32))
def test_draws_equal_naive_twin(stddev, seed):
    key = Key.from_seed(seed)
    bits = naive.Bits(key, "test", 3)
    expected = [min(max(naive.draw(bits, stddev), -(2**63)), 2**63 - 1) for _ in range(5)]
    assert DiscreteGaussian(stddev).sample(5, key=key, purpose="test", round=3).tolist() == expected


@pytest.mark.parametrize("stddev", [Fraction(1, 20), 0.3, 0.99, 1, 1.01, 2.5, 40])
def test_variance_equals_sum_over_distribution(stddev):
    expected = 2 * math.fsum(x * x * naive.probability(x, stddev) for x in range(1, int(14 * stddev) + 4))
    assert math.isclose(DiscreteGaussian(stddev).variance, expected, rel_tol=1e-9, abs_tol=1e-80)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(stddev=stddevs, sensitivity=st.one_of(st.integers(0, 1000), st.floats(0, 1000)))
def test_rho_is_exact(stddev, sensitivity):
    noise = DiscreteGaussian(stddev)
    assert noise.rho(sensitivity) * 2 * Fraction(stddev) ** 2 == Fraction(sensitivity) ** 2
    assert noise.epsilon == math.inf


def test_renyi_divergence_of_a_shift_is_at_most_alpha_rho():
    # The theorem itself, numerically, with a control: 10% less noise breaks it.
    for stddev, shift in ((1, 1), (3.5, 2), (30, 30)):
        for alpha in (1.5, 2, 8):
            bound = alpha * float(DiscreteGaussian(stddev).rho(shift))
            for factor, is_bounded in ((1, True), (0.9, False)):
                xs = np.arange(-int(40 * stddev) - 50, int(40 * stddev) + 50 + shift)
                logp = -(xs**2) / (2 * (stddev * factor) ** 2)
                logq = -((xs - shift) ** 2) / (2 * (stddev * factor) ** 2)
                logz = math.log(np.exp(logp).sum())
                divergence = np.logaddexp.reduce(alpha * logp - (alpha - 1) * logq - logz) / (alpha - 1)
                assert (divergence <= bound * (1 + 1e-9)) == is_bounded


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [0, -1.0, math.nan, math.inf])
def test_bad_stddevs(stddev):
    with pytest.raises(ValueError, match="stddev must be"):
        DiscreteGaussian(stddev)


def test_bad_arguments():
    with pytest.raises(ValueError, match="sampler must be one of 'exact', 'table', got 'fast'"):
        DiscreteGaussian(1, sampler="fast")
    with pytest.raises(ValueError, match="sensitivity must be at least 0"):
        DiscreteGaussian(1).rho(-1)
    with pytest.raises(TypeError, match="stddev must be a real number, got '2'"):
        DiscreteGaussian("2")


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "n"), [("exact", 20_000), ("table", 1_000_000)])
@pytest.mark.parametrize("stddev", STDDEVS)
def test_distribution_is_the_stated_one_and_no_other(stddev, sampler, n):
    draws = DiscreteGaussian(stddev, sampler=sampler).sample(n, key=Key.from_seed(7), purpose="test")
    assert_only(lambda factor: integers_are(draws, lambda x: naive.probability(x, float(stddev) * factor)))
