"""What every mechanism promises alike: epsilon, decoders, and streams that rounds, purposes and keys keep apart.

All of it is read off what `privatize` and `add_noise` give, not from what a mechanism says about itself.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from noise_case import unrelated
from significance import mean_is

from fastfedrec import Key
from fastfedrec.mechanisms import (
    GRR,
    OUE,
    BayesKary,
    BinaryResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Hybrid,
    LayeredGaussian,
    MixtureLaplaceRR,
    OptimalKary,
    Piecewise,
    PublishedLaplaceRR,
    RatedOrNot,
    RoundedGaussian,
    RoundedLaplace,
    SerialLaplaceRR,
    SubsetSelection,
    TruncatedGeometric,
)
from fastfedrec.mechanisms._noise_table import _tabulate, _words
from fastfedrec.mechanisms.layered_gaussian import _BASE, _STDDEV

GRID = [1, 2, 3, 4, 5]
RANDOMIZERS = {
    "BinaryResponse": BinaryResponse,
    "Piecewise": Piecewise,
    "Hybrid": Hybrid,
    "GRR": lambda epsilon: GRR(epsilon, 5),
    "OUE": lambda epsilon: OUE(epsilon, 5),
    "SubsetSelection": lambda epsilon: SubsetSelection(epsilon, 5),
    "RoundedLaplace": lambda epsilon: RoundedLaplace(epsilon, GRID),
    "MixtureLaplaceRR": lambda epsilon: MixtureLaplaceRR(epsilon / 2, epsilon / 2, GRID),
    "TruncatedGeometric": lambda epsilon: TruncatedGeometric(epsilon, GRID),
    "OptimalKary": lambda epsilon: OptimalKary(epsilon, GRID),
    "BayesKary": lambda epsilon: BayesKary(epsilon, GRID),
    "RatedOrNot": lambda epsilon: RatedOrNot(epsilon, GRID),
}
ORACLES = ["GRR", "OUE", "SubsetSelection"]
NOISES = {
    "DiscreteLaplace": DiscreteLaplace(10**6),
    "DiscreteLaplace by table": DiscreteLaplace(1000, sampler="table"),
    "DiscreteGaussian": DiscreteGaussian(10**6),
    "DiscreteGaussian by table": DiscreteGaussian(1000, sampler="table"),
    "RoundedGaussian": RoundedGaussian(1000),
    "LayeredGaussian": LayeredGaussian(2**36),
}


def values_of(name, n):
    """Inputs of a randomizer: positions where it takes them, real numbers otherwise."""
    if name in ("BinaryResponse", "Piecewise", "Hybrid"):
        return np.linspace(-1, 1, n)
    return np.arange(n) % 5


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("name", RANDOMIZERS)
def test_exact_epsilon_of_every_randomizer_is_at_most_the_nominal_one(name, epsilon):
    """In rational arithmetic and logarithms of 80 digits, and close to it where nothing but rounding is lost."""
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
    first, again, other_round, other_key = (
        np.asarray(mechanism.privatize(values, key=Key.from_seed(seed), round=number)).astype(float).ravel()
        for seed, number in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    assert (first == again).all()
    for other in (other_round, other_key):
        chance = np.mean(np.roll(first, 5 * (first.size // len(values))) == first)
        assert np.mean(first == other) < chance + 0.1


WAYS = {
    **{name: lambda key, n=name: RANDOMIZERS[n](1.0).privatize(values_of(n, 3), key=key) for name in RANDOMIZERS},
    **{name: lambda key, n=name: NOISES[n].privatize(np.zeros(3, np.int64), key=key) for name in NOISES},
    "OUE.privatize_support": lambda key: OUE(1.0, 5).privatize_support([0, 1], key=key),
    "ExponentialMechanism": lambda key: ExponentialMechanism(1.0).privatize([0, 1], key=key),
    "ExponentialMechanism by Gumbel noise": lambda key: ExponentialMechanism(1.0, sampler="gumbel").privatize(
        [0, 1], key=key
    ),
    "SerialLaplaceRR": lambda key: SerialLaplaceRR(1.0, 1.0, GRID).privatize([0, 1], key=key),
    "PublishedLaplaceRR": lambda key: PublishedLaplaceRR(1.0, 1.0).privatize([0.0, 1.0], key=key),
}


@pytest.mark.parametrize("name", WAYS)
def test_an_entropy_key_serves_one_call_of_any_way_to_randomize(name):
    key = Key.from_entropy()
    WAYS[name](key)
    for again in (name, "BinaryResponse", "DiscreteLaplace"):
        with pytest.raises(ValueError, match="key is single-use and was already used by"):
            WAYS[again](key)


@pytest.mark.parametrize("name", NOISES)
def test_names_separate_rounds_purposes_and_keys_of_every_noise(name):
    """And places: no draw comes twice, at whatever shift."""
    draws = {
        (seed, purpose, number): NOISES[name]
        .add_noise(np.zeros(4000, np.int64), key=Key.from_seed(seed), purpose=purpose, round=number)
        .astype(float)
        for seed, purpose, number in ((1, "a", 0), (2, "a", 0), (1, "ab", 0), (1, "a", 1), (1, "a.1", 0))
    }
    names = list(draws)
    for place, one in enumerate(names):
        for other in names[place:]:
            first, second = [draws[one]], [draws[other]]
            assert unrelated(first, first if one == other else second), (one, other)


def test_the_distance_of_layers_is_that_of_all_its_parts():
    """Peikert's sum over the lattice that two layers share, beside the tables' own and that from a rounded normal."""
    noise = LayeredGaussian(2**36)
    layers, variance = 0.0, Fraction(2**36) ** 2
    while variance > 2048**2:
        variance = (variance - _STDDEV**2) / _BASE**2
        tau_squared = 1 / ((_BASE / _STDDEV) ** 2 + 1 / float(variance))
        layers += 2 * math.exp(-2 * math.pi**2 * tau_squared)
    rest = noise.distance - sum(table.distance for table in noise._tables) - Fraction(1, 32 * 2**72)
    assert rest >= Fraction(layers) > 0


def test_the_distance_of_a_table_pays_for_the_tail_beyond_it():
    """Of a geometric distribution that is cut where a thousandth of it is left."""
    reach = 10
    table = _tabulate(np.array([_words(2 ** (250 - k), 5) for k in range(reach + 2)]), 0)
    beyond = Fraction(2 * sum(2 ** (250 - k) for k in range(reach + 1, 251)), 3 * 2**250)
    assert Fraction(1, 10_000) < beyond <= table.distance


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RANDOMIZERS if name not in ORACLES])
def test_every_decoder_is_unbiased_on_what_privatize_sends(name):
    mechanism = RANDOMIZERS[name](3.0)
    if name in ("BinaryResponse", "Piecewise", "Hybrid"):
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
@pytest.mark.parametrize("name", ORACLES)
def test_every_frequency_oracle_is_unbiased_on_what_privatize_sends(name):
    mechanism, n, shares = RANDOMIZERS[name](2.0), 200_000, np.array([0.5, 0.3, 0.2, 0.0, 0.0])
    values = np.repeat(np.arange(5), (n * shares).astype(int))
    found = mechanism.estimate(mechanism.privatize(values, key=Key.from_seed(4)))
    for share, estimate in zip(shares, found, strict=True):
        stddev = float(mechanism.variance(float(share), n)) ** 0.5
        assert abs(estimate - share) < 5 * stddev
        assert abs(estimate + 0.1 - share) > 5 * stddev
