"""Discrete Laplace noise, sampled exactly, or fast from a table with a stated delta."""

import math
from fractions import Fraction

import numpy as np

from fastfedrec.core.check import check_choice, check_exact
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
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
        Greater than 0; a float is taken exactly, as the rational number it is.
    sampler : {"exact", "table"}
        "exact" has no delta and takes some .2 microseconds a draw; "table" takes nanoseconds, for scales up to about
        5,800.

    Attributes
    ----------
    scale : Fraction
        As given.
    sampler : {"exact", "table"}
        As given.
    distance : Fraction
        Proved upper bound of the total variation distance between one draw and the distribution above.

    Notes
    -----
    The exact sampler:
    Uniform integers come from random bits by rejection, and every coin is tossed by comparing integers, so a draw has
    exactly the stated distribution (given uniform bits), and nothing rests on floating point.  See
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
        """What one release costs, exactly: sensitivity / scale, in nats; with the table, together with `delta`.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            The most that one user changes the integers by, in sum of absolute values; a public number.

        Returns
        -------
        Fraction
            At least 0.
        """
        return check_exact("sensitivity", sensitivity, low=0) / self.scale

    def epsilon(self, sensitivity: Fraction | int | float = 1) -> float:
        """What one release costs, in nats: `exact_epsilon` rounded up; with the table, together with `delta`.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            As for `exact_epsilon`.

        Returns
        -------
        float
            The least float that is not below it.
        """
        return float_up(self.exact_epsilon(sensitivity))

    @property
    def variance(self) -> float:
        """The variance of one draw: 2 p / (1 - p)^2 with p = exp(-1 / scale).

        Returns
        -------
        float
            Near 2 * scale^2 for a large scale, and infinite where that is beyond floats.
        """
        rate = 1 / float(self.scale)
        root = math.exp(-rate / 2) / math.expm1(-rate)
        return 2 * root * root

    def _draws(self, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
        return sample_laplace(self.scale, size, key, purpose, round_number)

    def __repr__(self) -> str:
        return f"DiscreteLaplace(scale={self.scale}, sampler={self.sampler!r})"
