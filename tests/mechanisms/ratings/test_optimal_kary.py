"""The optimal k-ary mechanism: its solver, its tables, and the channels made of them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.ratings import optimal_kary as naive
from support.maintainers import load_program

from fastfedrec.mechanisms import GRR, BayesKary, BinaryResponse, OptimalKary, TruncatedGeometric
from fastfedrec.mechanisms.ratings import _kary_solutions as tables_module
from fastfedrec.mechanisms.ratings import _optimal_kary_solver as solver
from fastfedrec.mechanisms.ratings._kary_solutions import propose, read_tables

tables = load_program(".ci/kary_tables")

UNIT = [0, 0.25, 0.5, 0.75, 1]


def worst_variance(x, epsilon, sets, weights, values):
    factors = np.where(sets, math.exp(epsilon), 1.0).T * weights
    return (factors @ values**2 - np.asarray(x) ** 2).max()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("x", [[-1.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, 0.5, 1.0], [-1.0, -0.3, 0.4, 1.0]])
def test_solver_reaches_the_brute_force_optimum(x, epsilon):
    sets, weights, values, gap = solver.solve(np.array(x), epsilon)
    variance = worst_variance(x, epsilon, sets, weights, values)
    # The brute force is confined to a lattice of values, so it is above the optimum, by little.
    smallest = naive.least_variance(x, epsilon, n_lattice=161)
    assert variance <= smallest * (1 + 1e-7)
    assert variance > smallest * 0.998
    assert 0 <= gap < 1e-6 * max(variance, 1.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_no_other_mechanism_of_the_package_is_better(epsilon):
    smallest = OptimalKary(epsilon, UNIT).worst_variance
    slack = 1 + Fraction(1, 10**6)
    answer = BinaryResponse(epsilon).outputs[0]  # on [-1, 1]; worst at t = 0
    assert smallest < slack * answer**2 / 4
    assert smallest < slack * GRR(epsilon, 5).channel(UNIT).worst_variance
    assert smallest < slack * TruncatedGeometric(epsilon, UNIT).worst_variance


@pytest.mark.parametrize("kind", [OptimalKary, BayesKary])
def test_two_values_are_binary_response(kind):
    channel, answer = kind(1.0, [-1, 1]), BinaryResponse(1.0)
    assert math.isclose(channel.worst_variance, answer.variance(0), rel_tol=1e-9)


def test_there_is_a_mechanism_if_the_simplex_method_fails():
    """Its variance is between the variances at neighbouring epsilons."""
    variances = [OptimalKary(epsilon, 5).worst_variance for epsilon in (7.9999, 7.999999999999999, 8.0)]
    assert variances[2] * (1 - 1e-6) < variances[1] < variances[0]


def test_the_program_of_the_review_has_a_mechanism():
    channel = OptimalKary(11.99, 5)
    assert channel.epsilon <= 11.99
    assert [channel.mean(x) for x in range(5)] == list(range(5))
    assert channel.worst_variance <= OptimalKary(11.9, 5).worst_variance * (1 + 1e-3)


@pytest.mark.parametrize("attempt", solver._ATTEMPTS, ids=str)
@pytest.mark.parametrize(("size", "epsilon"), [(3, 1.0), (5, 4.0)])
def test_each_attempt_finds_the_same_optimum(monkeypatch, attempt, size, epsilon):
    x = np.arange(float(size))
    usual = worst_variance(x, epsilon, *solver.solve(x, epsilon)[:3])
    monkeypatch.setattr(solver, "_ATTEMPTS", (attempt,))
    assert worst_variance(x, epsilon, *solver.solve(x, epsilon)[:3]) == pytest.approx(usual, rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 12.0), st.lists(st.integers(-50, 50), min_size=2, max_size=16, unique=True))
def test_without_a_solution_it_is_binary_response(epsilon, grid):
    """In closed form, so that there is a mechanism for every epsilon and grid."""
    grid = sorted(grid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "_ATTEMPTS", ())
        patch.setattr(tables_module, "find_solution", lambda *_: None)
        channel = OptimalKary(epsilon, grid)
    assert channel.epsilon <= epsilon
    assert [channel.mean(x) for x in range(len(grid))] == grid
    half = (grid[-1] - grid[0]) / 2
    coin = (half / math.tanh(epsilon / 2)) ** 2
    assert channel.worst_variance <= coin * (1 + 1e-6)
    assert channel.optimality_gap == pytest.approx(coin)


@pytest.mark.slow
def test_large_epsilons_have_mechanisms():
    """A scan where the simplex method gives up at some programmes; another attempt solves each to its gap."""
    for size in (2, 3, 4, 5, 6, 8):
        for epsilon in np.arange(9.03, 12.0, 0.55):
            variances = solver.solve(np.arange(float(size)), float(epsilon))
            variance = worst_variance(np.arange(float(size)), float(epsilon), *variances[:3])
            assert variances[3] <= 1e-5 * max(variance, 1.0)


@pytest.mark.parametrize(("size", "epsilon"), [(2, 8.0), (3, 0.1), (5, 1.0), (7, 2.5)])
def test_tables_equal_the_output_of_the_generator(size, epsilon):
    made, shipped = tables.optimal_entry(size, epsilon), read_tables("optimal_kary.json")[str(size)][str(epsilon)]
    x = np.linspace(-1, 1, size)

    def variance(entry):
        masks, weights, values = map(np.array, zip(*entry["outputs"], strict=True))
        return worst_variance(x, epsilon, masks[:, None] >> np.arange(size) & 1 == 1, weights, values)

    # The optimum is unique, the mechanism that reaches it need not be: other versions of SciPy may find another one.
    assert math.isclose(variance(made), variance(shipped), rel_tol=1e-6)


@pytest.mark.parametrize("name", ["optimal_kary.json", "bayes_kary.json"])
def test_tables_cover_the_stated_range(name):
    shipped = read_tables(name)
    assert sorted(map(int, shipped)) == list(tables.SIZES) == list(range(2, 12))
    for size in tables.SIZES:
        assert tuple(map(float, shipped[str(size)])) == tuple(tables.EPSILONS) == OptimalKary.table_epsilons()
    assert (min(tables.EPSILONS), max(tables.EPSILONS)) == (0.1, 8.0)


# ---- invariants -----------------------------------------------------------------------------------------------------


def check_channel(channel, epsilon, grid):
    assert channel.likelihood_ratio <= naive_bounds.exp_bounds(epsilon)[0]
    assert epsilon * (1 - 1e-6) < channel.epsilon <= epsilon
    assert [channel.mean(x) for x in range(len(grid))] == list(channel.inputs) == [Fraction(v) for v in grid]


@pytest.mark.parametrize("size", range(2, 12))
def test_every_table_makes_a_channel_that_keeps_epsilon(size):
    for epsilon in OptimalKary.table_epsilons():
        channel = OptimalKary(epsilon, size)
        check_channel(channel, epsilon, range(size))
        # The table's variance, up to rounding to 64 bits and to the table's digits.
        sets, weights, values, gap = propose(np.arange(size, dtype=float), epsilon)
        proposed = worst_variance(range(size), epsilon, sets, weights, values)
        assert math.isclose(channel.worst_variance, proposed, rel_tol=1e-6, abs_tol=1e-6)
        assert gap == channel.optimality_gap <= 2e-6 * proposed + 1e-6


@settings(max_examples=10)
@given(
    epsilon=st.floats(0.01, 12),
    grid=st.lists(st.integers(-20, 20), min_size=2, max_size=5, unique=True).map(sorted),
)
def test_any_grid_and_epsilon_make_a_channel_that_keeps_epsilon(epsilon, grid):
    check_channel(OptimalKary(epsilon, grid), epsilon, grid)


@pytest.mark.parametrize(
    ("kind", "proposal", "loss"),
    [
        (OptimalKary, "optimal_kary.propose", lambda channel: channel.worst_variance),
        (BayesKary, "bayes_kary.BayesKary._propose", lambda channel: -channel.explained),
    ],
)
def test_a_broken_proposal_cannot_break_epsilon(monkeypatch, kind, proposal, loss):
    # They only propose: weights that are 10% off and a set that is wrong still give a channel that keeps epsilon.
    sets, weights, values, gap = propose(np.arange(5.0), 2.0)
    wrong_sets = sets.copy()
    wrong_sets[0, 0] ^= True
    wrong = wrong_sets, 1.1 * weights, values, gap
    monkeypatch.setattr(f"fastfedrec.mechanisms.ratings.{proposal}", lambda *_: wrong)
    channel = kind(2.0, 5)
    assert channel.likelihood_ratio <= naive_bounds.exp_bounds(2.0)[0]
    assert [channel.mean(x) for x in range(5)] == list(range(5))
    monkeypatch.undo()
    assert loss(channel) > loss(kind(2.0, 5))


def test_grid_in_other_units_has_the_same_counts():
    assert OptimalKary(1.0, [10, 20, 30]).counts == OptimalKary(1.0, 3).counts
    assert OptimalKary(1.0, np.arange(0.5, 5.5, 0.5)).counts == OptimalKary(1.0, 10).counts
    assert OptimalKary(1.0, [0, 0.1, 0.2, 0.30000000000000004]).counts == OptimalKary(1.0, 4).counts


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.009, 12.1])
def test_bad_epsilons(epsilon):
    with pytest.raises(ValueError, match="epsilon must be"):
        OptimalKary(epsilon, 5)


@pytest.mark.parametrize("grid", [[1], [2, 1], [1, 1], list(range(17))])
def test_bad_grids(grid):
    with pytest.raises(ValueError, match="grid must be 2 to 16 increasing numbers"):
        OptimalKary(1.0, grid)
