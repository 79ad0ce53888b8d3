"""The privacy cost of a run as one table, with a row for each event."""

import math

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import SHORT_NAMES, VIEWS, View, stated_cost
from fastfedrec.core.text import format_epsilon, format_table

__all__ = ["cost_sentences", "cost_table"]


def _protected(ledger: Ledger) -> list[View]:
    """Return the observers against whom the whole run has a guarantee."""
    return [view for view in SHORT_NAMES if ledger.events and math.isfinite(ledger.epsilon(view))]


def cost_table(ledger: Ledger) -> str:
    """Return the cost of each event and of the whole run, with a column for each observer with a guarantee."""
    if not (views := _protected(ledger)):
        return "Privacy: this run has no guarantee against any observer."
    rows = [
        (event.mechanism, times, *(format_epsilon(stated_cost({event: times}, v, ledger.delta).epsilon) for v in views))
        for event, times in ledger.events.items()
    ]
    rows.append(("whole run", "", *(format_epsilon(ledger.epsilon(view)) for view in views)))
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
    parts = "The parts do not add up to the whole run, because composition is tighter than a sum."
    simulation = "The noise came from a seed, so this run is a simulation without protection."
    facts = [*[parts] * (sum(ledger.events.values()) > 1), *[simulation] * ledger.is_simulation]
    return [*sentences, *[" ".join(facts)] * bool(facts)]
