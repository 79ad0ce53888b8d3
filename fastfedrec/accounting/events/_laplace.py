"""Laplace noise on one number."""

from dataclasses import dataclass

import numpy as np

from fastfedrec.accounting import _renyi
from fastfedrec.accounting._noise_loss import LAPLACE
from fastfedrec.accounting.events._central import described
from fastfedrec.accounting.events._event import Event, EventLoss
from fastfedrec.accounting.events._noise import NoiseEvent
from fastfedrec.accounting.rounding import count_up, inverse_up, replaced_epsilon

# Below this noise multiplier twice the epsilon of one release is beyond the largest float.
_MIN_NOISE = 1.2e-308


@described
@dataclass(frozen=True)
class Laplace(NoiseEvent):
    """One number with continuous Laplace noise, released by a trusted server.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise over the sensitivity under `neighboring`; one release without sampling costs its inverse.
    mechanism : str
        Name, for the ledger.
    contribution : float or None
        Under "replace": the maximum change of the number when one unit is left out, over the sensitivity, in [0.5, 1].
        Only Poisson sampling uses it, and Poisson sampling requires it.

    Notes
    -----
    For a vector with an L1 sensitivity, or discrete Laplace noise, use a `CentralRelease` with the pure epsilon.
    """

    mechanism: str = "Laplace"

    def _proved_samplings(self) -> tuple[tuple[str, str], ...]:
        # Only a `contribution` states how far a unit is from none.
        replaced = () if self.contribution is None else (("poisson", "replace"),)
        return super()._proved_samplings() + replaced

    def _pure_cost(self) -> tuple[float, int] | None:
        if noise := self._opposite_noise():
            return replaced_epsilon(inverse_up(noise), self.sampling_rate), self.count
        return self._amplified(inverse_up(self.noise_multiplier)), self.count

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        if self.sampling != "none":
            return super()._divergences(orders)
        logs = _renyi.laplace(orders, self.noise_multiplier)
        return count_up(self.count) * _renyi.divergences(orders, logs)

    def _loss(self) -> EventLoss:
        return super()._loss() if self.sampling == "without_replacement" else self._noise_loss(LAPLACE)

    def _for_replacement(self) -> Event | None:
        return self._noise_for_replacement(_MIN_NOISE)
