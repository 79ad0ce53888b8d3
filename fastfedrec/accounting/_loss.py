"""Privacy losses on a grid, rounded so that delta never falls, and their composition by FFT.

A pair (P, Q) of output distributions has the loss log(P / Q) of an output drawn from P.  Losses of independent uses
add, so their distributions convolve, and delta(epsilon) is the mean of max(0, 1 - e^(epsilon - loss)).
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

TAIL = 1e-13  # mass that may lie on either side of the window of a composition
SLACK, SLACK_USES = 1e-10, 10**6  # ten times the rounding errors of the transforms for so many uses; they add up
FINEST, LARGEST_FFT = 1e-4, 2**22
_TILTS = 2.0 ** np.arange(-12, 13)


class LossPmf(NamedTuple):
    """P-mass of the losses step * (start + i), and what is left over at infinity."""

    start: int
    pmf: np.ndarray
    infinity: float


class Loss(NamedTuple):
    """A pair of distributions whose losses can be put on a grid of any step.

    `build(step)` gives the losses of (P, Q) and those of (Q, P), the same object where they are alike.
    """

    step: float  # the coarsest that is still fine enough
    reach: float  # of the losses that matter, from 0
    build: Callable[[float], tuple[LossPmf, LossPmf]]


def spread(p: np.ndarray, q: np.ndarray, start: int, step: float) -> np.ndarray:
    """Move the masses of the cells [g_i, g_i + step], g_i = step * (start + i), to their ends; one entry more.

    Both the P-mass and the Q-mass of each cell are kept, so that the likelihood ratio is spread and delta can only
    grow, but by an error of second order in the step.  Where rounding leaves no such split, mass moves up.
    """
    ends = np.zeros(len(p) + 1)
    present = np.flatnonzero(p)  # often a third of all cells
    if present.size == 0:
        return ends
    first, stop = present[0], present[-1] + 1
    p, q = p[first:stop], q[first:stop]
    with np.errstate(over="ignore", invalid="ignore"):
        low = (q * np.exp(step * (start + 1 + np.arange(first, stop))) - p) / np.expm1(step)
    low = np.clip(np.where(np.isfinite(low), low, 0.0), 0.0, p)
    ends[first:stop] += low
    ends[first + 1 : stop + 1] += p - low
    return ends


def both_ways(p, q, start, step, below, above) -> tuple[LossPmf, LossPmf]:
    """The losses of (P, Q) and of (Q, P) from their masses in cells, and `below` and `above` them as (p, q)."""
    forward, backward = spread(p, q, start, step), spread(q[::-1], p[::-1], -(start + len(p)), step)
    forward[0] += below[0]
    backward[0] += above[1]
    return LossPmf(start, forward, above[0]), LossPmf(-(start + len(p)), backward, below[1])


def symmetric(p, q, step, at_zero, above) -> LossPmf:
    """Losses distributed alike under (P, Q) and (Q, P), from the masses of the cells above 0."""
    n = len(p)
    pmf = np.zeros(2 * n + 1)
    pmf[n:] += spread(p, q, 0, step)
    pmf[: n + 1] += spread(q[::-1], p[::-1], -n, step)
    pmf[n] += max(0.0, at_zero)
    pmf[0] += above[1]
    return LossPmf(-n, pmf, above[0])


@dataclass(frozen=True)
class TotalLoss:
    """Losses first + step * i of a composition, and an allowance that is added to every delta."""

    first: float
    step: float
    pmf: np.ndarray
    allowance: float

    def delta(self, epsilon: float) -> float:
        """Mean of max(0, 1 - e^(epsilon - loss)), and the allowance."""
        return self._above(max(0, math.floor((epsilon - self.first) / self.step) - 1), epsilon) + self.allowance

    def epsilon(self, delta: float) -> float:
        """Where `delta` falls to its argument: between two losses it is linear in e^epsilon, so no search is needed."""
        budget = delta - self.allowance
        if budget <= 0:
            return math.inf
        if self._above(0, 0.0) <= budget:
            return 0.0
        low, high = -1, len(self.pmf) - 1  # the answer lies in (loss of low, loss of high], and above 0
        while high - low > 1:
            middle = (low + high) // 2
            loss = self.first + self.step * middle
            low, high = (middle, high) if loss <= 0 or self._above(middle, loss) > budget else (low, middle)
        masses, losses = self.pmf[high:], self.step * np.arange(len(self.pmf) - high)
        weighted = float((masses * np.exp(-losses)).sum())
        return self.first + self.step * high + math.log((float(masses.sum()) - budget) / weighted)

    def _above(self, start, epsilon):
        losses = self.first + self.step * np.arange(start, len(self.pmf))
        # Not a dot product: BLAS would start threads for it.
        return float((self.pmf[start:] * -np.expm1(np.minimum(0.0, epsilon - losses))).sum())


def choose_step(losses: Sequence[Loss]) -> float:
    """A grid that is fine enough for each loss, and that none of them alone overfills."""
    return max(
        min([FINEST, *(loss.step for loss in losses)]),
        max(loss.reach for loss in losses) / (LARGEST_FFT // 4),
    )


def compose(parts: Sequence[tuple[Loss, int]]) -> tuple[TotalLoss, ...]:
    """The total of several losses, each so many times: of (P, Q), and of (Q, P) where that differs."""
    step = choose_step([loss for loss, _ in parts])
    while True:
        pairs = [loss.build(step) for loss, _ in parts]
        alike = all(forward is backward for forward, backward in pairs)
        directions = [[(pair[way], times) for pair, (_, times) in zip(pairs, parts, strict=True)] for way in (0, 1)]
        windows = [find_window(pmfs, step) for pmfs in directions[: 1 if alike else 2]]
        widest = max(high - low for low, high in windows)
        if widest <= LARGEST_FFT:
            return tuple(convolve(pmfs, step, window) for pmfs, window in zip(directions, windows, strict=False))
        step *= widest / LARGEST_FFT * 1.01  # a coarser grid only costs tightness


def convolve(pmfs: Sequence[tuple[LossPmf, int]], step: float, window: tuple[int, int] | None = None) -> TotalLoss:
    """Add up independent losses on one grid."""
    low, high = window or find_window(pmfs, step)
    length = scipy.fft.next_fast_len(max(high - low + 1, 2), real=True)
    product, start, log_finite = None, 0, 0.0
    for loss, times in pmfs:
        folded = np.zeros(-(-len(loss.pmf) // length) * length)
        folded[: len(loss.pmf)] = loss.pmf
        factor = scipy.fft.rfft(folded.reshape(-1, length).sum(axis=0)) ** times
        product = factor if product is None else product * factor
        start += times * loss.start
        log_finite += times * math.log1p(-min(loss.infinity, 1 - 1e-16))
    pmf = np.maximum(np.roll(scipy.fft.irfft(product, length), -((low - start) % length)), 0.0)
    slack = SLACK * max(1.0, sum(times for _, times in pmfs) / SLACK_USES)
    return TotalLoss(step * low, step, pmf, -math.expm1(log_finite) + 2 * TAIL + slack)


def find_window(pmfs: Sequence[tuple[LossPmf, int]], step: float) -> tuple[int, int]:
    """Grid numbers between which all but TAIL a side of the total lies, by Chernoff's bound."""
    low, high = 0, 0
    supports = []
    for loss, times in pmfs:
        present = np.flatnonzero(loss.pmf)
        if not present.size:
            return 0, 0  # all of its mass is at infinity, and so is the total's
        supports.append((np.log(loss.pmf[present]), step * (loss.start + present), times))
        low, high = low + times * int(loss.start + present[0]), high + times * int(loss.start + present[-1])

    @functools.cache
    def bound(side, i):
        """With probability 1 - TAIL the total is nearer than this, on that side; true for every tilt."""
        exponent = -math.log(TAIL)
        for logs, losses, times in supports:
            tilted = logs + side * _TILTS[i] * losses
            top = tilted.max()
            exponent += times * (top + math.log(np.exp(tilted - top).sum()))
        return exponent / _TILTS[i]

    def best(side):
        # It falls and then rises with the tilt.
        first, last = 0, len(_TILTS) - 1
        while first < last:
            middle = (first + last) // 2
            first, last = (first, middle) if bound(side, middle) <= bound(side, middle + 1) else (middle + 1, last)
        return bound(side, first)

    return max(math.floor(-best(-1) / step) - 1, low), min(math.ceil(best(1) / step) + 1, high)
