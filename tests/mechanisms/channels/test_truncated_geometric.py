"""The truncated geometric mechanism."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds

from fastfedrec.mechanisms import TruncatedGeometric

TOTAL = 2**64

grids = st.lists(st.integers(-50, 50), min_size=2, max_size=8, unique=True).map(sorted)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def clamped_geometric(n, epsilon):
    """Probabilities by their definition: a two-sided geometric step from x, stopped at 0 and n - 1."""
    rate = math.exp(-epsilon / (n - 1))
    table = np.zeros((n, n))
    for x in range(n):
        for step in range(-400 * n, 400 * n + 1):
            table[x, min(max(x + step, 0), n - 1)] += (1 - rate) / (1 + rate) * rate ** abs(step)
    return table


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_probabilities_are_those_of_clamped_geometric_noise(n, epsilon):
    counts = np.array(TruncatedGeometric(epsilon, n).counts, dtype=float) / TOTAL
    np.testing.assert_allclose(counts, clamped_geometric(n, epsilon), rtol=1e-12)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(epsilon=st.floats(0.01, 15), grid=grids)
def test_epsilon_holds_and_outputs_are_unbiased_exactly(epsilon, grid):
    channel = TruncatedGeometric(epsilon, grid)
    assert channel.likelihood_ratio <= naive_bounds.exp_bounds(epsilon)[0]
    assert epsilon * (1 - 1e-9) < channel.epsilon <= epsilon
    assert [channel.mean(x) for x in range(len(grid))] == grid
    assert channel.positions(grid).tolist() == list(range(len(grid)))


def test_neighbours_on_the_grid_are_better_protected():
    channel = TruncatedGeometric(4.0, 5)
    ratios = [Fraction(max(a, b), min(a, b)) for a, b in zip(channel.counts[2], channel.counts[3], strict=True)]
    assert math.isclose(math.log(max(ratios)), 1.0, rel_tol=1e-12)


def test_largest_grid():
    channel = TruncatedGeometric(1.0, 32)
    assert channel.mean(17) == 17
    assert channel.epsilon <= 1.0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_too_extreme_epsilons_are_refused():
    with pytest.raises(ValueError, match=r"no table of 64-bit counts keeps it|linearly independent"):
        TruncatedGeometric(1e-19, 5)


@pytest.mark.parametrize("grid", [[1], [2, 1], [1, 1], list(range(33))])
def test_bad_grids(grid):
    with pytest.raises(ValueError, match="grid must be 2 to 32 increasing numbers"):
        TruncatedGeometric(1.0, grid)


def test_bad_grid_values():
    with pytest.raises(ValueError, match=r"grid\[1\] must be finite"):
        TruncatedGeometric(1.0, [0, math.nan])
    with pytest.raises(ValueError, match="grid must be at least 2, got 1"):
        TruncatedGeometric(1.0, 1)
    with pytest.raises(TypeError, match="grid must be an integer"):
        TruncatedGeometric(1.0, 2.5)
