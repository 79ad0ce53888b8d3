"""Figures that are never below the true value: forms that do not cancel, exact sums, and a margin for other errors.

Each function of `math` used here is off by at most one unit in the last place (2^-52 of its value).  Each form has a
handful of them with condition numbers of at most 1, unless a comment gives another bound: `up` adds 2^-40.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from fastfedrec.core.numbers import float_up

__all__ = [
    "ABSOLUTE",
    "LARGEST_EXPONENT",
    "UP",
    "count_up",
    "inverse_up",
    "log1p_exp",
    "min_log_ratio",
    "pure_delta",
    "replaced_epsilon",
    "sampled_epsilon",
    "stretched_delta",
    "sum_up",
    "up",
]

# Factor far above the rounding errors of these formulas, and far below the digits that matter to a reader.
UP = 1 + 2.0**-40
# Error relative to the largest term, for sums with terms that may cancel.
ABSOLUTE = 2.0**-48
# Exponent at which e^x is still finite.
LARGEST_EXPONENT = 700.0


def up(value: float) -> float:
    """Round up a figure that is off by less than 2^-40 of itself, or by less than one subnormal number."""
    return math.nextafter(value * UP, math.inf)


def count_up(times: int) -> float:
    """Return a whole number as a float, rounded up."""
    return float_up(Fraction(times))


def inverse_up(value: float) -> float:
    """Return 1 / value, rounded up unless it is exact."""
    return float_up(1 / Fraction(value))


def sum_up(parts: Iterable[tuple[float, int]]) -> float:
    """Return the sum of value * times, rounded once; infinite if a value is."""
    total = Fraction(0)
    for value, times in parts:
        # An infinite value that happens 0 times costs 0.
        if not times:
            continue
        if math.isinf(value):
            return math.inf
        total += Fraction(value) * times
    return float_up(total)


def log1p_exp(x: float) -> float:
    """Return log(1 + e^x), without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sampled_epsilon(epsilon: float, rate: float) -> float:
    """Return log(1 + rate (e^epsilon - 1)), rounded up, and at most `epsilon`."""
    # A rate that is itself a rounded quotient is off by 2^-53, and the logarithm by at most the same.
    if epsilon <= LARGEST_EXPONENT:
        return min(epsilon, up(math.log1p(rate * math.expm1(epsilon))))
    # Above 700 the result is log(1 + e^x) with x = epsilon + log(rate), from which e^-700 is missing.  The sum x is off
    # by 2^-43 and by 2^-53 of itself, and the result by at most the first, or the second of itself.
    return min(epsilon, up(log1p_exp(epsilon + math.log(rate))))


def replaced_epsilon(epsilon: float, rate: float) -> float:
    """Return log(1 - rate + rate e^epsilon) - log(1 - rate + rate e^-epsilon), rounded up, at most 2 `epsilon`."""
    # This is the cost of replacing a unit that is drawn at this rate, if adding or removing it when drawn costs
    # `epsilon`.
    return min(2 * epsilon, up(sampled_epsilon(epsilon, rate) - min_log_ratio(epsilon, rate)))


def min_log_ratio(epsilon: float, rate: float) -> float:
    """Return log(1 - rate + rate e^-epsilon), at least -epsilon."""
    loss = -rate * math.expm1(-epsilon)
    if loss <= 0.5:
        return math.log1p(-loss)
    # If the loss is above 1/2, then 1 - rate is exact, and neither term of the sum cancels.
    return -epsilon if rate == 1 else max(-epsilon, math.log(1 - rate + rate * math.exp(-epsilon)))


def stretched_delta(delta: float, epsilon: float) -> float:
    """Return (1 + e^epsilon) delta, rounded up, and at most 1."""
    # Two steps of delta, one of them times e^epsilon.  Above an epsilon of 745 it is 1 for every positive float delta.
    if not delta:
        return 0.0
    if epsilon <= LARGEST_EXPONENT:
        return min(1.0, up((1 + math.exp(epsilon)) * delta))
    return min(1.0, up(math.exp(min(0.0, epsilon + math.log(delta)))))


def pure_delta(total: float, epsilon: float) -> float:
    """Return (e^total - e^epsilon) / (1 + e^total), the delta of a pure cost `total` at `epsilon`, without overflow."""
    if epsilon >= total:
        return 0.0
    return min(1.0, up(-math.expm1(epsilon - total) / (1 + math.exp(-total))))
