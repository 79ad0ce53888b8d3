"""Rounds in which users' whole numbers of bounded norm are summed exactly, and the server adds Gaussian noise."""

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fastfedrec._kernels.systems.gram import dp_gram as _kernel
from fastfedrec.accounting import Gaussian
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update

SQRT_2 = math.sqrt(2)  # its square is above 2, so it bounds distances from above


class StatedCost(NamedTuple):
    """Parameters of a round's event: noise over the L2 bound of one contribution, and the replace sensitivity."""

    noise_multiplier: float
    replace_sensitivity: float


class NoisySum(FederatedSystem):
    """One round in which users' whole numbers are summed and the server adds noise once.

    The state has an array `noisy`, which holds the sums after the round.

    Parameters
    ----------
    noise : LayeredGaussian
        Noise that the server adds to each sum.
    key : Key
        Key of the server; a party that holds it can remove the noise.
    distance : float
        Total-variation distance of all draws of the round from rounded normal ones.
    """

    #: Largest distance between the contributions of two users, in L2 bounds; 2 by the triangle inequality.
    replace_sensitivity: float = 2.0
    #: Whether a release chooses this round instead of planned ones; set by `substitute`.
    is_chosen: bool = False
    #: Set by `state_largest_replacement` for a round of alternative plans; None states the cost of the round itself.
    stated_cost: StatedCost | None = None

    _unit: ClassVar[int]  # L2 bound of one user's contribution
    _field: ClassVar[str]
    _purpose: ClassVar[str]

    def __init__(self, noise: LayeredGaussian, key: Key, distance: float):
        self.noise = noise
        self.key = key
        self.distance = distance

    @property
    def _what(self) -> str:
        """Return the content of the sums, for the ledger."""
        return self._field.replace("_", " ")

    @property
    def width(self) -> float:
        """Standard deviation of a sum's noise, in L2 bounds of one user's contribution."""
        return float(self.noise.stddev) / self._unit

    def with_noise(self, noise: LayeredGaussian) -> Self:
        """Return the same round with other noise, for an alternative plan."""
        other = copy.copy(self)
        other.noise, other.is_chosen, other.stated_cost = noise, True, None
        return other

    @abstractmethod
    def _shape(self, state: Any) -> tuple[int, ...]:
        """Return the shape of the sums."""

    @abstractmethod
    def _sums(self, state: Any, shard: Interactions, n_threads: int) -> np.ndarray:
        """Return the exact sums over a shard's users, int64."""

    def local_round(
        self, state: Any, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Sum one shard's contributions exactly; this makes no random draws."""
        sums = self._sums(state, shard, resolve_n_threads(n_threads))
        return Update(round, sender, shard.n_users, {self._field: sums})

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so their order is arbitrary."""
        if a.n_clients == 0:  # its arrays are zeros by the rules, and a copy of the other sums may be gigabytes
            return Update(a.round, "merged", b.n_clients, b.arrays)
        return super().merge(a, b)

    def apply(self, state: Any, update: Update) -> Any:
        """Add the noise to the sums."""
        noisy = self.noise.add_noise(update.arrays[self._field], key=self.key, purpose=self._purpose)
        return replace(state, noisy=noisy)

    def zero_update(self, state: Any, round: int) -> Update:
        """Return the identity of `merge`."""
        return Update(round, "nobody", 0, {self._field: np.zeros(self._shape(state), dtype=np.int64)})

    def rules(self, state: Any, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return the rules of an update: entries are at most the number of clients times the L2 bound."""
        max_sum = n_clients * self._unit
        return {self._field: ArrayRule(np.int64, self._shape(state), -max_sum, max_sum)}

    @property
    def round_cost(self) -> StatedCost:
        """Cost of this round by itself, in any plan."""
        return StatedCost(self.noise.noise_multiplier(self._unit), self.replace_sensitivity)

    def round_event(self, n_clients: int) -> Gaussian:
        """Return the event of the round; its noise does not depend on the number of clients."""
        noise_multiplier, replacement = self.stated_cost or self.round_cost
        if self.is_chosen and self.stated_cost is None:
            # A release chose this round, and the plan that it replaces may cost up to 2 for a replaced user.
            replacement = 2.0
        return Gaussian(
            noise_multiplier,
            f"Gaussian noise on {self._what}",
            neighboring="zero_out",
            sampling="none",
            distance=self.distance,
            replace_sensitivity=replacement if replacement < 2 else None,
        )

    def _sent_bytes(self, state: Any) -> int:
        """Return the size of a shard's message: one int64 for each sum."""
        return 8 * math.prod(self._shape(state))


class ItemShares(NoisySum):
    """A round that sums normalised rows that are not centred; the state has an array `mean` with an entry per item."""

    replace_sensitivity = SQRT_2  # entries are not negative, so neither is the inner product of two users
    _field = "item_shares"

    def _shape(self, state):
        return (len(state.mean),)

    def _sums(self, state, shard, n_threads):
        sums = np.zeros(shard.n_items, dtype=np.int64)
        _kernel.share_sums(shard.indptr, shard.indices, sums, self._unit)
        return sums
