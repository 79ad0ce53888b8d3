"""Confidence bounds of epsilon and mu by the counts of an event."""

from typing import Any

import numpy as np
import scipy

from fastfedrec.audit._limits import lower_limit, upper_limit


def _ratio_bound(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return lower bounds of epsilon by the ratio of the two shares."""
    excess = np.maximum(lower_limit(likely, n, alpha / 2) - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(excess) - np.log(upper_limit(unlikely, n, alpha / 2))


def _one_bit_bound(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return lower bounds of epsilon by the share of right guesses of the input."""
    right = lower_limit(np.asarray(likely) + (n - np.asarray(unlikely)), 2 * n, alpha)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(right - delta, 0.0)) - np.log1p(-right)


def _gaussian_bound(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return lower bounds of mu by the quantiles of the two shares."""
    return scipy.special.ndtri(lower_limit(likely, n, alpha / 2)) - scipy.special.ndtri(
        upper_limit(unlikely, n, alpha / 2)
    )


def _two_events_bound(right: Any, wrong: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return lower bounds of epsilon by the numbers of right and wrong guesses on both inputs."""
    right, wrong = np.asarray(right, dtype=np.float64), np.asarray(wrong, dtype=np.float64)
    # The 2 n guesses have two probabilities.  Hoeffding's theorem holds from one success beyond the mean on.
    most = np.minimum(lower_limit(right, 2 * n, alpha / 2), np.maximum(right - 1, 0) / (2 * n))
    least = np.maximum(upper_limit(wrong, 2 * n, alpha / 2), np.minimum(wrong + 1, 2 * n) / (2 * n))
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(most - delta, 0.0)) - np.log(least)


#: Lower bounds by the name of the method.  The first two arguments are counts of the likely and the unlikely outcome.
BOUNDS = {
    "ratio": _ratio_bound,
    "one bit": _one_bit_bound,
    "gaussian": _gaussian_bound,
    "two events": _two_events_bound,
}


# Upper limits of each bound that are much faster: the shares themselves, or, for counts of 0 or n, their limits.  Few
# events have a limit above the best bound so far, and only these are computed.


def _largest_share(successes: Any, n: int, alpha: float) -> np.ndarray:
    """Return an upper bound of the lower confidence limit of a share."""
    return np.minimum(successes / n, alpha ** (1 / n))


def _ratio_ceiling(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return an upper bound of `_ratio_bound`."""
    excess = np.maximum(_largest_share(likely, n, alpha / 2) - delta, 0.0)
    return np.log(excess) - np.log(1 - _largest_share(n - unlikely, n, alpha / 2))


def _one_bit_ceiling(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return an upper bound of `_one_bit_bound`."""
    right = _largest_share(likely + (n - unlikely), 2 * n, alpha)
    return np.log(np.maximum(right - delta, 0.0)) - np.log1p(-right)


def _gaussian_ceiling(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return an upper bound of `_gaussian_bound`."""
    first, second = _largest_share(likely, n, alpha / 2), 1 - _largest_share(n - unlikely, n, alpha / 2)
    return scipy.special.ndtri(first) - scipy.special.ndtri(second)


def _two_events_ceiling(right: Any, wrong: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    """Return an upper bound of `_two_events_bound`."""
    excess = np.maximum(_largest_share(right, 2 * n, alpha / 2) - delta, 0.0)
    return np.log(excess) - np.log(1 - _largest_share(2 * n - wrong, 2 * n, alpha / 2))


#: Upper limits of each bound.
CEILINGS = {
    "ratio": _ratio_ceiling,
    "one bit": _one_bit_ceiling,
    "gaussian": _gaussian_ceiling,
    "two events": _two_events_ceiling,
}
