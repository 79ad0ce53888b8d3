"""The rounds of FedRec in fixed point, and the server's checks of updates."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.fedrec import model as _kernel
from fastfedrec.accounting import Gaussian, RoundTraffic, Unprotected
from fastfedrec.core.arrays import distinct
from fastfedrec.core.check import check_integer
from fastfedrec.core.exact_sums import INT64_LIMIT, check_summands, max_summands
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.gradient_rounds.central import SCALE_BITS, CentralPrivacy
from fastfedrec.systems.gradient_rounds.devices import (
    Devices,
    centred,
    check_memory,
    first_factors,
    pack_devices,
    unpack_devices,
)
from fastfedrec.systems.gradient_rounds.dynamics import GradientDescent
from fastfedrec.systems.gradient_rounds.filling import Filling
from fastfedrec.systems.gradient_rounds.parties import Parties
from fastfedrec.systems.gradient_rounds.state import FedRecState
from fastfedrec.systems.gradient_rounds.traffic import VectorTraffic, count_vectors
from fastfedrec.systems.gradient_rounds.views import RecordedRound, record_round

__all__ = ["FedRecRounds", "Training"]

_ROUND = "fedrec.round"
_MASKS = "fedrec.masks"
_ITEMS = "fedrec.item_factors"
_SEED = "fedrec.cohort"

_MAX_INTEGER = 2**50  # largest integer of a gradient, which the kernel rounds exactly in doubles
_CHUNK = 16  # users of a thread's unit of work in the kernel


@dataclass(frozen=True)
class Training:
    """Settings of the training; from round `t_predict` on, `t_local` steps predict virtual ratings."""

    n_factors: int
    client_share: float
    learning_rate: float
    learning_rate_decay: float
    regularization: float = 0.0
    t_predict: int = 0
    t_local: int = 0


@dataclass(eq=False, repr=False)
class FedRecRounds(FederatedSystem):
    """Rounds of FedRec, FedRec++ and SDCF; `key` draws the public first state, and the server's noise."""

    n_items: int
    training: Training
    filling: Filling
    parties: Parties
    central: CentralPrivacy | None
    dynamics: GradientDescent
    key: Key
    recorded: Collection[int] = ()  # rounds with recorded messages
    mean_sent: float = 0.0  # mean number of vectors that a user sends in a round
    _devices: dict[str, Devices] = field(default_factory=dict, init=False)
    _records: list[RecordedRound] = field(default_factory=list, init=False)

    @property
    def scale(self) -> float:
        """Steps of a gradient of 1."""
        return 2.0**SCALE_BITS if self.central is None else self.central.scale

    def limit(self, n_users: int) -> int:
        """Return the largest integer for which no sum over users overflows: n_users * limit < 2^63."""
        max_users = max_summands(int(self.scale), INT64_LIMIT)
        name = "the number of users in interactions"
        check_summands(name, n_users, n_users, max_users, "fit a random part of the users")
        return min(_MAX_INTEGER, max_summands(n_users, INT64_LIMIT))

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, interactions: Interactions) -> FedRecState:
        """Return the server's first state: uniform item factors in +-.005, and with `max_items` noisy counts of raters.

        The key is the source of the first factors, the public seed, and the noise on the counts.
        """
        n_users, training, central, key = interactions.n_users, self.training, self.central, self.key
        self.limit(n_users)
        uniform = key.uniform(_ITEMS, size=self.n_items * training.n_factors).reshape(self.n_items, training.n_factors)
        state = FedRecState(
            centred(uniform),
            training.learning_rate,
            interactions.global_user_ids,
            cohort_size=max(1, round(training.client_share * n_users)),
            seed=int(key.words(_SEED, size=1)[0]),
            divisors=np.zeros(0) if central is None else central.divisors(interactions, training.client_share, key),
        )
        return self.dynamics.start(self.parties.deal(state, interactions, key))

    def local_round(
        self,
        state: FedRecState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Train the factors of a shard's users in the cohort, and sum their messages; the factors stay in the shard.

        Round 0 starts anew, and any other round must follow the one before it.
        """
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        n_threads = min(resolve_n_threads(n_threads), -(-shard.n_users // _CHUNK)) or 1  # each thread has work
        key.claim_message(_ROUND, round_number, sender)
        devices, training, central = self._devices_in(sender, shard, key, round_number), self.training, self.central
        if devices.reported is None or self.filling.redraws_in(round_number):
            devices.reported = self.filling.draw(shard, state.weights, key, round_number, n_threads, devices.reported)
        reported, roles = devices.reported, state.roles(shard.global_user_ids, round_number)
        # Integers modulo 2^64, in which shares and virtual ratings cancel exactly.
        sums = np.zeros((len(self.parties.fields), shard.n_items, training.n_factors + 1), dtype=np.uint64)
        records = round_number in self.recorded
        messages = np.zeros((2 * records, len(reported.items), training.n_factors + 1), dtype=np.uint64)
        failed = np.zeros(n_threads, dtype=np.int64)
        ratings = shard.values_or_ones(np.float32) if shard.values is None else shard.values
        _kernel.add_gradients(
            reported.indptr, reported.items, reported.kinds, shard.indptr, ratings, shard.global_user_ids, roles,
            state.item_factors, devices.user_factors, sums, messages, failed, key.subkey(_MASKS),
            *self.dynamics.message_noise(state, key, self.scale), state.learning_rate, training.regularization,
            self.scale, float(self.limit(len(state.global_user_ids))),
            0.0 if central is None else central.clip_norm * central.scale,
            training.t_local if round_number >= training.t_predict else 0,
            self.parties.sharing, round_number, n_threads,
        )  # fmt: skip
        check_memory(failed)
        self.dynamics.finish_users(devices, state, shard, roles, key, round_number)
        devices.next_round = round_number + 1
        if records:
            users = np.repeat(shard.global_user_ids, np.diff(reported.indptr))
            reported_roles = np.repeat(roles, np.diff(reported.indptr))
            self._records.append(
                record_round(
                    self.parties.sharing,
                    round_number,
                    state,
                    users,
                    reported_roles,
                    reported,
                    messages,
                    training.regularization,
                    self.scale,
                )
            )
        return Update(round, sender, shard.n_users, dict(zip(self.parties.fields, sums, strict=True)))

    def apply(self, state: FedRecState, update: Update) -> FedRecState:
        """Take one step along the mean gradient of each reported item."""
        total = self.parties.real_sums(update)
        sums, counts = total[:, :-1], total[:, -1]
        divisors = counts.astype(np.float64)
        if self.central is not None:
            sums = self.central.add_noise(sums, self.key, update.round)
            divisors = state.divisors
        is_reported = divisors > 0
        step = np.zeros(sums.shape)
        # Items without a report keep their factors.
        step[is_reported] = sums[is_reported] / (self.scale * divisors[is_reported, None])
        with np.errstate(over="ignore", invalid="ignore"):  # `fit` reports divergence
            factors = state.item_factors - state.learning_rate * step
        learning_rate = state.learning_rate * self.training.learning_rate_decay
        moved = replace(state, item_factors=factors, learning_rate=learning_rate)
        return self.dynamics.finish_items(state, moved, counts, update.round)

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: FedRecState, round: int) -> Update:
        """Return the identity of `merge`."""
        n_items, n_factors = state.item_factors.shape
        zeros = {name: np.zeros((n_items, n_factors + 1), dtype=np.uint64) for name in self.parties.fields}
        return Update(round, "nobody", 0, zeros)

    def rules(self, state: FedRecState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type and shape of the arrays of an update."""
        n_items, n_factors = state.item_factors.shape
        return {name: ArrayRule(np.uint64, (n_items, n_factors + 1)) for name in self.parties.fields}

    def inconsistency(self, state: FedRecState, update: Update) -> str | None:
        """Return why the fields of an update contradict each other, or None."""
        total = self.parties.real_sums(update)
        counts = total[:, -1]
        if counts.min() < 0 or counts.max() > update.n_clients:
            return f"it counts {counts.min()} to {counts.max()} users per item, and has {update.n_clients} users"
        limit = self.limit(len(state.global_user_ids))
        # Each counted user adds at most `limit` to a coordinate.
        if (np.abs(total[:, :-1]) > counts[:, None] * limit).any():
            return "its sums are larger than the number of users allows"
        return None

    # ---- privacy and traffic ------------------------------------------------------------------------------------

    def round_event(self, n_clients: int) -> Gaussian | Unprotected:
        """Return the event of one round."""
        if self.central is not None:
            return self.central.round_event(self.n_items * self.training.n_factors)
        return Unprotected(self.parties.exposed(self.filling.channel is not None))

    def traffic(self, state: FedRecState, n_clients: int) -> RoundTraffic:
        """Return the traffic of a participating user in one round, as the mean over users."""
        width = state.item_factors.shape[1]
        # A vector has n_factors numbers and a count of 8 bytes each, and an item number of 4 bytes.
        return RoundTraffic(
            download=8 * state.item_factors.size,
            upload=round(self.mean_sent * (8 * (width + 1) + 4)),
            n_clients=n_clients,
        )

    def expected_sent(self, data: Interactions) -> float:
        """Return the mean number of vectors that a user sends in a round."""
        lengths = data.interactions_per_user()
        # If rows are on nodes or private, a user may have all items.
        hidden = self.central is not None or isinstance(data, RemoteUsers)
        reported = self.filling.mean_reports(np.where(hidden, data.n_items, lengths), data.n_items)
        rated = 0.0 if self.central is not None else float(lengths.mean())
        return self.parties.mean_sent(reported, self.filling.rated_chance * rated)

    def count_vectors(self, state: FedRecState) -> VectorTraffic:
        """Return the number of latent vectors of a round."""
        # With central privacy even the amount of traffic must not depend on the data.
        groups = [devices for devices in self._devices.values() if len(devices.users)]
        if not groups or self.central is not None:  # the users' numbers of items are unknown or private
            n_denoisers, unknown = len(distinct(state.denoisers)), float("nan")
            return VectorTraffic(n_denoisers, len(state.global_user_ids) - n_denoisers, unknown, unknown, unknown)
        users = np.concatenate([devices.users for devices in groups])
        denoisers = state.denoisers[state.rows(users)] if len(state.denoisers) else state.denoisers
        return count_vectors(self.parties.sharing, groups, denoisers, self.n_items)

    # ---- state of devices ---------------------------------------------------------------------------------------

    def _devices_in(self, sender: str, shard: Interactions, key: Key, round_number: int) -> Devices:
        """Return the shard's devices for this round, or raise if the round does not follow their last one."""
        if round_number == 0:
            users = shard.global_user_ids
            self._devices[sender] = Devices(users, first_factors(key, users, self.training.n_factors))
        devices = self._devices.get(sender)
        if devices is None or devices.next_round != round_number or len(devices.users) != shard.n_users:
            done = "none" if devices is None else f"{devices.next_round} of {len(devices.users)} users"
            raise ValueError(
                f"round must follow the last one that {sender!r} answered ({done}), got {round_number}; begin at 0"
            )
        return devices

    def device_factors(self, state: FedRecState) -> NDArray[np.float64]:
        """Return a copy of all users' factors on their devices, with zeros for users on nodes."""
        factors = np.zeros((len(state.global_user_ids), self.training.n_factors))
        for devices in self._devices.values():
            factors[state.rows(devices.users)] = devices.user_factors
        return factors

    def take_devices(self, sender: str) -> tuple[Devices | None, list[RecordedRound]]:
        """Return and remove the records, with the devices of a shard."""
        records, self._records = self._records, []
        return self._devices.get(sender), records

    def put_devices(self, sender: str, devices: tuple[Devices | None, list[RecordedRound]]) -> None:
        """Put a shard's devices and records back."""
        if devices[0] is not None:
            self._devices[sender] = devices[0]
        self._records += devices[1]

    def pack_devices(self, sender: str) -> dict[str, np.ndarray]:
        """Return the state of a shard's devices as arrays, and remove the records."""
        devices, _ = self.take_devices(sender)
        return {} if devices is None else pack_devices(devices)

    def unpack_devices(
        self, arrays: Mapping[str, np.ndarray], round: int, shard: Interactions
    ) -> tuple[Devices, list[RecordedRound]]:
        """Return the devices of a shard from these arrays, without records."""
        return unpack_devices(arrays, round, shard, self.training.n_factors), []

    def forget_devices(self) -> None:
        """Drop all devices and records."""
        self._devices, self._records = {}, []

    def records(self) -> list[RecordedRound]:
        """Return the recorded messages of all shards, one entry for each round, in order."""
        numbers = sorted({part.round for part in self._records})
        return [RecordedRound.of_shards([part for part in self._records if part.round == n]) for n in numbers]
