"""The least epsilon of events by all accountants: of all events together, or of parts that share delta.

Parts may alternate in time, and each event may use all earlier outputs: by the concurrent composition of interactive
mechanisms the epsilons and the deltas of the parts add up (Lyu, "Composition theorems for interactive differential
privacy", NeurIPS 2022; Vadhan and Zhang, "Concurrent composition theorems for differential privacy", STOC 2023).  So
every partition of the events and every division of delta gives an upper bound, and the least of them counts.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fastfedrec.accounting._costs import bounded_choices
from fastfedrec.accounting.composition import Accountant, ZCDPAccountant
from fastfedrec.accounting.events import Composed, Event, ShuffledReports, UnsupportedEventError
from fastfedrec.accounting.pld import PLDAccountant
from fastfedrec.accounting.rdp import RDPAccountant
from fastfedrec.accounting.rounding import count_up, stretched_delta, sum_up

_ACCOUNTANTS: tuple[type[Accountant], ...] = (PLDAccountant, RDPAccountant, ZCDPAccountant)
_WEIGHTS = (1.0, 1 / 10, 1 / 1000)  # of the parts of delta; any division is valid, a finer one gains below 1%
_BELOW_ONE = 1 - 2.0**-40  # so that the rounded parts of delta do not exceed it together
_NEGLIGIBLE = 0.1  # of delta; distances that take less raise epsilon by below 1%, and a search takes seconds

Events = tuple[tuple[Event, int], ...]


class Bound(NamedTuple):
    """An epsilon in nats, rounded up, and the class of accountant that gave it; "split" for a sum of parts."""

    epsilon: float
    accountant: str


def least_bound(events: Iterable[tuple[Event, int]], delta: float) -> Bound:
    """The least epsilon at `delta` over all accountants, partitions of the events and divisions of delta.

    Parameters
    ----------
    events : iterable of (event, int)
        Each with the number of times that it happened, all for one neighbouring relation.
    delta : float
        In (0, 1).

    Returns
    -------
    Bound
        Infinite only where no partition has a finite figure.

    Raises
    ------
    UnsupportedEventError
        No accountant takes one of the events.
    """
    counts = Counter[Event]()
    for event, times in _elementary(events):
        counts[event] += times
    everything = tuple(counts.items())
    whole = _part(everything)
    refused = [whole.refusals[pair] for pair in everything if not whole.takers(pair)]
    if refused:
        raise UnsupportedEventError("; ".join(refused))
    bounds = [whole.bound(delta)]
    bounds += [_divided(parts, delta) for parts in _partitions(everything, delta)]
    best = min(bounds)
    distances = [(getattr(event, "distance", 0.0), times * getattr(event, "count", 1)) for event, times in everything]
    if stretched_delta(min(1.0, sum_up(distances)), best.epsilon) > _NEGLIGIBLE * delta:
        bounds += _apart(everything, delta)
    return min(bounds)


def _elementary(events: Iterable[tuple[Event, int]]) -> Iterator[tuple[Event, int]]:
    for event, times in events:
        if isinstance(event, Composed):
            yield from _elementary((part, times * event.count) for part in event.events)
        else:
            yield event, times


class _Part:
    """Some events, by every accountant that takes all of them."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.refusals: dict[tuple[Event, int], str] = {}
        self._takers: dict[tuple[Event, int], set[str]] = {pair: set() for pair in events}
        self.accountants: list[Accountant] = []
        self._bounds: dict[float, Bound] = {}
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
        return self._takers[pair]

    @property
    def lost(self) -> float:
        """The sum of the releases' own deltas."""
        return self.accountants[0]._lost() if self.accountants else 0.0

    def bound(self, delta: float) -> Bound:
        if not delta > 0:
            return Bound(math.inf, "none")
        if delta not in self._bounds:
            found = [Bound(one.get_epsilon(delta), type(one).__name__) for one in self.accountants]
            self._bounds[delta] = min(found, default=Bound(math.inf, "none"))
        return self._bounds[delta]

    def epsilon(self, delta: float) -> float:
        return self.bound(delta).epsilon


@lru_cache(maxsize=16)  # some parts hold millions of masses
def _part(events: Events) -> _Part:
    return _Part(events)


class _Repeats:
    """Uses of one event in equal blocks, each of which is charged for its distance at its own epsilon."""

    lost = 0.0

    def __init__(self, event: Event, times: int) -> None:
        # An event may state several uses itself, and blocks may divide these as well.
        n_uses = getattr(event, "count", 1)
        self._event = replace(event, count=1) if n_uses > 1 else event  # type: ignore[arg-type]
        self._times = times * n_uses

    def epsilon(self, delta: float) -> float:
        """The least epsilon of one block for each use, and of powers of 2 of blocks until more of them cost more."""
        best, n_blocks = math.inf, 1
        while n_blocks < self._times and (total := self._in_blocks(n_blocks, delta)) <= best:
            best, n_blocks = total, 2 * n_blocks
        return min(best, self._in_blocks(self._times, delta))

    def _in_blocks(self, n_blocks: int, delta: float) -> float:
        block = _part(((self._event, -(-self._times // n_blocks)),))
        return sum_up([(block.epsilon(delta / count_up(n_blocks)), n_blocks)])


class _Together:
    """A group of parts with equal shares of delta."""

    lost = 0.0

    def __init__(self, parts: Sequence[_Repeats]) -> None:
        self._parts = parts

    def epsilon(self, delta: float) -> float:
        return sum_up((part.epsilon(delta / len(self._parts) * _BELOW_ONE), 1) for part in self._parts)


def _partitions(events: Events, delta: float) -> Iterator[list[_Part]]:
    """The partitions that can be better than all events by one accountant.

    Privacy loss distributions alone amplify shuffled reports, and do not take every event: what they take is apart
    from the rest, or the shuffled reports are, where another accountant is better for the rest.  None is much better
    where distributions hold all events and no release is of bounded range.
    """
    whole = _part(events)
    by_pld = [pair for pair in events if PLDAccountant.__name__ in whole.takers(pair)]
    if 0 < len(by_pld) < len(events):
        yield _parts(by_pld, events)
    shuffled = [pair for pair in events if isinstance(pair[0], ShuffledReports)]
    is_tight = whole.bound(delta).accountant == PLDAccountant.__name__ and not any(map(bounded_choices, dict(events)))
    if 0 < len(shuffled) < len(events) and shuffled != by_pld and not is_tight:
        parts = _parts(shuffled, events)
        if parts[1].bound(delta).accountant != PLDAccountant.__name__:
            yield parts


def _parts(some: Sequence[tuple[Event, int]], events: Events) -> list[_Part]:
    return [_part(tuple(some)), _part(tuple(pair for pair in events if pair not in some))]


def _apart(events: Events, delta: float) -> Iterator[Bound]:
    """Bounds with every event that has a distance in a part of its own."""
    exact = tuple(pair for pair in events if not getattr(pair[0], "distance", 0.0))
    others = _Together([_Repeats(*pair) for pair in events if pair not in exact])
    for parts in [[_part(exact)], *_partitions(exact, delta)] if exact else [[]]:
        yield _divided([*parts, others], delta)


def _divided(parts: Sequence[_Part | _Repeats | _Together], delta: float) -> Bound:
    """The least sum of the parts' epsilons over some divisions of what the releases' own deltas leave.

    Divisions begin with equal shares.  A part costs no less at a smaller share, so a division is left where the known
    epsilons already reach the best sum.  The last parts, which have no distributions to compute, come first.
    """
    left = delta - sum_up((part.lost, 1) for part in parts)
    known: list[dict[float, float]] = [{} for _ in parts]
    best = math.inf

    def is_worse(shares: Sequence[float]) -> bool:
        pairs = zip(known, shares, strict=True)
        return (
            sum(max((cost for at, cost in costs.items() if at >= share), default=0.0) for costs, share in pairs) >= best
        )

    divisions = [weights for weights in itertools.product(_WEIGHTS, repeat=len(parts)) if max(weights) == 1.0]
    for weights in sorted(divisions, key=min, reverse=True):
        shares = [weight * left * _BELOW_ONE / sum(weights) for weight in weights]
        for part, costs, share in reversed(list(zip(parts, known, shares, strict=True))):
            if is_worse(shares):
                break
            if share not in costs:
                # Rounded down, since the sum of all shares must not exceed delta.
                given = math.nextafter(part.lost + share, 0.0)
                costs[share] = part.epsilon(given) if given > part.lost else math.inf
        else:
            best = min(best, sum_up((costs[share], 1) for costs, share in zip(known, shares, strict=True)))
    return Bound(best, "split")
