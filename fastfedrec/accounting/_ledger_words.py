"""A ledger's events in words: what they rest on, and what stands behind each figure."""

from collections.abc import Iterable

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
from fastfedrec.accounting.views import View, seen_event

RESTATED = {
    "add_remove": ", proved for adding or removing a user (add_remove)",
    "zero_out": ", proved for a user's data against none (zero_out)",
}
_PRECONDITIONS = {
    "shuffled": "behind a shuffler: if no two reports can be linked, by sender or by time, all users send theirs, and "
    "the shuffler does not tell the server",
    "public": "the public: if the server releases nothing but what was computed from the sums of reports",
    "seed": "SIMULATION: the noise came from a seed; nothing is claimed against whoever can guess it",
}


def preconditions(events: Iterable[Event], is_simulation: bool) -> list[str]:
    """What must be true for the figures to hold."""
    reports = [event for event in events if isinstance(event, LocalReports | ShuffledReports)]
    shuffled = any(isinstance(seen_event(event, "shuffled_server"), ShuffledReports) for event in reports)
    told = [_PRECONDITIONS["shuffled"], _PRECONDITIONS["public"]] if shuffled else []
    return told + ([_PRECONDITIONS["seed"]] if is_simulation else [])


def describe(event: Event) -> str:
    """How many reports of whom, and for which neighbours an event was proved."""
    if isinstance(event, LocalReports | ShuffledReports):
        reports = f", {event.n_reports:,} reports a user and round, {event.n_users:,} users"
        return reports + RESTATED.get(event.neighboring, "")
    return RESTATED.get(getattr(event, "neighboring", ""), "")


def theorem(event: Event, view: View, delta: float) -> str:
    """What a finite figure comes from."""
    seen = seen_event(event, view)
    if isinstance(seen, ShuffledReports):
        what = "shuffling" if view == "shuffled_server" else "adding up over users"
        return f"{what}, delta {delta:g}"
    if isinstance(seen, Gaussian | Laplace | ZCDP | DiscreteGaussianRelease | CentralRelease):
        whose = (
            "the noise of the entity that holds the data" if seen.trust == "entity" else "the noise of a trusted server"
        )
        is_pure = isinstance(seen, CentralRelease | Laplace) and not (getattr(seen, "delta", 0.0) or seen.distance)
        return whose + ("" if is_pure else f", delta {delta:g}")
    return "the noise of each report"


def no_theorem(event: Event, view: View) -> str:
    """Why there is no figure."""
    if isinstance(event, Unprotected):
        return "no noise"
    return "the key undoes the noise" if view == "key_holder" else "it sees the data"
