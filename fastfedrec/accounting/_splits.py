"""The smallest epsilon of events over all accountants: of all events at once, or of parts that share delta.

Parts may alternate in time, and each event may use all earlier outputs.  By the concurrent composition of interactive
mechanisms the epsilons and the deltas of the parts add up (Lyu, "Composition theorems for interactive differential
privacy", NeurIPS 2022; Vadhan and Zhang, "Concurrent composition theorems for differential privacy", STOC 2023).  So
every partition of the events and every division of delta gives an upper bound, and the smallest bound counts.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fastfedrec.accounting._work import count_work
from fastfedrec.accounting.composition import Accountant, ZCDPAccountant
from fastfedrec.accounting.events import Event, ShuffledReports, UnsupportedEventError
from fastfedrec.accounting.pld import PLDAccountant
from fastfedrec.accounting.rdp import RDPAccountant
from fastfedrec.accounting.rounding import count_up, stretched_delta, sum_up

_ACCOUNTANTS: tuple[type[Accountant], ...] = (PLDAccountant, RDPAccountant, ZCDPAccountant)
# Relative shares of delta that a part can have.  Any division is valid, and a finer one gains below 1%.
_WEIGHTS = (1.0, 1 / 10, 1 / 1000)
# Number of entries of tables that take the time of one event in an accountant's closed forms.
_POINTS_PER_EVENT = 2**16
# A factor below 1, so that the sum of the rounded shares of delta does not exceed delta.
_BELOW_ONE = 1 - 2.0**-40
# Distances that take less than this share of delta raise epsilon by below 1%, and the search for more takes seconds.
_NEGLIGIBLE = 0.1

Events = tuple[tuple[Event, int], ...]


class Bound(NamedTuple):
    """An epsilon in nats, rounded up, and the class of accountant that gave it; "split" for a sum of parts."""

    epsilon: float
    accountant: str


def smallest_bound(events: Iterable[tuple[Event, int]], delta: float) -> Bound:
    """Return the smallest epsilon at `delta` over all accountants, partitions of the events and divisions of delta."""
    # All events must have one neighbouring relation.  The bound is infinite only if no partition has a finite figure.
    counts = Counter[Event]()
    for event, times in events:
        for leaf, n in event._leaves(times):
            counts[leaf] += n
    everything = tuple(counts.items())
    whole = _part(everything)
    refused = [whole.refusals[pair] for pair in everything if not whole.takers(pair)]
    if refused:
        raise UnsupportedEventError("; ".join(refused))
    bounds = [whole.bound(delta)]
    bounds += [_divided(parts, delta) for parts in _partitions(everything, delta)]
    best = min(bounds)
    # Blocks of their own pay off only for events that take a large share of delta by their distance.
    distances = [(event.distance, times * event.count) for event, times in everything]
    if stretched_delta(min(1.0, sum_up(distances)), best.epsilon) > _NEGLIGIBLE * delta:
        bounds += _apart(everything, delta)
    return min(bounds)


class _Part:
    """Some events, with every accountant that takes all of them."""

    def __init__(self, events: Events) -> None:
        count_work(_POINTS_PER_EVENT * len(events))
        self.events = events
        self.refusals: dict[tuple[Event, int], str] = {}
        self._takers: dict[tuple[Event, int], set[str]] = {pair: set() for pair in events}
        self.accountants: list[Accountant] = []
        self._bounds: dict[float, Bound] = {}
        # Every accountant is tried on every event, so that an error can list all refusals.
        for kind in _ACCOUNTANTS:
            accountant = kind()
            for pair in events:
                try:
                    accountant._add(*pair)
                except UnsupportedEventError as error:
                    self.refusals[pair] = "; ".join(filter(None, (self.refusals.get(pair), str(error))))
                else:
                    self._takers[pair].add(kind.__name__)
            if all(kind.__name__ in takers for takers in self._takers.values()):
                self.accountants.append(accountant)

    def takers(self, pair: tuple[Event, int]) -> set[str]:
        """Return the names of the accountants that take an event."""
        return self._takers[pair]

    @property
    def stated_delta(self) -> float:
        """The sum of the deltas that the releases state themselves."""
        return self.accountants[0]._stated_delta() if self.accountants else 0.0

    def bound(self, delta: float) -> Bound:
        """Return the smallest bound of one accountant for all events of the part."""
        if not delta > 0:
            return Bound(math.inf, "none")
        if delta not in self._bounds:
            bounds = [Bound(one.get_epsilon(delta), type(one).__name__) for one in self.accountants]
            self._bounds[delta] = min(bounds, default=Bound(math.inf, "none"))
        return self._bounds[delta]

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of `bound`."""
        return self.bound(delta).epsilon


# The cache is small, because some parts hold totals of 4 million masses.
@lru_cache(maxsize=4)
def _part(events: Events) -> _Part:
    return _Part(events)


class _Repeats:
    """Uses of one event in equal blocks, each charged for its distance at the epsilon of the block."""

    stated_delta = 0.0

    def __init__(self, event: Event, times: int) -> None:
        # One event may state several uses, and blocks may divide these as well.
        self._event = replace(event, count=1) if event.count > 1 else event
        self._times = times * event.count

    def epsilon(self, delta: float) -> float:
        """Return the smallest total over numbers of blocks: powers of 2 until the total rises, and one for each use."""
        best, n_blocks = math.inf, 1
        while n_blocks < self._times and (total := self._in_blocks(n_blocks, delta)) <= best:
            best, n_blocks = total, 2 * n_blocks
        return min(best, self._in_blocks(self._times, delta))

    def _in_blocks(self, n_blocks: int, delta: float) -> float:
        # The last block may hold fewer uses than the others, so rounding up the size is an upper bound.
        block = _part(((self._event, -(-self._times // n_blocks)),))
        return sum_up([(block.epsilon(delta / count_up(n_blocks)), n_blocks)])


class _PartGroup:
    """A group of parts with equal shares of delta."""

    stated_delta = 0.0

    def __init__(self, parts: Sequence[_Repeats]) -> None:
        self._parts = parts

    def epsilon(self, delta: float) -> float:
        return sum_up((part.epsilon(delta / len(self._parts) * _BELOW_ONE), 1) for part in self._parts)


def _partitions(events: Events, delta: float) -> Iterator[list[_Part]]:
    """Yield the partitions that can be better than all events by one accountant."""
    # Only privacy loss distributions amplify shuffled reports, and they do not take every event.  Therefore the events
    # that they take are one part.  Shuffled reports alone are a part if another accountant is better for the other
    # events.  No partition is much better where distributions hold all events and no release has a bounded range.
    whole = _part(events)
    by_pld = [pair for pair in events if PLDAccountant.__name__ in whole.takers(pair)]
    if 0 < len(by_pld) < len(events):
        yield _parts(by_pld, events)
    shuffled = [pair for pair in events if isinstance(pair[0], ShuffledReports)]
    is_by_pld = whole.bound(delta).accountant == PLDAccountant.__name__
    is_tight = is_by_pld and not any(event._has_bounded_range() for event, _ in events)
    if 0 < len(shuffled) < len(events) and shuffled != by_pld and not is_tight:
        parts = _parts(shuffled, events)
        if parts[1].bound(delta).accountant != PLDAccountant.__name__:
            yield parts


def _parts(first_events: Sequence[tuple[Event, int]], events: Events) -> list[_Part]:
    """Return two parts: the given events, and all other events."""
    return [_part(tuple(first_events)), _part(tuple(pair for pair in events if pair not in first_events))]


def _apart(events: Events, delta: float) -> Iterator[Bound]:
    """Yield bounds with every event that has a distance in a part of its own."""
    exact = tuple(pair for pair in events if not pair[0].distance)
    repeats = _PartGroup([_Repeats(*pair) for pair in events if pair not in exact])
    for parts in [[_part(exact)], *_partitions(exact, delta)] if exact else [[]]:
        yield _divided([*parts, repeats], delta)


def _divided(parts: Sequence[_Part | _Repeats | _PartGroup], delta: float) -> Bound:
    """Return the smallest sum of the parts' epsilons over some divisions of the available delta."""
    # The deltas that the releases state themselves are taken off first.
    available_delta = delta - sum_up((part.stated_delta, 1) for part in parts)
    known: list[dict[float, float]] = [{} for _ in parts]
    best = math.inf

    def is_worse(shares: Sequence[float]) -> bool:
        # A part costs no less at a smaller share, so known epsilons at larger shares bound the sum from below.
        pairs = zip(known, shares, strict=True)
        return (
            sum(max((cost for at, cost in costs.items() if at >= share), default=0.0) for costs, share in pairs) >= best
        )

    # Divisions begin with equal shares.  The last parts have no distributions to compute, so they come first.
    divisions = [weights for weights in itertools.product(_WEIGHTS, repeat=len(parts)) if max(weights) == 1.0]
    for weights in sorted(divisions, key=min, reverse=True):
        shares = [weight * available_delta * _BELOW_ONE / sum(weights) for weight in weights]
        for part, costs, share in reversed(list(zip(parts, known, shares, strict=True))):
            if is_worse(shares):
                break
            if share not in costs:
                # Rounded down, since the sum of all shares must not exceed delta.
                part_delta = math.nextafter(part.stated_delta + share, 0.0)
                costs[share] = part.epsilon(part_delta) if part_delta > part.stated_delta else math.inf
        else:
            best = min(best, sum_up((costs[share], 1) for costs, share in zip(known, shares, strict=True)))
    return Bound(best, "split")
