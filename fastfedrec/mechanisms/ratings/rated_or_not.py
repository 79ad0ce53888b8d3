"""Randomized response for a rating or its absence, which hides the items that a user has rated."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.mechanisms.channels.channel import Channel
from fastfedrec.mechanisms.channels.exact_counts import unbiased_outputs
from fastfedrec.mechanisms.frequencies.frequency import GRR
from fastfedrec.mechanisms.report_checks import check_codes, check_grid

__all__ = ["RatedOrNot"]


class RatedOrNot(Channel):
    """Randomized response over "not rated" and the values of a rating grid.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two of the ratings and "not
    rated" are neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    grid : sequence of numbers
        At most 31 increasing ratings, all above 0.

    Attributes
    ----------
    inputs, outputs : tuple of Fraction
        `inputs` holds the rating times "is rated", so 0 for "not rated"; `outputs` estimates it without bias.
    rated_outputs : tuple of Fraction
        Decoded values of the outputs as unbiased estimates of "is rated" (0 or 1).

    Notes
    -----
    Position 0 is "not rated", and position j is the j-th rating.  Let y be "is rated" and r the rating.  One report
    estimates both y and y r, so also y (r - c) for any c.  The errors of these estimates are correlated.  See
    docs/explanation/mechanisms/ratings/laplace-rr.md.

    References
    ----------
    .. [1] Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security
       2017: "direct encoding".

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import RatedOrNot
    >>> channel = RatedOrNot(2.0, [1, 2, 3, 4, 5])
    >>> channel.mean(0), channel.mean(4)
    (Fraction(0, 1), Fraction(4, 1))
    >>> reports = channel.privatize([0, 0, 5], key=Key.from_seed(1))
    >>> channel.estimate_rated(reports).shape
    (3,)
    """

    _purpose = "rated_or_not.privatize"
    _example = {"grid": (1, 2, 3, 4, 5)}, (0, 5)

    def __init__(self, nominal_epsilon: float, grid: Sequence[float]):
        ratings = check_grid("grid", grid, high=31)
        if ratings[0] <= 0:
            raise ValueError(f"grid must be above 0, which means 'not rated', got {float(ratings[0])}; shift the grid")
        table = GRR(nominal_epsilon, n_values=1 + len(ratings)).channel([0.0, *map(float, ratings)])
        super().__init__(table.counts, inputs=table.inputs, outputs=table.outputs)
        # The same counts get a second decoder, for the indicator of a rating.
        rated = [Fraction(x > 0) for x in self.inputs]
        self.rated_outputs = tuple(unbiased_outputs(self.counts, rated, rated))

    def estimate_rated(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Decode each report to an unbiased estimate of the indicator that the item is rated.

        Parameters
        ----------
        reports : array_like of int
            Positions in `outputs`.

        Returns
        -------
        ndarray of float64
            Estimates in the shape of `reports`, which may be outside [0, 1].
        """
        reports = check_codes("reports", reports, len(self.outputs))
        return np.array([float(value) for value in self.rated_outputs])[reports]
