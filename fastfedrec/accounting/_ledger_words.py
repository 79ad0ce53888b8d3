"""A ledger's events in words: the conditions of the figures, and the source of each figure."""

import math
from collections.abc import Mapping

from fastfedrec.accounting.events import (
    ZCDP,
    CentralRelease,
    DiscreteGaussianRelease,
    Event,
    Gaussian,
    Laplace,
    LocalReports,
    ShuffledReports,
    Unprotected,
)
from fastfedrec.accounting.views import VIEWS, View, seen_event, stated_cost

RESTATED = {
    "add_remove": ", proved for adding or removing a user (add_remove)",
    "zero_out": ", proved for a user's data against none (zero_out)",
}
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
    reports = [event for event in events if isinstance(event, LocalReports | ShuffledReports)]
    shuffled = any(isinstance(seen_event(event, "shuffled_server"), ShuffledReports) for event in reports)
    shuffler_conditions = [_PRECONDITIONS["shuffled"], _PRECONDITIONS["public"]] if shuffled else []
    costs = [stated_cost(events, view, delta) for view in VIEWS]
    fixed = [_PRECONDITIONS["fixed"]] if any(cost.delta and math.isfinite(cost.epsilon) for cost in costs) else []
    return shuffler_conditions + fixed + ([_PRECONDITIONS["seed"]] if is_simulation else [])


def describe(event: Event) -> str:
    """Return the numbers of reports and users of an event, and the relation that it was proved for."""
    if isinstance(event, LocalReports | ShuffledReports):
        reports = f", {event.n_reports:,} reports a user and round, {event.n_users:,} users"
        return reports + RESTATED.get(event.neighboring, "")
    relation = RESTATED.get(getattr(event, "neighboring", ""), "")
    stated = getattr(event, "replace_sensitivity", None)
    return relation if stated is None else f"{relation}; a replaced user changes the sums {stated:.4g} times as much"


def theorem(event: Event, view: View, delta: float) -> str:
    """Return the source of a finite figure; a delta of 0 is not mentioned."""
    at_delta = f", delta {delta:g}" if delta else ""
    seen = seen_event(event, view)
    if isinstance(seen, ShuffledReports):
        source = "shuffling" if view == "shuffled_server" else "adding up over users"
        return source + at_delta
    if isinstance(seen, Gaussian | Laplace | ZCDP | DiscreteGaussianRelease | CentralRelease):
        source = (
            "the noise of the entity that holds the data" if seen.trust == "entity" else "the noise of a trusted server"
        )
        return source + at_delta
    return "the noise of each report" + at_delta


def no_theorem(event: Event, view: View) -> str:
    """Return the reason why there is no figure."""
    if isinstance(event, Unprotected):
        return "no noise"
    return "the key undoes the noise" if view == "key_holder" else "it sees the data"
