"""Piecewise (PM) and hybrid (HM) mechanisms for a real number in [-1, 1] (Wang et al. 2019)."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec._kernels.mechanisms.channels import piecewise as _kernel
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, _Decoded, exp_lower
from fastfedrec.mechanisms.report_checks import check_reals

__all__ = ["Hybrid", "Piecewise"]

# Up to this epsilon, in nats (about 0.61), the hybrid mechanism is binary response alone (Wang et al. 2019).
_ROOT = 405 * math.sqrt(241)
_MIN_HYBRID_EPSILON = math.log((-5 + 2 * math.cbrt(6353 - _ROOT) + 2 * math.cbrt(6353 + _ROOT)) / 27)
_REMEDY = "scale them to [-1, 1]"


class Piecewise(_Decoded[np.uint16]):
    """Report one of many cells: each cell of a window around the value is likelier than each cell outside.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values t are neighbours
    ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        From 1e-6 to 40, in nats; an upper bound on the exact `epsilon`.
    n_cells : int
        Number of cells, odd, from 3 to 65,533; fewer cells make shorter reports with a slightly larger variance.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_cells, window : int
        Number of all cells, and of the cells within the window.
    low, extra : int
        Words out of 2^64 of every cell, and additional words of a cell within the window.
    outputs : tuple of Fraction
        Decoded values of the reports, evenly spaced.

    Notes
    -----
    `privatize` takes float32 or float64 numbers and clips them to [-1, 1]; a number that is not finite counts as 0.
    Reports are uint16.

    The paper's mechanism has a continuous output.  Here the output is one of `n_cells`, and the window moves along them
    in steps far below a cell.  A cell has at least `low` and at most ``low + extra`` words for every t with any
    rounding error, so `likelihood_ratio` is exact.  Decoded reports are exactly unbiased at t = -1 and 1.  Elsewhere
    the bias is within 2^-50 plus 2 / (n_cells * extra), from rounding the window's position.  See
    docs/explanation/mechanisms/channels/piecewise.md.

    References
    ----------
    .. [1] Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with local
       differential privacy", ICDE 2019, Algorithm 2.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import Piecewise
    >>> mechanism = Piecewise(2.0)
    >>> 1.999 < mechanism.epsilon <= 2.0
    True
    >>> reports = mechanism.privatize([0.5] * 100_000, key=Key.from_seed(1))
    >>> bool(abs(mechanism.estimate(reports).mean() - 0.5) < 0.02)
    True
    """

    _purpose = "piecewise.privatize"
    _report_types = (np.uint16,)
    _example = {}, (-1.0, 1.0)

    def __init__(self, nominal_epsilon: float, n_cells: int = 65_533):
        self._plan(nominal_epsilon, n_cells, share=Fraction(1))
        middle = self.n_cells // 2
        self._codes = (middle, middle)
        self._span = 0
        self.outputs = self._cell_values(TOTAL)

    def _plan(self, nominal_epsilon: float, n_cells: int, share: Fraction) -> None:
        """Allocate `share` of the 2^64 words to cells, rounded down, so that an even number of words remains."""
        self.nominal_epsilon = check_real("nominal_epsilon", nominal_epsilon, low=1e-6, high=40.0)
        self.n_cells = check_integer("n_cells", n_cells, low=3, high=65_533)
        if self.n_cells % 2 == 0:
            raise ValueError(f"n_cells must be odd, got {self.n_cells}; the middle cell decodes to 0")
        ratio = exp_lower(self.nominal_epsilon)
        # `exp_lower` does not use the C library, so that all platforms compute the same integers.
        window = round(self.n_cells / (exp_lower(self.nominal_epsilon / 2) + 1))
        self.window = min(max(window, 1), self.n_cells // 2)
        # Rounding `extra` down keeps (low + extra) / low at most e^epsilon.
        self.low = 2 * int(TOTAL * share / (self.n_cells + self.window * (ratio - 1)) / 2)
        self.extra = 2 * int(self.low * (ratio - 1) / 2)
        self._cell_words = self.n_cells * self.low + self.window * self.extra
        self._half = (TOTAL - self._cell_words) // 2

    def _cell_values(self, words: int) -> tuple[Fraction, ...]:
        """Return the cells' decoded values that make the estimate of t from `words` out of 2^64 unbiased."""
        unit = Fraction(words, self.window * self.extra * (self.n_cells - self.window))
        return tuple(unit * (2 * j - self.n_cells + 1) for j in range(self.n_cells))

    @property
    def likelihood_ratio(self) -> Fraction:
        """Maximum ratio of one report's probabilities on two values: e^epsilon, exactly.

        Returns
        -------
        Fraction
            At least 1.
        """
        return Fraction(self.low + self.extra, self.low)

    @property
    def _numbers(self) -> np.ndarray:
        plan = [self.n_cells, self.window, self.low, self.extra, self._half, self._span, *self._codes]
        return np.array(plan, dtype=np.uint64)

    def channel(self, values: Sequence[float]) -> Channel:
        """Return the exact table of the mechanism on a few values.

        Parameters
        ----------
        values : sequence of float
            Inputs, clipped as in `privatize`.

        Returns
        -------
        Channel
            The channel with the sampler's counts and the same numbering of reports.
        """
        points = check_reals("values", np.asarray(values), _REMEDY).astype(np.float64)
        if points.ndim != 1:
            raise ValueError(f"values must have 1 dimension, got shape {points.shape}")
        placements = np.empty((len(points), 3), dtype=np.uint64)
        _kernel.placements(points, self._numbers, placements)
        counts = []
        # `start` is the window's first cell, which hands `shift` words to the cell after the window.
        for start, shift, positive in placements.tolist():
            row = [self.low] * self.n_cells + [0] * (len(self.outputs) - self.n_cells)
            if self.low:
                for cell in range(start, start + self.window):
                    row[cell] += self.extra
                row[start] -= shift
                if shift:
                    row[start + self.window] += shift
            # The remaining words are split between the two codes of binary response (twice the middle for Piecewise).
            minus, plus = self._codes
            row[plus] += positive
            row[minus] += 2 * self._half - positive
            counts.append(row)
        clipped = np.nan_to_num(points, nan=0.0, posinf=0.0, neginf=0.0).clip(-1, 1)
        return Channel(counts, inputs=[Fraction(t) for t in clipped.tolist()], outputs=self.outputs)

    def variance(self, t: float) -> Fraction:
        """Return the exact variance of one decoded report for the value `t`.

        Parameters
        ----------
        t : float
            Value in [-1, 1].

        Returns
        -------
        Fraction
            Variance of the sampler, including the rounding of the window's position.
        """
        placement = np.empty((1, 3), dtype=np.uint64)
        _kernel.placements(np.array([check_real("t", t, low=-1.0, high=1.0)]), self._numbers, placement)
        start, shift, positive = placement[0].tolist()
        n, stop = self.n_cells, start + self.window
        # Cells are in half steps from the middle one.  The window's first cell hands `shift` words to the cell behind
        # the window.
        window = range(2 * start - n + 1, 2 * stop - n + 1, 2)
        first, after = window[0], window[-1] + 2
        words = self.extra * sum(window) + shift * (after - first)
        squares = self.extra * sum(d * d for d in window) + shift * (after**2 - first**2)
        squares += self.low * n * (n * n - 1) // 3  # the sum of (2 j - n + 1)^2 over all n cells
        unit, answer = self.outputs[n // 2 + 1], self.outputs[self._codes[1]]
        mean = (unit * words / 2 + answer * 2 * (positive - self._half)) / TOTAL
        return (unit**2 * squares / 4 + answer**2 * 2 * self._half) / TOTAL - mean**2

    def _opendp_domain(self, dp: Any) -> Any:
        return dp.atom_domain(T="f64")

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        return np.asarray(check_reals("values", values, _REMEDY), order="C")

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        subkey = key.subkey(self._purpose)
        _kernel.report_values(values.reshape(-1), out.reshape(-1), self._numbers, subkey, round_number, n_threads)


class Hybrid(Piecewise):
    """Mixture of the piecewise mechanism and binary response, with a variance that hardly depends on the value.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values t are neighbours
    ("replace"), the privacy unit is one report, and only the client's own device is trusted.  The choice
    between the two mechanisms is not secret.

    Parameters
    ----------
    nominal_epsilon : float
        From 1e-6 to 40, in nats; an upper bound on the exact `epsilon`.
    n_cells : int
        Number of cells, odd, from 3 to 65,533; fewer cells make shorter reports with a slightly larger variance.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_cells, window : int
        Number of cells of the piecewise part, and of the cells within its window.
    low, extra : int
        Words out of 2^64 of every cell, and additional words of a cell within the window.  Both are 0 up to an epsilon
        of about 0.61, where binary response alone is better.
    outputs : tuple of Fraction
        Decoded values of the reports: of the cells, then of answer - and of answer +.

    Notes
    -----
    Values and reports are as for `Piecewise`.

    Binary response has a share of exp(-epsilon / 2) of all words if epsilon is above about 0.61, and all words
    otherwise.  Each of the two parts is unbiased.  See docs/explanation/mechanisms/channels/hybrid.md.

    References
    ----------
    .. [1] Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with local
       differential privacy", ICDE 2019: "hybrid mechanism".

    Examples
    --------
    >>> from fastfedrec.mechanisms import Hybrid, Piecewise
    >>> bool(Hybrid(2.0).variance(1.0) < Piecewise(2.0).variance(1.0))
    True
    """

    _purpose = "hybrid.privatize"

    def __init__(self, nominal_epsilon: float, n_cells: int = 65_533):
        nominal = check_real("nominal_epsilon", nominal_epsilon, low=1e-6, high=40.0)
        share = 1 - exp_lower(-nominal / 2) if nominal > _MIN_HYBRID_EPSILON else Fraction(0)
        self._plan(nominal, n_cells, share)
        self._codes = (self.n_cells, self.n_cells + 1)
        ratio = exp_lower(nominal)
        # (half + span) / (half - span) is the answers' likelihood ratio, which must be at most e^epsilon.
        self._span = min(int(self._half * (ratio - 1) / (ratio + 1)), self._half - 1)  # int() rounds toward privacy
        cells = self._cell_values(self._cell_words) if self.low else (Fraction(0),) * self.n_cells
        answer = Fraction(self._half, self._span)
        self.outputs = (*cells, -answer, answer)

    @property
    def likelihood_ratio(self) -> Fraction:
        """Maximum ratio of one report's probabilities on two values: e^epsilon, exactly.

        Returns
        -------
        Fraction
            At least 1.
        """
        answers = Fraction(self._half + self._span, self._half - self._span)
        return max(answers, super().likelihood_ratio) if self.low else answers
