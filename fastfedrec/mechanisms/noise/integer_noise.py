"""The base of all integer noise: drawing, adding, and the delta of the table sampler."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.mechanisms.noise import integer_noise as _kernel
from fastfedrec.core.check import check_exact, check_instance, check_integer, check_real
from fastfedrec.core.numbers import float_up
from fastfedrec.core.old_names import OldAttribute
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.mechanisms._opendp import Space
from fastfedrec.mechanisms._randomizer import Randomizer
from fastfedrec.mechanisms.channels.channel import LARGEST_EPSILON, exp_lower
from fastfedrec.mechanisms.noise.noise_table import NoiseTable
from fastfedrec.mechanisms.report_checks import check_integers, report_array

__all__ = ["IntegerNoise"]

_INT64 = np.iinfo(np.int64)
_BLOCK = 65_536  # numbers whose intermediate results stay in the cache


def extra_delta(epsilon: float, total_variation: Fraction) -> float:
    """Return the delta that a sampler's distance from the ideal adds: (1 + e^epsilon) total_variation, rounded up.

    Parameters
    ----------
    epsilon : float
        At least 0, in nats.
    total_variation : Fraction
        Upper bound on the total-variation distance.

    Returns
    -------
    float
        Additional delta, at most 1.
    """
    epsilon = check_real("epsilon", epsilon, low=0.0)
    total_variation = check_exact("total_variation", total_variation, low=0)
    if total_variation == 0:
        return 0.0
    if epsilon > LARGEST_EPSILON:  # decimals overflow not far above e^1000000
        return 1.0
    # e^epsilon is 1 / e^-epsilon, and a lower bound of that denominator rounds the quotient up.
    return float_up(min((1 + 1 / exp_lower(-epsilon)) * total_variation, Fraction(1)))


class IntegerNoise(Randomizer[np.int64]):
    """Base of the noise mechanisms: symmetric noise on the integers, drawn exactly or by table.

    The base makes no privacy claim; each subclass states its guarantee.  `privatize` adds one draw to each integer as a
    complete release, with sums that saturate as in `add_noise`.  The exact sampler uses one thread.

    Parameters
    ----------
    table : NoiseTable or None
        Inverse table; None for the exact sampler.

    Attributes
    ----------
    sampler : {"exact", "table"}
        Sampling method.
    total_variation : Fraction
        Proved upper bound on the total-variation distance between one draw and the ideal distribution; 0 if exact.
    """

    _purpose = "integer_noise.privatize"
    _report_types = (np.int64,)

    distance = OldAttribute("total_variation")
    total_distance = OldAttribute("total_variation_of")

    def __init__(self, table: NoiseTable | None):
        self._tables: tuple[NoiseTable, ...] = () if table is None else (table,)
        self.sampler = "exact" if table is None else "table"
        self.total_variation = Fraction(0) if table is None else table.total_variation

    def delta(self, epsilon: float, n_draws: int = 1) -> float:
        """Return the delta that the sampler adds: (1 + e^epsilon) n_draws total_variation, rounded up.

        Parameters
        ----------
        epsilon : float
            Total epsilon of the combined release, in nats.
        n_draws : int
            Number of draws in the combined release.

        Returns
        -------
        float
            If ideal noise made the release (epsilon, d)-differentially private, this noise makes it
            (epsilon, d + delta)-differentially private.  0 for the exact sampler.
        """
        epsilon = check_real("epsilon", epsilon, low=0.0)
        n_draws = check_integer("n_draws", n_draws, low=0, high=None)
        return extra_delta(epsilon, n_draws * self.total_variation)

    def total_variation_of(self, n_draws: int) -> float:
        """Return the total-variation distance of `n_draws` draws from ideal ones, the `distance` of an event.

        Parameters
        ----------
        n_draws : int
            Number of draws in one release.

        Returns
        -------
        float
            Upper bound on the distance, at most 1 and rounded up; 0 for the exact sampler.
        """
        n_draws = check_integer("n_draws", n_draws, low=0, high=None)
        return min(float_up(n_draws * self.total_variation), 1.0)

    def sample(self, size: int, *, key: Key, purpose: str, round: int = 0, n_threads: int = 0) -> NDArray[np.int64]:
        """Draw noise.

        Parameters
        ----------
        size : int
            Number of draws.
        key : Key
            Source of the bits.  This call does not claim the key: the caller claims it once for a whole run.
        purpose : str
            Purpose of the noise, which names the random streams together with `round`.
        round : int
            Round number.  Use a new number for each call under one key and purpose, or the noise repeats.
        n_threads : int
            Number of threads, 0 for all; the draws do not depend on it, and the exact sampler uses one.

        Returns
        -------
        ndarray of shape (size,), int64
            Draws.  A draw beyond the range of int64 is clipped to that range; `add_noise` is exact there as well.
        """
        zeros = np.zeros(check_integer("size", size, low=0), dtype=np.int64)
        return self._add(zeros, key, purpose, round, zeros, resolve_n_threads(n_threads))

    def add_noise(
        self,
        values: ArrayLike,
        *,
        key: Key,
        purpose: str,
        round: int = 0,
        out: np.ndarray | None = None,
        n_threads: int = 0,
    ) -> NDArray[np.int64]:
        """Add one draw to each integer as one part of a larger run; sums saturate at the ends of int64.

        Parameters
        ----------
        values : array_like of int
            Integers of any type and shape.
        key : Key
            Source of the bits.  This call does not claim the key: the caller claims it once for a whole run.
        purpose : str
            Purpose of the noise, which names the random streams together with `round`.
        round : int
            Round number.  Use a new number for each call under one key and purpose, or the noise repeats.
        out : ndarray of int64 or None
            Output array in the shape of `values`, or `values` itself; None makes a new array.
        n_threads : int
            Number of threads, 0 for all; the draws do not depend on it, and the exact sampler uses one.

        Returns
        -------
        ndarray of int64
            Noisy integers in the shape of `values`.  Exact sums are clipped to the range of int64, which is
            post-processing, so the guarantee holds without exception.
        """
        integers = self._prepare_values(values)
        out = report_array(out, integers, self._report_types)
        return self._add(integers, key, purpose, round, out, resolve_n_threads(n_threads))

    def estimate(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Convert noisy integers to floats: they are unbiased estimates, because the noise is symmetric.

        Parameters
        ----------
        reports : array_like of int
            Output of `privatize`.

        Returns
        -------
        ndarray of float64
            Estimates, in the shape of `reports`.
        """
        reports = check_integers("reports", reports, "use the values of privatize")
        return reports.astype(np.float64)

    def _opendp_space(self, dp: Any) -> Space:
        raise TypeError(f"OpenDP has no measure for noise from tables, got {self!r}; use DiscreteGaussian(stddev)")

    def _opendp_vectors(self, dp: Any, metric: Any, measure: Any, cost: Callable[[Any], Fraction]) -> Space:
        """Return the space of vectors of int64; `cost` is the exact cost of a distance."""
        if self._tables:
            raise TypeError(f"OpenDP has no measure for noise from tables, got {self!r}; use sampler='exact'")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        return Space(domain, metric, measure, lambda distance: float_up(cost(distance)), False)

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        return check_integers("values", values, "put them on an integer grid first")

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        self._add(values, key, self._purpose, round_number, out, n_threads)

    def _add(
        self, values: np.ndarray, key: Key, purpose: str, round_number: int, out: np.ndarray, n_threads: int
    ) -> NDArray[np.int64]:
        """Write the sums of values and draws to `out`."""
        if not self._tables:
            draws = self._draws(values.size, key, purpose, round_number).reshape(values.shape)
            if draws.dtype == np.int64 and values.dtype != np.uint64:
                return _add_saturating(values, draws, out)
            # Python's integers hold the exact sums, so that they are clipped and do not wrap around.
            out[...] = np.clip(values.astype(object) + draws, _INT64.min, _INT64.max)
            return out
        check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
        round_number = check_integer("round", round_number, low=0, high=2**32 - 1)
        # The kernel adds in place, so `out` starts as a copy of the values.
        _copy_integers(values, out)
        self._add_draws(out.reshape(-1), key, purpose, round_number, n_threads)
        return out

    def _add_draws(self, values: np.ndarray, key: Key, purpose: str, round_number: int, n_threads: int) -> None:
        """Add draws by table in place, with saturation."""
        (table,) = self._tables
        _kernel.add_noise(
            values, table.high, table.low, table.guide, key.subkey(purpose), table.shift, round_number, n_threads
        )

    def _draws(self, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
        """Return exact draws as int64, or as Python's integers if one is beyond int64."""
        raise NotImplementedError


def _copy_integers(values: np.ndarray, out: np.ndarray) -> None:
    """Copy integers to int64; a uint64 above the range of int64 counts as its maximum."""
    if values.dtype.kind == "u":
        np.minimum(values, np.uint64(_INT64.max), out=out, casting="unsafe")
    elif out is not values:
        np.copyto(out, values)


def _add_saturating(values: np.ndarray, draws: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the sums, limited to int64, in a time that depends on no value."""
    _copy_integers(values, out)
    flat, noise = out.reshape(-1), draws.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part, draw = flat[start : start + _BLOCK], noise[start : start + _BLOCK]
        total = part + draw  # modulo 2^64
        # Shifts by 63 give the sign: 0 or -1.  A sum is outside if both summands have another sign than it.
        is_outside = ((part ^ total) & (draw ^ total)) >> 63
        end = _INT64.max ^ (part >> 63)  # the end of the range on the side of the summands
        np.bitwise_xor(total, (total ^ end) & is_outside, out=part)
    return out
