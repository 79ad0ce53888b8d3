"""What every `fit` does the same way: its common arguments, the model's accounts, and the rounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core.check import check_flag, check_instance
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.system import FederatedSystem

__all__ = ["Fit", "Phase", "resolve_engine", "resolve_ledger"]


def resolve_ledger(ledger: Ledger | None, delta: float | None = None) -> Ledger:
    """The ledger of a fit: the caller's, or a new one at `delta` (None: the default)."""
    if ledger is None:
        return Ledger() if delta is None else Ledger(delta)
    return check_instance("ledger", ledger, Ledger, "pass a model's ledger_")


def resolve_engine(engine: Engine | None) -> Engine:
    """The engine of a fit: the caller's, or this process."""
    return LocalEngine() if engine is None else check_instance("engine", engine, Engine, "use LocalEngine()")


class Phase(NamedTuple):
    """Rounds of one kind, as a model gives them before any of them is run: on public numbers alone.

    Parameters
    ----------
    system : FederatedSystem
        Answers them.
    state : object
        Their first state; of a phase after others, one of its shapes and types.
    n_rounds : int
        How many there are.
    """

    system: Any
    state: Any
    n_rounds: int = 1


@dataclass
class Fit:
    """The common arguments of one fit, checked, and its accounts."""

    key: Key
    ledger: Ledger
    engine: Engine
    n_threads: int
    show_progress: bool
    communication: CommunicationLedger = field(default_factory=CommunicationLedger)
    caller: str | None = None  # whose fit it is, where it is not that of the model that begins

    @classmethod
    def resolve(
        cls,
        key: Key | None,
        n_threads: int,
        show_progress: bool,
        ledger: Ledger | None,
        engine: Engine | None,
        delta: float | None = None,
    ) -> Self:
        """Check what `fit` was given; nothing is drawn or claimed yet."""
        return cls(
            resolve_key(key),
            resolve_ledger(ledger, delta),
            resolve_engine(engine),
            resolve_n_threads(n_threads),
            check_flag("show_progress", show_progress),
        )

    def begin(self, model: Any, data: Interactions) -> tuple[Ledger, CommunicationLedger]:
        """Claim the key, after all that could be refused, and return the accounts that the model will show."""
        self.caller = self.caller or type(model).__name__
        self.key.claim(f"{self.caller}.fit")
        self.communication.n_clients = getattr(model, "n_users", None)
        return model._open_account(self.ledger, data, simulation=self.key.is_simulation), self.communication

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
        )
