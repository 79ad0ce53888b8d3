"""The most informative mechanism for a few known values, such as ratings, under a public prior."""

from collections.abc import Sequence

import numpy as np

from fastfedrec.core.check import check_integer, check_real
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower
from fastfedrec.mechanisms.channels.exact_counts import proposed_table
from fastfedrec.mechanisms.ratings._kary_solutions import BAYES, find_solution, propose
from fastfedrec.mechanisms.report_checks import check_grid

__all__ = ["BayesKary", "explained_share"]

VARIANCE_RATIO = 1.5  # default, for which the tables hold solutions


class BayesKary(Channel):
    """Report a value of a grid so that the Bayes estimate of it has the smallest mean squared error.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        From 0.01 to 12, in nats; an upper bound on the exact `epsilon`.
    grid : int or sequence of numbers
        At most 16 increasing values; an integer n means 0, 1, ..., n - 1.
    prior : sequence of float or None
        Public expected shares of the values, at least 0 and with any total.  None takes equal shares.  The guarantee
        does not depend on the prior, but the accuracy of estimates does.
    variance_ratio : float
        Approximate upper bound on the worst-case variance of the unbiased decoder, relative to that of `OptimalKary`;
        at least 1.01.

    Attributes
    ----------
    nominal_epsilon, variance_ratio : float
        As given.
    prior : tuple of float
        Shares of the values, with the sum 1.
    explained : float
        Share of the prior's variance that a report explains.  The mean squared error of the Bayes estimate of a value
        is (1 - `explained`) times the prior's variance.
    optimality_gap : float
        Approximate upper bound on the additional `explained` of any mechanism of the same epsilon and variance bound.

    Notes
    -----
    `OptimalKary` is best for every single value.  If many reports are averaged, and the values' distribution can be
    estimated from them, the explained share of the variance matters more.  Here it is up to 1.5 times as large.
    The decoder is still unbiased: `outputs` are the exact solution that makes the mean of a report its input.  A linear
    program determines the outputs and their probabilities.  For 2 to 11 evenly spaced values with equal shares, and the
    epsilons of ``OptimalKary.table_epsilons()``, the package contains its solutions.  Otherwise the constructor solves
    it, in about a second for 10 values and ten seconds for 16.  The privacy argument does not depend on the program:
    its probabilities are rounded to 64-bit counts that keep epsilon in rational arithmetic.  See
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
    _example = {"grid": 5}, (0, 4)

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
        """Return sets, weights and values of the outputs, and the gap, from the table or from the solver."""
        if self.prior == (1 / len(x),) * len(x) and self.variance_ratio == VARIANCE_RATIO:
            solution = find_solution(BAYES, x, self.nominal_epsilon)
            if solution is not None:
                return solution
        from fastfedrec.mechanisms.ratings._bayes_kary_solver import solve  # loads scipy.optimize

        sets, weights, values, _ = propose(x, self.nominal_epsilon)
        # The solver starts from the outputs of `OptimalKary`, which also define its bound on the variance.
        optimal = sets, weights, values
        return solve(x, self.nominal_epsilon, np.array(self.prior), self.variance_ratio, optimal)


def check_prior(name: str, prior: Sequence[float] | None, n_values: int) -> tuple[float, ...]:
    """Return the expected shares of the values, normalized to the sum 1, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    prior : sequence of float or None
        Shares with any total; None for equal shares.
    n_values : int
        Number of values.

    Returns
    -------
    tuple of float
        Shares with the sum 1.
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
    """Return the share of a prior's variance that a report explains.

    It is the variance of the Bayes estimate, divided by the variance of the value.

    Parameters
    ----------
    channel : Channel
        Channel that draws the report.
    prior : sequence of float
        Expected shares of the inputs, with the sum 1.

    Returns
    -------
    float
        Share, from 0 to 1.
    """
    shares = np.array([check_real(f"prior[{i}]", share, low=0.0) for i, share in enumerate(prior)])
    x = np.array([float(v) for v in channel.inputs])
    table = np.array([[c / TOTAL for c in row] for row in channel.counts])
    deviations = x - shares @ x
    # For each output: its probability times the squared mean deviation of the value, given the output.
    explained = ((shares * deviations) @ table) ** 2 / (shares @ table)
    return float(explained.sum() / (shares @ deviations**2))
