"""Rounds in which a cohort's clients send updates, the base of both stages of PrivRec."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import CentralRelease, Gaussian, RoundTraffic, Unprotected
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.mechanisms import FixedSizeSampling
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.grid_noise import GridNoise

CLIENT_BLOCK = 64  # clients with updates in memory at a time; a fixed number, so that sums do not depend on threads
OPTIMIZERS = ("sgd", "adam")  # of the server
_DECAYS, _ADAM_EPSILON = (0.9, 0.99), 1e-5  # Adam's betas and epsilon: a mean update is about .001 per parameter


@dataclass(frozen=True)
class PrivRecState:
    """The server's state, from which it broadcasts the parameters to the cohort.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters,), float32
        Parameters of the network.
    cohort : ndarray of shape (cohort_size,), uint64
        Global ids of the open round's clients; secret, since amplification by sampling requires it.
    moments : ndarray of shape (2, n_parameters) or (0, n_parameters), float64
        Adam's decayed sums of mean updates and of their squares, post-processing of the releases.
    """

    parameters: NDArray[np.float32]
    cohort: NDArray[np.uint64]
    moments: NDArray[np.float64]


class CohortRounds(FederatedSystem):
    """Rounds over cohorts of clients; subclasses are dataclasses with these fields and define a client's training.

    A client's update is clipped to `clip_norm`, and the sum gets `noise`, if any.  The mean update is multiplied by
    `server_learning_rate`.  The server's `key` draws cohorts and noise.
    """

    stage: ClassVar[str] = "training"  # name of the stage in messages
    streams: ClassVar[str]  # prefix of the names of random streams, so that no two stages share a draw
    cohorts: ClassVar[str]  # stream of the cohorts
    _what: ClassVar[str]  # content of the messages, for the ledger
    server_optimizer: str = "sgd"

    network: TwoTower | GRUEncoder
    population: NDArray[np.uint64]
    cohort_size: int
    server_learning_rate: float
    clip_norm: float | None
    noise: GridNoise | None
    key: Key
    n_threads: int

    @abstractmethod
    def _client_data(self, shard: Any) -> Any:
        """Return a shard's data, prepared for training; ``visited`` are the users' interactions."""

    @abstractmethod
    def _train(
        self, clients: Any, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        """Return the clipped updates of some users; `draws` are the key, the round and the number of threads."""

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self) -> PrivRecState:
        """Return the first parameters, which are public, and the first cohort."""
        return self.state_of(self.network.initial_parameters(self.key, purpose=f"{self.streams}.start"), 0)

    def state_of(self, parameters: np.ndarray, round_number: int, moments: np.ndarray | None = None) -> PrivRecState:
        """Return the state of a round from its released parameters and the key; `moments` start at zero."""
        cohort = FixedSizeSampling(self.cohort_size).sample(
            len(self.population), key=self.key, round=round_number, purpose=self.cohorts
        )
        if moments is None:
            moments = np.zeros((2 if self.server_optimizer == "adam" else 0, len(parameters)))
        return PrivRecState(parameters, self.population[cohort], moments)

    def local_round(
        self,
        state: PrivRecState,
        shard: Interactions | InteractionLog,  # type: ignore[override]
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Train the shard's clients in the cohort, clip their updates, and sum them."""
        clients = self._client_data(shard)
        # Only clients of the secret cohort train; all others cost no time and add no update.
        rows = np.flatnonzero(np.isin(clients.visited.global_user_ids, state.cohort))
        total = np.zeros(self.network.n_parameters)
        clip_order = 1 if self.noise is None else self.noise.clip_order
        draws = {"key": key, "round": round, "n_threads": n_threads}
        for start in range(0, len(rows), CLIENT_BLOCK):
            block = rows[start : start + CLIENT_BLOCK]
            updates = self._train(clients, block, state.parameters, clip_order, **draws)
            if self.noise is not None:  # float64 sums of whole numbers are exact
                updates = replace(updates, values=self.noise.to_grid(updates.values))
            total += updates.total()
        return Update(round, sender, clients.visited.n_users, {"total": self._as_sent(total)})

    def apply(self, state: PrivRecState, update: Update) -> PrivRecState:
        """Add noise, divide by the cohort's planned size, and step along the mean (equation 6), or by Adam."""
        total = update.arrays["total"]
        if self.noise is not None:
            purpose = f"{self.streams}.noise"
            self.key.claim_message(purpose, update.round, "server")
            total = self.noise.release(total, self.key, purpose, update.round, self.n_threads)
        with np.errstate(over="ignore", invalid="ignore"):  # `fit` reports divergence
            if self.server_optimizer == "sgd":
                step, moments = self.server_learning_rate / self.cohort_size * total, state.moments
            else:
                mean = total / self.cohort_size
                # Adam's moments are decayed means of the gradient and of its square.
                powers = [(1 - decay) * mean**power for power, decay in enumerate(_DECAYS, 1)]
                moments = np.array(_DECAYS)[:, None] * state.moments + powers
                # Adam's correction for moments that start at zero.
                corrected_mean, corrected_square = (
                    m / (1 - decay ** (update.round + 1)) for m, decay in zip(moments, _DECAYS, strict=True)
                )
                step = self.server_learning_rate * corrected_mean / (np.sqrt(corrected_square) + _ADAM_EPSILON)
            return self.state_of((state.parameters + step).astype(np.float32), update.round + 1, moments)

    def _as_sent(self, total: np.ndarray) -> np.ndarray:
        """Return a sum in the type of the message."""
        return total if self.noise is None else total.astype(np.int64)

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: PrivRecState, round: int) -> Update:
        """Return the identity of `merge`."""
        return Update(round, "nobody", 0, {"total": self._as_sent(np.zeros(self.network.n_parameters))})

    def rules(self, state: PrivRecState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of an update."""
        shape = (self.network.n_parameters,)
        if self.noise is None:
            return {"total": ArrayRule(np.float64, shape)}
        max_sum = int(min(n_clients, self.cohort_size) * self.noise.radius)
        return {"total": ArrayRule(np.int64, shape, -max_sum, max_sum)}

    @one_blas_thread()
    def inconsistency(self, state: PrivRecState, update: Update) -> str | None:
        """Return why a sum exceeds the clipped updates of a whole cohort, or None."""
        if self.noise is None:
            return None
        # Honest updates are clipped, so the triangle inequality bounds the norm of their sum.
        norm = float(np.linalg.norm(update.arrays["total"].astype(np.float64), self.noise.clip_order))
        max_norm = min(update.n_clients, self.cohort_size) * self.noise.radius
        if norm > max_norm * (1 + 1e-9):
            return f"its total has norm {norm:.6g} in steps of the grid, and clipped updates reach {max_norm:.6g}"
        return None

    @cached_property
    def event(self) -> Gaussian | CentralRelease | Unprotected:
        """Event of one round."""
        if self.noise is None:
            return Unprotected(f"the exact mean of the clients' {self._what}")
        return self.noise.event(
            len(self.population), self.cohort_size, self.network.n_parameters, f"clipped {self._what}"
        )

    def round_event(self, n_clients: int) -> Gaussian | CentralRelease | Unprotected:
        """Return the event of one round."""
        return self.event

    def traffic(self, state: PrivRecState, n_clients: int) -> RoundTraffic:
        """Return the traffic of one round: all parameters both ways, which hides the rows that a client changes."""
        size = 4 * self.network.n_parameters
        return RoundTraffic(download=size, upload=size, n_clients=self.cohort_size)
