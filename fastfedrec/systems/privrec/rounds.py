"""Rounds of PrivRec on the two-tower network, for `model.PrivRec`."""

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
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.privrec._cohort import CohortRounds

__all__ = ["ClientData", "LocalTraining", "PrivRecRounds"]


@dataclass(frozen=True)
class LocalTraining:
    """Settings of a client's training in a round; a value above `threshold` is positive."""

    epochs: int
    learning_rate: float
    batch_size: int
    negatives: int
    threshold: float


class ClientData:
    """The data of some users, prepared for their local training."""

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
        # The server supplies public features; the others come from the users' data.
        encoded = features.encode(self.visited, contexts=contexts, ignore_unknown=ignore_unknown)
        self.network = TwoTower(encoded, n_factors=network.n_factors, hidden=network.hidden)
        self.events = _events(data, threshold, with_contexts=contexts is not None)

    def draw(self, users: np.ndarray, local: LocalTraining, purpose: str, **draws: Any) -> ClientExamples:
        """Return the examples of these users (rows) in a round."""
        # A log may hold any number of a user's events, and those beyond the draws of the user's stream are left out,
        # since an error would depend on this user's data.  There is at most one negative per item.
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
        """Return the update of each of these users (rows)."""
        examples = self.draw(users, local, purpose, **draws)
        return self.network.train_clients(
            parameters, examples, learning_rate=local.learning_rate, n_epochs=local.epochs,
            batch_size=local.batch_size, clip_norm=clip_norm, clip_order=clip_order,
            purpose=f"{purpose}.order", **draws,
        )  # fmt: skip


@dataclass
class PrivRecRounds(CohortRounds):
    """Rounds of PrivRec, see `CohortRounds`; `features` has the public values, and `local` a client's training."""

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
    server_optimizer: str = "sgd"
    _ready: dict[int, tuple[Any, ClientData]] = field(default_factory=dict, init=False)

    def network_part(self, parameters: np.ndarray) -> np.ndarray:
        """Return the part of all parameters that recommends."""
        return parameters

    def rates_part(self, parameters: np.ndarray) -> np.ndarray | None:
        """Return the part of all parameters that are learning rates, or None."""
        return None

    def whole(self, network: np.ndarray, learnt: np.ndarray | None) -> np.ndarray:
        """Return all parameters, from the network's and stage one's."""
        return network

    def _train(
        self, clients: ClientData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        # compute/networks/_client_steps.py clips each update before the sum.
        return clients.train(
            parameters, rows, self.local, clip_norm=self.clip_norm, clip_order=clip_order, purpose=self.streams, **draws
        )

    def _client_data(self, shard: Any) -> ClientData:
        # Engines pass the same shard object in every round, and encoding features takes longer than a short round.
        if id(shard) not in self._ready:
            self._ready[id(shard)] = (shard, self._new_data(shard))
        return self._ready[id(shard)][1]

    def _new_data(self, shard: Any) -> ClientData:
        # A private round must not fail for an unknown value of one user's feature.
        return ClientData(shard, self.features, self.network, self.local.threshold, self.noise is not None)


def _events(data: Interactions | InteractionLog, threshold: float, *, with_contexts: bool) -> Events:
    """Return the positive events."""
    if not isinstance(data, InteractionLog):
        return Events.from_interactions(data.binarize(threshold))
    # A stable sort by user keeps each user's events in the order of the log.
    order = np.argsort(data.users, kind="stable")
    ends = np.cumsum(np.bincount(data.users, minlength=data.n_users))
    indptr = np.concatenate([[0], ends])
    return Events(indptr, data.items[order].astype(np.int32), order if with_contexts else None)
