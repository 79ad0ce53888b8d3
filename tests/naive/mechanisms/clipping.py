"""Clipping on exact fractions, and as textbooks print it."""

import math
from fractions import Fraction

import numpy as np


def exceeds(row, clip_norm, order):
    """Whether the exact norm of a row is above `clip_norm`: squares are compared, so that no root is needed."""
    entries, bound = [Fraction(float(x)) for x in row], Fraction(clip_norm)
    if order == 1:
        return sum((abs(x) for x in entries), Fraction(0)) > bound
    return sum((x * x for x in entries), Fraction(0)) > bound**2


def clip(row, clip_norm, order):
    """The clipped row, correct to many digits; zeros where an entry is not finite."""
    if not all(math.isfinite(x) for x in row):
        return [Fraction(0)] * len(row)
    if not exceeds(row, clip_norm, order):
        return [Fraction(float(x)) for x in row]
    entries = [Fraction(float(x)) for x in row]
    if order == 1:
        norm = sum(abs(x) for x in entries)
    else:
        square = sum(x * x for x in entries)
        # Both parts of the root as integers with some 100 bits.
        shift = max(0, 200 - (square.numerator.bit_length() - square.denominator.bit_length())) // 2 * 2
        norm = Fraction(math.isqrt((square.numerator << shift) // square.denominator), 2 ** (shift // 2))
    return [x * Fraction(clip_norm) / norm for x in entries]


def textbook(rows, clip_norm, order):
    """x * min(1, c / |x|) in the rows' own type."""
    rows = np.asarray(rows)
    norms = np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        return (rows * np.minimum(rows.dtype.type(1), rows.dtype.type(clip_norm) / norms)).astype(rows.dtype)
