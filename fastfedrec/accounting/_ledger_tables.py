"""Tables of a ledger's costs, as text and as a card of a notebook."""

from dataclasses import replace
from typing import TYPE_CHECKING

from fastfedrec.accounting._ledger_words import explain, preconditions
from fastfedrec.accounting.events import Event, Reports
from fastfedrec.accounting.views import VIEWS, View, composed_epsilon, stated_cost
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.text import format_epsilon, format_table

if TYPE_CHECKING:
    from fastfedrec.accounting.ledger import Ledger


def summarize(ledger: "Ledger") -> str:
    """Return a table for each event and, if there are several, one for all; then the conditions of the figures."""
    lines = ["Privacy ledger: epsilon in nats, for replacing all data of one user"]
    for event, times in ledger.events.items():
        lines += ["", f"{event.mechanism}, {times} round{'s' * (times != 1)}{event._details()}", ""]
        lines.append(_table(ledger, event, times))
    if len(ledger.events) != 1:
        lines += ["", "all of it", "", format_table(("protected from", "in all", "at delta 0"), _totals(ledger))]
    return "\n".join([*lines, "", *_conditions(ledger)])


def make_card(ledger: "Ledger") -> str:
    """Return the totals, the events and the conditions of the figures as HTML."""
    total = f"epsilon, in all, at delta {ledger.delta:g}"
    tables = [
        html_table(("protected from", total, "epsilon at delta 0"), _totals(ledger)),
        html_table(("what was done", "times"), [(event.mechanism, times) for event, times in ledger.events.items()]),
    ]
    if conditions := _conditions(ledger):
        tables.append(html_table(("what the figures rest on",), [(text,) for text in conditions]))
    return html_card("Privacy ledger: in nats, for replacing all data of one user", {}, *tables)


def _conditions(ledger: "Ledger") -> list[str]:
    """Return the sentences on which the figures rest."""
    budget = [] if ledger.budget is None else [ledger.budget.statement(ledger.events)]
    return [*budget, *preconditions(ledger.events, ledger.is_simulation, ledger.delta), *ledger.notes]


def _table(ledger: "Ledger", event: Event, times: int) -> str:
    """Return the table of one event, with a row for each adversary."""

    def cost(event: Event, view: View) -> str:
        return format_epsilon(stated_cost({event: 1}, view, ledger.delta).epsilon)

    rows = []
    for view in VIEWS:
        per_report = cost(replace(event, n_reports=1), view) if isinstance(event, Reports) else "-"
        whole = stated_cost({event: times}, view, ledger.delta)
        pure = composed_epsilon({event: times}, view, 0.0)
        figures = per_report, cost(event, view), *map(format_epsilon, (whole.epsilon, pure))
        rows.append((VIEWS[view], *figures, explain(event, view, whole)))
    return format_table(("protected from", "per report", "per round", "whole run", "at delta 0", "by"), rows)


def _totals(ledger: "Ledger") -> list[tuple[str, str, str]]:
    """Return for each adversary its description, and the figures at the ledger's delta and at delta 0."""
    return [
        (words, format_epsilon(ledger.epsilon(view)), format_epsilon(ledger.epsilon(view, 0.0)))
        for view, words in VIEWS.items()
        if ledger.events
    ]
