"""Binomial probabilities, the same bits as those of `scipy.stats`, whose import takes longer than most accounts do.

Both call the same compiled functions of `scipy.special`; `scipy.stats` adds checks of arguments to each call, which
take longer than hundreds of probabilities.  Where a version of SciPy has them elsewhere, `scipy.stats` is asked.  Only
`fair_pmf` has other bits, nearer to the truth.
"""

import numpy as np
import scipy


def pmf(counts: np.ndarray, n: int | np.ndarray, probability: float) -> np.ndarray:
    """The probability of each count; 0 where there is no such count."""
    inside = (counts >= 0) & (counts <= n)
    return np.where(inside, _call("pmf", _within(counts, n), n, probability), 0.0)


def sf(counts: np.ndarray, n: int | np.ndarray, probability: float) -> np.ndarray:
    """The probability of more than each count."""
    known = np.where(counts < 0, 1.0, 0.0)
    inside = (counts >= 0) & (counts < n)
    return np.where(inside, _call("sf", _within(counts, n), n, probability), known)


def cdf(count: int, n: int, probability: float) -> float:
    """The probability of at most so many, from 0 to n."""
    return float(_call("cdf", count, n, probability)) if count < n else 1.0


def fair_pmf(first: int, last: int, n: int) -> np.ndarray:
    """The probability of each count from `first` to `last`, some of them from 0 to n, of heads of n fair coins.

    Products of the ratios of neighbours, from the likeliest count outwards, each step off by at most 2^-52: nearer to
    the truth than one probability after the other, in an eighth of the time.
    """
    middle = min(max(n // 2, first), last)
    below, above = _outwards(n, n - middle, n - first)[::-1], _outwards(n, middle, last)
    masses = float(_call("pmf", middle, n, 0.5)) * np.concatenate([below, [1.0], above])
    masses[masses < np.finfo(float).tiny] = 0.0  # digits are lost there, and products may stop falling
    return masses


def _outwards(n, start, end):
    """Probabilities of the counts beyond `start`, up to `end`, in units of that of `start`."""
    counts = np.arange(start + 1.0, end + 1.0)
    return np.cumprod(np.maximum(n + 1 - counts, 0.0) / counts)


def _within(counts, n):
    return np.minimum(np.maximum(counts, 0), n)  # `clip` takes several times as long on hundreds of counts


def _call(name, counts, n, probability):
    compiled = getattr(scipy.special._ufuncs, f"_binom_{name}", None)
    if compiled is None:
        from scipy.stats import binom

        return getattr(binom, name)(counts, n, probability)
    return np.minimum(np.maximum(compiled(counts, n, probability), 0.0), 1.0)
