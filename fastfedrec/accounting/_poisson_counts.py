"""The privacy loss of counts of shuffled messages, among which each user's fake messages are Poisson distributed.

A user has some number c of messages in each of up to n // c^2 cells, for one c from 1 to the root of n.  Each cell also
has a Poisson number of fake messages.  docs/explanation/systems/gram/shuffled-gram.md has the proof.
"""

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from fastfedrec.accounting._loss import CELLS, Loss, LossPmf, both_ways, compose, curve_losses
from fastfedrec.accounting._work import count_work

#: A larger mean counts as this one: more steps of the products below would exceed the error of masses in `spread`.
MAX_MEAN = 2.0**16
# At most e^-45 of a cell's mass is outside of the table on either side; it counts as an infinite loss.
_TAIL = 45.0
# Number of standard deviations of the total loss at which delta is computed, and the number of losses for each.
_STDDEVS, _PER_STDDEV = 10, 8
_MAX_LOSSES = 256
# Above this largest loss nothing is hidden.
_UNHIDDEN = 300.0
#: Largest number of messages: the pairs of users to compare grow with it.
MAX_MESSAGES = 1024


def counts_loss(mean: float, n_messages: int, neighboring: str) -> Loss:
    """Return the privacy loss of all counts, for a mean number of honest users' fake messages in each cell."""
    mean = min(mean, MAX_MEAN)
    if not _reach(mean, n_messages, neighboring)[1] < _UNHIDDEN:
        nothing = LossPmf(0, np.zeros(1), 1.0)
        return Loss(1.0, 1.0, lambda _: (nothing, nothing))
    per_loss, forward, backward = _curves(mean, n_messages, neighboring)

    def build(step):
        pmf = curve_losses(forward, backward, per_loss, step)
        return pmf, pmf if forward is backward else curve_losses(backward, forward, per_loss, step)

    return Loss(per_loss / 8, per_loss * (len(forward) - 1), build)


def _reach(mean: float, n_messages: int, neighboring: str) -> tuple[float, float]:
    """Return the variance of the total loss for many fake messages, and the largest loss that matters."""
    variance = (2 if neighboring == "replace" else 1) * n_messages / mean if mean else math.inf
    return variance, variance + _STDDEVS * math.sqrt(variance)


@lru_cache(maxsize=16)
def _curves(mean, n_messages, neighboring):
    """Return the step s of losses, and delta at 0, s, 2 s, ... for (P, Q) and (Q, P), the largest over all users."""
    # A user with c messages in a cell shifts its count by c.  Of equal numbers of cells the largest shift costs most.
    shifts = {n_messages // c**2: c for c in range(1, math.isqrt(n_messages) + 1)}
    users = [(c, n_cells) for n_cells, c in shifts.items()]
    # A replaced user removes its old messages and adds the new ones; the opposite pair has the losses backward.
    pairs: Iterable[tuple[Any, Any]] = [(one, None) for one in users]
    if neighboring == "replace":
        pairs = itertools.combinations_with_replacement(users, 2)
    variance, reach = _reach(mean, n_messages, neighboring)
    per_loss = max(math.sqrt(variance) / _PER_STDDEV, reach / _MAX_LOSSES)
    losses = per_loss * np.arange(math.ceil(reach / per_loss) + 1)
    curves = np.zeros((2, len(losses)))
    for added, removed in pairs:
        parts = [(_shifted(mean, added[0]), added[1])]
        if removed is not None:
            parts.append((_swapped(_shifted(mean, removed[0])), removed[1]))
        found = [total.deltas(losses) for total in compose(parts)]
        curves = np.maximum(curves, [found[0], found[-1]])
    if neighboring == "replace":
        curves[:] = curves.max(axis=0)
        return per_loss, curves[0], curves[0]
    return per_loss, curves[0], curves[1]


def _shifted(mean: float, shift: int) -> Loss:
    """Return the loss of a Poisson number plus `shift` against the number alone."""
    low, high = _window(mean)
    count_work(high - low)
    masses = poisson_masses(mean, low, high + shift)
    # No shifted number is below `shift`, so the outcomes from `first` on have both masses.
    first = max(low, shift)
    outcomes, q = np.arange(first, high + shift + 1), masses[first - low :]
    # The ratio of the masses is the product of (j - i) / mean over i < shift.
    losses = np.log((outcomes[:, None] - np.arange(shift)) / mean).sum(axis=1)
    p, tail = q * np.exp(losses), math.exp(-_TAIL)
    below = tail, float(masses[: first - low].sum()) + tail
    reach = float(np.abs(losses).max())

    def build(step):
        start = math.floor(float(losses[0]) / step)  # losses rise with the outcome
        cells = np.floor(losses / step).astype(np.int64) - start
        n_cells = int(cells[-1]) + 1
        p_masses, q_masses = (np.bincount(cells, values, n_cells) for values in (p, q))
        return both_ways(p_masses, q_masses, start, step, below, (tail, tail))

    return Loss(reach / CELLS, reach, build)


def _swapped(loss: Loss) -> Loss:
    """Return the loss of the pair (Q, P) of a pair (P, Q)."""
    return loss._replace(build=lambda step: loss.build(step)[::-1])


def poisson_masses(mean: float, low: int, high: int) -> np.ndarray:
    """Return the masses of a Poisson number from `low` to `high`, relative to their sum."""
    # Products of ratios from the mode outwards round twice at each step.
    mode = min(max(low, math.floor(mean)), high)
    up = np.cumprod(mean / np.arange(mode + 1, high + 1))
    down = np.cumprod(np.arange(mode, low, -1) / mean)
    masses = np.concatenate([down[::-1], [1.0], up])
    return masses / masses.sum()


def _window(mean: float) -> tuple[int, int]:
    """Return whole numbers below and above which a Poisson number is with a probability of at most e^-45 each."""

    # Chernoff's bound is the Legendre transform of the cumulants, mean (e^t - 1).
    def exponent(number: float) -> float:
        return (number * math.log(number / mean) if number else 0.0) - number + mean

    width = math.ceil(math.sqrt(2 * _TAIL * mean))
    low = max(0, math.floor(mean) - width)  # below the mean the bound is at most the one of a normal number
    while exponent(mean + width) < _TAIL:
        width = math.ceil(width * 1.05) + 1
    return low, math.ceil(mean) + width
