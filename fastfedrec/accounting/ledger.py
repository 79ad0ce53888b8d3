"""The privacy ledger: the events of one or more runs on the same users, and the cost of each adversary's view."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from fastfedrec.accounting._budgeted import BudgetedEvents
from fastfedrec.accounting._crowds import after_dropouts, join_shards
from fastfedrec.accounting._dp_accounting import DPAccountingEvents
from fastfedrec.accounting._ledger_format import FORMAT, KINDS, digest, event_fields, parse, read, refuse_understatement
from fastfedrec.accounting._ledger_tables import make_card, summarize
from fastfedrec.accounting._ledger_words import epsilon_against, headline
from fastfedrec.accounting._run_events import RunEvents, runs_from_json
from fastfedrec.accounting._work import limit_work
from fastfedrec.accounting.events import Event, LocalReports, UnsupportedEventError, check_event
from fastfedrec.accounting.filters import Budget
from fastfedrec.accounting.notes import Note, note_from_json, note_kind, note_to_json
from fastfedrec.accounting.report import make_report
from fastfedrec.accounting.views import VIEWS, Cost, View, cost_of, seen_event, stated_cost
from fastfedrec.core.check import check_flag, check_instance, check_integer, check_real
from fastfedrec.core.old_names import refuse_old_keywords
from fastfedrec.core.pages import write_page
from fastfedrec.core.text import epsilon_to_json

__all__ = ["Ledger"]


class Ledger(DPAccountingEvents, BudgetedEvents, RunEvents):
    """Record of the uses of the users' data, and of their privacy cost against each adversary.

    Pass one ledger to several ``fit`` calls to add up the costs of all runs on the same users.

    Parameters
    ----------
    delta : float
        Delta at which figures are stated, in (0, 1).
    budget : float or None
        Largest epsilon in nats, at `delta`, that all events together may cost one user, also if releases choose the
        events.  An event beyond it, or without a theorem for filters, is refused before it happens.  None has no limit.
    budget_view : {"public", "shuffled_server", "server"} or {"local", "shuffle", "central", "aggregator"}
        View of the adversary against whom the budget holds, or a word for the trusted party, as in `epsilon`.
    budget_filter : {"gaussian", "renyi"}
        Theorem of the budget: "gaussian" for Gaussian noise without sampling and pure events, "renyi" for all events
        with Renyi divergences (`Budget`).

    Attributes
    ----------
    budget : Budget or None
        The budget with its delta, view and filter.
    events : Counter
        Each event and the number of times (rounds) that it happened, in order of first appearance.
    is_simulation : bool
        Whether any run took its noise from a seed.  Then there is no claim against a holder of the seed.
    notes : list of Note
        Further sentences that a reader must know, each with a kind (`Note.kind`).
    runs : dict
        The events of each run with a checkpoint, by the run's name; `events` has them, too.

    Notes
    -----
    Every figure is for replacing all data of one user ("replace", privacy unit "user").  It is an upper bound for any
    data and any use of earlier outputs by later events.  An event that was proved for another relation states that
    relation.  A figure is the minimum over all accountants at its delta, so a further event lowers it by at most the
    discretization error, 1e-4 of itself.

    The kind, parameters and number of events must be fixed before the first release, or be chosen without regard to
    releases.  A user of this package who fits again until a released model is good, or who stops a fit because of a
    release, chooses events by releases.  Then three figures hold: ``epsilon(against, delta=0)``, the sum of pure
    epsilons; a figure computed for a whole plan that was fixed beforehand and that includes the events; and a budget,
    because a ledger with a budget is a privacy filter.  See "Adaptive choices" and "Budgets" in
    docs/explanation/accounting/accounting.md.

    References
    ----------
    .. [1] Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Theorem 3.16 (composition).
    .. [2] Wang et al., "Privacy amplification via shuffling: unified, simplified, and tightened", VLDB 2024.
    .. [3] Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters: pay-as-you-go composition", NeurIPS 2016.
    .. [4] Lyu, "Composition theorems for interactive differential privacy", NeurIPS 2022 (sums over parts).

    Examples
    --------
    >>> from fastfedrec.accounting import Ledger, LocalReports
    >>> ledger = Ledger(delta=1e-6)
    >>> for _ in range(20):
    ...     ledger.record(LocalReports("binary response", 2.5, n_reports=100, n_users=50_000, separable=True))
    >>> ledger.epsilon("server", delta=0)
    5000.0
    >>> round(ledger.epsilon("server"))
    4505
    >>> round(ledger.epsilon("shuffled_server"), 2)
    4.18
    """

    def __init__(
        self,
        delta: float = 1e-6,
        budget: float | None = None,
        budget_view: str = "public",
        budget_filter: str = "gaussian",
    ) -> None:
        self.delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
        self.budget = None if budget is None else Budget(budget, self.delta, budget_view, budget_filter)
        self.events: Counter[Event] = Counter()
        self.is_simulation = False
        self.notes: list[Note] = []
        self.runs: dict[str, Counter[Event]] = {}

    # ---- writing ------------------------------------------------------------------------------------------------

    def record(self, event: Event, *, simulation: bool = False) -> None:
        """Add one event, before its messages leave the clients.

        Parameters
        ----------
        event : event
            Event that is about to happen.
        simulation : bool
            Whether the noise comes from a seed.

        Raises
        ------
        TypeError
            The value is no event, or no theorem here states its cost to a user (`UnsupportedEventError`).
        BudgetError
            The event would exceed the budget, or has no theorem for its filter; the ledger is unchanged.
        """
        if type(check_event("event", event)).__name__ not in KINDS:
            raise TypeError(f"event must be an elementary event, got {event!r}; record each of its parts")
        simulation = check_flag("simulation", simulation)
        # An event of unknown cost raises here, before it is in the ledger.
        for view in VIEWS:
            seen_event(event, view)
        self.check_budget({event: 1})
        self.events[event] += 1
        self.is_simulation |= simulation

    @refuse_old_keywords(n_users_heard="n_reporting_users")
    def amend(self, event: Event, n_reporting_users: int) -> None:
        """Correct the last record of some reports or shares of noise: fewer users answered than requested.

        Parameters
        ----------
        event : LocalReports, ShuffledReports, ShuffledCounts, GaussianShares or SkellamShares
            Event as recorded.
        n_reporting_users : int
            Number of users with a received report.  All users who dropped out may be honest.  With a share h of honest
            users, at least ``n_reporting_users - (1 - h) * n_users`` honest users remain.  If none remains there is no
            crowd, and reports that may have left their users are counted as without a shuffler.  The same number of
            shares of noise remains.
        """
        n_reporting_users = check_integer("n_reporting_users", n_reporting_users, low=0)
        if (amended := self._amended(event, n_reporting_users)) != event:
            self._restate(event, amended)

    def confirm_shuffled(self, event: LocalReports, n_users: int, honest_fraction: float = 1.0) -> None:
        """Correct the last record of some reports: they passed a shuffler, in a batch that was large enough.

        Parameters
        ----------
        event : LocalReports
            Event as recorded before the batch arrived; its users are those who were requested.
        n_users : int
            Public number of users that the shuffler waits for.  A number above the number of requested users counts as
            the latter, because the additional users may be dishonest.
        honest_fraction : float
            Share of the requested users, in (0, 1], who follow the protocol and do not reveal their reports.  All other
            users may be in the batch.  If they can fill it, the reports are counted as without a shuffler.

        Raises
        ------
        TypeError, ValueError
            The event is not local reports, or is not in the ledger.
        """
        # Other reports have an honest share and candidates, which a new event would lose.
        check_instance("event", event, LocalReports, "pass the reports as they were recorded, before their batch came")
        n_users = check_integer("n_users", n_users, low=1)
        requested = event._shuffled(honest_fraction)
        self._restate(event, after_dropouts(requested, n_users) if n_users < requested.n_users else requested)

    def note(self, text: str, kind: str | None = None) -> None:
        """Add a note, unless the ledger has its text already.

        Parameters
        ----------
        text : str
            One or more whole sentences.
        kind : {"guarantee", "choice", "assumption", "not covered", "remark"} or None
            Kind of the note (`NOTE_KINDS`), which decides its section on the page for approval.  None keeps the kind
            of a `Note`; another text is a "remark".
        """
        if text not in self.notes:
            self.notes.append(Note(text, note_kind(text) if kind is None else kind))

    @classmethod
    def of_shards(cls, ledgers: Sequence["Ledger"]) -> Self:
        """Join the ledgers of shards that ran the same rounds, each for its own users, behind one shuffler.

        Parameters
        ----------
        ledgers : sequence of Ledger
            Ledgers of disjoint sets of users.

        Returns
        -------
        Ledger
            Cost of one user; the user's reports hide among the users of all shards.

        Raises
        ------
        ValueError
            The shards differ in an event, its number of rounds, delta, or budget.

        Notes
        -----
        The order of events may differ.  The number of honest users is at least the sum of the shards' numbers.  If
        several shards have crowds of several sizes for one event, each counts with its smallest, because it is unknown
        which of their rounds coincide.  Among releases of samples of fixed size, the one with the highest rate counts,
        because a user is in one shard.
        """
        if not ledgers:
            raise ValueError("`ledgers` must not be empty; pass at least one ledger")
        if len({ledger.delta for ledger in ledgers}) > 1:
            deltas = ", ".join(f"{ledger.delta:g}" for ledger in ledgers)
            raise ValueError(f"`ledgers` must state their figures at the same delta, got {deltas}; set one for all")
        if any(ledger.budget != ledgers[0].budget for ledger in ledgers):
            budgets = ", ".join(str(ledger.budget) for ledger in ledgers)
            raise ValueError(f"`ledgers` must have the same budget, got {budgets}; make all with one")
        joined = cls(ledgers[0].delta)
        joined.budget = ledgers[0].budget
        joined.events = join_shards([ledger.events for ledger in ledgers])
        for ledger in ledgers:
            joined.is_simulation |= ledger.is_simulation
            for note in ledger.notes:
                joined.note(note)
        return joined

    # ---- reading ------------------------------------------------------------------------------------------------

    def epsilon(self, against: str | None = None, delta: float | None = None) -> float:
        """Compute the cost of the whole ledger to one user, in nats.

        Parameters
        ----------
        against : {"server", "shuffled_server", "public", "key_holder"}, a word for the trusted party, or None
            View of the adversary: the server, which sees every message and its sender; the same server behind a
            shuffler that does not collude with it; any party that sees only the server's releases; a holder of the key
            of the noise.  A system's `trust` is also accepted, and means the strongest adversary that is left: "local"
            and "aggregator" the server, "shuffle" the server behind a shuffler, "central" the public.  A figure that
            needs trust in another party is infinite then.  None is the server.
        delta : float or None
            Delta in [0, 1); 0 gives the sum of the pure epsilons.  None uses the ledger's own delta.  At the ledger's
            own delta, the sum is stated if a delta lowers it by less than a ten-thousandth.

        Returns
        -------
        float
            Smallest figure over all accountants at that delta (`composed_epsilon`).  It is infinite without a
            guarantee, such as at delta 0 with an event that is not pure, and 0 for an empty ledger.

        Raises
        ------
        ValueError
            `against` is None, and the figure is infinite against the server but finite against another adversary.
        """
        delta = self.delta if delta is None else check_real("delta", delta, low=0.0, high=1.0)
        cost = stated_cost if delta == self.delta else cost_of
        return epsilon_against(against, lambda view: cost(self.events, view, delta).epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as plain numbers and strings.

        Returns
        -------
        dict
            One entry per event with its fields, times and costs at the ledger's delta; the totals at this delta
            ("epsilon") and at delta 0 ("pure_epsilon"); the digest.  An infinite epsilon is "infinite".
            The documentation's reference has the schema, ledger.schema.json.
        """
        return self._document(stated_cost)

    def _document(self, cost: Callable[[Mapping[Event, int], View, float], Cost]) -> dict[str, Any]:
        """Return the document with the figures that `cost` computes."""

        def costs(events: Mapping[Event, int], delta: float) -> dict[str, float | str]:
            return {view: epsilon_to_json(cost(events, view, delta).epsilon) for view in VIEWS}

        document = self._content()
        for entry, (event, times) in zip(document["events"], self.events.items(), strict=True):
            for name, n_rounds in (("epsilon_per_round", 1), ("epsilon_whole_run", times)):
                entry[name] = costs({event: n_rounds}, self.delta)
        for name, delta in (("epsilon", self.delta), ("pure_epsilon", 0.0)):
            document[name] = costs(self.events, delta)
        return document | {"digest": digest(document)}

    def _content(self) -> dict[str, Any]:
        """Return the part of the document that is not computed from the events."""
        events = [(type(event).__name__, event_fields(event), times) for event, times in self.events.items()]
        optional = {"budget": self.budget and self.budget.to_dict(), "runs": self._runs_to_json()}
        return {
            "format": FORMAT,
            "epsilon_unit": "nats",
            "neighboring": "replace",
            "privacy_unit": "user",
            "delta": self.delta,
            "is_simulation": self.is_simulation,
            "events": [{"kind": kind, "fields": fields, "times": times} for kind, fields, times in events],
            "notes": [note_to_json(note) for note in self.notes],
        } | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, check_costs: bool = True) -> Self:
        """Read a document that `to_dict` wrote, and compute all costs again from its events.

        Parameters
        ----------
        document : mapping
            Document of `to_dict`, of this version or of 0.1.0.
        check_costs : bool
            Whether to refuse a document with a figure below the cost of its events, or with a digest that differs from
            the digest of its content: then an event or remark was changed.  Larger figures are read, because earlier
            versions can have larger ones.  For a document of a version without digests only the figures are checked.

        Returns
        -------
        Ledger
            Ledger with equal events, delta, budget, simulation mark and notes.

        Raises
        ------
        ValueError
            A field is not as `to_dict` writes it, a figure is too low, or the digest differs; the message names it.
            With `check_costs`, also if the figures take longer to compute than those of a usual run, such as for 10^9
            shuffled reports of a user.
        """
        current, events = read(document)
        ledger = cls(current["delta"])
        ledger.budget = None if "budget" not in current else Budget(delta=ledger.delta, **current["budget"])
        ledger.events.update(dict(events))
        ledger.is_simulation = current["is_simulation"]
        ledger.notes = [note_from_json(note) for note in current["notes"]]
        ledger.runs = runs_from_json(current, ledger.events)
        if check_flag("check_costs", check_costs):
            ledger._refuse_understatement(current)
        return ledger

    def _refuse_understatement(self, document: Mapping[str, Any]) -> None:
        """Raise if a document states less than its events cost."""
        # Versions without digests state the figure at delta even if the figure at delta 0 is hardly larger.
        cost = stated_cost if "digest" in document else cost_of
        try:
            with limit_work(len(self.events)):
                recomputed = self._document(cost)
        except (UnsupportedEventError, ArithmeticError) as error:
            raise ValueError(f"ledger.events have no known total cost: {error}") from None
        refuse_understatement(document, recomputed)

    def to_json(self) -> str:
        """Return `to_dict` as JSON text.

        Returns
        -------
        str
            Indented text.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, *, check_costs: bool = True) -> Self:
        """Read text that `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON text.
        check_costs : bool
            As for `from_dict`.

        Returns
        -------
        Ledger
            The ledger, as from `from_dict`.
        """
        return cls.from_dict(parse(text), check_costs=check_costs)

    def digest(self) -> str:
        """Compute a digest of the ledger's content, which shows whether two ledgers are the same.

        Returns
        -------
        str
            SHA-256, in hexadecimal, of the format, delta, budget, simulation mark, events and notes in their order,
            as JSON with sorted names.  Figures that are computed from these have no effect on it.

        Examples
        --------
        >>> from fastfedrec.accounting import Ledger
        >>> Ledger.from_json(Ledger().to_json()).digest() == Ledger().digest()
        True
        """
        return digest(self._content())

    def report(self, path: str | os.PathLike[str], *, about: str | None = None) -> None:
        """Write a page for a reader who must approve the run: guarantees, adversaries, assumptions and limits.

        Parameters
        ----------
        path : path-like
            Path that ends in ``.html`` (one file without scripts, for a browser or the printer) or ``.md``.
        about : str or None
            Description of the run in one line, such as a model's name; for the title.

        Raises
        ------
        ValueError
            The path has another ending, or is not an ordinary file.

        Notes
        -----
        If there is no guarantee, the first line of the page states it.  The page states the largest share of right
        guesses between two histories of a user, (e^epsilon + delta) / (1 + e^epsilon) [1]_.  Every claim on it follows
        from the events and remarks.  Every text on it is escaped.

        References
        ----------
        .. [1] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015, Theorem 2.1.
        """
        write_page(path, make_report(self, about))

    def summary(self) -> str:
        """Return tables of the cost against each adversary, per report, per round and in the whole run.

        Returns
        -------
        str
            A table for each event and, if there are several, one for all of them; then the conditions of the figures.
        """
        return summarize(self)

    def __repr__(self) -> str:
        kind = ", simulation" if self.is_simulation else ""
        return f"<Ledger: {sum(self.events.values())} events, {headline(self.events, self.delta)}{kind}>"

    def _repr_html_(self) -> str:
        return make_card(self)
