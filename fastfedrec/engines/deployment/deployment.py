"""A system whose data stay on nodes: what its server begins and ends with, and what a node does and refuses to do.

`fit` looks at everybody's data before its rounds (their catalogue, their number) and after them (users' factors).
Where data stay with their owners, the server has public numbers only, and a node takes no promise from the server.
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
    """What a node knows of the rounds that it is asked for.

    Parameters
    ----------
    system : FederatedSystem
        Answers them.
    state : object
        A state of the kind that the server sends, or the type of one.
    n_rounds : int
        How many there are.
    n_before : int
        Rounds of other kinds before them.
    """

    system: FederatedSystem
    state: Any
    n_rounds: int
    n_before: int = 0


class Deployment(ABC):
    """Both ends of one system; `model` is a new one with these parameters, so what is fitted here is its own."""

    names_users = False  # whether a node says by which global ids it names its users
    has_devices = False  # whether devices remember something between rounds

    def __init__(self, model: Any):
        self.model = model._unfitted()

    def check_keys(self, is_simulation: bool) -> None:  # noqa: B027 -- most systems run either way
        """Raise where a system does not run with one key for all (a simulation), or with a key for each node."""

    # ---- a node's end -------------------------------------------------------------------------------------------

    def prepare(self, data: Interactions) -> Interactions:
        """What `fit` does to everybody's data first."""
        return data

    def count_clients(self, shard: Interactions) -> int:
        """As how many clients a shard counts."""
        return shard.n_users

    def name_users(self, shard: Interactions, sender: str) -> Interactions:
        """The users of a node that has its own key, under names that no other node's users have, if that matters."""
        return shard

    def unpack_devices(self, arrays: Mapping[str, np.ndarray], round: int, shard: Interactions) -> Any:
        """What devices remembered, from arrays; a ValueError where it cannot be these users'."""
        return None

    @abstractmethod
    def rounds_of(self, phase: int, n_users: int, item_ids: np.ndarray) -> NodeRounds:
        """The rounds of a phase, from what is public; a ValueError where there is none."""

    @abstractmethod
    def objection(self, rounds: NodeRounds, state: Any, shard: Interactions, sender: str) -> str | None:
        """Why a state, which any server may have sent, is not answered; None where it is sound."""

    def work(
        self, rounds: NodeRounds, state: Any, shard: Interactions, key: Key, round: int, sender: str, n_threads: int,
        devices: Any,
    ) -> tuple[Update, dict[str, np.ndarray]]:  # fmt: skip
        """A node's answer, and what its devices remember until the next round, as arrays."""
        return rounds.system.local_round(state, shard, key, round, sender=sender, n_threads=n_threads), {}

    # ---- the server's end ---------------------------------------------------------------------------------------

    @abstractmethod
    def largest_update(self, system: FederatedSystem, state: Any, n_clients: int) -> int:
        """Bytes of the largest sound answer's arrays: more is refused before it is looked at."""

    def impersonation(self, update: Update, own: np.ndarray) -> str | None:
        """Why an answer is not about the users (global ids) of its sender; None where it is."""
        return None

    # ---- behind a shuffler, where the system's reports mean something one by one -----------------------------------

    def check_separable(self) -> int:
        """How many reports each user sends in a round; a ValueError where they are no single binary responses."""
        raise ValueError(
            f"{type(self.model).__name__} sends nothing that a shuffler may take apart; leave min_crowd out"
        )

    def single_reports(
        self, state: Any, shard: Interactions, key: Key, round_number: int, sender: str, n_threads: int
    ) -> Update:
        """A node's answer with "index" and "bit" of each report instead of their sums."""
        raise NotImplementedError

    def add_up(self, state: Any, index: np.ndarray, bit: np.ndarray, round_number: int, sender: str) -> Update:
        """A batch as the update that all of its users together would have sent."""
        raise NotImplementedError

    def n_coordinates(self, state: Any) -> int:
        """What a report may be about."""
        raise NotImplementedError
