"""Gaussian noise on sums."""

import math
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from fastfedrec.accounting import _renyi
from fastfedrec.accounting._noise_loss import GAUSSIAN
from fastfedrec.accounting.events._central import described, replaced_words
from fastfedrec.accounting.events._event import OPTIONAL, Event, EventLoss, UnsupportedEventError, store
from fastfedrec.accounting.events._noise import NoiseEvent
from fastfedrec.accounting.rounding import LARGEST_EXPONENT, count_up
from fastfedrec.core.check import check_real
from fastfedrec.core.numbers import float_up

# Below this noise multiplier even the rho of one release is beyond the largest float.
_MIN_NOISE = 1e-154


@described
@dataclass(frozen=True)
class Gaussian(NoiseEvent):
    """Sums with Gaussian noise, continuous or rounded after it was added, released by a trusted server.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the L2 sensitivity under `neighboring`.  For vectors clipped to norm S the
        sensitivity is S if a user is added, removed, or left without data.  It is at most 2 S if a user is replaced.
        Either covers leaving a user out, as sampling does.
    mechanism : str
        Name, for the ledger.
    contribution : float or None
        Under "replace": the largest norm of one unit's contribution over the sensitivity, in [0.5, 1].  Only Poisson
        sampling uses it.  None means not stated, and counts as 1.
    replace_sensitivity : float or None
        Under "add_remove" or "zero_out" without sampling: the largest distance between the contributions of two units
        over the sensitivity, in [1, 2].  The square root of 2 holds for contributions with non-negative inner products.
        None counts as 2, which always holds.
    """

    mechanism: str = "Gaussian"
    replace_sensitivity: float | None = field(default=None, kw_only=True, metadata=OPTIONAL)

    def _check_bounds(self) -> None:
        """Check that `replace_sensitivity` is None or in [1, 2], without sampling and not under "replace"."""
        super()._check_bounds()
        if self.replace_sensitivity is None:
            return
        if self.neighboring == "replace":
            raise ValueError(
                f"`replace_sensitivity` must be None with neighboring='replace', got {self.replace_sensitivity!r}; "
                "divide noise_multiplier by it instead"
            )
        if self.sampling != "none":
            raise ValueError(
                f"`replace_sensitivity` must be None with sampling={self.sampling!r}, got "
                f"{self.replace_sensitivity!r}; two opposite contributions state the cost there"
            )
        sensitivity = check_real("replace_sensitivity", self.replace_sensitivity, low=0.0)
        if not 1 <= sensitivity <= 2:
            raise ValueError(
                f"`replace_sensitivity` must be from 1 to 2, got {sensitivity!r}; it is the largest distance between "
                "two contributions over the sensitivity, and the triangle inequality bounds it by 2"
            )
        store(self, replace_sensitivity=sensitivity)

    def _proved_samplings(self) -> tuple[tuple[str, str], ...]:
        # Under "replace" the sensitivity also bounds one contribution, unless `contribution` states a smaller bound
        # (docs/explanation/accounting/poisson-replacement.md).
        return (*super()._proved_samplings(), ("poisson", "zero_out"), ("poisson", "replace"))

    def _opposite_noise(self) -> float | None:
        noise = super()._opposite_noise()
        if noise is None or self.contribution is None:
            return None
        # The pair of sampling without replacement at the sensitivity dominates as well, so either choice is an upper
        # bound.  The latter is used if its chi-squared divergence for rare samples is smaller.
        inverse = 1 / self.noise_multiplier
        square = min(inverse * inverse, LARGEST_EXPONENT)
        return None if 4 * math.sinh(self.contribution**2 * square) > math.expm1(square) else noise

    def _unsampled_rho(self) -> float:
        """Return the rho of all uses without regard to sampling, rounded up; infinite above the largest float."""
        return float_up(self.count / (2 * Fraction(self.noise_multiplier) ** 2))

    def _rho(self) -> float:
        if self.sampling != "none":
            raise UnsupportedEventError("zCDP has no amplification by sampling; use RDPAccountant or PLDAccountant")
        return self._unsampled_rho()

    def _squared_mu(self) -> Fraction:
        if self.sampling != "none":
            raise UnsupportedEventError("sampled rounds have no Gaussian differential privacy")
        return self.count / Fraction(self.noise_multiplier) ** 2

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        self._check_sampling()
        plain = self._unsampled_rho() * orders
        if self.sampling == "none":
            return plain
        # Sampling never raises the divergences, so the bound without sampling holds as well.
        noise = self._opposite_noise()
        pair = _renyi.fixed_size_gaussian if self.neighboring == "replace" else _renyi.poisson_gaussian
        pair = _renyi.opposite_gaussian if noise else pair
        sampled = _sampled(pair, self.sampling_rate, noise or self.noise_multiplier, orders.tobytes())
        return np.minimum(count_up(self.count) * sampled, plain)

    def _loss(self) -> EventLoss:
        if self.sampling == "none":
            return 1 / Fraction(self.noise_multiplier) ** 2, self.count
        return self._noise_loss(GAUSSIAN)

    def _dp_event(self, dp: Any) -> tuple[Any, int]:
        # The noise there is over the largest norm of one unit, and replacing a unit changes a sum by up to twice it.
        noise: float | None = min(2 * self.noise_multiplier, sys.float_info.max)
        if self.sampling == "poisson":
            noise = self._opposite_noise()
        if noise is None or self.sampling == "without_replacement":
            return super()._dp_event(dp)
        # RdpAccountant (0.6) takes unsampled noise over the sensitivity for replacing, and would state half the
        # epsilon.  It refuses Poisson sampling under REPLACE_ONE, and sampling with probability 1 changes no cost.
        return dp.PoissonSampledDpEvent(self.sampling_rate, dp.GaussianDpEvent(noise)), self.count

    def _for_replacement(self) -> Event | None:
        return self._noise_for_replacement(_MIN_NOISE, self.replace_sensitivity or 2, replace_sensitivity=None)

    def _details(self) -> str:
        return super()._details() + replaced_words(self.replace_sensitivity)


# The rounds of a run share their divergences.
@lru_cache(maxsize=128)
def _sampled(pair, rate, noise_multiplier, orders_bytes):
    """Return the divergences of a pair under sampling."""
    orders = np.frombuffer(orders_bytes)
    return _renyi.divergences(orders, pair(orders, rate, noise_multiplier))
