"""Mechanisms that violate their claims, which every auditor must detect, and correct twins, which must pass.

Each takes a NumPy generator and is then called as (x, n), for n outputs on the input x.
"""

import math

import numpy as np


def float_laplace(rng):
    """Textbook Laplace by the inverse distribution function of a double, scale 1, claimed 1-DP for inputs 1 apart."""

    def mechanism(x, n):
        u = rng.random(n) - 0.5
        return x - np.sign(u) * np.log(1 - 2 * np.abs(u))

    return mechanism


def four_double_laplace(rng):
    """Sum of the noise of four doubles, a proposed repair of the textbook sampler; same claim."""

    def mechanism(x, n):
        a, b, c, d = rng.random((4, n))
        return x - (np.log(1 - a) * np.cos(np.pi * b) + np.log(1 - c) * np.cos(np.pi * d))

    return mechanism


def grid_laplace(rng):
    """Correct twin: Laplace noise rounded to a grid that contains the inputs."""
    return lambda x, n: x + np.round(rng.laplace(size=n) * 1024) / 1024


def response(rng, probability):
    """Answer with the input, a bit, with this probability."""
    return lambda x, n: np.where(rng.random(n) < probability, x, 1 - x)


def keep_probability(epsilon):
    return math.exp(epsilon) / (1 + math.exp(epsilon))


def clip_then_noise(rng, clip):
    """Clip rows to norm 1, then add normal noise on a grid; inputs are rows."""

    def mechanism(x, n):
        row = clip(np.array([x], dtype=np.float64), 1.0)[0]
        return row + np.round(rng.standard_normal((n, len(x))) * 1024) / 1024

    return mechanism


def textbook_clip(rows, clip_norm):
    """Exceed the bound by rounding errors on about half of all rows, and let NaN pass."""
    norms = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(norms > clip_norm, clip_norm / norms, 1)
    return (rows * factor).astype(rows.dtype)


def stopping_clip(rows, clip_norm, order=2):
    """Correct twin: rows that are not finite become 0, and others shrink by slightly more than rounding can add."""
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(rows.dtype).tiny).astype(np.float64)
    # An infinite norm makes the row 0.
    with np.errstate(over="ignore"):
        norms = ((np.abs(rows) / largest) ** order).sum(axis=1, keepdims=True) ** (1 / order) * largest
    shrink = 1 - (rows.shape[1] + 4) * np.finfo(rows.dtype).eps
    factor = np.where(norms > clip_norm * shrink, clip_norm * shrink / np.maximum(norms, 1e-300), 1.0)
    return (rows * factor).astype(rows.dtype)


def published_rating(rng, epsilon1, epsilon2):
    """Report Laplace noise of scale 1 / epsilon1 on a rating in [0, 1] with probability 1 / (1 + e^epsilon2).

    Otherwise, report the true rating.  The claim is (epsilon1 + epsilon2)-DP.
    """

    def mechanism(x, n):
        noisy = x + np.round(rng.laplace(size=n) / epsilon1 * 1024) / 1024
        return np.where(rng.random(n) < keep_probability(epsilon2), x, noisy)

    return mechanism


def rating_on_the_grid(n_grades, epsilon1, epsilon2):
    """Return exact probabilities of the published mechanism, with the noisy value clamped and rounded to the grid."""

    def laplace(t):
        return 0.5 * math.exp(t) if t < 0 else 1 - 0.5 * math.exp(-t)

    grid = np.linspace(0, 1, n_grades)
    edges = (grid[1:] + grid[:-1]) / 2
    below = np.array([[0, *(laplace((edge - x) * epsilon1) for edge in edges), 1] for x in grid])
    keep = keep_probability(epsilon2)
    return keep * np.eye(n_grades) + (1 - keep) * np.diff(below, axis=1)
