"""Finite channels: exact epsilon, mean and variance, and the directed rounding beneath them."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import binary_response as naive_bounds
from naive import channel as naive

from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channel import TOTAL, exp_lower, log_upper


@st.composite
def tables(draw):
    """Counts of 1 to 4 inputs by 1 to 5 outputs, zeros included, with output values."""
    n_outputs = draw(st.integers(1, 5))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        cuts = sorted(draw(st.lists(st.integers(0, TOTAL), min_size=n_outputs - 1, max_size=n_outputs - 1)))
        edges = [0, *cuts, TOTAL]
        rows.append([b - a for a, b in itertools.pairwise(edges)])
    values = draw(st.lists(st.fractions(-9, 9, max_denominator=99), min_size=n_outputs, max_size=n_outputs))
    return rows, values


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(table=tables())
def test_ratio_and_moments_equal_naive_twin(table):
    counts, values = table
    channel = Channel(counts, inputs=range(len(counts)), outputs=values)
    assert channel.likelihood_ratio == naive.likelihood_ratio(counts)
    for x in range(len(counts)):
        assert (channel.mean(x), channel.variance(x)) == naive.moments(counts, values, x)
        assert sum(channel.probability(x, y) for y in range(len(values))) == 1


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(x=st.floats(1e-3, 20))
def test_exp_lower_is_below_and_close(x):
    below, _ = naive_bounds.exp_bounds(x)  # closer to e^x than 1 part in 10^75
    assert below * (1 - Fraction(1, 10**57)) < exp_lower(x) < below


@given(ratio=st.fractions(Fraction(1001, 1000), 10**8))
def test_log_upper_is_the_least_float_that_is_not_below(ratio):
    bound = log_upper(ratio)
    assert naive_bounds.exp_bounds(bound)[1] >= ratio
    assert naive_bounds.exp_bounds(math.nextafter(bound, 0.0))[0] < ratio


def test_log_upper_of_one_is_zero():
    assert log_upper(Fraction(1)) == 0.0


def test_epsilon_of_simple_channels():
    assert Channel([[TOTAL]], inputs=[0], outputs=[0]).epsilon == 0.0
    assert Channel([[TOTAL, 0], [TOTAL - 1, 1]], inputs=[0, 1], outputs=[0, 1]).epsilon == math.inf
    assert Channel([[TOTAL, 0], [TOTAL, 0]], inputs=[0, 1], outputs=[0, 1]).epsilon == 0.0
    three = Channel([[3 * 2**62, 2**62], [2**62, 3 * 2**62]], inputs=[1, -1], outputs=[2, -2])
    assert three.epsilon >= math.log(3)
    assert math.isclose(three.epsilon, math.log(3), rel_tol=1e-15)
    assert three.estimate([0, 1, 1]).tolist() == [2.0, -2.0, -2.0]
    assert three.estimate([[0], [1]]).shape == (2, 1)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_tables():
    with pytest.raises(ValueError, match=r"counts must have one row per input \(2\), got 1"):
        Channel([[TOTAL]], inputs=[0, 1], outputs=[0])
    with pytest.raises(ValueError, match=r"counts\[0\] must be 2 integers of at least 0 that add up to 2\*\*64"):
        Channel([[TOTAL - 1, 0]], inputs=[0], outputs=[0, 1])
    with pytest.raises(ValueError, match=r"counts\[0\] must be"):
        Channel([[TOTAL + 1, -1]], inputs=[0], outputs=[0, 1])
    with pytest.raises(ValueError, match=r"counts\[0\] must be 3 integers"):
        Channel([[TOTAL, 0]], inputs=[0], outputs=[0, 1, 2])


def test_bad_reports():
    channel = Channel([[2**63, 2**63]], inputs=[0], outputs=[0, 1])
    with pytest.raises(TypeError, match="reports must be integers, got dtype float64"):
        channel.estimate([0.0])
    with pytest.raises(ValueError, match=r"reports must lie in \[0, 2\), got 0 to 2"):
        channel.estimate([0, 2])


# ---- threads, statistics --------------------------------------------------------------------------------------------
# A channel is arithmetic on integers: it has no threads, and its sampler is tested with each mechanism.
