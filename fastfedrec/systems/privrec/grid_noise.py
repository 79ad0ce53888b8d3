"""Central noise for sums of clipped real vectors: whole steps of a grid, so sums are exact and the claim is proved."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec.accounting import CentralRelease, Gaussian
from fastfedrec.core.exact_sums import DOUBLE_LIMIT, check_summands, max_summands
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import DiscreteLaplace, RoundedGaussian

__all__ = ["GridNoise", "check_grid_sums"]

# Of the noise, in steps of the grid: a finer grid than needed costs memory and time for the table of the draws.
_GAUSSIAN_STEPS = 2**14
_LAPLACE_STEPS = 2**12
_BLOCK = 2**15  # values that stay in a cache from one operation to the next


def check_grid_sums(kind: str, clip_norm: float, noise_multiplier: float, cohort_size: int) -> None:
    """Refuse a cohort whose sums of whole steps are not exact in double.

    Parameters
    ----------
    kind : {"gaussian", "laplace"}
        Of the noise.
    clip_norm, noise_multiplier : float
        As for `GridNoise`.
    cohort_size : int
        Clients of a round; public.

    Raises
    ------
    ValueError
        The noise is too small for the number of clients.
    """
    radius = math.ceil(Fraction(clip_norm) / _step(kind, clip_norm, noise_multiplier))
    remedy = "use more noise (a smaller epsilon), or a smaller cohort_size"
    check_summands("noise_multiplier", f"{noise_multiplier:g}", cohort_size, max_summands(radius, DOUBLE_LIMIT), remedy)


def _step(kind: str, clip_norm: float, noise_multiplier: float) -> Fraction:
    size = Fraction(noise_multiplier) * 2 * Fraction(clip_norm)
    return Fraction(2) ** math.ceil(math.log2(size / (_GAUSSIAN_STEPS if kind == "gaussian" else _LAPLACE_STEPS)))


@dataclass(frozen=True)
class GridNoise:
    """Noise on the sum of the vectors of a cohort, each within `clip_norm`; made by `calibrated`.

    Each vector is cut toward zero to whole steps of a grid of public size, so no norm grows; the step is a power of
    two, so that no rounding error occurs.  One vector for another moves the sum by at most 2 `clip_norm`.
    """

    mechanism: RoundedGaussian | DiscreteLaplace
    clip_norm: float
    noise_multiplier: float
    step: float

    @classmethod
    def calibrated(cls, kind: str, clip_norm: float, noise_multiplier: float) -> "GridNoise":
        """Noise whose standard deviation ("gaussian") or scale ("laplace") is `noise_multiplier` * 2 `clip_norm`."""
        size = Fraction(noise_multiplier) * 2 * Fraction(clip_norm)
        step = _step(kind, clip_norm, noise_multiplier)
        mechanism = (
            RoundedGaussian(size / step) if kind == "gaussian" else DiscreteLaplace(size / step, sampler="table")
        )
        return cls(mechanism, clip_norm, noise_multiplier, float(step))

    @property
    def clip_order(self) -> int:
        """In which norm vectors must be clipped: an l2 bound gives no guarantee under Laplace noise."""
        return 2 if isinstance(self.mechanism, RoundedGaussian) else 1

    @property
    def radius(self) -> float:
        """`clip_norm` in steps."""
        return self.clip_norm / self.step

    def to_grid(self, values: np.ndarray) -> np.ndarray:
        """Whole steps, written over `values` (1-d, clipped) where its type holds them."""
        steps_per_unit = 1 / self.step  # a power of two, so products are exact, or below 1 and cut to 0
        limits = np.finfo(values.dtype)
        if not (float(limits.tiny) <= steps_per_unit and max(steps_per_unit, 2 * self.radius) <= float(limits.max)):
            values = values.astype(np.float64)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            np.multiply(block, steps_per_unit, out=block)
            np.trunc(block, out=block)
        return values

    def release(self, total: np.ndarray, key: Key, purpose: str, round_number: int, n_threads: int) -> np.ndarray:
        """The noisy sum, in the vectors' own unit."""
        noisy = self.mechanism.add_noise(total, key=key, purpose=purpose, round=round_number, n_threads=n_threads)
        return noisy * self.step

    def event(
        self, n_users: int, cohort_size: int, n_draws: int, what: str = "clipped updates"
    ) -> Gaussian | CentralRelease:
        """One release of the sum of `what` over a cohort drawn without replacement."""
        kind = "gaussian" if self.clip_order == 2 else "laplace"
        check_grid_sums(kind, self.clip_norm, self.noise_multiplier, cohort_size)
        sensitivity = 2 * Fraction(self.clip_norm) / Fraction(self.step)
        distance = self.mechanism.total_distance(n_draws)
        if isinstance(self.mechanism, RoundedGaussian):
            return Gaussian(
                self.mechanism.noise_multiplier(sensitivity),
                f"rounded Gaussian on the sum of {what}",
                neighboring="replace",
                sampling="without_replacement",
                n_users=n_users,
                cohort_size=cohort_size,
                distance=distance,
            )
        epsilon = self.mechanism.epsilon(sensitivity)
        return CentralRelease(
            f"discrete Laplace on the sum of {what}",
            epsilon,
            neighboring="replace",
            sampling="without_replacement",
            n_users=n_users,
            cohort_size=cohort_size,
            distance=distance,
        )
