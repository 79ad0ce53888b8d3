"""The sampler in the paper's form, on exact fractions, and its distribution."""

import math
from fractions import Fraction

BLOCK_WORDS = 4096


class Bits:
    """Words of the streams (purpose, round, 0), (purpose, round, 1), ..., in sequence."""

    def __init__(self, key, purpose, round_number=0):
        self.key, self.purpose, self.round_number = key, purpose, round_number
        self.block, self.words = 0, []

    def word(self):
        if not self.words:
            self.words = self.key.words(
                self.purpose, round=self.round_number, user=self.block, size=BLOCK_WORDS
            ).tolist()
            self.block += 1
        return self.words.pop(0)

    def below(self, n):
        """Return a uniform integer in {0, ..., n - 1}: the leading bits of the next words, rejected if too large."""
        # Number of bits of n - 1.
        length = len(bin(n - 1)) - 2 if n > 1 else 0
        while True:
            text = ""
            while len(text) < length:
                text += f"{self.word():064b}"
            number = int(text[:length] or "0", 2)
            if number < n:
                return number

    def bernoulli(self, numerator, denominator):
        # The fraction is not reduced, so that the sampler reads the same bits as the package.
        return self.below(denominator) < numerator


def bernoulli_exp(bits, numerator, denominator):
    """Draw by Algorithm 1, for numerator / denominator in [0, 1]."""
    k = 1
    # P(k is odd) = exp(-numerator / denominator), by the series of exp.
    while bits.bernoulli(numerator, denominator * k):
        k += 1
    return k % 2 == 1


def draw(bits, scale):
    """Draw by Algorithm 2 with t / s = scale."""
    t, s = Fraction(scale).numerator, Fraction(scale).denominator
    while True:
        u = bits.below(t)
        if not bernoulli_exp(bits, u, t):
            continue
        v = 0
        while bernoulli_exp(bits, 1, 1):
            v += 1
        y = (u + t * v) // s
        sign = bits.below(2)
        # Without this rejection, 0 would have twice its probability.
        if sign == 1 and y == 0:
            continue
        return (1 - 2 * sign) * y


def probability(x, scale):
    """Return P(x) = (1 - p) / (1 + p) * p^|x| with p = exp(-1 / scale)."""
    return math.tanh(0.5 / scale) * math.exp(-abs(x) / scale)
