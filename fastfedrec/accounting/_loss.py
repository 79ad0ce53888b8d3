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
from fastfedrec.accounting._work import count_work

# Mass that may be on either side of the window of a composition.
TAIL = 1e-13
# Smallest epsilon with a grid: a cell of it is far above the smallest floats.
_MIN_EPSILON = 1e-300
# Default step of the grid, and maximum number of cells of a transform.
FINEST, LARGEST_FFT = 1e-4, 2**22
# A transform of this length or longer needs at most this number of cells for a standard deviation of one loss.
_ENOUGH_CELLS, _PER_STDDEV = 2**17, 64
# Minimum number of cells for one loss.
CELLS = 4096
# Maximum number of uses, and maximum sum of losses: above, rounding errors of transforms or of losses are too large.
MAX_USES, FURTHEST = 10**12, 1e100
# Relative errors of masses, and of p - q if it is known directly.
MASSES_ERROR, EXCESS_ERROR = 2.0**-40, 2.0**-44
# A step above this multiple of the largest loss does not resolve the losses at all.
_COARSEST = 64
_SUMS_ERROR = 1 + 2.0**-36
# Relative error of a tilted mass.
_PER_USE = 2.0**-48
_TILTS = 2.0 ** np.arange(-12, 13)
_AIMS = 2.0 ** (np.arange(-80, 141) / 2)


class LossPmf(NamedTuple):
    """P-mass of the losses step * (start + i), and the P-mass of the infinite loss."""

    start: int
    pmf: np.ndarray
    infinity: float


class Loss(NamedTuple):
    """A pair of distributions with losses that can be put on a grid of any step."""

    # Largest step that is still fine enough.
    step: float
    # Largest absolute value of the losses that matter.
    reach: float
    # `build(step)` gives the losses of (P, Q) and of (Q, P), the same object if they have one distribution.
    build: Callable[[float], tuple[LossPmf, LossPmf]]


def spread(p: np.ndarray, q: np.ndarray, start: int, step: float, excess: np.ndarray | None = None) -> np.ndarray:
    """Move the masses of the cells [g_i, g_i + step], g_i = step * (start + i), to their ends; one entry more."""
    # Both the P-mass and the Q-mass of each cell are kept.  Therefore the likelihood ratio is spread and delta can only
    # grow, by an error of second order in the step.  If rounding leaves no such split, mass moves up.  The part that
    # moves down is smaller than in exact arithmetic by the errors of the masses.  If `excess`, which is p - q, is known
    # to more digits, the errors are the errors of a loss and not of the masses.
    ends = np.zeros(len(p) + 1)
    # Often only a third of the cells have mass.
    present = np.flatnonzero(p)
    if present.size == 0:
        return ends
    first, stop = present[0], present[-1] + 1
    p, q = p[first:stop], q[first:stop]
    with np.errstate(over="ignore", invalid="ignore"):
        # The lower end gets the mass `low` with low + high = p and low / e^g_i + high / e^(g_i + step) = q.
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
    """Return the losses of (P, Q) and of (Q, P) from their masses in cells, and `below` and `above` them as (p, q)."""
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
    """Return losses with one distribution under (P, Q) and (Q, P), from the masses of the cells above 0."""
    n = len(p)
    pmf = np.zeros(2 * n + 1)
    pmf[n:] += spread(p, q, 0, step, excess)
    pmf[: n + 1] += _backward(p, q, 0, step, excess)
    pmf[n] += max(0.0, at_zero)
    pmf[0] += above[1]
    return LossPmf(-n, pmf, above[0])


def _backward(p, q, start, step, excess):
    """Return the spread masses of (Q, P) from the masses of (P, Q)."""
    return spread(q[::-1], p[::-1], -(start + len(p)), step, None if excess is None else -excess[::-1])


def pure_loss(epsilon: float) -> Loss:
    """Return the losses of binary randomized response, which dominates all mechanisms with this pure epsilon."""
    # A larger epsilon dominates a smaller one.
    epsilon = max(epsilon, _MIN_EPSILON)

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
    """Return the losses of a pair that dominates all releases of this range, of density in proportion to e^(x / 2)."""
    # H_g is (e^(epsilon / 2) - sqrt(g))^2 / (e^epsilon - 1), the largest of all pairs of two outputs with losses
    # epsilon apart (docs/explanation/accounting/pure-releases.md).
    epsilon = max(epsilon, _MIN_EPSILON)

    def build(step):
        edges = np.minimum(step * np.arange(math.ceil(epsilon / step) + 2), epsilon)
        low, high = edges[:-1], edges[1:]
        part = np.expm1((low - high) / 2) / math.expm1(-epsilon)
        p, q = np.exp((high - epsilon) / 2) * part, np.exp(-(low + epsilon) / 2) * part
        pmf = symmetric(p, q, step, 0.0, (0.0, 0.0), p * -np.expm1(-(low + high) / 2))
        return pmf, pmf

    return Loss(epsilon / CELLS, epsilon, build)


def curve_losses(forward: np.ndarray, backward: np.ndarray, per_loss: float, step: float) -> LossPmf:
    """Return losses of a pair with at least these deltas of (P, Q) and (Q, P) at 0, `per_loss`, 2 `per_loss`, ..."""
    # Between these losses delta is linear in e^epsilon, which is never too small, since delta is convex.
    n = len(forward) - 1
    losses = per_loss * np.arange(-n, n + 1)
    ratios = np.exp(losses)
    # The delta of (P, Q) at -loss follows from the delta of (Q, P) at loss.
    curve = np.concatenate([-np.expm1(losses[:n]) + ratios[:n] * backward[:0:-1], forward])
    curve[n] = max(forward[0], backward[0])
    widths = ratios[:-1] * math.expm1(per_loss)
    # The curve must be convex, so a slope that rounding made flatter than the next one is steepened.
    slopes = np.maximum.accumulate((np.maximum(curve[:-1] - curve[1:], 0.0) / widths)[::-1])[::-1]
    first = curve[-1] + float((slopes * widths).sum())
    q = np.maximum(-np.diff(np.concatenate([[(1 - first) / ratios[0]], slopes, [0.0]])), 0.0)
    p = ratios * q
    cells = np.floor(losses / step).astype(np.int64)
    start, positions = int(cells[0]), cells - cells[0]
    size = int(positions[-1]) + 1
    ends = spread(np.bincount(positions, p, size), np.bincount(positions, q, size), start, step)
    return LossPmf(start, ends, float(curve[-1]))


@dataclass(frozen=True)
class TotalLoss:
    """The losses first + step * i of a composition, with the terms that are added to every delta."""

    first: float
    step: float
    pmf: np.ndarray
    # Mass of infinite loss.
    allowance: float
    # Mass of the losses outside the window.
    outside_mass: float = 0.0
    # Bound of the mass that rounding errors may have removed.  They lower delta by at most the part of this mass that
    # the largest loss counts.
    slack: float = 0.0
    # Masses may be tilted: the masses of the losses times e^(tilt * loss - log_scale).  Near the losses of interest no
    # mass is small.  Therefore rounding errors, `slack` of the whole, are small relative to delta, also for a tiny
    # delta.
    tilt: float = 0.0
    log_scale: float = 0.0

    def delta(self, epsilon: float) -> float:
        """Return the mean of max(0, 1 - e^(epsilon - loss)), plus the allowance."""
        allowed = self.allowed(epsilon)
        if epsilon >= self.first + self.step * len(self.pmf) or allowed >= 1:
            return allowed
        return self._above(max(0, math.floor((epsilon - self.first) / self.step) - 1), epsilon) + allowed

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Return `delta` at ascending epsilons, from the last one down, so that each mass is read once."""
        starts, deltas = np.searchsorted(self._loss(np.arange(len(self.pmf))), epsilons), np.empty(len(epsilons))
        # Mass from `stop` on, and delta at the epsilon before, without the allowance.
        mass, above, stop, before = 0.0, 0.0, len(self.pmf), float(epsilons[-1])
        for i in range(len(epsilons) - 1, -1, -1):
            start, epsilon = int(starts[i]), float(epsilons[i])
            above = self._lowered(mass, above, before - epsilon) + self._above(start, epsilon, stop)
            mass, stop, before = mass + float(self._masses(start, stop).sum()), start, epsilon
            deltas[i] = self.allowed(epsilon) + above
        return deltas

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at which `delta` falls to its argument, by bisection over the losses."""
        # Between two losses delta is linear in e^epsilon, so the bisection ends at two neighbouring losses.  The result
        # is in (loss of low, loss of high], and above 0.
        low, high = -1, len(self.pmf) - 1
        # Losses up to 0 contribute 0 to any delta.
        first = min(max(0, math.floor(-self.first / self.step) - 1), high)
        if not self._exceeds(0.0, delta, self._above(first, 0.0)):
            return 0.0
        if self.allowed(self._loss(high)) >= delta:
            return math.inf
        # Mass from `high` on, and delta at its loss, without the allowance.
        mass, above = float(self._masses(high, high + 1)[0]), 0.0
        while high - low > 1:
            middle = (low + high) // 2
            loss = self._loss(middle)
            if loss <= 0:
                low = middle
                continue
            above_at_loss = self._lowered(mass, above, self._loss(high) - loss)
            total = self._above(middle, loss, high) + above_at_loss
            if self._exceeds(loss, delta, total):
                low = middle
            else:
                mass, above, high = mass + float(self._masses(middle, high).sum()), total, middle
        # The allowance falls with epsilon, so its value at the lower end of the interval is an upper bound.
        smallest = max(0.0, self._loss(low)) if low >= 0 else 0.0
        top, budget = self._loss(high), delta - self.allowed(smallest)
        # If all masses are far above `top`, delta does not change within the interval.
        if not 0 < budget < mass or mass <= above:
            return top
        return max(smallest, top + min(0.0, math.log((mass - budget) / (mass - above))))

    @staticmethod
    def _lowered(mass, above, fall):
        """Return delta at an epsilon lower by `fall` than the one at which it is `above`; neither term cancels."""
        return above * math.exp(-fall) - mass * math.expm1(-fall)

    def _exceeds(self, epsilon, delta, above):
        """Return whether the mean at an epsilon, plus the allowance, exceeds delta."""
        allowed = self.allowed(epsilon)
        # A result that is not a number counts as above delta.
        return not (allowed < delta and above <= delta - allowed)

    def allowed(self, epsilon: float) -> float:
        """Return the terms that are added to delta at an epsilon; their sum falls with epsilon."""
        # For tilted masses this is the exponent of Chernoff's bound on delta.
        exponent = self.log_scale - self.tilt * epsilon
        if self.tilt and exponent >= 0:
            return 1.0
        counted = -math.expm1(min(0.0, epsilon - self._loss(len(self.pmf))))
        return self.allowance + math.exp(exponent) * (self.outside_mass + self.slack * counted)

    def _loss(self, i):
        """Return the loss of a cell."""
        return self.first + self.step * i

    def _masses(self, start, stop=None):
        """Return the masses of cells, without the tilt."""
        if not self.tilt:
            return self.pmf[start:stop]
        pmf = self.pmf[start:stop]
        return pmf * np.exp(np.minimum(self.log_scale - self.tilt * self._loss(start + np.arange(len(pmf))), 700.0))

    def _above(self, start, epsilon, stop=None):
        """Return the mean of max(0, 1 - e^(epsilon - loss)) over cells."""
        masses = self._masses(start, stop)
        # A dot product would start threads of BLAS, so products are summed instead.
        return float((masses * -np.expm1(np.minimum(0.0, epsilon - self._loss(start + np.arange(len(masses)))))).sum())


def choose_step(losses: Sequence[Loss], finest: float = FINEST) -> float:
    """Return the step of a grid that is fine enough for each loss, and that no single loss overfills."""
    return max(
        min([finest, *(loss.step for loss in losses)]),
        max(loss.reach for loss in losses) / (LARGEST_FFT // 4),
    )


@np.errstate(over="ignore", invalid="ignore")
def compose(
    parts: Sequence[tuple[Loss, int]],
    aim: Callable[[float, float], float] | None = None,
    finest: float = FINEST,
    known: tuple[TotalLoss, ...] = (),
) -> tuple[TotalLoss, ...]:
    """Return the total of several losses, each with its number of uses: of (P, Q), and of (Q, P) if that differs."""
    # With `aim`, masses are tilted so that it is smallest: a function of the logarithm of the mean of e^(tilt * loss),
    # and of the tilt.  Tilts that overflow are never chosen.  No step below `finest` is taken unless a loss needs it.
    # `known` has totals of the same parts, which are the result if they have the best tilts.
    step, is_chosen = choose_step([loss for loss, _ in parts], finest), False
    while True:
        count_work(sum(2 * loss.reach / step for loss, _ in parts))
        pairs = [loss.build(step) for loss, _ in parts]
        alike = all(forward is backward for forward, backward in pairs)
        directions = [[(pair[way], times) for pair, (_, times) in zip(pairs, parts, strict=True)] for way in (0, 1)]
        directions = directions[: 1 if alike else 2]
        # A single use needs no transform, and only the sums have rounding errors.
        if sum(times for _, times in parts) == 1:
            return tuple(
                TotalLoss(step * loss.start, step, loss.pmf * _SUMS_ERROR, loss.infinity) for ((loss, _),) in directions
            )
        tilts = [find_tilt(pmfs, step, aim) if aim else 0.0 for pmfs in directions]
        if known and [(step, tilt) for tilt in tilts] == [(total.step, total.tilt) for total in known]:
            return known
        tilted = [tilt_masses(pmfs, step, tilt) for pmfs, tilt in zip(directions, tilts, strict=True)]
        windows = [find_window(pmfs, step) for pmfs, _ in tilted]
        widest = max(high - low for low, high in windows)
        finest = min(_min_stddev(pmfs) for pmfs, _ in tilted)
        coarser = 1.0 if is_chosen else min(widest / _ENOUGH_CELLS, finest / _PER_STDDEV)
        coarser = max(coarser, widest / LARGEST_FFT * 1.01)
        if widest <= LARGEST_FFT and coarser < 1.5:
            break
        # If no grid fits this number of uses, the total has only infinite losses.
        if step > _COARSEST * max(loss.reach for loss, _ in parts):
            return (TotalLoss(0.0, 1.0, np.zeros(1), 1.0),)
        # A coarser grid only costs tightness.  With enough cells it adds at most 1 / 16,000 to a variance.
        step, is_chosen = step * coarser, True
    return tuple(
        replace(convolve(pmfs, step, window), tilt=tilt, log_scale=log_scale)
        for (pmfs, log_scale), tilt, window in zip(tilted, tilts, windows, strict=True)
    )


def tilt_masses(
    pmfs: Sequence[tuple[LossPmf, int]], step: float, tilt: float
) -> tuple[Sequence[tuple[LossPmf, int]], float]:
    """Return masses times e^(tilt * loss), scaled to sum 1, and the logarithm of the scale of all uses, rounded up."""
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
    """Return the tilt at which `aim` is smallest, to within half a power of 2."""
    supports = []
    for loss, times in pmfs:
        present = np.flatnonzero(loss.pmf)
        if not present.size:
            return 0.0
        supports.append((np.log(loss.pmf[present]), step * (loss.start + present), times))
    unit = _unit(supports)

    @functools.cache
    def aim_at(i):
        tilt = float(_AIMS[i]) / unit
        return aim(sum(times * _log_sum(logs + tilt * losses) for logs, losses, times in supports), tilt)

    return float(_AIMS[_lowest(aim_at, len(_AIMS))]) / unit


def _lowest(function, n):
    """Return the argument of the minimum of a function of 0 to n - 1 that falls and then rises."""
    first, last = 0, n - 1
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if function(middle) <= function(middle + 1) else (middle + 1, last)
    return first


def _log_sum(logs):
    """Return the logarithm of the sum of exponentials."""
    top = logs.max()
    return float(top + math.log(np.exp(logs - top).sum()))


def _min_stddev(pmfs):
    """Return the smallest standard deviation of one finite loss, in steps."""
    stddevs = []
    for loss, _ in pmfs:
        numbers, mass = loss.start + np.arange(len(loss.pmf)), max(float(loss.pmf.sum()), 1e-300)
        mean = float((loss.pmf * numbers).sum()) / mass
        stddevs.append(math.sqrt(float((loss.pmf * (numbers - mean) ** 2).sum()) / mass))
    return min(stddevs)


def _unit(supports):
    """Return the unit of losses: 1, or less if all of them are small."""
    return min(1.0, max(float(np.abs(losses).max()) for _, losses, _ in supports) / 4) or 1.0  # all losses may be 0


def _log_finite(pmfs):
    """Return the logarithm of the probability that all losses are finite."""
    return sum(times * math.log1p(-min(loss.infinity, 1 - 1e-16)) for loss, times in pmfs)


def convolve(pmfs: Sequence[tuple[LossPmf, int]], step: float, window: tuple[int, int] | None = None) -> TotalLoss:
    """Return the sum of independent losses on one grid."""
    low, high = window or find_window(pmfs, step)
    start = sum(times * loss.start for loss, times in pmfs)
    pmf, error = convolve_masses([(loss.pmf, times) for loss, times in pmfs], fast_length(high - low + 1), low - start)
    return TotalLoss(step * low, step, pmf, -math.expm1(_log_finite(pmfs)), 2 * TAIL, error)


def find_window(pmfs: Sequence[tuple[LossPmf, int]], step: float) -> tuple[int, int]:
    """Return grid numbers between which all but TAIL a side of the total is, by Chernoff's bound."""
    low, high = 0, 0
    supports = []
    for loss, times in pmfs:
        present = np.flatnonzero(loss.pmf)
        if not present.size:
            return 0, 0  # one loss has all of its mass at infinity, so the total has as well
        supports.append((np.log(loss.pmf[present]), step * (loss.start + present), times))
        low, high = low + times * int(loss.start + present[0]), high + times * int(loss.start + present[-1])
    tilts = _TILTS / _unit(supports)

    @functools.cache
    def bound(side, i):
        """Return a distance that the total exceeds on that side with probability at most TAIL; true for every tilt."""
        exponent, tilt = -math.log(TAIL), float(tilts[i])
        for logs, losses, times in supports:
            log_mean = _log_sum(logs + side * tilt * losses)
            exponent += times * (log_mean + _PER_USE * (1 + abs(log_mean)))
        return exponent / tilt

    def best(side):
        """Return the smallest distance over all tilts."""
        return bound(side, _lowest(functools.partial(bound, side), len(tilts)))

    below, above = -best(-1) / step, best(1) / step
    first = max(math.floor(below) - 1, low) if math.isfinite(below) else low
    return first, max(first, min(math.ceil(above) + 1, high) if math.isfinite(above) else high)
