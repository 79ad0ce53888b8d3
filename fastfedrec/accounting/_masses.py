"""Masses of two output distributions in cells of the privacy loss: Gaussian and Laplace noise, sampled or not.

Each function takes rising losses and returns the masses p and q of the two distributions below, between and above these
losses.  It also returns p - q, if p - q is known to more digits than the difference of the masses.
"""

import math

import numpy as np
import scipy

from fastfedrec.accounting.rounding import min_log_ratio, sampled_epsilon

# The masses p, q and p - q, with one entry more than there are losses.
Masses = tuple[np.ndarray, np.ndarray, np.ndarray | None]

# Width of a cell in standard deviations, times the distance of its edge if above 1, below which quadrature is used.
_NARROW = 0.2
# Noise multiplier below which, and width of cells above which, differences of tails and p - q have enough digits.
_LITTLE_NOISE, _COARSE = 3.0, 5e-4
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
# Exponent x at which e^-x is below the digits of 1.
_FAR_LOSS = 30.0


def unsampled(losses: np.ndarray, rate: float) -> np.ndarray:
    """Return the losses of the pair (P0, Q) for `losses` of the sampled pair; minus infinity below log(1 - rate)."""
    if rate == 1:
        return losses
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # The inverse of log(1 + rate (e^x - 1)), in one form for small losses and in one without overflow for large
        # ones.
        small = np.log1p(np.maximum(np.expm1(losses) / rate, -1.0))
        return np.where(losses > 30, losses - math.log(rate) + np.log1p((rate - 1) * np.exp(-losses)), small)


def gaussian_masses(losses: np.ndarray, noise_multiplier: float) -> Masses:
    """Return the masses of N(1, z^2) and N(0, z^2)."""
    z = noise_multiplier
    (p, q), excess = _normal_masses(z * losses + 1 / (2 * z), (1 / z, 0.0))
    return p, q, excess


def opposite_gaussian_masses(losses: np.ndarray, noise_multiplier: float, rate: float) -> Masses:
    """Return the masses of two mixtures of N(0, z^2), with N(1, z^2) and with N(-1, z^2), at losses from 0 on."""
    # With c = (1 - rate) / rate e^(1 / 2 z^2) the loss at x is the one with x / z^2 = loss / 2 + asinh(c sinh(loss /
    # 2)), the root of a quadratic equation in e^(x / z^2).
    z = noise_multiplier
    with np.errstate(divide="ignore"):
        log_c = np.log1p(-rate) - math.log(rate) + 1 / (2 * z * z)
        log_sinh = losses / 2 + np.log(-np.expm1(-losses)) - math.log(2)
    edges = z * (losses / 2 + _asinh_exp(log_c + log_sinh))
    (used, other, unused), excess = _normal_masses(edges, (1 / z, -1 / z, 0.0))
    mix = (1 - rate) * unused
    return mix + rate * used, mix + rate * other, None if excess is None else rate * excess


def _asinh_exp(x):
    """Return asinh(e^x), without overflow."""
    return np.where(x > _FAR_LOSS, x + math.log(2), np.arcsinh(np.exp(np.minimum(x, _FAR_LOSS))))


def _normal_masses(edges, centres):
    """Return the masses of normal distributions of variance 1 around each centre, and the first less the second."""
    # Masses of narrow cells are found by quadrature, which gives the difference to the same number of digits: its
    # integrand is the second density times e^loss - 1.  Errors of the edges (in stddevs) are the same for all masses,
    # so they have no effect.
    masses = [_normal(edges - centre) for centre in centres]
    gap, middle = centres[0] - centres[1], (centres[0] + centres[1]) / 2
    far = np.maximum(np.abs(np.concatenate([[0.0], edges])), 1.0)
    with np.errstate(invalid="ignore"):
        width = np.diff(edges, prepend=-np.inf, append=np.inf)
        is_coarse = not (width * far <= _COARSE).any()
    if gap > 1 / _LITTLE_NOISE and is_coarse:
        return masses, None
    excess = masses[0] - masses[1]
    narrow = np.flatnonzero((width * far < _NARROW) & (far < 1e3))
    half, at = width[narrow] / 2, edges[narrow - 1]
    sums = np.zeros((len(centres) + 1, len(narrow)))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        y = at + half * (1 + node)
        loss, densities = gap * y - gap * middle, [np.exp(-((y - centre) ** 2) / 2) for centre in centres]
        is_small = np.abs(loss) < 1
        difference = np.where(is_small, densities[1] * np.expm1(loss * is_small), densities[0] - densities[1])
        for total, density in zip(sums, (*densities, difference), strict=True):
            total += weight * density
    *narrow_masses, excess[narrow] = sums * half / math.sqrt(2 * math.pi)
    for mass, inner in zip(masses, narrow_masses, strict=True):
        mass[narrow] = inner
    return masses, excess


def _normal(edges):
    """Return the masses of the standard normal distribution below, between and above edges."""
    below, above = scipy.special.ndtr(edges), scipy.special.ndtr(-edges)
    # Differences of the smaller tails on each side do not cancel.
    inner = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.concatenate([below[:1], np.maximum(inner, 0.0), above[-1:]])


def laplace_masses(losses: np.ndarray, noise_multiplier: float) -> Masses:
    """Return the masses of Laplace noise around 1 and around 0; half of the first has the largest loss."""
    epsilon = 1 / noise_multiplier
    clipped = np.clip(losses, -epsilon, epsilon)
    top = losses >= epsilon * (1 - 1e-15)
    bottom = losses < -epsilon
    p = np.where(top, 1.0, np.where(bottom, 0.0, np.exp((clipped - epsilon) / 2) / 2))
    q = np.where(top, 1.0, np.where(bottom, 0.0, 1 - np.exp(-(clipped + epsilon) / 2) / 2))
    p, q = (np.concatenate([c[:1], np.maximum(np.diff(c), 0.0), [1 - c[-1]]]) for c in (p, q))
    return p, q, None


def opposite_laplace_masses(losses: np.ndarray, noise_multiplier: float, rate: float) -> Masses:
    """Return the masses of two mixtures of Laplace noise, around 0 and 1 and around 0 and -1, at losses from 0 on."""
    # With y = x / noise_multiplier the loss rises from y = 0 to y = epsilon, and has its maximum above.
    epsilon = 1 / noise_multiplier
    # The second density over the density around 0, at x > 0.
    log_other = min_log_ratio(epsilon, rate)
    largest = sampled_epsilon(epsilon, rate) - log_other
    is_top = losses >= largest * (1 - 1e-15)
    t = unsampled(losses + log_other, rate)  # 2 y - epsilon
    y = np.where(is_top, epsilon, np.where(losses > 0, np.clip((t + epsilon) / 2, 0.0, epsilon), 0.0))
    first, part = y[:-1], -np.expm1(-np.diff(y)) / 2
    # `top_cell` is the cell of the largest loss, which has the whole tail.
    below, top_cell = np.exp(-first) * part, len(losses) - int(is_top.sum())

    def cells(inner, tail):
        masses = np.concatenate([[0.0], inner, [0.0]])
        masses[top_cell] += tail / 2
        return masses

    unused = (1 - rate) * cells(below, math.exp(-epsilon))
    p = unused + rate * cells(np.exp(y[1:] - epsilon) * part, 1.0)
    q = unused + rate * cells(math.exp(-epsilon) * below, math.exp(-2 * epsilon))
    excess = rate * cells(math.exp(-epsilon) * below * np.expm1(first + y[1:]), -math.expm1(-2 * epsilon))
    return p, q, excess
