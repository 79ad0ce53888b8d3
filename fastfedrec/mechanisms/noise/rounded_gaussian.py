"""Normal noise rounded to integers: post-processing of the Gaussian mechanism, with sums that merge exactly."""

import math
import sys
from fractions import Fraction

from fastfedrec.core.check import check_exact
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.mechanisms.noise.noise_table import rounded_gaussian_table

__all__ = ["RoundedGaussian"]


class RoundedGaussian(IntegerNoise):
    """Integer noise with the distribution of round(N(0, stddev^2)).

    **Guarantee.** Adding independent draws to integers that one user changes by at most `sensitivity` in Euclidean
    norm satisfies every guarantee that the continuous Gaussian mechanism with noise multiplier stddev / sensitivity
    satisfies, under the same neighbouring relation ("add_remove" or "replace", as `sensitivity` was bounded; privacy
    unit "user"), subsampled and composed alike, with the additional delta that `delta` states for the number of all
    draws; the server that adds the noise is trusted ("central").

    Parameters
    ----------
    stddev : Fraction, int or float
        Standard deviation of the normal noise, from 1/2 to about 39,000; a float is taken exactly, as a rational
        number.

    Attributes
    ----------
    stddev : Fraction
        As given.
    sampler : {"table"}
        Sampling method; there is no exact sampler.
    total_variation : Fraction
        Proved upper bound on the total-variation distance between one draw and the distribution above.

    Notes
    -----
    An integer plus round(N) is round(integer + N), so rounding is post-processing of the continuous mechanism.  The
    sampler computes no normal numbers.  Integer arithmetic on series gives the probability of each integer, and a table
    of 128-bit thresholds gives the draws, so the distance from round(N) is proved.  The integers must be rounded toward
    zero after clipping, so that the norm does not grow.  See docs/explanation/mechanisms/noise/rounded-gaussian.md.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import RoundedGaussian
    >>> noise = RoundedGaussian(20)
    >>> noise.noise_multiplier(sensitivity=10)
    2.0
    >>> noise.delta(epsilon=1.0, n_draws=10**8) < 1e-26
    True
    >>> draws = noise.sample(5000, key=Key.from_seed(1), purpose="demo")
    >>> bool(0.9 < draws.var() / noise.variance < 1.1)
    True
    """

    #: The pure epsilon of one release, which is infinite, as for every Gaussian mechanism.
    epsilon = math.inf

    _purpose = "rounded_gaussian.privatize"

    def __init__(self, stddev: Fraction | int | float):
        self.stddev = check_exact("stddev", stddev)
        if self.stddev < Fraction(1, 2):
            raise ValueError(f"stddev must be at least 1/2, got {float(self.stddev):g}; put the values on a finer grid")
        super().__init__(rounded_gaussian_table(self.stddev))

    def noise_multiplier(self, sensitivity: Fraction | int | float = 1) -> float:
        """Return the noise multiplier for accountants: stddev / sensitivity, rounded down.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            Maximum change of the integers by one user, in Euclidean norm; greater than 0, a public number.

        Returns
        -------
        float
            Largest float that is at most the quotient.
        """
        exact = self.stddev / check_exact("sensitivity", sensitivity, low=0, exclusive=True)
        try:
            nearest = float(exact)
        except OverflowError:
            return sys.float_info.max
        return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)

    @property
    def variance(self) -> float:
        """Variance of one draw of the ideal distribution, near stddev^2 + 1/12.

        Returns
        -------
        float
            Exact to double precision.
        """
        # The characteristic function of the rounded normal, by Poisson summation; three terms are enough above 1/2.
        s2 = float(self.stddev) ** 2
        series = math.fsum(
            (-1) ** n * (1 / (math.pi * n) ** 2 + 4 * s2) * math.exp(-2 * math.pi**2 * s2 * n * n) for n in range(1, 4)
        )
        return s2 + 1 / 12 + series

    def __repr__(self) -> str:
        return f"{type(self).__name__}(stddev={self.stddev})"
