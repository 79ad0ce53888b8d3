"""Subset selection: a frequency oracle with sets of values as reports (Ye and Barg 2018)."""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.mechanisms.frequencies import subset_selection as _kernel
from fastfedrec.core.check import check_epsilon, check_integer, plain_array
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import TOTAL, exp_lower
from fastfedrec.mechanisms.frequencies._oracle import FrequencyOracle
from fastfedrec.mechanisms.report_checks import as_codes

__all__ = ["SubsetSelection"]


class SubsetSelection(FrequencyOracle):
    """Report a set of values of fixed size that contains the user's value more often than any other value.

    **Guarantee.** One report (the whole set) is `epsilon`-differentially private in the local model: any two values
    are neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    n_values : int
        Number of values 0, 1, ..., n_values - 1; at least 2, at most 2**24.
    subset_size : int or None
        Number of values in a report, below n_values.  None takes the size with the smallest variance, about
        n_values / (e^epsilon + 1).

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_values : int
        As given.
    subset_size : int
        As given, or chosen.
    p_count : int
        Words out of 2^64 that put the user's value into the report.
    likelihood_ratio : Fraction
        p_count (n_values - subset_size) / ((2^64 - p_count) subset_size): e^epsilon, exactly.

    Notes
    -----
    `privatize` takes values in [0, n_values), of shape (n,).  It draws a report from one 64-bit word for the value and
    about one for each in the set.  Reports have shape (n, subset_size) and type uint8 or a wider integer; `out` may be
    wider as well.  Values ascend in each row, so that their order reveals no more than the set.

    Let n be the number of values and d the size.  The C(n - 1, d - 1) reports with the user's value are equally likely,
    and so are the C(n - 1, d) reports without it.  So the ratio is p / (1 - p) (n - d) / d, and ``p_count`` is
    2^64 d e^epsilon / (d e^epsilon + n - d) rounded down.  Size 1 is `GRR`.  In all measured cases the best size was at
    least as good as `GRR` and `OUE`.  See docs/explanation/mechanisms/frequencies/subset-selection.md.

    References
    ----------
    .. [1] Ye, Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", IEEE
       Transactions on Information Theory 64(8), 2018.
    .. [2] Wang et al., "Mutual information optimally local private discrete distribution estimation", 2016.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import SubsetSelection
    >>> oracle = SubsetSelection(1.0, n_values=8)
    >>> reports = oracle.privatize([0] * 30_000 + [2] * 70_000, key=Key.from_seed(1))
    >>> reports.shape, bool(abs(oracle.estimate(reports) - [0.3, 0, 0.7, 0, 0, 0, 0, 0]).max() < 0.02)
    ((100000, 2), True)
    """

    _purpose = "subset_selection.privatize"

    def __init__(self, nominal_epsilon: float, n_values: int, *, subset_size: int | None = None):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        # A block of 1,024 reports stays within the 2^35 words of its stream.
        self.n_values = check_integer("n_values", n_values, low=2, high=2**24)
        if subset_size is None:
            # The variance is smallest at a real size, so that the best integer is one of its two neighbours.
            best = int(self.n_values / (exp_lower(self.nominal_epsilon) + 1))
            sizes = range(max(best, 1), min(best + 1, self.n_values - 1) + 1)
            self.subset_size = min(sizes, key=self._total_variance)
        else:
            self.subset_size = check_integer("subset_size", subset_size, low=1, high=self.n_values - 1)
        self.p_count = self._largest_p_count(self.subset_size)
        odds = Fraction(self.p_count, TOTAL - self.p_count)
        self.likelihood_ratio = odds * (self.n_values - self.subset_size) / self.subset_size
        if self.likelihood_ratio <= 1:
            raise ValueError(
                f"nominal_epsilon is too small for {n_values} values and 64 bits, got {nominal_epsilon}; "
                "use a larger one"
            )

    def _largest_p_count(self, size: int) -> int:
        weight = exp_lower(self.nominal_epsilon) * size
        return int(TOTAL * weight / (weight + self.n_values - size))  # int() rounds down: toward privacy

    def _probabilities(self, size: int | None = None) -> tuple[Fraction, Fraction]:
        size = self.subset_size if size is None else size
        p = Fraction(self._largest_p_count(size), TOTAL)
        return p, (size - p) / (self.n_values - 1)  # the probabilities of all n values add up to `size`

    def _total_variance(self, size: int) -> Fraction | float:
        """Return the sum of the variances of all values' estimates from one report, equal for all frequencies."""
        p, q = self._probabilities(size)
        if p <= q:  # epsilon is too small for 64 bits
            return math.inf
        return (p * (1 - p) + (self.n_values - 1) * q * (1 - q)) / (p - q) ** 2

    def _report_shape(self, values: np.ndarray) -> tuple[int, ...]:
        return len(values), self.subset_size

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        codes, subkey = as_codes(values), key.subkey(self._purpose)
        # A thread that cannot allocate its bits sets its entry here, since kernels do not raise without the GIL.
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.report_subsets(codes, out, subkey, failed, self.n_values, self.p_count, round_number, n_threads)
        if failed.any():
            raise MemoryError(f"no memory for {self.n_values} bits in each thread; use fewer threads")

    def support(self, reports: ArrayLike) -> NDArray[np.int64]:
        """Count the reports that support each value; counts add up over shards of clients.

        Parameters
        ----------
        reports : array_like of shape (n, subset_size), int
            Output of `privatize`.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Counts.
        """
        reports = plain_array("reports", reports)
        if reports.ndim != 2 or reports.shape[1] != self.subset_size:
            raise ValueError(f"reports must have shape (n, {self.subset_size}), got {reports.shape}")
        return super().support(reports)
