"""Gaussian noise with a large standard deviation on the integers, from layers of small tables."""

import functools
import math
from fractions import Fraction

import numpy as np

from fastfedrec._kernels.mechanisms.noise import integer_noise as _kernel
from fastfedrec.accounting.shares import SHARE_COUNTS, needed_shares
from fastfedrec.core.check import check_exact, check_integer
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.noise.noise_table import NoiseTable, gaussian_distance, gaussian_table
from fastfedrec.mechanisms.noise.rounded_gaussian import RoundedGaussian

__all__ = ["LayeredGaussian", "gaussian_noise"]

STDDEV = 1024  # standard deviation of every layer but the coarsest, in the layer's unit
BASE = 480  # a layer's unit in units of the layer below: less than half of STDDEV, so that sums have no gaps
_MAX_TOP_STDDEV = 2048  # of the coarsest layer, in its unit
_LOWEST, _HIGHEST = 2**15, 2**56
# Distance of a sum of two draws from a discrete Gaussian of the summed variance: 5 exp(-pi^2 stddev^2) is far below it.
_JOIN_DISTANCE = Fraction(1, 2**1000)


class LayeredGaussian(RoundedGaussian):
    """Integer noise with a standard deviation far beyond the range of one table.

    **Guarantee.** Adding independent draws to integers that one user changes by at most `sensitivity` in Euclidean
    norm satisfies every guarantee that the continuous Gaussian mechanism with noise multiplier stddev / sensitivity
    satisfies, under the same neighbouring relation ("add_remove" or "replace", as `sensitivity` was bounded; privacy
    unit "user"), subsampled and composed alike, with the additional delta that `delta` states for the number of all
    draws; the server that adds the noise is trusted ("central").  With the draws of a `share` in each of many nodes and
    a secure aggregation, no server is trusted, and `GaussianShares` states the cost.

    Parameters
    ----------
    stddev : Fraction, int or float
        Standard deviation, from 2^15 to 2^56; a float is taken exactly, as a rational number.

    Attributes
    ----------
    stddev : Fraction
        As given; the standard deviation of draws is larger by less than a millionth.
    sampler : {"table"}
        Sampling method; there is no exact sampler.
    total_variation : Fraction
        Proved upper bound on the total-variation distance between one draw and a rounded normal variable.

    See Also
    --------
    gaussian_noise : The class for a standard deviation.
    RoundedGaussian : Noise with a smaller standard deviation, from one table.

    Notes
    -----
    A draw is (... (g_L B + g_(L-1)) B + ...) B + g_1 with independent discrete Gaussian draws g.  See
    docs/explanation/mechanisms/noise/layered-gaussian.md.

    References
    ----------
    .. [1] Peikert, "An efficient and parallel Gaussian sampler for lattices", CRYPTO 2010, Theorem 3.1 (sums of
       discrete Gaussians on nested grids).

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import LayeredGaussian
    >>> noise = LayeredGaussian(2**36)
    >>> noise.noise_multiplier(sensitivity=2**36)
    1.0
    >>> noise.delta(epsilon=1.0, n_draws=10**8) < 1e-14
    True
    >>> draws = noise.sample(5000, key=Key.from_seed(1), purpose="demo")
    >>> bool(0.9 < draws.astype(float).var() / noise.variance < 1.1)
    True
    """

    _purpose = "layered_gaussian.privatize"

    def __init__(self, stddev: Fraction | int | float):
        self.stddev = check_exact("stddev", stddev)
        if not _LOWEST <= self.stddev <= _HIGHEST:
            remedy = "gaussian_noise(stddev), which takes any from 1/2" if self.stddev < _LOWEST else "a coarser grid"
            raise ValueError(f"stddev must be from 2^15 to 2^56, got {float(self.stddev):g}; use {remedy}")
        # Each finer layer takes its variance off the requested one, until the remainder fits the coarsest layer.
        variance, n_below = self.stddev**2, 0
        while variance > _MAX_TOP_STDDEV**2:
            variance, n_below = (variance - STDDEV**2) / BASE**2, n_below + 1
        # Rounding the coarsest layer up to a multiple of 2^-20 makes the noise larger, never smaller.
        top = _root_up(variance)
        self.sampler = "table"
        self._stddevs = top, *[Fraction(STDDEV)] * n_below
        distance, variance = sum(map(gaussian_distance, self._stddevs), Fraction(0)), top**2
        for _ in range(n_below):
            distance += _layer_distance(variance)
            variance = variance * BASE**2 + STDDEV**2
        self._variance = variance
        # The last term bounds the distance between a discrete Gaussian and a rounded normal variable.
        self._discrete, self._rounded = distance, 1 / (32 * self.stddev**2)
        self.total_variation = distance + self._rounded

    # Plans of a budget create many noises, of which a run draws from a few.
    @functools.cached_property
    def _tables(self) -> tuple[NoiseTable, ...]:  # type: ignore[override]
        """Tables of the layers, the coarsest first."""
        return tuple(map(gaussian_table, self._stddevs))

    @property
    def variance(self) -> float:
        """Variance of one draw.

        Returns
        -------
        float
            Variance, at least stddev^2.
        """
        return float(self._variance)

    @shares_docstring(SHARE_COUNTS)
    def share(self, *, n_nodes: int, n_answers: int, honest_fraction: float) -> "LayeredGaussian":
        """Return the noise that each node adds, so that the shares that count have this standard deviation in total.

        Returns
        -------
        LayeredGaussian
            Noise with the variance over ``max(0, n_answers - (1 - honest_fraction) * n_nodes)``, rounded up.

        Raises
        ------
        ValueError
            No share counts, or the standard deviation of a share is below 2^15.
        """
        return LayeredGaussian(_root_up(self.stddev**2 / needed_shares(n_nodes, n_answers, honest_fraction)))

    def sum_of(self, n_shares: int) -> "LayeredGaussian":
        """Return noise with the variance of a sum of independent draws, rounded up.

        Parameters
        ----------
        n_shares : int
            Number of draws of the sum.

        Returns
        -------
        LayeredGaussian
            Noise that differs from the sum by at most the `total_variation_of_shares` and its own distance.
        """
        n_shares = check_integer("n_shares", n_shares, low=1)
        return self if n_shares == 1 else LayeredGaussian(_root_up(n_shares * self.stddev**2))

    def total_variation_of_shares(self, n_draws: int, n_shares: int) -> float:
        """Return the distance of sums of shares from rounded normal variables of at least the summed variance.

        Parameters
        ----------
        n_draws : int
            Number of sums in one release.
        n_shares : int
            Largest number of shares in a sum; the bound holds for any smaller number as well.

        Returns
        -------
        float
            Upper bound on the distance, at most 1 and rounded up; the `distance` of a `GaussianShares`.
        """
        n_draws = check_integer("n_draws", n_draws, low=0, high=None)
        n_shares = check_integer("n_shares", n_shares, low=1)
        # A sum of discrete Gaussians is a discrete Gaussian of the summed variance, which only then is a rounded normal
        # variable; its distance is the largest with a single share.
        return min(float_up(n_draws * (n_shares * (self._discrete + _JOIN_DISTANCE) + self._rounded)), 1.0)

    def _add_draws(self, values: np.ndarray, key: Key, purpose: str, round_number: int, n_threads: int) -> None:
        top, *_, below = self._tables
        # Each layer has a stream of its own, named by its level.
        _kernel.add_layers(
            values,
            top.high,
            top.low,
            top.guide,
            below.high,
            below.low,
            below.guide,
            np.stack([key.subkey(f"{purpose}.{level}") for level in range(len(self._stddevs))]),
            top.shift,
            below.shift,
            BASE,
            round_number,
            n_threads,
        )


def _layer_distance(upper: Fraction) -> Fraction:
    """Return the distance of B U + g from a discrete Gaussian; U has variance `upper`, g is the layer below."""
    # The Poisson sum over the lattice that the two share is constant up to 2 q / (1 - q), q = exp(-2 pi^2 tau^2).
    tau_squared = 1 / (Fraction(BASE, STDDEV) ** 2 + 1 / upper)
    return Fraction(5 * math.exp(-19.7 * float(tau_squared)))


def _root_up(square: Fraction) -> Fraction:
    """Return the square root, rounded up to a multiple of 2^-20."""
    return Fraction(math.isqrt(math.ceil(square * 2**40)) + 1, 2**20)


def gaussian_noise(stddev: Fraction | int | float) -> RoundedGaussian:
    """Return integer Gaussian noise of any standard deviation, from one table or from layers of tables.

    **Guarantee.** The noise has the guarantee of `RoundedGaussian`, which `LayeredGaussian` states in the same words:
    its `noise_multiplier` is the one for accountants, and `delta` or `total_variation_of` states the addition.

    Parameters
    ----------
    stddev : Fraction, int or float
        Standard deviation, from 1/2 to 2^56; a float is taken exactly, as a rational number.

    Returns
    -------
    RoundedGaussian
        A `RoundedGaussian` below 2^15, and a `LayeredGaussian`, which is a subclass, from there.

    Raises
    ------
    ValueError
        The standard deviation is below 1/2 or above 2^56.

    Examples
    --------
    >>> from fastfedrec.mechanisms import gaussian_noise
    >>> gaussian_noise(1000), gaussian_noise(44_798)
    (RoundedGaussian(stddev=1000), LayeredGaussian(stddev=44798))
    """
    stddev = check_exact("stddev", stddev)
    return LayeredGaussian(stddev) if stddev >= _LOWEST else RoundedGaussian(stddev)
