"""Rounds in which users' whole numbers of bounded norm are summed exactly, with Gaussian noise on each sum."""

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fastfedrec._kernels.systems.gram import dp_gram as _kernel
from fastfedrec.accounting.events import Event
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.fit import Phase
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems._noise_source import NoiseSource, ServerNoise

SQRT_2 = math.sqrt(2)  # its square is above 2, so it bounds distances from above
# Smallest standard deviation of layers, and largest one in steps: larger noise could overflow sums of int64.
_MIN_STDDEV, _MAX_STDDEV = 2**15, 2**56
BELOW_ONE = 1 - 2.0**-40  # lowers a noise multiplier by more than the rounding errors of its computation


def layered_noise(stddev: Fraction | float, remedy: str, width: float = 1.0) -> LayeredGaussian:
    """Return the noise of one draw for the sums of one round; the noise of all draws is `width` times as large.

    If it does not fit, raise with `remedy`, an alternative that begins with "or".
    """
    if stddev * width > _MAX_STDDEV:
        raise ValueError(
            f"epsilon or delta must be larger{remedy}: a round's noise would have the standard deviation "
            f"{float(stddev * width):.3g}, and sums of 64 bits hold at most {_MAX_STDDEV:.3g}"
        )
    if stddev < _MIN_STDDEV:
        raise ValueError(
            f"epsilon must be smaller: a round's noise of one party would have the standard deviation "
            f"{float(stddev):.3g} in steps, and it must be at least {_MIN_STDDEV:,}"
        )
    return LayeredGaussian(stddev)


class StatedCost(NamedTuple):
    """Parameters of a round's event: a draw over the L2 bound of one contribution, and the replace sensitivity."""

    noise_multiplier: float
    replace_sensitivity: float


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on the sums of one kind; `sensitivity` bounds the norm of a user's contribution from above."""

    gaussian: LayeredGaussian
    sensitivity: Fraction | int

    @classmethod
    def of(cls, unit: int, n_rows: int, mu: float, count: str) -> Self:
        """Return noise of cost at most `mu` if a user adds a vector of norm `unit` to each of `n_rows` rows.

        `count` names the parameter that divides the budget, for the message.
        """
        sensitivity = unit * Fraction(math.isqrt(n_rows * 2**80) + 1, 2**40)  # rounded up
        return cls(layered_noise(sensitivity / Fraction(mu), f", or {count} smaller"), sensitivity)


def squared_costs(noises: Mapping[str, Noise]) -> dict[str, float]:
    """Return mu^2 of the sums of each kind, with mu their cost in Gaussian differential privacy."""
    return {name: noise.gaussian.noise_multiplier(noise.sensitivity) ** -2 for name, noise in noises.items()}


def total_multiplier(squares: Mapping[str, float]) -> float:
    """Return the noise multiplier of all kinds of sums as one release, from `squared_costs`."""
    # With each kind of sums divided by its standard deviation, all kinds are one Gaussian release.
    return sum(squares.values()) ** -0.5 * BELOW_ONE


class NoisySum(FederatedSystem):
    """A round in which users' whole numbers are summed, with noise on each sum.

    The sums may be of several kinds, each with a name.  The state gets them as `noisy`, unless a subclass learns from
    them (`_learn`).

    Parameters
    ----------
    noise : LayeredGaussian or mapping of str to Noise
        Noise of one draw on each sum, or on the sums of each kind.
    key : Key
        Key of the noise; a party that holds it can remove the noise.
    distance : float
        Total-variation distance of the noise of the round from rounded normal noise.
    """

    #: Largest distance between the contributions of two users, in L2 bounds; 2 by the triangle inequality.
    replace_sensitivity: float = 2.0
    #: Whether a release chooses this round instead of planned ones; set by `substitute`.
    is_chosen: bool = False
    #: Set by `state_largest_replacement` for a round of alternative plans; None states the cost of the round itself.
    stated_cost: StatedCost | None = None
    #: The party or parties that add draws.
    source: NoiseSource = ServerNoise()

    _unit: ClassVar[int]  # L2 bound of one user's contribution to one row of any sums
    _field: ClassVar[str]  # name of the sums, if they are of one kind
    _purpose: ClassVar[str]

    def __init__(self, noise: LayeredGaussian | Mapping[str, Noise], key: Key, distance: float):
        self.noises = noise if isinstance(noise, Mapping) else {self._field: Noise(noise, self._unit)}
        self.key = key
        self.distance = distance

    @property
    def noise(self) -> LayeredGaussian:
        """Noise of a round with one kind of sums."""
        (noise,) = self.noises.values()
        return noise.gaussian

    @property
    def _what(self) -> str:
        """Return the names of the sums, for the ledger."""
        return " and ".join(name.replace("_", " ") for name in self.noises)

    @property
    def draw_width(self) -> float:
        """Standard deviation of one draw, in L2 bounds of one user's contribution."""
        return float(self.noise.stddev) / self._unit

    @property
    def width(self) -> float:
        """Standard deviation of a sum's noise by the planned number of answers, in the same unit."""
        return self.draw_width * self.source.width

    def with_noise(self, noise: LayeredGaussian) -> Self:
        """Return the same round with other noise, for an alternative plan."""
        other = copy.copy(self)
        other.noises = {self._field: Noise(noise, self._unit)}
        other.is_chosen, other.stated_cost = True, None
        return other

    @abstractmethod
    def _shapes(self, state: Any) -> dict[str, tuple[int, ...]]:
        """Return the shape of the sums of each kind."""

    @abstractmethod
    def _sums(self, state: Any, shard: Interactions, key: Key, n_threads: int) -> dict[str, np.ndarray]:
        """Return the exact sums over a shard's users, int64."""

    def _learn(self, state: Any, sums: dict[str, np.ndarray], round_number: int) -> Any:
        """Return the next state from the noisy sums."""
        return replace(state, noisy=sums[self._field])

    def _purpose_of(self, name: str) -> str:
        """Return the purpose of the draws for the sums of one kind."""
        return self._purpose

    def local_round(
        self, state: Any, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Sum one shard's contributions exactly."""
        return Update(round, sender, shard.n_users, self._sums(state, shard, key, resolve_n_threads(n_threads)))

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so their order is arbitrary."""
        if a.n_clients == 0:  # its arrays are zeros by the rules, and a copy of the other sums may be gigabytes
            return Update(a.round, "merged", b.n_clients, b.arrays)
        return super().merge(a, b)

    def apply(self, state: Any, update: Update) -> Any:
        """Add the noise, and compute the next state."""
        noisy = dict(update.arrays)
        for name, noise in self.noises.items():
            drawn = self.source.noise_of(noise.gaussian, update.n_clients, self._what)
            if drawn is not None:
                noisy[name] = drawn.add_noise(
                    noisy[name], key=self.key, purpose=self._purpose_of(name), round=update.round
                )
            noisy[name] = self.source.scale(noisy[name], update.n_clients)
        return self._learn(state, noisy, update.round)

    def flatten(self, planned: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the sums of all kinds as one vector; zeros replace sums that only the planned state has."""
        vector = np.zeros(self.n_sums(planned), dtype=np.int64)
        for name, part in self._parts(planned, vector).items():
            part[: arrays[name].size] = arrays[name].ravel()
        return vector

    def unflatten(self, planned: Any, state: Any, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the sums that a state has from the vector of `flatten`."""
        parts, shapes = self._parts(planned, vector), self._shapes(state)
        return {name: parts[name][: math.prod(shape)].reshape(shape) for name, shape in shapes.items()}

    def with_share(self, planned: Any, vector: np.ndarray, *, key: Key, sender: str, round: int) -> np.ndarray:
        """Return a node's vector of `flatten` with its share of the noise on each number."""
        noisy = {
            name: self.noises[name].gaussian.add_noise(
                sums, key=key, purpose=f"{self._purpose_of(name)}.{sender}", round=round
            )
            for name, sums in self._parts(planned, vector).items()
        }
        return self.flatten(planned, noisy)

    def _parts(self, planned: Any, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the part of a vector with the sums of each kind."""
        shapes = self._shapes(planned)
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
        return dict(zip(shapes, np.split(vector, ends[:-1]), strict=True))

    def zero_update(self, state: Any, round: int) -> Update:
        """Return the identity of `merge`."""
        zeros = {name: np.zeros(shape, dtype=np.int64) for name, shape in self._shapes(state).items()}
        return Update(round, "nobody", 0, zeros)

    def rules(self, state: Any, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return the rules of an update: entries are at most the number of clients times the L2 bound."""
        max_sum = n_clients * self._unit
        return {name: ArrayRule(np.int64, shape, -max_sum, max_sum) for name, shape in self._shapes(state).items()}

    @property
    def round_cost(self) -> StatedCost:
        """Cost of this round by itself, in any plan."""
        return StatedCost(self.noise.noise_multiplier(self._unit), self.replace_sensitivity)

    def round_event(self, n_clients: int) -> Event:
        """Return the event of the round; its noise is planned, and does not depend on the number of clients."""
        noise_multiplier, replacement = self.stated_cost or self.round_cost
        if self.is_chosen and self.stated_cost is None:
            # A release chose this round, and the plan that it replaces may cost up to 2 for a replaced user.
            replacement = 2.0
        fields = {
            "neighboring": "zero_out", "sampling": "none", "distance": self.distance,
            "replace_sensitivity": replacement if replacement < 2 else None,
        }  # fmt: skip
        return self.source.event(noise_multiplier, self._what, fields)

    def n_sums(self, state: Any) -> int:
        """Return the number of all sums of a round, each of which gets one draw of noise."""
        return sum(map(math.prod, self._shapes(state).values()))

    def distance_of(self, state: Any) -> float:
        """Return the total-variation distance of the noise on all sums of a round from rounded normal noise."""
        return self.source.total_variation(self.noise, self.n_sums(state))


class ItemShares(NoisySum):
    """A round that sums normalised rows that are not centred; the state has an array `mean` with an entry per item."""

    replace_sensitivity = SQRT_2  # entries are not negative, so neither is the inner product of two users
    _field = "item_shares"

    def _shapes(self, state):
        return {self._field: (len(state.mean),)}

    def _sums(self, state, shard, key, n_threads):
        sums = np.zeros(shard.n_items, dtype=np.int64)
        _kernel.share_sums(shard.indptr, shard.indices, sums, self._unit)
        return {self._field: sums}


def planned_phase(kind: Any, state: Any, mu: float, key: Key, source: NoiseSource, **options: Any) -> Phase:
    """Return a phase of one round of a `NoisySum` class, with noise that costs mu-Gaussian privacy."""
    system = kind(layered_noise(kind._unit / source.mu_of_draw(mu), "", source.width), key, 0.0, **options)
    # The event charges to delta the total-variation distance of all noise from rounded normal noise.
    system.source = source
    system.distance = system.distance_of(state)
    return Phase(system, state)
