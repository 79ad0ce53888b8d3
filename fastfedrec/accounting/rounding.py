"""Figures that are never below the truth: forms that do not cancel, exact sums, and a margin above what is left.

Each function of `math` used here is off by at most one unit in the last place (2^-52 of its value), and each form has
a handful of them with condition numbers of at most 1, unless its comment says more: `up` adds 2^-40.
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
    "least_log_ratio",
    "log1p_exp",
    "pure_delta",
    "replaced_epsilon",
    "sampled_epsilon",
    "stretched_delta",
    "sum_up",
    "up",
]

UP = 1 + 2.0**-40  # far above the rounding errors of these formulas, far below what anybody reads off
ABSOLUTE = 2.0**-48  # of the largest term, for sums whose terms may cancel
LARGEST_EXPONENT = 700.0  # e to this is still a number


def up(value: float) -> float:
    """A figure that is off by less than 2^-40 of itself, or by less than one subnormal number, moved up."""
    return math.nextafter(value * UP, math.inf)


def count_up(times: int) -> float:
    """A whole number as a float, rounded up."""
    return float_up(Fraction(times))


def inverse_up(value: float) -> float:
    """1 / value, the same number where it is exact."""
    return float_up(1 / Fraction(value))


def sum_up(parts: Iterable[tuple[float, int]]) -> float:
    """The sum of value * times, rounded once; infinite where a part is."""
    total = Fraction(0)
    for value, times in parts:
        if not times:
            continue
        if math.isinf(value):
            return math.inf
        total += Fraction(value) * times
    return float_up(total)


def log1p_exp(x: float) -> float:
    """log(1 + e^x), without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sampled_epsilon(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)), rounded up, and at most `epsilon`.

    A rate that is itself a rounded quotient is off by 2^-53, and the logarithm by no more than that.  Beyond an
    epsilon of 700 it is the logarithm of 1 + e^x, x = epsilon + log(rate), from which e^-700 is missing; the sum is
    off by 2^-43 and by 2^-53 of itself, and the result by no more than the first, or the second of itself.
    """
    if epsilon <= LARGEST_EXPONENT:
        return min(epsilon, up(math.log1p(rate * math.expm1(epsilon))))
    return min(epsilon, up(log1p_exp(epsilon + math.log(rate))))


def replaced_epsilon(epsilon: float, rate: float) -> float:
    """log(1 - rate + rate e^epsilon) - log(1 - rate + rate e^-epsilon), rounded up, and at most twice `epsilon`.

    What it costs to replace a unit that is drawn at this rate, where adding or removing it when drawn costs `epsilon`.
    """
    return min(2 * epsilon, up(sampled_epsilon(epsilon, rate) - least_log_ratio(epsilon, rate)))


def least_log_ratio(epsilon: float, rate: float) -> float:
    """log(1 - rate + rate e^-epsilon), at least -epsilon."""
    lost = -rate * math.expm1(-epsilon)
    if lost <= 0.5:
        return math.log1p(-lost)
    # Beyond, 1 - rate is exact, and neither term of the sum cancels.
    return -epsilon if rate == 1 else max(-epsilon, math.log(1 - rate + rate * math.exp(-epsilon)))


def stretched_delta(delta: float, epsilon: float) -> float:
    """(1 + e^epsilon) delta, rounded up, and at most 1: two steps of delta, one of them times e^epsilon.

    Beyond an epsilon of 745 it is 1 for every delta that is a float.
    """
    if not delta:
        return 0.0
    if epsilon <= LARGEST_EXPONENT:
        return min(1.0, up((1 + math.exp(epsilon)) * delta))
    return min(1.0, up(math.exp(min(0.0, epsilon + math.log(delta)))))


def pure_delta(total: float, epsilon: float) -> float:
    """The delta of whatever costs `total` with delta 0: (e^total - e^epsilon) / (1 + e^total), without overflow."""
    if epsilon >= total:
        return 0.0
    return min(1.0, up(-math.expm1(epsilon - total) / (1 + math.exp(-total))))
