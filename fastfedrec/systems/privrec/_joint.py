"""Rounds of PrivRec with the losses of stage one in addition to the recommender's (equation 11 of the paper)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.data.features import Features
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.privrec.rounds import ClientData, PrivRecRounds
from fastfedrec.systems.privrec.stage1 import Stage1Settings, in_order


class JointData(ClientData):
    """The data of `ClientData`, and the users' positives in order of time."""

    def __init__(self, data: Interactions, features: Features, joint: JointNetwork, threshold: float, is_private: bool):
        super().__init__(data, features, joint.network, threshold, ignore_unknown=is_private)
        self.joint = JointNetwork(self.network)
        self.sequences = (in_order(data) if is_private else data).binarize(threshold)


@dataclass
class JointRounds(PrivRecRounds):
    """Rounds of PrivRec in which updates include the encoder; `contrast` has the settings of its sequences."""

    network: JointNetwork  # type: ignore[assignment]
    contrast: Stage1Settings | None = None

    def network_part(self, parameters: np.ndarray) -> np.ndarray:
        """Return the part of all parameters that recommends."""
        return self.network.network_part(parameters)

    def whole(self, network: np.ndarray, learnt: np.ndarray | None) -> np.ndarray:
        """Return all parameters, from the network's and the encoder's of stage one."""
        assert learnt is not None  # these rounds follow a stage one
        return self.network.join(network, learnt)

    def _new_data(self, shard: Interactions) -> JointData:
        return JointData(shard, self.features, self.network, self.local.threshold, self.noise is not None)

    def _train(  # type: ignore[override]
        self, clients: JointData, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        assert self.contrast is not None
        local, contrast = self.local, self.contrast
        examples = clients.draw(rows, local, self.streams, **draws)
        # The contrastive loss has its own examples: sequences with a replaced item or segment.
        masked = draw_contrastive_examples(
            clients.sequences, rows, length=contrast.length, n_negatives=contrast.negatives,
            purpose=f"{self.streams}.masks", **draws,
        )  # fmt: skip
        return clients.joint.train_clients(
            parameters, examples, masked, contrastive_weight=contrast.contrastive_weight,
            learning_rate=local.learning_rate, n_epochs=local.epochs, batch_size=local.batch_size,
            masked_batch_size=contrast.batch_size, clip_norm=self.clip_norm, clip_order=clip_order,
            purpose=f"{self.streams}.order", **draws,
        )  # fmt: skip
