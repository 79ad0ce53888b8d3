"""Discrete Gaussian noise, sampled exactly, or fast from a table with a stated delta."""

import math
from fractions import Fraction

import numpy as np

from fastfedrec.core.check import check_choice, check_exact
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.noise.exact_sampling import sample_gaussian
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.mechanisms.noise.noise_table import gaussian_table

__all__ = ["DiscreteGaussian"]

_WIDE = 9.0  # a variance from which the discrete distribution's is the same in double precision


class DiscreteGaussian(IntegerNoise):
    """Integer noise with probability proportional to ``exp(-x**2 / (2 stddev**2))``.

    **Guarantee.** Adding independent draws to integers that adding or removing one user ("add_remove", privacy unit
    "user") changes by at most `sensitivity` in Euclidean norm is rho-zero-concentrated differentially private with
    rho = sensitivity^2 / (2 stddev^2), against everyone who sees the sums; the server that adds the noise is trusted
    ("central").  With ``sampler="table"`` every (epsilon, delta) that follows has the more delta that `delta` states
    for a number of draws.

    Parameters
    ----------
    stddev : Fraction, int or float
        Greater than 0; a float is taken exactly, as the rational number it is.
    sampler : {"exact", "table"}
        "exact" is exact and takes some .3 microseconds a draw, or 10 where `stddev` has many digits; "table" takes
        nanoseconds, for `stddev` up to about 39,000.

    Attributes
    ----------
    stddev : Fraction
        As given.
    sampler : {"exact", "table"}
        As given.
    distance : Fraction
        Proved upper bound of the total variation distance between one draw and the distribution above.

    Notes
    -----
    There is no finite pure epsilon.  An accountant turns rho into (epsilon, delta); see
    docs/explanation/mechanisms/noise/discrete-gaussian.md.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Theorem 4,
       Corollary 9 and Algorithm 3.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import DiscreteGaussian
    >>> noise = DiscreteGaussian(20, sampler="table")
    >>> noise.rho(sensitivity=10)
    Fraction(1, 8)
    >>> noise.delta(epsilon=1.0, n_draws=10**8) < 1e-26
    True
    >>> draws = noise.sample(5000, key=Key.from_seed(1), purpose="demo")
    >>> bool(0.9 < draws.var() / noise.variance < 1.1)
    True
    """

    #: The pure epsilon of one release, which is infinite: the cost is `rho`.
    epsilon = math.inf

    _purpose = "discrete_gaussian.privatize"

    def __init__(self, stddev: Fraction | int | float, *, sampler: str = "exact"):
        self.stddev = check_exact("stddev", stddev, low=0, exclusive=True)
        check_choice("sampler", sampler, ("exact", "table"))
        super().__init__(gaussian_table(self.stddev) if sampler == "table" else None)

    def rho(self, sensitivity: Fraction | int | float = 1) -> Fraction:
        """What one release costs, exactly: sensitivity^2 / (2 stddev^2), in zero-concentrated differential privacy.

        With the table this is the ideal's cost: every (epsilon, delta) that follows has the more delta of `delta`.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            The most that one user changes the integers by, in Euclidean norm; a public number.

        Returns
        -------
        Fraction
            At least 0.
        """
        return check_exact("sensitivity", sensitivity, low=0) ** 2 / (2 * self.stddev**2)

    @property
    def variance(self) -> float:
        """The variance of one draw of the ideal distribution.

        Returns
        -------
        float
            A little below stddev^2 where `stddev` is near 1 or less, and equal to it in double precision above 3;
            infinite where that is beyond floats.
        """
        stddev = float(self.stddev)
        variance = stddev * stddev
        if variance > _WIDE:
            return variance
        # The series of the distribution where it has few terms, and Poisson's summation of it where it has many.
        if variance < 1:
            ratios = [(x, x / stddev) for x in range(1, 42)]
            weights = [(x, math.exp(-ratio * ratio / 2)) for x, ratio in ratios]
            return 2 * math.fsum(x * x * w for x, w in weights) / (1 + 2 * math.fsum(w for _, w in weights))
        terms = [(n, math.exp(-2 * math.pi**2 * variance * n * n)) for n in range(1, 4)]
        total = 1 + 2 * math.fsum(w for _, w in terms)
        loss = 2 * math.fsum(4 * math.pi**2 * variance * n * n * w for n, w in terms)
        return variance * (1 - loss / total)

    def _draws(self, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
        return sample_gaussian(self.stddev**2, size, key, purpose, round_number)

    def __repr__(self) -> str:
        return f"DiscreteGaussian(stddev={self.stddev}, sampler={self.sampler!r})"
