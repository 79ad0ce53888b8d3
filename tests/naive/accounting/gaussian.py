"""Exact formulas of Gaussian noise, with enough digits for their differences."""

from fractions import Fraction

import mpmath


def exact_delta(mu_squared, epsilon):
    """Return delta by Balle and Wang (2018), Theorem 8."""
    mu_squared = Fraction(mu_squared)
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(mu_squared.numerator) / mu_squared.denominator)
        lost = int(abs(mpmath.log10(mu)))
        lost += int(abs(mpmath.log10(epsilon))) if epsilon else 0
    with mpmath.workdps(90 + 2 * lost):
        mu = mpmath.sqrt(mpmath.mpf(mu_squared.numerator) / mu_squared.denominator)
        epsilon = mpmath.mpf(epsilon)
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        if a > 1e4:
            # The value is far below any delta.
            return mpmath.mpf(0)
        if a < -1e4:
            return mpmath.mpf(1)
        return mpmath.ncdf(-a) - mpmath.exp(epsilon) * mpmath.ncdf(-b)


def sampled_delta(noise_multiplier, rate, epsilon):
    """Return delta of one Poisson-sampled release, the larger one of removing and adding a user."""
    with mpmath.workdps(60):
        z, q, e = (mpmath.mpf(value) for value in (noise_multiplier, rate, epsilon))
        x = mpmath.mpf(1) / 2 + z * z * mpmath.log1p(mpmath.expm1(e) / q)
        removed = (1 - q - mpmath.exp(e)) * mpmath.ncdf(-x / z) + q * mpmath.ncdf((1 - x) / z)
        log_argument = mpmath.expm1(-e) / q
        if log_argument <= -1:
            return removed
        x = mpmath.mpf(1) / 2 + z * z * mpmath.log1p(log_argument)
        added = mpmath.ncdf(x / z) - mpmath.exp(e) * ((1 - q) * mpmath.ncdf(x / z) + q * mpmath.ncdf((x - 1) / z))
        return max(removed, added)
