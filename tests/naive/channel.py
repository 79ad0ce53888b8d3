"""A finite channel as a dictionary of exact probabilities."""

from fractions import Fraction


def likelihood_ratio(counts):
    ratio = Fraction(1)
    for y in range(len(counts[0])):
        for row in counts:
            for other in counts:
                if row[y] and not other[y]:
                    return float("inf")
                if other[y]:
                    ratio = max(ratio, Fraction(row[y], other[y]))
    return ratio


def moments(counts, outputs, x):
    probability = [Fraction(count, 2**64) for count in counts[x]]
    mean = sum(p * Fraction(v) for p, v in zip(probability, outputs, strict=True))
    variance = sum(p * (Fraction(v) - mean) ** 2 for p, v in zip(probability, outputs, strict=True))
    return mean, variance
