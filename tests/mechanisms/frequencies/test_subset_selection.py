"""Subset selection: reports, exact epsilon, and estimates."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.frequencies import frequency as naive_frequency
from naive.mechanisms.frequencies import subset_selection as naive
from support.significance import assert_only, counts_are, share_is, tilted
from support.strategies import keys

from fastfedrec import Key
from fastfedrec.mechanisms import GRR, OUE, SubsetSelection
from fastfedrec.testing import assert_epsilon

TOTAL = 2**64

epsilons = st.floats(min_value=1e-3, max_value=20)


@st.composite
def oracles(draw, max_values=300, epsilons=epsilons):
    n_values = draw(st.integers(2, max_values))
    size = draw(st.none() | st.integers(1, n_values - 1))
    return SubsetSelection(draw(epsilons), n_values, subset_size=size)


def total_variance(oracle):
    """Return the summed variance of all estimates for one client with a known value."""
    return oracle.variance(1, 1) + (oracle.n_values - 1) * oracle.variance(0, 1)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(oracle=oracles(), key=keys())
@example(oracle=SubsetSelection(1.0, 64, subset_size=63), key=Key.from_seed(1))
@example(oracle=SubsetSelection(1.0, 70_000, subset_size=5), key=Key.from_seed(1))
def test_reports_equal_naive_twin(oracle, key):
    n, size = oracle.n_values, oracle.subset_size
    values = [v % n for v in (0, n - 1, n // 2, 7, n - 1)]
    words = iter(key.words("subset_selection.privatize", round=3, size=5 * (size + 1) + 20).tolist())
    expected = [naive.report(v, n, size, oracle.p_count, words) for v in values]
    assert oracle.privatize(values, key=key, round=3).tolist() == expected


def test_second_block_reads_a_separate_stream():
    key, oracle = Key.from_seed(1), SubsetSelection(1.0, 20)
    words = iter(key.words("subset_selection.privatize", user=1, size=200).tolist())
    expected = [naive.report(4, 20, oracle.subset_size, oracle.p_count, words) for _ in range(9)]
    assert oracle.privatize(np.full(1024 + 9, 4), key=key)[-9:].tolist() == expected


@given(oracle=oracles(max_values=6, epsilons=st.floats(0.1, 5)))
def test_epsilon_and_variance_are_those_of_all_reports(oracle):
    n, p = oracle.n_values, Fraction(oracle.p_count, TOTAL)
    subsets = list(itertools.combinations(range(n), oracle.subset_size))
    table = [[naive.probability(subset, x, n, p) for subset in subsets] for x in range(n)]
    assert [sum(row) for row in table] == [1] * n
    pairs = itertools.permutations(table, 2)
    assert oracle.likelihood_ratio == max(a / b for x, y in pairs for a, b in zip(x, y, strict=True))
    true_share, false_share = (
        sum(c for c, subset in zip(table[0], subsets, strict=True) if v in subset) for v in (0, 1)
    )
    for values in ([1] * 4, [0, 1, 1], [0]):
        share = Fraction(values.count(0), len(values))
        assert oracle.variance(share, len(values)) == naive_frequency.frequency_variance(
            values, 0, true_share, false_share
        )


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(epsilon=epsilons, n_values=st.integers(2, 2**24), data=st.data())
def test_exact_epsilon_is_at_most_nominal_and_one_more_is_too_much(epsilon, n_values, data):
    size = data.draw(st.none() | st.integers(1, n_values - 1))
    oracle = SubsetSelection(epsilon, n_values, subset_size=size)
    size = oracle.subset_size

    def ratio(p_count):
        return Fraction(p_count * (n_values - size), (TOTAL - p_count) * size)

    assert oracle.likelihood_ratio == ratio(oracle.p_count) <= naive_bounds.exp_bounds(epsilon)[0]
    assert ratio(oracle.p_count + 1) > naive_bounds.exp_bounds(epsilon)[1]  # control: one word more breaks the claim
    assert epsilon * (1 - 1e-6) < oracle.epsilon <= epsilon


@given(epsilon=epsilons, n_values=st.integers(2, 40))
def test_the_chosen_size_is_the_best_and_no_worse_than_grr_and_oue(epsilon, n_values):
    smallest = total_variance(SubsetSelection(epsilon, n_values))
    sizes = [total_variance(SubsetSelection(epsilon, n_values, subset_size=d)) for d in range(1, n_values)]
    assert smallest == min(sizes)
    # GRR is size 1 with another rounding of counts.
    assert smallest <= total_variance(GRR(epsilon, n_values)) * (1 + Fraction(1, 10**9))
    assert smallest <= total_variance(OUE(epsilon, n_values)) * (1 + Fraction(1, 10**9))


@given(oracle=oracles(max_values=50), values=st.lists(st.integers(0, 10**6), max_size=40), key=keys())
def test_reports_are_ascending_and_their_support_adds_up(oracle, values, key):
    reports = oracle.privatize([v % oracle.n_values for v in values], key=key)
    assert reports.shape == (len(values), oracle.subset_size)
    assert (np.diff(reports.astype(np.int64), axis=1) > 0).all()
    support = oracle.support(reports)
    assert support.sum() == reports.size
    np.testing.assert_array_equal(support, oracle.support(reports[:3]) + oracle.support(reports[3:]))
    if len(values):
        # Every report supports as many values, so the estimates add up to 1; epsilon 1e-3 costs digits.
        assert math.isclose(oracle.estimate(reports).sum(), 1.0, rel_tol=1e-6)


def test_out():
    key, values, oracle = Key.from_seed(1), np.arange(100) % 5, SubsetSelection(1.0, 300, subset_size=3)
    expected = oracle.privatize(values, key=key)
    assert expected.dtype == np.uint16
    for kind in (np.uint16, np.int32, np.int64):
        out = np.empty((100, 3), dtype=kind)
        assert oracle.privatize(values, key=key, out=out) is out
        np.testing.assert_array_equal(out, expected)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_parameters():
    with pytest.raises(ValueError, match="epsilon is too small for 4 values"):
        SubsetSelection(1e-20, 4)
    with pytest.raises(ValueError, match="n_values must be at least 2, got 1"):
        SubsetSelection(1.0, 1)
    with pytest.raises(ValueError, match="n_values must be at most 16777216"):
        SubsetSelection(1.0, 2**24 + 1)
    for size, bound in ((0, "at least 1"), (4, "at most 3")):
        with pytest.raises(ValueError, match=f"subset_size must be {bound}, got {size}"):
            SubsetSelection(1.0, 4, subset_size=size)
    with pytest.raises(TypeError, match="subset_size must be an integer"):
        SubsetSelection(1.0, 4, subset_size=2.0)


def test_bad_arguments():
    oracle = SubsetSelection(1.0, 6, subset_size=2)
    with pytest.raises(TypeError, match="values must be integers"):
        oracle.privatize([0.5])
    with pytest.raises(ValueError, match="values must have 1 dimension"):
        oracle.privatize([[0, 1]])
    with pytest.raises(ValueError, match="round must be at least 0"):
        oracle.privatize([0], round=-1)
    with pytest.raises(ValueError, match=r"reports must have shape \(n, 2\), got \(1, 3\)"):
        oracle.support([[0, 1, 2]])
    with pytest.raises(ValueError, match=r"reports must be in \[0, 6\), got 0 to 6"):
        oracle.support([[0, 6]])
    assert oracle.privatize([], key=Key.from_seed(1)).shape == (0, 2)


def test_huge_epsilon_is_as_little_private_as_64_bits_allow():
    oracle = SubsetSelection(1e300, 4)
    assert (oracle.subset_size, oracle.p_count) == (1, TOTAL - 1)
    assert 45 < oracle.epsilon < 46  # log(3 (2^64 - 1))
    assert oracle.privatize([3] * 100, key=Key.from_seed(1)).tolist() == [[3]] * 100


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 1), (0.5, 2), (2.0, 2), (1.0, 4)])
def test_subsets_come_as_often_as_stated(epsilon, size):
    n, n_values, value = 1_000_000, 5, 3
    oracle = SubsetSelection(epsilon, n_values, subset_size=size)
    reports = oracle.privatize(np.full(n, value), key=Key.from_seed(5))
    subsets = list(itertools.combinations(range(n_values), size))
    observed = np.bincount((1 << reports.astype(np.int64)).sum(axis=1), minlength=2**n_values)
    observed = observed[[sum(1 << v for v in subset) for subset in subsets]]
    p = Fraction(oracle.p_count, TOTAL)
    stated = [float(naive.probability(subset, value, n_values, p)) for subset in subsets]
    assert_only(lambda factor: counts_are(observed, tilted(stated, factor)))
    with_own = observed[[value in subset for subset in subsets]].sum()
    assert share_is(with_own, n, p)
    assert not share_is(with_own, n, 0.9 * float(p))
    assert not share_is(with_own, n, 1 - 1.1 * (1 - float(p)))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_audit_shows_the_claim_and_refutes_one_below(epsilon):
    oracle = SubsetSelection(epsilon, 6)

    class Reduced:
        """Reports reduced to the presence of 0 and 1, which is all that distinguishes these inputs."""

        def privatize(self, values, *, key, round=0):
            reports = oracle.privatize(values, key=key, round=round)
            return 2 * (reports == 0).any(axis=1) + (reports == 1).any(axis=1)

    assert_epsilon(Reduced(), 0, 1, claim=epsilon, key=Key.from_seed(6))
    with pytest.raises(AssertionError, match="VIOLATED"):  # control: a claim 10% lower
        assert_epsilon(Reduced(), 0, 1, claim=0.9 * epsilon, key=Key.from_seed(6))


# test_frequency.py tests the estimates of all oracles.
