"""Central privacy of FedRec: clipping on the devices, and the server's noise on sums and on counts of raters."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec.accounting import Gaussian
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import RoundedGaussian
from fastfedrec.systems.gradient_rounds.devices import count_raters

__all__ = ["SCALE_BITS", "CentralPrivacy"]

SCALE_BITS = 32  # fractional bits of a gradient: steps of 2.3e-10

_NOISE = "fedrec.noise"
_COUNT_NOISE = "fedrec.count_noise"
_MAX_STDDEV = 2**12  # of noise in steps: its table takes a second to compute, and eight seconds at 2^15


@dataclass(frozen=True)
class CentralPrivacy:
    """Noise on sums of clipped gradients, which are divided by `divisor` or by noisy counts of `max_items` items."""

    clip_norm: float
    noise_multiplier: float
    divisor: float | None
    max_items: int | None

    @property
    def scale(self) -> float:
        """Steps of a gradient of 1; fewer than 2^32 if the noise would not fit into its table."""
        # The largest power of two for which the noise fits into its table.
        max_bits = math.floor(math.log2(_MAX_STDDEV / (self.noise_multiplier * self.clip_norm)))
        return 2.0 ** min(max_bits, SCALE_BITS)

    @property
    def clip_steps(self) -> Fraction:
        """Norm of one user's contribution, in steps."""
        return Fraction(self.clip_norm) * Fraction(self.scale)

    # ---- sums of gradients --------------------------------------------------------------------------------------

    @property
    def noise(self) -> RoundedGaussian:
        """Noise on each coordinate of a round's sums, in steps."""
        return RoundedGaussian(Fraction(self.noise_multiplier) * self.clip_steps)

    def add_noise(self, sums: np.ndarray, key: Key, round_number: int) -> np.ndarray:
        """Return the noisy sums of a round."""
        return self.noise.add_noise(np.ascontiguousarray(sums), key=key, purpose=_NOISE, round=round_number)

    def round_event(self, n_sums: int) -> Gaussian:
        """Return the event of a round with this number of noisy sums."""
        name = "clipped gradients with noise on their sums"
        # The contributions of two users may be opposite.
        return self._noise_event(name, self.noise, 2 * self.clip_steps, n_sums)

    def _noise_event(self, name: str, noise: RoundedGaussian, sensitivity: Fraction, n_draws: int) -> Gaussian:
        """Return the event of a release of noisy sums for replacing a user."""
        # Participation is public, and the cohort is drawn from a public seed, so it amplifies no privacy.  A replaced
        # user changes the sum by the difference of two contributions.  A user without data may still report virtual
        # items, so no smaller sensitivity is proved for it.
        multiplier, distance = noise.noise_multiplier(sensitivity), noise.total_variation_of(n_draws)
        return Gaussian(multiplier, name, neighboring="replace", sampling="none", distance=distance)

    # ---- divisors of the sums -----------------------------------------------------------------------------------

    def divisors(self, interactions: Interactions, client_share: float, key: Key) -> np.ndarray:
        """Return the divisors of each item's sums, from public numbers or with noise."""
        if self.divisor is not None:
            return np.full(interactions.n_items, float(self.divisor))
        counts = count_raters(interactions, self.max_items, key, 1).astype(np.int64)
        counts = np.maximum(self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE), 1)
        return np.maximum(counts * client_share, 1.0)  # expected number of raters in a cohort

    @property
    def count_noise(self) -> RoundedGaussian:
        """Noise on the counts of raters, which are released once, with the multiplier of a round's sums."""
        # Norm of one user's counts, rounded up.
        sensitivity = Fraction(math.nextafter(math.sqrt(self.max_items or 1), math.inf))
        # The noise table needs a standard deviation of at least 1/2.
        return RoundedGaussian(max(Fraction(self.noise_multiplier) * sensitivity, Fraction(1, 2)))

    @property
    def replaced_count_sensitivity(self) -> Fraction:
        """Bound of the distance of two users' counts, which have at most `max_items` ones each, at different items."""
        return Fraction(math.nextafter(math.sqrt(2 * (self.max_items or 1)), math.inf))

    def count_event(self, n_items: int) -> Gaussian:
        """Return the event of the noisy counts of raters."""
        return self._noise_event("counts of raters", self.count_noise, self.replaced_count_sensitivity, n_items)
