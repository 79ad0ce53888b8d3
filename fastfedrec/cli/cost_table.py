"""The privacy cost of a run as one table, with a row for each event."""

import math

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import SHORT_NAMES, VIEWS, View, stated_cost
from fastfedrec.core.text import format_epsilon, format_table

__all__ = ["cost_sentences", "cost_table"]

_VISIBLE = 1.001  # smallest ratio of the parts' sum to the whole that the digits of a table show


def _protected(ledger: Ledger) -> list[View]:
    """Return the observers against whom the whole run has a guarantee."""
    return [view for view in SHORT_NAMES if ledger.events and math.isfinite(ledger.epsilon(view))]


def _costs(ledger: Ledger, view: View) -> list[float]:
    """Return the cost of each event with all of its rounds."""
    return [stated_cost({event: times}, view, ledger.delta).epsilon for event, times in ledger.events.items()]


def cost_table(ledger: Ledger) -> str:
    """Return the cost of each event and of the whole run, with a column for each observer with a guarantee."""
    if not (views := _protected(ledger)):
        return "Privacy: this run has no guarantee against any observer."
    columns = [[*map(format_epsilon, _costs(ledger, view)), format_epsilon(ledger.epsilon(view))] for view in views]
    events = [*((event.mechanism, times) for event, times in ledger.events.items()), ("whole run", "")]
    rows = [(*event, *figures) for event, *figures in zip(events, *columns, strict=True)]
    header = ("privacy cost", "rounds", *(f"epsilon, {SHORT_NAMES[view]}" for view in views))
    return format_table(header, rows)


def cost_sentences(ledger: Ledger) -> list[str]:
    """Return sentences about the table: the meaning of epsilon, the total, and simulations."""
    if not (views := _protected(ledger)):
        return []
    observers = "; ".join(f"{SHORT_NAMES[view]}: {VIEWS[view]}" for view in views)
    sentences = [
        f"epsilon: the cost to one user, in nats, if all of that user's data are replaced, at delta {ledger.delta:g} "
        f"({observers})."
    ]
    if any(getattr(event, "neighboring", "replace") != "replace" for event in ledger.events):
        sentences[0] += " A system's parameter epsilon may be for removing the data, which costs less."
    parts = "The parts do not add up to the whole run, because composition is tighter than a sum."
    simulation = "The noise came from a seed, so this run is a simulation without protection."
    is_tighter = any(sum(_costs(ledger, view)) > _VISIBLE * ledger.epsilon(view) for view in views)
    facts = [*[parts] * is_tighter, *[simulation] * ledger.is_simulation]
    return [*sentences, *[" ".join(facts)] * bool(facts)]
