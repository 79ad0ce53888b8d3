"""The mechanism for a few known values, such as ratings, whose reports tell most about them under a public prior."""

from collections.abc import Sequence

import numpy as np

from fastfedrec.core.check import check_integer, check_real
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower
from fastfedrec.mechanisms.channels.exact_counts import proposed_table
from fastfedrec.mechanisms.ratings._kary_solutions import BAYES, find_solution, propose
from fastfedrec.mechanisms.report_checks import check_grid

__all__ = ["BayesKary", "explained_share"]

VARIANCE_RATIO = 1.5


class BayesKary(Channel):
    """Report a value of a grid so that Bayes' estimate of it has the least mean squared error.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and nothing beyond the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        From 0.01 to 12, in nats; the exact epsilon of what runs is at most this.
    grid : int or sequence of numbers
        The values, increasing; an integer n stands for 0, 1, ..., n - 1.  At most 16 of them.
    prior : sequence of float or None
        How often each value is expected, public: at least 0, adding up to any total.  None expects all alike.  It
        decides what reports tell most about, and has no part in the guarantee.
    variance_ratio : float
        From 1.01: the worst-case variance of the unbiased decoder is at most about so many times that of
        `OptimalKary`.

    Attributes
    ----------
    nominal_epsilon, variance_ratio : float
        As given.
    prior : tuple of float
        Adding up to 1.
    explained : float
        The share of the prior's variance that a report explains: Bayes' estimate of a value has 1 - `explained` of it
        for its mean squared error.
    optimality_gap : float
        No mechanism of the same epsilon and limit on the variance explains more than about this much more.

    Notes
    -----
    `OptimalKary` is best for every single value; where many reports are averaged, and the values' distribution can be
    estimated from them, what counts is how much a report moves the estimate, and that is up to half as much again.  The
    unbiased decoder stays: `outputs` are solved for exactly, so that the mean of a report is its input.  Which outputs
    there are, and how often, is a linear programme.  For 2 to 11 evenly spaced values that are expected alike, and the
    epsilons of ``OptimalKary.table_epsilons()``, its solutions are shipped; otherwise it is solved when the channel is
    made, in about a second for 10 values and ten seconds for 16.  It only proposes, and is no part of the privacy
    argument: the proposal is rounded to 64-bit counts that keep epsilon in rational arithmetic.  See
    docs/explanation/mechanisms/ratings/bayes-kary.md.

    References
    ----------
    .. [1] Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 17, 2016.

    Examples
    --------
    >>> from fastfedrec.mechanisms import BayesKary, OptimalKary
    >>> channel = BayesKary(2.0, [1, 2, 3, 4, 5])
    >>> bool(channel.epsilon <= 2.0), channel.mean(4)
    (True, Fraction(5, 1))
    >>> round(channel.explained, 3)
    0.424
    >>> ratio = channel.worst_variance / OptimalKary(2.0, [1, 2, 3, 4, 5]).worst_variance
    >>> round(float(ratio), 3)
    1.5
    """

    _purpose = "bayes_kary.privatize"

    def __init__(
        self,
        nominal_epsilon: float,
        grid: int | Sequence[float],
        prior: Sequence[float] | None = None,
        variance_ratio: float = VARIANCE_RATIO,
    ):
        self.nominal_epsilon = check_real("nominal_epsilon", nominal_epsilon, low=0.01, high=12.0)
        inputs = check_grid("grid", grid, high=16)
        self.prior = check_prior("prior", prior, len(inputs))
        self.variance_ratio = check_real("variance_ratio", variance_ratio, low=1.01)
        ratio, x = exp_lower(self.nominal_epsilon), np.array([float(v) for v in inputs])
        sets, weights, values, self.optimality_gap = self._propose(x)
        super().__init__(**proposed_table(sets, weights, values, ratio, inputs))
        self.explained = explained_share(self, self.prior)

    def _propose(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Sets, weights and values of the outputs, and the gap: from the table, or from the solver."""
        if self.prior == (1 / len(x),) * len(x) and self.variance_ratio == VARIANCE_RATIO:
            found = find_solution(BAYES, x, self.nominal_epsilon)
            if found is not None:
                return found
        from fastfedrec.mechanisms.ratings._bayes_kary_solver import solve  # loads scipy.optimize

        sets, weights, values, _ = propose(x, self.nominal_epsilon)
        least = sets, weights, values
        return solve(x, self.nominal_epsilon, np.array(self.prior), self.variance_ratio, least)


def check_prior(name: str, prior: Sequence[float] | None, n_values: int) -> tuple[float, ...]:
    """Return how often each value is expected, adding up to 1, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    prior : sequence of float or None
        None expects all alike.
    n_values : int
        How many values there are.

    Returns
    -------
    tuple of float
        Shares.
    """
    n_values = check_integer("n_values", n_values, low=2)
    if prior is None:
        return (1 / n_values,) * n_values
    shares = [check_real(f"{name}[{i}]", share, low=0.0) for i, share in enumerate(prior)]
    if len(shares) != n_values or sum(share > 0 for share in shares) < 2:
        raise ValueError(f"{name} must hold a number for each of {n_values} values, two of them above 0, got {shares}")
    total = sum(shares)
    return tuple(share / total for share in shares)


def explained_share(channel: Channel, prior: Sequence[float]) -> float:
    """The share of a prior's variance that a report explains: the variance of Bayes' estimate over that of the value.

    Parameters
    ----------
    channel : Channel
        Of the report.
    prior : sequence of float
        How often each input is expected, adding up to 1.

    Returns
    -------
    float
        From 0 to 1.
    """
    shares = np.array([check_real(f"prior[{i}]", share, low=0.0) for i, share in enumerate(prior)])
    x = np.array([float(v) for v in channel.inputs])
    table = np.array([[c / TOTAL for c in row] for row in channel.counts])
    deviations = x - shares @ x
    explained = ((shares * deviations) @ table) ** 2 / (shares @ table)
    return float(explained.sum() / (shares @ deviations**2))
