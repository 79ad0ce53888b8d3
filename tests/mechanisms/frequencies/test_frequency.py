"""Frequency oracles: GRR and OUE."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.frequencies import frequency as naive
from support.significance import assert_only, mean_is, share_is

from fastfedrec import Key
from fastfedrec.mechanisms import GRR, OUE, SubsetSelection

TOTAL = 2**64

epsilons = st.floats(min_value=1e-3, max_value=20)
oracles = pytest.mark.parametrize("oracle", [GRR, OUE])


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(epsilon=epsilons, n_values=st.integers(2, 300), seed=st.integers(0, 99))
def test_grr_reports_equal_naive_twin(epsilon, n_values, seed):
    grr, key = GRR(epsilon, n_values), Key.from_seed(seed)
    values = np.arange(50) * 7 % n_values
    words = key.words("grr.privatize", round=3, size=50).tolist()
    expected = [naive.grr(v, n_values, grr.q_count, w) for v, w in zip(values.tolist(), words, strict=True)]
    assert grr.privatize(values, key=key, round=3).tolist() == expected


@given(epsilon=epsilons, n_values=st.integers(2, 30), seed=st.integers(0, 99))
def test_oue_reports_equal_naive_twin(epsilon, n_values, seed):
    oue, key = OUE(epsilon, n_values), Key.from_seed(seed)
    values = np.arange(12) * 5 % n_values
    words = key.words("oue.privatize", round=3, size=12 * n_values).reshape(12, n_values).tolist()
    expected = [naive.oue(v, n_values, oue.q_count, row) for v, row in zip(values.tolist(), words, strict=True)]
    assert oue.privatize(values, key=key, round=3).tolist() == expected


def test_second_block_reads_a_separate_stream():
    key = Key.from_seed(1)
    words = key.words("grr.privatize", user=1, size=9).tolist()
    grr = GRR(1.0, 10)
    expected = [naive.grr(4, 10, grr.q_count, word) for word in words]
    assert grr.privatize(np.full(65_536 + 9, 4), key=key)[-9:].tolist() == expected
    # 3,641 rows of 18 bits: the first block ends within the last row, after 65,536 bits.
    oue = OUE(1.0, 18)
    words = key.words("oue.privatize", size=65_536).tolist()[-16:] + key.words("oue.privatize", user=1, size=2).tolist()
    assert oue.privatize(np.full(3_641, 5), key=key)[-1].tolist() == naive.oue(5, 18, oue.q_count, words)


@given(epsilon=st.floats(0.1, 5), n_values=st.integers(2, 5), seed=st.integers(0, 99))
def test_oue_epsilon_is_the_worst_over_all_reports(epsilon, n_values, seed):
    oue = OUE(epsilon, n_values)
    q = Fraction(oue.q_count, TOTAL)
    worst = max(
        naive.oue_probability(bits, a, q) / naive.oue_probability(bits, b, q)
        for bits in itertools.product([0, 1], repeat=n_values)
        for a, b in itertools.permutations(range(n_values), 2)
    )
    assert oue.likelihood_ratio == worst


@oracles
@given(epsilon=st.floats(0.1, 5), values=st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_variance_equals_naive_twin(oracle, epsilon, values):
    mechanism = oracle(epsilon, 4)
    p, q = Fraction(mechanism.p_count, TOTAL), Fraction(mechanism.q_count, TOTAL)
    share = Fraction(values.count(2), len(values))
    assert mechanism.variance(share, len(values)) == naive.frequency_variance(values, 2, p, q)


# ---- invariants -----------------------------------------------------------------------------------------------------


@oracles
@given(epsilon=epsilons, n_values=st.integers(2, 10**6))
@example(epsilon=1e-3, n_values=2)
@example(epsilon=1e-3, n_values=176_192)
@example(epsilon=20.0, n_values=2**31 - 1)
def test_exact_epsilon_is_at_most_nominal_and_one_less_is_too_much(oracle, epsilon, n_values):
    mechanism = oracle(epsilon, n_values)
    q = mechanism.q_count

    def ratio(low):
        return Fraction(TOTAL - (n_values - 1) * low, low) if oracle is GRR else Fraction(TOTAL - low, low)

    assert mechanism.likelihood_ratio == ratio(q) <= naive_bounds.exp_bounds(epsilon)[0]
    assert ratio(q - 1) > naive_bounds.exp_bounds(epsilon)[1]  # control: one word less breaks the claim
    one_word = n_values / mechanism.p_count + 1 / q  # an upper bound of one word's effect on epsilon
    assert epsilon * (1 - 1e-6) - one_word < mechanism.epsilon <= epsilon


@given(epsilon=st.floats(0.1, 8), n_values=st.integers(2, 8))
def test_grr_as_a_channel_is_unbiased(epsilon, n_values):
    grr = GRR(epsilon, n_values)
    channel = grr.channel([x**2 for x in range(n_values)])
    assert channel.likelihood_ratio == grr.likelihood_ratio
    assert [channel.mean(x) for x in range(n_values)] == [x**2 for x in range(n_values)]


def test_oue_is_better_than_grr_for_many_values_only():
    # Wang et al. 2017: the border is 3 e^epsilon + 2, about 10.2 at epsilon = 1.
    assert GRR(1.0, 10).variance(0, 1) < OUE(1.0, 10).variance(0, 1)
    assert GRR(1.0, 11).variance(0, 1) > OUE(1.0, 11).variance(0, 1)


@given(values=st.lists(st.integers(0, 6), max_size=40), seed=st.integers(0, 99))
def test_support_adds_up_over_shards_and_needs_no_reports_for_oue(values, seed):
    values = np.array(values, dtype=np.int64)
    oue, key = OUE(0.7, 7), Key.from_seed(seed)
    reports, other_reports = (oue.privatize(values, key=key, round=r) for r in (0, 3))
    np.testing.assert_array_equal(oue.privatize_support(values, key=key), oue.support(reports))
    np.testing.assert_array_equal(oue.privatize_support(values, key=key, round=3), oue.support(other_reports))
    np.testing.assert_array_equal(oue.support(reports[:3]) + oue.support(reports[3:]), reports.sum(axis=0))
    if len(values):
        shown = oue.estimate_from_support(oue.support(reports), len(values))
        np.testing.assert_array_equal(oue.estimate(reports), shown)
        grr = GRR(0.7, 7)
        # All reports together support one value each, so GRR's estimates add up to 1.
        assert math.isclose(grr.estimate(grr.privatize(values, key=key)).sum(), 1.0, rel_tol=1e-9)


def test_out_and_in_place():
    key, values = Key.from_seed(1), (np.arange(100) % 5).astype(np.uint8)
    expected = GRR(1.0, 5).privatize(values, key=key)
    buffer = values.copy()
    assert GRR(1.0, 5).privatize(buffer, key=key, out=buffer) is buffer
    np.testing.assert_array_equal(buffer, expected)
    assert GRR(1.0, 300).privatize(values, key=key).dtype == np.uint16
    bits = np.empty((100, 5), dtype=np.uint8)
    assert OUE(1.0, 5).privatize(values, key=key, out=bits) is bits
    np.testing.assert_array_equal(bits, OUE(1.0, 5).privatize(values, key=key))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@oracles
def test_bad_parameters(oracle):
    with pytest.raises(ValueError, match="epsilon is too small"):
        oracle(1e-20, 4)
    with pytest.raises(ValueError, match="n_values must be at least 2, got 1"):
        oracle(1.0, 1)
    with pytest.raises(TypeError, match="n_values must be an integer"):
        oracle(1.0, 4.0)


@oracles
def test_bad_arguments(oracle):
    mechanism = oracle(1.0, 4)
    with pytest.raises(TypeError, match="values must be integers"):
        mechanism.privatize([0.5])
    with pytest.raises(ValueError, match="frequency must be at most 1"):
        mechanism.variance(1.5, 10)
    with pytest.raises(ValueError, match="n_reports must be at least 1"):
        mechanism.variance(0.5, 0)
    with pytest.raises(ValueError, match=r"support must have shape \(4,\), got \(3,\)"):
        mechanism.estimate_from_support([1, 2, 3], 6)
    with pytest.raises(ValueError, match="round must be at least 0"):
        mechanism.privatize([0], round=-1)


@oracles
def test_huge_epsilon_is_as_little_private_as_64_bits_allow(oracle):
    mechanism = oracle(1e300, 4)
    assert mechanism.q_count == 1
    assert 44 < mechanism.epsilon < 45
    reports = mechanism.privatize([3] * 100, key=Key.from_seed(1))
    assert mechanism.support(reports)[:3].tolist() == [0, 0, 0]


def test_bad_shapes():
    with pytest.raises(ValueError, match="values must have 1 dimension"):
        OUE(1.0, 4).privatize([[0, 1]])
    with pytest.raises(ValueError, match=r"reports must have shape \(n, 4\), got \(2, 3\)"):
        OUE(1.0, 4).support(np.zeros((2, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"reports must be in \[0, 2\), got 0 to 2"):
        OUE(1.0, 4).support([[0, 2, 0, 0]])
    with pytest.raises(ValueError, match=r"reports must be in \[0, 4\), got 4 to 4"):
        GRR(1.0, 4).support([4])
    buffer = np.zeros(8, dtype=np.uint8)
    with pytest.raises(ValueError, match="out must not share memory"):
        OUE(1.0, 4).privatize(buffer[:2], out=buffer.reshape(2, 4))
    with pytest.raises(ValueError, match="inputs must have 4 numbers, one for each value, got 3"):
        GRR(1.0, 4).channel([1, 2, 3])
    with pytest.raises(ValueError, match="inputs must be 2 to 256 increasing numbers"):
        GRR(1.0, 3).channel([1, 3, 2])


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@oracles
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_reports_support_values_as_often_as_stated(oracle, epsilon):
    mechanism, n = oracle(epsilon, 5), 1_000_000
    support = mechanism.support(mechanism.privatize(np.full(n, 3), key=Key.from_seed(5)))
    for value, stated in ((3, mechanism.p_count), (0, mechanism.q_count), (4, mechanism.q_count)):
        assert_only(lambda factor, v=value, p=stated / TOTAL: share_is(support[v], n, factor * p))


@pytest.mark.slow
@pytest.mark.parametrize(("oracle", "n_values"), [(GRR, 6), (OUE, 6), (SubsetSelection, 12)])
def test_estimates_are_unbiased_with_the_stated_variance(oracle, n_values):
    mechanism, n_runs, n, frequency = oracle(1.0, n_values), 400, 2_000, 0.4
    values = (np.arange(n) % 10 >= 6) * 2  # two fifths hold 2, the others 0
    key = Key.from_seed(7)
    runs = np.array([mechanism.estimate(mechanism.privatize(values, key=key, round=r))[2] for r in range(n_runs)])
    stddev = math.sqrt(mechanism.variance(frequency, n))
    assert_only(lambda factor: mean_is(runs, factor * frequency, stddev))
    # The mean square error has mean stddev^2 and, estimates being near normal, a spread of sqrt(2) stddev^2.
    squares = (runs - frequency) ** 2
    assert mean_is(squares, stddev**2, math.sqrt(2) * stddev**2)
    assert not mean_is(squares, 0.5 * stddev**2, math.sqrt(2) * 0.5 * stddev**2)
    assert not mean_is(squares, 2.0 * stddev**2, math.sqrt(2) * 2.0 * stddev**2)
