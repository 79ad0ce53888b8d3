"""Skellam noise against the difference of Poisson variables, its sums and shares, and the audit of its claim."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.noise import integer_noise as naive_tables
from naive.mechanisms.noise import skellam as naive
from support.significance import assert_only, integers_are

from fastfedrec import Key
from fastfedrec.core.bessel import bessel_weights
from fastfedrec.mechanisms import Skellam

VARIANCES = [Fraction(1, 1000), Fraction(1, 3), 1, 2.5, 40, Fraction(1234, 3)]


def thresholds_of(noise):
    (table,) = noise._tables
    return [
        (int(high) << 64) | int(low) for high, low in zip(table.high[:-1], table.low[:-1], strict=True)
    ], table.reach


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
def test_bessel_functions_are_sums_over_pairs_of_poisson_variables(variance):
    variance = Fraction(variance)
    for a, b in zip(naive.probabilities(variance, 6), naive.pairs(variance, 6), strict=True):
        assert abs(a - b) < mpmath.mpf(10) ** -50 * a


@pytest.mark.parametrize("variance", VARIANCES)
def test_weights_are_within_their_error(variance):
    variance = Fraction(variance)
    weights = bessel_weights(variance, 256, 128)
    assert weights[-1] < 2**128 <= weights[-2]
    with mpmath.workdps(100):
        exact = mpmath.mpf(variance.numerator) / variance.denominator
        first = mpmath.besseli(0, exact)
        for x, weight in enumerate(weights):
            assert abs(mpmath.besseli(x, exact) / first * 2**256 - weight) <= 2 * x + 2
        # A control: a variance that is off by one part in 2^90 changes the second weight by more.
        other = exact * (1 + mpmath.mpf(2) ** -90)
        assert abs(mpmath.besseli(1, other) / mpmath.besseli(0, other) * 2**256 - weights[1]) > 2**64


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_table_is_within_the_stated_distance_and_perturbed_ones_are_not(variance):
    noise = Skellam(variance)
    thresholds, reach = thresholds_of(noise)

    def distance(factor):
        ideal = naive.probabilities(Fraction(variance) * factor, reach + 40)
        with mpmath.workdps(60):
            edges = [mpmath.mpf(edge) / 2**128 for edge in (0, *thresholds, 2**128)]
            masses = [b - a for a, b in itertools.pairwise(edges)]
            inside = mpmath.fsum(abs(m - ideal[abs(x - reach)]) for x, m in enumerate(masses))
            return (inside + 2 * mpmath.fsum(ideal[reach + 1 :])) / 2

    stated = mpmath.mpf(noise.total_variation.numerator) / noise.total_variation.denominator
    assert distance(1) <= stated < 1e-34
    for factor in (Fraction(9, 10), Fraction(11, 10), 1 + Fraction(1, 10**28)):
        assert distance(factor) > stated


@given(seed=st.integers(0, 2**32), n=st.integers(0, 60))
def test_draws_equal_naive_twin(seed, n):
    noise, key = Skellam(Fraction(70, 3)), Key.from_seed(seed)
    thresholds, reach = thresholds_of(noise)
    words = key.words("test", round=5, size=n).tolist()
    expected = [naive_tables.draw(thresholds, reach, word << 64) for word in words]
    assert noise.sample(n, key=key, purpose="test", round=5).tolist() == expected


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_large_variance_is_a_sum_of_parts_with_separate_streams():
    noise, key = Skellam(2**28 + 1), Key.from_seed(3)
    part = Skellam(noise.variance / 2)
    assert 2**28 + 1 <= noise.variance <= (2**28 + 1) * (1 + Fraction(1, 10**5))
    expected = sum(part.sample(9, key=key, purpose=f"test.{number}") for number in range(2))
    assert noise.sample(9, key=key, purpose="test").tolist() == expected.tolist()
    assert noise.total_variation == 2 * part.total_variation
    # Sums at the ends of int64 saturate once.
    values = np.array([2**63 - 1, -(2**63), 5] * 3)
    got = noise.add_noise(values, key=key, purpose="test")
    exact = [
        min(max(int(value) + int(draw), -(2**63)), 2**63 - 1) for value, draw in zip(values, expected, strict=True)
    ]
    assert got.tolist() == exact


@given(n_nodes=st.integers(1, 10**6), data=st.data())
def test_counted_shares_add_up_to_the_noise(n_nodes, data):
    n_answers = data.draw(st.integers(0, n_nodes))
    honest_fraction = data.draw(st.floats(0.01, 1))
    n_shares = max(0, n_answers - (n_nodes - int(honest_fraction * n_nodes)))
    noise = Skellam(2**20)
    arguments = {"n_nodes": n_nodes, "n_answers": n_answers, "honest_fraction": honest_fraction}
    if n_shares:
        assert noise.share(**arguments).variance * n_shares == noise.variance
    else:
        with pytest.raises(ValueError, match="n_answers must be above the number of nodes that may be dishonest"):
            noise.share(**arguments)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variance", "remedy"), [(0, "finer"), (2.0**-11, "finer"), (2**35, "coarser")])
def test_bad_variances(variance, remedy):
    with pytest.raises(
        ValueError, match=rf"variance must be from 2\^-10 to 2\^34, got .*; put the values on a {remedy}"
    ):
        Skellam(variance)


def test_bad_types():
    with pytest.raises(TypeError, match="variance must be a real number, got '2'"):
        Skellam("2")
    with pytest.raises(ValueError, match="variance must be"):
        Skellam(math.nan)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 3), 4, 900])
def test_distribution_is_the_stated_one_and_no_other(variance):
    draws = Skellam(variance).sample(1_000_000, key=Key.from_seed(7), purpose="test")

    def masses(factor):
        exact = naive.probabilities(Fraction(variance) * Fraction(factor) ** 2, 400)
        return lambda x: float(exact[abs(x)]) if abs(x) < len(exact) else 0.0

    assert_only(lambda factor: integers_are(draws, masses(factor)))


@pytest.mark.slow
def test_the_sum_of_shares_is_noise_of_the_total_variance_and_no_other():
    share = Skellam(900).share(n_nodes=40, n_answers=38, honest_fraction=0.75)  # 28 shares count
    key = Key.from_seed(8)
    draws = sum(share.sample(200_000, key=key, purpose="test", round=node) for node in range(28))
    exact = {factor: naive.probabilities(Fraction(900) * Fraction(factor) ** 2, 400) for factor in (0.9, 1, 1.1)}
    assert_only(lambda factor: integers_are(draws, lambda x: float(exact[factor][abs(x)])))
