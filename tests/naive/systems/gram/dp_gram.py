"""DPGram's sums in Python's integers, one user and one pair at a time, and its server by dense algebra."""

import math
from itertools import combinations

import numpy as np


def share(unit, n):
    """Return floor(unit / sqrt(n))."""
    return math.isqrt(unit * unit // n)


def share_sums(rows, n_items, unit):
    sums = [0] * n_items
    for row in rows:
        for item in row:
            sums[item] += share(unit, len(row))
    return sums


def contribution(row, mean, scale, unit):
    """Return w z_i z_j of one user for each pair i < j, with the largest integer w that keeps the norm in its bound.

    The bound is `unit` for the pairs if the mean is 0, and otherwise sqrt(2) unit for the whole matrix of the centred
    row, diagonal included.
    """
    if not row:
        return [0] * math.comb(len(mean), 2)
    row_share = share(scale, len(row))
    z = [row_share * (item in row) - m for item, m in enumerate(mean)]
    pairs = [a * b for a, b in combinations(z, 2)]
    if any(mean):
        # The centred form bounds the whole matrix, in which off-diagonal entries occur twice.
        square, bound = sum(a * a * b * b for a in z for b in z), 2 * unit * unit
    else:
        square, bound = sum(p * p for p in pairs), unit * unit
    # The integer square root never rounds up, so the bound holds exactly.
    weight = math.isqrt(bound // square) if square else 0
    return [weight * p for p in pairs]


def pair_sums(rows, mean, scale, unit):
    return [sum(column) for column in zip(*(contribution(row, mean, scale, unit) for row in rows), strict=True)]


def ease_weights(gram, ridges):
    """Return B = -P / diag(P) with a zero diagonal, P the inverse of the matrix and its ridges, or one common ridge."""
    precision = np.linalg.inv(gram + (ridges if np.ndim(ridges) else ridges * np.eye(len(gram))))
    weights = -precision / precision.diagonal()
    np.fill_diagonal(weights, 0)
    return weights
