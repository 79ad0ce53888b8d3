"""Values of a metric by user, as a weighted mean."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["UserValues"]


@dataclass(frozen=True, eq=False)
class UserValues:
    """Values of a metric by user, and the weights of their mean.

    Parameters
    ----------
    values : ndarray of shape (n_users,), float64
        Value of each user, NaN if the metric is not defined for the user.
    weights : ndarray of shape (n_users,), float64, or None
        Weight of each user in the mean, 0 for an undefined value; None for equal weights.
    is_root : bool
        Whether the metric is the square root of the mean.
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    is_root: bool = False

    @classmethod
    def of_defined(cls, values: NDArray[np.float64]) -> Self:
        """Return equally weighted values, where NaN is undefined.

        Parameters
        ----------
        values : ndarray of shape (n_users,), float64
            Value of each user.

        Returns
        -------
        UserValues
            Values with the weights 1 and, for NaN, 0.
        """
        is_defined = ~np.isnan(values)
        return cls(values, None if is_defined.all() else is_defined.astype(np.float64))

    def take(self, users: np.ndarray) -> Self:
        """Return the values of some users.

        Parameters
        ----------
        users : ndarray of int64
            Positions of the users.

        Returns
        -------
        UserValues
            Values and weights of these users.
        """
        weights = None if self.weights is None else self.weights[users]
        return replace(self, values=self.values[users], weights=weights)

    @property
    def columns(self) -> NDArray[np.float64]:
        """Numerators and denominators of the weighted mean, by user.

        Returns
        -------
        ndarray of shape (n_users, 2), float64
            Weighted values and weights; the metric is the quotient of their sums.
        """
        if self.weights is None:
            return np.column_stack([self.values, np.ones(len(self.values))])
        # An undefined value is NaN with weight 0; NaN times 0 is NaN, so it is replaced before the product.
        used = self.weights > 0
        weights = np.where(used, self.weights, 0.0)
        return np.column_stack([weights * np.where(used, self.values, 0.0), weights])

    def of_sums(self, sums: np.ndarray) -> NDArray[np.float64]:
        """Return the metric from sums of `columns` over users.

        Parameters
        ----------
        sums : ndarray of shape (..., 2), float64
            Sums of one sample of users, or of several samples.

        Returns
        -------
        ndarray of shape (...)
            Metric of each sample, NaN if the sum of weights is 0.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            means = sums[..., 0] / sums[..., 1]
        return np.sqrt(means) if self.is_root else means

    @property
    def mean(self) -> float:
        """Metric over all users.

        Returns
        -------
        float
            Weighted mean, or its root; NaN if the metric is defined for no user.
        """
        if self.weights is None:
            return float(self.values.mean())
        return float(self.of_sums(self.columns.sum(axis=0)))
