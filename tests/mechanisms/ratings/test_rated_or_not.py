"""A rating or its absence in one report: exact epsilon, and unbiased for both."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from support.significance import mean_is

from fastfedrec import Key
from fastfedrec.mechanisms import RatedOrNot

STARS = [1, 2, 3, 4, 5]

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(epsilon=st.floats(0.05, 10), k=st.integers(2, 12))
def test_it_is_randomized_response_over_one_more_value(epsilon, k):
    channel = RatedOrNot(epsilon, [j / 2 for j in range(1, k + 1)])
    truth_chance = math.exp(epsilon) / (math.exp(epsilon) + k)
    for x in range(k + 1):
        for y in range(k + 1):
            expected = truth_chance if x == y else (1 - truth_chance) / k
            assert math.isclose(channel.probability(x, y), expected, rel_tol=1e-12)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(epsilon=st.floats(0.05, 10), ratings=st.lists(st.integers(1, 40), min_size=2, max_size=9, unique=True))
def test_epsilon_holds_and_both_estimates_are_unbiased(epsilon, ratings):
    ratings = sorted(ratings)
    channel = RatedOrNot(epsilon, ratings)
    assert channel.likelihood_ratio <= naive_bounds.exp_bounds(epsilon)[0]
    assert channel.epsilon > epsilon * (1 - 1e-9)
    for x, rating in enumerate([0, *ratings]):
        row = [Fraction(c, 2**64) for c in channel.counts[x]]
        assert channel.mean(x) == rating
        assert sum(p * v for p, v in zip(row, channel.rated_outputs, strict=True)) == (rating > 0)


def test_estimates_decode_by_position():
    channel = RatedOrNot(2.0, STARS)
    reports = np.array([[0, 5], [3, 0]])
    np.testing.assert_array_equal(
        channel.estimate_rated(reports), [[float(channel.rated_outputs[j]) for j in row] for row in reports]
    )


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs():
    with pytest.raises(ValueError, match="grid must be above 0, which means 'not rated', got 0"):
        RatedOrNot(1.0, [0, 1, 2])
    with pytest.raises(ValueError, match="epsilon must be greater than 0"):
        RatedOrNot(0.0, STARS)
    with pytest.raises(ValueError, match="grid must be 2 to 31 increasing numbers"):
        RatedOrNot(1.0, list(range(1, 40)))
    with pytest.raises(ValueError, match=r"reports must be in \[0, 6\)"):
        RatedOrNot(1.0, STARS).estimate_rated([6])


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("x", [0, 4])
def test_both_estimates_are_unbiased(x):
    channel, n = RatedOrNot(2.0, STARS), 2_000_000
    reports = channel.privatize(np.full(n, x), key=Key.from_seed(7))
    row = np.array([float(channel.probability(x, y)) for y in range(6)])
    for decoded, outputs, truth in (
        (channel.estimate(reports), channel.outputs, x),
        (channel.estimate_rated(reports), channel.rated_outputs, float(x > 0)),
    ):
        outputs = np.array([float(v) for v in outputs])
        stddev = math.sqrt(row @ outputs**2 - truth**2)
        assert mean_is(decoded, truth, stddev)
        for offset in (-0.1, 0.1):
            assert not mean_is(decoded, truth + offset * max(truth, 1.0), stddev)
