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


def report(row, word):
    """Return the output for one 64-bit word: outputs take their shares of all words in order."""
    for y, count in enumerate(row):
        if word < count:
            return y
        word -= count
    raise AssertionError("a row adds up to 2^64")


def rank(counts):
    """Compute the rank by elimination in fractions."""
    rows, n_pivots = [[Fraction(c) for c in row] for row in counts], 0
    for y in range(len(counts[0])):
        pivot = next((row for row in rows if row[y]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows = [[a - row[y] / pivot[y] * b for a, b in zip(row, pivot, strict=True)] for row in rows]
        n_pivots += 1
    return n_pivots
