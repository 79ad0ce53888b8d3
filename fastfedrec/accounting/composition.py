"""Composition in closed form: pure, advanced, and zero-concentrated; and the base class of all accountants."""

import math
from collections import Counter
from typing import Any, Self

import numpy as np

from fastfedrec.accounting._conversion import zcdp_delta, zcdp_epsilon
from fastfedrec.accounting.events import Event, Unprotected, UnsupportedEventError, check_event
from fastfedrec.accounting.rounding import count_up, pure_delta, stretched_delta, sum_up, up
from fastfedrec.core.check import check_integer, check_real

__all__ = ["Accountant", "AdvancedAccountant", "PureAccountant", "ZCDPAccountant"]

# Maximum number of steps of a search, which ends after two or three unless delta is nearly used up.
_MAX_STEPS = 100


class Accountant:
    """Base class of all accountants, which add up events on the same users and state their total cost.

    Not for direct use; see `PureAccountant`, `AdvancedAccountant`, `ZCDPAccountant`, `RDPAccountant`,
    `PLDAccountant`.

    Notes
    -----
    All events must have one neighbouring relation and one privacy unit.  The result is an upper bound, rounded up,
    for any data and any use of earlier outputs by later events.  No release may choose an event, its parameters or the
    number of events; the sum of pure epsilons holds without this condition ("Adaptive choices" in
    docs/explanation/accounting/accounting.md).  The bound holds against an adversary that the trust model of every
    event excludes.  If a server was trusted with one of them, there is no claim against that server.
    """

    def __init__(self) -> None:
        self._events: Counter[Event] = Counter()
        self._costs: dict[Event, Any] = {}
        self._pure_costs: dict[Event, tuple[float, int]] = {}

    def compose(self, event: Event, count: int = 1) -> Self:
        """Add an event.

        Parameters
        ----------
        event : event
            Event that happened; a `Composed` is split into its parts.
        count : int
            Number of times, multiplied by the event's own count.

        Returns
        -------
        Accountant
            The accountant itself.

        Raises
        ------
        UnsupportedEventError
            No theorem is known here for the event; the accountant is unchanged.
        ValueError
            Its neighbouring relation or privacy unit differs from the one of the earlier events.
        """
        return self._add(event, check_integer("count", count, low=1))

    def _add(self, event: Event, count: int) -> Self:
        """Add an event like `compose`, with a count of any size."""
        leaves, costs, pure_costs = Counter[Event](), dict[Event, Any](), dict[Event, tuple[float, int]]()
        for leaf, times in check_event("event", event)._leaves(count):
            leaves[leaf] += times
        # All checks precede the first change, so that a refused event leaves the accountant as it was.
        first = next(iter(self._events), None)
        for leaf in leaves:
            inside = "" if leaf is event else f", part of {event!r}"
            if isinstance(leaf, Unprotected):
                raise UnsupportedEventError(f"{self._name} cannot account for {leaf!r}{inside}: it has no guarantee")
            first = first or leaf
            for name in ("neighboring", "privacy_unit"):
                if getattr(leaf, name) != getattr(first, name):
                    raise ValueError(
                        f"{name} must be the same for all events, got {getattr(first, name)!r} before and "
                        f"{getattr(leaf, name)!r} in {leaf!r}{inside}; use one accountant for each value"
                    )
            try:
                costs[leaf] = self._cost(leaf)
                pure_costs[leaf] = _pure_cost_or_infinite(leaf)
            except UnsupportedEventError as error:
                raise UnsupportedEventError(f"{self._name} cannot account for {leaf!r}{inside}: {error}") from None
        self._events += leaves
        self._costs |= costs
        self._pure_costs |= pure_costs
        self._changed()
        return self

    def get_epsilon(self, delta: float) -> float:
        """Compute the epsilon of all events composed so far, in nats.

        Parameters
        ----------
        delta : float
            Delta of the guarantee, in (0, 1).

        Returns
        -------
        float
            An upper bound, at least 0; infinite if this accountant has no bound at such a small delta.
        """
        delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True) - self._stated_delta()
        if not self._events:
            return 0.0
        # Noise from tables takes a part of delta that grows with epsilon.  The search rises from below to an epsilon
        # that covers its own part.
        epsilon, distance = 0.0, self._distance()
        for _ in range(_MAX_STEPS):
            remaining_delta = delta - stretched_delta(distance, epsilon)
            if remaining_delta <= 0:
                return math.inf
            # If all events are pure, the sum of the epsilons is a bound as well.
            bound = max(0.0, min(self._pure_total(), float(self._epsilon(remaining_delta))))
            if bound <= epsilon or not distance:
                return bound
            epsilon = up(bound)
        return math.inf

    def get_delta(self, epsilon: float) -> float:
        """Compute the delta of all events composed so far.

        Parameters
        ----------
        epsilon : float
            Epsilon in nats, at least 0.

        Returns
        -------
        float
            An upper bound in [0, 1].
        """
        epsilon = check_real("epsilon", epsilon, low=0.0)
        if not self._events:
            return 0.0
        loss_delta = max(0.0, min(pure_delta(self._pure_total(), epsilon), float(self._delta(epsilon))))
        taken = self._stated_delta() + stretched_delta(self._distance(), epsilon)
        return min(1.0, up(loss_delta + taken) if taken else loss_delta)

    def _stated_delta(self) -> float:
        """Return the sum of the deltas that the releases state themselves."""
        # A release with a delta is at worst one that fails with that probability and is pure otherwise (Kairouz, Oh,
        # Viswanath 2015).  Therefore the remaining delta of the run is for the pure parts.
        return sum_up((event._stated_delta(), times * event.count) for event, times in self._events.items())

    def _distance(self) -> float:
        """Return the total-variation distance of all releases from the described mechanisms, as a sum of bounds."""
        return sum_up((event.distance, times * event.count) for event, times in self._events.items())

    def _pure_total(self) -> float:
        """Return the sum of the pure epsilons; infinite if one event has none."""
        costs = ((self._pure_costs[event], times) for event, times in self._events.items())
        return sum_up((epsilon, uses * times) for (epsilon, uses), times in costs)

    @property
    def _name(self) -> str:
        """The name of the class, for messages."""
        return type(self).__name__

    def _sum(self) -> Any:
        """Return the sum of the costs of all events."""
        return self._weighted_sum(self._costs)

    def _weighted_sum(self, costs: dict[Event, Any]) -> Any:
        """Return the sum of costs, each times the number of times that its event happened."""
        parts = ((costs[event], times) for event, times in self._events.items())
        # A cost of 0 is not multiplied, because an infinite number of times 0 is not a number.
        with np.errstate(over="ignore"):
            return sum(count_up(times) * cost if np.any(cost) else cost for cost, times in parts)

    def _changed(self) -> None:
        """Clear the results that were computed from the events so far."""

    def _cost(self, event: Event) -> Any:
        """Return the cost of one occurrence, in the unit of this accountant."""
        raise NotImplementedError

    def _epsilon(self, delta: float) -> float:
        """Return the epsilon at a delta, without the releases' own deltas and distances."""
        raise NotImplementedError

    def _delta(self, epsilon: float) -> float:
        """Return the delta at an epsilon, without the releases' own deltas and distances."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self._name}: {sum(self._events.values())} events>"


class PureAccountant(Accountant):
    """Sum of the epsilons of pure events.

    Takes `LocalReports`, `ShuffledReports` (which keep their local guarantee), `CentralRelease` and `Laplace`, the last
    two also with Poisson sampling ("add_remove") or sampling without replacement ("replace").

    References
    ----------
    .. [1] Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Theorem 3.16.
    .. [2] Balle, Barthe, Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorems 8 and 9.
    .. [3] Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", ICML 2015: randomized
       response is the worst epsilon-private mechanism.

    Examples
    --------
    >>> from fastfedrec.accounting import LocalReports, PureAccountant
    >>> reports = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=50_000)
    >>> PureAccountant().compose(reports, 20).get_epsilon()
    5000.0
    """

    def get_epsilon(self, delta: float = 0.0) -> float:
        """Compute the sum of the epsilons; a delta covers only the releases' own deltas and distances.

        Parameters
        ----------
        delta : float
            Delta in [0, 1).

        Returns
        -------
        float
            Sum in nats; infinite if the releases' own deltas and distances take more than `delta`.
        """
        if check_real("delta", delta, low=0.0, high=1.0) == 1:
            raise ValueError(
                "delta must be less than 1.0, got 1.0; pass the small amount by which probabilities may exceed "
                "the bound, such as 1e-6"
            )
        total = self._pure_total()
        return math.inf if self._stated_delta() + stretched_delta(self._distance(), total) > delta else total

    def _cost(self, event: Event) -> Any:
        return event._known_pure_cost()

    def _delta(self, epsilon: float) -> float:
        return pure_delta(self._pure_total(), epsilon)


class AdvancedAccountant(Accountant):
    """Advanced composition of pure mechanisms: about the root of the sum of the squared epsilons.

    Takes the same events as `PureAccountant`, and never states more.

    Notes
    -----
    The loss of an epsilon-private mechanism is in [-epsilon, epsilon] with mean at most epsilon * tanh(epsilon / 2).
    By Azuma's inequality the total exceeds the sum of these means by t with probability at most
    exp(-t^2 / (2 * sum of epsilon^2)).

    References
    ----------
    .. [1] Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", ICML 2015 (for
       different epsilons).
    .. [2] Dwork, Rothblum, Vadhan, "Boosting and differential privacy", FOCS 2010.

    Examples
    --------
    >>> from fastfedrec.accounting import AdvancedAccountant, CentralRelease
    >>> release = CentralRelease("exponential mechanism", 0.01, neighboring="replace", count=1000)
    >>> round(AdvancedAccountant().compose(release).get_epsilon(1e-6), 3)
    1.712
    """

    def _cost(self, event: Event) -> Any:
        return event._known_pure_cost()

    def _moments(self):
        """Return the sum of the means, and the root of the sum of the squares."""
        costs = [(*self._costs[event], times) for event, times in self._events.items()]
        mean = sum_up((up(epsilon * math.tanh(epsilon / 2)), uses * times) for epsilon, uses, times in costs)
        return mean, up(math.hypot(*(epsilon * math.sqrt(count_up(uses * times)) for epsilon, uses, times in costs)))

    def _epsilon(self, delta: float) -> float:
        mean, root = self._moments()
        return up(mean + math.sqrt(-2 * math.log(delta)) * root)

    def _delta(self, epsilon: float) -> float:
        mean, root = self._moments()
        # An exponent above 745 gives 0.  Below, its rounding error is a few 2^-53 of itself.
        excess = max(0.0, epsilon - mean) / root if root else 0.0
        return up(math.exp(-excess * excess / 2))


class ZCDPAccountant(Accountant):
    """Sum of the rhos of zero-concentrated differential privacy.

    Takes `ZCDP`, `Gaussian` without sampling (rho = 1 / (2 noise_multiplier^2)), and all events with a pure epsilon
    (rho = epsilon tanh(epsilon / 2), which is below epsilon^2 / 2; for exponential mechanisms at most epsilon^2 / 8).

    References
    ----------
    .. [1] Bun and Steinke, "Concentrated differential privacy", TCC 2016, Propositions 1.4 and 3.3.
    .. [2] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Corollary 13.
    .. [3] Cesar, Rogers, "Bounding, concentrating, and truncating: unifying privacy loss composition for data
       analytics", ALT 2021 (bounded range).

    Examples
    --------
    >>> from fastfedrec.accounting import ZCDP, ZCDPAccountant
    >>> noise = ZCDP("discrete Gaussian", rho=0.551, neighboring="replace", sampling="none")
    >>> round(ZCDPAccountant().compose(noise).get_epsilon(1e-5), 2)
    5.0
    """

    def _cost(self, event: Event) -> Any:
        return event._rho()

    def _epsilon(self, delta: float) -> float:
        return zcdp_epsilon(up(float(self._sum())), delta)

    def _delta(self, epsilon: float) -> float:
        return zcdp_delta(up(float(self._sum())), epsilon)


def _pure_cost_or_infinite(event):
    """Return the pure cost; infinite for an event without a pure epsilon."""
    try:
        return event._known_pure_cost()
    except UnsupportedEventError:
        return math.inf, 1
