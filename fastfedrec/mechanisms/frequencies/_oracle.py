"""What every frequency oracle does with its reports: count whom they support, and solve for the frequencies."""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.check import check_exact, check_integer, plain_array
from fastfedrec.mechanisms.channels.channel import TOTAL, NominalEpsilon
from fastfedrec.mechanisms.report_checks import NUMBERING, check_codes, check_integers, check_reals, present


class FrequencyOracle(NominalEpsilon):
    """A report supports a value with probability p if it is the own one, and with probability q if it is another."""

    nominal_epsilon: float
    n_values: int
    p_count: int
    q_count: int
    likelihood_ratio: Fraction

    def _probabilities(self) -> tuple[Fraction, Fraction]:
        """Return p and q, exact for what runs."""
        return Fraction(self.p_count, TOTAL), Fraction(self.q_count, TOTAL)

    def _check(self, values: ArrayLike) -> np.ndarray:
        values = check_integers("values", present(values), NUMBERING)
        if values.ndim != 1:
            raise ValueError(f"values must have 1 dimension, got shape {values.shape}")
        return values

    def support(self, reports: ArrayLike) -> NDArray[np.int64]:
        """How many reports support each value; adds up over shards of clients.

        Parameters
        ----------
        reports : array_like of int
            What `privatize` returned.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.
        """
        reports = check_codes("reports", reports, self.n_values)
        return np.bincount(reports.reshape(-1), minlength=self.n_values).astype(np.int64, copy=False)

    def estimate(self, reports: ArrayLike) -> NDArray[np.float64]:
        """The unbiased estimate of each value's frequency among the clients who reported.

        Parameters
        ----------
        reports : array_like of int
            What `privatize` returned.

        Returns
        -------
        ndarray of shape (n_values,), float64
            May be below 0 or above 1: no projection, so that it stays unbiased.
        """
        reports = plain_array("reports", reports)
        return self.estimate_from_support(self.support(reports), len(reports))

    def estimate_from_support(self, support: ArrayLike, n_reports: int) -> NDArray[np.float64]:
        """The same from added-up counts.

        Parameters
        ----------
        support : array_like of shape (n_values,)
            Sums of `support` over all shards.
        n_reports : int
            How many clients reported.

        Returns
        -------
        ndarray of shape (n_values,), float64
            Frequencies.
        """
        n_reports = check_integer("n_reports", n_reports, low=1)
        support = check_reals("support", support, "add up what support returned")
        if support.shape != (self.n_values,):
            raise ValueError(f"support must have shape ({self.n_values},), got {support.shape}")
        p, q = self._probabilities()
        return (support / n_reports - float(q)) / float(p - q)

    def variance(self, frequency: float | Fraction, n_reports: int) -> Fraction:
        """The exact variance of one value's estimated frequency, given the clients' values.

        Parameters
        ----------
        frequency : float or Fraction
            The share of clients who hold the value.
        n_reports : int
            How many clients report.

        Returns
        -------
        Fraction
            (f p (1 - p) + (1 - f) q (1 - q)) / (n (p - q)^2).
        """
        f = check_exact("frequency", frequency, low=0, high=1)
        n_reports = check_integer("n_reports", n_reports, low=1)
        p, q = self._probabilities()
        return (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n_reports * (p - q) ** 2)
