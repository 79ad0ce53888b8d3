"""Laplace noise on a rating grid by the distribution function, and the largest mixture, in floats."""

import itertools
import math
from fractions import Fraction


def laplace_cdf(t, scale):
    return 0.5 * math.exp(t / scale) if t < 0 else 1 - 0.5 * math.exp(-t / scale)


def rounded_laplace(x, cells, scale):
    """Return P(x + noise is nearest to each cell)."""
    edges = [-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(cells)), math.inf]
    return [laplace_cdf(b - x, scale) - laplace_cdf(a - x, scale) for a, b in itertools.pairwise(edges)]


def table(epsilon, grid):
    scale = (grid[-1] - grid[0]) / epsilon
    return [rounded_laplace(x, grid, scale) for x in grid]


def epsilon_of(rows):
    return max(math.log(max(column) / min(column)) for column in zip(*rows, strict=True))


def serial(epsilon_1, epsilon_2, grid):
    k = len(grid)
    truth = math.exp(epsilon_2) / (math.exp(epsilon_2) + k - 1)
    other = (1 - truth) / (k - 1)
    rows = table(epsilon_1, grid)
    return [[sum(row[z] * (truth if y == z else other) for z in range(k)) for y in range(k)] for row in rows]


def mixture(truth, epsilon_1, grid):
    return [
        [truth * (x == y) + (1 - truth) * p for y, p in enumerate(row)] for x, row in enumerate(table(epsilon_1, grid))
    ]


def largest_truth(epsilon_1, epsilon_2, grid):
    """Return by bisection the largest probability of the truth for which the table keeps the sum."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if epsilon_of(mixture(middle, epsilon_1, grid)) <= epsilon_1 + epsilon_2:
            low = middle
        else:
            high = middle
    return low


def published(rating, words, truth_probability, scale):
    """Return the rating if the first of two 64-bit words, as the middle of one of 2^52 cells, is below the probability.

    Otherwise, add Laplace noise by the inverse distribution function of the second word.
    """
    first, second = ((Fraction(word >> 12) + Fraction(1, 2)) / 2**52 for word in words)
    if first < Fraction(truth_probability):
        return rating
    # The smaller tail is exact near both ends.
    tail = min(second, 1 - second)
    sign = 1 if second > Fraction(1, 2) else -1
    return rating - sign * scale * math.log(2 * tail)
