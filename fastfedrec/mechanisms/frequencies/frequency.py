"""Frequency oracles: estimates of the number of clients with each value, from private reports (Wang et al. 2017)."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.mechanisms.frequencies import frequency as _kernel
from fastfedrec.core.check import check_epsilon, check_integer
from fastfedrec.core.randomness import Key, claim_call
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower
from fastfedrec.mechanisms.frequencies._oracle import FrequencyOracle
from fastfedrec.mechanisms.report_checks import (
    NUMBERING,
    as_codes,
    check_codes,
    check_grid,
    check_integers,
    draws_reports,
    fill_missing,
)

__all__ = ["GRR", "OUE"]


class GRR(FrequencyOracle):
    """Generalized randomized response: the user's value is the most likely report, all others are equally likely.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values are neighbours
    ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    n_values : int
        Number of values 0, 1, ..., n_values - 1; at least 2, below 2**31.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_values : int
        As given.
    p_count, q_count : int
        Words out of 2^64 that report the user's value, and each other value.
    likelihood_ratio : Fraction
        p_count / q_count: e^epsilon, exactly.

    Notes
    -----
    `privatize` takes values in [0, n_values), and draws a report from one 64-bit word.  Reports are values too, of type
    uint8 or a wider integer; `out` may be wider as well.

    ``q_count`` is 2^64 / (e^epsilon + n_values - 1) rounded up, so the ratio is at most e^epsilon.  The variance is
    below that of `OUE` if n_values is below 3 e^epsilon + 2.  See docs/explanation/mechanisms/frequencies/grr.md.

    References
    ----------
    .. [1] Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security
       2017: "direct encoding".

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import GRR
    >>> oracle = GRR(2.0, n_values=4)
    >>> reports = oracle.privatize([0] * 30_000 + [2] * 70_000, key=Key.from_seed(1))
    >>> bool(abs(oracle.estimate(reports) - [0.3, 0, 0.7, 0]).max() < 0.02)
    True
    """

    _purpose = "grr.privatize"

    def __init__(self, nominal_epsilon: float, n_values: int):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        self.n_values = check_integer("n_values", n_values, low=2, high=2**31 - 1)
        self.q_count = int(-(-TOTAL // (exp_lower(self.nominal_epsilon) + self.n_values - 1)))  # up: toward privacy
        # The user's value takes all words that the other values leave.
        self.p_count = TOTAL - (self.n_values - 1) * self.q_count
        if self.p_count <= self.q_count:
            raise ValueError(
                f"nominal_epsilon is too small for {n_values} values and 64 bits, got {nominal_epsilon}; "
                "use a larger one"
            )
        self.likelihood_ratio = Fraction(self.p_count, self.q_count)

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        return check_integers("values", values, NUMBERING)

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        _kernel.report_values(
            as_codes(values).reshape(-1), out.reshape(-1), key.subkey(self._purpose), self.n_values, self.q_count,
            self.p_count - self.q_count, round_number, n_threads,
        )  # fmt: skip

    def channel(self, inputs: Sequence[float] | None = None) -> Channel:
        """Return the mechanism as an exact table, with unbiased outputs for values that represent numbers.

        Parameters
        ----------
        inputs : sequence of numbers or None
            Increasing numbers, one for each value and at most 256; None for the values themselves.

        Returns
        -------
        Channel
            The channel with the sampler's counts.
        """
        grid = check_grid("inputs", self.n_values if inputs is None else inputs, high=256)
        if len(grid) != self.n_values:
            raise ValueError(f"inputs must have {self.n_values} numbers, one for each value, got {len(grid)}")
        # With outputs o, the mean on x is ((p - q) o(x) + q sum(o)) / 2^64; that it equals x gives sum(o) = sum(grid).
        p, q, grid_sum = self.p_count, self.q_count, sum(grid)
        outputs = [(x * TOTAL - q * grid_sum) / (p - q) for x in grid]
        counts = [[p if x == y else q for y in range(self.n_values)] for x in range(self.n_values)]
        return Channel(counts, inputs=grid, outputs=outputs)


class OUE(FrequencyOracle):
    """Optimized unary encoding: one bit for each value; the user's bit is set with probability 1/2, others rarely.

    **Guarantee.** One report (all its bits together) is `epsilon`-differentially private in the local model: any two
    values are neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    n_values : int
        Number of values 0, 1, ..., n_values - 1; at least 2, below 2**31.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_values : int
        As given.
    p_count, q_count : int
        Words out of 2^64 that set the bit of the user's value (2^63), and each other bit.
    likelihood_ratio : Fraction
        (2^64 - q_count) / q_count: e^epsilon, exactly.

    Notes
    -----
    `privatize` takes values in [0, n_values), of shape (n,), and draws each bit from one 64-bit word.  Reports are bits
    of type uint8, of shape (n, n_values).

    Two values differ in two bits.  In the worst report one of these bits is set and the other is not.  It has
    probability 1/2 (1 - q) for one value and q 1/2 for the other, with the ratio (1 - q) / q.  ``q_count`` is
    2^64 / (e^epsilon + 1) rounded up.  See docs/explanation/mechanisms/frequencies/oue.md.

    References
    ----------
    .. [1] Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security
       2017: "optimized unary encoding".

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import OUE
    >>> oracle = OUE(2.0, n_values=4)
    >>> reports = oracle.privatize([0] * 30_000 + [2] * 70_000, key=Key.from_seed(1))
    >>> reports.shape, bool(abs(oracle.estimate(reports) - [0.3, 0, 0.7, 0]).max() < 0.02)
    ((100000, 4), True)
    """

    _purpose = "oue.privatize"
    _report_types = (np.uint8,)

    def __init__(self, nominal_epsilon: float, n_values: int):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        self.n_values = check_integer("n_values", n_values, low=2, high=2**31 - 1)
        self.p_count = TOTAL // 2
        self.q_count = int(-(-TOTAL // (exp_lower(self.nominal_epsilon) + 1)))  # up: toward privacy
        if self.p_count <= self.q_count:
            raise ValueError(f"nominal_epsilon is too small for 64 bits, got {nominal_epsilon}; use a larger one")
        self.likelihood_ratio = Fraction(TOTAL - self.q_count, self.q_count)

    def _report_shape(self, values: np.ndarray) -> tuple[int, ...]:
        return len(values), self.n_values

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        subkey = key.subkey(self._purpose)
        _kernel.report_bits(as_codes(values), out, subkey, self.q_count, round_number, n_threads)

    @draws_reports
    def privatize_support(
        self, values: ArrayLike, *, key: Key | None = None, round: int = 0, n_threads: int = 0
    ) -> NDArray[np.int64]:
        """Return the `support` of the reports that `privatize` would draw, without storing them.

        It is a shortcut for simulations: in a deployment each client sends its report.

        Parameters
        ----------
        values : array_like of shape (n,), int
            Private values in [0, n_values); others are clipped.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.
        """
        codes = as_codes(self._prepare_values(fill_missing(values)))
        key, round_number, n_threads = claim_call("OUE.privatize_support", key, round, n_threads)
        # Each thread adds to a separate row, so that no two threads write to the same counts.
        sums = np.zeros((n_threads, self.n_values), dtype=np.int64)
        _kernel.add_bits(codes, sums, key.subkey(self._purpose), self.q_count, round_number, n_threads)
        return sums.sum(axis=0)

    def support(self, reports: ArrayLike) -> NDArray[np.int64]:
        """Count the reports that support each value; counts add up over shards of clients.

        Parameters
        ----------
        reports : array_like of shape (n, n_values), int
            Output of `privatize`.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.
        """
        reports = check_codes("reports", reports, 2)
        if reports.ndim != 2 or reports.shape[1] != self.n_values:
            raise ValueError(f"reports must have shape (n, {self.n_values}), got {reports.shape}")
        return reports.sum(axis=0, dtype=np.int64)
