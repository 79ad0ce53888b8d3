"""Privacy losses of Gaussian and Laplace noise on sums, with and without sampling."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fastfedrec.accounting._loss import CELLS, Loss, both_ways, symmetric
from fastfedrec.accounting._masses import (
    Masses,
    gaussian_masses,
    laplace_masses,
    opposite_gaussian_masses,
    opposite_laplace_masses,
    unsampled,
)
from fastfedrec.accounting.rounding import inverse_up, min_log_ratio, sampled_epsilon
from fastfedrec.core.numbers import float_up

# A larger noise multiplier is counted as the first; with a smaller one than the second there is no grid.
MAX_NOISE, MIN_NOISE = 1e8, 1e-100


# A P-mass and a Q-mass.
_Pair = tuple[float, float]


class Noise(NamedTuple):
    """A distribution of noise on sums."""

    # Masses of the pair (P0, Q) of the noise around 1 and around 0.
    masses: Callable[[np.ndarray, float], Masses]
    # Masses of the two mixtures of two opposite contributions at a sampling rate.
    opposite_masses: Callable[[np.ndarray, float, float], Masses]
    # Largest loss that matters of the pair (P0, Q), for a noise multiplier and a number of standard deviations.
    reach: Callable[[float, float], float]


def _gaussian_reach(noise_multiplier: float, stddevs: float) -> float:
    # Loss of N(1, z^2) against N(0, z^2) at `stddevs` standard deviations above 1.
    is_finite = noise_multiplier >= MIN_NOISE
    return (1 + 2 * stddevs * noise_multiplier) / (2 * noise_multiplier**2) if is_finite else math.inf


GAUSSIAN = Noise(gaussian_masses, opposite_gaussian_masses, _gaussian_reach)
LAPLACE = Noise(laplace_masses, opposite_laplace_masses, lambda noise_multiplier, _: inverse_up(noise_multiplier))


def sampled_reach(noise: Noise, noise_multiplier: float, rate: float, stddevs: float) -> float:
    """Return the largest loss that matters after sampling, log(1 + rate (e^loss - 1))."""
    reach = noise.reach(noise_multiplier, stddevs)
    return reach if rate == 1 else sampled_epsilon(reach, rate)


def sampled_masses(
    noise: Noise, noise_multiplier: float, rate: float, reach: float, step: float
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray | None, _Pair, _Pair]:
    """Return P- and Q-masses in the cells and outside, P = (1 - rate) Q + rate P0, for the pair (P0, Q)."""
    low = -reach if rate == 1 else max(math.log1p(-rate), -reach)
    start, stop = math.floor(low / step) - 1, math.ceil(reach / step) + 1
    edges = step * np.arange(start, stop + 1)
    p, q, excess = noise.masses(unsampled(edges, rate), noise_multiplier)
    p = (1 - rate) * q + rate * p
    excess = None if excess is None else rate * excess[1:-1]
    return start, p[1:-1], q[1:-1], excess, (p[0], q[0]), (p[-1], q[-1])


def poisson_loss(noise: Noise, noise_multiplier: float, rate: float, stddevs: float) -> Loss:
    """Return the losses of the mixture against Q (a user is removed), and of Q against the mixture (added)."""
    noise_multiplier = min(noise_multiplier, MAX_NOISE)
    reach = sampled_reach(noise, noise_multiplier, rate, stddevs)

    def build(step):
        start, p, q, excess, below, above = sampled_masses(noise, noise_multiplier, rate, reach, step)
        return both_ways(p, q, start, step, below, above, excess)

    return Loss(reach / CELLS, reach, build)


def symmetric_loss(noise: Noise, noise_multiplier: float, rate: float, stddevs: float) -> Loss:
    """Return the losses above 0 of the mixture against Q, and the losses below 0 of Q against the mixture."""
    noise_multiplier = min(noise_multiplier, MAX_NOISE)
    reach = sampled_reach(noise, noise_multiplier, rate, stddevs)

    def masses(losses):
        p, q, excess = noise.masses(unsampled(losses, rate), noise_multiplier)
        return (1 - rate) * q + rate * p, q, None if excess is None else rate * excess

    return _loss_above_0(masses, reach)


def opposite_loss(noise: Noise, noise_multiplier: float, rate: float, stddevs: float) -> Loss:
    """Return the losses of two mixtures, of the noise without a unit and with one of two opposite contributions."""
    noise_multiplier = min(noise_multiplier, MAX_NOISE)
    fall = noise.reach(noise_multiplier, stddevs)
    # For Gaussian noise, this number of stddevs above the mean of the first density, the second density falls by more.
    fall += 1 / noise_multiplier**2 if noise is GAUSSIAN and fall < math.inf else 0.0
    reach = sampled_reach(noise, noise_multiplier, rate, stddevs) - min_log_ratio(fall, rate)
    return _loss_above_0(lambda losses: noise.opposite_masses(losses, noise_multiplier, rate), reach)


def _loss_above_0(masses, reach):
    """Return a pair with one distribution of losses in both directions, from the masses of the losses above 0."""

    def build(step):
        p, q, excess = masses(step * np.arange(math.ceil(reach / step) + 2))
        excess = None if excess is None else excess[1:-1]
        pmf = symmetric(p[1:-1], q[1:-1], step, 1 - p[1:].sum() - q[1:].sum(), (p[-1], q[-1]), excess)
        return pmf, pmf

    return Loss(reach / CELLS, reach, build)


def plain_loss(mu_squared: Fraction, stddevs: float) -> Loss:
    """Return the loss of all unsampled Gaussian noise: one release, with at most its noise."""
    noise_multiplier = 1 / max(math.sqrt(float_up(mu_squared)) * (1 + 2.0**-50), 1 / MAX_NOISE)
    return symmetric_loss(GAUSSIAN, noise_multiplier, 1.0, stddevs)
