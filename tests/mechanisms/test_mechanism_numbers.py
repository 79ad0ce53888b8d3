"""All mechanisms: NumPy's numbers cost what Python's do, and extreme ones end in a number or a named refusal."""

import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest

from fastfedrec import Key
from fastfedrec import mechanisms as m
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise

INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
TOTAL = 2**64
ARGUMENTS = {  # (1.0, 3) for all others
    "BinaryResponse": (1.0,), "Piecewise": (1.0,), "Hybrid": (1.0,), "RatedOrNot": (1.0, [1, 2]),
    "PublishedLaplaceRR": (1.0, 1.0), "SerialLaplaceRR": (1.0, 1.0, 3), "MixtureLaplaceRR": (1.0, 1.0, 3),
    "DiscreteLaplace": (2,), "DiscreteGaussian": (2,), "RoundedGaussian": (2,), "LayeredGaussian": (2**20,),
}  # fmt: skip
NOMINAL = [
    "BinaryResponse", "Piecewise", "Hybrid", "GRR", "OUE", "SubsetSelection", "OptimalKary", "BayesKary",
    "TruncatedGeometric", "RoundedLaplace", "RatedOrNot",
]  # fmt: skip

# ---- Oracle: what the same numbers cost in Python's own integers -----------------------------------------------------


def test_a_cost_does_not_wrap():
    assert m.DiscreteLaplace(0.1).epsilon(np.array([267, 12]).max()) == 2670
    assert m.DiscreteLaplace(0.1).epsilon(np.int64(1024)) == 10240
    assert m.DiscreteGaussian(1000).rho(np.int32(65536)) == Fraction(65536**2, 2 * 1000**2)
    mechanism = m.ExponentialMechanism(0.3, sensitivity=np.int64(1137), sampler="gumbel")
    assert mechanism.beta == 2 * 1137 / Fraction(0.3)
    assert m.RoundedGaussian(np.int64(5)).noise_multiplier(np.int8(10)) == 0.5


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_of_every_width_are_pythons(kind):
    largest = int(np.iinfo(kind).max)
    for value in (kind(largest), np.array(largest, dtype=kind)):
        assert m.DiscreteLaplace(value).epsilon(value) == 1.0
        assert m.DiscreteLaplace(Fraction(1, 3)).exact_epsilon(value) == 3 * largest
        assert m.DiscreteGaussian(7).rho(value) == Fraction(largest**2, 98)
        assert m.DiscreteGaussian(value).rho(value) == Fraction(1, 2)
        assert m.DiscreteLaplace(value).scale.numerator == largest
        for mechanism in (m.DiscreteLaplace(2, sampler="table"), m.RoundedGaussian(kind(5))):
            assert mechanism.total_distance(value) == mechanism.total_distance(largest)
            assert mechanism.delta(value, kind(3)) == mechanism.delta(largest, 3)
        assert m.ExponentialMechanism(2, sensitivity=value, n_selected=kind(3)).beta == 3 * largest


@pytest.mark.parametrize("kind", INTEGERS)
def test_draws_are_those_of_pythons_numbers(kind):
    for make in (m.DiscreteLaplace, m.DiscreteGaussian, m.RoundedGaussian):
        draws = [
            make(s).sample(n, key=Key.from_seed(1), purpose="x", round=r)
            for s, n, r in [(5, 9, 2), map(kind, (5, 9, 2))]
        ]
        np.testing.assert_array_equal(*draws)
    np.testing.assert_array_equal(
        m.LayeredGaussian(np.float32(2**20)).sample(9, key=Key.from_seed(1), purpose="x"),
        m.LayeredGaussian(2**20).sample(9, key=Key.from_seed(1), purpose="x"),
    )


@pytest.mark.parametrize("kind", INTEGERS)
def test_a_channel_of_numpys_numbers(kind):
    counts = np.array([[2**63, 2**63], [2**62, 3 * 2**62]], dtype=np.uint64)
    channel = m.Channel(counts, inputs=np.array([0, 100], dtype=kind), outputs=[kind(0), np.float16(127)])
    assert channel.outputs == (0, 127)
    assert {type(v.numerator) for v in channel.inputs + channel.outputs} == {int}
    assert channel.variance(kind(0)) == Fraction(127**2, 4)
    assert channel.mean(np.array(1)) == Fraction(3 * 127, 4)
    assert channel.probability(kind(1), kind(0)) == Fraction(1, 4)
    for name in ("x", "y"):
        with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
            channel.probability(**({"x": 0, "y": 0} | {name: -1}))


def test_grids_and_priors_of_numpys_numbers():
    for make in (m.OptimalKary, m.BayesKary, m.TruncatedGeometric, m.RoundedLaplace, m.RatedOrNot):
        own = make(2.0, [1, 2, 3])
        for grid in (
            np.array([1, 2, 3], dtype=np.uint8),
            np.array([1.0, 2.0, 3.0]),
            [Fraction(1), np.float16(2), np.int8(3)],
        ):
            channel = make(np.float16(2.0), grid)
            assert (channel.counts, channel.inputs, channel.outputs) == (own.counts, own.inputs, own.outputs)
    assert m.OptimalKary(2.0, np.array(3)).inputs == (0, 1, 2)
    assert m.BayesKary(2.0, 3, prior=np.array([1, 2, 1], dtype=np.uint8)).prior == (0.25, 0.5, 0.25)
    assert m.PoissonSampling(Fraction(1, 3)).sampling_probability == Fraction(TOTAL // 3, TOTAL)


# ---- Bad inputs: extreme numbers -------------------------------------------------------------------------------------

EXTREMES = (5e-324, 1e-200, 1e-19, 1e-3, 3.0, 36.5, 700.0, 800.0, 1e6, 1e16, 1e155, 1.7e308)
RANDOMIZERS = {
    "BinaryResponse": m.BinaryResponse,
    "GRR": lambda e: m.GRR(e, 4),
    "OUE": lambda e: m.OUE(e, 4),
    "SubsetSelection": lambda e: m.SubsetSelection(e, 40),
    "Piecewise": lambda e: m.Piecewise(e, 101),
    "Hybrid": lambda e: m.Hybrid(e, 101),
    "OptimalKary": lambda e: m.OptimalKary(e, 3),
    "BayesKary": lambda e: m.BayesKary(e, 3),
    "TruncatedGeometric": lambda e: m.TruncatedGeometric(e, 5),
    "RoundedLaplace": lambda e: m.RoundedLaplace(e, 5),
    "SerialLaplaceRR": lambda e: m.SerialLaplaceRR(e, 1.0, 5),
    "SerialLaplaceRR, second": lambda e: m.SerialLaplaceRR(1.0, e, 5),
    "MixtureLaplaceRR": lambda e: m.MixtureLaplaceRR(e, e, 5),
    "RatedOrNot": lambda e: m.RatedOrNot(e, [1, 2]),
    "PublishedLaplaceRR": lambda e: m.PublishedLaplaceRR(e, 3.0).on_grid(3),
    "PublishedLaplaceRR, second": lambda e: m.PublishedLaplaceRR(1.0, e).on_grid(3),
}


def made(name):
    """A mechanism of each kind, small."""
    return m.GRR(1.0, 3).channel() if name == "Channel" else getattr(m, name)(*ARGUMENTS.get(name, (1.0, 3)))


def made_or_refused(make, name):
    """A mechanism, or None where the arguments are refused by name."""
    try:
        return make()
    except ValueError as error:
        if name not in str(error):
            raise
        return None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", RANDOMIZERS)
def test_extreme_epsilons(name):
    answered = 0
    for epsilon in EXTREMES:
        mechanism = made_or_refused(lambda e=epsilon: RANDOMIZERS[name](e), "epsilon")
        if mechanism is None:
            continue
        answered += 1
        assert 0 <= mechanism.epsilon <= 2 * epsilon or name.startswith("Published")
        values = [0.5, -1.0] if name in ("BinaryResponse", "Piecewise", "Hybrid") else [0, 1]
        mechanism.estimate(mechanism.privatize(values, key=Key.from_seed(1)))
    assert answered >= 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("parameter", EXTREMES)
@pytest.mark.parametrize("make", [m.DiscreteLaplace, m.DiscreteGaussian, m.RoundedGaussian, m.LayeredGaussian])
def test_extreme_noise(make, parameter):
    for sampler in ({}, {"sampler": "table"}) if make in (m.DiscreteLaplace, m.DiscreteGaussian) else ({},):
        noise = made_or_refused(lambda s=sampler: make(parameter, **s), "must be")
        if noise is None:
            continue
        square = parameter * parameter * (2 if make is m.DiscreteLaplace else 1)
        if parameter > 10:
            assert noise.variance == pytest.approx(square, rel=0.01)
        else:
            assert 0 <= noise.variance < 1 + square
        cost = {"DiscreteLaplace": "epsilon", "DiscreteGaussian": "rho", "RoundedGaussian": "noise_multiplier"}.get(
            make.__name__
        )
        if cost is not None:
            costs = [float_or_inf(getattr(noise, cost)(sensitivity)) for sensitivity in (1e-300, 1, 1e300)]
            assert costs == sorted(costs, reverse=cost == "noise_multiplier")
        assert 0 <= noise.delta(1e300, 10**12) <= 1
        assert noise.sample(3, key=Key.from_seed(1), purpose="x").dtype == np.int64


def float_or_inf(exact):
    try:
        return float(exact)
    except OverflowError:
        return math.inf


def test_delta_is_no_less_for_a_larger_epsilon():
    for mechanism in (m.RoundedGaussian(5), m.DiscreteLaplace(2, sampler="table")):
        deltas = [mechanism.delta(epsilon, 3) for epsilon in (0.0, 1.0, 50.0, 700.0, 999.0, 1001.0, 3e6, 1e300)]
        assert deltas == sorted(deltas)
        assert deltas[-1] == 1.0
    assert m.DiscreteLaplace(2).delta(1e300) == 0.0


@pytest.mark.parametrize("sampler", ["exact", "gumbel"])
@pytest.mark.parametrize("epsilon", EXTREMES)
def test_extreme_selections(epsilon, sampler):
    for sensitivity in (1e-300, 1, 1e300):
        mechanism = made_or_refused(
            lambda s=sensitivity: m.ExponentialMechanism(epsilon, sensitivity=s, sampler=sampler), "sensitivity"
        )
        if mechanism is None:
            continue
        assert 0 <= mechanism.delta(10) <= 1
        assert mechanism.privatize([1, 2, 3], key=Key.from_seed(1)).shape == (1,)
    if 1e-100 < epsilon < 1e100:
        assert (m.ExponentialMechanism(epsilon, sampler="gumbel").delta(10) == 1.0) == (epsilon >= 36)


def test_extreme_published_noise():
    assert m.PublishedLaplaceRR(1e-200, 1.0).variance == math.inf
    with pytest.raises(ValueError, match=r"\(high - low\) / epsilon_1 must be finite"):
        m.PublishedLaplaceRR(1.0, 1.0, low=-1.7e308, high=1.7e308)


# ---- Bad inputs: names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOMINAL)
def test_an_error_names_the_argument_that_was_passed(name):
    make, (_, *others) = getattr(m, name), ARGUMENTS.get(name, (1.0, 3))
    for wrong in (-1, 0, math.nan, math.inf, True, "1"):
        with pytest.raises((TypeError, ValueError), match=r"^nominal_epsilon must be"):
            make(wrong, *others)
    with pytest.raises(TypeError, match=rf"{name} takes nominal_epsilon, not epsilon"):
        make(*others, epsilon=1.0)


def test_who_passes_epsilon_elsewhere_is_told_as_by_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        m.SerialLaplaceRR(epsilon=1.0)
    copy = pickle.loads(pickle.dumps(m.GRR(1.0, 4)))
    assert copy.likelihood_ratio == m.GRR(1.0, 4).likelihood_ratio


def test_nobodys_values_are_no_error():
    nobody = []
    for mechanism in (*map(made, OUTSIDE), m.DiscreteLaplace(2, sampler="table")):
        assert mechanism.privatize(nobody, key=Key.from_seed(1)).shape[0] == 0
        if isinstance(mechanism, m.Channel | m.Piecewise | IntegerNoise):  # shares of nobody are none
            assert mechanism.estimate(nobody).shape == (0,)
    with pytest.raises(ValueError, match="scores must be at least n_selected=1 many, got 0"):
        m.ExponentialMechanism(1.0).privatize(nobody)


@pytest.mark.parametrize(
    "values", [np.array([True, False]), np.array(["1", "2"]), np.array([1j]), np.array([None]), [[1], [1, 2]]]
)
@pytest.mark.parametrize(
    "name",
    ["DiscreteLaplace", "Piecewise", "Hybrid", "OptimalKary", "GRR", "OUE", "SubsetSelection", "PublishedLaplaceRR"],
)
def test_what_is_no_number_is_refused_by_name(name, values):
    mechanism = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((TypeError, ValueError), match=r"^values must be"):
            mechanism.privatize(values)


def test_published_ratings_outside_the_range_are_refused():
    with pytest.raises(ValueError, match=r"values must be from 1 to 5, got 0\.0 to 3\.0"):
        m.PublishedLaplaceRR(1.0, 1.0, low=1, high=5).privatize([3, 0])


# ---- What is outside a stated range ----------------------------------------------------------------------------------

OUTSIDE = {
    "BinaryResponse": [2.0], "Piecewise": [2.0], "Hybrid": [2.0], "PublishedLaplaceRR": [2.0], "Channel": [3],
    "OptimalKary": [3], "BayesKary": [3], "TruncatedGeometric": [3], "RoundedLaplace": [3], "SerialLaplaceRR": [3],
    "MixtureLaplaceRR": [3], "RatedOrNot": [3], "GRR": [3], "OUE": [3], "SubsetSelection": [3],
    "DiscreteLaplace": [2**63], "DiscreteGaussian": [2**63], "RoundedGaussian": [2**63], "LayeredGaussian": [2**63],
}  # fmt: skip
#: The first line of the docstring says it, or it is an error.
RULES = ("clipped to [-1, 1]", "beyond int64 become its ends")


def test_every_randomizer_is_tried():
    randomizers = {name for name in m.__all__ if hasattr(getattr(m, name), "privatize")}
    assert set(OUTSIDE) == randomizers - {"ExponentialMechanism"}  # that takes any score, and bounds its sensitivity


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_the_range_is_refused_or_stated(name):
    mechanism = made(name)
    values = np.array(
        OUTSIDE[name], dtype=np.uint64 if name.endswith(("Laplace", "Gaussian")) and OUTSIDE[name][0] > 9 else None
    )
    first = type(mechanism).privatize.__doc__.splitlines()[0]
    if any(rule in first for rule in RULES):
        assert mechanism.privatize(values, key=Key.from_seed(1)).shape == (1,)
    else:
        with pytest.raises(ValueError, match="values must"):
            mechanism.privatize(values, key=Key.from_seed(1))
