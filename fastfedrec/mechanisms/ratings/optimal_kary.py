"""The optimal mechanism for a few known values, such as ratings: unbiased, with the least worst-case variance."""

from collections.abc import Sequence

import numpy as np

from fastfedrec.core.check import check_real
from fastfedrec.mechanisms.channels.channel import Channel, exp_lower
from fastfedrec.mechanisms.channels.exact_counts import proposed_table
from fastfedrec.mechanisms.ratings._kary_solutions import OPTIMAL, propose, read_tables
from fastfedrec.mechanisms.report_checks import check_grid

__all__ = ["OptimalKary"]


class OptimalKary(Channel):
    """Report a value of a grid through the channel whose worst-case variance is least.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and nothing beyond the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        From 0.01 to 12, in nats; the exact epsilon of what runs is at most this.
    grid : int or sequence of numbers
        The values, increasing; an integer n stands for 0, 1, ..., n - 1.  At most 16 of them.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    optimality_gap : float
        `worst_variance` is at most about this much above that of any other unbiased mechanism of the same epsilon.

    Notes
    -----
    Every output is e^epsilon times as likely on a set of inputs as on the others; which sets, how often, and what value
    each output stands for, is a small convex programme.  For 2 to 11 evenly spaced values and a list of epsilons from
    0.1 to 8 its solutions are shipped (``OptimalKary.table_epsilons()``); otherwise it is solved on the spot, in up to
    a few seconds.  Neither the programme nor the tables are part of the privacy argument: they only propose.  The
    proposal is rounded to 64-bit counts that keep epsilon in rational arithmetic, and the outputs then are solved for
    exactly, so that the mean of a report is its input.  See docs/explanation/mechanisms/ratings/optimal-kary.md.

    References
    ----------
    .. [1] Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 17, 2016.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import OptimalKary
    >>> channel = OptimalKary(1.0, [1, 2, 3, 4, 5])
    >>> bool(channel.epsilon <= 1.0), channel.mean(4)
    (True, Fraction(5, 1))
    >>> reports = channel.privatize(channel.positions([5, 1, 1]), key=Key.from_seed(1))
    >>> channel.estimate(reports).shape
    (3,)
    """

    _purpose = "optimal_kary.privatize"

    def __init__(self, nominal_epsilon: float, grid: int | Sequence[float]):
        self.nominal_epsilon = check_real("nominal_epsilon", nominal_epsilon, low=0.01, high=12.0)
        inputs = check_grid("grid", grid, high=16)
        ratio = exp_lower(self.nominal_epsilon)
        sets, weights, values, self.optimality_gap = propose(np.array([float(v) for v in inputs]), self.nominal_epsilon)
        super().__init__(**proposed_table(sets, weights, values, ratio, inputs))

    @staticmethod
    def table_epsilons() -> tuple[float, ...]:
        """The epsilons for which solutions are shipped, for 2 to 11 evenly spaced values.

        Returns
        -------
        tuple of float
            Ascending.
        """
        return tuple(map(float, read_tables(OPTIMAL)["2"]))
