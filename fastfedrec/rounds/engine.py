"""What all engines share: the course of a run, round by round, as the server sees it."""

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
from fastfedrec.rounds.system import FederatedSystem

__all__ = ["Engine", "NoAnswerError"]

_FEW = 5  # reasons that fit into a message


class NoAnswerError(RuntimeError):
    """Nobody's message was accepted in any round, so that nothing was learnt and there is no model.

    Parameters
    ----------
    message : str
        Who was asked, and why each message was refused.
    ledger : Ledger
        What the rounds cost all the same: people may have sent what was refused or lost.
    rejections : tuple of Rejection
        Every message that was not used.
    """

    def __init__(self, message: str, ledger: Ledger, rejections: tuple[Rejection, ...]):
        super().__init__(message)
        self.ledger, self.rejections = ledger, rejections


class Engine(ABC):
    """Runs a system's rounds; a subclass says where shards answer.

    Parameters
    ----------
    n_shards : int
        Into how many shards the users are split.  Integer updates, and so the model, do not depend on it.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.
    """

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
    ) -> Any:
        """Run rounds first_round, ..., n_rounds - 1.

        Parameters
        ----------
        system : FederatedSystem
            The three functions.
        state : object
            The first state.
        interactions : Interactions or mapping of str to Interactions
            All users; a mapping names the shards itself, such as entities that hold them.
        key : Key
            One key for all shards: a simulation of a deployment, where each node has its own.
        n_rounds : int
            How many there are.
        first_round : int
            Above 0 where a run is resumed: the round that `state` belongs to.
        n_in_all : int
            Rounds of the whole fit, by which logs count; 0 where this run has the last of them.
        ledger, communication : Ledger and CommunicationLedger
            Written to as rounds begin.
        n_threads : int
            0 for all; those of the server's steps too.
        show_progress : bool
            Draw a bar.
        after_round : callable or None
            Called with the number of the finished round and the new state.
        name : str or None
            The model's, by which logs, bars and messages call the rounds; None takes that of the system's class.

        Returns
        -------
        object
            The last state.

        Raises
        ------
        NoAnswerError
            No message was accepted in any of the rounds; the error has the ledger.  A round that nobody answered among
            others that somebody did is a note in the ledger.
        """
        self.rejections = []
        name = ", ".join(filter(None, (name or type(system).__name__, system._what)))
        shards = self._shards_of(interactions)
        expected = {name: system.count_clients(shard) for name, shard in shards.items()}
        n_clients = sum(expected.values())
        # A run that is resumed has its notes in the ledger.
        was_answered = any(_unanswered(name, number) not in ledger.notes for number in range(first_round))
        rounds = progress_rounds(n_rounds - first_round, show=show_progress, description=name)
        with self._distribute(shards, key) as handles, default_threads(n_threads):
            for round_number in (first_round + number for number in rounds):
                event = self._as_carried(system.round_event(n_clients))
                ledger.record(event, simulation=key.is_simulation)
                communication.record(system.traffic(state, n_clients))
                receiver = self._receiver(system, state, round_number, expected)
                self._collect(receiver, handles, key, n_threads)
                heard = receiver.close()
                self.rejections += receiver.rejections
                self._amend(ledger, event, heard.n_clients)
                if expected and not receiver.heard().answered:
                    ledger.note(_unanswered(name, round_number))
                else:
                    was_answered = True
                if not was_answered and round_number == n_rounds - 1:  # before any noise is drawn for nobody
                    raise NoAnswerError(_say_why(name, n_rounds, self.rejections), ledger, tuple(self.rejections))
                self._settle(receiver)
                state = system.apply(state, heard)
                n_refused = len(receiver.rejections)
                refused = f"; {n_refused} messages were refused (see rejections)" if n_refused else ""
                log_done(name, round_number + 1, n_in_all or n_rounds, details=refused)
                if after_round is not None:
                    after_round(round_number, state)
        return state

    def _shards_of(self, interactions: Interactions | Mapping[str, Interactions]) -> dict[str, Any]:
        """The shards by name."""
        if isinstance(interactions, Mapping):
            return dict(interactions)
        return {f"shard-{number}": shard for number, shard in enumerate(interactions.shard(self.n_shards))}

    def _as_carried(self, event: Event) -> Event:
        """What a round does to people's data, as those who carry this engine's messages see it."""
        return event

    def _receiver(
        self, system: FederatedSystem, state: Any, round_number: int, expected: Mapping[str, int]
    ) -> RoundReceiver:
        """The server's side of a round in which every shard answers for itself."""
        return RoundReceiver(system, state, round_number, expected)

    def _amend(self, ledger: Ledger, event: Event, n_heard: int) -> None:
        """Correct a round's entry once it is known who was heard."""
        ledger.amend(event, n_heard)

    def _distribute(self, shards: Mapping[str, Interactions], key: Key) -> AbstractContextManager[Mapping[str, Any]]:
        """Bring the shards to where they answer, for the time of a run."""
        return nullcontext(shards)

    def _collect(self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int) -> None:
        """Have every shard answer the receiver's round, and the receiver look at each answer."""
        for message in self._answers(receiver, handles, key, n_threads):
            receiver.receive(message)

    def _settle(self, receiver: RoundReceiver) -> None:  # noqa: B027 -- most engines keep nothing
        """What is to be done once it is certain that the server moves by what was heard, and before it does."""

    @abstractmethod
    def _answers(self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int) -> Iterable[Any]:
        """What each shard answers in the receiver's round, in the shards' order: updates of floats are added in it."""


def _unanswered(name: str, round_number: int) -> str:
    """The note of a round in which nobody was heard."""
    return f"nobody answered in round {round_number} of {name}, which is counted all the same"


def _say_why(name: str, n_rounds: int, rejections: Sequence[Rejection]) -> str:
    reasons = "; ".join(f"{refused.sender} in round {refused.round}: {refused.reason}" for refused in rejections[:_FEW])
    more = f"; and {len(rejections) - _FEW} more (its rejections)" if len(rejections) > _FEW else ""
    rounds = "its round" if n_rounds == 1 else f"any of its {n_rounds} rounds"
    return f"nobody answered {name} in {rounds}, so there is no model ({reasons}{more})"
