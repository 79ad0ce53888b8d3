"""Peeling as the definition says, on decimals; the distribution of the outcome; and Gumbel noise by Python's floats."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction

from naive.mechanisms.noise.discrete_laplace import Bits

context = decimal.Context(prec=90, Emin=-999999, Emax=999999)


def scaled_exp(x, bits):
    """2^bits exp(-x), below by less than any digit that matters."""
    with decimal.localcontext(context):
        value = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**bits
        return value - Decimal(10) ** -50


def peel(scores, beta, n_selected, bits):
    """Choose, one after the other; weights are relative to the best score until it is 2^32 times too small."""
    left, chosen, best = list(range(len(scores))), [], None
    while len(chosen) < n_selected:
        top = max(scores[i] for i in left)
        if best is None or math.floor(scaled_exp(Fraction(best - top) / beta, 64)) + 2 < 2**32:
            best = top
        shares = [math.floor(scaled_exp(Fraction(best - scores[i]) / beta, 64)) + 2 for i in left]
        while True:
            number, position = bits.below(sum(shares)), 0
            while number >= shares[position]:
                number -= shares[position]
                position += 1
            exact = scaled_exp(Fraction(best - scores[left[position]]) / beta, 64)
            assert abs(exact - number) > 2  # chance 2^-60: otherwise more bits would decide
            if number < exact:
                break
        chosen.append(left.pop(position))
    return chosen


def order_probabilities(scores, beta, n_selected):
    """The probability of each ordered choice."""
    outcomes = {(): 1.0}
    for _ in range(n_selected):
        following = {}
        for chosen, p in outcomes.items():
            left = [i for i in range(len(scores)) if i not in chosen]
            top = max(scores[i] for i in left)
            shares = [math.exp((scores[i] - top) / beta) for i in left]
            for i, share in zip(left, shares, strict=True):
                following[(*chosen, i)] = p * share / sum(shares)
        outcomes = following
    return outcomes


def gumbel(first, second):
    """From two words, by a 127-bit fraction of which none is lost before the logarithm."""
    near = Fraction(((first & (2**63 - 1)) << 64 | second) * 2 + 1, 2**129)
    with decimal.localcontext(context):
        u = Decimal(near.numerator) / Decimal(near.denominator)
        return float(-(-(1 - u if first >> 63 else u).ln()).ln())


__all__ = ["Bits", "gumbel", "order_probabilities", "peel"]
