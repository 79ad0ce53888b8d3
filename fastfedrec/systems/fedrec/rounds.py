"""The rounds of FedRec in fixed point, and the server's checks of updates."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.fedrec import model as _kernel
from fastfedrec.accounting import Gaussian, RoundTraffic, Unprotected
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.exact_sums import INT64_LIMIT, check_summands, max_summands
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel, FixedSizeSampling, RoundedGaussian
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.fedrec._views import RecordedRound, record_round
from fastfedrec.systems.fedrec.devices import (
    Devices,
    ReportedItems,
    centred,
    check_memory,
    count_raters,
    fill_by_response,
    fill_hybrid,
    first_factors,
    response_channel,
)

__all__ = ["FedRecRounds", "FedRecState"]

_ROUND = "fedrec.round"
_MASKS = "fedrec.masks"
_ITEMS = "fedrec.item_factors"
_SEED = "fedrec.cohort"
_NOISE = "fedrec.noise"
_COUNT_NOISE = "fedrec.count_noise"

_SCALE_BITS = 32  # fractional bits of a gradient: steps of 2.3e-10
_MAX_INTEGER = 2**50  # largest integer of a gradient, which the kernel rounds exactly in doubles
_MAX_STDDEV = 2**12  # of noise in steps: its table takes a second to compute, and eight seconds at 2^15
_CHUNK = 16  # users of a thread's unit of work in the kernel


@dataclass(frozen=True)
class FedRecState:
    """The state that the server broadcasts; all of it is public.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors), float64
        Item factors V.
    learning_rate : float
        Step size of the open round.
    global_user_ids : ndarray of shape (n_users,), uint64
        All users of the run.
    cohort_size : int
        Number of users in a round.
    seed : int
        Seed of public draws: the cohorts, and each user's denoiser.
    denoisers : ndarray of shape (n_users,), uint64
        Denoiser of each user, a denoiser's own id for itself; of length 0 without denoisers.
    weights : ndarray of shape (n_items,), float64
        Weights by which unrated items are drawn; of length 0 for equal weights.
    divisors : ndarray of shape (n_items,), float64
        Divisors of the sums; of length 0 to divide by each round's count of raters.
    """

    item_factors: NDArray[np.float64]
    learning_rate: float
    global_user_ids: NDArray[np.uint64]
    cohort_size: int
    seed: int
    denoisers: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    divisors: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def rows(self, users: np.ndarray) -> np.ndarray:
        """Return the positions of global ids among all users."""
        order = np.argsort(self.global_user_ids)
        # Ids need not be sorted, so the search goes through their order.
        return order[np.searchsorted(self.global_user_ids, users, sorter=order)]

    def roles(self, users: np.ndarray, round_number: int) -> np.ndarray:
        """Return each user's role in a round: 0 outside the cohort, 2 for a denoiser in it, 1 for other users."""
        n = len(self.global_user_ids)
        roles = np.zeros(n, dtype=np.uint8)
        # A public seed draws the cohort, so that every party computes the same one.
        cohort = FixedSizeSampling(self.cohort_size).sample(n, key=Key.from_seed(self.seed), round=round_number)
        roles[cohort] = 1
        if len(self.denoisers):
            roles[(roles == 1) & (self.denoisers == self.global_user_ids)] = 2
        return roles[self.rows(users)]


class FedRecRounds(FederatedSystem):
    """The rounds of FedRec with the parameters of `fedrec.FedRec`."""

    rho: int
    filling: str
    t_predict: int
    t_local: int
    client_share: float
    n_factors: int
    learning_rate: float
    learning_rate_decay: float
    regularization: float
    keep_probability: float | None
    add_probability: float | None
    clip_norm: float | None
    noise_multiplier: float
    divisor: float | None
    max_items: int | None
    grid: Sequence[float]

    _sharing = 0  # the kernel's code for messages to the server only
    _fields: tuple[str, ...] = ("total",)
    _redraws = True  # whether virtual items are drawn anew in each round

    _recorded: Collection[int] = ()
    _n_sums: int  # number of sums with noise in a round

    def __init__(self) -> None:
        self._devices: dict[str, Devices] = {}
        self._records: list[RecordedRound] = []
        self._server_key: Key | None = None

    @property
    def channel(self) -> Channel | None:
        """Exact channel from "rated" to "reported"; None with hybrid filling."""
        if self.filling == "hybrid" or self.keep_probability is None or self.add_probability is None:
            return None
        return response_channel(self.keep_probability, self.add_probability)

    @property
    def _scale(self) -> float:
        """Steps of a gradient of 1; fewer than 2^32 if the noise would not fit into its table."""
        if self.clip_norm is None:
            return 2.0**_SCALE_BITS
        # The largest power of two for which the noise fits into its table.
        max_bits = math.floor(math.log2(_MAX_STDDEV / (self.noise_multiplier * self.clip_norm)))
        return 2.0 ** min(max_bits, _SCALE_BITS)

    @property
    def noise(self) -> RoundedGaussian | None:
        """Noise on each coordinate of a round's sums, in steps; None without central privacy."""
        if self.clip_norm is None:
            return None
        return RoundedGaussian(Fraction(self.noise_multiplier) * Fraction(self.clip_norm) * Fraction(self._scale))

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, interactions: Interactions, key: Key) -> FedRecState:
        """Return the server's first state: uniform item factors in +-.005, and with `max_items` noisy counts of raters.

        The key is the source of the first factors, the public seed, and the server's noise.
        """
        n_users, n_items = interactions.n_users, interactions.n_items
        self._limit(n_users)
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        self._server_key, self._devices, self._records = key, {}, []
        self._n_sums = n_items * self.n_factors
        uniform = key.uniform(_ITEMS, size=n_items * self.n_factors).reshape(n_items, self.n_factors)
        return FedRecState(
            centred(uniform),
            self.learning_rate,
            interactions.global_user_ids,
            cohort_size=max(1, round(self.client_share * n_users)),
            seed=int(key.words(_SEED, size=1)[0]),
            divisors=self._divisors(interactions, key),
        )

    def _divisors(self, interactions: Interactions, key: Key) -> np.ndarray:
        """Return the divisors of each item's sums, or none to use each round's counts."""
        if self.clip_norm is None:
            return np.zeros(0)
        if self.divisor is not None:
            return np.full(interactions.n_items, float(self.divisor))
        counts = count_raters(interactions, self.max_items, key, 1).astype(np.int64)
        counts = np.maximum(self.count_noise.add_noise(counts, key=key, purpose=_COUNT_NOISE), 1)
        return np.maximum(counts * self.client_share, 1.0)  # expected number of raters in a cohort

    @property
    def count_noise(self) -> RoundedGaussian:
        """Noise on the counts of raters, which are released once, with the multiplier of a round's sums."""
        # The noise table needs a standard deviation of at least 1/2.
        return RoundedGaussian(max(Fraction(self.noise_multiplier) * self._count_sensitivity, Fraction(1, 2)))

    @property
    def _count_sensitivity(self) -> Fraction:
        """Norm of one user's counts, rounded up."""
        return Fraction(math.nextafter(math.sqrt(self.max_items or 1), math.inf))

    def take_devices(self, sender: str) -> tuple[Devices | None, list[RecordedRound]]:
        """Return and remove the records, with the devices of a shard."""
        records, self._records = self._records, []
        return self._devices.get(sender), records

    def put_devices(self, sender: str, devices: tuple[Devices | None, list[RecordedRound]]) -> None:
        """Put a shard's devices and records back."""
        if devices[0] is not None:
            self._devices[sender] = devices[0]
        self._records += devices[1]

    def forget_devices(self) -> None:
        """Drop all devices and records."""
        self._devices, self._records = {}, []

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
        devices = self._devices_in(sender, shard, key, round_number)
        # Reported items are drawn in the first round, and again if the variant redraws them.
        if devices.reported is None or self._redraws_in(round_number):
            devices.reported = self._select_reported(state, shard, key, round_number, n_threads, devices.reported)
        reported, roles = devices.reported, state.roles(shard.global_user_ids, round_number)
        # Integers modulo 2^64, in which shares and virtual ratings cancel exactly.
        sums = np.zeros((len(self._fields), shard.n_items, self.n_factors + 1), dtype=np.uint64)
        records = round_number in self._recorded
        messages = np.zeros((2 * records, len(reported.items), self.n_factors + 1), dtype=np.uint64)
        failed = np.zeros(n_threads, dtype=np.int64)
        ratings = shard.values_or_ones(np.float32) if shard.values is None else shard.values
        _kernel.add_gradients(
            reported.indptr, reported.items, reported.kinds, shard.indptr, ratings, shard.global_user_ids, roles,
            state.item_factors, devices.user_factors, sums, messages, failed, key.subkey(_MASKS),
            *self._langevin(state, key), state.learning_rate, self.regularization, self._scale,
            float(self._limit(len(state.global_user_ids))), (self.clip_norm or 0.0) * self._scale,
            self.t_local if round_number >= self.t_predict else 0,
            self._sharing, round_number, n_threads,
        )  # fmt: skip
        check_memory(failed)
        self._finish_step(devices, state, shard, roles, key, round_number)
        devices.next_round = round_number + 1
        if records:
            users = np.repeat(shard.global_user_ids, np.diff(reported.indptr))
            reported_roles = np.repeat(roles, np.diff(reported.indptr))
            self._records.append(
                record_round(
                    self._sharing,
                    round_number,
                    state,
                    users,
                    reported_roles,
                    reported,
                    messages,
                    self.regularization,
                    self._scale,
                )
            )
        return Update(round, sender, shard.n_users, dict(zip(self._fields, sums, strict=True)))

    def apply(self, state: FedRecState, update: Update) -> FedRecState:
        """Take one step along the mean gradient of each reported item."""
        total = self.real_sums(update)
        sums, divisors = total[:, :-1], total[:, -1].astype(np.float64)
        if self.noise is not None and self._server_key is not None:
            sums = self.noise.add_noise(
                np.ascontiguousarray(sums), key=self._server_key, purpose=_NOISE, round=update.round
            )
            divisors = state.divisors
        is_reported = divisors > 0
        step = np.zeros(sums.shape)
        # Items without a report keep their factors.
        step[is_reported] = sums[is_reported] / (self._scale * divisors[is_reported, None])
        with np.errstate(over="ignore", invalid="ignore"):  # `fit` reports divergence
            factors = state.item_factors - state.learning_rate * step
        return replace(state, item_factors=factors, learning_rate=state.learning_rate * self.learning_rate_decay)

    def real_sums(self, update: Update) -> NDArray[np.int64]:
        """Return each item's sum of gradients, in steps, and its count of users in the last column, exactly."""
        return update.arrays["total"].view(np.int64)

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: FedRecState, round: int) -> Update:
        """Return the identity of `merge`."""
        n_items, n_factors = state.item_factors.shape
        return Update(
            round, "nobody", 0, {name: np.zeros((n_items, n_factors + 1), dtype=np.uint64) for name in self._fields}
        )

    def rules(self, state: FedRecState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type and shape of the arrays of an update."""
        n_items, n_factors = state.item_factors.shape
        return {name: ArrayRule(np.uint64, (n_items, n_factors + 1)) for name in self._fields}

    def inconsistency(self, state: FedRecState, update: Update) -> str | None:
        """Return why the fields of an update contradict each other, or None."""
        total = self.real_sums(update)
        counts = total[:, -1]
        if counts.min() < 0 or counts.max() > update.n_clients:
            return f"it counts {counts.min()} to {counts.max()} users per item, and has {update.n_clients} users"
        limit = self._limit(len(state.global_user_ids))
        # Each counted user adds at most `limit` to a coordinate.
        if (np.abs(total[:, :-1]) > counts[:, None] * limit).any():
            return "its sums are larger than the number of users allows"
        return None

    def round_event(self, n_clients: int) -> Gaussian | Unprotected:
        """Return the event of one round."""
        if self.noise is None:
            return Unprotected("each user's gradients" + self._and_items)
        name = "clipped gradients with noise on their sums"
        # The contributions of two users may be opposite.
        return self._noise_event(name, self.noise, 2 * self._clip_steps, self._n_sums)

    @property
    def _and_items(self) -> str:
        """Return the event's clause on items, which randomized response protects."""
        return "" if self.filling == "randomized_response" else ", and which items they are of"

    @property
    def _clip_steps(self) -> Fraction:
        """Norm of one user's contribution, in steps."""
        return Fraction(self.clip_norm or 0) * Fraction(self._scale)

    @property
    def _replaced_count_sensitivity(self) -> Fraction:
        """Bound of the distance of two users' counts, which have at most `max_items` ones each, at different items."""
        return Fraction(math.nextafter(math.sqrt(2 * (self.max_items or 1)), math.inf))

    def _noise_event(self, name: str, noise: RoundedGaussian, sensitivity: Fraction, n_draws: int) -> Gaussian:
        """Return the event of a release of noisy sums for replacing a user."""
        # Participation is public, and the cohort is drawn from a public seed, so it amplifies no privacy.  A replaced
        # user changes the sum by the difference of two contributions.  A user without data may still report virtual
        # items, so no smaller sensitivity is proved for it.
        multiplier, distance = noise.noise_multiplier(sensitivity), noise.total_variation_of(n_draws)
        return Gaussian(multiplier, name, neighboring="replace", sampling="none", distance=distance)

    def traffic(self, state: FedRecState, n_clients: int) -> RoundTraffic:
        """Return the traffic of a participating user in one round, as the mean over users."""
        width = state.item_factors.shape[1]
        # A vector has n_factors numbers and a count of 8 bytes each, and an item number of 4 bytes.
        return RoundTraffic(
            download=8 * state.item_factors.size,
            upload=round(self._mean_sent * (8 * (width + 1) + 4)),
            n_clients=n_clients,
        )

    _mean_sent = 0.0  # mean number of vectors that a user sends in a round

    # ---- on the devices -----------------------------------------------------------------------------------------

    def _limit(self, n_users: int) -> int:
        """Return the largest integer for which no sum over users overflows: n_users * limit < 2^63."""
        max_users = max_summands(int(self._scale), INT64_LIMIT)
        name = "the number of users in interactions"
        check_summands(name, n_users, n_users, max_users, "fit a random part of the users")
        return min(_MAX_INTEGER, max_summands(n_users, INT64_LIMIT))

    def _redraws_in(self, round_number: int) -> bool:
        """Return whether virtual items are drawn in this round."""
        # Randomized responses are drawn once, since a second draw would cost their epsilon again.
        return round_number == 0 or (self._redraws and self.filling == "hybrid" and self.rho > 0)

    def _select_reported(
        self,
        state: FedRecState,
        shard: Interactions,
        key: Key,
        round_number: int,
        n_threads: int,
        last: ReportedItems | None,
    ) -> ReportedItems:
        """Draw the items that users report."""
        channel = self.channel
        if channel is not None:
            return fill_by_response(shard, channel, key, n_threads)
        return fill_hybrid(shard, self.rho, state.weights, key, round_number, n_threads, last)

    def _langevin(self, state: FedRecState, key: Key) -> tuple[np.ndarray, float]:
        """Return subkeys of virtual errors and of noise, and its standard deviation in steps: none for FedRec."""
        return np.zeros((0, 8), dtype=np.uint32), 0.0

    def _finish_step(
        self, devices: Devices, state: FedRecState, shard: Interactions, roles: np.ndarray, key: Key, round_number: int
    ) -> None:
        """Change users' factors after a gradient step; FedRec does not."""

    def _devices_in(self, sender: str, shard: Interactions, key: Key, round_number: int) -> Devices:
        """Return the shard's devices for this round, or raise if the round does not follow their last one."""
        if round_number == 0:
            users = shard.global_user_ids
            self._devices[sender] = Devices(users, first_factors(key, users, self.n_factors))
        devices = self._devices.get(sender)
        if devices is None or devices.next_round != round_number or len(devices.users) != shard.n_users:
            done = "none" if devices is None else f"{devices.next_round} of {len(devices.users)} users"
            raise ValueError(
                f"round must follow the last one that {sender!r} answered ({done}), got {round_number}; begin at 0"
            )
        return devices

    def device_factors(self, state: FedRecState) -> NDArray[np.float64]:
        """Return a copy of all users' factors on their devices, with zeros for users on nodes."""
        factors = np.zeros((len(state.global_user_ids), self.n_factors))
        for devices in self._devices.values():
            factors[state.rows(devices.users)] = devices.user_factors
        return factors
