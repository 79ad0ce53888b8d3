"""Statistical tests of the test suite; their level is `fastfedrec.testing.ALPHA`."""

import numpy as np
from scipy import stats

from fastfedrec.testing import ALPHA


def mean_is(draws, expected, stddev):
    """Return whether the mean of independent `draws` with a known standard deviation is consistent with `expected`."""
    return abs(np.mean(draws) - expected) <= stats.norm.isf(ALPHA / 2) * stddev / np.sqrt(len(draws))


def share_is(successes, n, probability):
    """Return whether `successes` out of `n` is consistent with `probability` (exact binomial test)."""
    return stats.binomtest(int(successes), int(n), float(probability)).pvalue > ALPHA


def counts_are(observed, probabilities):
    """Return whether `observed` counts are consistent with `probabilities` (chi-square; cells expect 10 or more)."""
    observed, expected = np.asarray(observed), np.sum(observed) * np.asarray(probabilities, dtype=float)
    statistic = ((observed - expected) ** 2 / expected).sum()
    return stats.chi2.sf(statistic, len(observed) - 1) > ALPHA


def assert_only(consistent):
    """Assert that `consistent(factor)` is true of factor 1 and false of 0.9 and 1.1, the negative controls."""
    assert [bool(consistent(factor)) for factor in (1, 0.9, 1.1)] == [True, False, False]


def tilted(probabilities, factor):
    """Return a control: the likeliest outcome is `factor` times as likely, and the others are rescaled."""
    p = np.array(probabilities, dtype=float)
    top = p.argmax()
    remainder = p.sum() - p[top]
    p[top] *= factor
    p[np.arange(len(p)) != top] *= (1 - p[top]) / remainder
    return p


def integers_are(draws, probability):
    """Return whether integer `draws` fit a symmetric distribution, by chi-square over single values and both tails."""
    n, reach = len(draws), 1
    # The tail is P(X >= reach).
    tail = (1 - probability(0)) / 2
    while n * (tail - probability(reach)) >= 50 and reach < 200:
        tail -= probability(reach)
        reach += 1
    inner = range(1 - reach, reach)
    observed = [np.sum(draws <= -reach), *(np.sum(draws == x) for x in inner), np.sum(draws >= reach)]
    expected = np.array([tail, *(probability(x) for x in inner), tail]) * n
    return stats.chisquare(observed, expected * (n / expected.sum())).pvalue > ALPHA
