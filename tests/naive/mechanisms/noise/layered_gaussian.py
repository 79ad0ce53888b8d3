"""Distances by summation over every outcome, and draws layer by layer."""

import numpy as np
from scipy import stats

from fastfedrec import Key
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise


def discrete_gaussian(x, stddev):
    """Return probabilities of the integers `x`, which must cover the whole support."""
    weights = np.exp(-(x.astype(float) ** 2) / (2 * stddev**2))
    return weights / weights.sum()


def distance_of_sum(top, base, stddev):
    """Return the total-variation distance of base * U + g and a discrete Gaussian of the same width."""
    upper, lower = (np.arange(-reach, reach + 1) for reach in (int(12 * top), int(12 * stddev)))
    sums = np.zeros(2 * (base * upper[-1] + lower[-1]) + 1)
    for u, p in zip(upper, discrete_gaussian(upper, top), strict=True):
        start = base * (u - upper[0])
        sums[start : start + len(lower)] += p * discrete_gaussian(lower, stddev)
    x = np.arange(len(sums)) - len(sums) // 2
    return np.abs(sums - discrete_gaussian(x, np.hypot(base * top, stddev))).sum() / 2


def distance_of_rounding(stddev):
    """Return the total-variation distance of a discrete Gaussian and a rounded normal variable."""
    x = np.arange(0, int(14 * stddev))
    rounded = stats.norm.sf(x - 0.5, scale=stddev) - stats.norm.sf(x + 0.5, scale=stddev)
    both = np.concatenate([x[:0:-1], x])
    return np.abs(np.concatenate([rounded[:0:-1], rounded]) - discrete_gaussian(both, stddev)).sum() / 2


def draws(noise, key: Key, purpose, n):
    """Draw layer by layer, in Python's integers."""
    total = [0] * n
    for level, table in enumerate(noise._tables):
        layer = IntegerNoise(table).sample(n, key=key, purpose=f"{purpose}.{level}").tolist()
        # The base of the layers is 480.
        total = [480 * a + b for a, b in zip(total, layer, strict=True)]
    return total
