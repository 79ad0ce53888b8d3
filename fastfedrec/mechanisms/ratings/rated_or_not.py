"""One report of a rating or of its absence: hides which items a user has rated."""

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
    rated" are neighbours ("replace"), the privacy unit is one report, and nothing beyond the client's own device is
    trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; the exact epsilon of what runs is at most this.
    grid : sequence of numbers
        The ratings, increasing, all above 0.  At most 31 of them.

    Attributes
    ----------
    inputs, outputs : tuple of Fraction
        The rating times "is rated", so 0 for "not rated"; `outputs` estimates it without bias.
    rated_outputs : tuple of Fraction
        What each output is decoded to as an estimate of "is rated" (0 or 1), without bias.

    Notes
    -----
    Position 0 is "not rated", position j the j-th rating.  With y for "is rated", one report estimates both y and y
    times the rating r, so also y (r - c) for any c; their errors are correlated.  See
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

    def __init__(self, nominal_epsilon: float, grid: Sequence[float]):
        ratings = check_grid("grid", grid, high=31)
        if ratings[0] <= 0:
            raise ValueError(f"grid must be above 0, which stands for 'not rated', got {float(ratings[0])}; shift it")
        table = GRR(nominal_epsilon, n_values=1 + len(ratings)).channel([0.0, *map(float, ratings)])
        super().__init__(table.counts, inputs=table.inputs, outputs=table.outputs)
        rated = [Fraction(x > 0) for x in self.inputs]
        self.rated_outputs = tuple(unbiased_outputs(self.counts, rated, rated))

    def estimate_rated(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Decode reports, each to an unbiased estimate of whether the item is rated.

        Parameters
        ----------
        reports : array_like of int
            Positions in `outputs`.

        Returns
        -------
        ndarray of float64
            Same shape; not confined to 0 and 1.
        """
        reports = check_codes("reports", reports, len(self.outputs))
        return np.array([float(value) for value in self.rated_outputs])[reports]
