"""The bootstrap, the paired permutation test and Holm's correction: by enumeration, by hand, and by their own laws."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, kstest, t
from support.significance import ALPHA, assert_only

from fastfedrec import Key
from fastfedrec.evaluation.metrics.resampling import bootstrap_sums, fit_deviations, holm, share_error, sign_test

KEY = Key.from_seed(5)

# ---- oracle ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_few_users_are_exchanged_in_every_way(n_users, seed):
    differences = np.random.default_rng(seed).integers(-2, 3, (n_users, 2)) / 4
    signs = np.array(list(itertools.product([1, -1], repeat=n_users)))
    # The tolerance counts sums that are equal up to rounding as ties.
    expected = (np.abs(signs @ differences) >= np.abs(differences.sum(axis=0)) - 1e-9).mean(axis=0)
    assert sign_test(differences, 512, KEY).tolist() == expected.tolist()


def test_the_error_is_the_larger_of_seeds_and_users():
    assert share_error([0.5], 10_000) == pytest.approx(0.005)
    assert share_error([0.5, 0.5], 10_000) == pytest.approx(0.005)  # users of one seed may be the same in both
    assert share_error([0.4, 0.6], 10_000) == pytest.approx(0.1)
    assert share_error([0.0], 10) == share_error([1.0, 1.0], 10) == 0.0


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_by_its_steps(p_values):
    """The k-th smallest p-value is rejected if it and all smaller ones, times the remaining number, are below alpha."""
    adjusted = holm(np.array(p_values))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    greatest = 0.0
    for k, i in enumerate(order):
        # Adjusted p-values do not decrease with the rank.
        greatest = max(greatest, p_values[i] * (len(p_values) - k))
        assert adjusted[i] == min(greatest, 1.0)


# ---- invariants --------------------------------------------------------------------------------------------------


def test_sums_of_resamples():
    columns = np.column_stack([np.arange(50.0), np.ones(50)])
    sums = bootstrap_sums(columns, 200, KEY)
    assert sums.shape == (200, 2)
    assert (sums[:, 1] == 50).all()  # each resample has 50 users
    assert len(np.unique(sums[:, 0])) > 150
    assert bootstrap_sums(columns[:1], 3, KEY).tolist() == [[0.0, 1.0]] * 3
    assert (bootstrap_sums(columns, 200, KEY) == sums).all()
    assert (bootstrap_sums(columns, 200, Key.from_seed(6)) != sums).any()


def test_blocks_of_the_same_work(monkeypatch):
    """Integer sums are exact for any block size, and each block draws from its own words."""
    columns = np.arange(40.0)[:, None]
    monkeypatch.setattr("fastfedrec.evaluation.metrics.resampling._BLOCK_CELLS", 40 * 7)
    sums = bootstrap_sums(columns, 100, KEY)[:, 0]
    assert len(set(sums.tolist())) > 60  # each block draws from its own words
    assert abs(sums.mean() - 780) < 60
    differences = np.ones((6, 1))
    monkeypatch.setattr("fastfedrec.evaluation.metrics.resampling._BLOCK_CELLS", 12)
    assert sign_test(differences, 64, KEY).tolist() == [2 / 64]


def test_no_difference_is_no_evidence():
    assert sign_test(np.zeros((100, 1)), 999, KEY).tolist() == [1.0]
    assert sign_test(np.ones((100, 1)), 999, KEY).tolist() == [1 / 1000]  # never 0


def test_one_fit_and_equal_fits_show_no_deviation():
    assert not fit_deviations([0.3], 5, KEY, "hr").any()
    assert not fit_deviations([0.3, 0.3], 5, KEY, "hr").any()
    draws = fit_deviations([0.3, 0.4], 5, KEY, "hr")
    assert draws.all()
    assert (draws != fit_deviations([0.3, 0.4], 5, KEY, "ndcg")).all()


def test_noise_between_fits_weakens_a_test():
    differences = np.ones((100, 1))
    assert sign_test(differences, 999, KEY, np.zeros((999, 1))).tolist() == [1 / 1000]
    noise = fit_deviations([0.0, 50.0, 100.0], 999, KEY, "hr")[:, None]
    # The sum 100 is far below the 97.5% quantile of the noise, 4.3 * 50 / sqrt(3).
    assert 0.05 < sign_test(differences, 999, KEY, noise)[0] < 0.15


# ---- statistics --------------------------------------------------------------------------------------------------


def users_drawn(n_users=20, n_resamples=20_000, weights=None):
    """Return the number of draws of each user over all resamples."""
    chances = np.ones(n_users) if weights is None else weights
    return bootstrap_sums(np.diag(chances), n_resamples, KEY).sum(axis=0)


@pytest.mark.slow
def test_every_user_is_drawn_as_often():
    """Counts are binomial: total draws, each with chance 1 / n; a user drawn 10% more or less would be seen."""
    n_users, draws = 20, 20 * 20_000
    for factor, expected in ((1.0, True), (1.1, False), (0.9, False)):
        weights = np.ones(n_users)
        weights[3] = factor
        counts = users_drawn(weights=weights)
        p = 2 * min(binom.cdf(counts[3], draws, 1 / n_users), binom.sf(counts[3] - 1, draws, 1 / n_users))
        assert bool(p > ALPHA) is expected


@pytest.mark.slow
def test_p_values_of_equal_models_are_uniform():
    """Under the null hypothesis; p-values that are 10% too small or too large are not."""
    rng = np.random.default_rng(1)
    p_values = sign_test(rng.standard_normal((200, 20_000)), 1999, KEY)
    assert kstest(p_values, "uniform").pvalue > ALPHA
    assert kstest(p_values * 0.9, "uniform").pvalue < ALPHA
    assert kstest(np.minimum(p_values * 1.1, 1), "uniform").pvalue < ALPHA


@pytest.mark.slow
def test_deviations_of_a_mean_of_fits_have_students_distribution():
    draws = fit_deviations([1.0, 3.0, 5.0, 9.0], 100_000, KEY, "hr")
    error = np.std([1.0, 3.0, 5.0, 9.0], ddof=1) / 2
    assert_only(lambda factor: kstest(draws / error * factor, t(3).cdf).pvalue > ALPHA)
    # Negative control: with a normal distribution an interval would be too short.
    assert kstest(draws / error, "norm").pvalue < ALPHA
