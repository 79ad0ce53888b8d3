"""Faults of local reports: probabilities of other domains, and reports that are not charged."""

import math

import numpy as np

from zoo import add

WANG = "Wang et al., Locally differentially private protocols for frequency estimation, USENIX Security 2017"
ERLINGSSON = "Erlingsson, Pihur, Korolova, RAPPOR, CCS 2014"
DUCHI = "Duchi, Jordan, Wainwright, Minimax optimal procedures for locally private estimation, 2018"


def keep(epsilon, k=2):
    """Return the probability of the true one of k answers."""
    return math.exp(epsilon) / (math.exp(epsilon) + k - 1)


def answer(p, k=10):
    return lambda rng, x, n: np.where(rng.random(n) < p, x, (x + rng.integers(1, k, n)) % k)


def flip_bits(p, n_bits):
    """Keep each bit with probability p."""
    return lambda rng, x, n: np.where(rng.random((n, n_bits)) < p, np.asarray(x), 1 - np.asarray(x))


def unary(p):
    """Set the bit of the input with probability p, and each other bit with probability 1 - p."""
    return lambda rng, x, n: rng.random((n, 6)) < np.where(np.arange(6) == x, p, 1 - p)


def sign_of(clips):
    """Answer 1 or -1 about a number that should be in [-1, 1]."""

    def mechanism(rng, x, n):
        number = np.clip(x, -1, 1) if clips else x
        return np.where(rng.random(n) < 0.5 + number * (keep(1.0) - 0.5), 1, -1)

    return mechanism


add("ten answers with the probability of two", WANG, (0, 1), answer(keep(1.0)), answer(keep(1.0, 10)), n=10_000)
add(
    "all of epsilon for each of eight bits", WANG, (np.zeros(8, int), np.ones(8, int)), flip_bits(keep(1.0), 8),
    flip_bits(keep(1 / 8), 8), is_tight=False,
)  # fmt: skip
add("unary encoding that counts one of two bits", WANG, (0, 1), unary(keep(1.0)), unary(keep(0.5)), n=10_000)
add(
    "four new answers charged as one", ERLINGSSON, (0, 1), lambda rng, x, n: flip_bits(keep(1.0), 4)(rng, [x] * 4, n),
    lambda rng, x, n: flip_bits(keep(1 / 4), 4)(rng, [x] * 4, n), is_tight=False,
)  # fmt: skip
add("numbers out of range", DUCHI, (-3.0, 3.0), sign_of(clips=False), sign_of(clips=True))
