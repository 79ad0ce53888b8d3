"""Finite channels with exact probabilities: counts out of 2^64, so that epsilon is proved for what runs."""

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

TOTAL = 2**64

# Decimal's exp and ln are correctly rounded, so one step down or up from 60 digits is a strict bound.
_CONTEXT = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN, Emin=-999999, Emax=999999)


def exp_lower(epsilon: float) -> Fraction:
    """A rational number strictly below e^epsilon, by less than 1 part in 10^58.

    Parameters
    ----------
    epsilon : float
        Taken exactly.

    Returns
    -------
    Fraction
        The bound.
    """
    return Fraction(_CONTEXT.next_minus(_CONTEXT.exp(decimal.Decimal(epsilon))))


def log_upper(ratio: Fraction) -> float:
    """The least float known to be at least log(ratio).

    Parameters
    ----------
    ratio : Fraction
        At least 1.

    Returns
    -------
    float
        In nats.
    """
    if ratio == 1:
        return 0.0
    quotient = _CONTEXT.next_plus(_CONTEXT.divide(decimal.Decimal(ratio.numerator), decimal.Decimal(ratio.denominator)))
    exact = _CONTEXT.next_plus(_CONTEXT.ln(quotient))
    nearest = float(exact)
    return nearest if decimal.Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)


class Channel:
    """A mechanism with finitely many inputs and outputs, as integer counts out of 2^64.

    Output y has probability exactly ``counts[x][y] / 2**64`` on input x, because it is drawn by comparing one uniform
    64-bit word with integer thresholds.  So `epsilon` and `variance` are computed in rational arithmetic from what
    really runs, and a statistical test has only to check the sampler.

    Parameters
    ----------
    counts : sequence of sequences of int
        One row an input, each adding up to 2^64.
    inputs : sequence of Fraction or int
        The real value each input stands for.
    outputs : sequence of Fraction or int
        The value each output is decoded to.

    Attributes
    ----------
    counts : tuple of tuple of int
        As given.
    inputs, outputs : tuple of Fraction
        As given.

    Notes
    -----
    One use of the channel is epsilon-differentially private with `epsilon` as given here, in the local model, with
    privacy unit "report": any two inputs are neighbours ("replace").  Trust: none beyond the client's own device.

    Examples
    --------
    >>> from fastfedrec.mechanisms import Channel
    >>> coin = Channel([[3 * 2**62, 2**62], [2**62, 3 * 2**62]], inputs=[1, -1], outputs=[2, -2])
    >>> coin.likelihood_ratio
    Fraction(3, 1)
    >>> coin.mean(0), coin.variance(0)
    (Fraction(1, 1), Fraction(3, 1))
    """

    def __init__(
        self,
        counts: Sequence[Sequence[int]],
        *,
        inputs: Sequence[Fraction | int],
        outputs: Sequence[Fraction | int],
    ):
        self.counts = tuple(tuple(int(c) for c in row) for row in counts)
        self.inputs = tuple(Fraction(v) for v in inputs)
        self.outputs = tuple(Fraction(v) for v in outputs)
        if len(self.counts) != len(self.inputs) or not self.counts:
            raise ValueError(f"counts must have one row per input ({len(self.inputs)}), got {len(self.counts)}")
        for x, row in enumerate(self.counts):
            if len(row) != len(self.outputs) or min(row) < 0 or sum(row) != TOTAL:
                raise ValueError(
                    f"counts[{x}] must be {len(self.outputs)} integers of at least 0 that add up to 2**64, got {row}"
                )

    @property
    def likelihood_ratio(self) -> Fraction | float:
        """The largest ratio of one output's probabilities on two inputs: e^epsilon, exactly.

        Returns
        -------
        Fraction or float
            At least 1; infinite where an output is possible on one input and not on another.
        """
        worst = Fraction(1)
        for column in zip(*self.counts, strict=True):
            if max(column) == 0:
                continue
            if min(column) == 0:
                return math.inf
            worst = max(worst, Fraction(max(column), min(column)))
        return worst

    @property
    def epsilon(self) -> float:
        """What one use costs, in nats: log of `likelihood_ratio`, rounded up.

        Returns
        -------
        float
            At least 0.
        """
        ratio = self.likelihood_ratio
        return math.inf if isinstance(ratio, float) else log_upper(ratio)

    def probability(self, x: int, y: int) -> Fraction:
        """The exact probability of output `y` on input `x`.

        Parameters
        ----------
        x, y : int
            Positions in `inputs` and `outputs`.

        Returns
        -------
        Fraction
            A multiple of 2^-64.
        """
        return Fraction(self.counts[x][y], TOTAL)

    def mean(self, x: int) -> Fraction:
        """The exact mean of the decoded output on input `x`: `inputs[x]` where the decoder is unbiased.

        Parameters
        ----------
        x : int
            Position in `inputs`.

        Returns
        -------
        Fraction
            The mean.
        """
        return sum((c * value for c, value in zip(self.counts[x], self.outputs, strict=True)), Fraction(0)) / TOTAL

    def variance(self, x: int) -> Fraction:
        """The exact variance of the decoded output on input `x`.

        Parameters
        ----------
        x : int
            Position in `inputs`.

        Returns
        -------
        Fraction
            The variance of one report.
        """
        square = sum((c * value**2 for c, value in zip(self.counts[x], self.outputs, strict=True)), Fraction(0))
        return square / TOTAL - self.mean(x) ** 2

    def estimate(self, reports: np.ndarray) -> np.ndarray:
        """Decode reports, each to an unbiased estimate of its input.

        Parameters
        ----------
        reports : array_like of int
            Positions in `outputs`.

        Returns
        -------
        ndarray of float64
            Same shape.
        """
        reports = np.asarray(reports)
        if reports.dtype.kind not in "iu":
            raise TypeError(f"reports must be integers, got dtype {reports.dtype}")
        if reports.size and (reports.min() < 0 or reports.max() >= len(self.outputs)):
            raise ValueError(f"reports must lie in [0, {len(self.outputs)}), got {reports.min()} to {reports.max()}")
        return np.array([float(value) for value in self.outputs])[reports]
