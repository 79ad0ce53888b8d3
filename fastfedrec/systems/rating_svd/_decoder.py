"""Decoding of private reports of ratings from their distribution: a rescaled Bayes estimate.

The share of each rating is estimated from all reports.  A report z then decodes to

    m + (E[x | z] - m) Var(x) / Var(E[x | z]),

with m, E and Var under that distribution.  This is the estimate with the smallest mean squared error, stretched so that
it follows a shift of the mean with slope 1.  Means of users and items are then correct, with less noise than from an
unbiased decoder, which is correct for every single rating.  Without noise it is the rating itself.

After a first fit, a rating's expected value differs from m.  A report is then decoded again under the distribution
tilted to p_x e^(theta x) with the expected mean: there the slope is correct as well, and the noise is smaller.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as _kernel
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL
from fastfedrec.systems.rating_svd._biases import Biases

_PSEUDO_REPORTS = 5.0  # per rating; values from .01 to 100 differ by 1% on generated data with 400 reports
_N_STEPS = 3000  # largest number of steps of the maximization
_TOLERANCE = 1e-9  # change of shares at which the maximization stops
_N_MEANS = 121  # evenly spaced means of tilted distributions
_MARGIN = 0.05  # smallest distance of an expected mean from the ends, relative to the range
_N_HALVINGS = 60  # bisection steps for theta, which reach the precision of doubles


class ReportDecoder:
    """Decoder of reports of ratings, positions in the outputs of `channel`; it uses only these reports."""

    def __init__(self, channel: Channel, reports: np.ndarray):
        self._reports = reports
        self._values = np.array([float(x) for x in channel.inputs])
        self._table = np.array([[c / TOTAL for c in row] for row in channel.counts])
        self.shares = estimate_shares(self._table, np.bincount(reports, minlength=len(channel.outputs)))

    @property
    def variance(self) -> float:
        """Estimated variance of the exact ratings."""
        return float(self.shares @ (self._values - self.shares @ self._values) ** 2)

    def decode(self) -> NDArray[np.float64]:
        """Return the value of each report under the distribution of all ratings; it may be outside the grid's range."""
        return self._decoded(self.shares[None])[0][self._reports]

    def decode_near(self, expected: np.ndarray) -> NDArray[np.float64]:
        """Return the value of each report under the distribution tilted to the expected mean of its rating."""
        low, high = self._values[0], self._values[-1]
        margin = _MARGIN * (high - low)
        means = np.linspace(low + margin, high - margin, _N_MEANS)
        # A table for evenly spaced means, so that each report needs one search instead of a bisection.
        nearest = np.searchsorted((means[1:] + means[:-1]) / 2, expected)
        return self._decoded(tilt(self.shares, self._values, means))[nearest, self._reports]

    def _decoded(self, shares: np.ndarray) -> np.ndarray:
        """Return the value of each output under each row of shares."""
        means = shares @ self._values
        deviations = self._values - means[:, None]
        output_shares = shares @ self._table
        estimates = (shares * deviations) @ self._table / np.maximum(output_shares, np.finfo(float).tiny)
        # Var(E[x | z]) / Var(x) is the slope of the Bayes estimate in a shift of the mean.
        slopes = (output_shares * estimates**2).sum(axis=1) / (shares * deviations**2).sum(axis=1)
        return means[:, None] + estimates / slopes[:, None]


def fit_twice(
    fit: Callable[[np.ndarray], Biases],
    users: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    decoder: ReportDecoder | None,
) -> tuple[Biases, np.ndarray]:
    """Return biases and the values that they fit, which are decoded near the first predictions if there is a decoder.

    Values that are decoded near predictions have less noise.
    """
    biases = fit(values)
    if decoder is not None:
        values = decoder.decode_near(biases.mean + biases.users[users] + biases.items[items])
        biases = fit(values)
    return biases, values


def estimate_shares(table: np.ndarray, counts: np.ndarray) -> NDArray[np.float64]:
    """Return each input's estimated share, above 0, from the number of times that each output occurred.

    `table` has the probability of each output for each input.  The shares maximize the likelihood times a weak prior.
    """
    shares, counts = np.full(len(table), 1 / len(table)), counts.astype(np.float64)
    ratios = np.empty_like(counts)
    _kernel.maximize_shares(table, counts, shares, ratios, _PSEUDO_REPORTS, _TOLERANCE, _N_STEPS)
    return shares / shares.sum()


def tilt(shares: np.ndarray, values: np.ndarray, means: np.ndarray) -> NDArray[np.float64]:
    """Return shares times e^(theta value), normalised, with a row for each of `means` and the theta that attains it."""

    def tilted(theta: np.ndarray) -> np.ndarray:
        exponents = np.log(shares) + np.outer(theta, values - values[0])
        # Subtracting the maximum avoids an overflow of the exponential.
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    max_theta = (np.ptp(np.log(shares)) + 40.0) / np.diff(values).min()  # the first or last value has all the weight
    low, high = np.full(len(means), -max_theta), np.full(len(means), max_theta)
    # The mean increases with theta, so bisection finds it for all means at once.
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        is_low = tilted(middle) @ values < means
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return tilted((low + high) / 2)
