"""Rounds in which a cohort sends how far its clients came: what both stages of PrivRec have in common."""

import functools
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
from fastfedrec.rounds.checkpoint import Checkpoint
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.privrec.grid_noise import GridNoise

_CLIENT_BLOCK = 64  # clients whose updates are in memory together; fixed, so that sums do not depend on threads
OPTIMIZERS = ("sgd", "adam")  # of the server
_DECAYS, _LEAST_SCALE = (0.9, 0.99), 1e-5  # Adam's betas and its epsilon: a mean update is about .001 in a parameter


@dataclass(frozen=True)
class PrivRecState:
    """What the server holds; it broadcasts the parameters to the cohort.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters,), float32
        Of the network.
    cohort : ndarray of shape (cohort_size,), uint64
        Global ids of the clients of the open round; secret, for the amplification by sampling rests on it.
    moments : ndarray of shape (2, n_parameters) or (0, n_parameters), float64
        Decayed sums of mean updates and of their squares, with Adam: of what was released, so they cost nothing.
    """

    parameters: NDArray[np.float32]
    cohort: NDArray[np.uint64]
    moments: NDArray[np.float64]


class CohortRounds(FederatedSystem):
    """The contract, but for what a client computes; subclasses are dataclasses with these fields.

    Parameters
    ----------
    network : TwoTower or GRUEncoder
        Whose parameters are trained.
    population : ndarray of shape (n_users,), uint64
        Global ids of all clients.
    cohort_size : int
        Clients of a round.
    server_learning_rate : float
        What the mean update is multiplied by, after the noise.
    clip_norm : float or None
        Bound of every client's update.
    noise : GridNoise or None
        None adds none.
    key : Key
        The server's, for the cohorts and the noise.
    n_threads : int
        For the noise.
    checkpoint : Checkpoint or None
        Where messages are recorded, and found again.
    """

    stage: ClassVar[str] = "training"  # what diverges
    streams: ClassVar[str]  # names of random streams begin with it: no two stages share a draw
    cohorts: ClassVar[str]
    _what: ClassVar[str]  # clients send, for the ledger
    server_optimizer: str = "sgd"

    network: TwoTower | GRUEncoder
    population: NDArray[np.uint64]
    cohort_size: int
    server_learning_rate: float
    clip_norm: float | None
    noise: GridNoise | None
    key: Key
    n_threads: int
    checkpoint: Checkpoint | None

    @abstractmethod
    def _client_data(self, shard: Any) -> Any:
        """The data of a shard's users, ready for their training; ``visited`` are their interactions."""

    @abstractmethod
    def _train(
        self, clients: Any, rows: np.ndarray, parameters: np.ndarray, clip_order: int, **draws: Any
    ) -> ClientUpdates:
        """What some of these users send, clipped; `draws` are the key, the round and the number of threads."""

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self) -> PrivRecState:
        """The first parameters, which are public, and the first cohort."""
        return self.state_of(self.network.initial_parameters(self.key, purpose=f"{self.streams}.start"), 0)

    def state_of(self, parameters: np.ndarray, round_number: int, moments: np.ndarray | None = None) -> PrivRecState:
        """The state of a round, from what is released of it and the key; without `moments`, of the first."""
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
        """Train, clip and add up the updates of the shard's clients that are in the cohort."""
        if self.checkpoint is not None:
            recorded = self.checkpoint.message(round, sender, functools.partial(self._wrong_with, state))
            if recorded is not None:
                return recorded
        clients = self._client_data(shard)
        rows = np.flatnonzero(np.isin(clients.visited.global_user_ids, state.cohort))
        total = np.zeros(self.network.n_parameters)
        clip_order = 1 if self.noise is None else self.noise.clip_order
        draws = {"key": key, "round": round, "n_threads": n_threads}
        for start in range(0, len(rows), _CLIENT_BLOCK):
            block = rows[start : start + _CLIENT_BLOCK]
            updates = self._train(clients, block, state.parameters, clip_order, **draws)
            if self.noise is not None:  # sums of whole numbers are exact in float64
                updates = replace(updates, values=self.noise.to_grid(updates.values))
            total += updates.total()
        update = Update(round, sender, clients.visited.n_users, {"total": self._as_sent(total)})
        if self.checkpoint is not None:
            self.checkpoint.keep_message(update)
        return update

    def apply(self, state: PrivRecState, update: Update) -> PrivRecState:
        """Add noise, divide by the planned size of the cohort, and step along the mean (equation 6), or by Adam."""
        total = update.arrays["total"]
        if self.noise is not None:
            purpose = f"{self.streams}.noise"
            self.key.claim_message(purpose, update.round, "server")
            total = self.noise.release(total, self.key, purpose, update.round, self.n_threads)
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is named by fit
            if self.server_optimizer == "sgd":
                step, moments = self.server_learning_rate / self.cohort_size * total, state.moments
            else:
                mean = total / self.cohort_size
                powers = [(1 - decay) * mean**power for power, decay in enumerate(_DECAYS, 1)]
                moments = np.array(_DECAYS)[:, None] * state.moments + powers
                first, second = (m / (1 - d ** (update.round + 1)) for m, d in zip(moments, _DECAYS, strict=True))
                step = self.server_learning_rate * first / (np.sqrt(second) + _LEAST_SCALE)
            return self.state_of((state.parameters + step).astype(np.float32), update.round + 1, moments)

    def _as_sent(self, total: np.ndarray) -> np.ndarray:
        return total if self.noise is None else total.astype(np.int64)

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: PrivRecState, round: int) -> Update:
        """The identity of `merge`."""
        return Update(round, "nobody", 0, {"total": self._as_sent(np.zeros(self.network.n_parameters))})

    def rules(self, state: PrivRecState, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like."""
        shape = (self.network.n_parameters,)
        if self.noise is None:
            return {"total": ArrayRule(np.float64, shape)}
        most = int(min(n_clients, self.cohort_size) * self.noise.radius)
        return {"total": ArrayRule(np.int64, shape, -most, most)}

    @one_blas_thread()
    def inconsistency(self, state: PrivRecState, update: Update) -> str | None:
        """Say where a sum is longer than the clipped updates of a whole cohort can be."""
        if self.noise is None:
            return None
        norm = float(np.linalg.norm(update.arrays["total"].astype(np.float64), self.noise.clip_order))
        longest = min(update.n_clients, self.cohort_size) * self.noise.radius
        if norm > longest * (1 + 1e-9):
            return f"its total has norm {norm:.6g} in steps of the grid, and clipped updates reach {longest:.6g}"
        return None

    def _wrong_with(self, state: PrivRecState, update: Update) -> str | None:
        """What is wrong with a message that was kept, as a server would find it."""
        receiver = RoundReceiver(self, state, update.round, {update.sender: update.n_clients})
        return None if receiver.receive(update) else receiver.rejections[0].reason

    @cached_property
    def event(self) -> Gaussian | CentralRelease | Unprotected:
        """What one round costs."""
        if self.noise is None:
            return Unprotected(f"the exact mean of the clients' {self._what}")
        return self.noise.event(
            len(self.population), self.cohort_size, self.network.n_parameters, f"clipped {self._what}"
        )

    def round_event(self, n_clients: int) -> Gaussian | CentralRelease | Unprotected:
        """What one round is about to cost."""
        return self.event

    def traffic(self, state: PrivRecState, n_clients: int) -> RoundTraffic:
        """What one round moves: all parameters down; the same up, where a client hides which rows it has touched."""
        size = 4 * self.network.n_parameters
        return RoundTraffic(download=size, upload=size, n_clients=self.cohort_size)
