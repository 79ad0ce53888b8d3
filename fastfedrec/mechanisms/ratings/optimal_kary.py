"""The unbiased mechanism with the smallest worst-case variance for a few known values, such as ratings."""

from collections.abc import Sequence

import numpy as np

from fastfedrec.core.check import check_real
from fastfedrec.mechanisms.channels.channel import Channel, exp_lower
from fastfedrec.mechanisms.channels.exact_counts import proposed_table
from fastfedrec.mechanisms.ratings._kary_solutions import OPTIMAL, propose, read_tables
from fastfedrec.mechanisms.report_checks import check_grid

__all__ = ["OptimalKary"]


class OptimalKary(Channel):
    """Report a value of a grid through the unbiased channel with the smallest worst-case variance.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        From 0.01 to 12, in nats; an upper bound on the exact `epsilon`.
    grid : int or sequence of numbers
        At most 16 increasing values; an integer n means 0, 1, ..., n - 1.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    optimality_gap : float
        Approximate upper bound on `worst_variance` minus the optimum of all unbiased mechanisms of the same epsilon.

    Notes
    -----
    Every output is e^epsilon times as likely on a set of inputs as on the others.  A small convex program determines
    the sets, their probabilities and the outputs' values.  For 2 to 11 evenly spaced values and a list of epsilons from
    0.1 to 8 the package contains its solutions (``OptimalKary.table_epsilons()``).  Otherwise the constructor solves it
    in up to a few seconds.  The privacy argument does not depend on the program or the tables.  Their probabilities are
    rounded to 64-bit counts that keep epsilon in rational arithmetic.  The outputs are then the exact solution that
    makes the mean of a report its input.  See docs/explanation/mechanisms/ratings/optimal-kary.md.

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
    _example = {"grid": 5}, (0, 4)

    def __init__(self, nominal_epsilon: float, grid: int | Sequence[float]):
        self.nominal_epsilon = check_real("nominal_epsilon", nominal_epsilon, low=0.01, high=12.0)
        inputs = check_grid("grid", grid, high=16)
        ratio = exp_lower(self.nominal_epsilon)
        # The proposal is in floating point; the table of counts and outputs that it becomes is exact.
        sets, weights, values, self.optimality_gap = propose(np.array([float(v) for v in inputs]), self.nominal_epsilon)
        super().__init__(**proposed_table(sets, weights, values, ratio, inputs))

    @staticmethod
    def table_epsilons() -> tuple[float, ...]:
        """Return the epsilons of the tables, which hold solutions for 2 to 11 evenly spaced values.

        Returns
        -------
        tuple of float
            Epsilons in nats, ascending.
        """
        return tuple(map(float, read_tables(OPTIMAL)["2"]))
