"""Noise that nodes add in shares before a secure aggregation: fields and views of its events, and Gaussian noise."""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fastfedrec.accounting.events._central import CentralEvent, described, replaced_words
from fastfedrec.accounting.events._event import OPTIONAL, Event, EventLoss, UnsupportedEventError, View, store
from fastfedrec.accounting.events._gaussian import Gaussian
from fastfedrec.accounting.shares import count_honest_shares
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.numbers import float_up

# Lowers a noise multiplier by more than the rounding errors of its computation.
_BELOW_ONE = 1 - 2.0**-40

#: Parameters of every event of noise in shares.
_SHARES = """\
n_nodes : int
    Number of nodes that were asked.
n_answers : int
    Number of nodes that answered, or the smallest planned number before the round.
honest_fraction : float
    Share of the asked nodes, in [0, 1], that add their noise and do not reveal it to the server.  All nodes that did
    not answer may be honest, so ``max(0, n_answers - (1 - honest_fraction) * n_nodes)`` shares count.
adding_fraction : float or None
    Share of the asked nodes, in [honest_fraction, 1], that add their noise, and reveal it to no one but the server.
    These count for the public, who does not collude with the server.  None counts as `honest_fraction`.
trust : {"aggregator"}
    The aggregation gives the server the sums alone; the server is not trusted with data or noise."""

described_shares = shares_docstring(_SHARES)


@dataclass(frozen=True, kw_only=True)
class SharedNoise(CentralEvent):
    """Base class of sums to which each node adds a share of the noise."""

    n_nodes: int
    n_answers: int
    honest_fraction: float
    adding_fraction: float | None = field(default=None, metadata=OPTIONAL)
    trust: Literal["aggregator"] = "aggregator"  # type: ignore[assignment]

    _TRUSTED: ClassVar[tuple[str, ...]] = ("aggregator",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampling", self.sampling, ("none",))
        n_nodes = check_integer("n_nodes", self.n_nodes, low=1)
        fraction = check_real("honest_fraction", self.honest_fraction, low=0.0, high=1.0)
        n_answers = check_integer("n_answers", self.n_answers, low=0, high=n_nodes)
        store(self, n_nodes=n_nodes, n_answers=n_answers, honest_fraction=fraction)
        if self.adding_fraction is not None:
            store(self, adding_fraction=check_real("adding_fraction", self.adding_fraction, low=fraction, high=1.0))

    def _n_shares(self, fraction: float) -> int:
        """Return the number of shares that count if a fraction of the asked nodes adds them."""
        return count_honest_shares(self.n_nodes, self.n_answers, fraction)

    def _seen_by(self, view: View) -> Event | None:
        fraction = self.adding_fraction if view == "public" and self.adding_fraction else self.honest_fraction
        if not (n_shares := self._n_shares(fraction)):
            return None
        counted = replace(self, n_nodes=n_shares, n_answers=n_shares, honest_fraction=1.0, adding_fraction=None)
        return super(SharedNoise, counted)._seen_by(view)

    def _answered_by(self, n_nodes: int) -> Self:
        """Return the event for fewer answers."""
        return replace(self, n_answers=min(n_nodes, self.n_answers))

    def _details(self) -> str:
        return f", {self.n_answers:,} of {self.n_nodes:,} nodes, {self.honest_fraction:.3g} honest{super()._details()}"

    def _protection(self, view: View) -> str:
        return f"the noise of {self.n_answers:,} nodes that add their shares"

    def _exposure(self, view: View) -> str:
        return super()._exposure(view) if view == "key_holder" else "too few nodes answered for a share to count"


@described
@described_shares
@dataclass(frozen=True)
class GaussianShares(SharedNoise):
    """Sums of whole numbers to which each node adds a share of discrete Gaussian noise, before a secure aggregation.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of one share over the L2 sensitivity under `neighboring`.
    mechanism : str
        Name, for the ledger.
    replace_sensitivity : float or None
        The largest distance between the contributions of two units over the sensitivity, in [1, 2].  The square root of
        2 holds for contributions with non-negative inner products.  None counts as 2, which always holds.
    sampling : {"none"}
        Required; any other value raises.
    sampling_probability, n_users, cohort_size : None
        Not used by this event.

    Notes
    -----
    A sum of discrete Gaussians is nearly a discrete Gaussian [1]_, and so nearly a rounded normal variable.  The cost
    is the one of `Gaussian` noise with the variance of the shares that count.  `distance` bounds the remainder:
    ``LayeredGaussian.total_variation_of_shares``.

    References
    ----------
    .. [1] Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
       aggregation", ICML 2021.
    """

    noise_multiplier: float
    mechanism: str = "Gaussian noise in shares"
    replace_sensitivity: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = self._of_one_share()  # which checks the numbers
        store(self, noise_multiplier=noise.noise_multiplier, replace_sensitivity=noise.replace_sensitivity)

    def _of_one_share(self) -> Gaussian:
        """Return the event of a single share as noise."""
        return Gaussian(
            self.noise_multiplier,
            neighboring=self.neighboring,
            sampling="none",
            count=self.count,
            replace_sensitivity=self.replace_sensitivity,
        )

    def _squared_mu(self) -> Fraction:
        if not (n_shares := self._n_shares(self.honest_fraction)):
            raise UnsupportedEventError("no share of the noise counts; wait for more answers")
        return self._of_one_share()._squared_mu() / n_shares

    def _rho(self) -> float:
        return float_up(self._squared_mu() / 2)

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        return self._rho() * orders

    def _loss(self) -> EventLoss:
        return self._squared_mu() / self.count, self.count

    def _dp_event(self, dp: Any) -> tuple[Any, int]:
        one, n_shares = self._of_one_share(), self._n_shares(self.honest_fraction)
        # The factor is lowered by more than its rounding error.
        return replace(one, noise_multiplier=one.noise_multiplier * math.sqrt(n_shares) * _BELOW_ONE)._dp_event(dp)

    def _for_replacement(self) -> Event | None:
        one = self._of_one_share()._for_replacement()
        if not isinstance(one, Gaussian):
            return None
        return replace(self, neighboring="replace", noise_multiplier=one.noise_multiplier, replace_sensitivity=None)

    def _details(self) -> str:
        return super()._details() + replaced_words(self.replace_sensitivity)
