"""Tables of a ledger's costs, as text and as a card of a notebook."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from fastfedrec.accounting._ledger_words import SUM, explain, headline, preconditions
from fastfedrec.accounting.events import Event, Reports
from fastfedrec.accounting.views import OBSERVERS, VIEWS, View, composed_epsilon, stated_cost
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.text import format_epsilon, format_table

if TYPE_CHECKING:
    from fastfedrec.accounting.ledger import Ledger


def summarize(ledger: "Ledger") -> str:
    """Return a table for each event and one for all of them; then the conditions of the figures."""
    lines = ["Privacy ledger: epsilon in nats, for replacing all data of one user"]
    for event, times in ledger.events.items():
        lines += ["", f"{event.mechanism}, {times} round{'s' * (times != 1)}{event._details()}", ""]
        lines.append(_table(ledger, event, times))
    lines += ["", "total", "", format_table(("protected from", "whole ledger", "at delta 0"), _totals(ledger))]
    reason = [SUM] * (sum(ledger.events.values()) > 1)
    return "\n".join([*lines, "", *reason, *_conditions(ledger)])


def make_card(ledger: "Ledger") -> str:
    """Return the totals, the events and the conditions of the figures as HTML."""
    total = f"epsilon of the whole ledger, at delta {ledger.delta:g}"
    tables = [
        html_table(("protected from", total, "epsilon at delta 0"), _totals(ledger)),
        html_table(("event", "times"), [(event.mechanism, times) for event, times in ledger.events.items()]),
    ]
    if conditions := _conditions(ledger):
        tables.append(html_table(("conditions and notes",), [(text,) for text in conditions]))
    figures = {"guarantee": headline(ledger.events, ledger.delta)}
    return html_card("Privacy ledger: in nats, for replacing all data of one user", figures, *tables)


def _conditions(ledger: "Ledger") -> list[str]:
    """Return the budget, the conditions of the figures, and the notes."""
    budget = [] if ledger.budget is None else [ledger.budget.statement(ledger.events)]
    return [*budget, *preconditions(ledger), *ledger.notes]


def _table(ledger: "Ledger", event: Event, times: int) -> str:
    """Return the table of one event, with a row for each observer with a figure."""

    def cost(event: Event, view: View) -> str:
        return format_epsilon(stated_cost({event: 1}, view, ledger.delta).epsilon)

    rows = []
    for view in OBSERVERS:
        whole = stated_cost({event: times}, view, ledger.delta)
        if math.isinf(whole.epsilon):
            continue  # the table of the total has a row for each observer
        per_report = cost(replace(event, n_reports=1), view) if isinstance(event, Reports) else "-"
        pure = composed_epsilon({event: times}, view, 0.0)
        figures = per_report, cost(event, view), *map(format_epsilon, (whole.epsilon, pure))
        rows.append((VIEWS[view], *figures, explain(event, view, whole)))
    if not rows:
        return f"no guarantee against any observer: {event._exposure('public')}"
    return format_table(("protected from", "per report", "per round", "whole run", "at delta 0", "by"), rows)


def _totals(ledger: "Ledger") -> list[tuple[str, str, str]]:
    """Return for each observer its description, and the figures at the ledger's delta and at delta 0."""
    return [
        (VIEWS[view], format_epsilon(ledger.epsilon(view)), format_epsilon(ledger.epsilon(view, 0.0)))
        for view in OBSERVERS
        if ledger.events
    ]
