"""One round in which users add whole numbers of a bounded norm up, exactly, and the server adds Gaussian noise."""

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
    """The parameters of a round's event: noise over the norm of one contribution, and the replace sensitivity."""

    noise_multiplier: float
    replace_sensitivity: float


class NoisySum(FederatedSystem):
    """One round in which users add whole numbers up and the server adds noise, once.

    A state has an array `noisy`, of the sums after the round.

    Parameters
    ----------
    noise : LayeredGaussian
        What the server adds to each sum.
    key : Key
        The server's; whoever holds it can take the noise off again.
    distance : float
        Of all the draws together from rounded normal ones, in total variation.
    """

    #: Largest distance between the contributions of two users, in norms of one; 2 by the triangle inequality.
    replace_sensitivity: float = 2.0
    #: Whether a release chooses this round in place of planned ones; set by `substitute`.
    is_chosen: bool = False
    #: Set by `state_largest_replacement` for a round of one of several plans; None states the cost of the round itself.
    stated_cost: StatedCost | None = None

    _unit: ClassVar[int]  # norm of what one user adds
    _field: ClassVar[str]
    _purpose: ClassVar[str]

    def __init__(self, noise: LayeredGaussian, key: Key, distance: float):
        self.noise = noise
        self.key = key
        self.distance = distance

    @property
    def _what(self) -> str:
        """Sums of what."""
        return self._field.replace("_", " ")

    @property
    def width(self) -> float:
        """Standard deviation of a sum's noise, in norms of what one user adds."""
        return float(self.noise.stddev) / self._unit

    def with_noise(self, noise: LayeredGaussian) -> Self:
        """Return the same round with other noise, for a plan that a release may choose."""
        other = copy.copy(self)
        other.noise, other.is_chosen, other.stated_cost = noise, True, None
        return other

    @abstractmethod
    def _shape(self, state: Any) -> tuple[int, ...]:
        """Of the sums."""

    @abstractmethod
    def _sums(self, state: Any, shard: Interactions, n_threads: int) -> np.ndarray:
        """The exact sums over a shard's users, int64."""

    def local_round(
        self, state: Any, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Add up one shard's contributions, exactly; nothing is drawn."""
        sums = self._sums(state, shard, resolve_n_threads(n_threads))
        return Update(round, sender, shard.n_users, {self._field: sums})

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so in any order."""
        if a.n_clients == 0:  # zeros, by the rules; and a copy of the others' sums may be gigabytes
            return Update(a.round, "merged", b.n_clients, b.arrays)
        return super().merge(a, b)

    def apply(self, state: Any, update: Update) -> Any:
        """Add the noise."""
        noisy = self.noise.add_noise(update.arrays[self._field], key=self.key, purpose=self._purpose)
        return replace(state, noisy=noisy)

    def zero_update(self, state: Any, round: int) -> Update:
        """The identity of `merge`."""
        return Update(round, "nobody", 0, {self._field: np.zeros(self._shape(state), dtype=np.int64)})

    def rules(self, state: Any, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like: no entry beyond what so many users can add."""
        most = n_clients * self._unit
        return {self._field: ArrayRule(np.int64, self._shape(state), -most, most)}

    @property
    def own_cost(self) -> StatedCost:
        """The cost of this round alone, whichever plan it is part of."""
        return StatedCost(self.noise.noise_multiplier(self._unit), self.replace_sensitivity)

    def round_event(self, n_clients: int) -> Gaussian:
        """Return the event of the round; its noise does not depend on the number of clients."""
        noise_multiplier, replacement = self.stated_cost or self.own_cost
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
        """What a shard sends up: an int64 a sum."""
        return 8 * math.prod(self._shape(state))


class ItemShares(NoisySum):
    """Users add up their normalised rows, which no mean is taken off; a state has an array `mean`, an entry an item."""

    replace_sensitivity = SQRT_2  # entries are not negative, and so are no inner products of two users
    _field = "item_shares"

    def _shape(self, state):
        return (len(state.mean),)

    def _sums(self, state, shard, n_threads):
        sums = np.zeros(shard.n_items, dtype=np.int64)
        _kernel.share_sums(shard.indptr, shard.indices, sums, self._unit)
        return sums
