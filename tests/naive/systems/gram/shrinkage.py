"""The rotation-invariant estimator for single eigenvalues, matrices by full decompositions, and priors."""

import itertools
import math

import numpy as np


def shrink(values, counts, noise):
    """Return l - 2 s^2 sum_j c_j (l - l_j) / ((l - l_j)^2 + eta^2), made non-decreasing, and at least 0."""
    # The smoothing is 5% of the radius of the noise's spectrum.
    eta = 0.05 * 2 * noise * math.sqrt(sum(counts))
    shrunk, largest = [], 0.0
    for value in values:
        pull = sum(
            count * (value - other) / ((value - other) ** 2 + eta**2)
            for other, count in zip(values, counts, strict=True)
        )
        # The running maximum keeps the order of the eigenvalues.
        largest = max(largest, value - 2 * noise**2 * pull)
        shrunk.append(largest)
    return shrunk


def denoise(matrix, noise):
    """Return the estimate R of any rank: three passes, each with the diagonal of the last one's R."""
    matrix = np.array(matrix, dtype=float)
    np.fill_diagonal(matrix, 0)
    for _ in range(3):
        values, vectors = np.linalg.eigh(matrix)
        estimate = vectors @ np.diag(shrink(values, np.ones(len(values)), noise)) @ vectors.T
        np.fill_diagonal(matrix, estimate.diagonal())
    return estimate


def prior(rows, popularity):
    """Return sqrt(m_i m_j) (f_i - f).(f_j - f), with f the mean by popularity over nonempty items."""
    there = [any(row) for row in rows]
    total = sum(m for m, is_there in zip(popularity, there, strict=True) if is_there)
    n, width = len(rows), len(rows[0])
    mean = [
        sum(m * row[k] for m, row in zip(popularity, rows, strict=True)) / total if total else 0 for k in range(width)
    ]
    centred = [
        [row[k] - mean[k] if is_there else 0 for k in range(width)] for row, is_there in zip(rows, there, strict=True)
    ]
    return [
        [
            math.sqrt(popularity[i] * popularity[j]) * sum(a * b for a, b in zip(centred[i], centred[j], strict=True))
            for j in range(n)
        ]
        for i in range(n)
    ]


def scales(matrix, priors, noise):
    """Return nonnegative least-squares scales over all pairs i < j, each shrunk by the contribution of noise alone."""
    # Each pair i < j counts once.
    upper = np.triu_indices(len(matrix), 1)
    seen, prior_values = np.asarray(matrix)[upper], np.array([np.asarray(p)[upper] for p in priors])
    best = (float(seen @ seen), (), np.zeros(0))
    # Least squares with nonnegative scales, by trying every active set.
    for size in range(1, len(priors) + 1):
        for subset in itertools.combinations(range(len(priors)), size):
            chosen = prior_values[list(subset)]
            scales_of_subset = np.linalg.lstsq(chosen.T, seen, rcond=None)[0]
            residual = float(np.square(seen - scales_of_subset @ chosen).sum())
            if (scales_of_subset >= 0).all() and residual < best[0] * (1 - 1e-12):
                best = (residual, subset, scales_of_subset)
    _, subset, scales_of_subset = best
    believed = np.zeros(len(priors))
    if subset:
        inner = prior_values[list(subset)] @ prior_values[list(subset)].T
        # Standard deviations of the scales under noise alone.
        widths = noise * np.sqrt(np.linalg.inv(inner).diagonal())
        believed[list(subset)] = scales_of_subset * np.maximum(1 - (2 * widths / scales_of_subset) ** 2, 0)
    return believed


def denoise_with_priors(matrix, noise, priors, popularity):
    """Subtract the scaled priors, shrink eigenvalues of both signs, add the priors back, and clip at 0."""
    matrix = np.array(matrix, dtype=float)
    np.fill_diagonal(matrix, 0)
    *believed, _ = scales(matrix, [*priors, np.outer(popularity, popularity)], noise)
    prior = sum(a * np.asarray(p) for a, p in zip(believed, priors, strict=True))
    remainder = matrix - prior
    np.fill_diagonal(remainder, 0)
    for _ in range(3):
        values, vectors = np.linalg.eigh(remainder)
        ones = np.ones(len(values))
        above = np.array(shrink(values, ones, noise))
        below = np.array(shrink(-values[::-1], ones, noise))[::-1]
        estimate = vectors @ np.diag(above - below) @ vectors.T
        np.fill_diagonal(remainder, (vectors @ np.diag(above) @ vectors.T).diagonal())
    values, vectors = np.linalg.eigh(estimate + prior)
    return vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
