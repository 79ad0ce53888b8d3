"""The base of the frequency oracles: count the reports that support a value, and solve for the frequencies."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.check import check_exact, check_integer, plain_array
from fastfedrec.mechanisms.channels.channel import TOTAL, NominalEpsilon
from fastfedrec.mechanisms.report_checks import NUMBERING, check_codes, check_integers, check_reals, code_types


class FrequencyOracle(NominalEpsilon[np.uint8]):
    """Base of the oracles: a report supports the user's value with probability p, each other one with probability q."""

    _example = {"n_values": 10}, (0, 1)

    nominal_epsilon: float
    n_values: int
    p_count: int
    q_count: int
    likelihood_ratio: Fraction

    def _probabilities(self) -> tuple[Fraction, Fraction]:
        """Return p and q, exact for what runs."""
        return Fraction(self.p_count, TOTAL), Fraction(self.q_count, TOTAL)

    @property
    def _report_types(self) -> Sequence[type]:
        return code_types(self.n_values)

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        values = check_integers("values", values, NUMBERING)
        if values.ndim != 1:
            raise ValueError(f"values must have 1 dimension, got shape {values.shape}")
        return values

    def support(self, reports: ArrayLike) -> NDArray[np.int64]:
        """Count the reports that support each value; counts add up over shards of clients.

        Parameters
        ----------
        reports : array_like of int
            Output of `privatize`.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.
        """
        reports = check_codes("reports", reports, self.n_values)
        return np.bincount(reports.reshape(-1), minlength=self.n_values).astype(np.int64, copy=False)

    def estimate(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Estimate each value's frequency among the clients who reported, without bias.

        Parameters
        ----------
        reports : array_like of int
            Output of `privatize`.

        Returns
        -------
        ndarray of shape (n_values,), float64
            Frequencies.  An estimate may be below 0 or above 1, since a projection would bias it.
        """
        reports = plain_array("reports", reports)
        return self.estimate_from_support(self.support(reports), len(reports))

    def estimate_from_support(self, support: ArrayLike, n_reports: int) -> NDArray[np.float64]:
        """Estimate each value's frequency from added-up counts, without bias.

        Parameters
        ----------
        support : array_like of shape (n_values,)
            Sums of the output of `support` over all shards.
        n_reports : int
            Number of clients who reported.

        Returns
        -------
        ndarray of shape (n_values,), float64
            Frequencies, as in `estimate`.
        """
        n_reports = check_integer("n_reports", n_reports, low=1)
        support = check_reals("support", support, "add up the counts of support()")
        if support.shape != (self.n_values,):
            raise ValueError(f"support must have shape ({self.n_values},), got {support.shape}")
        # The expected share of supporting reports is f p + (1 - f) q, solved for the frequency f.
        p, q = self._probabilities()
        return (support / n_reports - float(q)) / float(p - q)

    def variance(self, frequency: float | Fraction, n_reports: int) -> Fraction:
        """Return the exact variance of one value's estimated frequency, given the clients' values.

        Parameters
        ----------
        frequency : float or Fraction
            Share of clients with the value, from 0 to 1.
        n_reports : int
            Number of clients who report.

        Returns
        -------
        Fraction
            Variance (f p (1 - p) + (1 - f) q (1 - q)) / (n (p - q)^2).
        """
        f = check_exact("frequency", frequency, low=0, high=1)
        n_reports = check_integer("n_reports", n_reports, low=1)
        p, q = self._probabilities()
        return (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n_reports * (p - q) ** 2)
