"""Clopper-Pearson confidence limits of a share, for many counts at once."""

from typing import Any

import numpy as np
import scipy


def lower_limit(successes: Any, n: int, alpha: float) -> np.ndarray:
    """Return the limit that the true share is below with probability at most alpha."""
    k = np.asarray(successes, dtype=np.float64)
    # Without successes the limit is 0, where the beta quantile is not defined.
    return np.where(k > 0, scipy.special.betaincinv(np.maximum(k, 1), n - np.maximum(k, 1) + 1, alpha), 0.0)


def upper_limit(successes: Any, n: int, alpha: float) -> np.ndarray:
    """Return the limit that the true share is above with probability at most alpha."""
    k = np.asarray(successes, dtype=np.float64)
    # With n successes the limit is 1, where the beta quantile is not defined.
    return np.where(k < n, scipy.special.betainccinv(np.minimum(k, n - 1) + 1, n - np.minimum(k, n - 1), alpha), 1.0)
