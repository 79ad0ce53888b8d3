"""Binomial probabilities: the bits of scipy.stats, wherever SciPy keeps the compiled functions."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fastfedrec.accounting import _binomial

# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [1e-300, 0.1517, 0.5, 0.9])
@pytest.mark.parametrize("n", [0, 1, 7, 500, 10**6])
def test_every_bit_is_that_of_scipy_stats(n, probability):
    counts = np.unique(np.r_[-3:12, n // 2 - 40 : n // 2 + 40, n - 5 : n + 4])
    assert (_binomial.pmf(counts, n, probability) == binom.pmf(counts, n, probability)).all()
    assert (_binomial.sf(counts, n, probability) == binom.sf(counts, n, probability)).all()
    for count in (0, n // 2, n):
        assert _binomial.cdf(count, n, probability) == binom.cdf(count, n, probability)


def test_numbers_of_trials_may_be_arrays():
    counts, n = np.arange(-2, 30), np.arange(3, 25)[:, None]
    assert (_binomial.pmf(counts, n, 0.3) == binom.pmf(counts, n, 0.3)).all()
    assert (_binomial.sf(counts, n, 0.3) == binom.sf(counts, n, 0.3)).all()


def test_another_scipy_is_asked_by_its_public_name(monkeypatch):
    counts = np.arange(-2, 30)
    expected = _binomial.pmf(counts, 20, 0.3), _binomial.sf(counts, 20, 0.3), _binomial.cdf(4, 20, 0.3)
    without = SimpleNamespace(special=SimpleNamespace(_ufuncs=SimpleNamespace()))
    monkeypatch.setattr(_binomial, "scipy", without)
    got = _binomial.pmf(counts, 20, 0.3), _binomial.sf(counts, 20, 0.3), _binomial.cdf(4, 20, 0.3)
    assert [np.asarray(x).tobytes() for x in got] == [np.asarray(x).tobytes() for x in expected]


def exact(counts, n):
    """Rounded once."""
    return np.array([math.comb(n, k) / 2**n if k >= 0 else 0.0 for k in counts.tolist()])


@given(n=st.integers(0, 300), first=st.integers(-50, 300), size=st.integers(1, 400))
def test_fair_coins_are_off_by_two_roundings_a_step(n, first, size):
    counts = np.arange(min(first, n), max(first + size, 0) + 1)
    np.testing.assert_allclose(_binomial.fair_pmf(counts[0], counts[-1], n), exact(counts, n), rtol=2e-13, atol=0)


def test_many_fair_coins_are_nearer_to_the_truth_than_one_probability_after_the_other():
    n, counts = 40_000, np.arange(19_100, 20_901)
    truth = exact(counts[::100], n)
    found = _binomial.fair_pmf(19_100, 20_900, n), binom.pmf(counts, n, 0.5), binom.pmf(counts, n, 0.5 + 1e-12)
    ours, scipys, another_coins = (np.abs(masses[::100] / truth - 1).max() for masses in found)
    assert ours < scipys / 4
    assert ours < 900 * 2.0**-52 < another_coins


def test_what_double_precision_cannot_tell_from_nothing_is_nothing():
    # Unlike a mass that is too large, one that is missing counts as the worst loss.
    n, counts = 100_000, np.arange(50_000, 60_001)
    masses = _binomial.fair_pmf(50_000, 60_000, n)
    assert (np.diff(masses) <= 0).all()
    assert masses[masses > 0].min() >= np.finfo(float).tiny
    assert masses[-1] == exact(counts[-1:], n) == 0
    assert np.cumprod((n + 1 - counts) / counts)[-1] > 0  # products alone end above 0


# ---- start-up --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(scipy.special._ufuncs, "_binom_pmf"), reason="this SciPy has them in scipy.stats only")
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
