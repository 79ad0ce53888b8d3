"""Skellam noise, the difference of two Poisson variables: sums of independent draws are Skellam noise again."""

import math
from fractions import Fraction

import numpy as np

from fastfedrec.accounting.shares import SHARE_COUNTS, needed_shares
from fastfedrec.core.check import check_exact
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.mechanisms.noise.noise_table import skellam_table

__all__ = ["Skellam"]

# Smallest and largest variance, largest variance of one table (1.5 MB of thresholds), and digits of a larger one.
_LOWEST, _HIGHEST, _TABLE_VARIANCE, _STEP = Fraction(1, 2**10), 2**34, 2**28, 2**10
_INT64 = np.iinfo(np.int64)


class Skellam(IntegerNoise):
    """Integer noise with the distribution of the difference of two Poisson variables of mean variance / 2.

    **Guarantee.** Adding independent draws to integers that one user changes by at most `l1_sensitivity` in sum of
    absolute values and `l2_sensitivity` in Euclidean norm has the Renyi divergences of `SkellamRelease`, under the
    same neighbouring relation ("add_remove", "zero_out" or "replace"; privacy unit "user"), with the additional delta
    that `delta` states for the number of all draws; the server that adds the noise is trusted ("central").  With the
    draws of a `share` in each of many nodes and a secure aggregation, no server is trusted, and `SkellamShares` states
    the cost.

    Parameters
    ----------
    variance : Fraction, int or float
        Variance of a draw, from 2^-10 to 2^34; a float is taken exactly, as a rational number.

    Attributes
    ----------
    variance : Fraction
        As given; above 2^28 rounded up, by less than a hundred-thousandth.
    sampler : {"table"}
        Sampling method; there is no exact sampler.
    total_variation : Fraction
        Proved upper bound on the total-variation distance between one draw and the distribution above.

    Notes
    -----
    There is no finite pure epsilon.  A draw with a variance above 2^28 is the sum of up to 64 draws of one table.  See
    docs/explanation/mechanisms/noise/skellam.md.

    References
    ----------
    .. [1] Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially private federated learning", NeurIPS 2021,
       Corollary 3.6.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import Skellam
    >>> noise = Skellam(6500)
    >>> noise.share(n_nodes=1000, n_answers=950, honest_fraction=0.7)
    Skellam(variance=10)
    >>> noise.delta(epsilon=1.0, n_draws=10**8) < 1e-26
    True
    >>> draws = noise.sample(5000, key=Key.from_seed(1), purpose="demo")
    >>> bool(0.9 < draws.var() / float(noise.variance) < 1.1)
    True
    """

    #: The pure epsilon of one release, which is infinite.
    epsilon = math.inf

    _purpose = "skellam.privatize"

    def __init__(self, variance: Fraction | int | float):
        variance = check_exact("variance", variance)
        if not _LOWEST <= variance <= _HIGHEST:
            raise ValueError(
                f"variance must be from 2^-10 to 2^34, got {float(variance):g}; put the values on a "
                f"{'finer' if variance < _LOWEST else 'coarser'} grid"
            )
        self._n_parts = math.ceil(variance / _TABLE_VARIANCE)
        # Parts of a large variance have few digits, and are rounded up: the noise is never smaller than requested.
        part = variance if self._n_parts == 1 else Fraction(math.ceil(variance / self._n_parts / _STEP) * _STEP)
        self.variance, self.sampler, self._tables = part * self._n_parts, "table", (skellam_table(part),)
        self.total_variation = self._n_parts * self._tables[0].total_variation

    @shares_docstring(SHARE_COUNTS)
    def share(self, *, n_nodes: int, n_answers: int, honest_fraction: float) -> "Skellam":
        """Return the noise that each node adds, so that the shares that count have this variance in total.

        Returns
        -------
        Skellam
            Noise with the variance over ``max(0, n_answers - (1 - honest_fraction) * n_nodes)``.

        Raises
        ------
        ValueError
            No share counts: all answers may be from dishonest nodes.
        """
        return Skellam(self.variance / needed_shares(n_nodes, n_answers, honest_fraction))

    def _add_draws(self, values: np.ndarray, key: Key, purpose: str, round_number: int, n_threads: int) -> None:
        if self._n_parts == 1:
            return super()._add_draws(values, key, purpose, round_number, n_threads)
        draws = np.zeros_like(values)
        for part in range(self._n_parts):
            # Each part has a stream of its own, named by its number.
            super()._add_draws(draws, key, f"{purpose}.{part}", round_number, n_threads)
        # Sums saturate once, which is post-processing; the draws of parts must not saturate one after the other.
        np.clip(values, _INT64.min - np.minimum(draws, 0), _INT64.max - np.maximum(draws, 0), out=values)
        values += draws

    def __repr__(self) -> str:
        return f"Skellam(variance={self.variance})"
