"""Sums of independent losses by fast Fourier transform, with a proved bound of the effect of rounding errors.

The proof is in docs/explanation/accounting/rounding.md.  It requires transforms by Cooley and Tukey, of lengths without
a prime factor above 5, in arithmetic that rounds to the nearest.  SciPy's transforms are of this kind.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.accounting._work import count_work

UNIT = 2.0**-53
# Units of error for each bit of a transform's length, in the maximum norm and in the Euclidean norm.
PER_BIT = 20.0
# Units of error for each product of complex numbers: at most the root of 5, and terms of second order.
PER_FACTOR = 3.0
# At or below this logarithm of its bound, a frequency is set to 0, and its bound is counted as error.
_NEGLIGIBLE_LOG = -120.0


def convolve_masses(
    parts: Sequence[tuple[np.ndarray, int]], length: int, shift: int
) -> tuple[NDArray[np.float64], float]:
    """Return the masses of a sum of independent numbers modulo `length`, and a bound of their total absolute error."""
    # `parts` has the masses of the numbers 0 to n - 1, and the number of such terms.  `length` is from `fast_length`,
    # and the mass of the number `shift` comes first in the result.
    count_work(length * (len(parts) + 1))
    unit_error = UNIT * PER_BIT * math.log2(length)
    log_bound, relative = np.zeros(length // 2 + 1), np.zeros(length // 2 + 1)
    # The frequencies that are not negligible after the parts so far, and the product of these parts there.
    remaining, product = np.arange(length // 2 + 1), np.ones(length // 2 + 1, dtype=complex)
    for masses, times in parts:
        rows = -(-len(masses) // length)
        folded = np.zeros(rows * length)
        folded[: len(masses)] = masses
        # The result is modulo the length, so masses at a distance of the length are added.
        folded = folded.reshape(rows, length).sum(axis=0)
        factor = scipy.fft.rfft(folded)
        factor_error = (unit_error + UNIT * (rows + PER_BIT)) * max(float(folded.sum()), np.finfo(float).tiny)
        bound = np.abs(factor)
        bound *= 1 + 4 * UNIT
        bound += factor_error
        relative += times * factor_error / bound
        log_bound += times * np.log(bound)
        is_remaining = log_bound[remaining] > _NEGLIGIBLE_LOG
        remaining = remaining[is_remaining]
        product = product[is_remaining]
        product *= _power(factor[remaining], times)
    uses = sum(times for _, times in parts)
    relative += math.expm1(PER_FACTOR * UNIT * (uses + len(parts)))
    # All other frequencies become 0, so their whole bound is error.
    is_zero = np.ones(length // 2 + 1, dtype=bool)
    is_zero[remaining] = False
    relative[is_zero] = 1.0
    # Logarithms are off by a few units for each use.
    errors = relative * np.exp(np.minimum(log_bound, 700.0)) * (1 + 16 * UNIT * uses)
    spectrum = np.zeros(length // 2 + 1, dtype=complex)
    spectrum[remaining] = product
    # The halves of the spectrum are conjugate, and the norm covers both.  The sum of `length` numbers is at most the
    # root of `length` times their norm.  Their norm is the norm of the spectrum over the same root.
    error = _norm(errors) * (1 + unit_error) + unit_error * _norm(np.abs(product))
    masses = np.roll(scipy.fft.irfft(spectrum, length), -(shift % length))
    # Exact masses are not negative, so this step adds no error.
    np.maximum(masses, 0.0, out=masses)
    return masses, float(error) * (1 + 2.0**-20)


def fast_length(min_length: int) -> int:
    """Return the smallest length from `min_length` on that has no prime factor above 5."""
    return int(scipy.fft.next_fast_len(max(min_length, 2), real=True))


def _power(base, times):
    """Return a power by repeated squaring, with at most one product of complex numbers for each use."""
    product = None
    while times:
        if times & 1:
            product = base if product is None else product * base
        times >>= 1
        if times:
            base = base * base
    return product


def _norm(half):
    """Return the Euclidean norm of a spectrum from its half."""
    return math.sqrt(2 * float((half * half).sum()))
