"""Central noise for sums of clipped real vectors, in whole steps of a grid: sums are exact, and the claim is proved."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec.accounting import CentralRelease, Gaussian
from fastfedrec.core.exact_sums import DOUBLE_LIMIT, check_summands, max_summands
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import DiscreteLaplace, RoundedGaussian

__all__ = ["GridNoise", "check_grid_sums"]

# Standard deviation or scale of the noise in steps of the grid; a finer grid needs a larger table of draws.
_GAUSSIAN_STEPS = 2**14
_LAPLACE_STEPS = 2**12
_BLOCK = 2**15  # values of a block, which stay in a cache between operations


def check_grid_sums(kind: str, clip_norm: float, noise_multiplier: float, cohort_size: int) -> None:
    """Raise `ValueError` if the sums of whole steps over a cohort are not exact in doubles: the noise is too small."""
    # Largest absolute entry of a vector, in steps.
    radius = math.ceil(Fraction(clip_norm) / _step(kind, clip_norm, noise_multiplier))
    remedy = "use more noise (a smaller epsilon), or a smaller cohort_size"
    check_summands("noise_multiplier", f"{noise_multiplier:g}", cohort_size, max_summands(radius, DOUBLE_LIMIT), remedy)


def _step(kind: str, clip_norm: float, noise_multiplier: float) -> Fraction:
    """Return the step of the grid, a power of two."""
    size = Fraction(noise_multiplier) * 2 * Fraction(clip_norm)
    return Fraction(2) ** math.ceil(math.log2(size / (_GAUSSIAN_STEPS if kind == "gaussian" else _LAPLACE_STEPS)))


@dataclass(frozen=True)
class GridNoise:
    """Noise on the sum of a cohort's vectors, each of norm at most `clip_norm`; made by `calibrated`.

    Each vector is truncated to whole steps of a public grid, which never raises its norm.  The step is a power of two,
    so there is no rounding error.  Replacing one vector changes the sum by at most 2 `clip_norm`.
    """

    mechanism: RoundedGaussian | DiscreteLaplace
    clip_norm: float
    noise_multiplier: float
    step: float

    @classmethod
    def calibrated(cls, kind: str, clip_norm: float, noise_multiplier: float) -> "GridNoise":
        """Return noise with standard deviation ("gaussian") or scale ("laplace") `noise_multiplier` * 2 `clip_norm`."""
        size = Fraction(noise_multiplier) * 2 * Fraction(clip_norm)
        step = _step(kind, clip_norm, noise_multiplier)
        mechanism = (
            RoundedGaussian(size / step) if kind == "gaussian" else DiscreteLaplace(size / step, sampler="table")
        )
        return cls(mechanism, clip_norm, noise_multiplier, float(step))

    @property
    def clip_order(self) -> int:
        """Order of the norm in which vectors must be clipped; an L2 bound gives no guarantee with Laplace noise."""
        return 2 if isinstance(self.mechanism, RoundedGaussian) else 1

    @property
    def radius(self) -> float:
        """Bound `clip_norm` in steps."""
        return self.clip_norm / self.step

    def to_grid(self, values: np.ndarray) -> np.ndarray:
        """Return whole steps, in place for `values` (1-d, clipped) if their type can hold them."""
        steps_per_unit = 1 / self.step  # a power of two, so products are exact, or below 1 and truncated to 0
        limits = np.finfo(values.dtype)
        if not (float(limits.tiny) <= steps_per_unit and max(steps_per_unit, 2 * self.radius) <= float(limits.max)):
            values = values.astype(np.float64)
        # In blocks, so that the second operation finds the values in the cache.
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            np.multiply(block, steps_per_unit, out=block)
            np.trunc(block, out=block)
        return values

    def release(self, total: np.ndarray, key: Key, purpose: str, round_number: int, n_threads: int) -> np.ndarray:
        """Return the noisy sum in the unit of the vectors."""
        noisy = self.mechanism.add_noise(total, key=key, purpose=purpose, round=round_number, n_threads=n_threads)
        return noisy * self.step

    def event(
        self, n_users: int, cohort_size: int, n_draws: int, what: str = "clipped updates"
    ) -> Gaussian | CentralRelease:
        """Return the event of one release of the sum of `what` over a cohort drawn without replacement."""
        kind = "gaussian" if self.clip_order == 2 else "laplace"
        check_grid_sums(kind, self.clip_norm, self.noise_multiplier, cohort_size)
        # Replacing one clipped vector moves the sum by at most twice the bound; truncation only shrinks vectors.
        sensitivity = 2 * Fraction(self.clip_norm) / Fraction(self.step)
        distance = self.mechanism.total_variation_of(n_draws)
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
