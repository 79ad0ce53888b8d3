"""Releases that are zero-concentrated differentially private."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfedrec.accounting.events._central import CentralEvent, described
from fastfedrec.accounting.events._event import Event, store
from fastfedrec.accounting.rounding import count_up, up
from fastfedrec.core.check import check_choice, check_real


@described
@dataclass(frozen=True)
class ZCDP(CentralEvent):
    """Release of a trusted server that is rho-zero-concentrated differentially private.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, such as the discrete Gaussian.
    rho : float
        Rho of one release; no theorem states it under sampling.
    sampling : {"none"}
        Required; any other value raises, because zCDP alone has no amplification theorem.
    sampling_probability, n_users, cohort_size : None
        Not used by this event.
    privacy_unit : {"user", "interaction"}
        Unit in which neighbouring data sets differ.
    """

    mechanism: str
    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampling", self.sampling, ("none",))
        store(self, rho=check_real("rho", self.rho, low=0.0, exclusive=True))

    def _rho(self) -> float:
        return up(count_up(self.count) * self.rho)

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        return self._rho() * orders

    def _dp_event(self, dp: Any) -> tuple[Any, int]:
        return dp.ZCDpEvent(self.rho), self.count

    def _for_replacement(self) -> Event | None:
        rho = 4 * self.rho
        return None if math.isinf(rho) else replace(self, neighboring="replace", rho=rho)
