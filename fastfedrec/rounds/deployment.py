"""Interface of systems with data on nodes: start and end of a run on the server, and a node's rounds and checks.

`fit` reads all data before its rounds (catalogue, number of users) and after them (users' factors).  In a deployment
the server has only public numbers, and a node trusts no claim of the server.  A model declares its deployment in
`_deployment`: `DeploymentTerms` for a run with `fit` as its server, or a subclass of `OwnDeployment`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import FederatedSystem, Update

__all__ = ["Deployment", "NodeRounds", "OwnDeployment", "SeparableRounds"]


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


class SeparableRounds(Protocol):
    """Rounds with reports of single bits, which a shuffler can separate from their users."""

    @property
    def n_reports(self) -> int:
        """Number of a user's reports in a round."""

    def n_coordinates(self, state: Any) -> int:
        """Return the number of coordinates that a report can be about."""

    def report_stream(
        self, state: Any, shard: Interactions, key: Key, round: int, *, sender: str, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinate and the bit of each report of a shard."""

    def collect_reports(
        self, state: Any, index: np.ndarray, bit: np.ndarray, round: int, *, sender: str, n_clients: int
    ) -> Update:
        """Return a batch of reports as the message of a node with all of its users."""


class Deployment(ABC):
    """Server and node side of one system."""

    names_users = False  # whether a node sends the global ids of its users
    has_devices = False  # whether devices keep state between rounds
    takes_sizes = False  # whether a run can have public numbers of users by node
    public_sizes: Mapping[str, int] | None = None

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
        if devices is not None:
            rounds.system.put_devices(sender, devices)
        update = rounds.system.local_round(state, shard, key, round, sender=sender, n_threads=n_threads)
        return update, rounds.system.pack_devices(sender) if self.has_devices else {}

    # ---- server -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def largest_update(self, system: FederatedSystem, state: Any, n_clients: int) -> int:
        """Return the maximum size in bytes of a valid message's arrays; a larger message is refused unread."""

    def impersonation(self, update: Update, user_ids: np.ndarray) -> str | None:
        """Return the reason to refuse a message about users outside `user_ids`, the sender's, or None."""
        return None

    def separable(self) -> SeparableRounds:
        """Return the rounds of single reports for a shuffler; raise ValueError if a round has no such reports."""
        raise ValueError(
            f"{type(self.model).__name__} has no reports that a shuffler can separate; leave min_crowd out"
        )


class OwnDeployment(Deployment):
    """A system with one phase of rounds, and a server that is separate from `fit`."""

    state_type: type
    n_rounds: int

    @abstractmethod
    def _rounds(self, n_items: int) -> FederatedSystem:
        """Return the rounds of the model."""

    def rounds_of(self, phase: int, n_users: int, item_ids: np.ndarray) -> NodeRounds:
        if phase:
            raise ValueError(f"phase must be 0, got {phase}; the system has one phase")
        return NodeRounds(self._rounds(len(item_ids)), self.state_type, self.n_rounds)

    def open(self, item_ids: np.ndarray, senders: Sequence[str], ledger: Ledger) -> None:
        """Prepare a new or resumed run: a model with the catalogue and without users."""
        empty = np.zeros(0, dtype=np.int64)
        self.model.interactions_ = Interactions(np.zeros(1, dtype=np.int64), empty, None, None, empty, item_ids, empty)
        self.model.ledger_, self.model.communication_ = ledger, CommunicationLedger()

    @abstractmethod
    def new_ledger(self) -> Ledger:
        """Return a new ledger, as in `fit`."""

    @abstractmethod
    def start(self, senders: Sequence[str], key: Key) -> Any:
        """Return the initial state, and add notes on the guarantee to the ledger."""

    def check(self, state: Any, round_number: int) -> None:
        """Raise if the training has diverged."""

    @abstractmethod
    def finish(self, state: Any) -> Any:
        """Return the fitted model, without users."""
