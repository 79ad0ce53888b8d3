"""Binomial probabilities compared with exact ones, for any version of SciPy."""

import math
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.accounting import _binomial

# Relative tolerance, for counts with a logarithm of -45.  An account allows an error of a part in 10^9.
NEAR = 5e-13
# Distances of counts from the mean, in standard deviations.
FAR = (-9.5, -3.0, -0.5, 0.0, 1.0, 6.0, 9.5)


def exact(k, n, probability):
    """Return the probability to 60 digits, by the logarithms of factorials."""
    with mpmath.workdps(60):
        p = mpmath.mpf(probability)
        choices = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        return mpmath.exp(choices + k * mpmath.log(p) + (n - k) * mpmath.log1p(-p))


def counts_around(n, probability):
    """Return some counts up to 9.5 standard deviations from the mean."""
    spread = math.sqrt(n * probability * (1 - probability))
    lowest = 1 if n * probability < 1 else 0
    return sorted({min(n, max(lowest, round(n * probability + far * spread))) for far in FAR})


# ---- probabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [1e-12, 0.1517, 0.5, 1 - 1e-6])
@pytest.mark.parametrize("n", [2, 40, 500, 10**6, 10**9, 10**11, 10**13])
def test_the_last_digits_are_right_at_every_size(n, probability):
    counts = counts_around(n, probability)
    result = _binomial.pmf(np.array(counts), n, probability)
    for count, mass in zip(counts, result, strict=True):
        truth = exact(count, n, probability)
        assert abs(mass - truth) <= NEAR * truth
    # Control: the tolerance detects another coin.
    moved = _binomial.pmf(np.array(counts), n, probability * (1 - 1e-7))
    assert max(abs(m / exact(k, n, probability) - 1) for k, m in zip(counts, moved, strict=True)) > NEAR


@given(n=st.integers(0, 300), numerator=st.integers(0, 64))
def test_all_counts_of_few_trials_are_exact_fractions(n, numerator):
    p = Fraction(numerator, 64)
    truth = [math.comb(n, k) * p**k * (1 - p) ** (n - k) if 0 <= k <= n else 0 for k in range(-2, n + 3)]
    result = _binomial.pmf(np.arange(-2, n + 3), n, numerator / 64)
    np.testing.assert_allclose(result, [float(t) for t in truth], rtol=1e-12, atol=1e-300)


def test_numbers_of_trials_may_be_arrays():
    counts, n = np.arange(-2, 30), np.arange(0, 25)[:, None]
    rows = [_binomial.pmf(counts, trials, 0.3) for trials in n[:, 0]]
    assert (_binomial.pmf(counts, n, 0.3) == rows).all()


# ---- tails and blocks ------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 200), numerator=st.integers(0, 32), count=st.integers(0, 210))
def test_a_tail_is_no_less_than_the_truth(n, numerator, count):
    p = Fraction(numerator, 32)
    masses = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    above, below = sum(masses[count:]), sum(masses[: count + 1])
    assert _binomial.tail_above(count, n, float(p)) >= float(above) * (1 - 1e-12)
    assert _binomial.tail_below(count, n, float(p)) >= float(below) * (1 - 1e-12)
    if count >= 2 * n * p + 10 and above:
        assert _binomial.tail_above(count, n, float(p)) <= 2 * float(above)


def test_far_tails_of_many_trials_are_near_the_truth_and_above_it():
    n, p = 10**12, 0.25
    spread = math.sqrt(n * p * (1 - p))
    low, high = int(n * p - 9 * spread), int(n * p + 9 * spread)
    # Tail mass of a normal variable above 9 standard deviations.
    normal = 1.1286e-19
    for result in (_binomial.tail_above(high, n, p), _binomial.tail_below(low, n, p)):
        # The bound is about 1 / 9^2 above the mass.
        assert normal * 0.99 < result < normal * 1.03
    assert _binomial.tail_above(n + 1, n, p) == _binomial.tail_below(-1, n, p) == 0
    # There is no claim for counts that are no tail.
    assert _binomial.tail_below(11, 10**18, 1e-17) == 1


@pytest.mark.parametrize("stride", [1, 7, 1000])
def test_blocks_share_all_that_is_from_the_first_count_on(stride, monkeypatch):
    n, p, first, last = 5_000, 0.3, 1_200, 1_800
    masses = _binomial.block_masses(first, last, stride, n, p)
    single = _binomial.pmf(np.arange(first, n + 1), n, p)
    expected = np.add.reduceat(single, np.arange(0, last + 1 - first, stride))
    np.testing.assert_allclose(masses, expected, rtol=1e-12, atol=1e-21)
    assert masses[-1] >= expected[-1]
    monkeypatch.setattr(_binomial, "_BLOCK", 37)
    np.testing.assert_allclose(_binomial.block_masses(first, last, stride, n, p), masses, rtol=1e-12)


# ---- fair coins ------------------------------------------------------------------------------------------------------


def exact_coins(counts, n):
    """Return the probability, rounded once."""
    return np.array([math.comb(n, k) / 2**n if k >= 0 else 0.0 for k in counts.tolist()])


@given(n=st.integers(0, 300), first=st.integers(-50, 300), size=st.integers(1, 400))
def test_fair_coins_are_off_by_two_roundings_a_step(n, first, size):
    counts = np.arange(min(first, n), max(first + size, 0) + 1)
    result = _binomial.fair_pmf(counts[0], counts[-1], n)
    np.testing.assert_allclose(result, exact_coins(counts, n), rtol=2e-13, atol=0)


@given(n=st.lists(st.integers(0, 300), min_size=1, max_size=5), width=st.integers(1, 400))
def test_upper_halves_are_those_of_all_counts(n, width):
    halves = _binomial.fair_upper_halves(np.array(n)[:, None], width)
    expected = [exact_coins((trials + 1) // 2 + np.arange(width), trials) for trials in n]
    np.testing.assert_allclose(halves, expected, rtol=2e-13, atol=0)


def test_many_fair_coins_are_right_to_the_last_digits():
    n, counts = 40_000, np.arange(19_100, 20_901)
    truth = exact_coins(counts[::100], n)
    result = _binomial.fair_pmf(19_100, 20_900, n), _binomial.pmf(counts, n, 0.5 + 1e-12)
    ours, another_coins = (np.abs(masses[::100] / truth - 1).max() for masses in result)
    assert ours < 900 * 2.0**-52 < another_coins


def test_what_double_precision_cannot_tell_from_nothing_is_nothing():
    # A missing mass counts as the worst loss, but a mass that is too large does not.
    n, counts = 100_000, np.arange(50_000, 60_001)
    masses = _binomial.fair_pmf(50_000, 60_000, n)
    assert (np.diff(masses) <= 0).all()
    assert masses[masses > 0].min() >= np.finfo(float).tiny
    assert masses[-1] == exact_coins(counts[-1:], n) == 0
    # The products do not reach 0 in floating point.
    assert np.cumprod((n + 1 - counts) / counts)[-1] > 0


# ---- start-up --------------------------------------------------------------------------------------------------------


def test_accounts_of_a_shuffler_do_not_import_scipy_stats():
    code = """if True:
        import sys
        from fastfedrec.accounting import shuffled_epsilon
        for neighboring in ("replace", "zero_out"):
            shuffled_epsilon(2.5, n_reports=3, n_users=50, n_rounds=2, delta=1e-6, neighboring=neighboring)
        assert "scipy.stats" not in sys.modules
        """
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
