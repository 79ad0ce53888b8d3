"""Privacy filters: rules that refuse an event which would exceed a budget, also if releases choose the events."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastfedrec.accounting._conversion import renyi_epsilon
from fastfedrec.accounting.events import CentralRelease, Event, Gaussian, ShuffledReports, UnsupportedEventError
from fastfedrec.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fastfedrec.accounting.rdp import ORDERS
from fastfedrec.accounting.rounding import inverse_up, stretched_delta
from fastfedrec.accounting.views import OBSERVERS, TRUST_VIEWS, VIEWS, check_view, seen_event
from fastfedrec.core.check import check_choice, check_epsilon, check_integer, check_real
from fastfedrec.core.numbers import float_up

__all__ = ["BUDGET_FILTERS", "BUDGET_VIEWS", "Budget", "BudgetError"]

#: Views against which a budget can hold, and words for the trusted party.
BUDGET_VIEWS = (*OBSERVERS, *TRUST_VIEWS)
# Share of delta for the releases' own deltas and distances.  It is fixed beforehand, as the theorem demands.
_OWN_SHARE = Fraction(1, 16)
# A sum of pure epsilons may exceed the budget by this factor, so that ten releases of 0.1 are within 1.0.
_TOLERANCE = 1 + Fraction(1, 2**40)
_PRECISION = 2.0**-20  # relative precision of the search for a remaining epsilon, which is rounded down
_USES = ("gaussian", "pure")


class BudgetError(ValueError):
    """Refusal of an event that would exceed a ledger's budget, before anything is spent.

    Parameters
    ----------
    message : str
        Event, spent and remaining epsilon, and the remedy.
    event : event
        Event that was refused.
    spent, remaining : float
        Epsilon that is spent by the filter's theorem, and epsilon of the largest next Gaussian release, in nats.
    """

    def __init__(self, message: str, event: Event, spent: float, remaining: float):
        super().__init__(message)
        self.event, self.spent, self.remaining = event, spent, remaining


class _Filter(ABC):
    """A cost of events that adds up, and its largest total for an epsilon and a delta."""

    name: ClassVar[str]
    theorem: ClassVar[str]  # the bounded sum, in words

    def __init__(self, epsilon: float, delta: float):
        self.limit = self._limit(epsilon, delta)

    @abstractmethod
    def _limit(self, epsilon: float, delta: float) -> Fraction:
        """Return the largest total, rounded down."""

    @abstractmethod
    def cost(self, event: Event) -> Fraction | float:
        """Return the cost of an event, rounded up, or raise UnsupportedEventError."""

    @abstractmethod
    def epsilon(self, total: Fraction, delta: float) -> float:
        """Return the epsilon of a total at a delta, rounded up."""


class _GaussianFilter(_Filter):
    """Sum of mu^2 of Gaussian differential privacy (Smith and Thakurta 2022)."""

    name = "gaussian"
    theorem = "the sum of mu^2 of Gaussian differential privacy"

    def _limit(self, epsilon: float, delta: float) -> Fraction:
        return Fraction(gaussian_mu(epsilon, delta)) ** 2

    def cost(self, event: Event) -> Fraction:
        return event._squared_mu()

    def epsilon(self, total: Fraction, delta: float) -> float:
        return gaussian_epsilon(total, delta) if total else 0.0


class _RenyiFilter(_Filter):
    """Sum of Renyi divergences of one order, which epsilon and delta alone choose (Feldman and Zrnic 2021)."""

    name = "renyi"
    theorem = "the sum of Renyi divergences of one order that was fixed beforehand"

    def _limit(self, epsilon: float, delta: float) -> Fraction:
        # The epsilon of a divergence D is D plus an offset of its order (`renyi_epsilon`); the margin covers rounding.
        limits = np.array([epsilon - self._offset(order, delta) for order in ORDERS])
        # The best order for zCDP has the largest rho = D / order.
        best = int(np.argmax(limits / ORDERS))
        self.order = float(ORDERS[best])
        limit = float(limits[best]) * (1 - 2.0**-40)
        while limit > 0 and self._epsilon_of(limit, delta) > epsilon:
            limit *= 1 - 2.0**-30
        return Fraction(max(limit, 0.0))

    @staticmethod
    def _offset(order: float, delta: float) -> float:
        return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    def _epsilon_of(self, divergence: float, delta: float) -> float:
        return renyi_epsilon(np.array([self.order]), np.array([divergence]), delta)

    def cost(self, event: Event) -> float:
        return float(event._divergences(np.array([self.order]))[0])

    def epsilon(self, total: Fraction, delta: float) -> float:
        return self._epsilon_of(float_up(total), delta) if total else 0.0


#: Filters by name.
BUDGET_FILTERS: dict[str, type[_Filter]] = {one.name: one for one in (_GaussianFilter, _RenyiFilter)}


class _Sums(NamedTuple):
    """Exact sums over events as one adversary sees them; None without a theorem."""

    pure: Fraction | None = Fraction(0)  # epsilons
    cost: Fraction | None = Fraction(0)  # costs of the filter
    own_delta: Fraction = Fraction(0)  # deltas that the releases state themselves
    distance: Fraction = Fraction(0)  # total-variation distances

    def plus(self, other: "_Sums", times: int) -> "_Sums":
        """Return the sums with further events."""
        # A missing theorem for one event is a missing theorem for the sum, so the comparison fails closed.
        pairs = zip(self, other, strict=True)
        return _Sums(*(None if a is None or b is None else a + times * b for a, b in pairs))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _sums_of(filter_: _Filter, seen: Event | None) -> _Sums:
    """Return the sums of one event as the adversary sees it; None is an event without a guarantee."""
    if seen is None:
        return _Sums(None, None)
    pure = seen._pure_total()
    try:
        cost: Fraction | float = filter_.cost(seen)
    except UnsupportedEventError:
        cost = math.inf
    own_delta, distance = (seen.count * Fraction(part) for part in (seen._stated_delta(), seen.distance))
    return _Sums(_finite(pure), _finite(cost), own_delta, distance)


def _finite(value: Fraction | float | None) -> Fraction | None:
    """Return a finite number exactly, and None for all others."""
    return None if value is None or value == math.inf else Fraction(value)


@dataclass(frozen=True)
class Budget:
    """A bound on the cost of a ledger's events that holds even if releases choose the events.

    Parameters
    ----------
    epsilon : float
        Largest epsilon, in nats, for replacing all data of one user.
    delta : float
        Delta of the bound, in (0, 1).
    view : {"server", "shuffled_server", "public"} or {"local", "shuffle", "central", "aggregator"}
        Adversary against whom the bound holds, or a word for the trusted party.  The budget refuses events with a
        guarantee that depends on another party.
    filter : {"gaussian", "renyi"}
        Sum that is bounded, in addition to the sum of pure epsilons.  "gaussian" takes Gaussian noise without sampling
        and all events with a pure epsilon.  "renyi" takes all events with Renyi divergences, such as sampled
        rounds, and allows less Gaussian noise.

    Notes
    -----
    Events are allowed if the sum of their pure epsilons is at most `epsilon`, or if the filter's sum is at most its
    limit for `epsilon` at 15/16 of `delta`, and the releases' own deltas and distances take at most 1/16 of `delta`.
    Shuffled reports count as without a shuffler, because no theorem here is a filter for amplified ones.  The proof is
    in "Adaptive choices" of docs/explanation/accounting/accounting.md.

    References
    ----------
    .. [1] Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters: pay-as-you-go composition", NeurIPS 2016.
    .. [2] Smith, Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022.
    .. [3] Feldman, Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021.

    Examples
    --------
    >>> from fastfedrec.accounting import Budget, CentralRelease
    >>> budget = Budget(1.0, 1e-6)
    >>> release = CentralRelease("exponential mechanism", 0.6, neighboring="replace")
    >>> budget.allows({release: 1}), budget.allows({release: 2})
    (True, False)
    """

    epsilon: float
    delta: float
    view: str = "public"
    filter: str = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("budget", self.epsilon))
        object.__setattr__(self, "delta", check_real("delta", self.delta, low=0.0, high=1.0, exclusive=True))
        check_choice("budget_view", self.view, BUDGET_VIEWS)
        check_choice("budget_filter", self.filter, tuple(BUDGET_FILTERS))

    @property
    def _filter(self) -> _Filter:
        return _filter_of(self.filter, self.epsilon, self._loss_delta)

    @property
    def _loss_delta(self) -> float:
        """Delta of the filter's limit, rounded down."""
        return -float_up(Fraction(self.delta) * (_OWN_SHARE - 1))

    def _sums(self, events: Mapping[Event, int]) -> _Sums:
        """Return the sums of events for the adversary of the budget."""
        sums = _Sums()
        for event, times in events.items():
            sums = sums.plus(_sums_of(self._filter, seen_event(event, self.view)), times) if times else sums
        return sums

    def _has_theorem(self, sums: _Sums) -> bool:
        """Return whether the filter has a cost for all events, and their own deltas are within their share."""
        # A distance D uses (1 + e^epsilon) D of delta, with the epsilon of the budget.
        stretched = Fraction(stretched_delta(float_up(sums.distance), self.epsilon))
        return sums.cost is not None and sums.own_delta + stretched <= _OWN_SHARE * Fraction(self.delta)

    def _allows(self, sums: _Sums) -> bool:
        # Either bound is enough: outcomes within the first one have no delta, so only the second one uses it.
        if sums.pure is not None and sums.pure <= Fraction(self.epsilon) * _TOLERANCE:
            return True
        return self._has_theorem(sums) and sums.cost is not None and sums.cost <= self._filter.limit

    def allows(self, events: Mapping[Event, int]) -> bool:
        """Return whether all events together are within the budget.

        Parameters
        ----------
        events : mapping of event to int
            Each event and the number of times that it happens.

        Returns
        -------
        bool
            False as well if an event has no theorem for filters.
        """
        return self._allows(self._sums(events))

    def spent(self, events: Mapping[Event, int]) -> float:
        """Compute the smallest budget for which these events are allowed with this delta, view and filter.

        Parameters
        ----------
        events : mapping of event to int
            Each event and the number of times that it happened.

        Returns
        -------
        float
            Epsilon in nats, rounded up; infinite without a theorem.  It is no bound if releases chose the events: then
            the budget is the bound.
        """
        sums = self._sums(events)
        pure = math.inf if sums.pure is None else float_up(sums.pure)
        if not self._has_theorem(sums) or sums.cost is None:
            return pure
        return min(pure, self._filter.epsilon(sums.cost, self._loss_delta))

    def remaining(self, events: Mapping[Event, int], n_uses: int = 1, use: str = "gaussian") -> float:
        """Compute the largest epsilon of each of `n_uses` equal further releases that fit after these events.

        Parameters
        ----------
        events : mapping of event to int
            Each event and the number of times that it happened.
        n_uses : int
            Number of releases.
        use : {"gaussian", "pure"}
            Kind of the releases: Gaussian noise without sampling, with an epsilon at the budget's delta, or pure.

        Returns
        -------
        float
            Epsilon of one release in nats, for replacing a user, rounded down; 0 if no release fits.
        """
        n_uses = check_integer("n_uses", n_uses, low=1)
        check_choice("use", use, _USES)
        sums = self._sums(events)

        def fits(epsilon: float) -> bool:
            return self._allows(sums.plus(_sums_of(self._filter, self._next(epsilon, use)), n_uses))

        low, high = self.epsilon * _PRECISION, self.epsilon
        if fits(high):
            return high
        if not fits(low):
            return 0.0
        while high - low > _PRECISION * high:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _next(self, epsilon: float, use: str) -> Event:
        """Return a release of this cost, as its adversary sees it."""
        if use == "pure":
            return CentralRelease("next release", epsilon, neighboring="replace")
        noise = inverse_up(gaussian_mu(epsilon, self.delta))
        return Gaussian(noise, "next release", neighboring="replace", sampling="none")

    def check(self, events: Mapping[Event, int], further: Mapping[Event, int]) -> None:
        """Raise unless further events fit in the budget.

        Parameters
        ----------
        events : mapping of event to int
            Events that happened.
        further : mapping of event to int
            Events that are about to happen.

        Raises
        ------
        BudgetError
            They would exceed the budget, or one has no theorem for filters.
        """
        total = Counter(events)
        # Sums only rise, so the first event beyond the budget is the one to name.
        for event, times in further.items():
            total[event] += times
            if not self.allows(total):
                raise self._error(event, sum(further.values()), events)

    def _error(self, event: Event, n_planned: int, events: Mapping[Event, int]) -> BudgetError:
        """Return the error for the first event that does not fit."""
        spent, (gaussian, pure) = self.spent(events), (self.remaining(events, use=use) for use in _USES)
        plan = f", one of {n_planned:,} planned events," if n_planned > 1 else ""
        seen = seen_event(event, self.view)
        sums = _sums_of(self._filter, seen)
        remedy = "record it in a ledger without a budget"
        why = "does not take this fit"
        if seen is None:
            what = f"has no guarantee against {self.view!r}"
            if any(seen_event(event, view) for view in OBSERVERS):
                remedy += ", or with another budget_view"
        elif sums.pure is None and not self._has_theorem(sums):
            what = f"has no theorem for budget_filter={self.filter!r}"
            if _sums_of(_filter_of("renyi", self.epsilon, self._loss_delta), seen).cost is not None:
                remedy += ", or make the ledger with budget_filter='renyi', which takes sampled rounds and zCDP"
        else:
            why, what = "would be exceeded", "costs more than remains"
            fits = "lower its epsilon (Ledger.remaining)"
            if not gaussian and pure:
                fits = "use pure noise, for which some of the budget remains"
            remedy = f"{fits}, or stop fitting on these users"
        local = ""
        if isinstance(seen, ShuffledReports):
            # Without this sentence a reader expects the far smaller cost behind a shuffler.
            local = " Shuffled reports count as local ones in a budget, so Ledger.remaining is too large for them."
            remedy = "record it in a ledger without a budget, or trust a server (central) or honest nodes (aggregator)"
        message = (
            f"the ledger's budget of epsilon {self.epsilon:g} at delta {self.delta:g} against {self.view!r} {why}: "
            f"{spent:.4g} is spent, and {event.mechanism!r} ({type(event).__name__}){plan} {what}. A release with "
            f"Gaussian noise may still have epsilon {_round_down(gaussian):g}, or a pure one "
            f"{_round_down(pure):g}.{local} Refused before anything was released: {remedy}"
        )
        return BudgetError(message, event, spent, gaussian)

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as plain values, without the ledger's delta.

        Returns
        -------
        dict
            Fields `epsilon`, `view` and `filter`.
        """
        return {name: value for name, value in asdict(self).items() if name != "delta"}

    @property
    def _adversary(self) -> str:
        """Adversary in words, and the word for the trusted party if it was given."""
        trust = f" (trust: {self.view})" if self.view in TRUST_VIEWS else ""
        return VIEWS[check_view("view", self.view)] + trust

    def statement(self, events: Mapping[Event, int]) -> str:
        """Return the budget, its filter and the spent part in one sentence.

        Parameters
        ----------
        events : mapping of event to int
            Events that happened.

        Returns
        -------
        str
            Sentence for a ledger's summary.
        """
        if not self.allows(events):
            return (
                f"The budget of epsilon {self.epsilon:g} against {self._adversary} is exceeded, since corrections or "
                "other ledgers added costs afterwards. The ledger refuses further events."
            )
        return (
            f"The budget is epsilon {self.epsilon:g} at delta {self.delta:g} against {self._adversary}. The events "
            f"spent {self.spent(events):.4g} of it. The budget holds also if releases choose the events, so it may "
            "count more than the other figures. The filters are for the sum of pure epsilons and for "
            f"{self._filter.theorem}."
        )


def _round_down(epsilon: float) -> float:
    """Return an epsilon with four significant digits that is not larger, so that a fit with it is allowed."""
    if epsilon <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return math.floor(epsilon / unit) * unit


@lru_cache(maxsize=64)
def _filter_of(name: str, epsilon: float, delta: float) -> _Filter:
    return BUDGET_FILTERS[name](epsilon, delta)
