"""The rounds of FedGNN, and what its server accepts; `model.FedGNN` is the model around them."""

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
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
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
from fastfedrec.systems.privrec.grid_noise import GridNoise

_ROUND = "fedgnn.round"
_COHORT = "fedgnn.cohort"
_NOISE = "fedgnn.noise"
_BLOCK = 16  # clients whose messages are in memory together; sums are of whole numbers, so it changes nothing
_BETA_1, _BETA_2, _TINY = 0.9, 0.99, 1e-8  # of Adam


@dataclass(frozen=True)
class FedGNNState:
    """What the server holds; it sends the parameters to the cohort.

    Parameters
    ----------
    parameters : ndarray of shape (n_factors ** 2 + 2 * n_factors + n_items * n_factors,), float64
        W, the attention, and the items' embeddings.
    means, squares : ndarray of the same shape, float64
        Adam's, of the mean gradients so far: made of what was released.
    cohort : ndarray of shape (cohort_size,), uint64
        Global ids of the clients of the open round; guaranteed, they are secret: the amplification rests on that.
    """

    parameters: NDArray[np.float64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    cohort: NDArray[np.uint64]


@dataclass(frozen=True)
class LocalTraining:
    """What a client does before it sends.

    Parameters
    ----------
    grid : tuple of (float, float)
        Ends of the scale of values.
    negatives : int
        Other items beside each of its own.
    user_learning_rate : float
        Of the steps of its own embedding.
    user_steps : int
        How many there are.
    """

    grid: tuple[float, float]
    negatives: int
    user_learning_rate: float
    user_steps: int


@dataclass
class Devices:
    """What the devices of a shard keep between rounds.

    Parameters
    ----------
    users : ndarray of shape (n_users,), uint64
        Global ids.
    neighbors : ndarray of shape (n_users, n_neighbors, n_factors), float64
        Embeddings that the third party has sent; an empty place is all zeros.
    """

    users: NDArray[np.uint64]
    neighbors: NDArray[np.float64]


class FedGNNRounds(FederatedSystem):
    """Rounds of FedGNN.

    Parameters
    ----------
    population : ndarray of shape (n_users,), uint64
        Global ids of all clients.
    cohort_size : int
        Clients of a round.
    n_items, n_factors : int
        Of the model.
    local : LocalTraining
        What each client does.
    noise : PublishedNoise or GridNoise
        Of the clients themselves, each by itself; or of the server, on sums of clipped gradients.
    learning_rate : float
        Of the server's steps.
    key : Key
        The server's, for the cohorts, and for its noise.
    """

    def __init__(
        self, population: np.ndarray, cohort_size: int, n_items: int, n_factors: int, local: LocalTraining,
        noise: PublishedNoise | GridNoise, learning_rate: float, key: Key,
    ):  # fmt: skip
        self.population, self.cohort_size, self.n_items, self.n_factors = population, cohort_size, n_items, n_factors
        self.local, self.noise, self.learning_rate, self.key = local, noise, learning_rate, key
        self.recorded: Collection[int] = ()  # rounds of which all messages of the published variant are kept
        self._devices: dict[str, Devices] = {}
        self._records: list[Messages] = []

    @property
    def n_shared(self) -> int:
        """Parameters that every client has a gradient of."""
        return self.n_factors**2 + 2 * self.n_factors

    @property
    def n_parameters(self) -> int:
        """All of them."""
        return self.n_shared + self.n_items * self.n_factors

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, parameters: np.ndarray) -> FedGNNState:
        """The first state.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float64
            Public.

        Returns
        -------
        FedGNNState
            With the first cohort.
        """
        zeros = np.zeros(len(parameters))
        return FedGNNState(parameters, zeros, zeros, self._cohort(0))

    def _cohort(self, round_number: int) -> NDArray[np.uint64]:
        sampling = FixedSizeSampling(self.cohort_size)
        chosen = sampling.sample(len(self.population), key=self.key, round=round_number, purpose=_COHORT)
        return self.population[chosen]

    def local_round(
        self, state: FedGNNState, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:  # fmt: skip
        """Add up what the shard's clients that are in the cohort send."""
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
        """Add the server's noise, if it is the server's; divide by the planned size of the cohort; a step of Adam."""
        total = update.arrays["total"]
        if isinstance(self.noise, GridNoise):
            self.key.claim_message(_NOISE, update.round, "server")
            total = self.noise.release(total, self.key, _NOISE, update.round, 0)
        else:
            total = total * self.noise.step
        with np.errstate(over="ignore", invalid="ignore"):  # fit finds out
            mean = total / self.cohort_size
            means = _BETA_1 * state.means + (1 - _BETA_1) * mean
            squares = _BETA_2 * state.squares + (1 - _BETA_2) * mean * mean
            unbiased = [part / (1 - b ** (update.round + 1)) for part, b in ((means, _BETA_1), (squares, _BETA_2))]
            step = self.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + _TINY)
            return FedGNNState(state.parameters - step, means, squares, self._cohort(update.round + 1))

    # ---- on the devices -----------------------------------------------------------------------------------------

    def _blocks(self, state: FedGNNState, shard: Interactions) -> Iterator[np.ndarray]:
        asked = np.flatnonzero(np.isin(shard.global_user_ids, state.cohort))
        for start in range(0, len(asked), _BLOCK):
            yield asked[start : start + _BLOCK]

    def _gradients(
        self, state: FedGNNState, own: Interactions, neighbors: np.ndarray, key: Key, round_number: int, n_threads: int
    ) -> tuple[Entries, Gradients]:
        parameters = Parameters.of(state.parameters, self.n_factors)
        entries = draw_entries(own, self.local.grid, self.local.negatives, key, round_number)
        found = find_gradients(
            parameters, parameters.projected(), entries, neighbors, self.local.user_learning_rate,
            self.local.user_steps, resolve_n_threads(n_threads), with_moments=isinstance(self.noise, PublishedNoise),
        )  # fmt: skip
        return entries, found

    def _add_clipped(
        self, state: FedGNNState, shard: Interactions, rows: np.ndarray, neighbors: np.ndarray, key: Key,
        round_number: int, n_threads: int, shared: np.ndarray, items: np.ndarray,
    ) -> None:  # fmt: skip
        """Add what some clients send where the server is trusted: gradients of bounded norm, in whole steps."""
        assert isinstance(self.noise, GridNoise)
        entries, found = self._gradients(state, shard._take_users(rows), neighbors, key, round_number, n_threads)
        factors = clip_factors(found, entries.indptr, self.noise.clip_norm)
        with np.errstate(invalid="ignore"):
            of_rows = np.nan_to_num(found.rows * np.repeat(factors, entries.counts())[:, None])
            of_shared = np.nan_to_num(found.shared * factors[:, None])
        steps = self.noise.to_grid(of_rows.ravel()).reshape(of_rows.shape).astype(np.int64)
        np.add.at(items, entries.items, steps)
        shared += self.noise.to_grid(of_shared.ravel()).reshape(of_shared.shape).astype(np.int64).sum(axis=0)

    def _add_published(
        self, state: FedGNNState, shard: Interactions, rows: np.ndarray, neighbors: np.ndarray, key: Key,
        round_number: int, n_threads: int, shared: np.ndarray, items: np.ndarray,
    ) -> None:  # fmt: skip
        """Add what some clients of the published variant send."""
        sent = self._messages(state, shard._take_users(rows), neighbors, key, round_number, n_threads)
        if round_number in self.recorded:
            self._records.append(sent)
        np.add.at(items, sent.items, sent.rows)
        shared += sent.shared.sum(axis=0)

    def _messages(
        self, state: FedGNNState, own: Interactions, neighbors: np.ndarray, key: Key, round_number: int, n_threads: int
    ) -> Messages:
        noise = self.noise
        assert isinstance(noise, PublishedNoise)
        users, d = own.global_user_ids, self.n_factors
        entries, found = self._gradients(state, own, neighbors, key, round_number, n_threads)
        n_drawn, pseudo = draw_pseudo_items(entries, users, self.n_items, noise.n_pseudo_items, key, round_number)
        values = np.concatenate([found.rows, draw_pseudo_rows(found, entries, users, n_drawn, key, round_number)])
        senders = np.concatenate(
            [np.repeat(np.arange(len(users)), entries.counts()), np.repeat(np.arange(len(users)), n_drawn)]
        )
        columns = np.concatenate([entries.items.astype(np.int64), pseudo])
        order = np.argsort(senders * np.int64(self.n_items) + columns)
        counts = entries.counts() + n_drawn
        indptr = np.concatenate([[0], np.cumsum(counts)])
        sent, sent_shared = noise.to_grid(values[order]), noise.to_grid(found.shared)
        draws, starts = noise.draw(users, self.n_shared + counts * d, key, round_number, n_threads)
        of_shared = starts[:-1, None] + np.arange(self.n_shared)
        sent_shared += draws[of_shared]
        sent += np.delete(draws, of_shared).reshape(sent.shape)
        known = Parameters.of(state.parameters, d)
        return Messages(round_number, users, indptr, columns[order], sent, sent_shared, known.weights, known.attention)

    def messages(
        self, state: FedGNNState, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Messages:  # fmt: skip
        """What `local_round` adds up, of each client by itself: the server of the published variant sees it so.

        Parameters
        ----------
        state : FedGNNState
            Of the round.
        shard : Interactions
            As for `local_round`.
        key : Key
            A simulation's: another call with it draws the same.
        round : int
            Names the draws.
        sender : str
            The shard's name.
        n_threads : int
            0 for all.

        Returns
        -------
        Messages
            Of the shard's clients in the cohort.

        Raises
        ------
        TypeError
            Another variant, whose server sees sums.
        """
        if not isinstance(self.noise, PublishedNoise):
            raise TypeError("variant must be 'published': otherwise clients' gradients are only added up")
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        key.claim_message(_ROUND, round_number, sender)
        rows = np.flatnonzero(np.isin(shard.global_user_ids, state.cohort))
        neighbors = self._devices_of(sender, shard).neighbors[rows]
        return self._messages(state, shard._take_users(rows), neighbors, key, round_number, n_threads)

    # ---- what devices remember ----------------------------------------------------------------------------------

    def _devices_of(self, sender: str, shard: Interactions) -> Devices:
        kept = self._devices.get(sender)
        if kept is None or not np.array_equal(kept.users, shard.global_user_ids):
            kept = Devices(shard.global_user_ids, np.zeros((shard.n_users, 0, self.n_factors)))
            self._devices[sender] = kept
        return kept

    def give_neighbors(self, users: np.ndarray, neighbors: np.ndarray) -> None:
        """Send every device what the third party has for it.

        Parameters
        ----------
        users : ndarray of shape (n_users,), uint64
            Global ids of all users.
        neighbors : ndarray of shape (n_users, n_neighbors, n_factors), float64
            In the same order.
        """
        order = np.argsort(users)
        for devices in self._devices.values():
            devices.neighbors = neighbors[order[np.searchsorted(users, devices.users, sorter=order)]]

    def take_devices(self, sender: str) -> tuple[Devices | None, list[Messages]]:
        """The neighbours of a shard's users, and what has been recorded of it."""
        records, self._records = self._records, []
        return self._devices.get(sender), records

    def put_devices(self, sender: str, devices: tuple[Devices | None, list[Messages]]) -> None:
        """Give them back."""
        if devices[0] is not None:
            self._devices[sender] = devices[0]
        self._records += devices[1]

    def forget_devices(self) -> None:
        """Drop them all."""
        self._devices, self._records = {}, []

    def records(self) -> list[Messages]:
        """What was sent in the rounds to be recorded, one for each that was, in order.

        Returns
        -------
        list of Messages
            Of all shards.
        """
        numbers = sorted({part.round for part in self._records})
        return [Messages.joined([part for part in self._records if part.round == number]) for number in numbers]

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: FedGNNState, round: int) -> Update:
        """The identity of `merge`."""
        return Update(round, "nobody", 0, {"total": np.zeros(self.n_parameters, dtype=np.int64)})

    def rules(self, state: FedGNNState, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like."""
        most = self.noise.most if isinstance(self.noise, PublishedNoise) else int(self.noise.radius)
        most *= min(n_clients, self.cohort_size)
        return {"total": ArrayRule(np.int64, (self.n_parameters,), -most, most)}

    @one_blas_thread()
    def inconsistency(self, state: FedGNNState, update: Update) -> str | None:
        """Say where a sum is longer than the clipped gradients of a whole cohort can be."""
        if isinstance(self.noise, PublishedNoise):
            return None
        norm = float(np.linalg.norm(update.arrays["total"].astype(np.float64)))
        longest = min(update.n_clients, self.cohort_size) * self.noise.radius
        if norm > longest * (1 + 1e-9):
            return f"its total has norm {norm:.6g} in steps of the grid, and clipped gradients reach {longest:.6g}"
        return None

    @cached_property
    def event(self) -> Gaussian | Unprotected:
        """What one round costs."""
        if isinstance(self.noise, PublishedNoise):
            return Unprotected(
                "each user's gradients, with noise on every number, and which items they are of, among others"
            )
        event = self.noise.event(len(self.population), self.cohort_size, self.n_parameters, "clipped gradients")
        assert isinstance(event, Gaussian)
        return event

    def round_event(self, n_clients: int) -> Gaussian | Unprotected:
        """What one round is about to cost."""
        return self.event

    mean_rows = 0.0  # that a client sends in a round

    def traffic(self, state: FedGNNState, n_clients: int) -> RoundTraffic:
        """What one round moves: all parameters down; up as many, or the rows of own items and others."""
        size = upload = 4 * self.n_parameters
        if isinstance(self.noise, PublishedNoise):
            upload = 4 * self.n_shared + round(self.mean_rows * 4 * (self.n_factors + 1))
        return RoundTraffic(download=size, upload=upload, n_clients=self.cohort_size)
