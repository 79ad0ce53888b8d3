"""The cost of Gaussian noise in shares from their number, and of Skellam noise of the same variance, exact."""

import math

import mpmath


def n_counted(n_nodes, n_answers, fraction):
    """Return the fewest shares of nodes that add them, over all nodes that may drop out."""
    return max(0, n_answers - (n_nodes - math.floor(fraction * n_nodes)))


def delta(epsilon, mu):
    """Return the delta of noise with this sensitivity over the standard deviation (Balle and Wang, 2018)."""
    with mpmath.workdps(50):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        near, far = (mpmath.ncdf(sign * mu / 2 - epsilon / mu) for sign in (1, -1))
        return near - mpmath.exp(epsilon) * far


def epsilon(squared_mu, target):
    """Return the epsilon at which the delta of noise with this squared mu is `target`."""
    with mpmath.workdps(50):
        mu, low, high = mpmath.sqrt(squared_mu), mpmath.mpf(0), mpmath.mpf(10_000)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if delta(middle, mu) > target else (low, middle)
        return high


def skellam_epsilon(releases, target):
    """Return epsilon by Corollary 3.6 of Agarwal, Kairouz, Liu (2021), converted as in Canonne et al. (2020).

    `releases` are tuples of the variance and both sensitivities, which add up at each whole order.
    """

    def divergence(order, variance, l1, l2):
        corrections = ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
        return order * l2**2 / (2 * variance) + min(corrections)

    with mpmath.workdps(50):
        return min(
            mpmath.fsum(divergence(order, *map(mpmath.mpf, release)) for release in releases)
            + mpmath.log(1 - mpmath.mpf(1) / order)
            - mpmath.log(order * mpmath.mpf(target)) / (order - 1)
            for order in range(2, 400)
        )
