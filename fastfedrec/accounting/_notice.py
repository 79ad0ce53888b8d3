"""A paragraph for a privacy notice: the strongest useful promise to users, its conditions and its limits."""

import math
from typing import Any

from fastfedrec.accounting._ledger_words import is_randomized_by_device, useful_views
from fastfedrec.accounting.guesses import largest_guess_share
from fastfedrec.accounting.views import Cost, View
from fastfedrec.core.text import format_epsilon

_OBSERVERS: dict[View, str] = {
    "server": "our server sees your messages",
    "shuffled_server": "our server sees your messages without their sender",
    "public": "a party sees our models",
}
# A promise without these conditions is stronger than the guarantee.
_CONDITIONS: dict[View, str] = {
    "server": "This holds if your device adds the noise before it sends a message.",
    "shuffled_server": "This holds if your device adds the noise, and an independent party removes the senders.",
    "public": "This does not protect your data from our server.",
}
_FAKES = (
    "This holds if users' devices send fake messages, and an independent party mixes all messages and removes the "
    "senders. This party can see your data."
)
_ENTITY = "This does not protect your data from the organization that collected them."
_HONEST = {
    "aggregator": "devices or organizations that add noise keep it secret",
    "shuffle": "users follow the protocol",
}
_LIMITS = "Your participation is not hidden. Recommendations that are made for you are not covered."


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal, rounded up so that it is never below the bound."""
    return f"{math.ceil(share * 1000 - 1e-9) / 10:.1f}%"


def privacy_notice(ledger: Any, costs: dict[View, Cost]) -> str:
    """Return a paragraph for users about the strongest observer with a useful figure."""
    useful = useful_views(ledger, costs)
    # A promise to users must not depend on a seed that a party may guess.
    if ledger.is_simulation or not ledger.events or not useful:
        return "A privacy notice must not claim differential privacy for this run."
    view, budget = useful[0], ledger.budget
    epsilon, delta, _ = costs[view]
    models = "Each further model from your data adds to epsilon."
    # The budget bounds models that are still to come, and models that depend on earlier ones.
    if budget is not None and budget.view == view and budget.allows(ledger.events):
        limit = Cost(budget.epsilon, budget.delta, "none")
        if useful_views(ledger, {view: limit}):
            epsilon, delta, models = budget.epsilon, budget.delta, "This is the limit for all our models together."
    return (
        "We train our recommendations with differential privacy, which protects your whole history of interactions. "
        f"If {_OBSERVERS[view]} and compares two equally likely histories of yours, it finds the true one in at most "
        f"{percent(largest_guess_share(epsilon, delta))} of cases. A random guess is correct in 50% of cases. "
        f"The guarantee is epsilon {format_epsilon(epsilon)} at delta {delta:g}. {models} "
        f"{' '.join(_conditions(ledger, view))} {_LIMITS}"
    )


def _conditions(ledger: Any, view: View) -> list[str]:
    """Return the conditions of a promise against an observer, which depend on the trusted parties of the events."""
    trusted = {getattr(event, "trust", "") for event in ledger.events}
    lines = [_CONDITIONS[view]] * (view == "public" or any(map(is_randomized_by_device, ledger.events)))
    lines += [_FAKES] * any(event._has_open_messages for event in ledger.events)
    lines += [_ENTITY] * ("entity" in trusted)
    for trust, words in _HONEST.items():
        shares = [e.honest_fraction for e in ledger.events if getattr(e, "trust", "") == trust]
        # Against the public the noise of all nodes counts.
        if min(shares, default=1.0) < 1 and (trust, view) != ("aggregator", "public"):
            lines.append(f"This holds if at least {100 * min(shares):g}% of the {words}.")
    return lines
