"""Finite channels with exact probabilities, as counts out of 2^64, so that epsilon is exact for the sampler."""

import decimal
import functools
import inspect
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.mechanisms.channels import channel as _kernel
from fastfedrec.core.arrays import read_only
from fastfedrec.core.check import check_exact, check_integer, check_real
from fastfedrec.core.numbers import is_exact
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms._opendp import Space
from fastfedrec.mechanisms._randomizer import Randomizer, Report
from fastfedrec.mechanisms.report_checks import (
    NUMBERING,
    as_codes,
    check_codes,
    check_integers,
    check_reals,
    code_types,
    fill_missing,
)

__all__ = ["Channel", "exp_lower", "log_upper"]

TOTAL = 2**64
LARGEST_EPSILON = 1000.0  # nats; tables of 64-bit counts are the same for any larger epsilon

# Decimal's exp and ln are correctly rounded, so one step down or up from 60 digits is a strict bound.
_CONTEXT = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN, Emin=-999999, Emax=999999)


def exp_lower(epsilon: float) -> Fraction:
    """Return a rational lower bound of e^epsilon, strictly below by less than 1 part in 10^58 up to epsilon 1000.

    Parameters
    ----------
    epsilon : float
        Exponent, taken exactly.

    Returns
    -------
    Fraction
        The bound.
    """
    epsilon = min(check_real("epsilon", epsilon), LARGEST_EPSILON)
    return Fraction(_CONTEXT.next_minus(_CONTEXT.exp(decimal.Decimal(epsilon))))


def log_upper(ratio: Fraction) -> float:
    """Return the smallest float that is proved to be at least log(ratio).

    Parameters
    ----------
    ratio : Fraction
        Likelihood ratio, at least 1.

    Returns
    -------
    float
        Upper bound of the logarithm, in nats.
    """
    ratio = check_exact("ratio", ratio, low=1)
    if ratio == 1:
        return 0.0
    quotient = _CONTEXT.next_plus(_CONTEXT.divide(decimal.Decimal(ratio.numerator), decimal.Decimal(ratio.denominator)))
    exact = _CONTEXT.next_plus(_CONTEXT.ln(quotient))
    nearest = float(exact)
    # The nearest float may be below, where the next one up is the smallest bound.
    return nearest if decimal.Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)


def _exact_numbers(name: str, values: Sequence[Fraction | int | float]) -> tuple[Fraction, ...]:
    return tuple(v if is_exact(v) else check_exact(f"{name}[{i}]", v) for i, v in enumerate(values))


class NominalEpsilon(Randomizer[Report]):
    """Base of mechanisms with a `nominal_epsilon` and an exact `epsilon` of the sampler that is at most as large.

    Parameters
    ----------
    *_, **named : object
        Arguments of the subclass's constructor.
    """

    likelihood_ratio: Any
    #: A small instance by its arguments without epsilon, and two values that are hard to hide from one another.  The
    #: audit and the tests of all mechanisms read it.
    _example: ClassVar[tuple[dict[str, Any], tuple[Any, Any]]]

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """Raise an error that names `nominal_epsilon` if `epsilon=` is passed."""
        if "epsilon" in named and "nominal_epsilon" in inspect.signature(cls.__init__).parameters:
            raise TypeError(f"{cls.__name__} takes nominal_epsilon, not epsilon, which may be smaller")
        return super().__new__(cls)

    @property
    def epsilon(self) -> float:
        """Privacy cost of one report, in nats: log of `likelihood_ratio`, rounded up.

        Returns
        -------
        float
            At least 0, and at most `nominal_epsilon` for a mechanism that has one.
        """
        ratio = self.likelihood_ratio
        # The ratio is a float only if it is infinite.
        return math.inf if isinstance(ratio, float) else log_upper(ratio)

    def _opendp_space(self, dp: Any) -> Space:
        epsilon = self.epsilon
        if math.isinf(epsilon):
            raise TypeError(f"{type(self).__name__} must have a guarantee, got epsilon=inf")
        # Any two values have distance 1.
        metric, measure = dp.discrete_distance(), dp.max_divergence()
        return Space(self._opendp_domain(dp), metric, measure, lambda distance: epsilon if distance else 0.0, True)

    def _opendp_domain(self, dp: Any) -> Any:
        """Return the domain of one value."""
        return dp.atom_domain(T="i64")


class _Decoded(NominalEpsilon[Report]):
    """Base of mechanisms with reports that are positions in `outputs`, the decoded numbers."""

    outputs: tuple[Fraction, ...]

    @functools.cached_property
    def _decoder(self) -> np.ndarray:
        return read_only(np.array([float(value) for value in self.outputs]))

    def estimate(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Decode each report to an unbiased estimate of its clipped input.

        Parameters
        ----------
        reports : array_like of int
            Positions in `outputs`.

        Returns
        -------
        ndarray of float64
            Estimates, in the shape of `reports`.
        """
        return self._decoder[check_codes("reports", reports, len(self.outputs))]


class Channel(_Decoded[np.uint8]):
    """A mechanism with finitely many inputs and outputs, as integer counts out of 2^64.

    Output y has probability exactly ``counts[x][y] / 2**64`` on input x, because it is drawn by comparing one uniform
    64-bit word with integer thresholds.  So `epsilon` and `variance` are computed in rational arithmetic from the
    sampler's own probabilities, and a statistical test has only to check the sampler.

    Parameters
    ----------
    counts : sequence of sequences of int
        One row for each input; each row adds up to 2^64.
    inputs : sequence of Fraction, int or float
        Real values of the inputs.
    outputs : sequence of Fraction, int or float
        Decoded values of the outputs.

    Attributes
    ----------
    counts : tuple of tuple of int
        As given.
    inputs, outputs : tuple of Fraction
        As given.

    Notes
    -----
    One use of the channel is epsilon-differentially private with `epsilon` as given here, in the local model, with
    privacy unit "report": any two inputs are neighbours ("replace").  Only the client's own device is trusted.

    A report is drawn from one 64-bit word.  Reports have the type uint8 or a wider integer; `out` may be wider as well.

    Examples
    --------
    >>> from fastfedrec.mechanisms import Channel
    >>> coin = Channel([[3 * 2**62, 2**62], [2**62, 3 * 2**62]], inputs=[1, -1], outputs=[2, -2])
    >>> coin.likelihood_ratio
    Fraction(3, 1)
    >>> coin.mean(0), coin.variance(0)
    (Fraction(1, 1), Fraction(3, 1))
    >>> from fastfedrec import Key
    >>> reports = coin.privatize(coin.positions([1, -1, -1]), key=Key.from_seed(1))
    >>> reports.dtype, coin.estimate(reports).shape
    (dtype('uint8'), (3,))
    """

    _purpose = "channel.privatize"

    def __init__(
        self,
        counts: Sequence[Sequence[int]],
        *,
        inputs: Sequence[Fraction | int | float],
        outputs: Sequence[Fraction | int | float],
    ):
        self.counts = tuple(
            tuple(c if type(c) is int else check_integer(f"counts[{x}][{y}]", c, high=None) for y, c in enumerate(row))
            for x, row in enumerate(counts)
        )
        self.inputs, self.outputs = _exact_numbers("inputs", inputs), _exact_numbers("outputs", outputs)
        if len(self.counts) != len(self.inputs) or not self.counts:
            raise ValueError(f"counts must have one row per input ({len(self.inputs)}), got {len(self.counts)}")
        for x, row in enumerate(self.counts):
            if len(row) != len(self.outputs) or min(row, default=0) < 0 or sum(row) != TOTAL:
                raise ValueError(
                    f"counts[{x}] must be {len(self.outputs)} integers of at least 0 that add up to 2**64, got {row}"
                )

    @property
    def likelihood_ratio(self) -> Fraction | float:
        """Maximum ratio of one output's probabilities on two inputs: e^epsilon, exactly.

        Returns
        -------
        Fraction or float
            At least 1; infinite if an output is possible on one input and not on another.
        """
        worst = Fraction(1)
        for column in zip(*self.counts, strict=True):
            if max(column) == 0:  # an output that no input has is never reported
                continue
            if min(column) == 0:
                return math.inf
            worst = max(worst, Fraction(max(column), min(column)))
        return worst

    def probability(self, x: int, y: int) -> Fraction:
        """Return the exact probability of output `y` on input `x`.

        Parameters
        ----------
        x, y : int
            Positions in `inputs` and `outputs`.

        Returns
        -------
        Fraction
            A multiple of 2^-64.
        """
        x = check_integer("x", x, low=0, high=len(self.inputs) - 1)
        return Fraction(self.counts[x][check_integer("y", y, low=0, high=len(self.outputs) - 1)], TOTAL)

    def mean(self, x: int) -> Fraction:
        """Return the exact mean of the decoded output on input `x`: `inputs[x]` for an unbiased decoder.

        Parameters
        ----------
        x : int
            Position in `inputs`.

        Returns
        -------
        Fraction
            The mean.
        """
        x = check_integer("x", x, low=0, high=len(self.inputs) - 1)
        return sum((c * value for c, value in zip(self.counts[x], self.outputs, strict=True)), Fraction(0)) / TOTAL

    def variance(self, x: int) -> Fraction:
        """Return the exact variance of the decoded output on input `x`.

        Parameters
        ----------
        x : int
            Position in `inputs`.

        Returns
        -------
        Fraction
            The variance of one report.
        """
        x = check_integer("x", x, low=0, high=len(self.inputs) - 1)
        square = sum((c * value**2 for c, value in zip(self.counts[x], self.outputs, strict=True)), Fraction(0))
        return square / TOTAL - self.mean(x) ** 2

    @property
    def worst_variance(self) -> Fraction:
        """Maximum variance of one report over all inputs.

        Returns
        -------
        Fraction
            Exact.
        """
        return max(self.variance(x) for x in range(len(self.inputs)))

    def positions(self, values: ArrayLike) -> NDArray[np.uint8]:
        """Return the position in `inputs` of each value or of its nearest input: the codes that `privatize` takes.

        Parameters
        ----------
        values : array_like of float
            A value that equals no input (as a double) counts as the nearest one, or as the lower of two.  NaN counts as
            the smallest.  No value is refused, because whether a client answers must not depend on its data.

        Returns
        -------
        ndarray of uint8 or a wider integer
            Positions, in the shape of `values`.
        """
        values = check_reals("values", fill_missing(values), "use the numbers of inputs").astype(np.float64, copy=False)
        inputs = np.array([float(x) for x in self.inputs])
        order = np.argsort(inputs, kind="stable")
        ascending = inputs[order]
        values = np.where(np.isnan(values), ascending[0], values).clip(ascending[0], ascending[-1])
        # `after` is the first input that is not below the value, and `before` is the last one that is.
        after = np.searchsorted(ascending, values)
        before = np.maximum(after - 1, 0)
        is_nearer = ascending[after] - values < values - ascending[before]
        return order[np.where(is_nearer | (after == before), after, before)].astype(code_types(len(inputs))[0])

    @functools.cached_property
    def _thresholds(self) -> tuple[np.ndarray, np.ndarray]:
        # Row x: the number of words for outputs 0..y, padded to a complete binary tree.  A sum of 2^64 does not fit,
        # but it belongs to the last possible output, where the kernel stops.
        width = 2 ** (len(self.outputs) - 1).bit_length() - 1
        thresholds = np.full((len(self.inputs), max(width, 1)), TOTAL - 1, dtype=np.uint64)
        last = np.empty(len(self.inputs), dtype=np.int64)
        for x, row in enumerate(self.counts):
            sums = list(itertools.accumulate(row))
            thresholds[x, : len(row) - 1] = [min(total, TOTAL - 1) for total in sums[:-1]]
            last[x] = sums.index(TOTAL)
        return read_only(thresholds), read_only(last)  # the guarantee depends on them

    @property
    def _report_types(self) -> Sequence[type]:
        return code_types(len(self.outputs))

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        return check_integers("values", values, NUMBERING)

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        codes, subkey = as_codes(values), key.subkey(self._purpose)
        _kernel.sample_rows(codes.reshape(-1), *self._thresholds, out.reshape(-1), subkey, round_number, n_threads)
