"""Sums of independent losses by fast Fourier transform, and a proved bound on what its rounding errors change.

The proof is in docs/explanation/accounting/rounding.md.  It needs transforms by Cooley and Tukey, of lengths without
a prime factor above 5, which are what SciPy's are, in arithmetic that rounds to the nearest.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

UNIT = 2.0**-53
PER_BIT = 20.0  # units of error for each bit of a transform's length, in the largest and in the Euclidean norm
PER_FACTOR = 3.0  # units for each product of complex numbers: at most the root of 5, and what is of second order
_GONE = -120.0  # the logarithm of a factor that is left out, and counted


def convolve_masses(
    parts: Sequence[tuple[np.ndarray, int]], length: int, shift: int
) -> tuple[NDArray[np.float64], float]:
    """The masses of a sum of independent numbers, modulo a length, and how far they may be off in total.

    Parameters
    ----------
    parts : sequence of (ndarray of shape (n,), float64; int)
        Masses of 0 to n - 1, and how many such numbers there are.
    length : int
        As `fast_length` gives it.
    shift : int
        The number whose mass comes first.

    Returns
    -------
    masses : ndarray of shape (length,), float64
        None is negative.
    error : float
        At least the sum of the absolute differences from those of exact arithmetic.
    """
    unit_error = UNIT * PER_BIT * math.log2(length)
    factors, log_bound, relative = [], np.zeros(length // 2 + 1), np.zeros(length // 2 + 1)
    for masses, times in parts:
        rows = -(-len(masses) // length)
        folded = np.zeros(rows * length)
        folded[: len(masses)] = masses
        folded = folded.reshape(rows, length).sum(axis=0)
        factor = scipy.fft.rfft(folded)
        own = (unit_error + UNIT * (rows + PER_BIT)) * max(float(folded.sum()), np.finfo(float).tiny)
        bound = np.abs(factor)
        bound *= 1 + 4 * UNIT
        bound += own
        relative += times * own / bound
        log_bound += times * np.log(bound)
        factors.append(factor)
    kept = np.flatnonzero(log_bound > _GONE)
    uses = sum(times for _, times in parts)
    relative += math.expm1(PER_FACTOR * UNIT * (uses + len(parts)))
    relative[log_bound <= _GONE] = 1.0  # they become 0
    # Logarithms are off by a few units for each use.
    errors = relative * np.exp(np.minimum(log_bound, 700.0)) * (1 + 16 * UNIT * uses)
    product = np.zeros(length // 2 + 1, dtype=complex)
    product[kept] = _power_product([(factor[kept], times) for factor, (_, times) in zip(factors, parts, strict=True)])
    # Of the whole spectrum, whose halves are conjugate; the sum of `length` numbers is at most the root of `length`
    # times their norm, which is that of the spectrum over the same root.
    error = _norm(errors) * (1 + unit_error) + unit_error * _norm(np.abs(product[kept]))
    masses = np.roll(scipy.fft.irfft(product, length), -(shift % length))
    np.maximum(masses, 0.0, out=masses)
    return masses, float(error) * (1 + 2.0**-20)


def fast_length(least: int) -> int:
    """The next length from `least` on that has no prime factor above 5."""
    return int(scipy.fft.next_fast_len(max(least, 2), real=True))


def _power_product(factors):
    """The product of powers, by repeated squaring: one product of complex numbers for each use at most."""
    product = None
    for base, times in factors:
        while times:
            if times & 1:
                product = base if product is None else product * base
            times >>= 1
            if times:
                base = base * base
    return product


def _norm(half):
    return math.sqrt(2 * float((half * half).sum()))
