"""Binary response on exact integers, and rational bounds of e^epsilon that are independent of the package."""

import math
from fractions import Fraction

TERMS = 160  # terms of the series of e^x, enough for x up to 20


def exp_bounds(x):
    """Return rational bounds of e^x for 0 < x <= 20: the truncated series, with a geometric bound of its tail."""
    x = Fraction(x)
    term, total = Fraction(1), Fraction(1)
    for n in range(1, TERMS):
        term = term * x / n
        total += term
    # Ratios of later terms are at most x / (TERMS + 1), which bounds the tail by a geometric series.
    following = term * x / TERMS
    return total, total + following / (1 - x / (TERMS + 1))


def keeps_epsilon(largest, epsilon):
    """Prove T / (2^64 - T) <= e^epsilon against a lower bound of e^epsilon."""
    return Fraction(largest, 2**64 - largest) <= exp_bounds(epsilon)[0]


def breaks_epsilon(largest, epsilon):
    """Prove T / (2^64 - T) > e^epsilon against an upper bound of e^epsilon."""
    return Fraction(largest, 2**64 - largest) > exp_bounds(epsilon)[1]


def threshold(t, largest):
    """Return the number of 2^64 words with answer +, for any double t."""
    span = largest - 2**63
    # Values that are not finite get a fair coin.
    if math.isnan(t) or math.isinf(t):
        return 2**63
    if abs(t) >= 1:
        return 2**63 + (span if t > 0 else -span)
    # The product is a rounded double, as in the kernel; truncation and the clamp are exact.
    return 2**63 + min(max(int(t * float(span)), -span), span)


def answer(t, largest, word):
    return 1 if word < threshold(t, largest) else -1
