"""Clipping of whole model updates, and integer noise on their sum."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec.accounting import Gaussian
from fastfedrec.core.exact_sums import INT64_LIMIT, check_summands, max_summands
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import RoundedGaussian, clip_rows_l2, gaussian_noise

# Standard deviation of the noise in steps of the grid.  The steps are so small that truncation hardly changes an update
# of many small numbers.
_STEPS = 2**40


@dataclass(frozen=True)
class UpdateNoise:
    """Clipping to a norm, truncation to whole steps, and integer noise on the sum of a cohort."""

    clip_norm: float
    noise_multiplier: float
    # A power of two, so that products with it have no rounding error.
    step: float
    mechanism: RoundedGaussian

    @classmethod
    def calibrated(cls, clip_norm: float, noise_multiplier: float, n_nodes: int) -> "UpdateNoise":
        # Replacing one clipped update moves the sum by at most twice the norm.
        size = Fraction(noise_multiplier) * 2 * Fraction(clip_norm)
        step = Fraction(2) ** math.ceil(math.log2(size / _STEPS))
        n_max = max_summands(math.ceil(Fraction(clip_norm) / step), INT64_LIMIT // 2)
        check_summands("n_nodes", n_nodes, n_nodes, n_max, "use fewer nodes, or a smaller epsilon")
        return cls(clip_norm, noise_multiplier, float(step), gaussian_noise(size / step))

    def steps(self, update: np.ndarray) -> np.ndarray:
        """Return a clipped update in whole steps, truncated so that its norm does not grow."""
        return np.trunc(clip_rows_l2(update[None], self.clip_norm)[0] / self.step).astype(np.int64)

    def event(self, sampling_probability: float, size: int) -> Gaussian:
        """Return the event of the noisy sum of updates of `size` numbers."""
        return Gaussian(
            self.mechanism.noise_multiplier(2 * Fraction(self.clip_norm) / Fraction(self.step)),
            "integer Gaussian noise on the sum of clipped updates of nodes",
            neighboring="replace",
            sampling="poisson",
            sampling_probability=sampling_probability,
            contribution=0.5,
            distance=self.mechanism.total_variation_of(size),
        )

    def release(self, total: np.ndarray, key: Key, round_number: int) -> np.ndarray:
        """Return the noisy sum in the unit of the updates."""
        noisy = self.mechanism.add_noise(total, key=key, purpose="engines.flower.private", round=round_number)
        return noisy * self.step
