"""Faults of the arithmetic: compositions, amplification, averages and shares of noise."""

import math

import numpy as np

from zoo import add, laplace, on_grid

MCSHERRY = "McSherry, Privacy integrated queries, SIGMOD 2009"
CHUA = "Chua et al., How private are DP-SGD implementations?, ICML 2024"
ABADI = "Abadi et al., Deep learning with differential privacy, CCS 2016"
KAIROUZ = "Kairouz, Liu, Steinke, The distributed discrete Gaussian mechanism, ICML 2021"
CHAN = "Chan, Shi, Song, Private and continual release of statistics, TISSEC 2011"
SAMPLED = math.log1p(math.expm1(1.0) / 0.25)  # epsilon that a sampling rate of 1/4 would amplify to 1


def answers(n_answers, scale):
    return lambda rng, x, n: x + laplace(rng, scale, (n, n_answers))


def amplified(is_sampled):
    """Return a noisy sum over a quarter of the rows, or over all of them."""

    def mechanism(rng, x, n):
        taken = rng.random(n) < 0.25 if is_sampled else np.ones(n, dtype=bool)
        return x * taken + laplace(rng, 1 / SAMPLED, n)

    return mechanism


def clipped_average(is_clipped_first):
    """Return the average of two gradients in steps of 1/2, with noise for a replaced gradient of norm at most 1."""

    def mechanism(rng, x, n):
        halves = 2 * np.clip(x, -1, 1).mean() if is_clipped_first else 2 * np.clip(np.mean(x), -1, 1)
        return round(halves) + laplace(rng, 2.0, n)

    return mechanism


def shares_of_noise(divisor):
    """Return a sum of four clients that each add a share of the noise of standard deviation 1."""
    return lambda rng, x, n: on_grid(np.asarray(x) + (rng.standard_normal((n, 4)) / divisor)).sum(axis=1)


add("four answers charged as one", MCSHERRY, (0, 1), answers(4, 1.0), answers(4, 4.0), n=4000, is_tight=False)
add("overlapping groups charged as disjoint ones", MCSHERRY, (0, 1), answers(2, 1.0), answers(2, 2.0), n=10_000)
add("amplification without sampling", CHUA, (0, 1), amplified(False), amplified(True), n=10_000)
add("gradients clipped after averaging", ABADI, ([-4.0, 0.0], [4.0, 0.0]), clipped_average(False),
    clipped_average(True), n=4000)  # fmt: skip
add(
    "noise divided by the batch twice", ABADI, (0, 1), lambda rng, x, n: x / 4 + laplace(rng, 1.0, n) / 16,
    lambda rng, x, n: (x + laplace(rng, 1.0, n)) / 4,
)  # fmt: skip
add(
    "each of n clients adds 1/n of the standard deviation", KAIROUZ, ([0, 0, 0, 0], [1, 0, 0, 0]), shares_of_noise(4),
    shares_of_noise(2), measure="mu", n=10_000,
)  # fmt: skip
add("tree of sums without the factor of its height", CHAN, (0, 1), answers(5, 1.0), answers(5, 5.0), n=4000,
    is_tight=False)  # fmt: skip
