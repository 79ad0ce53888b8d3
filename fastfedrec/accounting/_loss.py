"""Privacy losses on a grid, rounded so that delta never falls, and their composition by FFT.

A pair (P, Q) of output distributions has the loss log(P / Q) of an output drawn from P.  Losses of independent uses
add, so their distributions convolve, and delta(epsilon) is the mean of max(0, 1 - e^(epsilon - loss)).
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastfedrec.accounting._transform import convolve_masses, fast_length

TAIL = 1e-13  # mass that may lie on either side of the window of a composition
_LEAST_EPSILON = 1e-300  # a cell of its grid is far above the least numbers
FINEST, LARGEST_FFT = 1e-4, 2**22
_ENOUGH_CELLS, _PER_STDDEV = 2**17, 64  # a longer transform needs no more cells for a standard deviation of one loss
CELLS = 4096  # at least so many cells for one loss
MOST_USES, FURTHEST = 10**12, 1e100  # beyond, rounding errors of the transforms, or of losses, are too large
MASSES_ERROR, EXCESS_ERROR = 2.0**-40, 2.0**-44  # of masses, and of p - q where it is known by itself; relative
_COARSEST = 64  # times the largest loss: a step beyond it keeps nothing of the losses
_SUMS_ERROR = 1 + 2.0**-36
_PER_USE = 2.0**-48  # relative error of a tilted mass
_TILTS = 2.0 ** np.arange(-12, 13)
_AIMS = 2.0 ** (np.arange(-80, 141) / 2)


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


def spread(p: np.ndarray, q: np.ndarray, start: int, step: float, excess: np.ndarray | None = None) -> np.ndarray:
    """Move the masses of the cells [g_i, g_i + step], g_i = step * (start + i), to their ends; one entry more.

    Both the P-mass and the Q-mass of each cell are kept, so that the likelihood ratio is spread and delta can only
    grow, but by an error of second order in the step.  Where rounding leaves no such split, mass moves up; and what
    goes down is less than it might be by the errors of the masses.  `excess` is p - q, where it is known better than
    that: then the errors are those of a loss, not of the masses.
    """
    ends = np.zeros(len(p) + 1)
    present = np.flatnonzero(p)  # often a third of all cells
    if present.size == 0:
        return ends
    first, stop = present[0], present[-1] + 1
    p, q = p[first:stop], q[first:stop]
    with np.errstate(over="ignore", invalid="ignore"):
        grown = q * np.expm1(step * (start + 1 + np.arange(first, stop)))
        known = p - q if excess is None else excess[first:stop]
        error = MASSES_ERROR * (p + q) if excess is None else EXCESS_ERROR * (np.abs(known) + np.abs(grown))
        low = (grown - known - error) / np.expm1(step)
    low = np.clip(np.where(np.isfinite(low), low, 0.0), 0.0, p)
    ends[first:stop] += low
    ends[first + 1 : stop + 1] += p - low
    return ends


def both_ways(
    p: np.ndarray,
    q: np.ndarray,
    start: int,
    step: float,
    below: tuple[float, float],
    above: tuple[float, float],
    excess: np.ndarray | None = None,
) -> tuple[LossPmf, LossPmf]:
    """The losses of (P, Q) and of (Q, P) from their masses in cells, and `below` and `above` them as (p, q)."""
    forward, backward = spread(p, q, start, step, excess), _backward(p, q, start, step, excess)
    forward[0] += below[0]
    backward[0] += above[1]
    return LossPmf(start, forward, above[0]), LossPmf(-(start + len(p)), backward, below[1])


def symmetric(
    p: np.ndarray,
    q: np.ndarray,
    step: float,
    at_zero: float,
    above: tuple[float, float],
    excess: np.ndarray | None = None,
) -> LossPmf:
    """Losses distributed alike under (P, Q) and (Q, P), from the masses of the cells above 0."""
    n = len(p)
    pmf = np.zeros(2 * n + 1)
    pmf[n:] += spread(p, q, 0, step, excess)
    pmf[: n + 1] += _backward(p, q, 0, step, excess)
    pmf[n] += max(0.0, at_zero)
    pmf[0] += above[1]
    return LossPmf(-n, pmf, above[0])


def _backward(p, q, start, step, excess):
    return spread(q[::-1], p[::-1], -(start + len(p)), step, None if excess is None else -excess[::-1])


def pure_loss(epsilon: float) -> Loss:
    """Losses of binary randomized response, which dominates whatever has this pure epsilon."""
    epsilon = max(epsilon, _LEAST_EPSILON)  # and that of a larger one dominates it

    def build(step):
        n = math.ceil(epsilon / step) + 1
        p, q, excess = np.zeros(n), np.zeros(n), np.zeros(n)
        cell = min(math.floor(epsilon / step), n - 1)
        p[cell], q[cell] = 1 / (1 + math.exp(-epsilon)), math.exp(-epsilon) / (1 + math.exp(-epsilon))
        excess[cell] = math.tanh(epsilon / 2)
        pmf = symmetric(p, q, step, 0.0, (0.0, 0.0), excess)
        return pmf, pmf

    return Loss(epsilon / CELLS, epsilon, build)


def bounded_range_loss(epsilon: float) -> Loss:
    """Losses of a pair that dominates all releases of this bounded range, with a density in proportion to e^(x / 2).

    H_g is (e^(epsilon / 2) - sqrt(g))^2 / (e^epsilon - 1), the largest of all pairs of two outputs with losses epsilon
    apart (docs/explanation/accounting/pure-releases.md).
    """
    epsilon = max(epsilon, _LEAST_EPSILON)

    def build(step):
        edges = np.minimum(step * np.arange(math.ceil(epsilon / step) + 2), epsilon)
        low, high = edges[:-1], edges[1:]
        part = np.expm1((low - high) / 2) / math.expm1(-epsilon)
        p, q = np.exp((high - epsilon) / 2) * part, np.exp(-(low + epsilon) / 2) * part
        pmf = symmetric(p, q, step, 0.0, (0.0, 0.0), p * -np.expm1(-(low + high) / 2))
        return pmf, pmf

    return Loss(epsilon / CELLS, epsilon, build)


@dataclass(frozen=True)
class TotalLoss:
    """Losses first + step * i of a composition, with what is added to every delta.

    `allowance` is the mass of infinite loss, `left_out` that of losses outside the window, and `slack` what rounding
    errors may have taken of the masses: of delta they take no more than the part of it that the largest loss counts.

    Where masses are tilted, they are those of the losses times e^(tilt * loss - log_scale): near the losses that the
    tilt is for none is small, so that rounding errors, `slack` of the whole, are small beside delta, however small.
    """

    first: float
    step: float
    pmf: np.ndarray
    allowance: float
    left_out: float = 0.0
    slack: float = 0.0
    tilt: float = 0.0
    log_scale: float = 0.0

    def delta(self, epsilon: float) -> float:
        """Mean of max(0, 1 - e^(epsilon - loss)), and the allowance."""
        allowed = self.allowed(epsilon)
        if epsilon >= self.first + self.step * len(self.pmf) or allowed >= 1:
            return allowed
        return self._above(max(0, math.floor((epsilon - self.first) / self.step) - 1), epsilon) + allowed

    def epsilon(self, delta: float) -> float:
        """Where `delta` falls to its argument: between two losses it is linear in e^epsilon, so no search is needed."""
        low, high = -1, len(self.pmf) - 1  # the answer lies in (loss of low, loss of high], and above 0
        first = min(max(0, math.floor(-self.first / self.step) - 1), high)  # losses up to 0 add nothing to any delta
        if not self._exceeds(0.0, delta, self._above(first, 0.0)):
            return 0.0
        if self.allowed(self._loss(high)) >= delta:
            return math.inf
        mass, above = float(self._masses(high, high + 1)[0]), 0.0  # from high on; and delta there, without allowance
        while high - low > 1:
            middle = (low + high) // 2
            loss = self._loss(middle)
            if loss <= 0:
                low = middle
                continue
            kept = self._lowered(mass, above, self._loss(high) - loss)
            found = self._above(middle, loss, high) + kept
            if self._exceeds(loss, delta, found):
                low = middle
            else:
                mass, above, high = mass + float(self._masses(middle, high).sum()), found, middle
        least = max(0.0, self._loss(low)) if low >= 0 else 0.0  # below the first loss as well more may be allowed for
        top, budget = self._loss(high), delta - self.allowed(least)
        if not 0 < budget < mass or mass <= above:  # all lie so far above `top` that none of it is lost there
            return top
        return max(least, top + min(0.0, math.log((mass - budget) / (mass - above))))

    @staticmethod
    def _lowered(mass, above, fall):
        """Delta of losses that lie `fall` higher over epsilon than where it is `above`: neither term cancels."""
        return above * math.exp(-fall) - mass * math.expm1(-fall)

    def _exceeds(self, epsilon, delta, above):
        allowed = self.allowed(epsilon)
        return not (allowed < delta and above <= delta - allowed)  # what is no number exceeds

    def allowed(self, epsilon: float) -> float:
        """What is added to delta at an epsilon; it falls with it."""
        exponent = self.log_scale - self.tilt * epsilon  # where masses are tilted, that of Chernoff's bound on delta
        if self.tilt and exponent >= 0:
            return 1.0
        counted = -math.expm1(min(0.0, epsilon - self._loss(len(self.pmf))))
        return self.allowance + math.exp(exponent) * (self.left_out + self.slack * counted)

    def _loss(self, i):
        return self.first + self.step * i

    def _masses(self, start, stop=None):
        if not self.tilt:
            return self.pmf[start:stop]
        pmf = self.pmf[start:stop]
        return pmf * np.exp(np.minimum(self.log_scale - self.tilt * self._loss(start + np.arange(len(pmf))), 700.0))

    def _above(self, start, epsilon, stop=None):
        masses = self._masses(start, stop)
        # Not a dot product: BLAS would start threads for it.
        return float((masses * -np.expm1(np.minimum(0.0, epsilon - self._loss(start + np.arange(len(masses)))))).sum())


def choose_step(losses: Sequence[Loss], finest: float = FINEST) -> float:
    """A grid that is fine enough for each loss, and that none of them alone overfills."""
    return max(
        min([finest, *(loss.step for loss in losses)]),
        max(loss.reach for loss in losses) / (LARGEST_FFT // 4),
    )


def compose(
    parts: Sequence[tuple[Loss, int]], aim: Callable[[float, float], float] | None = None, finest: float = FINEST
) -> tuple[TotalLoss, ...]:
    """The total of several losses, each so many times: of (P, Q), and of (Q, P) where that differs.

    With `aim`, masses are tilted so that it is least: a function of the logarithm of the mean of e^(tilt * loss), and
    of the tilt.  No step below `finest` is taken where none of the losses needs it.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of tilts that are too large to be chosen
        return _compose(parts, aim, finest)


def _compose(parts, aim, finest):
    step, is_chosen = choose_step([loss for loss, _ in parts], finest), False
    while True:
        pairs = [loss.build(step) for loss, _ in parts]
        alike = all(forward is backward for forward, backward in pairs)
        directions = [[(pair[way], times) for pair, (_, times) in zip(pairs, parts, strict=True)] for way in (0, 1)]
        directions = directions[: 1 if alike else 2]
        if sum(times for _, times in parts) == 1:  # nothing to transform, and only the sums' rounding errors
            return tuple(
                TotalLoss(step * loss.start, step, loss.pmf * _SUMS_ERROR, loss.infinity) for ((loss, _),) in directions
            )
        tilts = [find_tilt(pmfs, step, aim) if aim else 0.0 for pmfs in directions]
        tilted = [tilt_masses(pmfs, step, tilt) for pmfs, tilt in zip(directions, tilts, strict=True)]
        windows = [find_window(pmfs, step) for pmfs, _ in tilted]
        widest = max(high - low for low, high in windows)
        finest = min(_least_stddev(pmfs) for pmfs, _ in tilted)
        coarser = 1.0 if is_chosen else min(widest / _ENOUGH_CELLS, finest / _PER_STDDEV)
        coarser = max(coarser, widest / LARGEST_FFT * 1.01)
        if widest <= LARGEST_FFT and coarser < 1.5:
            break
        if step > _COARSEST * max(loss.reach for loss, _ in parts):  # so many uses fit on no grid
            return (TotalLoss(0.0, 1.0, np.zeros(1), 1.0),)
        # It only costs tightness; where cells are enough, it adds no more than 1 / 16,000 to a variance.
        step, is_chosen = step * coarser, True
    totals = []
    for (pmfs, log_scale), tilt, window in zip(tilted, tilts, windows, strict=True):
        total = convolve(pmfs, step, window)
        totals.append(replace(total, tilt=tilt, log_scale=log_scale))
    return tuple(totals)


def tilt_masses(
    pmfs: Sequence[tuple[LossPmf, int]], step: float, tilt: float
) -> tuple[Sequence[tuple[LossPmf, int]], float]:
    """Masses times e^(tilt * loss), scaled to add up to 1, and the logarithm of the scale of all uses, rounded up."""
    if not tilt:
        return pmfs, 0.0
    tilted, log_scale = [], 0.0
    for loss, times in pmfs:
        present = np.flatnonzero(loss.pmf)
        masses, log_mean = np.zeros(len(loss.pmf)), 0.0
        if present.size:
            logs = np.log(loss.pmf[present]) + tilt * step * (loss.start + present)
            log_mean = _log_sum(logs)
            masses[present] = np.exp(logs - log_mean)
        tilted.append((LossPmf(loss.start, masses, loss.infinity), times))
        log_scale += times * (log_mean + _PER_USE * (1 + abs(log_mean)))
    return tilted, log_scale


def find_tilt(pmfs: Sequence[tuple[LossPmf, int]], step: float, aim: Callable[[float, float], float]) -> float:
    """The tilt, but for half a power of 2, at which `aim` is least."""
    supports = []
    for loss, times in pmfs:
        present = np.flatnonzero(loss.pmf)
        if not present.size:
            return 0.0
        supports.append((np.log(loss.pmf[present]), step * (loss.start + present), times))
    unit = _unit(supports)

    @functools.cache
    def reached(i):
        tilt = float(_AIMS[i]) / unit
        return aim(sum(times * _log_sum(logs + tilt * losses) for logs, losses, times in supports), tilt)

    return float(_AIMS[_lowest(reached, len(_AIMS))]) / unit


def _lowest(function, n):
    """Where a function of 0 to n - 1 that falls and then rises is least."""
    first, last = 0, n - 1
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if function(middle) <= function(middle + 1) else (middle + 1, last)
    return first


def _log_sum(logs):
    top = logs.max()
    return float(top + math.log(np.exp(logs - top).sum()))


def _least_stddev(pmfs):
    """The least standard deviation of one finite loss, in steps."""
    stddevs = []
    for loss, _ in pmfs:
        numbers, mass = loss.start + np.arange(len(loss.pmf)), max(float(loss.pmf.sum()), 1e-300)
        mean = float((loss.pmf * numbers).sum()) / mass
        stddevs.append(math.sqrt(float((loss.pmf * (numbers - mean) ** 2).sum()) / mass))
    return min(stddevs)


def _unit(supports):
    """What losses are measured in: 1, or less where all of them are small."""
    return min(1.0, max(float(np.abs(losses).max()) for _, losses, _ in supports) / 4) or 1.0  # all may be 0


def _log_finite(pmfs):
    return sum(times * math.log1p(-min(loss.infinity, 1 - 1e-16)) for loss, times in pmfs)


def convolve(pmfs: Sequence[tuple[LossPmf, int]], step: float, window: tuple[int, int] | None = None) -> TotalLoss:
    """Add up independent losses on one grid."""
    low, high = window or find_window(pmfs, step)
    start = sum(times * loss.start for loss, times in pmfs)
    pmf, error = convolve_masses([(loss.pmf, times) for loss, times in pmfs], fast_length(high - low + 1), low - start)
    return TotalLoss(step * low, step, pmf, -math.expm1(_log_finite(pmfs)), 2 * TAIL, error)


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
    tilts = _TILTS / _unit(supports)

    @functools.cache
    def bound(side, i):
        """With probability 1 - TAIL the total is nearer than this, on that side; true for every tilt."""
        exponent, tilt = -math.log(TAIL), float(tilts[i])
        for logs, losses, times in supports:
            log_mean = _log_sum(logs + side * tilt * losses)
            exponent += times * (log_mean + _PER_USE * (1 + abs(log_mean)))
        return exponent / tilt

    def best(side):
        return bound(side, _lowest(functools.partial(bound, side), len(tilts)))

    below, above = -best(-1) / step, best(1) / step
    first = max(math.floor(below) - 1, low) if math.isfinite(below) else low
    return first, max(first, min(math.ceil(above) + 1, high) if math.isfinite(above) else high)
