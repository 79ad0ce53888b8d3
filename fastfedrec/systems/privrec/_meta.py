"""Rounds of PrivRec in which clients send gradients through their own steps: MAML, its first order, Meta-SGD."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.meta_learning import METHODS, MetaNetwork, split_examples
from fastfedrec.core.randomness import Key
from fastfedrec.data.features import Features
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.systems.privrec.rounds import ClientData, LocalTraining, PrivRecRounds

#: What `PrivRec(meta=...)` may be.
METAS = ("reptile", *METHODS)


class MetaData(ClientData):
    """The same, for clients whose steps are differentiated."""

    def __init__(
        self,
        data: Interactions | InteractionLog,
        features: Features,
        meta: MetaNetwork,
        threshold: float,
        ignore_unknown: bool = False,
    ):
        super().__init__(data, features, meta.network, threshold, ignore_unknown)
        self.meta = MetaNetwork(self.network, meta.method, learning_rate=meta.learning_rate)

    def adapt(
        self, parameters: np.ndarray, users: np.ndarray, local: LocalTraining, key: Key, purpose: str, n_threads: int
    ) -> ClientUpdates:
        """How far each of these users (rows) comes on all of its data."""
        return self.meta.adapt_clients(
            parameters, self.draw(users, local, purpose, key=key, round=0, n_threads=n_threads), n_epochs=local.epochs,
            batch_size=local.batch_size, key=key, purpose=f"{purpose}.order", n_threads=n_threads,
        )  # fmt: skip


@dataclass
class MetaRounds(PrivRecRounds):
    """Rounds of PrivRec whose clients split their data and send outer gradients, clipped and hidden as updates are.

    Parameters
    ----------
    network : MetaNetwork
        Whose parameters are trained; other fields as of `PrivRecRounds`.
    """

    network: MetaNetwork  # type: ignore[assignment]

    @property
    def _what(self) -> str:  # type: ignore[override]
        return "updates of parameters and of their learning rates" if self.network.has_rates else "updates"

    def network_part(self, parameters: np.ndarray) -> np.ndarray:
        """Of all parameters those that recommend."""
        return self.network.network_part(parameters)

    def rates_part(self, parameters: np.ndarray) -> np.ndarray | None:
        """Of all parameters the learning rates, if there are any."""
        return self.network.rates_part(parameters)

    def whole(self, network: np.ndarray, learnt: np.ndarray | None) -> np.ndarray:
        """All parameters, from the network's."""
        return self.network.join(network)

    def _new_data(self, shard: Interactions | InteractionLog) -> MetaData:
        return MetaData(shard, self.features, self.network, self.local.threshold, self.noise is not None)

    def _train(  # type: ignore[override]
        self, clients: MetaData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        local = self.local
        examples = clients.draw(rows, local, self.streams, **draws)
        split = split_examples(examples, key=draws["key"], purpose=f"{self.streams}.support", round=draws["round"])
        # One bound on all that a client sends, learning rates too: its sensitivity is that of Reptile's update.
        return clients.meta.train_clients(
            parameters, *split, n_epochs=local.epochs, batch_size=local.batch_size,
            clip_norm=self.clip_norm, clip_order=clip_order, purpose=f"{self.streams}.order", **draws,
        )  # fmt: skip
