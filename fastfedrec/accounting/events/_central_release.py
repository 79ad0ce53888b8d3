"""Releases with an epsilon and a delta of their own."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.accounting import _renyi
from fastfedrec.accounting._loss import bounded_range_loss
from fastfedrec.accounting.events._central import CentralEvent, Neighboring, Sampling, described
from fastfedrec.accounting.events._event import OPTIONAL, Event, EventLoss, store
from fastfedrec.accounting.rounding import count_up, replaced_epsilon, stretched_delta, up
from fastfedrec.core.check import check_epsilon, check_integer, check_real
from fastfedrec.core.numbers import float_up


@described
@dataclass(frozen=True)
class CentralRelease(CentralEvent):
    """Release of a trusted server that saw the data, with an epsilon and an optional delta of its own.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    epsilon : float
        Epsilon of one release, in nats, before any sampling.
    neighboring : {"add_remove", "replace", "zero_out"}
        Neighbouring relation; the default is one that costs more in the ledger.
    sampling : {"none", "poisson", "without_replacement"}
        How the units of each release were drawn; the default is the one that costs more.
    delta : float
        Delta of one release, in [0, 1): 0 if the guarantee is pure.
    n_choices : int or None
        Number of exponential mechanisms that one release runs, one after the other, each of bounded range epsilon /
        n_choices.  Such a release costs less than others with this epsilon, and requires delta 0.  None for any other
        mechanism, such as permute-and-flip, noisy maxima with other noise than Gumbel's, or randomized response.
    """

    mechanism: str
    epsilon: float
    delta: float = field(default=0.0, kw_only=True)
    n_choices: int | None = field(default=None, kw_only=True, metadata=OPTIONAL)
    neighboring: Neighboring = field(default="add_remove", kw_only=True)
    sampling: Sampling = field(default="none", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, epsilon=check_epsilon("epsilon", self.epsilon))
        store(self, delta=check_real("delta", self.delta, low=0.0, high=1.0))
        if self.delta == 1:
            raise ValueError("delta must be less than 1, got 1.0; a release with delta 1 has no guarantee")
        if self.n_choices is not None:
            store(self, n_choices=check_integer("n_choices", self.n_choices, low=1))
            if self.delta:
                raise ValueError(
                    f"`delta` must be 0.0 with n_choices, got {self.delta!r}; state how far the sampler is from the "
                    "exponential mechanism as `distance`"
                )

    def _pure_cost(self) -> tuple[float, int] | None:
        return self._amplified(self.epsilon), self.count

    def _stated_delta(self) -> float:
        # Sampling amplifies the delta, too.
        rate = Fraction(self.sampling_probability or 1)
        if self.sampling == "without_replacement":
            rate = Fraction(self.cohort_size or 0, self.n_users or 1)
        return float_up(rate * Fraction(self.delta))

    def _choices(self) -> tuple[float, int] | None:
        """Return the range of one exponential mechanism, rounded up, and the number of choices, or None."""
        # Sampling does not keep ranges bounded.
        if self.n_choices is None or self.sampling != "none":
            return None
        return float_up(Fraction(self.epsilon) / self.n_choices), self.count * self.n_choices

    def _has_bounded_range(self) -> bool:
        return self._choices() is not None

    def _rho(self) -> float:
        if (choices := self._choices()) is None:
            return super()._rho()
        return up(count_up(choices[1]) * _renyi.bounded_range_rho(choices[0]))

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        if (choices := self._choices()) is None:
            return super()._divergences(orders)
        return count_up(choices[1]) * _renyi.bounded_range(orders, choices[0])

    def _loss(self) -> EventLoss:
        if (choices := self._choices()) is None:
            return super()._loss()
        return (lambda _: bounded_range_loss(choices[0])), choices[1]

    def _dp_event(self, dp: Any) -> tuple[Any, int]:
        return super()._dp_event(dp) if self.delta or self._has_bounded_range() else self._pure_dp_event(dp)

    def _for_replacement(self) -> Event | None:
        self._check_sampling()
        # Two steps by way of the data without the user.  Without sampling they cost 2 epsilon, and delta plus e^epsilon
        # times delta.
        both = replaced_epsilon(self.epsilon, self.sampling_rate)
        delta = stretched_delta(self._stated_delta(), both - self.epsilon)
        if delta >= 1 or math.isinf(both):
            return None
        # The ranges of the two steps add up.  Sampling does not keep a range bounded.
        n_choices = self.n_choices if self.sampling == "none" else None
        return CentralRelease(
            self.mechanism, both, delta=delta, neighboring="replace", sampling="none", count=self.count,
            trust=self.trust, distance=self.distance, n_choices=n_choices,
        )  # fmt: skip
