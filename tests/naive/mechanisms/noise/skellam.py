"""The Skellam distribution by its definition, in many digits."""

from fractions import Fraction

import mpmath


def probabilities(variance, n):
    """Return P(0), ..., P(n - 1): the sum over pairs of Poisson variables, as a Bessel function of 60 digits."""
    with mpmath.workdps(60):
        variance = mpmath.mpf(Fraction(variance).numerator) / Fraction(variance).denominator
        return [mpmath.exp(-variance) * mpmath.besseli(x, variance) for x in range(n)]


def pairs(variance, n):
    """Return P(0), ..., P(n - 1) as sums over pairs of Poisson variables with that difference."""
    with mpmath.workdps(60):
        rate = mpmath.mpf(Fraction(variance).numerator) / Fraction(variance).denominator / 2
        terms = [mpmath.exp(-rate) * rate**k / mpmath.factorial(k) for k in range(4 * n + int(4 * rate) + 200)]
        return [mpmath.fsum(a * b for a, b in zip(terms[x:], terms, strict=False)) for x in range(n)]


def renyi_divergence(order, variance, shift):
    """Return the exact Renyi divergence of noise around `shift` from noise around 0."""
    n = int(12 * variance**0.5) + 60 + int(order * shift)
    p = probabilities(variance, n + shift + 1)
    with mpmath.workdps(60):
        return mpmath.log(
            mpmath.fsum(p[abs(x - shift)] ** order * p[abs(x)] ** (1 - order) for x in range(-n, n + 1))
        ) / (order - 1)


def hockey_stick(variance, shift, epsilon):
    """Return the exact delta of one release at an epsilon."""
    n = int(14 * variance**0.5) + 60
    p = probabilities(variance, n + shift + 1)
    with mpmath.workdps(60):
        return mpmath.fsum(
            max(0, p[abs(x - shift)] - mpmath.exp(epsilon) * p[abs(x)]) for x in range(-n, n + shift + 1)
        )
