"""Tests of all mechanisms: NumPy's numbers cost the same as Python's, and extreme ones are computed or refused."""

import functools
import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mechanism_table import (
    CHOICES,
    MAKERS,
    NOISES,
    ORACLES,
    OTHERS,
    RANDOMIZERS,
    REALS,
    class_of,
    values_of,
)

from fastfedrec import Key
from fastfedrec import mechanisms as m
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise

INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
TOTAL = 2**64
#: Mechanisms with a parameter called nominal_epsilon; a mixture has two epsilons.
NOMINAL = sorted(set(map(class_of, RANDOMIZERS)) - {"MixtureLaplaceRR"})
#: Mechanisms with values in a stated range; the choices take any score.
RANGED = sorted(set(map(class_of, MAKERS)) - set(CHOICES))

# ---- Oracle: the cost of the same numbers as Python's integers -------------------------------------------------------


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
            assert mechanism.total_variation_of(value) == mechanism.total_variation_of(largest)
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
        reference = make(2.0, [1, 2, 3])
        for grid in (
            np.array([1, 2, 3], dtype=np.uint8),
            np.array([1.0, 2.0, 3.0]),
            [Fraction(1), np.float16(2), np.int8(3)],
        ):
            channel = make(np.float16(2.0), grid)
            assert (channel.counts, channel.inputs, channel.outputs) == (
                reference.counts,
                reference.inputs,
                reference.outputs,
            )
    assert m.OptimalKary(2.0, np.array(3)).inputs == (0, 1, 2)
    assert m.BayesKary(2.0, 3, prior=np.array([1, 2, 1], dtype=np.uint8)).prior == (0.25, 0.5, 0.25)
    assert m.PoissonSampling(Fraction(1, 3)).sampling_probability == Fraction(TOTAL // 3, TOTAL)


# ---- Bad inputs: extreme numbers -------------------------------------------------------------------------------------

EXTREMES = (5e-324, 1e-200, 1e-19, 1e-3, 3.0, 36.5, 700.0, 800.0, 1e6, 1e16, 1e155, 1.7e308)
EXTREME_CASES = (
    RANDOMIZERS
    | OTHERS
    | {
        "SubsetSelection of 40": lambda e: m.SubsetSelection(e, 40),
        "MixtureLaplaceRR of two": lambda e: m.MixtureLaplaceRR(e, e, 5),
        "SerialLaplaceRR by its second": lambda e: m.SerialLaplaceRR(1.0, e, 5),
        "PublishedLaplaceRR on a grid": lambda e: m.PublishedLaplaceRR(e, 3.0).on_grid(3),
        "PublishedLaplaceRR by its second": lambda e: m.PublishedLaplaceRR(1.0, e).on_grid(3),
    }
)


def made_or_refused(make, name):
    """A mechanism, or None where the arguments are refused by name."""
    try:
        return make()
    except ValueError as error:
        if name not in str(error):
            raise
        return None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", EXTREME_CASES)
def test_extreme_epsilons(name):
    answered = 0
    for epsilon in EXTREMES:
        mechanism = made_or_refused(lambda e=epsilon: EXTREME_CASES[name](e), "epsilon")
        if mechanism is None:
            continue
        answered += 1
        assert 0 <= mechanism.epsilon <= 2 * epsilon or name.startswith("Published")
        reports = mechanism.privatize(values_of(name, 2), key=Key.from_seed(1))
        if name != "PublishedLaplaceRR":  # its reports are ratings
            mechanism.estimate(reports)
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
    for wrong in (-1, 0, math.nan, math.inf, True, "1"):
        with pytest.raises((TypeError, ValueError), match=r"^nominal_epsilon must be"):
            RANDOMIZERS[name](wrong)
    with pytest.raises(TypeError, match=rf"{name} takes nominal_epsilon, not epsilon"):
        getattr(m, name)(epsilon=1.0)


def test_epsilon_for_other_mechanisms_is_an_unexpected_argument():
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        m.SerialLaplaceRR(epsilon=1.0)
    copy = pickle.loads(pickle.dumps(m.GRR(1.0, 4)))
    assert copy.likelihood_ratio == m.GRR(1.0, 4).likelihood_ratio


def test_no_values_are_no_error():
    no_values = []
    for mechanism in (make() for name, make in MAKERS.items() if name not in CHOICES):
        assert mechanism.privatize(no_values, key=Key.from_seed(1)).shape[0] == 0
        if isinstance(mechanism, m.Channel | m.Piecewise | IntegerNoise):  # no users have no shares
            assert mechanism.estimate(no_values).shape == (0,)
    with pytest.raises(ValueError, match="scores must have at least n_selected=1 entries, got 0"):
        m.ExponentialMechanism(1.0).privatize(no_values)


@pytest.mark.parametrize(
    "values", [np.array([True, False]), np.array(["1", "2"]), np.array([1j]), np.array([None]), [[1], [1, 2]]]
)
@pytest.mark.parametrize("name", [name for name in RANGED if name != "BinaryResponse"])  # it takes bool
def test_other_types_than_numbers_are_refused_by_name(name, values):
    mechanism = MAKERS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((TypeError, ValueError), match=r"^values must be"):
            mechanism.privatize(values)


# ---- Whether a client answers depends on types alone -----------------------------------------------------------------

FLOATS = [np.float16, np.float32, np.float64, np.longdouble]
SIGNED = [dtype for dtype in INTEGERS if np.issubdtype(dtype, np.signedinteger)]
WIDE = st.integers(-(2**70), 2**70) | st.integers(-3, 8)


@functools.cache
def made(name):
    return MAKERS[name]()


def mapped(name, values):
    """Return the values that a mechanism uses: the naive twin of every mapping."""
    if name == "PublishedLaplaceRR":
        return [0.0 if v != v else min(max(float(v), 0.0), 1.0) for v in values]
    if name in REALS:
        return [min(max(float(v), -1.0), 1.0) if math.isfinite(v) else 0.0 for v in values]
    mechanism = made(name)
    n_values = mechanism.n_values if name in ORACLES else len(mechanism.inputs)
    return [min(max(int(v), 0), n_values - 1) for v in values]


def assert_counts_as(name, values, exact):
    key = Key.from_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nor does a warning depend on values
        reports = made(name).privatize(values, key=key)
    if name in NOISES:
        assert np.shape(reports) == np.shape(values)
    else:
        expected = made(name).privatize(np.array(mapped(name, exact)), key=key)
        np.testing.assert_array_equal(reports, expected)


LOCAL = sorted(set(MAKERS) - set(CHOICES))


@pytest.mark.parametrize("name", LOCAL)
@given(data=st.data())
@settings(max_examples=25)
def test_no_value_of_a_type_that_is_answered_is_refused(name, data):
    takes_reals = name in (*REALS, "PublishedLaplaceRR")
    kinds = (SIGNED if name == "BinaryResponse" else [*INTEGERS]) + (FLOATS if takes_reals else [])
    dtype = data.draw(st.sampled_from(kinds))
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        exact = data.draw(st.lists(WIDE.map(lambda v: min(max(v, info.min), info.max)), min_size=1, max_size=5))
        values = np.array(exact, dtype=dtype)
    else:
        with np.errstate(over="ignore"):
            values = np.array(data.draw(st.lists(st.floats(), min_size=1, max_size=5))).astype(dtype)
        exact = values
    assert_counts_as(name, values, exact)


@pytest.mark.parametrize("name", LOCAL)
@given(exact=st.lists(WIDE, min_size=1, max_size=5))
@settings(max_examples=25)
def test_no_number_of_python_is_refused_for_its_size(name, exact):
    assert_counts_as(name, exact, exact)


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 2**70])
def test_lists_of_pythons_integers_are_of_one_type(name, number):
    """NumPy makes int64, uint64, float64 or objects of them."""
    for exact in ([number], [number, -1], [1, number]):
        assert_counts_as(name, exact, exact)


@pytest.mark.parametrize("name", NOISES)
def test_sums_of_neighbours_are_as_near_as_they_were(name):
    key, release = Key.from_seed(1), made(name).privatize
    capped = [release([min(number, 2**63 - 1)], key=key).tolist() for number in (2**63, 2**64 - 1, 2**64)]
    assert [release([number], key=key).tolist() for number in (2**63, 2**64 - 1, 2**64)] == capped


#: Arrays and columns that can have missing entries, from numbers and None.
NULLABLE = {
    "masked": lambda numbers: np.ma.array([n or 0 for n in numbers], mask=[n is None for n in numbers]),
    "pandas array": lambda numbers: pd.array(numbers, dtype="Int64"),
    "pandas": lambda numbers: pd.Series(numbers, dtype="Int64"),
    "pandas of floats": lambda numbers: pd.Series(numbers, dtype="Float64"),
    "polars": lambda numbers: pytest.importorskip("polars").Series(numbers, dtype=pytest.importorskip("polars").Int64),
    "pyarrow": lambda numbers: pytest.importorskip("pyarrow").array(numbers, type="int64"),
    "list": list,
    "tuple": tuple,
    "list with pandas.NA": lambda numbers: [pd.NA if n is None else n for n in numbers],
    "list with numpy.ma.masked": lambda numbers: [np.ma.masked if n is None else n for n in numbers],
}


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("kind", NULLABLE)
def test_a_missing_entry_counts_as_zero(name, kind):
    if kind == "pandas of floats" and name not in (*REALS, "PublishedLaplaceRR"):
        for numbers in ([1, 0], [1, None]):  # refused by its type
            with pytest.raises(TypeError, match="values must be integers, got dtype float64"):
                made(name).privatize(NULLABLE[kind](numbers))
        return
    key = Key.from_seed(1)
    for numbers in ([1, None, 0], [None], [0, 1]):
        reports = made(name).privatize(NULLABLE[kind](numbers), key=key)
        np.testing.assert_array_equal(reports, made(name).privatize([n or 0 for n in numbers], key=key))


def test_a_hidden_entry_of_a_vector_counts_as_zero():
    rows = np.tile([0.5, 7.0, -0.25, 0.125], (50, 1))
    hidden = np.ma.array(rows, mask=rows == 7)
    as_lists = [[None if number == 7 else number for number in row] for row in rows.tolist()]
    expected, *reports = (
        m.LargestResponse(4.0).privatize(form, key=Key.from_seed(1))
        for form in (hidden.filled(0), hidden, list(hidden), as_lists)
    )
    for report in reports:
        np.testing.assert_array_equal(report, expected)


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf])
def test_an_entry_that_is_not_finite_counts_as_zero(entry):
    rows = np.tile([0.5, 0.0, -0.25, 0.125], (50, 1))
    with_it = np.where(rows == 0, entry, rows)
    reports = (m.LargestResponse(4.0).privatize(values, key=Key.from_seed(1)) for values in (with_it, rows))
    np.testing.assert_array_equal(*reports)


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_an_output_array_is_refused_for_any_values(name):
    """Memory that is shared with the values is refused, also where clipped values are a copy."""
    buffer = np.zeros(12, dtype=np.uint8)
    for value in (0, 200):
        buffer[:] = value
        out = buffer[1:5] if name == "GRR" else np.ndarray((4, MAKERS[name]().privatize([0]).shape[1]), np.uint8)
        if name == "GRR":
            with pytest.raises(ValueError, match="out must not share memory"):
                MAKERS[name]().privatize(buffer[:4], out=out)
        else:
            assert MAKERS[name]().privatize(buffer[:4], out=out) is out
