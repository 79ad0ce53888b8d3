"""The public mean that rows are centred by: a noisy mean with a floor, within the bounds that norms are proved for."""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems.projection_rounds import SCALE

__all__ = ["floored", "to_grid", "with_floor"]

_MIN_MEAN = 0.01  # of the most popular item's mean


def with_floor(item_means: np.ndarray) -> NDArray[np.float64]:
    """Return the mean with entries from a hundredth of its largest one, which is above 0, to 1.

    Parameters
    ----------
    item_means : ndarray of shape (n_items,), float64
        Noisy.

    Returns
    -------
    ndarray of shape (n_items,), float64
        Positive.
    """
    largest = max(float(item_means.max()), np.finfo(float).tiny / _MIN_MEAN)
    return np.clip(item_means, _MIN_MEAN * largest, 1.0)


@one_blas_thread()
def floored(item_means: np.ndarray) -> NDArray[np.float64]:
    """Return the mean with a floor, and of norm at most 1.

    Parameters
    ----------
    item_means : ndarray of shape (n_items,), float64
        Noisy.

    Returns
    -------
    ndarray of shape (n_items,), float64
        Positive.
    """
    mean = with_floor(item_means)
    return mean / max(1.0, math.sqrt(mean @ mean))


def to_grid(mean: np.ndarray) -> NDArray[np.int32]:
    """Return a mean in whole numbers of 1 / `SCALE`.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), float64
        Of norm at most 1, no entry below 0.

    Returns
    -------
    ndarray of shape (n_items,), int32
        Of norm at most `SCALE`: rounded, and down where that would be too long.
    """
    grid = np.rint(mean * SCALE).astype(np.int64)
    if int(grid @ grid) > SCALE**2:
        grid = (mean * (SCALE * (1 - 2.0**-40))).astype(np.int64)
    return grid.astype(np.int32)
