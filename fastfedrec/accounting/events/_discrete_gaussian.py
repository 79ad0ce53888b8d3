"""Discrete Gaussian noise on one whole number."""

import functools
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from fastfedrec.accounting._discrete_gaussian import LARGEST_STDDEV, discrete_gaussian_loss
from fastfedrec.accounting.events._central import CentralEvent, described
from fastfedrec.accounting.events._event import Event, EventLoss, UnsupportedEventError, store
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.numbers import float_up


@described
@dataclass(frozen=True)
class DiscreteGaussianRelease(CentralEvent):
    """One whole number with discrete Gaussian noise, released by a trusted server.

    Parameters
    ----------
    stddev : float
        Parameter of the noise, which is x with a probability in proportion to exp(-x^2 / (2 stddev^2)).
    sensitivity : int
        Maximum change of the number under `neighboring`.
    mechanism : str
        Name, for the ledger.
    sampling : {"none"}
        Required; any other value raises.
    sampling_probability, n_users, cohort_size : None
        Not used by this event.
    privacy_unit : {"user", "interaction"}
        Unit in which neighbouring data sets differ.

    Notes
    -----
    For several numbers of one unit with a joint L2 sensitivity, use a `ZCDP`.
    """

    stddev: float
    sensitivity: int
    mechanism: str = "discrete Gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampling", self.sampling, ("none",))
        stddev = check_real("stddev", self.stddev, low=0.0, exclusive=True)
        store(self, stddev=stddev, sensitivity=check_integer("sensitivity", self.sensitivity, low=1))

    def _rho(self) -> float:
        return float_up(self.count * Fraction(self.sensitivity) ** 2 / (2 * Fraction(self.stddev) ** 2))

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        return self._rho() * orders

    def _loss(self) -> EventLoss:
        if self.stddev > LARGEST_STDDEV:
            raise UnsupportedEventError(
                f"stddev must be at most {LARGEST_STDDEV:g} here, got {self.stddev:g}; use ZCDPAccountant"
            )
        return functools.partial(discrete_gaussian_loss, self.stddev, self.sensitivity), self.count

    def _for_replacement(self) -> Event | None:
        both = 2 * self.sensitivity
        return None if both >= 2**63 else replace(self, neighboring="replace", sensitivity=both)
