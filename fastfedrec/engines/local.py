"""The local engine: all shards in this process, one after the other, threads within each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastfedrec._check import check_integer
from fastfedrec._progress import progress_rounds
from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key
from fastfedrec.systems.base import FederatedSystem, Rejection, RoundReceiver


@dataclass
class LocalEngine:
    """Runs a system's rounds in this process.

    Parameters
    ----------
    n_shards : int
        Into how many shards the users are split.  Integer updates, and so the model, do not depend on it.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.
    """

    n_shards: int = 1

    def __post_init__(self) -> None:
        self.n_shards = check_integer("n_shards", self.n_shards, low=1)
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
        ledger: Ledger,
        communication: CommunicationLedger,
        n_threads: int = 0,
        show_progress: bool = False,
        after_round: Callable[[int, Any], None] | None = None,
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
        ledger, communication : Ledger and CommunicationLedger
            Written to as rounds begin.
        n_threads : int
            0 for all.
        show_progress : bool
            Draw a bar.
        after_round : callable or None
            Called with the number of the finished round and the new state.

        Returns
        -------
        object
            The last state.
        """
        self.rejections = []
        if isinstance(interactions, Mapping):
            shards = dict(interactions)
        else:
            shards = {f"shard-{number}": shard for number, shard in enumerate(interactions.shard(self.n_shards))}
        expected = {name: system.count_clients(shard) for name, shard in shards.items()}
        n_clients = sum(expected.values())
        rounds = progress_rounds(n_rounds - first_round, show=show_progress, description=type(system).__name__)
        for round_number in (first_round + number for number in rounds):
            event = system.round_event(n_clients)
            ledger.record(event, simulation=key.is_simulation)
            communication.record(system.traffic(state, n_clients))
            receiver = RoundReceiver(system, state, round_number, expected)
            for name, shard in shards.items():
                receiver.receive(system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads))
            heard = receiver.close()
            ledger.amend(event, heard.n_clients)
            state = system.apply(state, heard)
            self.rejections += receiver.rejections
            if after_round is not None:
                after_round(round_number, state)
        return state
