"""Exact truncated geometric noise on a grid of values (Ghosh, Roughgarden, Sundararajan 2012)."""

import decimal
from collections.abc import Sequence
from fractions import Fraction

from fastfedrec.core.check import check_epsilon
from fastfedrec.mechanisms.channels.channel import LARGEST_EPSILON, Channel, exp_lower
from fastfedrec.mechanisms.channels.exact_counts import unbiased_table
from fastfedrec.mechanisms.report_checks import check_grid

__all__ = ["TruncatedGeometric"]

_CONTEXT = decimal.Context(prec=60)


class TruncatedGeometric(Channel):
    """Move a value along its grid by two-sided geometric noise, truncated at the ends.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    grid : int or sequence of numbers
        At most 32 increasing values; an integer n means 0, 1, ..., n - 1.

    Attributes
    ----------
    nominal_epsilon : float
        As given.

    Notes
    -----
    With n values, adjacent values of the grid have probabilities within e^(epsilon / (n - 1)) of each other, so the two
    ends are within e^epsilon.  Two adjacent values are much better protected than two distant ones; the stated epsilon
    is the one of the worst pair.  The probabilities are rounded to 64-bit counts that keep the bound.  The outputs are
    the exact solution of the linear system that makes every report unbiased, and some are outside the grid's range.
    See docs/explanation/mechanisms/channels/truncated-geometric.md.

    References
    ----------
    .. [1] Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM J. Comput.
       41(6), 2012: the range-restricted geometric mechanism.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import TruncatedGeometric
    >>> channel = TruncatedGeometric(2.0, [1, 2, 3, 4, 5])
    >>> bool(channel.epsilon <= 2.0), channel.mean(4)
    (True, Fraction(5, 1))
    >>> reports = channel.privatize(channel.positions([5, 1, 1]), key=Key.from_seed(1))
    >>> channel.estimate(reports).shape
    (3,)
    """

    _purpose = "truncated_geometric.privatize"
    _example = {"grid": 5}, (0, 4)

    def __init__(self, nominal_epsilon: float, grid: int | Sequence[float]):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        inputs = check_grid("grid", grid, high=32)
        n = len(inputs)
        # Adjacent values differ by the factor exp(-epsilon / (n - 1)); tables are the same above the largest epsilon.
        step = _CONTEXT.exp(
            _CONTEXT.divide(-decimal.Decimal(min(self.nominal_epsilon, LARGEST_EPSILON)), decimal.Decimal(n - 1))
        )
        rate = Fraction(step)
        powers = [Fraction(_CONTEXT.power(step, j)) for j in range(n)]
        # An end of the grid takes the whole tail beyond it, a geometric series.
        inner, end = (1 - rate) / (1 + rate), 1 / (1 + rate)
        targets = [[(end if y in (0, n - 1) else inner) * powers[abs(x - y)] for y in range(n)] for x in range(n)]
        super().__init__(**unbiased_table(targets, exp_lower(self.nominal_epsilon), inputs))
