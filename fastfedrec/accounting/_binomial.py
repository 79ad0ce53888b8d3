"""Binomial probabilities of up to 10^12 trials and more, with the digits that an account needs.

SciPy's values depend on its version and on its Boost library.  Before SciPy 1.17 they are off by a millionth at 10^11
trials, and an account computed from them is below the true value.  No function here imports `scipy.stats`, because that
import takes longer than most accounts.

References
----------
.. [1] Loader, "Fast and accurate computation of binomial probabilities", 2000.
"""

import math

import numpy as np

# Number of counts that are computed at a time.
_BLOCK = 1 << 18
# ln k! less Stirling's formula for k = 0 to 15.  From 16 on the series below is exact to the last digit [1]_.
_STIRLING_ERRORS = np.array([
    0.0, 0.08106146679532726, 0.0413406959554093, 0.02767792568499834, 0.020790672103765093, 0.016644691189821193,
    0.013876128823070748, 0.0118967099458917701, 0.010411265261972096, 0.009255462182712733, 0.008330563433362871,
    0.00757367548795184, 0.006942840107209530, 0.006408994188004207, 0.005951370112758848, 0.005554733551962801,
])  # fmt: skip


def pmf(counts: int | np.ndarray, n: int | np.ndarray, probability: float) -> np.ndarray:
    """Return the probability of each count; 0 for counts outside of 0 to n."""
    k, n = np.asarray(counts, dtype=float), np.asarray(n, dtype=float)
    is_between = (k > 0) & (k < n)
    ones = np.where(is_between, k, 1.0)
    zeros = np.where(is_between, n - k, 1.0)
    trials = ones + zeros
    mean, mean_error = _product(trials, probability)
    # Without `mean_error`, the rounding of the mean would change the mass of a far count of 10^12 by a part in 10^9.
    excess = (ones - mean) - mean_error
    with np.errstate(divide="ignore", invalid="ignore"):
        # Loader's saddle-point form [1]_: deviances of ones and zeros, and three errors of Stirling's formula.
        deviance = _deviance(ones, mean, excess) + _deviance(zeros, (trials - mean) - mean_error, -excess)
        logs = _stirling_error(trials) - _stirling_error(ones) - _stirling_error(zeros) - deviance
        masses = np.exp(logs) * np.sqrt(trials / ones / zeros / (2 * np.pi))
        none, all_ = np.exp(n * np.log1p(-probability)), np.exp(n * np.log(probability))
    masses = np.where(is_between, masses, 0.0)
    masses = np.where((k == n) & (n > 0), all_, masses)
    return np.where(k == 0, np.where(n == 0, 1.0, none), masses)


def tail_above(count: int | np.ndarray, n: int | np.ndarray, probability: float) -> np.ndarray:
    """Return an upper bound of the probability of this count or more, for counts above the mean."""
    # The ratio of the probabilities of k + 1 and k is (n - k) p / ((k + 1) (1 - p)) and falls in k.  Therefore the tail
    # from k on is at most the geometric series that starts with the probability of k.  Farther counts have a closer
    # bound.
    more, fewer = np.subtract(n, count) * probability, np.add(count, 1) * (1 - probability)
    return np.where(np.greater(count, n), 0.0, _series(pmf(count, n, probability), more, fewer))


def tail_below(count: int | np.ndarray, n: int | np.ndarray, probability: float) -> np.ndarray:
    """Return an upper bound of the probability of this count or fewer, for counts below the mean."""
    fewer, more = np.multiply(count, 1 - probability), (np.subtract(n, count) + 1) * probability
    return np.where(np.less(count, 0), 0.0, _series(pmf(count, n, probability), fewer, more))


def block_masses(first: int, last: int, stride: int, n: int, probability: float) -> np.ndarray:
    """Return the probabilities of blocks of `stride` counts from `first` on; the last block has all counts up to n."""
    masses = np.zeros(-(-(last + 1 - first) // stride))
    for start in range(first, last + 1, _BLOCK):
        counts = np.arange(start, min(start + _BLOCK, last + 1))
        masses += np.bincount((counts - first) // stride, pmf(counts, n, probability), len(masses))
    # `last` is above the mean, so the bound of the tail is valid, and its mass hardly counts.
    masses[-1] += tail_above(last + 1, n, probability)
    return masses


def fair_pmf(first: int, last: int, n: int) -> np.ndarray:
    """Return the probability of each count from `first` to `last` of heads of n fair coins."""
    # Some of the counts must be from 0 to n.  The masses are products of the ratios of neighbours, from the likeliest
    # count outwards.  Each step is off by at most 2^-52, and all take an eighth of the time of separate probabilities.
    middle = min(max(n // 2, first), last)
    below, above = _outwards(n, n - middle, n - first)[::-1], _outwards(n, middle, last)
    likeliest = _central_mass(int(n)) if middle == n // 2 else float(pmf(middle, n, 0.5))
    masses = likeliest * np.concatenate([below, [1.0], above])
    # Subnormal numbers have fewer digits, and their products may stop falling.
    masses[masses < np.finfo(float).tiny] = 0.0
    return masses


def fair_upper_halves(n: np.ndarray, width: int) -> np.ndarray:
    """Return the masses of `width` counts from (n + 1) // 2 on, a row for each number of fair coins in a column."""
    first = (n + 1) // 2
    counts = first + np.arange(float(width))
    # Each ratio of neighbouring masses is (n + 1 - k) / k, and the cumulative product gives the masses.
    masses = n + 1 - counts
    np.maximum(masses, 0.0, out=masses)
    masses[:, 1:] /= counts[:, 1:]
    masses[:, :1] = pmf(first, n, 0.5)
    np.cumprod(masses, axis=1, out=masses)
    masses[masses < np.finfo(float).tiny] = 0.0
    return masses


def _central_mass(n):
    """Return the probability of n // 2 heads, by Stirling's series; for odd n it equals the one of n + 1 coins."""
    even = n + n % 2
    if even < 64:
        return math.comb(even, even // 2) / 2**even
    square = 1 / even**2
    return math.sqrt(2 / (math.pi * even)) * math.exp(-(1 / 4 - square * (1 / 24 - square * (1 / 20))) / even)


def _outwards(n, start, end):
    """Return the probabilities of the counts above `start`, up to `end`, in units of the probability of `start`."""
    counts = np.arange(start + 1.0, end + 1.0)
    return np.cumprod(np.maximum(n + 1 - counts, 0.0) / counts)


def _series(start, above, below):
    """Return the sum of a geometric series of the ratio above / below; 1, a bound of any probability, if it grows."""
    falls = (above >= 0) & (above < below)
    ratio = np.where(falls, above, 0.0) / np.where(falls, below, 1.0)
    return np.minimum(np.where(falls, start / (1 - ratio), 1.0), 1.0)


def _product(n, probability):
    """Return the mean and its rounding error, by Dekker's product: halves of 26 digits multiply exactly."""
    mean = n * probability
    (n_high, n_low), (p_high, p_low) = _halves(n), _halves(probability)
    return mean, ((n_high * p_high - mean) + n_high * p_low + n_low * p_high) + n_low * p_low


def _halves(x):
    """Split floats into a high and a low half of 26 binary digits each."""
    # The factor is 2^27 + 1 (Veltkamp's splitting).
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    return high, x - high


def _deviance(x, mean, excess):
    """Return x ln(x / mean) + mean - x of [1]_, with `excess` = x - mean."""
    # For x near the mean the logarithms cancel, so a series in v is summed.
    v = excess / (x + mean)
    square = v * v
    series = np.zeros_like(v)
    for power in range(19, 1, -2):  # 0.1^20 is below the last digit
        series = (series + 1.0 / power) * square
    near = excess * v + 2 * x * v * series
    return np.where(np.abs(v) < 0.1, near, x * np.log(x / mean) - excess)


def _stirling_error(k):
    """Return the error of Stirling's formula, ln k! - ln(sqrt(2 pi k) (k / e)^k)."""
    inverse = 1.0 / (k * k)
    series = 1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))
    return np.where(k < 16, _STIRLING_ERRORS[np.minimum(k, 15).astype(np.int64)], series / k)
