"""Changes of a ledger's events, and the events of runs with a checkpoint, so that a resumed run is charged once."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fastfedrec.accounting._crowds import Shares, after_dropouts
from fastfedrec.accounting.events import CrowdEvent, Event

__all__ = ["RunEvents", "runs_from_json"]


class RunEvents:
    """Base class of ledgers that restate events, and know the events of each run with a checkpoint by its name."""

    events: Counter[Event]
    runs: dict[str, Counter[Event]]

    def _of_run(self, run: str | None) -> Counter[Event]:
        """Return the events of a run that the ledger has."""
        return Counter() if run is None else Counter(self.runs.get(run, ()))

    def _set_run(self, run: str, events: Mapping[Event, int]) -> None:
        """Replace the events of a run; all other events stay."""
        earlier, events = self._of_run(run), +Counter(events)
        # In this order, since an interruption between two steps may only overstate the cost.
        self.events.update(events - earlier)
        self.runs[run] = events
        self.events.subtract(earlier - events)
        for event in [event for event, times in self.events.items() if not times]:
            del self.events[event]

    def _restate(self, event: Event, as_event: Event) -> None:
        """Move one occurrence of an event to another event."""
        if not self.events[event]:
            raise ValueError(f"the ledger holds no {event!r}")
        self.events[event] -= 1
        if not self.events[event]:
            del self.events[event]
        self.events[as_event] += 1

    @staticmethod
    def _amended(event: Event, n_reporting_users: int) -> Event:
        """Return the event of a round in which that number of users, or of nodes with shares of noise, answered."""
        n_requested = event.n_users if isinstance(event, CrowdEvent) else getattr(event, "n_answers", 0)
        if isinstance(event, CrowdEvent | Shares) and n_reporting_users < n_requested:
            return after_dropouts(event, n_reporting_users)
        return event

    def _runs_to_json(self) -> list[dict[str, Any]]:
        """Return the times of each event of the ledger, in the same order, in each run."""
        return [{"run": run, "times": [of[event] for event in self.events]} for run, of in self.runs.items() if of]


def runs_from_json(document: Mapping[str, Any], events: Mapping[Event, int]) -> dict[str, Counter[Event]]:
    """Return the events of each run of a document, or raise a ValueError if the ledger does not have them."""
    runs: dict[str, Counter[Event]] = {}
    remaining = list(events.values())
    for position, entry in enumerate(document.get("runs", ())):
        path, times = f"ledger.runs[{position}]", entry["times"]
        if entry["run"] in runs:
            raise ValueError(f"{path}.run repeats an earlier run; add up their times")
        if len(times) != len(remaining):
            raise ValueError(f"{path}.times must have one number for each event, {len(remaining)}, got {len(times)}")
        # A run may not take events of another one, or the resumed run would remove their cost.
        remaining = [rest - n for rest, n in zip(remaining, times, strict=True)]
        if min(remaining, default=0) < 0:
            raise ValueError(f"{path}.times must be at most the times of the ledger's events, got {times}")
        runs[entry["run"]] = +Counter(dict(zip(events, times, strict=True)))
    return runs
