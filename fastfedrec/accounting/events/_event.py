"""The base class of all events: the questions that accountants, views and ledgers ask, and their default answers."""

import math
from collections.abc import Callable, Iterator
from dataclasses import Field
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from fastfedrec.accounting import _renyi
from fastfedrec.accounting._loss import Loss, pure_loss
from fastfedrec.accounting.gaussian import pure_mu
from fastfedrec.accounting.rounding import UP, count_up, sum_up, up
from fastfedrec.core.check import check_instance

View = Literal["server", "shuffled_server", "public", "key_holder"]
# The privacy loss of one use, for a number of standard deviations that matter, and the number of uses.  Gaussian noise
# without sampling has its exact squared mu instead.
EventLoss = tuple[Fraction | Callable[[float], Loss], int]

# Words for a relation from which a ledger restates the cost.
_RESTATED = {
    "add_remove": ", proved for adding or removing a user (add_remove)",
    "zero_out": ", proved for a user's data against none (zero_out)",
}
# Metadata of a field that a ledger's document may lack, because documents were written before the field existed.
OPTIONAL = {"optional": True}


class UnsupportedEventError(TypeError):
    """Error for an event for which this package knows no theorem that states its cost."""


class Event:
    """Base class of all events, which are frozen dataclasses, with the theorems of an event that has a pure epsilon.

    A subclass overrides each method for which it has another theorem.
    """

    # Every subclass is a dataclass, which type checkers know by this.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    mechanism: str
    # The cost of one event is for this relation and this unit.
    neighboring: str
    privacy_unit: str
    # Number of uses, and total-variation distance of one use from the described mechanism.
    count: int = 1
    distance: float = 0.0
    # Whether messages hold data without noise, which the trusted shuffler sees.
    _has_open_messages: ClassVar[bool] = False

    # ---- the cost, for the event's own relation -----------------------------------------------------------------

    def _pure_cost(self) -> tuple[float, int] | None:
        """Return the pure epsilon of one use and the number of uses; None without a pure epsilon."""
        return None

    def _known_pure_cost(self) -> tuple[float, int]:
        """Return the pure cost, or raise."""
        if (cost := self._pure_cost()) is None:
            raise UnsupportedEventError("it has no pure epsilon")
        return cost

    def _pure_total(self) -> float | None:
        """Return the pure epsilon of all uses; None for an event that is stated at a delta."""
        takes_delta = self._stated_delta() or self.distance
        cost = None if takes_delta else self._pure_cost()
        return None if cost is None else sum_up([cost])

    def _stated_delta(self) -> float:
        """Return the delta that one use states itself, rounded up."""
        return 0.0

    def _rho(self) -> float:
        """Return the rho of all uses, rounded up."""
        epsilon, uses = self._known_pure_cost()
        # epsilon tanh(epsilon / 2) is the smallest rho that holds for all pure releases: randomized response attains it
        # at orders near 1 (docs/explanation/accounting/pure-releases.md).
        return up(count_up(uses) * up(epsilon * math.tanh(epsilon / 2)))

    def _squared_mu(self) -> Fraction:
        """Return mu^2 of all uses as Gaussian differential privacy, rounded up."""
        epsilon, uses = self._known_pure_cost()
        return uses * Fraction(pure_mu(epsilon)) ** 2

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        """Return the Renyi divergences of all uses at each order, rounded up."""
        epsilon, uses = self._known_pure_cost()
        logs = _renyi.randomized_response(orders, epsilon)
        return count_up(uses) * _renyi.divergences(orders, logs) if uses else np.zeros(len(orders))

    def _loss(self) -> EventLoss:
        """Return the privacy loss of one use and the number of uses."""
        epsilon, uses = self._known_pure_cost()
        return (lambda _: pure_loss(epsilon)), uses

    def _has_bounded_range(self) -> bool:
        """Return whether the event is counted as releases of bounded range."""
        return False

    # ---- views and crowds ---------------------------------------------------------------------------------------

    def _seen_by(self, view: View) -> "Event | None":
        """Return the event as an adversary without the key sees it, for replacing a user; None without a guarantee."""
        raise NotImplementedError

    def _leaves(self, times: int) -> "Iterator[tuple[Event, int]]":
        """Yield the elementary events of this one, and the number of times of each."""
        yield self, times

    def _without_crowd(self) -> "Event":
        """Return the event without its numbers of users, which differ between shards."""
        return self

    # ---- the package dp_accounting ------------------------------------------------------------------------------

    def _dp_event(self, dp: Any) -> tuple[Any, int]:
        """Return one use as an event of the module `dp` under REPLACE_ONE, and the number of uses; or raise."""
        raise UnsupportedEventError(f"dp_accounting has no event with the cost of {self!r}")

    def _pure_dp_event(self, dp: Any) -> tuple[Any, int]:
        """Return randomized response of one bit, which has the dominating pair of all pure releases."""
        epsilon, uses = self._known_pure_cost()
        # Its bit is random with probability 2 / (1 + e^epsilon); a smaller probability costs more.
        odds = math.exp(-epsilon)
        return dp.RandomizedResponseDpEvent(2 * odds / (1 + odds) / UP, 2), uses

    # ---- words of a ledger --------------------------------------------------------------------------------------

    def _details(self) -> str:
        """Return the numbers of a row's heading, and the relation for which the cost was proved."""
        return _RESTATED.get(getattr(self, "neighboring", ""), "")

    def _protection(self, view: View) -> str:
        """Return the source of a finite figure; for an event as `_seen_by` returns it."""
        return "the noise of each report"

    def _exposure(self, view: View) -> str:
        """Return the reason why there is no figure."""
        return "the key undoes the noise" if view == "key_holder" else "it sees the data"


def check_event(name: str, value: Any) -> Any:
    """Return `value` if it is an event, or raise.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    value : object
        Value that the caller passed.

    Returns
    -------
    event
        The value itself.

    Raises
    ------
    TypeError
        The value is not an event.
    """
    if not isinstance(value, Event):
        raise TypeError(f"{name} must hold events of fastfedrec.accounting, got {value!r} ({type(value).__name__})")
    return value


def check_name(event: Any) -> None:
    """Check that the name of the mechanism is text."""
    check_instance("mechanism", event.mechanism, str, "describe the mechanism in words")


def store(event: Any, **fields: Any) -> None:
    """Set fields of a frozen event."""
    # Checks return plain Python numbers, so a NumPy number does not reach a saved ledger.
    for name, value in fields.items():
        object.__setattr__(event, name, value)
