"""Rounds of PrivRec in which clients send gradients through their local steps: MAML, first-order MAML, Meta-SGD."""

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

#: Values of `PrivRec(meta=...)`.
METAS = ("reptile", *METHODS)


class MetaData(ClientData):
    """The data of `ClientData`, for clients with differentiated steps."""

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
        """Return the changes that each of these users (rows) makes on all of the user's data."""
        return self.meta.adapt_clients(
            parameters, self.draw(users, local, purpose, key=key, round=0, n_threads=n_threads), n_epochs=local.epochs,
            batch_size=local.batch_size, key=key, purpose=f"{purpose}.order", n_threads=n_threads,
        )  # fmt: skip


@dataclass
class MetaRounds(PrivRecRounds):
    """Rounds of PrivRec in which clients split their data and send clipped outer gradients as updates."""

    network: MetaNetwork  # type: ignore[assignment]

    @property
    def _what(self) -> str:  # type: ignore[override]
        return "updates of parameters and of their learning rates" if self.network.has_rates else "updates"

    def network_part(self, parameters: np.ndarray) -> np.ndarray:
        """Return the part of all parameters that recommends."""
        return self.network.network_part(parameters)

    def rates_part(self, parameters: np.ndarray) -> np.ndarray | None:
        """Return the part of all parameters that are learning rates, or None."""
        return self.network.rates_part(parameters)

    def whole(self, network: np.ndarray, learnt: np.ndarray | None) -> np.ndarray:
        """Return all parameters, from the network's."""
        return self.network.join(network)

    def _new_data(self, shard: Interactions | InteractionLog) -> MetaData:
        return MetaData(shard, self.features, self.network, self.local.threshold, self.noise is not None)

    def _train(  # type: ignore[override]
        self, clients: MetaData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        local = self.local
        examples = clients.draw(rows, local, self.streams, **draws)
        split = split_examples(examples, key=draws["key"], purpose=f"{self.streams}.support", round=draws["round"])
        # One bound for the whole message, learning rates included, gives the sensitivity of Reptile's update.
        return clients.meta.train_clients(
            parameters, *split, n_epochs=local.epochs, batch_size=local.batch_size,
            clip_norm=self.clip_norm, clip_order=clip_order, purpose=f"{self.streams}.order", **draws,
        )  # fmt: skip
