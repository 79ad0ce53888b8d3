"""Frequency oracles: how many clients hold each value, from one private report of each (Wang et al. 2017)."""

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
    CODES,
    NUMBERING,
    check_codes,
    check_grid,
    check_integers,
    clip_codes,
    code_type,
    draws_reports,
    present,
    report_array,
)

__all__ = ["GRR", "OUE"]


class GRR(FrequencyOracle):
    """Generalized randomized response: report the own value most often, every other one equally often.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values are neighbours
    ("replace"), the privacy unit is one report, and nothing beyond the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; the exact epsilon of what runs is at most this.
    n_values : int
        Values are 0, 1, ..., n_values - 1; at least 2, below 2**31.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_values : int
        As given.
    p_count, q_count : int
        Words out of 2^64 that report the own value, and each other one.
    likelihood_ratio : Fraction
        p_count / q_count: e^epsilon, exactly.

    Notes
    -----
    ``q_count`` is 2^64 / (e^epsilon + n_values - 1) rounded up, so the ratio is at most e^epsilon.  Better than `OUE`
    where n_values is below 3 e^epsilon + 2.  See docs/explanation/mechanisms/frequencies/grr.md.

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
        self.p_count = TOTAL - (self.n_values - 1) * self.q_count
        if self.p_count <= self.q_count:
            raise ValueError(f"nominal_epsilon is too small for {n_values} values and 64 bits, got {nominal_epsilon}")
        self.likelihood_ratio = Fraction(self.p_count, self.q_count)

    @draws_reports
    def privatize(
        self,
        values: ArrayLike,
        *,
        key: Key | None = None,
        round: int = 0,
        out: np.ndarray | None = None,
        n_threads: int = 0,
    ) -> NDArray[np.uint8]:
        """Draw one report for each value: one 64-bit word.

        Parameters
        ----------
        values : array_like of int
            In [0, n_values), to which others are clipped, because whether a client answers must not depend on its
            data; uint8, uint16, int32 and int64 are read in place.
        out : ndarray or None
            Where to write; `values` itself is allowed.

        Returns
        -------
        ndarray of uint8 or a wider integer
            Values, in the shape of `values`.
        """
        integers = check_integers("values", present(values), NUMBERING)
        out = report_array(out, integers, CODES[CODES.index(code_type(self.n_values)) :])
        values = clip_codes(integers, self.n_values)
        key, round_number, n_threads = claim_call("GRR.privatize", key, round, n_threads)
        _kernel.report_values(
            values.reshape(-1),
            out.reshape(-1),
            key.subkey(self._purpose),
            self.q_count,
            self.p_count - self.q_count,
            round_number,
            n_threads,
        )
        return out

    def channel(self, inputs: Sequence[float] | None = None) -> Channel:
        """The mechanism as an exact table, with unbiased outputs for values that stand for numbers.

        Parameters
        ----------
        inputs : sequence of numbers or None
            What each value stands for, increasing; None for the values themselves.  At most 256.

        Returns
        -------
        Channel
            Its counts are those of what runs.
        """
        grid = check_grid("inputs", self.n_values if inputs is None else inputs, high=256)
        if len(grid) != self.n_values:
            raise ValueError(f"inputs must have {self.n_values} numbers, one a value, got {len(grid)}")
        p, q, everything = self.p_count, self.q_count, sum(grid)
        outputs = [(x * TOTAL - q * everything) / (p - q) for x in grid]
        counts = [[p if x == y else q for y in range(self.n_values)] for x in range(self.n_values)]
        return Channel(counts, inputs=grid, outputs=outputs)


class OUE(FrequencyOracle):
    """Optimized unary encoding: one bit for every value, the own one set half of the time, any other one rarely.

    **Guarantee.** One report (all its bits together) is `epsilon`-differentially private in the local model: any two
    values are neighbours ("replace"), the privacy unit is one report, and nothing beyond the client's own device is
    trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; the exact epsilon of what runs is at most this.
    n_values : int
        Values are 0, 1, ..., n_values - 1; at least 2, below 2**31.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_values : int
        As given.
    p_count, q_count : int
        Words out of 2^64 that set the own bit (2^63), and each other one.
    likelihood_ratio : Fraction
        (2^64 - q_count) / q_count: e^epsilon, exactly.

    Notes
    -----
    Two values differ in two bits.  The worst report has the bit of the one set and that of the other not, with
    probabilities 1/2 (1 - q) against q 1/2, whose ratio is (1 - q) / q; ``q_count`` is 2^64 / (e^epsilon + 1) rounded
    up.  See docs/explanation/mechanisms/frequencies/oue.md.

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

    def __init__(self, nominal_epsilon: float, n_values: int):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        self.n_values = check_integer("n_values", n_values, low=2, high=2**31 - 1)
        self.p_count = TOTAL // 2
        self.q_count = int(-(-TOTAL // (exp_lower(self.nominal_epsilon) + 1)))  # up: toward privacy
        if self.p_count <= self.q_count:
            raise ValueError(f"nominal_epsilon is too small for 64 bits, got {nominal_epsilon}")
        self.likelihood_ratio = Fraction(TOTAL - self.q_count, self.q_count)

    @draws_reports
    def privatize(
        self,
        values: ArrayLike,
        *,
        key: Key | None = None,
        round: int = 0,
        out: np.ndarray | None = None,
        n_threads: int = 0,
    ) -> NDArray[np.uint8]:
        """Draw one report for each value: one 64-bit word a bit.

        Parameters
        ----------
        values : array_like of shape (n,), int
            In [0, n_values), to which others are clipped, because whether a client answers must not depend on its
            data; uint8, uint16, int32 and int64 are read in place.
        out : ndarray of shape (n, n_values), uint8, or None
            Where to write.

        Returns
        -------
        ndarray of shape (n, n_values), uint8
            Bits.
        """
        integers = self._check(values)
        out = report_array(out, integers, [np.uint8], shape=(len(integers), self.n_values))
        values = clip_codes(integers, self.n_values)
        key, round_number, n_threads = claim_call("OUE.privatize", key, round, n_threads)
        _kernel.report_bits(values, out, key.subkey(self._purpose), self.q_count, round_number, n_threads)
        return out

    @draws_reports
    def privatize_support(
        self, values: ArrayLike, *, key: Key | None = None, round: int = 0, n_threads: int = 0
    ) -> NDArray[np.int64]:
        """The `support` of the reports that `privatize` would give, without storing them.

        Parameters
        ----------
        values : array_like of shape (n,), int
            In [0, n_values), to which others are clipped.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.  A simulation's shortcut: in a deployment each client sends its own bits.
        """
        values = clip_codes(self._check(values), self.n_values)
        key, round_number, n_threads = claim_call("OUE.privatize_support", key, round, n_threads)
        sums = np.zeros((n_threads, self.n_values), dtype=np.int64)
        _kernel.add_bits(values, sums, key.subkey(self._purpose), self.q_count, round_number, n_threads)
        return sums.sum(axis=0)

    def support(self, reports: ArrayLike) -> NDArray[np.int64]:
        """How many reports support each value; adds up over shards of clients.

        Parameters
        ----------
        reports : array_like of shape (n, n_values), int
            What `privatize` returned.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.
        """
        reports = check_codes("reports", reports, 2)
        if reports.ndim != 2 or reports.shape[1] != self.n_values:
            raise ValueError(f"reports must have shape (n, {self.n_values}), got {reports.shape}")
        return reports.sum(axis=0, dtype=np.int64)
