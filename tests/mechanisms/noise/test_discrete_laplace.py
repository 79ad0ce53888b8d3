"""Discrete Laplace noise against the paper's algorithm on fractions and against the exact distribution."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.noise import discrete_laplace as naive
from support.significance import assert_only, integers_are

from fastfedrec import Key
from fastfedrec.mechanisms import DiscreteLaplace

SCALES = [Fraction(1, 3), 1, 2.5, Fraction(10) / Fraction(0.7), 40]

# ---- oracle ---------------------------------------------------------------------------------------------------------

scales = st.one_of(
    st.fractions(min_value=Fraction(1, 50), max_value=1000),
    st.floats(min_value=0.02, max_value=1e6),
    st.integers(min_value=1, max_value=2**80),
    # These scales exceed the kernel's integers, at the start or in the middle of a draw.
    st.builds(Fraction, st.integers(2**124, 2**130), st.integers(2**100, 2**130)),
)


@given(scale=scales, seed=st.integers(0, 2**32))
def test_draws_equal_naive_twin(scale, seed):
    key = Key.from_seed(seed)
    bits = naive.Bits(key, "test", 3)
    expected = [min(max(naive.draw(bits, scale), -(2**63)), 2**63 - 1) for _ in range(20)]
    assert DiscreteLaplace(scale).sample(20, key=key, purpose="test", round=3).tolist() == expected


def test_draws_continue_over_blocks_of_words():
    # 2,000 draws read more than 4,096 words.
    key = Key.from_seed(1)
    bits = naive.Bits(key, "test")
    expected = [naive.draw(bits, 2.5) for _ in range(2000)]
    assert bits.block > 1
    assert DiscreteLaplace(2.5).sample(2000, key=key, purpose="test").tolist() == expected


@pytest.mark.parametrize("scale", SCALES)
def test_variance_equals_sum_over_distribution(scale):
    s = float(scale)
    expected = 2 * sum(x * x * naive.probability(x, s) for x in range(1, int(60 * s) + 60))
    assert math.isclose(DiscreteLaplace(scale).variance, expected, rel_tol=1e-9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(scale=scales, sensitivity=st.one_of(st.integers(0, 1000), st.floats(0, 1000)))
def test_epsilon_is_exact_and_rounded_up(scale, sensitivity):
    noise = DiscreteLaplace(scale)
    exact = Fraction(sensitivity) / Fraction(scale)
    assert noise.exact_epsilon(sensitivity) == exact
    assert Fraction(noise.epsilon(sensitivity)) >= exact
    assert sensitivity == 0 or Fraction(math.nextafter(noise.epsilon(sensitivity), 0)) < exact


@given(epsilon=st.floats(1e-3, 20), q=st.integers(1, 10_000))
def test_scale_from_a_float_epsilon_costs_exactly_that(epsilon, q):
    assert DiscreteLaplace(Fraction(q) / Fraction(epsilon)).epsilon(q) == epsilon


def test_add_noise_is_the_sum_and_keeps_the_shape():
    noise, key = DiscreteLaplace(5), Key.from_seed(2)
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    noisy = noise.add_noise(values, key=key, purpose="test")
    assert noisy.dtype == np.int64
    np.testing.assert_array_equal(noisy - values, noise.sample(12, key=key, purpose="test").reshape(3, 4))


def test_sums_beyond_int64_saturate():
    ends = np.array([2**63 - 1] * 50)
    noise, key = DiscreteLaplace(5), Key.from_seed(2)
    noisy = noise.add_noise(ends, key=key, purpose="test")
    draws = noise.sample(50, key=key, purpose="test")
    assert (draws > 0).any()
    assert (draws < 0).any()
    np.testing.assert_array_equal(noisy, ends + np.minimum(draws, 0))
    above = np.array([2**63 + 2] * 50, dtype=np.uint64)
    expected = [min(2**63 + 2 + draw, 2**63 - 1) for draw in draws.tolist()]
    assert min(expected) < 2**63 - 1
    assert noise.add_noise(above, key=key, purpose="test").tolist() == expected
    assert set(DiscreteLaplace(2**200).sample(9, key=key, purpose="test").tolist()) == {2**63 - 1, -(2**63)}


def test_a_size_of_0_draws_no_words():
    assert DiscreteLaplace(1).sample(0, key=Key.from_seed(1), purpose="test").shape == (0,)
    assert DiscreteLaplace(1).add_noise(np.zeros((0, 3), dtype=int), key=Key.from_seed(1), purpose="x").shape == (0, 3)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf])
def test_bad_scales(scale):
    with pytest.raises(ValueError, match="scale must be"):
        DiscreteLaplace(scale)


def test_bad_samplers():
    with pytest.raises(ValueError, match="sampler must be one of 'exact', 'table', got 'fast'"):
        DiscreteLaplace(1, sampler="fast")


def test_bad_types():
    with pytest.raises(TypeError, match="scale must be a real number, got '2'"):
        DiscreteLaplace("2")
    with pytest.raises(TypeError, match="size must be an integer"):
        DiscreteLaplace(1).sample(2.0, key=Key.from_seed(1), purpose="test")
    with pytest.raises(TypeError, match="key must be Key, got int"):
        DiscreteLaplace(1).sample(2, key=1, purpose="test")
    with pytest.raises(TypeError, match="purpose must be str"):
        DiscreteLaplace(1).sample(2, key=Key.from_seed(1), purpose=3)
    with pytest.raises(TypeError, match="values must be integers, got dtype float64"):
        DiscreteLaplace(1).add_noise([0.5], key=Key.from_seed(1), purpose="test")
    with pytest.raises(ValueError, match="sensitivity must be at least 0"):
        DiscreteLaplace(1).epsilon(-1)


# ---- threads --------------------------------------------------------------------------------------------------------
# In test_mechanism_claims.py; the exact sampler runs on one thread.

# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "n"), [("exact", 200_000), ("table", 1_000_000)])
@pytest.mark.parametrize("scale", SCALES)
def test_distribution_is_the_stated_one_and_no_other(scale, sampler, n):
    draws = DiscreteLaplace(scale, sampler=sampler).sample(n, key=Key.from_seed(7), purpose="test")
    assert_only(lambda factor: integers_are(draws, lambda x: naive.probability(x, float(scale) * factor)))
