"""The tests that statistics use; their level is `fastfedrec.testing.ALPHA`, in that one place."""

import numpy as np
from scipy import stats

from fastfedrec.testing import ALPHA


def mean_is(draws, expected, stddev):
    """Whether the mean of independent `draws` with a known standard deviation is consistent with `expected`."""
    return abs(np.mean(draws) - expected) <= stats.norm.isf(ALPHA / 2) * stddev / np.sqrt(len(draws))


def share_is(successes, n, probability):
    """Whether `successes` out of `n` is consistent with `probability` (exact binomial test)."""
    return stats.binomtest(int(successes), int(n), float(probability)).pvalue > ALPHA
