"""Fields and theorems of releases with noise of a known distribution on sums."""

import functools
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from fastfedrec.accounting._noise_loss import Noise, opposite_loss, poisson_loss, symmetric_loss
from fastfedrec.accounting.events._central import CentralEvent
from fastfedrec.accounting.events._event import OPTIONAL, Event, EventLoss, store
from fastfedrec.core.check import check_real
from fastfedrec.core.numbers import float_up

# A larger noise multiplier is counted as this.
_MAX_NOISE = 1e300


@dataclass(frozen=True)
class NoiseEvent(CentralEvent):
    """Base class of releases of sums with noise, for which a bound on one contribution is known."""

    noise_multiplier: float
    mechanism: str
    contribution: float | None = field(default=None, kw_only=True, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_bounds()
        store(self, noise_multiplier=check_real("noise_multiplier", self.noise_multiplier, low=0.0, exclusive=True))

    def _check_bounds(self) -> None:
        """Check that `contribution` is None or in [0.5, 1] under "replace"."""
        if self.contribution is None:
            return
        if self.neighboring != "replace":
            raise ValueError(
                f"`contribution` must be None with neighboring={self.neighboring!r}, got {self.contribution!r}; "
                "the sensitivity itself bounds one unit's contribution there"
            )
        contribution = check_real("contribution", self.contribution, low=0.0)
        # Two contributions differ by the sensitivity at most, and by the triangle inequality by twice the contribution.
        if not 0.5 <= contribution <= 1:
            raise ValueError(
                f"`contribution` must be from 0.5 to 1, got {contribution!r}; it is the bound of one unit's "
                "contribution over the sensitivity, and two contributions differ by at most twice that bound"
            )
        store(self, contribution=contribution)

    def _opposite_noise(self) -> float | None:
        """Return noise over the bound of one contribution, rounded down, if two opposite ones state the cost."""
        # The theorem for two opposite contributions covers no other sampling or relation
        # (docs/explanation/accounting/poisson-replacement.md).
        if (self.sampling, self.neighboring) != ("poisson", "replace") or self.contribution is None:
            return None
        return -float_up(-Fraction(min(self.noise_multiplier, _MAX_NOISE)) / Fraction(self.contribution))

    def _noise_loss(self, noise: Noise) -> EventLoss:
        """Return the privacy loss of one use of noise of this distribution, and the number of uses."""
        self._check_sampling()
        if opposite_noise := self._opposite_noise():
            return functools.partial(opposite_loss, noise, opposite_noise, self.sampling_rate), self.count
        is_symmetric = self.sampling != "poisson" or self.neighboring == "replace"
        loss = symmetric_loss if is_symmetric else poisson_loss
        return functools.partial(loss, noise, self.noise_multiplier, self.sampling_rate), self.count

    def _noise_for_replacement(self, min_noise: float, sensitivity: float = 2, **cleared: Any) -> Event | None:
        """Restate the release for replacing a user; None if its noise is below `min_noise`."""
        if self.sampling == "without_replacement":
            return super()._for_replacement()
        self._check_sampling()
        if self.noise_multiplier < min_noise:
            return None
        # |f(D) - f(D')| <= |f(D) - f(D0)| + |f(D0) - f(D')|, where D0 is without the user or with none of the user's
        # data.  This is at most twice the sensitivity, unless the event states a smaller bound.
        return replace(
            self,
            neighboring="replace",
            noise_multiplier=-float_up(-Fraction(self.noise_multiplier) / Fraction(sensitivity)),  # rounded down
            contribution=0.5 if self.sampling == "poisson" else None,
            **cleared,
        )
