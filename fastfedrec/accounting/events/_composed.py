"""Several events as one."""

from collections.abc import Iterator
from dataclasses import dataclass

from fastfedrec.accounting.events._event import Event, View, check_event, store
from fastfedrec.accounting.rounding import sum_up
from fastfedrec.core.check import check_instance, check_integer

# Limits of a `Composed`: elementary events in total, and levels of nesting.
_MAX_PARTS, _MAX_DEPTH = 100_000, 100


@dataclass(frozen=True)
class Composed(Event):
    """Several events on the same users, fixed beforehand; later ones may use the outputs of earlier ones.

    Parameters
    ----------
    events : tuple of events
        Events with the same neighbouring relation and privacy unit; at most 100,000 in total, nested at most 100 deep.
    count : int
        Number of times that all of them happened.
    mechanism : str
        Name, for the ledger.
    """

    events: tuple[Event, ...]
    count: int = 1
    mechanism: str = "composition"

    def __post_init__(self) -> None:
        check_instance("events", self.events, tuple, "pass a tuple of events")
        for event in self.events:
            check_event("events", event)
        # Parts may be shared, so 40 nested pairs are 2^40 events.  Sizes are summed without a walk through all events.
        size = sum(getattr(event, "_size", 1) for event in self.events)
        depth = 1 + max((getattr(event, "_depth", 0) for event in self.events), default=0)
        if size > _MAX_PARTS or depth > _MAX_DEPTH:
            raise ValueError(
                f"events must hold at most {_MAX_PARTS:,} events, nested at most {_MAX_DEPTH} deep, got {size:,} and "
                f"{depth}; use count for repeated events"
            )
        store(self, count=check_integer("count", self.count, low=1), _size=size, _depth=depth)

    def _pure_total(self) -> float | None:
        parts = [part._pure_total() for part in self.events]
        return None if None in parts else sum_up((part or 0.0, self.count) for part in parts)

    def _seen_by(self, view: View) -> Event | None:
        parts = [part._seen_by(view) for part in self.events]
        known = tuple(part for part in parts if part is not None)
        return Composed(known, self.count, self.mechanism) if len(known) == len(parts) else None

    def _leaves(self, times: int) -> Iterator[tuple[Event, int]]:
        for part in self.events:
            yield from part._leaves(times * self.count)
