"""Faults of selections: noisy maxima, the exponential mechanism and the sparse vector technique."""

import numpy as np

from zoo import add, laplace

DING = "Ding et al., Detecting violations of differential privacy, CCS 2018"
MCSHERRY = "McSherry and Talwar, Mechanism design via differential privacy, FOCS 2007"
LYU = "Lyu, Su, Li, Understanding the sparse vector technique for differential privacy, VLDB 2017"


def noisy_max(scale, with_value=False):
    """Return the position of the largest noisy score, and possibly its value."""

    def mechanism(rng, x, n):
        scores = np.asarray(x) + laplace(rng, scale, (n, len(x)))
        # Equal scores are decided at random, because the first one would reveal more.
        best = (scores + rng.random(scores.shape) / 2).argmax(axis=1)
        return np.stack([best, scores.max(axis=1)], axis=1) if with_value else best

    return mechanism


def exponential(factor, is_shifted=True):
    """Return a choice with probabilities proportional to exp(factor * score)."""

    def mechanism(rng, x, n):
        scores = np.asarray(x, dtype=float)
        with np.errstate(all="ignore"):
            weights = np.exp(factor * (scores - scores.max() if is_shifted else scores))
            return rng.choice(len(scores), n, p=weights / weights.sum())

    return mechanism


def sparse_vector(query_scale, limit, threshold_scale=2.0):
    """Return for each query whether it is above a noisy threshold, until `limit` ones are."""

    def mechanism(rng, x, n):
        threshold = rng.laplace(scale=threshold_scale, size=n)
        outputs, n_above = np.full((n, len(x)), -1), np.zeros(n, dtype=int)
        for j, query in enumerate(x):
            noise = rng.laplace(scale=query_scale, size=n) if query_scale else 0.0
            is_above = query + noise >= threshold
            outputs[:, j] = np.where(n_above < limit, is_above, -1)
            n_above += is_above
        return outputs

    return mechanism


FIVE = np.zeros(5, dtype=int), np.ones(5, dtype=int)
QUERIES = np.repeat([0.0, 1.0], 5), np.repeat([1.0, 0.0], 5)
add("noisy maximum with its value", DING, FIVE, noisy_max(1.0, with_value=True), noisy_max(2.0), is_tight=False)
add(
    "noisy maximum with half of the noise", DING, ([0, 2, 2], [2, 0, 0]), noisy_max(2.0), noisy_max(4.0), n=60_000,
    is_tight=False,
)  # fmt: skip
add(
    "exponential mechanism that underflows", "diffprivlib and others: weights without subtracting the largest score",
    ([-1490.0, -1491.0], [-1491.0, -1492.0]), exponential(0.5, is_shifted=False), exponential(0.5), is_tight=False,
)  # fmt: skip
add(
    "exponential mechanism without the factor 1/2", MCSHERRY, ([1] + [0] * 9, [0] + [1] * 9), exponential(1.0),
    exponential(0.5), n=10_000, is_tight=False,
)  # fmt: skip
add("sparse vector without noise on queries", LYU, QUERIES, sparse_vector(0, 99), sparse_vector(4.0, 1), is_tight=False)
add(
    "sparse vector with any number of answers", LYU, QUERIES, sparse_vector(4.0, 99), sparse_vector(4.0, 1),
    n=60_000, is_tight=False,
)  # fmt: skip
add(
    "sparse vector whose noise ignores the limit", LYU, QUERIES, sparse_vector(4.0, 5), sparse_vector(20.0, 5),
    n=200_000, is_tight=False,
)  # fmt: skip
add(
    "sparse vector with a quarter of the query noise", LYU, QUERIES, sparse_vector(1.0, 1), sparse_vector(4.0, 1),
    n=20_000, is_tight=False,
)  # fmt: skip
