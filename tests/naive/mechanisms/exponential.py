"""Peeling by its definition, on decimals; the distribution of the outcome; and Gumbel noise in Python's floats."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction

from naive.mechanisms.noise.discrete_laplace import Bits

context = decimal.Context(prec=90, Emin=-999999, Emax=999999)


def scaled_exp(x, bits):
    """Return 2^bits exp(-x), too small by less than any significant digit."""
    with decimal.localcontext(context):
        value = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**bits
        return value - Decimal(10) ** -50


def peel(scores, beta, n_selected, bits):
    """Choose sequentially; weights are relative to the best score until it is 2^32 times too small."""
    remaining, chosen, best = list(range(len(scores))), [], None
    while len(chosen) < n_selected:
        top = max(scores[i] for i in remaining)
        # The reference score changes only if the best remaining weight would lose 32 of its 64 bits.
        if best is None or math.floor(scaled_exp(Fraction(best - top) / beta, 64)) + 2 < 2**32:
            best = top
        # Upper bounds of the weights; the excess is rejected below.
        shares = [math.floor(scaled_exp(Fraction(best - scores[i]) / beta, 64)) + 2 for i in remaining]
        while True:
            number, position = bits.below(sum(shares)), 0
            while number >= shares[position]:
                number -= shares[position]
                position += 1
            exact = scaled_exp(Fraction(best - scores[remaining[position]]) / beta, 64)
            # With probability 2^-60, more bits would be needed to decide.
            assert abs(exact - number) > 2
            if number < exact:
                break
        chosen.append(remaining.pop(position))
    return chosen


def order_probabilities(scores, beta, n_selected):
    """Return the probability of each ordered choice."""
    outcomes = {(): 1.0}
    for _ in range(n_selected):
        following = {}
        for chosen, p in outcomes.items():
            remaining = [i for i in range(len(scores)) if i not in chosen]
            top = max(scores[i] for i in remaining)
            shares = [math.exp((scores[i] - top) / beta) for i in remaining]
            for i, share in zip(remaining, shares, strict=True):
                following[(*chosen, i)] = p * share / sum(shares)
        outcomes = following
    return outcomes


def gumbel(first, second):
    """Return Gumbel noise from two words by a 127-bit fraction, with no bit lost before the logarithm."""
    near = Fraction(((first & (2**63 - 1)) << 64 | second) * 2 + 1, 2**129)
    with decimal.localcontext(context):
        u = Decimal(near.numerator) / Decimal(near.denominator)
        # The first word's top bit selects the half of (0, 1).
        return float(-(-(1 - u if first >> 63 else u).ln()).ln())


__all__ = ["Bits", "gumbel", "order_probabilities", "peel"]
