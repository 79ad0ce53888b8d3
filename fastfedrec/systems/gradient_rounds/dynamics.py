"""The parts of a training step of FedRec that a variant with noise and a prior replaces."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.gradient_rounds.devices import Devices
from fastfedrec.systems.gradient_rounds.state import FedRecState

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class GradientDescent:
    """Steps along the gradients, without noise and without a prior."""

    n_arrays: ClassVar[int] = 0  # further arrays of the items' size in a step

    def start(self, state: FedRecState) -> FedRecState:
        """Return the first state with the variant's fields."""
        return state

    def message_noise(self, state: FedRecState, key: Key, scale: float) -> tuple[np.ndarray, float]:
        """Return subkeys of noise and of virtual errors, if there are any, and the noise's deviation in steps."""
        return np.zeros((0, 8), dtype=np.uint32), 0.0

    def finish_users(
        self, devices: Devices, state: FedRecState, shard: Interactions, roles: np.ndarray, key: Key, round_number: int
    ) -> None:
        """Change users' factors in place after the step along their gradients; gradient descent does not."""

    def finish_items(self, state: FedRecState, moved: FedRecState, counts: np.ndarray, number: int) -> FedRecState:
        """Return the next state after the step along the items' gradients, of which `counts` users sent some."""
        return moved
