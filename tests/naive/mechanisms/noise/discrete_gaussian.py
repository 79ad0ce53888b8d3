"""The sampler in the paper's form, on exact fractions, and its distribution."""

import math
from fractions import Fraction

from naive.mechanisms.noise import discrete_laplace

Bits = discrete_laplace.Bits


def draw(bits, stddev):
    """Draw by Algorithm 3."""
    variance = Fraction(stddev) ** 2
    t = math.isqrt(math.floor(variance)) + 1
    while True:
        y = discrete_laplace.draw(bits, t)
        denominator = 2 * variance.numerator * variance.denominator * t**2
        numerator = (abs(y) - variance / t) ** 2 / (2 * variance) * denominator
        assert numerator.denominator == 1
        # The fraction is not reduced, so that the sampler reads the same bits as the package.
        numerator, heads = int(numerator), True
        while heads and numerator > denominator:
            heads = discrete_laplace.bernoulli_exp(bits, 1, 1)
            numerator -= denominator
        if heads and discrete_laplace.bernoulli_exp(bits, numerator, denominator):
            return y


def probability(x, stddev):
    """Return the probability by the series of the definition."""
    q = 1 / (2 * float(stddev) ** 2)
    reach = int(14 * float(stddev)) + 2
    return math.exp(-q * x * x) / (1 + 2 * math.fsum(math.exp(-q * k * k) for k in range(1, reach)))
