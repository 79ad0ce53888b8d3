"""The distribution of a rounded normal variable, by SciPy."""

from scipy import stats


def probability(x, stddev):
    x = abs(x)
    return float(stats.norm.sf(x - 0.5, scale=float(stddev)) - stats.norm.sf(x + 0.5, scale=float(stddev)))
