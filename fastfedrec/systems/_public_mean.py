"""The public mean that centres rows: a noisy mean with a floor, within the bounds of the sensitivity proofs."""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems.projection_rounds import SCALE

__all__ = ["floored", "to_grid", "with_floor"]

_MIN_MEAN = 0.01  # floor, relative to the largest entry


def with_floor(item_means: np.ndarray) -> NDArray[np.float64]:
    """Return the mean with entries clipped to [a hundredth of its largest entry, which is taken as positive, 1]."""
    largest = max(float(item_means.max()), np.finfo(float).tiny / _MIN_MEAN)
    return np.clip(item_means, _MIN_MEAN * largest, 1.0)


@one_blas_thread()
def floored(item_means: np.ndarray) -> NDArray[np.float64]:
    """Return the mean with a floor, scaled to norm at most 1."""
    mean = with_floor(item_means)
    return mean / max(1.0, math.sqrt(mean @ mean))


def to_grid(mean: np.ndarray) -> NDArray[np.int32]:
    """Return a nonnegative mean of norm at most 1 in units of 1 / `SCALE`, as whole numbers of norm at most `SCALE`."""
    grid = np.rint(mean * SCALE).astype(np.int64)
    if int(grid @ grid) > SCALE**2:
        grid = (mean * (SCALE * (1 - 2.0**-40))).astype(np.int64)
    return grid.astype(np.int32)
