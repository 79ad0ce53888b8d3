"""The loop of rounds that all engines share, on the server's side."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.accounting.events import Event
from fastfedrec.core.check import check_integer
from fastfedrec.core.log import log_done
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import default_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.receiver import Rejection, RoundReceiver
from fastfedrec.rounds.stored_fit import StoredFit
from fastfedrec.rounds.system import FederatedSystem

__all__ = ["Engine", "NoAnswerError"]

_MAX_REASONS = 5  # rejections that an error message lists


class NoAnswerError(RuntimeError):
    """No message was accepted in any round, so there is no model.

    Parameters
    ----------
    message : str
        Description of the run with the reasons of the rejections.
    ledger : Ledger
        Ledger that charges the rounds anyway: users may have sent the messages that were rejected or lost.
    rejections : tuple of Rejection
        Every message that was rejected or missing.
    """

    def __init__(self, message: str, ledger: Ledger, rejections: tuple[Rejection, ...]):
        super().__init__(message)
        self.ledger, self.rejections = ledger, rejections


class Engine(ABC):
    """Base class that runs a system's rounds; a subclass decides where shards compute their messages.

    Parameters
    ----------
    n_shards : int
        Number of shards of the users.  A model with integer updates does not depend on it.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.
    """

    #: Whether the messages of a round have the nodes' shares of the noise, and reach the server as their sum alone.
    has_secure_sums = False

    def __init__(self, n_shards: int = 1):
        self.n_shards = check_integer("n_shards", n_shards, low=1)
        self.rejections: list[Rejection] = []

    def run(
        self,
        system: FederatedSystem,
        state: Any,
        interactions: Interactions | Mapping[str, Interactions],
        *,
        key: Key,
        n_rounds: int,
        first_round: int = 0,
        n_in_all: int = 0,
        ledger: Ledger,
        communication: CommunicationLedger,
        n_threads: int = 0,
        show_progress: bool = False,
        after_round: Callable[[int, Any], None] | None = None,
        name: str | None = None,
        stored: StoredFit | None = None,
    ) -> Any:
        """Run rounds first_round, ..., n_rounds - 1.

        Parameters
        ----------
        system : FederatedSystem
            System that defines the local rounds, the merge and the server's step.
        state : object
            State of the first round.
        interactions : Interactions or mapping of str to Interactions
            Data of all users; a mapping has the data of each shard under the shard's name, such as an entity's.
        key : Key
            One key for all shards.  A real deployment has a separate key for each node.
        n_rounds : int
            Number of rounds of this phase, including those before `first_round`.
        first_round : int
            Number of the round that `state` belongs to; above 0 for a run that is resumed.
        n_in_all : int
            Number of rounds of the whole fit, for logs; 0 for `n_rounds`.
        ledger, communication : Ledger and CommunicationLedger
            Ledgers that record each round when it begins.
        n_threads : int
            Number of threads of the shards and of the server's steps; 0 for all.
        show_progress : bool
            Whether to show a progress bar.
        after_round : callable or None
            Function that is called with the number of each finished round and the new state.
        name : str or None
            Name of the model in logs, progress bars and messages; None for the name of the system's class.
        stored : StoredFit or None
            Checkpoint of the fit: a recorded round uses its recorded messages, and each other round is recorded.

        Returns
        -------
        object
            State after the last round.

        Raises
        ------
        NoAnswerError
            No message was accepted in any of the rounds; the error has the ledger.  If only some rounds have no
            accepted message, the ledger gets a note for each of them.
        BudgetError
            The remaining rounds do not fit in the ledger's budget; no message was made.
        """
        self.rejections = []
        name = ", ".join(filter(None, (name or type(system).__name__, system._what)))
        shards = self._shards_of(interactions)
        expected = {name: system.count_clients(shard) for name, shard in shards.items()}
        n_clients = sum(expected.values())
        # The ledger of a resumed run has a note for each earlier round without an accepted message.
        was_answered = any(set(_unanswered(name, number)).isdisjoint(ledger.notes) for number in range(first_round))
        # A resumed run has some of its rounds in the ledger already.
        account = ledger if stored is None else stored.account
        # A ledger with a budget refuses all rounds before the first one.
        account.check_budget({self._as_carried(system.round_event(n_clients)): n_rounds - first_round})
        # The bar counts the remaining rounds of a resumed run, and round numbers continue from `first_round`.
        rounds = progress_rounds(n_rounds - first_round, show=show_progress, description=name)
        with self._distribute(shards, key) as handles, default_threads(n_threads):
            for round_number in (first_round + number for number in rounds):
                # The ledger charges a round before its messages exist, so that a crash cannot hide a release.
                event = self._as_carried(system.round_event(n_clients))
                account.record(event, simulation=key.is_simulation)
                communication.record(system.traffic(state, n_clients))
                receiver = self._receiver(system, state, round_number, expected)
                is_recorded = stored is not None and stored.recall_round(receiver, shards)
                if not is_recorded:
                    if stored is not None:
                        stored.charge(ledger)
                    self._collect(receiver, handles, key, n_threads)
                answered = receiver.partial_round()
                update = receiver.close()
                self.rejections += receiver.rejections
                self._amend(account, event, update.n_clients)
                if expected and not answered.answered:
                    ledger.note(_unanswered(name, round_number)[0], "choice")
                else:
                    was_answered = True
                # The check precedes the server's step, so that no noise is drawn for an update without any client.
                if not was_answered and round_number == n_rounds - 1:
                    self._log_round(name, round_number + 1, n_in_all or n_rounds, receiver)
                    message = _describe_failure(name, n_rounds, self.rejections)
                    raise NoAnswerError(message, ledger, tuple(self.rejections))
                # A restart after this line must apply the same messages, since the step may release noise with them.
                self._settle(receiver)
                if stored is not None and not is_recorded:
                    stored.keep_round(system, answered, communication.rounds[-1], shards, ledger)
                state = system.apply(state, update)
                self._log_round(name, round_number + 1, n_in_all or n_rounds, receiver)
                if after_round is not None:
                    after_round(round_number, state)
        return state

    def _log_round(self, name: str, number: int, n: int, receiver: RoundReceiver) -> None:
        n_refused = len(receiver.rejections)
        refused = f"; {n_refused} messages were refused (see rejections)" if n_refused else ""
        log_done(name, number, n, details=refused)

    def _shards_of(self, interactions: Interactions | Mapping[str, Interactions]) -> dict[str, Any]:
        """Return the shards by name."""
        if isinstance(interactions, Mapping):
            return dict(interactions)
        return {f"shard-{number}": shard for number, shard in enumerate(interactions.shard(self.n_shards))}

    def _as_carried(self, event: Event) -> Event:
        """Return the event of a round with the views of this engine's parties, such as a shuffler."""
        return event

    def _receiver(
        self, system: FederatedSystem, state: Any, round_number: int, expected: Mapping[str, int]
    ) -> RoundReceiver:
        """Make the server's side of a round in which every shard sends its own message."""
        return RoundReceiver(system, state, round_number, expected)

    def _amend(self, ledger: Any, event: Event, n_clients: int) -> None:
        """Correct a round's ledger entry by the number of clients with accepted messages."""
        ledger.amend(event, n_clients)

    def _distribute(self, shards: Mapping[str, Interactions], key: Key) -> AbstractContextManager[Mapping[str, Any]]:
        """Move the shards to the processes that compute their messages, for the time of a run."""
        return nullcontext(shards)

    def _collect(self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int) -> None:
        """Compute every shard's message for the receiver's round, and pass each one to the receiver."""
        for message in self._answers(receiver, handles, key, n_threads):
            receiver.receive(message)

    def _settle(self, receiver: RoundReceiver) -> None:  # noqa: B027 -- most engines store nothing
        """Store the final set of messages, immediately before the server's step uses them."""

    @abstractmethod
    def _answers(self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int) -> Iterable[Any]:
        """Yield each shard's message in the shards' order, because a sum of floats depends on the order."""


def _unanswered(name: str, round_number: int) -> tuple[str, str]:
    """Return the ledger's note for a round without an accepted message, and the note of version 0.2.0."""
    # Ledgers on disk contain these texts and a resumed run compares with them, so they must not change.
    return (
        f"No client answered in round {round_number} of {name}, but the ledger counts the round.",
        f"nobody answered in round {round_number} of {name}, which is counted all the same",
    )


def _describe_failure(name: str, n_rounds: int, rejections: Sequence[Rejection]) -> str:
    reasons = "; ".join(
        f"{rejection.sender} in round {rejection.round}: {rejection.reason}" for rejection in rejections[:_MAX_REASONS]
    )
    n_more = len(rejections) - _MAX_REASONS
    more = f"; and {n_more} more (see the error's rejections)" if n_more > 0 else ""
    rounds = "its round" if n_rounds == 1 else f"any of its {n_rounds} rounds"
    return f"nobody answered {name} in {rounds}, so there is no model ({reasons}{more})"
