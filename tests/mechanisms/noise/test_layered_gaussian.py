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


@pytest.mark.parametrize("stddev", [0.6, 0.8, 1.0])
def test_a_sum_of_two_shares_is_a_discrete_gaussian_within_the_stated_distance(stddev):
    stated = 5 * math.exp(-((math.pi * stddev) ** 2))
    assert stated / 50 < naive.distance_of_sum(stddev, 1, stddev) < stated
    # The smallest share is far wider than these, and its distance below any float.
    assert (math.pi * 2**15) ** 2 / math.log(2) - math.log2(5) > 1000
    assert Fraction(1, 2**1000) == module._JOIN_DISTANCE


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


@given(stddev=st.floats(2.0**30, 2.0**50), n_nodes=st.integers(1, 10**6), fraction=st.floats(0.4, 1.0), data=st.data())
def test_counted_gaussian_shares_add_up_to_the_noise(stddev, n_nodes, fraction, data):
    n_answers = data.draw(st.integers(n_nodes - int(0.3 * n_nodes), n_nodes))
    n_counted = n_answers - (n_nodes - int(fraction * n_nodes))
    if n_counted < 1:
        return
    share = LayeredGaussian(stddev).share(n_nodes=n_nodes, n_answers=n_answers, honest_fraction=fraction)
    total = n_counted * share.stddev**2
    assert Fraction(stddev) ** 2 <= total <= Fraction(stddev) ** 2 * (1 + Fraction(1, 2**30))
    assert share.sum_of(n_counted).stddev >= stddev
    assert total <= share.sum_of(n_counted).stddev ** 2 <= total * (1 + Fraction(1, 2**30))


@given(stddev=stddevs)
def test_the_distance_of_a_noise_is_that_of_its_tables(stddev):
    noise = LayeredGaussian(stddev)
    assert "_tables" not in vars(noise)  # a plan needs the distance alone
    distances = [table.total_variation for table in noise._tables]
    joins = (len(distances) - 1) * 5 * Fraction(math.exp(-19.7 * 3.4))  # an upper bound
    assert 0 <= noise.total_variation - sum(distances) - 1 / (32 * noise.stddev**2) <= joins


@pytest.mark.parametrize("n_shares", [1, 7, 10**6])
def test_the_distance_of_shares_covers_each_share_and_one_rounding(n_shares):
    noise = LayeredGaussian(2.0**40)
    tables = sum(table.total_variation for table in noise._tables)
    layers = (len(noise._tables) - 1) * 5 * Fraction(math.exp(-19.7 * 3.4))  # an upper bound
    stated = Fraction(noise.total_variation_of_shares(1000, n_shares))
    rounding = 1 / (32 * noise.stddev**2)
    assert 1000 * (n_shares * tables + rounding) <= stated <= 1000 * (n_shares * (tables + layers) + rounding) * 2
    assert stated >= noise.total_variation_of(1000)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [1, 2**15 - 1, 2**57])
def test_bad_stddev(stddev):
    with pytest.raises(ValueError, match=r"stddev must be from 2\^15 to 2\^56"):
        LayeredGaussian(stddev)


def test_bad_shares():
    with pytest.raises(ValueError, match="n_answers must be above the number of nodes that may be dishonest, got 30"):
        LayeredGaussian(2**40).share(n_nodes=100, n_answers=30, honest_fraction=0.7)
    with pytest.raises(ValueError, match="stddev must be from 2\\^15"):
        LayeredGaussian(2**15).share(n_nodes=100, n_answers=95, honest_fraction=0.7)
    for call in (LayeredGaussian(2**20).sum_of, lambda n: LayeredGaussian(2**20).total_variation_of_shares(1, n)):
        with pytest.raises(ValueError, match="n_shares must be at least 1"):
            call(0)


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


@pytest.mark.slow
@pytest.mark.parametrize("n_added", [4, 5, 6])
def test_shares_of_nodes_have_the_distribution_of_one_draw_of_their_sum(n_added):
    share = LayeredGaussian(2.0**22)
    parts = [share.sample(400_000, key=Key.from_seed(node), purpose="test") for node in range(n_added)]
    # Four or six shares are noise of another size.
    samples = share.sum_of(5).sample(400_000, key=Key.from_seed(9), purpose="test"), sum(parts)
    assert (stats.ks_2samp(*samples).pvalue > ALPHA) == (n_added == 5)
