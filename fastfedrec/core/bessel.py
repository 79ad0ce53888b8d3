"""Weights of the Skellam distribution, modified Bessel functions I_x(variance) / I_0(variance), in whole numbers."""

import math
from fractions import Fraction

import numpy as np

__all__ = ["MAX_WEIGHTS", "bessel_weights"]

#: Maximum number of weights.
MAX_WEIGHTS = 2**19 + 2
# Further fraction bits of a ratio.
_RATIO_BITS = 64
# Number of terms in a block of the search for the first ratio, and steps after it.
_BLOCK, _MARGIN = 2**12, 8


def bessel_weights(variance: Fraction, bits: int, smallest: int) -> list[int]:
    """Return the weights of 0, 1, ... with `bits` fraction bits, up to the first one below 2^smallest.

    Weight x has an error of at most 2 x + 2, if x is below 2^20.

    Parameters
    ----------
    variance : Fraction
        Variance of the distribution, greater than 0.
    bits : int
        Number of fraction bits of a weight.
    smallest : int
        Binary logarithm of the smallest weight but the last one, at least 0 and below `bits`.

    Returns
    -------
    list of int
        2^bits, and all other weights; at most `MAX_WEIGHTS` and one.
    """
    # The ratios r(x) = I(x + 1) / I(x) satisfy r(x - 1) = 1 / (2 x / variance + r(x)).  This backward recurrence
    # multiplies an error by r(x)^2 < 1, so each step adds at most one unit.  It starts from 0 where the product of all
    # later ratios is below 2^-(ratio bits), and this error vanishes as well.
    numerator, denominator, shift = variance.numerator, variance.denominator, bits + _RATIO_BITS
    one = numerator << 2 * shift
    step = 2 * denominator << shift
    start, last = _start(float(variance), bits, smallest, shift)
    ratio, ratios = 0, []
    for x in range(start, 0, -1):
        ratio = one // (x * step + numerator * ratio)
        if x <= last:
            ratios.append(ratio)
    # A product of weight and ratio has the errors of both and of its rounding, below 2 in total.
    weights, limit = [1 << bits], 1 << smallest
    while weights[-1] >= limit and ratios and len(weights) <= MAX_WEIGHTS:
        weights.append(weights[-1] * ratios.pop() >> shift)
    return weights


def _start(variance: float, bits: int, smallest: int, shift: int) -> tuple[int, int]:
    """Return the first index of the recurrence, and an index beyond the last weight."""
    # -log r(x) is at least asinh((x + 1/2) / variance) (Amos 1974), so sums of this bound weights from above.
    last = _first_above((bits - smallest) * math.log(2), variance, 0) + 1
    # The first error is multiplied by squares of ratios, so half of the bits is enough.
    return _first_above(shift * math.log(2) / 2, variance, last) + _MARGIN, last


def _first_above(limit: float, variance: float, x: int) -> int:
    """Return the first index at which the sum of the bounds from `x` on is above a limit, or `MAX_WEIGHTS` from it."""
    total, end = 0.0, x + MAX_WEIGHTS
    while x < end:
        sums = total + np.cumsum(np.arcsinh((np.arange(x, x + _BLOCK) + 0.5) / variance))
        if sums[-1] > limit:
            return x + int(np.searchsorted(sums, limit)) + 1
        total, x = float(sums[-1]), x + _BLOCK
    return end
