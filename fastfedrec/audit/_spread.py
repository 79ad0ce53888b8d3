"""Statistics of costs that are spread over many coordinates.

For Laplace noise the log-likelihood ratio of two inputs is the sum over coordinates of the output, clamped to the
interval between the two inputs and divided by the noise's scale.  Such a sum is evidence for either input in its two
tails, so both tails guess the input, which doubles the number of guesses.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastfedrec.audit._event import Batch, Feature, Guess

_N_GUESSES = 128  # pairs of evenly spaced quantiles; the tails have more, down to single draws

Centring = Callable[[np.ndarray], np.ndarray]


def clamped_sums(
    outputs: Sequence[np.ndarray],
    means: Sequence[np.ndarray],
    ends: Sequence[Sequence[np.ndarray]],
    centred: Centring,
) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Yield for each pair of interval ends the sum of coordinates that are clamped to these intervals."""
    # The mean deviation of Laplace noise is its scale.
    scales = np.mean([column_means(np.abs(centred(y) - mean)) for y, mean in zip(outputs, means, strict=True)], axis=0)
    for first, second in ends:
        half_width = (second - first) / 2
        columns = np.flatnonzero((half_width != 0) & np.isfinite(half_width) & np.isfinite(scales) & (scales > 0))
        if len(columns) > 1:
            middle = ((first + second) / 2)[columns]
            reach, weights = np.abs(half_width[columns]), np.sign(half_width[columns]) / scales[columns]
            yield partial(_sum_clamped, columns, middle, reach, weights, centred)


def column_means(rows: np.ndarray) -> np.ndarray:
    """Return the mean of each column, as `numpy.mean` does, which is slow for few columns."""
    return np.einsum("ij->j", rows, dtype=np.float64) / len(rows)


def _sum_clamped(
    columns: np.ndarray,
    middle: np.ndarray,
    reach: np.ndarray,
    weights: np.ndarray,
    centred: Centring,
    outputs: np.ndarray,
) -> np.ndarray:
    """Return the weighted sum of columns, each clamped to an interval around its middle."""
    rows = centred(outputs)[:, columns] - middle
    np.clip(rows, -reach, reach, out=rows)
    rows *= weights
    # Unlike a matrix product, this sum does not depend on the other rows.
    return rows.sum(axis=1)


def guesses(feature: Feature) -> Iterator[Batch]:
    """Yield guesses by both tails of a number that is larger on the second input."""
    pooled, measure, describe = feature.pooled, feature.measure, feature.describe
    middle = (len(pooled) - 1) // 2
    tail = 2 ** np.arange(max(middle, 1).bit_length()) - 1
    ranks = np.unique(np.concatenate([np.linspace(0, middle, _N_GUESSES).astype(np.int64), tail]))
    low, high = pooled[ranks], pooled[len(pooled) - 1 - ranks]
    low, high = low[low < high], high[low < high]
    if not len(low):
        return
    below, above = (
        [np.searchsorted(z, low, side="right") for z in feature.samples],
        [len(z) - np.searchsorted(z, high, side="left") for z in feature.samples],
    )

    def make(i: int) -> Guess:
        words = f"{describe('>=', high[i])} for the second input, {describe('<=', low[i])} for the first"
        return Guess(words, partial(_guess, measure, low[i], high[i]))

    yield Batch(feature.n, [above[0] + below[1], above[1] + below[0]], make, is_guess=True)


def _guess(measure: Callable[[Any], np.ndarray], low: float, high: float, outputs: Any) -> np.ndarray:
    """Return 1 for numbers from `high` on, -1 for numbers up to `low`, and 0 for all others."""
    numbers = measure(outputs)
    return (numbers >= high).astype(np.int8) - (numbers <= low)
