"""The one place where the level of statistical tests is set, and the tests they use."""

import numpy as np
from scipy import stats

#: Chance that one statistical assertion fails although all is well.
ALPHA = 1e-6


def mean_is(draws, expected, stddev):
    """Whether the mean of independent `draws` with a known standard deviation is consistent with `expected`."""
    return abs(np.mean(draws) - expected) <= stats.norm.isf(ALPHA / 2) * stddev / np.sqrt(len(draws))


def share_is(successes, n, probability):
    """Whether `successes` out of `n` is consistent with `probability` (exact binomial test)."""
    return stats.binomtest(int(successes), int(n), float(probability)).pvalue > ALPHA
