"""Faults of random bits: shared, repeated, and sometimes absent."""

import numpy as np

from zoo import add, laplace

GARFINKEL = "Garfinkel and Leclerc, Randomness concerns when deploying differential privacy, WPES 2020"
HOLOHAN = "Holohan, Random number generators and seeding for differential privacy, 2023"
DING = "Ding et al., Detecting violations of differential privacy, CCS 2018"


def noisy_integer(rng, x, n):
    return x + laplace(rng, 1.0, n)


def rare_leak(rng, x, n):
    outputs = noisy_integer(rng, x, n)
    outputs[rng.random(n) < 1e-3] = 1000 + x
    return outputs


add(
    "one noise for all coordinates", GARFINKEL, (np.array([0, 0, 0]), np.array([1, 0, 0])),
    lambda rng, x, n: x + laplace(rng, 1.0, (n, 1)), lambda rng, x, n: x + laplace(rng, 1.0, (n, 3)),
)  # fmt: skip
add(
    "the same seed in every call", HOLOHAN, (0, 1), lambda rng, x, n: noisy_integer(np.random.default_rng(0), x, n),
    noisy_integer,
)  # fmt: skip
add(
    "a seed that is made of the data", HOLOHAN, (0, 1),
    lambda rng, x, n: noisy_integer(np.random.default_rng(x), x, n), noisy_integer,
)  # fmt: skip
add("exact answers in one of a thousand draws", DING, (0, 1), rare_leak, noisy_integer, n=200_000)
