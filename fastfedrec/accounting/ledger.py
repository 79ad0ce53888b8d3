"""The privacy ledger: the events of one or more runs on the same people, and what they cost together."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

from fastfedrec._check import check_choice
from fastfedrec._table import format_epsilon, format_table
from fastfedrec.accounting.events import CentralRelease, Event, LocalReports, Unprotected

_ADVERSARIES = ("server", "public")
_KINDS = {kind.__name__: kind for kind in (LocalReports, CentralRelease, Unprotected)}
NOT_COMPUTED = "not computed yet"


class Ledger:
    """What was done to people's data, and what it costs, by pure composition.

    Pass one ledger to several ``fit`` calls to add up what runs on the same people cost together.

    Attributes
    ----------
    events : Counter
        Each `Event` and how many times (rounds) it happened, in order of first appearance.
    is_simulation : bool
        Whether any run took its noise from a seed: then nothing is claimed against whoever holds the seed.
    notes : list of str
        What else a reader must know.

    Notes
    -----
    Two events on the same people compose: epsilons add, and so this is an upper bound whatever the data and however
    later events depended on earlier ones (adaptive composition).  One user's data are replaced ("replace"); a release
    whose bound is for adding or removing a user counts twice, because a replacement is one removal and one addition.
    Amplification by shuffling is not computed yet.

    References
    ----------
    .. [1] Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Theorem 3.16 (composition).

    Examples
    --------
    >>> from fastfedrec.accounting import Ledger, LocalReports
    >>> ledger = Ledger()
    >>> for _ in range(20):
    ...     ledger.record(LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=50_000))
    >>> ledger.epsilon()
    5000.0
    """

    def __init__(self) -> None:
        self.events: Counter[Event] = Counter()
        self.is_simulation = False
        self.notes: list[str] = []

    def record(self, event: Event, *, simulation: bool = False) -> None:
        """Add one event, before its messages leave the clients.

        Parameters
        ----------
        event : LocalReports, CentralRelease or Unprotected
            What is about to happen.
        simulation : bool
            Whether the noise comes from a seed.

        Raises
        ------
        TypeError
            An event whose cost is not known here.
        """
        _costs(event)
        self.events[event] += 1
        self.is_simulation |= simulation

    def note(self, text: str) -> None:
        """Add a remark, once.

        Parameters
        ----------
        text : str
            One sentence.
        """
        if text not in self.notes:
            self.notes.append(text)

    def epsilon(self, against: str = "server") -> float:
        """What the whole ledger costs one user, in nats, by pure composition.

        Parameters
        ----------
        against : {"server", "public"}
            Who must not learn about the user: the server, which sees every message, or everybody who sees only what
            the server publishes.

        Returns
        -------
        float
            Infinite where nothing is guaranteed; 0 for an empty ledger.
        """
        check_choice("against", against, _ADVERSARIES)
        return sum((times * _costs(event)[against] for event, times in self.events.items()), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain numbers and strings.

        Returns
        -------
        dict
            One entry per event with its fields, times and costs, and the totals; an infinite epsilon is None.
        """
        return {
            "epsilon_unit": "nats",
            "is_simulation": self.is_simulation,
            "events": [
                {
                    "kind": type(event).__name__,
                    "fields": asdict(event),
                    "times": times,
                    "epsilon_per_round": {who: _finite(_costs(event)[who]) for who in _ADVERSARIES},
                    "epsilon_whole_run": {who: _finite(times * _costs(event)[who]) for who in _ADVERSARIES},
                    "epsilon_shuffled": NOT_COMPUTED,
                }
                for event, times in self.events.items()
            ],
            "epsilon": {who: _finite(self.epsilon(who)) for who in _ADVERSARIES},
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; costs are computed anew from the events.

        Parameters
        ----------
        document : mapping
            As from `to_dict`.

        Returns
        -------
        Ledger
            Equal in events, mark and notes.
        """
        ledger = cls()
        for entry in document["events"]:
            kind = _KINDS.get(entry["kind"])
            if kind is None:
                raise ValueError(f"the ledger holds a {entry['kind']!r}, which this version cannot account for")
            ledger.events[kind(**entry["fields"])] += int(entry["times"])
        ledger.is_simulation = bool(document["is_simulation"])
        ledger.notes = [str(note) for note in document["notes"]]
        return ledger

    def to_json(self) -> str:
        """`to_dict` as JSON text.

        Returns
        -------
        str
            Indented.
        """
        return json.dumps(self.to_dict(), indent=2)

    def summary(self) -> str:
        """A table of what each event costs per report, per round and in the whole run.

        Returns
        -------
        str
            Several lines.
        """
        rows: list[tuple[object, ...]] = []
        for event, times in self.events.items():
            for against in _ADVERSARIES:
                cost = _costs(event)[against]
                per_report = format_epsilon(event.epsilon) if isinstance(event, LocalReports) else "-"
                rows.append(
                    (
                        event.mechanism,
                        against,
                        per_report,
                        format_epsilon(cost),
                        times,
                        format_epsilon(times * cost),
                        NOT_COMPUTED,
                    )
                )
        for against in _ADVERSARIES:
            rows.append(("all of it", against, "", "", "", format_epsilon(self.epsilon(against)), NOT_COMPUTED))
        header = ("what users sent", "against", "per report", "per round", "rounds", "whole run", "shuffled")
        lines = ["Privacy ledger: epsilon in nats, for replacing all data of one user, local model", ""]
        lines += [format_table(header, rows), ""]
        lines.append("whole run: pure composition (epsilons add), for any data and adaptive rounds")
        if self.is_simulation:
            lines.append("SIMULATION: the noise came from a seed; nothing is claimed against whoever holds it")
        return "\n".join(lines + self.notes)

    def __repr__(self) -> str:
        kind = ", simulation" if self.is_simulation else ""
        total = format_epsilon(self.epsilon())
        return f"<Ledger: {sum(self.events.values())} events, epsilon {total} against the server{kind}>"


def _costs(event: Event) -> dict[str, float]:
    """What one occurrence costs one user, under "replace", against each adversary."""
    if isinstance(event, LocalReports):
        cost = event.n_reports * event.epsilon
        return {"server": cost, "public": cost}
    if isinstance(event, CentralRelease):
        return {"server": math.inf, "public": 2 * event.epsilon}
    if isinstance(event, Unprotected):
        return {"server": math.inf, "public": math.inf}
    raise TypeError(f"the ledger cannot account for {event!r}: no theorem is known here for a {type(event).__name__}")


def _finite(epsilon: float) -> float | None:
    return None if math.isinf(epsilon) else epsilon
