"""A ledger's events in words: the conditions of the figures, and the source of each figure."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from fastfedrec.accounting.events import Event, ShuffledReports
from fastfedrec.accounting.guesses import largest_guess_share
from fastfedrec.accounting.views import (
    OBSERVERS,
    TRUST_VIEWS,
    Cost,
    View,
    check_view,
    cost_of,
    seen_event,
    stated_cost,
)
from fastfedrec.core.text import LARGE_DELTA, format_epsilon, large_delta_note

_CONDITIONS = {
    "device": "Each user's device adds the noise before it sends a report. A process that fits all users' data sees "
    "them, and no figure holds against a party with access to it.",
    "shuffled": "Behind a shuffler the figures hold only if no two reports can be linked, by sender or by time. All "
    "users must send their reports, and the shuffler must not collude with the server.",
    "public": "Against the public the figures hold only if the server releases results of the sums of reports alone.",
    "fakes": "Fake messages hide data only behind a shuffler that mixes all messages of a round and reveals no sender "
    "and no time. It must not collude with the server. The honest users must send their fake messages and reveal none.",
    "mixer": "The shuffler is trusted with the data: it can read messages, and sees each user's number of messages. A "
    "process that fits all users' data sees them, too.",
    "counts": "Against the public the figures hold only if the server releases results of counts of messages alone.",
    "fixed": "Figures with a delta hold only if no release had an effect on the events or on their number. A fit that "
    "was stopped or repeated because of a released model is such an effect.",
    "pure": "Figures at delta 0 hold then too.",
    "budget": "The epsilon of the budget holds then too.",
    "key": "The noise came from a secret key. A holder of this key can remove the noise, so no party may keep it.",
    "seed": "SIMULATION: the noise came from a seed. No guarantee holds against a party that can guess the seed.",
}
_AGAINST = {"server": "against the server", "shuffled_server": "behind a shuffler", "public": "against the public"}
SUM = (
    "The figures of single events need not add up to the total, because composition is tighter than the sum and all "
    "events share one delta."
)
# A figure is without use if an adversary may guess correctly in this share of cases or more.
USELESS_SHARE = 0.999


def preconditions(ledger: Any) -> list[str]:
    """Return the conditions under which the figures of a ledger hold."""
    events = ledger.events
    shuffled = any(isinstance(seen_event(event, "shuffled_server"), ShuffledReports) for event in events)
    costs = [cost for view in OBSERVERS if math.isfinite((cost := stated_cost(events, view, ledger.delta)).epsilon)]
    has_delta = any(cost.delta for cost in costs)
    # Without a figure there is no condition of it.
    counted = bool(costs) and any(event._has_open_messages for event in events)
    holds = {
        "device": bool(costs) and any(map(is_randomized_by_device, events)),
        "shuffled": shuffled,
        "public": shuffled,
        "fakes": counted,
        "mixer": counted,
        "counts": counted,
        "fixed": has_delta,
        "pure": has_delta and any(math.isfinite(cost_of(events, view, 0.0).epsilon) for view in OBSERVERS),
        "budget": has_delta and ledger.budget is not None,
        "key": bool(costs and events and not ledger.is_simulation),
        "seed": ledger.is_simulation,
    }
    texts = {name: text for name, text in _CONDITIONS.items() if holds[name]}
    # These two sentences refer to the one before them.
    texts["fixed"] = " ".join(texts.pop(name) for name in ("fixed", "pure", "budget") if name in texts)
    return [text for text in texts.values() if text]


def is_randomized_by_device(event: Event) -> bool:
    """Return whether each user's device adds noise to a message, which protects it without a shuffler."""
    return getattr(event, "trust", "") in ("local", "shuffle") and not event._has_open_messages


def useful_views(ledger: Any, costs: Mapping[View, Cost]) -> list[View]:
    """Return the observers whose figure bounds the share of correct guesses, at a delta with a meaning."""
    return [
        view
        for view, (epsilon, delta, _) in costs.items()
        if math.isfinite(epsilon)
        and largest_guess_share(epsilon, delta) < USELESS_SHARE
        and not (delta and is_delta_too_large(ledger))
    ]


def is_delta_too_large(ledger: Any) -> bool:
    """Return whether delta is one over the number of users or more, so that one user's data may be published."""
    return bool(large_delta_notes(ledger))


def large_delta_notes(ledger: Any) -> list[str]:
    """Return the notes on a delta that is too large for the users of a fit, or of an event that states their number."""
    n_users = max((getattr(event, "n_users", None) or 0 for event in ledger.events), default=0)
    of_events = large_delta_note(ledger.delta, n_users)
    return [note for note in ledger.notes if LARGE_DELTA in note] or ([of_events] if of_events else [])


def explain(event: Event, view: View, cost: Cost) -> str:
    """Return the source of a figure, or the reason why there is none; a delta of 0 is not mentioned."""
    if math.isinf(cost.epsilon):
        return event._exposure(view)
    return (seen_event(event, view) or event)._protection(view) + (f", delta {cost.delta:g}" if cost.delta else "")


def epsilon_against(against: str | None, cost: Callable[[str], float]) -> float:
    """Return the cost in a view or under a word for the trusted party; None is the server, if it has a figure."""
    if against is not None:
        check_view("against", against)
        return cost(against)
    if math.isfinite(epsilon := cost("server")):
        return epsilon
    for trust, view in TRUST_VIEWS.items():
        if math.isfinite(weaker := cost(trust)):
            raise ValueError(
                f"`against` must be given, because this ledger has no guarantee {_AGAINST['server']}, and epsilon "
                f'{format_epsilon(weaker)} {_AGAINST[view]}; pass "{trust}" for that figure, or "server" for infinity'
            )
    return epsilon


def headline(events: Mapping[Event, int], delta: float) -> str:
    """Return the figure against the strongest observer with a figure and, if it is useless, the first useful figure."""
    finite = {view: cost for view in OBSERVERS if math.isfinite((cost := stated_cost(events, view, delta)).epsilon)}
    useful = [view for view, cost in finite.items() if largest_guess_share(*cost[:2]) < USELESS_SHARE]
    shown = dict.fromkeys([*list(finite)[:1], *useful[:1]])
    figures = [f"{format_epsilon(finite[view].epsilon)} {_AGAINST[view]}" for view in shown]
    return f"epsilon {', '.join(figures)}" if figures else "no guarantee"
