"""Rounded Gaussian noise: its variance, its parameters, and its distribution; its table is in test_integer_noise.py."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.noise import rounded_gaussian as naive
from support.significance import assert_only, integers_are, mean_is

from fastfedrec import Key
from fastfedrec.mechanisms import LayeredGaussian, RoundedGaussian, gaussian_noise

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [Fraction(1, 2), 0.6, 1, 2.5, 40])
def test_variance_equals_sum_over_distribution(stddev):
    expected = 2 * math.fsum(x * x * naive.probability(x, stddev) for x in range(1, int(14 * stddev) + 4))
    assert math.isclose(RoundedGaussian(stddev).variance, expected, rel_tol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(stddev=st.floats(0.5, 50), sensitivity=st.floats(1e-3, 1e6))
def test_noise_multiplier_is_rounded_down(stddev, sensitivity):
    got = RoundedGaussian(stddev).noise_multiplier(sensitivity)
    exact = Fraction(stddev) / Fraction(sensitivity)
    assert Fraction(got) <= exact < Fraction(math.nextafter(got, math.inf))


def test_no_pure_epsilon():
    assert RoundedGaussian(5).epsilon == math.inf


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_remedies_of_widths_without_a_table_work():
    """Both classes name the function that takes their width, and neither names an argument that it lacks."""
    with pytest.raises(
        ValueError, match=r"stddev must be small enough .*, got 44798; use gaussian_noise\(stddev\), up to 2\^56"
    ) as bad:
        RoundedGaussian(44_798)
    assert "sampler" not in str(bad.value)
    with pytest.raises(ValueError, match=r"got 1000; use gaussian_noise\(stddev\), which takes any from 1/2$"):
        LayeredGaussian(1000)
    for stddev in (44_798, 1000):
        assert gaussian_noise(stddev).stddev == stddev
    for too_large in (LayeredGaussian, gaussian_noise):
        with pytest.raises(ValueError, match=r"got 1.44115e\+17; use a coarser grid$"):
            too_large(2**57)
    with pytest.raises(ValueError, match=r"stddev must be at least 1/2, got 0\.25"):
        gaussian_noise(0.25)


@given(exponent=st.floats(-1, 56))
def test_gaussian_noise_takes_every_width_with_the_class_of_the_smallest_distance(exponent):
    stddev = Fraction(2.0**exponent)
    noise = gaussian_noise(stddev)
    assert type(noise) is (LayeredGaussian if stddev >= 2**15 else RoundedGaussian)
    assert noise.stddev == stddev
    assert noise.total_variation <= Fraction(1, 2**34)


def test_bad_arguments():
    for stddev in (0, 0.4999, Fraction(49, 100)):
        with pytest.raises(ValueError, match="stddev must be at least 1/2"):
            RoundedGaussian(stddev)
    for stddev in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="stddev must be"):
            RoundedGaussian(stddev)
    with pytest.raises(ValueError, match="stddev must be small enough"):
        RoundedGaussian(10**5)
    with pytest.raises(ValueError, match="sensitivity must be greater than 0"):
        RoundedGaussian(1).noise_multiplier(0)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stddev", [Fraction(1, 2), 1, 3.5, 30])
def test_distribution_is_the_stated_one_and_no_other(stddev):
    draws = RoundedGaussian(stddev).sample(1_000_000, key=Key.from_seed(7), purpose="test")
    assert_only(lambda factor: integers_are(draws, lambda x: naive.probability(x, float(stddev) * factor)))


@pytest.mark.slow
def test_noisy_integers_are_unbiased_and_a_shift_is_seen():
    noise = RoundedGaussian(10)
    values = np.full(1_000_000, 7)
    noisy = noise.estimate(noise.privatize(values, key=Key.from_seed(8)))
    assert_only(lambda factor: mean_is(noisy, 7 * factor, math.sqrt(noise.variance)))
