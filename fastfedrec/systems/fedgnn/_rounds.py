"""The rounds of FedGNN and the server's checks of updates, for `model.FedGNN`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Gaussian, RoundTraffic, Unprotected
from fastfedrec.core.check import check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import FixedSizeSampling
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update, find_violation
from fastfedrec.systems.fedgnn._clients import (
    Entries,
    Gradients,
    Parameters,
    draw_entries,
    draw_pseudo_items,
    draw_pseudo_rows,
    find_gradients,
)
from fastfedrec.systems.fedgnn._noise import PublishedNoise, clip_factors
from fastfedrec.systems.fedgnn._views import Messages
from fastfedrec.systems.grid_noise import GridNoise

_ROUND = "fedgnn.round"
_COHORT = "fedgnn.cohort"
_NOISE = "fedgnn.noise"
BLOCK = 16  # clients with messages in memory at a time; sums of whole numbers do not depend on it
_BETA_1, _BETA_2, _TINY = 0.9, 0.99, 1e-8  # Adam's decay rates and epsilon


@dataclass(frozen=True)
class FedGNNState:
    """The server's state, from which it sends the parameters to the cohort.

    Parameters
    ----------
    parameters : ndarray of shape (n_factors ** 2 + 2 * n_factors + n_items * n_factors,), float64
        W, the attention, and the items' embeddings.
    means, squares : ndarray of the same shape, float64
        Adam's moments of the mean gradients, post-processing of the releases.
    cohort : ndarray of shape (cohort_size,), uint64
        Global ids of the open round's clients; secret in the guaranteed variant, which amplification requires.
    """

    parameters: NDArray[np.float64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    cohort: NDArray[np.uint64]


@dataclass(frozen=True)
class LocalTraining:
    """Settings of a client's training: ends of the values' grid, negatives per item, and steps of its embedding."""

    grid: tuple[float, float]
    negatives: int
    user_learning_rate: float
    user_steps: int


@dataclass
class Devices:
    """The state of a shard's devices between rounds: neighbours' embeddings from the third party, padded with zeros."""

    users: NDArray[np.uint64]
    neighbors: NDArray[np.float64]


class FedGNNRounds(FederatedSystem):
    """Rounds of FedGNN; `noise` is added by each client (published), or by the server to sums of clipped gradients.

    The server's `key` draws the cohorts and its noise.
    """

    def __init__(
        self, population: np.ndarray, cohort_size: int, n_items: int, n_factors: int, local: LocalTraining,
        noise: PublishedNoise | GridNoise, learning_rate: float, key: Key,
    ):  # fmt: skip
        self.population, self.cohort_size, self.n_items, self.n_factors = population, cohort_size, n_items, n_factors
        self.local, self.noise, self.learning_rate, self.key = local, noise, learning_rate, key
        self.recorded: Collection[int] = ()  # rounds with recorded messages, in the published variant
        self._devices: dict[str, Devices] = {}
        self._records: list[Messages] = []

    @property
    def n_shared(self) -> int:
        """Number of parameters for which every client has a gradient."""
        return self.n_factors**2 + 2 * self.n_factors

    @property
    def n_parameters(self) -> int:
        """Number of all parameters."""
        return self.n_shared + self.n_items * self.n_factors

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, parameters: np.ndarray) -> FedGNNState:
        """Return the first state of public parameters, with the first cohort."""
        zeros = np.zeros(len(parameters))
        return FedGNNState(parameters, zeros, zeros, self._cohort(0))

    def _cohort(self, round_number: int) -> NDArray[np.uint64]:
        """Return the global ids of a round's clients."""
        sampling = FixedSizeSampling(self.cohort_size)
        chosen = sampling.sample(len(self.population), key=self.key, round=round_number, purpose=_COHORT)
        return self.population[chosen]

    def local_round(
        self, state: FedGNNState, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:  # fmt: skip
        """Sum the messages of the shard's clients in the cohort."""
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        key.claim_message(_ROUND, round_number, sender)
        devices = self._devices_of(sender, shard)
        total = np.zeros(self.n_parameters, dtype=np.int64)
        items = total[self.n_shared :].reshape(self.n_items, self.n_factors)
        add = self._add_published if isinstance(self.noise, PublishedNoise) else self._add_clipped
        for rows in self._blocks(state, shard):
            add(
                state, shard, rows, devices.neighbors[rows], key, round_number, n_threads, total[: self.n_shared], items
            )
        return Update(round, sender, shard.n_users, {"total": total})

    def apply(self, state: FedGNNState, update: Update) -> FedGNNState:
        """Add the server's noise, if any, divide by the cohort's planned size, and take a step of Adam."""
        total = update.arrays["total"]
        if isinstance(self.noise, GridNoise):
            self.key.claim_message(_NOISE, update.round, "server")
            total = self.noise.release(total, self.key, _NOISE, update.round, 0)
        else:
            total = total * self.noise.step
        with np.errstate(over="ignore", invalid="ignore"):  # `fit` reports divergence
            mean = total / self.cohort_size
            means = _BETA_1 * state.means + (1 - _BETA_1) * mean
            squares = _BETA_2 * state.squares + (1 - _BETA_2) * mean * mean
            # Adam's correction for moments that start at zero.
            unbiased = [part / (1 - b ** (update.round + 1)) for part, b in ((means, _BETA_1), (squares, _BETA_2))]
            step = self.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + _TINY)
            return FedGNNState(state.parameters - step, means, squares, self._cohort(update.round + 1))

    # ---- on the devices -----------------------------------------------------------------------------------------

    def _blocks(self, state: FedGNNState, shard: Interactions) -> Iterator[np.ndarray]:
        """Return the rows of the cohort's clients in a shard, in blocks."""
        rows = np.flatnonzero(np.isin(shard.global_user_ids, state.cohort))
        for start in range(0, len(rows), BLOCK):
            yield rows[start : start + BLOCK]

    def _gradients(
        self,
        state: FedGNNState,
        user_rows: Interactions,
        neighbors: np.ndarray,
        key: Key,
        round_number: int,
        n_threads: int,
    ) -> tuple[Entries, Gradients]:
        parameters = Parameters.of(state.parameters, self.n_factors)
        entries = draw_entries(user_rows, self.local.grid, self.local.negatives, key, round_number)
        gradients = find_gradients(
            parameters, parameters.projected(), entries, neighbors, self.local.user_learning_rate,
            self.local.user_steps, resolve_n_threads(n_threads), with_moments=isinstance(self.noise, PublishedNoise),
        )  # fmt: skip
        return entries, gradients

    def _add_clipped(
        self, state: FedGNNState, shard: Interactions, rows: np.ndarray, neighbors: np.ndarray, key: Key,
        round_number: int, n_threads: int, shared: np.ndarray, items: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the clipped gradients of some clients, in whole steps, for a trusted server."""
        assert isinstance(self.noise, GridNoise)
        entries, gradients = self._gradients(state, shard._take_users(rows), neighbors, key, round_number, n_threads)
        factors = clip_factors(gradients, entries.indptr, self.noise.clip_norm)
        with np.errstate(invalid="ignore"):
            # A gradient that is not finite has factor 0, and the product NaN becomes 0.
            of_rows = np.nan_to_num(gradients.rows * np.repeat(factors, entries.counts())[:, None])
            of_shared = np.nan_to_num(gradients.shared * factors[:, None])
        # Truncation to whole steps never raises a norm, and makes sums exact.
        steps = self.noise.to_grid(of_rows.ravel()).reshape(of_rows.shape).astype(np.int64)
        np.add.at(items, entries.items, steps)
        shared += self.noise.to_grid(of_shared.ravel()).reshape(of_shared.shape).astype(np.int64).sum(axis=0)

    def _add_published(
        self, state: FedGNNState, shard: Interactions, rows: np.ndarray, neighbors: np.ndarray, key: Key,
        round_number: int, n_threads: int, shared: np.ndarray, items: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the messages of some clients of the published variant."""
        messages = self._messages(state, shard._take_users(rows), neighbors, key, round_number, n_threads)
        if round_number in self.recorded:
            self._records.append(messages)
        np.add.at(items, messages.items, messages.rows)
        shared += messages.shared.sum(axis=0)

    def _messages(
        self,
        state: FedGNNState,
        user_rows: Interactions,
        neighbors: np.ndarray,
        key: Key,
        round_number: int,
        n_threads: int,
    ) -> Messages:
        noise = self.noise
        assert isinstance(noise, PublishedNoise)
        users, d = user_rows.global_user_ids, self.n_factors
        entries, gradients = self._gradients(state, user_rows, neighbors, key, round_number, n_threads)
        n_drawn, pseudo = draw_pseudo_items(entries, users, self.n_items, noise.n_pseudo_items, key, round_number)
        values = np.concatenate(
            [gradients.rows, draw_pseudo_rows(gradients, entries, users, n_drawn, key, round_number)]
        )
        senders = np.concatenate(
            [np.repeat(np.arange(len(users)), entries.counts()), np.repeat(np.arange(len(users)), n_drawn)]
        )
        columns = np.concatenate([entries.items.astype(np.int64), pseudo])
        # Rows of real and pseudo items are sorted together, so that their order carries no information.
        order = np.argsort(senders * np.int64(self.n_items) + columns)
        counts = entries.counts() + n_drawn
        indptr = np.concatenate([[0], np.cumsum(counts)])
        sent_rows, sent_shared = noise.to_grid(values[order]), noise.to_grid(gradients.shared)
        draws, starts = noise.draw(users, self.n_shared + counts * d, key, round_number, n_threads)
        # A user's first draws are for the shared gradients, and the others for the rows.
        shared_positions = starts[:-1, None] + np.arange(self.n_shared)
        sent_shared += draws[shared_positions]
        sent_rows += np.delete(draws, shared_positions).reshape(sent_rows.shape)
        known = Parameters.of(state.parameters, d)
        return Messages(
            round_number, users, indptr, columns[order], sent_rows, sent_shared, known.weights, known.attention
        )

    def messages(
        self, state: FedGNNState, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Messages:  # fmt: skip
        """Return the messages that `local_round` sums, as the server of the published variant receives them.

        The key is a simulation's, so that a second call draws the same; other variants raise `TypeError`.
        """
        if not isinstance(self.noise, PublishedNoise):
            raise TypeError("variant must be 'published': other variants only sum clients' gradients")
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        key.claim_message(_ROUND, round_number, sender)
        rows = np.flatnonzero(np.isin(shard.global_user_ids, state.cohort))
        neighbors = self._devices_of(sender, shard).neighbors[rows]
        return self._messages(state, shard._take_users(rows), neighbors, key, round_number, n_threads)

    # ---- state of devices ---------------------------------------------------------------------------------------

    def _devices_of(self, sender: str, shard: Interactions) -> Devices:
        """Return the shard's devices, new ones for new users."""
        devices = self._devices.get(sender)
        if devices is None or not np.array_equal(devices.users, shard.global_user_ids):
            devices = Devices(shard.global_user_ids, np.zeros((shard.n_users, 0, self.n_factors)))
            self._devices[sender] = devices
        return devices

    def give_neighbors(self, users: np.ndarray, neighbors: np.ndarray) -> None:
        """Give every device its neighbours' embeddings, in the order of `users`, the global ids of all users."""
        order = np.argsort(users)
        for devices in self._devices.values():
            devices.neighbors = neighbors[order[np.searchsorted(users, devices.users, sorter=order)]]

    def take_devices(self, sender: str) -> tuple[Devices | None, list[Messages]]:
        """Return and remove the records, with the devices of a shard."""
        records, self._records = self._records, []
        return self._devices.get(sender), records

    def put_devices(self, sender: str, devices: tuple[Devices | None, list[Messages]]) -> None:
        """Put a shard's devices and records back."""
        if devices[0] is not None:
            self._devices[sender] = devices[0]
        self._records += devices[1]

    def pack_devices(self, sender: str) -> dict[str, np.ndarray]:
        """Return the state of a shard's devices as arrays."""
        devices = self._devices.get(sender)
        return {} if devices is None else {"users": devices.users, "neighbors": devices.neighbors}

    def unpack_devices(
        self, arrays: Mapping[str, np.ndarray], round: int, shard: Interactions
    ) -> tuple[Devices, list[Messages]]:
        """Return the devices of a shard from these arrays, without records; a round does not change them."""
        rules = {
            "users": ArrayRule(np.uint64, (shard.n_users,)),
            "neighbors": ArrayRule(np.float64, (shard.n_users, None, self.n_factors)),
        }
        if violation := find_violation(rules, dict(arrays)):
            raise ValueError(violation)
        return Devices(arrays["users"], arrays["neighbors"]), []

    def forget_devices(self) -> None:
        """Drop all devices and records."""
        self._devices, self._records = {}, []

    def records(self) -> list[Messages]:
        """Return the recorded messages of all shards, one entry for each round, in order."""
        numbers = sorted({part.round for part in self._records})
        return [Messages.joined([part for part in self._records if part.round == number]) for number in numbers]

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: FedGNNState, round: int) -> Update:
        """Return the identity of `merge`."""
        return Update(round, "nobody", 0, {"total": np.zeros(self.n_parameters, dtype=np.int64)})

    def rules(self, state: FedGNNState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of an update."""
        max_sum = self.noise.max_steps if isinstance(self.noise, PublishedNoise) else int(self.noise.radius)
        # Only clients of the cohort send a message.
        max_sum *= min(n_clients, self.cohort_size)
        return {"total": ArrayRule(np.int64, (self.n_parameters,), -max_sum, max_sum)}

    @one_blas_thread()
    def inconsistency(self, state: FedGNNState, update: Update) -> str | None:
        """Return why a sum exceeds the clipped gradients of a whole cohort, or None."""
        if isinstance(self.noise, PublishedNoise):
            return None
        # Clipped gradients have bounded norms, so the triangle inequality bounds the norm of their sum.
        norm = float(np.linalg.norm(update.arrays["total"].astype(np.float64)))
        max_norm = min(update.n_clients, self.cohort_size) * self.noise.radius
        if norm > max_norm * (1 + 1e-9):
            return f"its total has norm {norm:.6g} in steps of the grid, and clipped gradients reach {max_norm:.6g}"
        return None

    @cached_property
    def event(self) -> Gaussian | Unprotected:
        """Event of one round."""
        if isinstance(self.noise, PublishedNoise):
            return Unprotected(
                "each user's gradients, with noise on every number, and which items they are of, among others"
            )
        event = self.noise.event(len(self.population), self.cohort_size, self.n_parameters, "clipped gradients")
        assert isinstance(event, Gaussian)
        return event

    def round_event(self, n_clients: int) -> Gaussian | Unprotected:
        """Return the event of one round."""
        return self.event

    mean_rows = 0.0  # mean number of rows that a client sends in a round

    def traffic(self, state: FedGNNState, n_clients: int) -> RoundTraffic:
        """Return the traffic of one round: all parameters down; up all of them, or the rows of reported items."""
        size = upload = 4 * self.n_parameters
        if isinstance(self.noise, PublishedNoise):
            upload = 4 * self.n_shared + round(self.mean_rows * 4 * (self.n_factors + 1))
        return RoundTraffic(download=size, upload=upload, n_clients=self.cohort_size)
