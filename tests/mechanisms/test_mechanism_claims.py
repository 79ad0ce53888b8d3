"""Tests of claims that all mechanisms share: epsilon, decoders, and separate streams per round, purpose and key.

The tests use the output of `privatize` and `add_noise`, not the attributes of a mechanism.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from support.mechanism_table import GRID, MAKERS, NOISES, ORACLES, RANDOMIZERS, REALS, WAYS, class_of, values_of
from support.noise_case import unrelated
from support.significance import assert_only, counts_are, mean_is, tilted

from fastfedrec import Key
from fastfedrec import mechanisms as m
from fastfedrec.mechanisms.noise.layered_gaussian import BASE, STDDEV
from fastfedrec.mechanisms.noise.noise_table import split_words, tabulate

#: Worst-case variance on [0, 1] for 5 values: design page privacy.md, "Ratings on a grid", with its digits.
VARIANCES = {
    "OptimalKary": ("4.00", "0.995", "0.214", "0.074", "0.030"),
    "TruncatedGeometric": ("4.68", "1.31", "0.38", "0.18", "0.10"),
    "GRR": ("10.3", "2.15", "0.37", "0.107", "0.036"),
    "Piecewise": ("5.31", "1.31", "0.31", "0.12", "0.060"),
    "Hybrid": ("4.17", "1.07", "0.26", "0.108", "0.055"),
}


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("name", RANDOMIZERS)
def test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one(name, epsilon):
    """The check uses rationals and logarithms of 80 digits; epsilon is close to nominal up to rounding."""
    mechanism = RANDOMIZERS[name](epsilon)
    ratio = Fraction(mechanism.likelihood_ratio)
    with mpmath.workdps(80):
        exact = mpmath.log(mpmath.mpf(ratio.numerator) / mpmath.mpf(ratio.denominator))
        assert exact <= mpmath.mpf(epsilon)
        assert exact <= mpmath.mpf(mechanism.epsilon) <= mpmath.mpf(epsilon)
    assert mechanism.epsilon > 0.9 * epsilon


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_rounds_and_keys_of_every_randomizer_are_apart(name):
    mechanism, values = RANDOMIZERS[name](0.1), values_of(name, 2000)
    first, repeated, other_round, other_key = (
        np.asarray(mechanism.privatize(values, key=Key.from_seed(seed), round=number)).astype(float).ravel()
        for seed, number in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    assert (first == repeated).all()
    for other in (other_round, other_key):
        chance = np.mean(np.roll(first, 5 * (first.size // len(values))) == first)
        assert np.mean(first == other) < chance + 0.1


@pytest.mark.parametrize("name", VARIANCES)
def test_worst_variance_is_the_design_pages(name):
    for epsilon, stated in zip((0.5, 1.0, 2.0, 3.0, 4.0), VARIANCES[name], strict=True):
        mechanism = m.GRR(epsilon, 5).channel() if name == "GRR" else RANDOMIZERS[name](epsilon)
        if name in REALS:
            variance = max(mechanism.variance(t) for t in np.linspace(-1, 1, 5)) / 2**2
        else:
            variance = mechanism.worst_variance / 4**2
        assert abs(variance - Fraction(stated)) <= 0.51 * 10.0 ** -len(stated.partition(".")[2])


def test_every_mechanism_that_randomizes_is_listed():
    randomizers = {name for name in m.__all__ if hasattr(getattr(m, name), "privatize")}
    listed = set(map(class_of, WAYS))
    assert listed == randomizers, "each has an `_example`, or a line in tests/support/mechanism_table.py"


@pytest.mark.parametrize("name", WAYS)
def test_an_entropy_key_serves_one_call_of_any_way_to_randomize(name):
    key = Key.from_entropy()
    WAYS[name](key)
    for repeated in (name, "BinaryResponse", "DiscreteLaplace"):
        with pytest.raises(ValueError, match=f"key is single-use and was already used by {name.split()[0]}"):
            WAYS[repeated](key)


@pytest.mark.parametrize("name", NOISES)
def test_names_separate_rounds_purposes_and_keys_of_every_noise(name):
    """No draw occurs twice, at any shift of positions."""
    noise = NOISES[name]()
    draws = {
        (seed, purpose, number): noise.add_noise(
            np.zeros(4000, np.int64), key=Key.from_seed(seed), purpose=purpose, round=number
        ).astype(float)
        for seed, purpose, number in ((1, "a", 0), (2, "a", 0), (1, "ab", 0), (1, "a", 1), (1, "a.1", 0))
    }
    names = list(draws)
    for position, one in enumerate(names):
        for other in names[position:]:
            first, second = [draws[one]], [draws[other]]
            assert unrelated(first, first if one == other else second), (one, other)


def test_the_distance_of_layers_is_that_of_all_its_parts():
    """The distance includes Peikert's sum over the common lattice, the tables' distances, and a rounded normal's."""
    noise = m.LayeredGaussian(2**36)
    layers, variance = 0.0, Fraction(2**36) ** 2
    while variance > 2048**2:
        variance = (variance - STDDEV**2) / BASE**2
        tau_squared = 1 / ((BASE / STDDEV) ** 2 + 1 / float(variance))
        layers += 2 * math.exp(-2 * math.pi**2 * tau_squared)
    remaining_distance = (
        noise.total_variation - sum(table.total_variation for table in noise._tables) - Fraction(1, 32 * 2**72)
    )
    assert remaining_distance >= Fraction(layers) > 0


def test_the_distance_of_a_table_pays_for_the_tail_beyond_it():
    """The table cuts a geometric distribution at a tail of one thousandth."""
    reach = 10
    table = tabulate(np.array([split_words(2 ** (250 - k), 5) for k in range(reach + 2)]), 0)
    tail = Fraction(2 * sum(2 ** (250 - k) for k in range(reach + 1, 251)), 3 * 2**250)
    assert Fraction(1, 10_000) < tail <= table.total_variation


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RANDOMIZERS, *NOISES])
def test_draws_do_not_depend_on_threads(name):
    mechanism, values = MAKERS[name](), values_of(name, 200_000)
    for way in (mechanism.privatize, mechanism.privatize_support) if name == "OUE" else (mechanism.privatize,):
        one, four = (way(values, key=Key.from_seed(4), n_threads=n) for n in (1, 4))
        np.testing.assert_array_equal(one, four)


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RANDOMIZERS if name not in ORACLES])
def test_every_decoder_is_unbiased_on_reports(name):
    mechanism = RANDOMIZERS[name](3.0)
    if name in REALS:
        cases = [(t, t) for t in (-1.0, 0.5, 1.0)]
    else:
        cases = [(x, float(mechanism.inputs[x])) for x in range(len(mechanism.inputs))]
    for value, expected in cases:
        reports = mechanism.privatize(np.full(200_000, value), key=Key.from_seed(3))
        decoded = mechanism.estimate(reports)
        stddev = decoded.std()
        assert mean_is(decoded, expected, stddev)
        off = 0.1 * max(abs(expected), 1.0)
        assert not mean_is(decoded + off, expected, stddev)
        assert not mean_is(decoded - off, expected, stddev)


@pytest.mark.slow
@pytest.mark.parametrize("x", [0, 3])
@pytest.mark.parametrize(
    ("kind", "epsilons"),
    [
        (m.SerialLaplaceRR, (2, 2)),
        (m.MixtureLaplaceRR, (1, 1)),
        (m.RoundedLaplace, (2,)),
        (m.OptimalKary, (2,)),
        (m.BayesKary, (2,)),
        (m.TruncatedGeometric, (2,)),
    ],
)
def test_shares_and_mean_of_reports_are_the_stated_ones(kind, epsilons, x):
    channel = kind(*epsilons, GRID)
    reports = channel.privatize(np.full(2_000_000, x), key=Key.from_seed(5))
    stated = [float(channel.probability(x, y)) for y in range(len(channel.outputs))]
    counts, decoded = np.bincount(reports, minlength=len(stated)), channel.estimate(reports)
    mean, stddev = x + 1, math.sqrt(channel.variance(x))
    assert_only(lambda factor: counts_are(counts, tilted(stated, factor)))
    assert_only(lambda factor: mean_is(decoded, factor * mean, stddev))


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
def test_every_frequency_oracle_is_unbiased_on_reports(name):
    mechanism, n = RANDOMIZERS[name](2.0), 200_000
    shares = np.array([0.5, 0.3, 0.2] + [0.0] * (mechanism.n_values - 3))
    values = np.repeat(np.arange(mechanism.n_values), (n * shares).astype(int))
    estimates = mechanism.estimate(mechanism.privatize(values, key=Key.from_seed(4)))
    for share, estimate in zip(shares, estimates, strict=True):
        stddev = float(mechanism.variance(float(share), n)) ** 0.5
        assert abs(estimate - share) < 5 * stddev
        assert abs(estimate + 0.1 - share) > 5 * stddev
