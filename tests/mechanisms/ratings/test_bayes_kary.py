"""Tests of the k-ary mechanism with the smallest Bayes error: its solver, and channels of its solutions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.ratings import bayes_kary as naive
from support.maintainers import load_program

from fastfedrec.mechanisms import GRR, BayesKary, OptimalKary, RoundedLaplace
from fastfedrec.mechanisms.ratings import _bayes_kary_solver as solver
from fastfedrec.mechanisms.ratings._kary_solutions import read_tables
from fastfedrec.mechanisms.ratings.bayes_kary import explained_share

tables = load_program(".ci/kary_tables")

STARS = [1, 2, 3, 4, 5]
UNIFORM = (0.2,) * 5
SKEWED = (0.01, 0.05, 0.14, 0.25, 0.55)
grids = st.lists(st.integers(-20, 20), min_size=2, max_size=5, unique=True).map(sorted)

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    ("x", "prior"),
    [
        ([-1.0, 1.0], [0.3, 0.7]),
        ([-1.0, 0.0, 1.0], [1 / 3] * 3),
        ([-1.0, 0.5, 1.0], [0.1, 0.3, 0.6]),
        ([-1.0, -0.3, 0.4, 1.0], [0.4, 0.1, 0.1, 0.4]),
    ],
)
@pytest.mark.parametrize("variance_ratio", [1.1, 1.5])
def test_channel_explains_as_much_as_brute_force(x, prior, epsilon, variance_ratio):
    channel = BayesKary(epsilon, x, prior, variance_ratio)
    largest = variance_ratio * float(OptimalKary(epsilon, x).worst_variance)
    assert channel.worst_variance < largest * (1 + 1e-6)
    # The brute force is confined to a lattice of values, so it is below the optimum, by little.
    best = naive.largest_share(x, epsilon, prior, largest, n_lattice=161)
    assert best * (1 - 2e-4) <= channel.explained < best * 1.003
    assert 0 <= channel.optimality_gap <= 1.01e-4 * channel.explained


@given(
    epsilon=st.floats(0.1, 6),
    prior=st.lists(st.floats(0.01, 1), min_size=5, max_size=5).map(lambda p: np.array(p) / sum(p)),
)
@settings(max_examples=20)
def test_the_explained_share_is_1_minus_the_relative_bayes_error(epsilon, prior):
    channel = OptimalKary(epsilon, STARS)
    table = [[c / 2**64 for c in row] for row in channel.counts]
    variance = prior @ (np.array(STARS) - prior @ STARS) ** 2
    expected = 1 - naive.bayes_error(table, STARS, prior) / variance
    assert math.isclose(explained_share(channel, prior), expected, rel_tol=1e-6, abs_tol=1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("prior", [UNIFORM, SKEWED])
def test_no_other_mechanism_of_the_package_explains_more(epsilon, prior):
    channel = BayesKary(epsilon, STARS, prior)
    for other in (OptimalKary(epsilon, STARS), GRR(epsilon, 5).channel(STARS), RoundedLaplace(epsilon, STARS)):
        assert explained_share(other, prior) <= channel.explained * (1 + 1e-9)  # GRR is the best one at 4, uniform
    assert explained_share(OptimalKary(epsilon, STARS), prior) < 0.99 * channel.explained
    # A prior improves the explained share; a wrong prior is worse than the right one.
    assert (
        explained_share(BayesKary(epsilon, STARS, SKEWED[::-1]), SKEWED) < BayesKary(epsilon, STARS, SKEWED).explained
    )


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(
    epsilon=st.floats(0.01, 9),
    grid=grids,
    weights=st.none() | st.lists(st.integers(1, 9), min_size=5, max_size=5),
    variance_ratio=st.sampled_from([1.01, 1.5, 4.0, 1000.0]),
)
def test_any_grid_prior_and_epsilon_make_a_channel_that_keeps_epsilon(epsilon, grid, weights, variance_ratio):
    prior = None if weights is None else weights[: len(grid)]
    channel, smallest_variance = BayesKary(epsilon, grid, prior, variance_ratio), OptimalKary(epsilon, grid)
    assert channel.likelihood_ratio <= naive_bounds.exp_bounds(epsilon)[0]
    assert epsilon * (1 - 1e-6) < channel.epsilon <= epsilon
    assert [channel.mean(x) for x in range(len(grid))] == list(channel.inputs) == [Fraction(v) for v in grid]
    assert channel.worst_variance <= variance_ratio * float(smallest_variance.worst_variance) * (1 + 1e-4)
    assert channel.explained >= explained_share(smallest_variance, channel.prior) * (1 - 1e-4)


@pytest.mark.parametrize(("size", "epsilon"), [(2, 8.0), (3, 0.1), (5, 2.0), (7, 2.5)])
def test_tables_equal_the_output_of_the_generator(size, epsilon):
    made, shipped = tables.bayes_entry(size, epsilon), read_tables("bayes_kary.json")[str(size)][str(epsilon)]
    x, prior = np.linspace(-1, 1, size), np.full(size, 1 / size)

    def share(entry):
        masks, weights, _ = map(np.array, zip(*entry["outputs"], strict=True))
        sets = masks[:, None] >> np.arange(size) & 1 == 1
        return weights @ solver.score(np.where(sets, math.exp(epsilon), 1.0), x, prior)

    assert math.isclose(share(made), share(shipped), rel_tol=1e-3)  # the programme stops within 1e-4 of the best


@pytest.mark.parametrize("attempt", solver._ATTEMPTS, ids=str)
def test_each_attempt_explains_an_equal_share(monkeypatch, attempt):
    usual = BayesKary(1.7, STARS, SKEWED)
    monkeypatch.setattr(solver, "_ATTEMPTS", (attempt,))
    channel = BayesKary(1.7, STARS, SKEWED)
    shares = [explained_share(channel, SKEWED) for channel in (channel, usual)]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)


def test_without_a_solution_it_has_the_smallest_variance(monkeypatch):
    monkeypatch.setattr(solver, "_ATTEMPTS", ())
    channel, smallest_variance = BayesKary(1.7, STARS, SKEWED), OptimalKary(1.7, STARS)
    assert channel.epsilon <= 1.7
    assert [channel.mean(x) for x in range(5)] == STARS
    assert channel.worst_variance == pytest.approx(smallest_variance.worst_variance)
    assert explained_share(channel, SKEWED) == pytest.approx(explained_share(smallest_variance, SKEWED))
    assert explained_share(channel, SKEWED) + channel.optimality_gap == pytest.approx(1.0)


def test_a_shipped_solution_equals_a_computed_one(monkeypatch):
    shipped = BayesKary(2.0, 5)
    monkeypatch.setattr("fastfedrec.mechanisms.ratings.bayes_kary.find_solution", lambda *_: None)
    solved = BayesKary(2.0, 5)
    assert math.isclose(shipped.explained, solved.explained, rel_tol=1e-4)
    assert shipped.explained > 0
    # The tables have no entries for other priors or variance ratios.
    monkeypatch.undo()
    assert BayesKary(2.0, 5, prior=[1, 1, 1, 1, 4]).counts != shipped.counts
    assert BayesKary(2.0, 5, variance_ratio=2.0).counts != shipped.counts


def test_reports_of_the_mean_only_are_mixed_with_full_reports():
    # The mixture is necessary: three outputs for five values would have no unbiased decoder.
    channel = BayesKary(0.415, [4, 7, 8, 12, 15], variance_ratio=3.0)
    table = np.array(channel.counts, dtype=float) / 2**64
    assert np.linalg.matrix_rank(table, tol=1e-6) == 5
    assert channel.optimality_gap < 0.05 * channel.explained
    assert channel.worst_variance < 3 * OptimalKary(0.415, [4, 7, 8, 12, 15]).worst_variance


def test_grid_and_prior_in_other_units_are_the_same():
    channel = BayesKary(1.0, 3, [1, 2, 1])
    for other in (BayesKary(1.0, [10, 20, 30], [1, 2, 1]), BayesKary(1.0, 3, [0.25, 0.5, 0.25])):
        np.testing.assert_allclose(np.array(other.counts, float), np.array(channel.counts, float), rtol=1e-6)
        assert other.prior == (0.25, 0.5, 0.25)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.009, 5), "epsilon must be at least"),
        ((12.1, 5), "epsilon must be at most"),
        ((1.0, [2, 1]), "grid must be 2 to 16 increasing numbers"),
        ((1.0, 17), "grid must be at most 16"),
        ((1.0, 3, [1, 1]), "prior must hold a number for each of 3 values"),
        ((1.0, 3, [0, 1, 0]), "two of them above 0"),
        ((1.0, 3, [1, -1, 1]), r"prior\[1\] must be at least 0"),
        ((1.0, 3, None, 1.0), "variance_ratio must be at least 1.01"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        BayesKary(*arguments)
