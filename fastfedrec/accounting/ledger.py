"""The privacy ledger: the events of one or more runs on the same people, and who is protected how much."""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from fastfedrec.accounting._ledger_format import FORMAT, KINDS, event_fields, parse, read, understated
from fastfedrec.accounting._ledger_words import describe, no_theorem, preconditions, theorem
from fastfedrec.accounting._report import make_report
from fastfedrec.accounting._report_pages import to_html, to_markdown
from fastfedrec.accounting.events import (
    Event,
    LocalReports,
    ShuffledReports,
    UnsupportedEventError,
    check_event,
)
from fastfedrec.accounting.views import VIEWS, View, composed_epsilon, seen_event
from fastfedrec.core.check import check_choice, check_flag, check_integer, check_real
from fastfedrec.core.files import check_path, write_text
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.text import epsilon_to_json, format_epsilon, format_table

__all__ = ["Ledger"]


class Ledger:
    """What was done to people's data, who is protected from whom, and how much.

    Pass one ledger to several ``fit`` calls to add up what runs on the same people cost together.

    Parameters
    ----------
    delta : float
        In (0, 1): at which figures are stated that are not pure.

    Attributes
    ----------
    events : Counter
        Each event and how many times (rounds) it happened, in order of first appearance.
    is_simulation : bool
        Whether any run took its noise from a seed: then nothing is claimed against whoever holds the seed.
    notes : list of str
        What else a reader must know.

    Notes
    -----
    Every figure is for replacing all data of one user ("replace", privacy unit "user"), and an upper bound for any data
    and however later events depended on earlier ones; an event that was proved for another relation says so.  Pure
    costs add up; shuffled reports and Gaussian noise are composed as privacy loss distributions.  See
    docs/explanation/accounting/accounting.md.

    References
    ----------
    .. [1] Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Theorem 3.16 (composition).
    .. [2] Wang et al., "Privacy amplification via shuffling: unified, simplified, and tightened", VLDB 2024.

    Examples
    --------
    >>> from fastfedrec.accounting import Ledger, LocalReports
    >>> ledger = Ledger(delta=1e-6)
    >>> for _ in range(20):
    ...     ledger.record(LocalReports("binary response", 2.5, n_reports=100, n_users=50_000, separable=True))
    >>> ledger.epsilon("server")
    5000.0
    >>> round(ledger.epsilon("shuffled_server"), 2)
    4.18
    """

    def __init__(self, delta: float = 1e-6) -> None:
        self.delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
        self.events: Counter[Event] = Counter()
        self.is_simulation = False
        self.notes: list[str] = []

    # ---- writing ------------------------------------------------------------------------------------------------

    def record(self, event: Event, *, simulation: bool = False) -> None:
        """Add one event, before its messages leave the clients.

        Parameters
        ----------
        event : event
            What is about to happen.
        simulation : bool
            Whether the noise comes from a seed.

        Raises
        ------
        TypeError
            Not an event, or one whose cost to a user is not known here (`UnsupportedEventError`).
        """
        if type(check_event("event", event)).__name__ not in KINDS:
            raise TypeError(f"event must be an elementary event, got {event!r}; record its parts one by one")
        simulation = check_flag("simulation", simulation)
        for view in VIEWS:
            seen_event(event, view)
        self.events[event] += 1
        self.is_simulation |= simulation

    def amend(self, event: Event, n_users_heard: int) -> None:
        """Correct the last record of some reports: fewer users were heard, so each hides among fewer.

        Parameters
        ----------
        event : LocalReports or ShuffledReports
            As recorded.
        n_users_heard : int
            How many users' reports arrived.  Where none of them is honest there is no crowd, and reports that may have
            left their users all the same are counted as without a shuffler.
        """
        n_users_heard = check_integer("n_users_heard", n_users_heard, low=0)
        if not isinstance(event, LocalReports | ShuffledReports) or n_users_heard >= event.n_users:
            return
        if isinstance(event, ShuffledReports) and event.honest_fraction * n_users_heard < 1:
            self._restate(event, LocalReports(event.mechanism, event.epsilon, event.n_reports, event.n_users))
        else:
            self._restate(event, replace(event, n_users=n_users_heard))

    def confirm_shuffled(self, event: LocalReports, n_users: int, honest_fraction: float = 1.0) -> None:
        """Correct the last record of some reports: they did go through a shuffler, in a batch that was large enough.

        Parameters
        ----------
        event : LocalReports
            As recorded, before anybody knew whether a batch would come.
        n_users : int
            The public number of users without whom the shuffler gives nothing away.
        honest_fraction : float
            Share of them, in (0, 1], who follow the protocol and do not tell what they sent.
        """
        reports = event.mechanism, event.epsilon, event.n_reports
        self._restate(event, ShuffledReports(*reports, n_users, honest_fraction))

    def _restate(self, event: Event, as_event: Event) -> None:
        if not self.events[event]:
            raise ValueError(f"the ledger holds no {event!r}")
        self.events[event] -= 1
        if not self.events[event]:
            del self.events[event]
        self.events[as_event] += 1

    def note(self, text: str) -> None:
        """Add a remark, once.

        Parameters
        ----------
        text : str
            One sentence.
        """
        if text not in self.notes:
            self.notes.append(text)

    @classmethod
    def of_shards(cls, ledgers: Sequence["Ledger"]) -> Self:
        """Join the ledgers of shards that ran the same rounds, each for its own users, behind one shuffler.

        Parameters
        ----------
        ledgers : sequence of Ledger
            Of disjoint sets of users.

        Returns
        -------
        Ledger
            What one user paid, with the users of all shards to hide among.

        Raises
        ------
        ValueError
            The shards did not run the same rounds.
        """
        if not ledgers:
            raise ValueError("ledgers must not be empty")
        first = ledgers[0]
        joined = cls(first.delta)
        for other in ledgers:
            if [(_without_users(e), n) for e, n in other.events.items()] != [
                (_without_users(e), n) for e, n in first.events.items()
            ] or other.delta != first.delta:
                raise ValueError("ledgers must hold the same events, for different users, at the same delta")
            joined.is_simulation |= other.is_simulation
            for note in other.notes:
                joined.note(note)
        for events in zip(*(ledger.events.items() for ledger in ledgers), strict=True):
            event, times = events[0]
            if isinstance(event, LocalReports | ShuffledReports):
                event = replace(event, n_users=sum(cast(LocalReports, e).n_users for e, _ in events))
            joined.events[event] += times
        return joined

    # ---- reading ------------------------------------------------------------------------------------------------

    def epsilon(self, against: str = "server", delta: float | None = None) -> float:
        """What the whole ledger costs one user, in nats.

        Parameters
        ----------
        against : {"server", "shuffled_server", "public", "key_holder"}
            Who must not learn about the user: the server, which sees every message and its sender; the same server
            behind a shuffler that it cannot bribe; everybody who sees only what the server releases; whoever has the
            key that the noise came from.
        delta : float or None
            At which a figure is stated that is not pure; None takes the ledger's own.

        Returns
        -------
        float
            Infinite where nothing is guaranteed; 0 for an empty ledger.
        """
        view = cast(View, check_choice("against", against, VIEWS))
        delta = self.delta if delta is None else check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
        return composed_epsilon(self.events, view, delta)

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain numbers and strings.

        Returns
        -------
        dict
            One entry per event with its fields, times and costs, and the totals; an infinite epsilon is "infinite".
            docs/reference/ledger.schema.json is the schema.
        """
        return {
            "format": FORMAT,
            "epsilon_unit": "nats",
            "neighboring": "replace",
            "privacy_unit": "user",
            "delta": self.delta,
            "is_simulation": self.is_simulation,
            "events": [
                {
                    "kind": type(event).__name__,
                    "fields": event_fields(event),
                    "times": times,
                    "epsilon_per_round": {view: epsilon_to_json(self._cost(event, 1, view)) for view in VIEWS},
                    "epsilon_whole_run": {view: epsilon_to_json(self._cost(event, times, view)) for view in VIEWS},
                }
                for event, times in self.events.items()
            ],
            "epsilon": {view: epsilon_to_json(self.epsilon(view)) for view in VIEWS},
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, check_costs: bool = True) -> Self:
        """Read what `to_dict` gave, and nothing else; costs are computed anew from the events.

        Parameters
        ----------
        document : mapping
            As from `to_dict`, of this version or of 0.1.0.
        check_costs : bool
            Refuse a document whose own figures are below those of its events.

        Returns
        -------
        Ledger
            Equal in events, delta, mark and notes.

        Raises
        ------
        ValueError
            Names the field that `to_dict` would not have written, or the figure that is too low.
        """
        current, events = read(document)
        ledger = cls(current["delta"])
        ledger.events.update(dict(events))
        ledger.is_simulation = current["is_simulation"]
        ledger.notes = current["notes"].copy()
        if check_flag("check_costs", check_costs):
            ledger._refuse_understatement(current)
        return ledger

    def _refuse_understatement(self, document: Mapping[str, Any]) -> None:
        try:
            own = self.to_dict()
        except (UnsupportedEventError, ArithmeticError) as error:
            raise ValueError(f"ledger.events cannot be accounted for together: {error}") from None
        pairs = [(document["epsilon"], own["epsilon"], "ledger.epsilon")]
        for place, (entry, mine) in enumerate(zip(document["events"], own["events"], strict=True)):
            pairs += [
                (entry[name], mine[name], f"ledger.events[{place}].{name}")
                for name in ("epsilon_per_round", "epsilon_whole_run")
            ]
        for stated, found, path in pairs:
            if reason := understated(stated, found, path):
                raise ValueError(reason)

    def to_json(self) -> str:
        """`to_dict` as JSON text.

        Returns
        -------
        str
            Indented.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` gave.

        Parameters
        ----------
        text : str
            JSON.

        Returns
        -------
        Ledger
            As from `from_dict`.
        """
        return cls.from_dict(parse(text))

    def digest(self) -> str:
        """Name the ledger's content, so that two people know that they speak of the same.

        Returns
        -------
        str
            SHA-256, in hexadecimal, of the format, delta, marks, events and remarks in their order, as JSON with sorted
            names; what is computed from them has no part in it.

        Examples
        --------
        >>> from fastfedrec.accounting import Ledger
        >>> Ledger.from_json(Ledger().to_json()).digest() == Ledger().digest()
        True
        """
        content = {
            "format": FORMAT,
            "delta": self.delta,
            "is_simulation": self.is_simulation,
            "events": [[type(event).__name__, event_fields(event), times] for event, times in self.events.items()],
            "notes": self.notes,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def report(self, path: str | os.PathLike[str], *, about: str | None = None) -> None:
        """Write a page for somebody who must sign: what is protected, from whom, on which assumptions, and what is not.

        Parameters
        ----------
        path : path-like
            Ends in ``.html`` (one file without scripts, for a browser or the printer) or ``.md``.
        about : str or None
            What was run, in a line, such as a model's name; for the title.

        Raises
        ------
        ValueError
            Another ending, or a place that is no ordinary file.

        Notes
        -----
        The page says in its first line where there is no guarantee.  It states the best that a guesser between two
        histories of a person can reach, (e^epsilon + delta) / (1 + e^epsilon) [1]_, and nothing that the events and
        remarks do not prove.  Every text in it is escaped, whoever wrote it.

        References
        ----------
        .. [1] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015, Theorem 2.1.
        """
        path = check_path("path", path)
        pages = {".html": to_html, ".md": to_markdown}
        if path.suffix.lower() not in pages:
            raise ValueError(f"path must end in .html or .md, got {os.fsdecode(path)!r}")
        write_text(path, pages[path.suffix.lower()](make_report(self, about)))

    def summary(self) -> str:
        """Tell who is protected from whom, per report, per round and in the whole run.

        Returns
        -------
        str
            A table for each event and, where there are several, one for all of them; then what the figures rest on.
        """
        lines = ["Privacy ledger: epsilon in nats, for replacing all data of one user"]
        for event, times in self.events.items():
            lines += ["", f"{event.mechanism}, {times} round{'s' * (times != 1)}{describe(event)}", ""]
            lines.append(self._table(event, times))
        if len(self.events) != 1:
            rows = [(VIEWS[view], format_epsilon(self.epsilon(view))) for view in VIEWS] if self.events else []
            lines += ["", "all of it", "", format_table(("protected from", "in all"), rows)]
        lines += ["", *preconditions(self.events, self.is_simulation), *self.notes]
        return "\n".join(lines)

    def _table(self, event: Event, times: int) -> str:
        rows = []
        for view in VIEWS:
            per_report = "-"
            if isinstance(event, LocalReports | ShuffledReports):
                per_report = format_epsilon(self._cost(replace(event, n_reports=1), 1, view))
            per_round, whole = self._cost(event, 1, view), self._cost(event, times, view)
            by = theorem(event, view, self.delta) if math.isfinite(whole) else no_theorem(event, view)
            rows.append((VIEWS[view], per_report, format_epsilon(per_round), format_epsilon(whole), by))
        return format_table(("protected from", "per report", "per round", "whole run", "by"), rows)

    def _cost(self, event: Event, times: int, view: View) -> float:
        return composed_epsilon({event: times}, view, self.delta)

    def __repr__(self) -> str:
        kind = ", simulation" if self.is_simulation else ""
        total = format_epsilon(self.epsilon())
        return f"<Ledger: {sum(self.events.values())} events, epsilon {total} against the server{kind}>"

    def _repr_html_(self) -> str:
        total = [(VIEWS[view], format_epsilon(self.epsilon(view))) for view in VIEWS] if self.events else []
        events = [(event.mechanism, times) for event, times in self.events.items()]
        notes = [(text,) for text in (*preconditions(self.events, self.is_simulation), *self.notes)]
        tables = (
            html_table(("protected from", "epsilon, in all"), total),
            html_table(("what was done", "times"), events),
        )
        more = [html_table(("what the figures rest on",), notes)] if notes else []
        return html_card("Privacy ledger: in nats, for replacing all data of one user", {}, *tables, *more)


def _without_users(event: Event) -> Event:
    return replace(event, n_users=1) if isinstance(event, LocalReports | ShuffledReports) else event
