"""Crowds of reports: after dropouts of users, and joined over shards."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, overload

from fastfedrec.accounting.events import CrowdEvent, Event, GaussianShares, SkellamShares
from fastfedrec.accounting.rounding import sum_up

Shares = GaussianShares | SkellamShares


@overload
def after_dropouts(event: CrowdEvent, n_reporting_users: int) -> CrowdEvent: ...
@overload
def after_dropouts(event: Shares, n_reporting_users: int) -> Shares: ...
def after_dropouts(event: CrowdEvent | Shares, n_reporting_users: int) -> CrowdEvent | Shares:
    """Return the reports in the crowd of the `n_reporting_users` users who answered, or the shares of these nodes."""
    if isinstance(event, Shares):
        return event._answered_by(n_reporting_users)
    # All dishonest users may be among those who answered.
    return event._in_crowd(n_reporting_users, n_reporting_users - (event.n_users - event._n_honest))


def join_shards(shards: Sequence[Counter[Event]]) -> Counter[Event]:
    """Return the events of one user of several shards with disjoint users that ran the same rounds."""
    # Crowds count with the users of all shards, and sampled releases with the highest rate of any shard.
    groups = [_by_form(shard) for shard in shards]
    joined = Counter[Event]()
    for form in {form: None for group in groups for form in group}:
        rounds = [group[form].total() if form in group else 0 for group in groups]
        if len(set(rounds)) > 1:
            other = next(number for number, times in enumerate(rounds) if times != rounds[0])
            raise ValueError(
                f"`ledgers` must hold the same events the same number of times, got {rounds[0]} rounds of "
                f"{form.mechanism!r} ({type(form).__name__}) in ledgers[0] and {rounds[other]} in ledgers[{other}]. "
                "Join the rounds that all shards ran, and record the others in a ledger of each shard."
            )
        joined += _join([group[form] for group in groups])
    return joined


def _by_form(events: Counter[Event]) -> dict[Event, Counter[Event]]:
    """Group a shard's events by their form."""
    groups: dict[Event, Counter[Event]] = {}
    for event, times in events.items():
        groups.setdefault(event._without_crowd(), Counter())[event] += times
    return groups


def _join(shards: Sequence[Counter[Any]]) -> Counter[Any]:
    """Join the events of one form."""
    # It is unknown which rounds of two shards coincide, so shards with varying crowds count with their worst.
    first = next(iter(shards[0]))
    if not isinstance(first, CrowdEvent):
        if all(shard == shards[0] for shard in shards):
            return shards[0]
        worst = max((event for shard in shards for event in shard), key=lambda event: event.sampling_rate)
        return Counter({worst: shards[0].total()})
    varying = [shard for shard in shards if len(shard) > 1]
    if len(varying) > 1:
        shards = [Counter({_smallest(shard): shard.total()}) for shard in shards]
        varying = []
    main = varying[0] if varying else shards[0]
    other_events = [next(iter(shard)) for shard in shards if shard is not main]
    joined = Counter[Event]()
    for event, times in main.items():
        joined[_join_crowds([event, *other_events])] += times
    return joined


def _smallest(reports: Collection[Any]) -> CrowdEvent:
    """Return reports with the fewest users, the fewest honest users and the largest distance of any round."""
    n_users, n_honest = min(event.n_users for event in reports), min(event._n_honest for event in reports)
    smallest = next(iter(reports))._in_crowd(n_users, n_honest)
    distance = max(event.distance for event in reports)
    return replace(smallest, distance=distance) if distance else smallest


def _join_crowds(events: Sequence[Any]) -> CrowdEvent:
    """Return the reports in the joined crowd of all shards."""
    n_users = sum(event.n_users for event in events)
    if len({getattr(event, "honest_fraction", 1.0) for event in events}) == 1:
        joined = replace(events[0], n_users=n_users)
    else:
        joined = events[0]._in_crowd(n_users, sum(event._n_honest for event in events))
    distance = sum_up((event.distance, 1) for event in events)
    return replace(joined, distance=min(1.0, distance)) if distance else joined
