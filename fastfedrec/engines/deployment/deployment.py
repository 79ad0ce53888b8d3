"""Interface of systems with data on nodes: start and end of a run on the server, and a node's rounds and checks.

`fit` reads all data before its rounds (catalogue, number of users) and after them (users' factors).  In a deployment
the server has only public numbers, and a node trusts no claim of the server.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import FederatedSystem, Update

__all__ = ["Deployment", "NodeRounds"]


@dataclass(frozen=True)
class NodeRounds:
    """Rounds of one phase, as a node knows them without the server."""

    # The system that answers them.
    system: FederatedSystem
    # A state of the kind that the server sends, or its type.
    state: Any
    # Number of rounds of the phase.
    n_rounds: int
    # Number of rounds of earlier phases.
    n_before: int = 0


class Deployment(ABC):
    """Server and node side of one system."""

    names_users = False  # whether a node sends the global ids of its users
    has_devices = False  # whether devices keep state between rounds

    def __init__(self, model: Any):
        # A copy with the same parameters: fitting does not change the caller's model.
        self.model = model._unfitted()

    def check_keys(self, is_simulation: bool) -> None:  # noqa: B027 -- most systems run either way
        """Raise if a system does not run with one key for all nodes (a simulation), or with a key for each node."""

    # ---- node -------------------------------------------------------------------------------------------------------

    def prepare(self, data: Interactions) -> Interactions:
        """Preprocess a node's data as `fit` does."""
        return data

    def count_clients(self, shard: Interactions) -> int:
        """Return the number of clients of a shard."""
        return shard.n_users

    def name_users(self, shard: Interactions, sender: str) -> Interactions:
        """Return the shard with global user ids that are unique across nodes, if the system needs them."""
        return shard

    def unpack_devices(self, arrays: Mapping[str, np.ndarray], round: int, shard: Interactions) -> Any:
        """Return the devices' state from arrays; raise ValueError if it does not fit these users."""
        return None

    @abstractmethod
    def rounds_of(self, phase: int, n_users: int, item_ids: np.ndarray) -> NodeRounds:
        """Return the rounds of a phase from public numbers; raise ValueError if there is no such phase."""

    @abstractmethod
    def objection(self, rounds: NodeRounds, state: Any, shard: Interactions, sender: str) -> str | None:
        """Return the reason to refuse an untrusted server's state, or None for a valid state."""

    def work(
        self, rounds: NodeRounds, state: Any, shard: Interactions, key: Key, round: int, sender: str, n_threads: int,
        devices: Any,
    ) -> tuple[Update, dict[str, np.ndarray]]:  # fmt: skip
        """Return a node's message and the devices' state for the next round, as arrays."""
        return rounds.system.local_round(state, shard, key, round, sender=sender, n_threads=n_threads), {}

    # ---- server -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def largest_update(self, system: FederatedSystem, state: Any, n_clients: int) -> int:
        """Return the maximum size in bytes of a valid message's arrays; a larger message is refused unread."""

    def impersonation(self, update: Update, user_ids: np.ndarray) -> str | None:
        """Return the reason to refuse a message about users outside `user_ids`, the sender's, or None."""
        return None

    # ---- with a shuffler, for systems with reports that can be sent separately --------------------------------------

    def check_separable(self) -> int:
        """Return the number of a user's reports in a round; raise ValueError if they are not binary responses."""
        raise ValueError(
            f"{type(self.model).__name__} has no reports that a shuffler can separate; leave min_crowd out"
        )

    def single_reports(
        self, state: Any, shard: Interactions, key: Key, round_number: int, sender: str, n_threads: int
    ) -> Update:
        """Return a node's message with "index" and "bit" of each report instead of their sums."""
        rounds = self.model._rounds()
        index, bit = rounds.report_stream(state, shard, key, round_number, sender=sender, n_threads=n_threads)
        return Update(round_number, sender, shard.n_users, {"index": index, "bit": bit})

    def add_up(self, state: Any, index: np.ndarray, bit: np.ndarray, round_number: int, sender: str) -> Update:
        """Return a batch as the message of a node with all of its users."""
        rounds = self.model._rounds()
        n_users = len(index) // rounds.n_reports
        return rounds.collect_reports(state, index, bit, round_number, sender=sender, n_clients=n_users)

    def n_coordinates(self, state: Any) -> int:
        """Return the number of coordinates that a report can be about."""
        return self.model._rounds().n_coordinates(state)
