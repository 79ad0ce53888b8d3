"""What a server makes of private reports of ratings, given that it looks at many of them: Bayes' estimate, rescaled.

How often each rating occurs is estimated from all reports.  A report z then stands for

    m + (E[x | z] - m) Var(x) / Var(E[x | z]),

with m, E and Var under that distribution: the estimate of least mean squared error, stretched so that it follows a
shift of the mean with slope 1.  So means of users and items come out right, with less noise than from an unbiased
decoder, which is right for every single rating.  Without noise it is the rating itself.

Where a rating is expected is not m, once a first fit has been made.  So a report is decoded anew under the
distribution tilted to p_x e^(theta x), with the expected mean: there the slope is right as well, and the noise is less.
"""

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as _kernel
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL

_PSEUDO_REPORTS = 5.0  # of each rating; on generated ones .01 to 100 differ by 1% at 400 reports, and less at more
_N_STEPS = 3000
_SETTLED = 1e-9
_N_MEANS = 121  # for which the distribution is tilted, evenly spaced
_MARGIN = 0.05  # of the range: no expected mean counts as nearer to its ends
_N_HALVINGS = 60


class ReportDecoder:
    """Decodes the reports that a server has of ratings; it looks at nothing else.

    Parameters
    ----------
    channel : Channel
        Of one report.
    reports : ndarray of shape (n_reports,), uint16
        Positions in the channel's outputs.
    """

    def __init__(self, channel: Channel, reports: np.ndarray):
        self._reports = reports
        self._values = np.array([float(x) for x in channel.inputs])
        self._table = np.array([[c / TOTAL for c in row] for row in channel.counts])
        self.shares = estimate_shares(self._table, np.bincount(reports, minlength=len(channel.outputs)))

    @property
    def variance(self) -> float:
        """Of the ratings themselves, as far as the reports tell."""
        return float(self.shares @ (self._values - self.shares @ self._values) ** 2)

    def decode(self) -> NDArray[np.float64]:
        """The value of each report, under the distribution of all ratings.

        Returns
        -------
        ndarray of shape (n_reports,), float64
            Not confined to the grid's range.
        """
        return self._decoded(self.shares[None])[0][self._reports]

    def decode_near(self, expected: np.ndarray) -> NDArray[np.float64]:
        """The value of each report, under the distribution tilted to the mean that is expected there.

        Parameters
        ----------
        expected : ndarray of shape (n_reports,), float64
            Where each rating is expected.

        Returns
        -------
        ndarray of shape (n_reports,), float64
            Not confined to the grid's range.
        """
        low, high = self._values[0], self._values[-1]
        margin = _MARGIN * (high - low)
        means = np.linspace(low + margin, high - margin, _N_MEANS)
        nearest = np.searchsorted((means[1:] + means[:-1]) / 2, expected)
        return self._decoded(tilt(self.shares, self._values, means))[nearest, self._reports]

    def _decoded(self, shares: np.ndarray) -> np.ndarray:
        """What each output stands for under each row of shares."""
        means = shares @ self._values
        deviations = self._values - means[:, None]
        likely = shares @ self._table
        estimates = (shares * deviations) @ self._table / np.maximum(likely, np.finfo(float).tiny)
        slopes = (likely * estimates**2).sum(axis=1) / (shares * deviations**2).sum(axis=1)
        return means[:, None] + estimates / slopes[:, None]


def estimate_shares(table: np.ndarray, counts: np.ndarray) -> NDArray[np.float64]:
    """How often each input occurs, from how often each output came: the maximum of likelihood times a weak prior.

    Parameters
    ----------
    table : ndarray of shape (n_inputs, n_outputs), float64
        Probability of each output on each input.
    counts : ndarray of shape (n_outputs,), int64
        Of the reports.

    Returns
    -------
    ndarray of shape (n_inputs,), float64
        Above 0, adding up to 1.
    """
    shares, counts = np.full(len(table), 1 / len(table)), counts.astype(np.float64)
    ratios = np.empty_like(counts)
    _kernel.maximize_shares(table, counts, shares, ratios, _PSEUDO_REPORTS, _SETTLED, _N_STEPS)
    return shares / shares.sum()


def tilt(shares: np.ndarray, values: np.ndarray, means: np.ndarray) -> NDArray[np.float64]:
    """Shares times e^(theta value), each row with the theta that gives it the stated mean.

    Parameters
    ----------
    shares, values : ndarray of shape (n_inputs,), float64
        Above 0; increasing.
    means : ndarray of shape (n_means,), float64
        Within the range of `values`.

    Returns
    -------
    ndarray of shape (n_means, n_inputs), float64
        Each row adds up to 1.
    """

    def tilted(theta: np.ndarray) -> np.ndarray:
        exponents = np.log(shares) + np.outer(theta, values - values[0])
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    steepest = (np.ptp(np.log(shares)) + 40.0) / np.diff(values).min()  # leaves nothing but the first or the last value
    low, high = np.full(len(means), -steepest), np.full(len(means), steepest)
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        below = tilted(middle) @ values < means
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tilted((low + high) / 2)
