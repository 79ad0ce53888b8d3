"""Clipping on exact fractions, and the textbook formula."""

import math
from fractions import Fraction

import numpy as np


def exceeds(row, clip_norm, order):
    """Return whether a row's exact norm exceeds `clip_norm`; comparing squares avoids a root."""
    entries, bound = [Fraction(float(x)) for x in row], Fraction(clip_norm)
    if order == 1:
        return sum((abs(x) for x in entries), Fraction(0)) > bound
    # Squares of fractions are exact, while a root would not be.
    return sum((x * x for x in entries), Fraction(0)) > bound**2


def clip(row, clip_norm, order):
    """Return the clipped row, correct to many digits; zeros if an entry is not finite."""
    if not all(math.isfinite(x) for x in row):
        return [Fraction(0)] * len(row)
    if not exceeds(row, clip_norm, order):
        return [Fraction(float(x)) for x in row]
    entries = [Fraction(float(x)) for x in row]
    if order == 1:
        norm = sum(abs(x) for x in entries)
    else:
        square = sum(x * x for x in entries)
        # Both parts of the root are integers with some 100 bits.
        shift = max(0, 200 - (square.numerator.bit_length() - square.denominator.bit_length())) // 2 * 2
        norm = Fraction(math.isqrt((square.numerator << shift) // square.denominator), 2 ** (shift // 2))
    return [x * Fraction(clip_norm) / norm for x in entries]


def textbook(rows, clip_norm, order):
    """Return x * min(1, c / |x|) in the rows' type."""
    rows = np.asarray(rows)
    norms = np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        return (rows * np.minimum(rows.dtype.type(1), rows.dtype.type(clip_norm) / norms)).astype(rows.dtype)
