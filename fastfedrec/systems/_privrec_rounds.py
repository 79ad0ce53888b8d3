"""The three functions of PrivRec and what its server accepts; `privrec.PrivRec` is the model around them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastfedrec.accounting import CentralRelease, Gaussian, RoundTraffic, Unprotected
from fastfedrec.client_examples import Events, draw_examples
from fastfedrec.features import Features
from fastfedrec.interaction_log import InteractionLog
from fastfedrec.interactions import Interactions
from fastfedrec.mechanisms import FixedSizeSampling
from fastfedrec.network import ClientUpdates, TwoTower
from fastfedrec.randomness import Key
from fastfedrec.systems._checkpoint import Checkpoint
from fastfedrec.systems._grid_noise import GridNoise
from fastfedrec.systems.base import ArrayRule, FederatedSystem, Update

_START = "privrec.start"
_NOISE = "privrec.noise"
_CLIENT_BLOCK = 64  # clients whose updates are in memory together; fixed, so that sums do not depend on threads


@dataclass(frozen=True)
class PrivRecState:
    """What the server holds; it broadcasts the parameters to the cohort.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters,), float32
        Of the network.
    cohort : ndarray of shape (cohort_size,), uint64
        Global ids of the clients of the open round; secret, for the amplification by sampling rests on it.
    """

    parameters: np.ndarray
    cohort: np.ndarray


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

    def __init__(self, data: Interactions | InteractionLog, features: Features, network: TwoTower, threshold: float):
        self.visited = data.interactions if isinstance(data, InteractionLog) else data
        contexts = None
        if isinstance(data, InteractionLog) and features.context.n_features:
            contexts = {name: data.contexts[name] for name in features.context.names}
        # What is public of the features comes from the server, what is the users' own from their data.
        encoded = features.encode(self.visited, contexts=contexts)
        self.network = TwoTower(encoded, n_factors=network.n_factors, hidden=network.hidden)
        self.events = _events(data, threshold, with_contexts=contexts is not None)

    def train(
        self,
        parameters: np.ndarray,
        users: np.ndarray,
        local: LocalTraining,
        *,
        clip_norm: float | None = None,
        clip_order: int = 2,
        key: Key,
        purpose: str,
        round_number: int,
        n_threads: int,
    ) -> ClientUpdates:
        """What each of these users (rows) sends."""
        examples = draw_examples(
            self.visited, self.events, users, local.negatives,
            key=key, purpose=f"{purpose}.negatives", round=round_number, n_threads=n_threads,
        )  # fmt: skip
        return self.network.train_clients(
            parameters, examples, learning_rate=local.learning_rate, n_epochs=local.epochs,
            batch_size=local.batch_size, clip_norm=clip_norm, clip_order=clip_order,
            key=key, purpose=f"{purpose}.order", round=round_number, n_threads=n_threads,
        )  # fmt: skip


@dataclass
class PrivRecRounds(FederatedSystem):
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
        What the mean update is multiplied by, after the noise.
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
    """

    features: Features
    network: TwoTower
    population: np.ndarray
    cohort_size: int
    local: LocalTraining
    server_learning_rate: float
    clip_norm: float | None
    noise: GridNoise | None
    key: Key
    n_threads: int = 0
    checkpoint: Checkpoint | None = None
    _ready: dict[int, tuple[Any, ClientData]] = field(default_factory=dict, init=False)

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self) -> PrivRecState:
        """The first parameters, which are public, and the first cohort."""
        return self.state_of(self.network.initial_parameters(self.key, purpose=_START), 0)

    def state_of(self, parameters: np.ndarray, round_number: int) -> PrivRecState:
        """The state of a round, from what is released of it and the key."""
        return PrivRecState(parameters, self._cohort(round_number))

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
        if self.checkpoint is not None and (recorded := self.checkpoint.message(round, sender)) is not None:
            return recorded
        clients = self._client_data(shard)
        ids = clients.visited.global_user_ids
        rows = np.flatnonzero(np.isin(ids, state.cohort))
        total = np.zeros(self.network.n_parameters)
        for start in range(0, len(rows), _CLIENT_BLOCK):
            updates = clients.train(
                state.parameters, rows[start : start + _CLIENT_BLOCK], self.local,
                clip_norm=self.clip_norm, clip_order=1 if self.noise is None else self.noise.clip_order,
                key=key, purpose="privrec", round_number=round, n_threads=n_threads,
            )  # fmt: skip
            if self.noise is not None:  # sums of whole numbers are exact in float64
                updates = replace(updates, values=self.noise.to_grid(updates.values))
            total += updates.total()
        update = Update(round, sender, clients.visited.n_users, {"total": self._as_sent(total)})
        if self.checkpoint is not None:
            self.checkpoint.keep_message(update)
        return update

    def merge(self, a: Update, b: Update) -> Update:
        """Add two sums; exact where there is noise, for they are integers."""
        total = a.arrays["total"] + b.arrays["total"]
        return Update(a.round, "merged", a.n_clients + b.n_clients, {"total": total})

    def apply(self, state: PrivRecState, update: Update) -> PrivRecState:
        """Add noise, divide by the planned size of the cohort, and step along the mean (equation 6)."""
        total = update.arrays["total"]
        if self.noise is not None:
            self.key.claim_message(_NOISE, update.round, "server")
            total = self.noise.release(total, self.key, _NOISE, update.round, self.n_threads)
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is named by fit
            moved = state.parameters + self.server_learning_rate / self.cohort_size * total
            return self.state_of(moved.astype(np.float32), update.round + 1)

    def _cohort(self, round_number: int) -> np.ndarray:
        sampling = FixedSizeSampling(self.cohort_size)
        return self.population[sampling.sample(len(self.population), key=self.key, round=round_number)]

    def _client_data(self, shard: Any) -> ClientData:
        # A shard is the same object in every round, and encoding its features takes longer than a short round.
        if id(shard) not in self._ready:
            self._ready[id(shard)] = (shard, ClientData(shard, self.features, self.network, self.local.threshold))
        return self._ready[id(shard)][1]

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

    def inconsistency(self, state: PrivRecState, update: Update) -> str | None:
        """Say where a sum is longer than the clipped updates of a whole cohort can be."""
        if self.noise is None:
            return None
        norm = float(np.linalg.norm(update.arrays["total"].astype(np.float64), self.noise.clip_order))
        longest = min(update.n_clients, self.cohort_size) * self.noise.radius
        if norm > longest * (1 + 1e-9):
            return f"its total has norm {norm:.6g} in steps of the grid, and clipped updates reach {longest:.6g}"
        return None

    @cached_property
    def _event(self) -> Gaussian | CentralRelease | Unprotected:
        if self.noise is None:
            return Unprotected("the exact mean of the clients' updates")
        return self.noise.event(len(self.population), self.cohort_size, self.network.n_parameters)

    def round_event(self, n_clients: int) -> Gaussian | CentralRelease | Unprotected:
        """What one round is about to cost."""
        return self._event

    def traffic(self, state: PrivRecState, n_clients: int) -> RoundTraffic:
        """What one round moves: all parameters down; the same up, where a client hides which rows it has touched."""
        size = 4 * self.network.n_parameters
        return RoundTraffic(download=size, upload=size, n_clients=self.cohort_size)


def _events(data: Interactions | InteractionLog, threshold: float, *, with_contexts: bool) -> Events:
    """The positives."""
    if not isinstance(data, InteractionLog):
        return Events.from_interactions(data.binarize(threshold))
    order = np.argsort(data.users, kind="stable")
    ends = np.cumsum(np.bincount(data.users, minlength=data.n_users))
    indptr = np.concatenate([[0], ends])
    return Events(indptr, data.items[order].astype(np.int32), order if with_contexts else None)
