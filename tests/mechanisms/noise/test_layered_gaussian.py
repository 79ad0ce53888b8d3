"""Layered Gaussian noise: its variance, its distance from the normal, and its distribution."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.noise import layered_gaussian as naive
from scipy import stats
from support.significance import ALPHA

from fastfedrec import Key
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.mechanisms.noise import layered_gaussian as module

stddevs = st.floats(2.0**15, 2.0**56)

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stddev", "base", "top"), [(4, 2, 5.0), (6, 3, 4.5), (5, 2, 3.0)])
def test_two_layers_are_a_discrete_gaussian_within_the_stated_distance(monkeypatch, stddev, base, top):
    monkeypatch.setattr(module, "STDDEV", stddev)
    monkeypatch.setattr(module, "BASE", base)
    stated = float(module._layer_distance(Fraction(top) ** 2))
    actual = naive.distance_of_sum(top, base, stddev)
    assert actual <= stated + 1e-15  # double precision
    assert actual > stated / 20 - 1e-15  # and the bound is no larger than it must be


@pytest.mark.parametrize("stddev", [10.0, 33.3, 100.0])
def test_a_discrete_gaussian_is_a_rounded_normal_within_the_stated_distance(stddev):
    assert 1 / (64 * stddev**2) < naive.distance_of_rounding(stddev) < 1 / (32 * stddev**2)


def test_draws_equal_naive_twin():
    noise, key = LayeredGaussian(2**22), Key.from_seed(3)
    expected = naive.draws(noise, key, "test", 50)
    assert noise.sample(50, key=key, purpose="test").tolist() == expected


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(stddev=stddevs)
def test_it_is_never_narrower_than_requested_and_hardly_wider(stddev):
    noise = LayeredGaussian(stddev)
    assert Fraction(stddev) ** 2 <= noise._variance <= Fraction(stddev) ** 2 * (1 + Fraction(1, 10**6))
    assert noise.total_variation <= Fraction(1, 2**34)
    assert noise.noise_multiplier(2.0**20) <= Fraction(stddev) / 2**20


@given(stddev=stddevs, factor=st.floats(1.0, 1e3))
def test_wider_noise_is_nearer_to_normal_but_for_a_layer_more(stddev, factor):
    """DPGram's account of its draws depends on this."""
    wider = LayeredGaussian(min(factor * stddev, 2.0**56))
    assert wider.total_variation <= max(LayeredGaussian(stddev).total_variation, Fraction(1, 2**94))


@given(seed=st.integers(0, 99))
def test_sums_beyond_int64_stop_at_its_ends(seed):
    noise, key = LayeredGaussian(2**40), Key.from_seed(seed)
    ends = np.iinfo(np.int64)
    values = np.array([ends.min, 0, ends.max] * 20)
    exact = [int(v) + int(d) for v, d in zip(values, noise.sample(60, key=key, purpose="x"), strict=True)]
    got = noise.add_noise(values, key=key, purpose="x")
    assert got.tolist() == [min(max(s, ends.min), ends.max) for s in exact]
    assert noise.add_noise(values, key=key, purpose="x", out=values) is values
    assert values.tolist() == got.tolist()
    for order in "<>":
        unsigned = np.full(60, 2**64 - 1, dtype=f"{order}u8")
        assert noise.add_noise(unsigned, key=key, purpose="x").max() == ends.max


@given(stddev=stddevs)
def test_twice_the_largest_draw_fits_int64(stddev):
    # The kernel adds up layers as numbers from 0 to twice their reach.
    noise = LayeredGaussian(stddev)
    reach = 0
    for table in noise._tables:
        reach = module.BASE * reach + table.reach
    assert stddev < reach < 2**62


def test_delta_of_a_whole_matrix_is_negligible():
    assert 0 < LayeredGaussian(2**36).delta(4.0, n_draws=5 * 10**7) < 1e-13
    assert LayeredGaussian(2**36).epsilon == math.inf


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [1, 2**15 - 1, 2**57])
def test_bad_stddev(stddev):
    with pytest.raises(ValueError, match=r"stddev must be from 2\^15 to 2\^56"):
        LayeredGaussian(stddev)


def test_bad_values():
    with pytest.raises(TypeError, match="values must be integers"):
        LayeredGaussian(2**20).privatize([0.5], key=Key.from_seed(1))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stddev", [2.0**15, 1e8, 2.0**56])
def test_distribution_is_the_stated_one_and_no_other(stddev):
    draws = LayeredGaussian(stddev).sample(400_000, key=Key.from_seed(7), purpose="test") / stddev
    for factor in (1.0, 0.9, 1.1):
        assert (stats.kstest(draws, stats.norm(scale=factor).cdf).pvalue > ALPHA) == (factor == 1.0)
