"""The rotation-invariant estimator one eigenvalue at a time, and of matrices by full decompositions."""

import math

import numpy as np


def shrink(values, counts, noise):
    """l - 2 s^2 sum_j c_j (l - l_j) / ((l - l_j)^2 + eta^2), made non-decreasing, and no less than 0."""
    eta = 0.05 * 2 * noise * math.sqrt(sum(counts))
    shrunk, largest = [], 0.0
    for value in values:
        pull = sum(
            count * (value - other) / ((value - other) ** 2 + eta**2)
            for other, count in zip(values, counts, strict=True)
        )
        largest = max(largest, value - 2 * noise**2 * pull)
        shrunk.append(largest)
    return shrunk


def denoise(matrix, noise):
    """The estimate R, of whatever rank: three passes, each with the diagonal of the last one's R."""
    matrix = np.array(matrix, dtype=float)
    np.fill_diagonal(matrix, 0)
    for _ in range(3):
        values, vectors = np.linalg.eigh(matrix)
        estimate = vectors @ np.diag(shrink(values, np.ones(len(values)), noise)) @ vectors.T
        np.fill_diagonal(matrix, estimate.diagonal())
    return estimate
