"""A ledger's events in words: the conditions of the figures, and the source of each figure."""

import math
from collections.abc import Mapping

from fastfedrec.accounting.events import Event, ShuffledReports
from fastfedrec.accounting.views import VIEWS, Cost, View, seen_event, stated_cost

_PRECONDITIONS = {
    "fixed": "figures with a delta: if no release chose an event, its parameters or the number of events, as by "
    "stopping early or by fitting again; figures at delta 0 hold for such events too",
    "shuffled": "behind a shuffler: if no two reports can be linked, by sender or by time, all users send theirs, and "
    "the shuffler does not tell the server",
    "public": "the public: if the server releases nothing but what was computed from the sums of reports",
    "seed": "SIMULATION: the noise came from a seed; nothing is claimed against whoever can guess it",
}


def preconditions(events: Mapping[Event, int], is_simulation: bool, delta: float) -> list[str]:
    """Return the conditions under which the figures hold."""
    shuffled = any(isinstance(seen_event(event, "shuffled_server"), ShuffledReports) for event in events)
    shuffler_conditions = [_PRECONDITIONS["shuffled"], _PRECONDITIONS["public"]] if shuffled else []
    costs = [stated_cost(events, view, delta) for view in VIEWS]
    fixed = [_PRECONDITIONS["fixed"]] if any(cost.delta and math.isfinite(cost.epsilon) for cost in costs) else []
    return shuffler_conditions + fixed + ([_PRECONDITIONS["seed"]] if is_simulation else [])


def explain(event: Event, view: View, cost: Cost) -> str:
    """Return the source of a figure, or the reason why there is none; a delta of 0 is not mentioned."""
    if math.isinf(cost.epsilon):
        return event._exposure(view)
    return (seen_event(event, view) or event)._protection(view) + (f", delta {cost.delta:g}" if cost.delta else "")
