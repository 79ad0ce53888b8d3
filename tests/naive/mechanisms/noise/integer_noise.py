"""Distributions of integer noise to 80 digits by their definitions, and the table as a sorted list."""

import bisect
import decimal
import itertools
from decimal import Decimal
from fractions import Fraction

decimal_context = decimal.Context(prec=120, Emin=-999999, Emax=999999)


def to_decimal(x):
    x = Fraction(x)
    return decimal_context.divide(Decimal(x.numerator), Decimal(x.denominator))


def _normalised(weights):
    with decimal.localcontext(decimal_context):
        # The distribution is symmetric, so each value above 0 counts twice.
        total = weights[0] + 2 * sum(weights[1:])
        return [w / total for w in weights]


def laplace(scale, n):
    """Return P(0), ..., P(n - 1)."""
    with decimal.localcontext(decimal_context):
        p = (-1 / to_decimal(scale)).exp()
        return [(1 - p) / (1 + p) * p**x for x in range(n)]


def gaussian(stddev, n):
    """Return P(0), ..., P(n - 1), with n so large that the tail is below 80 digits."""
    with decimal.localcontext(decimal_context):
        q = 1 / (2 * to_decimal(stddev) ** 2)
        return _normalised([(-q * x * x).exp() for x in range(n)])


def rounded_gaussian(stddev, n):
    """Return differences of the normal distribution function at x - 1/2 and x + 1/2."""
    with decimal.localcontext(decimal_context):
        inner = [_inner_mass((Decimal(x) + Decimal("0.5")) / to_decimal(stddev)) for x in range(n)]
        return [2 * inner[0], *(b - a for a, b in itertools.pairwise(inner))]


def _inner_mass(z):
    """Return P(0 < N < z) = density(z) (z + z^3 / 3 + z^5 / (3 * 5) + ...)."""
    term, total, k = z, Decimal(0), 1
    # The series ends once a term is below the working precision.
    while total + term != total:
        total += term
        k += 2
        term = term * z * z / k
    return total * (-z * z / 2).exp() / (2 * pi()).sqrt()


def pi():
    """Return pi by Machin's formula."""

    def arctan_inverse(n):
        total, power, k = Decimal(0), Decimal(1) / n, 1
        while abs(power) > Decimal(10) ** -125:
            total += power / k
            power, k = -power / (n * n), k + 2
        return total

    # Machin 1706: pi / 4 = 4 arctan(1/5) - arctan(1/239).
    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def table_distance(thresholds, reach, probabilities):
    """Return the total-variation distance of a table's probabilities and P(0), P(1), ...; P's tail counts fully."""
    # A value's probability is the gap between its two thresholds, out of 2^128.
    edges = [0, *thresholds, 2**128]
    with decimal.localcontext(decimal_context):
        table = [Decimal(b - a) / 2**128 for a, b in itertools.pairwise(edges)]
        ideal = [probabilities[abs(x)] for x in range(-reach, reach + 1)]
        return (sum(abs(a - b) for a, b in zip(table, ideal, strict=True)) + 1 - sum(ideal)) / 2


def draw(thresholds, reach, number):
    """Return the number of thresholds at or below a 128-bit number, minus the reach."""
    return bisect.bisect_right(thresholds, number) - reach


def add_layers(values, draws, base):
    """Add layer by layer in Python's integers, then clip to the ends of int64."""
    noise = [0] * len(values)
    for layer in draws:
        noise = [base * a + b for a, b in zip(noise, layer, strict=True)]
    return [min(max(v + d, -(2**63)), 2**63 - 1) for v, d in zip(values, noise, strict=True)]


# ---- tables in Python's integers ------------------------------------------------------------------------------------


def falling_weights(ratio, ratio_of_ratios=None):
    """Return weights from 2^256 down to the first below 2^128, with each product rounded down."""
    weights = [1 << 256]
    while weights[-1] >> 128:
        weights.append(weights[-1] * ratio >> 256)
        ratio = ratio if ratio_of_ratios is None else ratio * ratio_of_ratios >> 256
    return weights


def cell_masses(densities, stddev):
    """Return densities times the series of their cells, one power of x after another."""
    q = 1 / (2 * Fraction(stddev) ** 2)
    # Numbers are fixed-point with 320 fractional bits.
    terms, i = [1 << 320], 0
    while terms[-1]:
        i += 1
        terms.append(terms[-1] * q.numerator // (4 * i * q.denominator))
    masses = []
    for x, density in enumerate(densities):
        term, average, j = 1 << 320, 0, 0
        while term:
            moment = sum((-1) ** i * part // (2 * j + 2 * i + 1) for i, part in enumerate(terms))
            average += term * moment >> 320
            term = term * (x * x * q.numerator**2) // (q.denominator**2 * (2 * j + 1) * (2 * j + 2))
            j += 1
        masses.append(density * average >> 320)
    return masses


def thresholds(weights):
    """Return cumulated shares of 2^128 for values from -reach to reach - 1; the last weight belongs to reach + 1."""
    # Weights of -reach, ..., reach, by symmetry.
    support = [*weights[-2:0:-1], *weights[:-1]]
    total = sum(support)
    return [(part << 128) // total for part in itertools.accumulate(support[:-1])]
