"""Discrete Gaussian noise, sampled exactly, or fast from a table with a stated delta."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice, check_exact
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms._opendp import Space
from fastfedrec.mechanisms.noise.exact_sampling import sample_gaussian
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.mechanisms.noise.noise_table import gaussian_table

__all__ = ["DiscreteGaussian"]

_LARGE_VARIANCE = 9.0  # above it the discrete distribution's variance equals stddev^2 in double precision


class DiscreteGaussian(IntegerNoise):
    """Integer noise with probability proportional to ``exp(-x**2 / (2 stddev**2))``.

    **Guarantee.** Adding independent draws to integers that adding or removing one user ("add_remove", privacy unit
    "user") changes by at most `sensitivity` in Euclidean norm is rho-zero-concentrated differentially private with
    rho = sensitivity^2 / (2 stddev^2), against everyone who sees the sums; the server that adds the noise is trusted
    ("central").  With ``sampler="table"`` every (epsilon, delta) that follows has the additional delta that `delta`
    states for a number of draws.

    Parameters
    ----------
    stddev : Fraction, int or float
        Parameter sigma of the noise, greater than 0; a float is taken exactly, as a rational number.
    sampler : {"exact", "table"}
        "exact" takes about 0.3 microseconds for a draw, or 10 if `stddev` has many digits; "table" takes nanoseconds,
        for `stddev` up to about 39,000.

    Attributes
    ----------
    stddev : Fraction
        As given.
    sampler : {"exact", "table"}
        As given.
    total_variation : Fraction
        Proved upper bound on the total-variation distance between one draw and the distribution above.

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
        """Return the exact zCDP cost of one release: sensitivity^2 / (2 stddev^2).

        With the table this is the cost of the ideal noise, and every (epsilon, delta) that follows has the additional
        delta of `delta`.

        Parameters
        ----------
        sensitivity : Fraction, int or float
            Maximum change of the integers by one user, in Euclidean norm; a public number.

        Returns
        -------
        Fraction
            Cost in zero-concentrated differential privacy, at least 0.
        """
        return check_exact("sensitivity", sensitivity, low=0) ** 2 / (2 * self.stddev**2)

    @property
    def variance(self) -> float:
        """Variance of one draw of the ideal distribution.

        Returns
        -------
        float
            Slightly below stddev^2 if `stddev` is near 1 or smaller, and equal to it in double precision above 3;
            infinite if that overflows.
        """
        stddev = float(self.stddev)
        variance = stddev * stddev
        if variance > _LARGE_VARIANCE:
            return variance
        # Below 1 the series of the distribution converges fast; above, its Poisson summation does.
        if variance < 1:
            ratios = [(x, x / stddev) for x in range(1, 42)]
            weights = [(x, math.exp(-ratio * ratio / 2)) for x, ratio in ratios]
            return 2 * math.fsum(x * x * w for x, w in weights) / (1 + 2 * math.fsum(w for _, w in weights))
        terms = [(n, math.exp(-2 * math.pi**2 * variance * n * n)) for n in range(1, 4)]
        total = 1 + 2 * math.fsum(w for _, w in terms)
        loss = 2 * math.fsum(4 * math.pi**2 * variance * n * n * w for n, w in terms)
        return variance * (1 - loss / total)

    def _opendp_space(self, dp: Any) -> Space:
        return self._opendp_vectors(dp, dp.l2_distance(T="f64"), dp.zero_concentrated_divergence(), self.rho)

    def _draws(self, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
        return sample_gaussian(self.stddev**2, size, key, purpose, round_number)

    def __repr__(self) -> str:
        return f"DiscreteGaussian(stddev={self.stddev}, sampler={self.sampler!r})"
