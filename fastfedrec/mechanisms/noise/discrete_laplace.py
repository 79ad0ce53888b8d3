"""Discrete Laplace noise, sampled exactly, or fast from a table with a stated delta."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice, check_exact
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms._opendp import Space
from fastfedrec.mechanisms.noise.exact_sampling import sample_laplace
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.mechanisms.noise.noise_table import laplace_table

__all__ = ["DiscreteLaplace"]


class DiscreteLaplace(IntegerNoise):
    """Integer noise with probability proportional to ``exp(-|x| / scale)``.

    **Guarantee.** Adding independent draws to integers that adding or removing one user ("add_remove", privacy unit
    "user") changes by at most `sensitivity` in sum of absolute values is (sensitivity / scale)-differentially private,
    with no delta, against everyone who sees the sums; the server that adds the noise is trusted ("central").  With
    ``sampler="table"`` the claim has a delta, which `delta` states for a number of draws.

    Parameters
    ----------
    scale : Fraction, int or float
        Scale of the noise, greater than 0; a float is taken exactly, as a rational number.
    sampler : {"exact", "table"}
        "exact" has no delta and takes about 0.2 microseconds for a draw; "table" takes nanoseconds, for scales up to
        about 5,800.

    Attributes
    ----------
    scale : Fraction
        As given.
    sampler : {"exact", "table"}
        As given.
    total_variation : Fraction
        Proved upper bound on the total-variation distance between one draw and the distribution above.

    Notes
    -----
    The exact sampler draws uniform integers from random bits by rejection, and every coin by comparing integers.  So a
    draw has exactly the stated distribution if the bits are uniform, without floating point.  See
    docs/explanation/mechanisms/noise/discrete-laplace.md.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Algorithms 1
       and 2.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import DiscreteLaplace
    >>> noise = DiscreteLaplace(20)
    >>> noise.exact_epsilon(sensitivity=10)
    Fraction(1, 2)
    >>> draws = noise.sample(5000, key=Key.from_seed(1), purpose="demo")
    >>> bool(0.9 < draws.var() / noise.variance < 1.1)
    True
    """

    _purpose = "discrete_laplace.privatize"

    def __init__(self, scale: Fraction | int | float, *, sampler: str = "exact"):
        self.scale = check_exact("scale", scale, low=0, exclusive=True)
        check_choice("sampler", sampler, ("exact", "table"))
        super().__init__(laplace_table(self.scale) if sampler == "table" else None)

    def exact_epsilon(self, sensitivity: Fraction | int | float = 1) -> Fraction:
        """Return the exact epsilon of one release: sensitivity / scale, in nats; the table adds `delta`.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            Maximum change of the integers by one user, in sum of absolute values; a public number.

        Returns
        -------
        Fraction
            Epsilon, at least 0.
        """
        return check_exact("sensitivity", sensitivity, low=0) / self.scale

    def epsilon(self, sensitivity: Fraction | int | float = 1) -> float:
        """Return the epsilon of one release, in nats: `exact_epsilon` rounded up; the table adds `delta`.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            Maximum change by one user, as for `exact_epsilon`.

        Returns
        -------
        float
            Smallest float that is at least `exact_epsilon`.
        """
        return float_up(self.exact_epsilon(sensitivity))

    @property
    def variance(self) -> float:
        """Variance of one draw: 2 p / (1 - p)^2 with p = exp(-1 / scale).

        Returns
        -------
        float
            Near 2 * scale^2 for a large scale, and infinite if that overflows.
        """
        rate = 1 / float(self.scale)
        # exp and expm1 of the same rate keep all digits at a large scale, where p is near 1.
        root = math.exp(-rate / 2) / math.expm1(-rate)
        return 2 * root * root

    def _opendp_space(self, dp: Any) -> Space:
        return self._opendp_vectors(dp, dp.l1_distance(T="i64"), dp.max_divergence(), self.exact_epsilon)

    def _draws(self, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
        return sample_laplace(self.scale, size, key, purpose, round_number)

    def __repr__(self) -> str:
        return f"DiscreteLaplace(scale={self.scale}, sampler={self.sampler!r})"
