"""The view of each adversary of an event, and the cost of that view to one user."""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fastfedrec.accounting._splits import smallest_bound
from fastfedrec.accounting.events import Event, View, check_event
from fastfedrec.accounting.rounding import sum_up
from fastfedrec.core.check import check_choice, check_instance, check_integer, check_real
from fastfedrec.core.text import format_epsilon

__all__ = [
    "TRUST_VIEWS",
    "VIEWS",
    "Cost",
    "View",
    "check_view",
    "composed_epsilon",
    "cost_of",
    "epsilon_under",
    "parties_of",
    "seen_event",
    "show_costs",
    "stated_cost",
]

#: Each view in words, from the adversary that sees most without the key.
VIEWS: dict[View, str] = {
    "server": "the server, which sees each sender",
    "shuffled_server": "the server, behind a shuffler",
    "public": "the public, which sees releases",
    "key_holder": "a holder of the noise key",
}

#: The views against which a system can protect; against a holder of the key there is never a guarantee.
OBSERVERS: tuple[View, ...] = ("server", "shuffled_server", "public")

#: The same views, with the heading of their column in a comparison.
SHORT_NAMES: dict[View, str] = {"server": "server", "shuffled_server": "shuffled", "public": "public"}

#: The view against which a guarantee must hold if only this is trusted; functions with a view take these words, too.
TRUST_VIEWS: dict[str, View] = {
    "local": "server",
    "shuffle": "shuffled_server",
    "aggregator": "server",
    "central": "public",
}
# Words of the literature for these, which are spelt like other ones.
_USUAL_WORDS = {"global": "central", "curator": "central", "trusted": "central", "release": "public", "model": "public"}
TRUST_WORDS = {
    "local": "only one's own device is trusted",
    "shuffle": "a shuffler is trusted to break every link, the server is not",
    "aggregator": "an honest share of the nodes is trusted to add noise that the server, which sums masked numbers, "
    "cannot remove",
    "central": "the server is trusted with the data; the guarantee is against those who see what it releases",
}
# Parties on which a figure may depend, under the words that do not trust them.
_NOT_TRUSTED = {"local": {"entity", "aggregator"}, "shuffle": {"entity", "aggregator"}, "aggregator": {"entity"}}

# A guarantee with more trust is shown if it is smaller by more than this factor.
_WORTH_TRUST = 1 - 1e-3
# A figure at delta 0 is a stronger guarantee, so it is stated if it is larger by at most this factor.
_WORTH_A_DELTA = 1 + 1e-4


def check_view(name: str, view: Any) -> View:
    """Return the view with this name, or the view against which a guarantee must hold under this trust.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    view : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
        Name of a view, or a word for the trusted party: "local" and "aggregator" mean the view of the server, "shuffle"
        of the server behind a shuffler, and "central" of the public.

    Returns
    -------
    str
        One of `VIEWS`.

    Raises
    ------
    ValueError
        The value is none of these names.

    Examples
    --------
    >>> from fastfedrec.accounting.views import check_view
    >>> check_view("against", "central"), check_view("against", "public")
    ('public', 'public')
    """
    known: dict[str, View] = {**{one: one for one in VIEWS}, **TRUST_VIEWS}
    # A spelling that is similar to another word must not suggest a figure of another trust.
    if isinstance(view, str) and (usual := _USUAL_WORDS.get(view.lower())):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {view!r}; pass {usual!r}")
    return known[check_choice(name, view, tuple(known))]


def parties_of(events: Iterable[Event]) -> tuple[str, ...]:
    """Return the parties on which the guarantees of events depend.

    Parameters
    ----------
    events : iterable of event
        Events of a run.

    Returns
    -------
    tuple of str
        Each event's `trust`, sorted.

    Examples
    --------
    >>> from fastfedrec.accounting import Gaussian
    >>> from fastfedrec.accounting.views import parties_of
    >>> parties_of([Gaussian(4.0, neighboring="replace", sampling="none")])
    ('central',)
    """
    return tuple(sorted({trust for event in events if (trust := getattr(event, "trust", ""))}))


def epsilon_under(trust: str, epsilons: Mapping[View, float], parties: Collection[str]) -> float:
    """Return the cost of a run if only one party is trusted.

    Parameters
    ----------
    trust : {"local", "shuffle", "aggregator", "central"}
        Trusted party.
    epsilons : mapping of str to float
        Epsilon in nats against each of "server", "shuffled_server" and "public"; infinite without a guarantee.
    parties : collection of str
        Parties on which these figures depend (`parties_of`).

    Returns
    -------
    float
        Epsilon in nats; infinite without a guarantee, or if the figure depends on a party that is not trusted.

    Examples
    --------
    >>> from fastfedrec.accounting.views import epsilon_under
    >>> figures = {"server": 1.0, "shuffled_server": 1.0, "public": 0.8}
    >>> epsilon_under("aggregator", figures, ["aggregator"]), epsilon_under("local", figures, ["aggregator"])
    (1.0, inf)
    """
    return math.inf if _NOT_TRUSTED.get(trust, set()).intersection(parties) else epsilons[TRUST_VIEWS[trust]]


def show_costs(epsilons: Mapping[View, float], parties: Collection[str]) -> str:
    """Format the cost of a run for a cell of a table, each figure with the trust that it needs.

    Parameters
    ----------
    epsilons : mapping of str to float
        Epsilon in nats against each of "server", "shuffled_server" and "public"; infinite without a guarantee.
    parties : collection of str
        Parties on which these figures depend (`parties_of`).

    Returns
    -------
    str
        The finite figure that needs the least trust, then each smaller one that needs more; "none" without a guarantee.

    Examples
    --------
    >>> from fastfedrec.accounting.views import show_costs
    >>> show_costs({"server": float("inf"), "shuffled_server": float("inf"), "public": 3.56}, ["central"])
    '3.560 (central)'
    >>> show_costs({"server": 85.0, "shuffled_server": 1.0, "public": 1.0}, ["local", "shuffle"])
    '85.00 (local), 1.0000 (shuffle)'
    """
    figures, smallest = [], math.inf
    for trust in TRUST_VIEWS:
        epsilon = epsilon_under(trust, epsilons, parties)
        if epsilon < smallest * _WORTH_TRUST:
            smallest = epsilon
            figures.append(f"{format_epsilon(smallest)} ({trust})")
    return ", ".join(figures) or "none"


def seen_event(event: Event, view: str) -> Event | None:
    """Restate an event as one adversary sees it, for replacing all data of one user.

    Parameters
    ----------
    event : event
        Event that happened.
    view : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
        View of the adversary, or a word for the trusted party.

    Returns
    -------
    event or None
        Event with neighbouring relation "replace"; None without a guarantee, or if the guarantee depends on a party
        that is not trusted by that word.

    Raises
    ------
    UnsupportedEventError
        No theorem is known here that gives the event's cost for replacing a user.

    Notes
    -----
    The server behind a shuffler sees the reports without their senders.  The public sees sums over all users' reports.
    These sums can be computed from the shuffled reports, so a report is at least as well hidden from the public as
    behind a shuffler.  Shuffled reports stated for "zero_out" are restated by the theorem for "replace".  Reports that
    must stay together keep their cost without a shuffler.

    Against a trusted server, which sees the data, there is no guarantee.  Against the public the event keeps its own
    guarantee, and if an entity was trusted, also against the server.  Replacing a user is two steps: to the data
    without that user ("add_remove") or with none of that user's data ("zero_out"), and from there to the new data.  The
    cost is twice the epsilon, or four times the rho (group privacy; Bun and Steinke, TCC 2016, Proposition 27).  A sum
    changes by at most twice as much, so half the noise multiplier counts.  For a Gaussian event that states a smaller
    `replace_sensitivity` the noise multiplier is divided by that.
    """
    check_event("event", event)
    seen_by = check_view("view", view)
    if seen_by == "key_holder" or _NOT_TRUSTED.get(view, set()).intersection(parties_of([event])):
        return None
    return event._seen_by(seen_by)


class Cost(NamedTuple):
    """The cost of some events to one user, and the accountant that gave it.

    Parameters
    ----------
    epsilon : float
        Epsilon in nats, rounded up; infinite without a guarantee.
    delta : float
        Delta of the figure: 0 only if the sum of pure epsilons is the smallest figure.
    accountant : str
        "sum" for the sum of pure epsilons; the class of the accountant that gave the smallest figure; "split" for the
        sum of the figures of parts that share delta; "none" without a guarantee.
    """

    epsilon: float
    delta: float
    accountant: str


def composed_epsilon(events: Mapping[Event, int], view: str, delta: float) -> float:
    """Compute the cost of all events together to one user, against one adversary.

    Parameters
    ----------
    events : mapping of event to int
        Each event and the number of times that it happened.
    view : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
        View of the adversary, or a word for the trusted party, as for `seen_event`.
    delta : float
        Delta in [0, 1).  At 0 the result is the sum of the epsilons if all are pure, and shuffled reports count as
        local ones.

    Returns
    -------
    float
        Smallest figure over all accountants at `delta`, in nats, rounded up; infinite without a guarantee.

    Raises
    ------
    TypeError
        The events are no mapping of events to whole numbers.
    ValueError
        The view is unknown, or a number of times is negative.
    UnsupportedEventError
        No accountant here takes one of the events.

    Notes
    -----
    The kind, parameters and number of all events must be fixed before the first release, or be chosen without regard
    to releases; outputs may be used for all later events.  The figure at delta 0 holds for events chosen by releases
    as well.  See docs/explanation/accounting/accounting.md.
    """
    return cost_of(events, view, delta).epsilon


def cost_of(events: Mapping[Event, int], view: str, delta: float) -> Cost:
    """Compute the cost like `composed_epsilon`, with the delta of the figure and the accountant that gave it.

    Parameters
    ----------
    events : mapping of event to int
        Each event and the number of times that it happened.
    view : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
        View of the adversary, or a word for the trusted party, as for `seen_event`.
    delta : float
        Delta in [0, 1).

    Returns
    -------
    Cost
        The figure, its delta and its accountant.
    """
    check_instance("events", events, Mapping, "pass a mapping of each event to its number of times")
    check_view("view", view)
    if (delta := check_real("delta", delta, low=0.0, high=1.0)) == 1:
        raise ValueError(
            "`delta` must be less than 1, got 1.0; pass the small amount by which probabilities may exceed "
            "the bound, such as 1e-6"
        )
    counts = [(event, check_integer("times", times, low=0)) for event, times in events.items()]
    seen = [(seen_event(event, view), times) for event, times in counts if times]
    known = [(event, times) for event, times in seen if event is not None]
    # One event without a guarantee leaves the whole run without one.
    if len(known) < len(seen):
        return Cost(math.inf, delta, "none")
    pure = [event._pure_total() for event, _ in known]
    total = math.inf
    if None not in pure:
        total = sum_up((epsilon or 0.0, times) for epsilon, (_, times) in zip(pure, known, strict=True))
    if not (delta and total):
        return Cost(total, 0.0, "none" if math.isinf(total) else "sum")
    return min(Cost(total, 0.0, "sum"), _compose(tuple(known), delta))


def stated_cost(events: Mapping[Event, int], view: str, delta: float) -> Cost:
    """Compute the cost like `cost_of`, but at delta 0 if a delta lowers the figure by less than a ten-thousandth.

    Parameters
    ----------
    events : mapping of event to int
        Each event and the number of times that it happened.
    view : {"server", "shuffled_server", "public", "key_holder"} or {"local", "shuffle", "central", "aggregator"}
        View of the adversary, or a word for the trusted party, as for `seen_event`.
    delta : float
        Delta in [0, 1).

    Returns
    -------
    Cost
        The figure that ledgers, documents and reports state.
    """
    smallest, pure = cost_of(events, view, delta), cost_of(events, view, 0.0)
    return pure if pure.epsilon <= smallest.epsilon * _WORTH_A_DELTA else smallest


# A document and a summary need the same figures several times, so results are cached.
@lru_cache(maxsize=4096)
def _compose(events: tuple[tuple[Event, int], ...], delta: float) -> Cost:
    """Return the smallest figure of several events."""
    epsilon, accountant = smallest_bound(events, delta)
    return Cost(epsilon, delta, accountant)
