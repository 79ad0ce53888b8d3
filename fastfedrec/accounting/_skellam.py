"""The privacy loss of one whole number with Skellam noise."""

import math
from fractions import Fraction

import numpy as np

from fastfedrec.accounting._loss import CELLS, Loss, symmetric
from fastfedrec.accounting._work import count_work
from fastfedrec.core.bessel import bessel_weights

# Maximum variance for which a table holds all points that matter, and maximum squared change over the variance.
LARGEST_VARIANCE, LARGEST_SQUARE = 2.0**20, 2.0**8
# Number of entries of other tables that take the time of one weight, a number of hundreds of digits.
_POINTS_PER_WEIGHT = 16
# Binary digits of the smallest weight.
_PRECISION = 128


def skellam_loss(variance: float, sensitivity: int, stddevs: float) -> Loss:
    """Return the loss of noise around `sensitivity` against noise around 0."""
    # A smaller change is dominated: the noise is log-concave (Turan's inequality for Bessel functions), so the best
    # tests are thresholds, and the power of each grows with the change.  The pair is its own mirror image.
    width = _width(variance, stddevs)
    far = width + sensitivity
    count_work(_POINTS_PER_WEIGHT * far)
    # The weight at `far` is at least exp(-sum of asinh((x + 1) / variance)) (Amos 1974), so it keeps its digits.
    bits = math.ceil(float(np.arcsinh(np.arange(1.0, far + 2) / variance).sum()) / math.log(2)) + _PRECISION
    weights = bessel_weights(Fraction(variance), bits, _PRECISION // 2)[: far + 1]
    total = 2 * sum(weights[: width + 1]) - weights[0]
    # The point x has the loss log p(x - sensitivity) - log p(x), which is positive above sensitivity / 2.
    points = range(sensitivity // 2 + 1, far + 1)
    pairs = [(weights[abs(x - sensitivity)], weights[x]) for x in points]
    # Quotients of whole numbers are rounded once, so small losses keep their digits.
    p, excess, growth = (
        np.array([a / b for a, b in quotients])
        for quotients in (
            [(first, total) for first, _ in pairs],
            [(first - second, total) for first, second in pairs],
            [(first - second, first) for first, second in pairs],
        )
    )
    is_far = growth > 0.5  # a quotient near 1 would lose digits
    q, losses = p - excess, -np.log1p(np.where(is_far, 0.0, -growth))
    q[is_far] = [second / total for (_, second), far_point in zip(pairs, is_far, strict=True) if far_point]
    losses[is_far] = np.log(p[is_far] / q[is_far])
    reach = float(losses[-1])
    # Outside of the table the masses fall at least as fast as a geometric series.
    last, after_last = weights[width], weights[width + 1]
    outside_mass = 2 * (after_last / total) / (1 - after_last / last)
    at_zero = weights[sensitivity // 2] / total if sensitivity % 2 == 0 else 0.0

    def build(step):
        n_cells = math.ceil(reach / step) + 1
        cells = np.minimum((losses / step).astype(np.int64), n_cells - 1)
        sums = [np.bincount(cells, values, n_cells) for values in (p, q, excess)]
        pmf = symmetric(sums[0], sums[1], step, at_zero, (outside_mass, outside_mass), sums[2])
        return pmf, pmf

    return Loss(reach / CELLS, reach, build)


def _width(variance: float, stddevs: float) -> int:
    """Return a number beyond which the noise has a mass below exp(-stddevs^2 / 2) on each side."""

    # Chernoff's bound is the Legendre transform of the cumulants, variance * (cosh(t) - 1).
    def exponent(width: float) -> float:
        t = math.asinh(width / variance)
        return width * t - variance * (math.cosh(t) - 1)

    width = math.ceil(stddevs * math.sqrt(variance)) + 1
    while exponent(width) < stddevs * stddevs / 2:
        width = math.ceil(width * 1.1) + 1
    return width
