"""Common steps of every `fit`: shared arguments, ledgers and rounds."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.accounting.events import Event
from fastfedrec.core.check import check_flag, check_instance
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.run_account import RunAccount
from fastfedrec.rounds.stored_fit import StoredFit
from fastfedrec.rounds.system import FederatedSystem

__all__ = ["Fit", "Phase", "resolve_engine", "resolve_ledger"]


def resolve_ledger(ledger: Ledger | None, delta: float | None = None) -> Ledger:
    """Return the caller's ledger, or a new one at `delta` (None for the default delta)."""
    if ledger is None:
        return Ledger() if delta is None else Ledger(delta)
    return check_instance("ledger", ledger, Ledger, "pass a model's ledger_, or read a file by Ledger.from_json")


def resolve_engine(engine: Engine | None) -> Engine:
    """Return the caller's engine, or a local engine for None."""
    return LocalEngine() if engine is None else check_instance("engine", engine, Engine, "use LocalEngine()")


class Phase(NamedTuple):
    """Planned rounds of one system, which depend on public numbers alone."""

    system: Any
    # A later phase has a state with the right shapes and types, since its first state is not known when it is planned.
    state: Any
    n_rounds: int = 1


@dataclass
class Fit:
    """Checked common arguments of one fit, with its ledgers."""

    key: Key
    ledger: Ledger
    engine: Engine
    n_threads: int
    show_progress: bool
    communication: CommunicationLedger = field(default_factory=CommunicationLedger)
    caller: str | None = None  # name of the outer model, where one model fits another
    stored: StoredFit | None = None
    is_part: bool = False  # whether an outer model has opened the account of the checkpoint

    @classmethod
    def resolve(
        cls,
        key: Key | None,
        n_threads: int,
        show_progress: bool,
        ledger: Ledger | None,
        engine: Engine | None,
        delta: float | None = None,
        stored: StoredFit | None = None,
    ) -> Self:
        """Check the common arguments of `fit` without drawing noise; only a checkpoint claims the key."""
        checked = (
            resolve_ledger(ledger, delta),
            resolve_engine(engine),
            resolve_n_threads(n_threads),
            check_flag("show_progress", show_progress),
        )
        is_part = stored is not None and stored.is_open
        if stored is not None and not is_part:
            stored.has_shared_ledger = ledger is not None
            key = stored.open(None if key is None else resolve_key(key))
        return cls(resolve_key(key), *checked, stored=stored, is_part=is_part)

    def begin(self, model: Any, data: Interactions) -> tuple[Ledger, CommunicationLedger]:
        """Check the memory, claim the key, and return the model's privacy and communication ledgers."""
        model._check_memory(data, self.n_threads)
        # The claim comes after every check of arguments: an error must not use up an entropy key.
        self.caller = self.caller or type(model).__name__
        self.key.claim(f"{self.caller}.fit")
        self.communication.n_clients = getattr(model, "n_users", None)
        return self.open_account(model, data), self.communication

    def open_account(self, model: Any, data: Interactions) -> Ledger:
        """Open the account of a model, and return the ledger that the fit writes to."""
        stored = None if self.is_part else self.stored
        return model._open_account(self.ledger, data, simulation=self.key.is_simulation, stored=stored)

    def check_budget(
        self, data: Interactions, plans: Callable[[], Sequence[Sequence[Phase]]], other: Iterable[Event] = ()
    ) -> None:
        """Refuse alternative plans that do not fit in the ledger's budget; each has the `other` events as well."""
        if self.ledger.budget is None:
            return
        for plan in plans():
            events = Counter(other)
            for system, _, n_rounds in plan:
                events[self.engine._as_carried(system.round_event(system.count_clients(data)))] += n_rounds
            self.check_plan(events)

    def check_plan(self, events: Mapping[Event, int]) -> None:
        """Refuse events of the whole fit that do not fit in the ledger's budget."""
        # The ledger may have events of the run that an interrupted process recorded.
        self.ledger.check_budget(events if self.stored is None else self.stored.uncharged(self.ledger, events))

    @property
    def account(self) -> Ledger | RunAccount:
        """Return the record of events that are no rounds of an engine: the ledger, or the account of a checkpoint."""
        return self.ledger if self.stored is None else self.stored.account

    def rounds(
        self,
        system: FederatedSystem,
        state: Any,
        shards: Interactions | Mapping[str, Interactions],
        n_rounds: int = 1,
        *,
        first_round: int = 0,
        n_in_all: int = 0,
        after_round: Callable[[int, Any], None] | None = None,
    ) -> Any:
        """Run rounds on the engine and return the last state."""
        if self.stored is not None:
            self.stored.next_phase()
        return self.engine.run(
            system,
            state,
            shards,
            key=self.key,
            n_rounds=n_rounds,
            first_round=first_round,
            n_in_all=n_in_all,
            ledger=self.ledger,
            communication=self.communication,
            n_threads=self.n_threads,
            show_progress=self.show_progress,
            after_round=after_round,
            name=self.caller,
            stored=self.stored,
        )
