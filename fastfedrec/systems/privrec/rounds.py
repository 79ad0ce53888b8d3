"""Rounds of PrivRec on the two-tower network; `model.PrivRec` is the model around them."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.networks.client_examples import MAX_DRAWS, ClientExamples, Events, draw_examples
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.randomness import Key
from fastfedrec.data.features import Features
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.checkpoint import Checkpoint
from fastfedrec.systems.privrec._cohort import CohortRounds
from fastfedrec.systems.privrec.grid_noise import GridNoise

__all__ = ["ClientData", "LocalTraining", "PrivRecRounds"]


@dataclass(frozen=True)
class LocalTraining:
    """What a client does in a round.

    Parameters
    ----------
    epochs : int
        Passes over its own examples.
    learning_rate : float
        Of each step.
    batch_size : int
        Examples of a step.
    negatives : int
        Of each positive.
    threshold : float
        A value above it is positive.
    """

    epochs: int
    learning_rate: float
    batch_size: int
    negatives: int
    threshold: float


class ClientData:
    """The data of some users, ready for their local training."""

    def __init__(
        self,
        data: Interactions | InteractionLog,
        features: Features,
        network: TwoTower,
        threshold: float,
        ignore_unknown: bool = False,
    ):
        self.visited = data.interactions if isinstance(data, InteractionLog) else data
        contexts = None
        if isinstance(data, InteractionLog) and features.context.n_features:
            contexts = {name: data.contexts[name] for name in features.context.names}
        # What is public of the features comes from the server, what is the users' own from their data.
        encoded = features.encode(self.visited, contexts=contexts, ignore_unknown=ignore_unknown)
        self.network = TwoTower(encoded, n_factors=network.n_factors, hidden=network.hidden)
        self.events = _events(data, threshold, with_contexts=contexts is not None)

    def draw(self, users: np.ndarray, local: LocalTraining, purpose: str, **draws: Any) -> ClientExamples:
        """What these users (rows) train on in a round."""
        # A log may hold any number of events of a user: those beyond the draws of its stream take no part.  An error
        # would depend on this user's data.  Negatives are at most one an item.
        events = self.events.first(max(MAX_DRAWS // max(local.epochs, 1) - self.visited.n_items, 0))
        return draw_examples(self.visited, events, users, local.negatives, purpose=f"{purpose}.negatives", **draws)

    def train(
        self,
        parameters: np.ndarray,
        users: np.ndarray,
        local: LocalTraining,
        *,
        clip_norm: float | None = None,
        clip_order: int = 2,
        purpose: str,
        **draws: Any,
    ) -> ClientUpdates:
        """What each of these users (rows) sends."""
        examples = self.draw(users, local, purpose, **draws)
        return self.network.train_clients(
            parameters, examples, learning_rate=local.learning_rate, n_epochs=local.epochs,
            batch_size=local.batch_size, clip_norm=clip_norm, clip_order=clip_order,
            purpose=f"{purpose}.order", **draws,
        )  # fmt: skip


@dataclass
class PrivRecRounds(CohortRounds):
    """Rounds of PrivRec; `key` is the server's, for the cohorts and the noise.

    Parameters
    ----------
    features : Features
        With the public values of every feature.
    network : TwoTower
        Of these features.
    population : ndarray of shape (n_users,), uint64
        Global ids of all clients.
    cohort_size : int
        Clients of a round.
    local : LocalTraining
        What each of them does.
    server_learning_rate : float
        What the mean update is multiplied by, after the noise; or the rate of Adam.
    clip_norm : float or None
        Bound of every client's update.
    noise : GridNoise or None
        None adds none.
    key : Key
        The server's.
    n_threads : int
        For the noise.
    checkpoint : Checkpoint or None
        Where messages are recorded, and found again.
    server_optimizer : {"sgd", "adam"}
        How the server steps along the mean update.
    """

    streams: ClassVar[str] = "privrec"
    cohorts: ClassVar[str] = "client_sampling.fixed_size"
    _what: ClassVar[str] = "updates"

    features: Features
    network: TwoTower
    population: NDArray[np.uint64]
    cohort_size: int
    local: LocalTraining
    server_learning_rate: float
    clip_norm: float | None
    noise: GridNoise | None
    key: Key
    n_threads: int = 0
    checkpoint: Checkpoint | None = None
    server_optimizer: str = "sgd"
    _ready: dict[int, tuple[Any, ClientData]] = field(default_factory=dict, init=False)

    def network_part(self, parameters: np.ndarray) -> np.ndarray:
        """Of all parameters those that recommend."""
        return parameters

    def rates_part(self, parameters: np.ndarray) -> np.ndarray | None:
        """Of all parameters the learning rates of the others, if these are learnt."""
        return None

    def whole(self, network: np.ndarray, learnt: np.ndarray | None) -> np.ndarray:
        """All parameters, from the network's and what stage one has learnt."""
        return network

    def _train(
        self, clients: ClientData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        # Each update is clipped where it is trained, in compute/networks/_client_steps.py, before any is added.
        return clients.train(
            parameters, rows, self.local, clip_norm=self.clip_norm, clip_order=clip_order, purpose=self.streams, **draws
        )

    def _client_data(self, shard: Any) -> ClientData:
        # A shard is the same object in every round, and encoding its features takes longer than a short round.
        if id(shard) not in self._ready:
            self._ready[id(shard)] = (shard, self._new_data(shard))
        return self._ready[id(shard)][1]

    def _new_data(self, shard: Any) -> ClientData:
        # Whether a private round can be answered does not depend on a value that one user has.
        return ClientData(shard, self.features, self.network, self.local.threshold, self.noise is not None)


def _events(data: Interactions | InteractionLog, threshold: float, *, with_contexts: bool) -> Events:
    """The positives."""
    if not isinstance(data, InteractionLog):
        return Events.from_interactions(data.binarize(threshold))
    order = np.argsort(data.users, kind="stable")
    ends = np.cumsum(np.bincount(data.users, minlength=data.n_users))
    indptr = np.concatenate([[0], ends])
    return Events(indptr, data.items[order].astype(np.int32), order if with_contexts else None)
