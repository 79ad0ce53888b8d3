"""The two rounds of DPGram: sums of item shares, then sums of centred pairs; `dp_gram.DPGram` is the model around them.

Both are sums of whole numbers to which one user adds a vector of norm at most `UNIT`, and to which the server adds
Gaussian noise: see docs/explanation/systems/gram/dp-gram-privacy.md.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.gram import dp_gram as _kernel
from fastfedrec.accounting import Gaussian, RoundTraffic
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.claims import FEWER_ITEMS

__all__ = ["MAX_USERS", "SCALE", "UNIT", "GramState", "NoisySum", "PairSum", "ShareSum"]

UNIT = 2**36  # norm of one user's contribution, in both rounds
SCALE = 2**13  # of shares and of the mean in the second round: only accuracy rests on it
MAX_USERS = 2**25  # sums stay far from the ends of int64
_BLOCK = 2**19  # interactions of a block of users: their lists stay in a cache, and memory does not grow with users


@dataclass(frozen=True)
class GramState:
    """What the server broadcasts, and what it has at the end of the round.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), int64
        Public mean of the users' rows, in units of 1 / `SCALE`; zeros before there is one.
    noisy : ndarray of int64
        The noisy sums; empty until the round is over.
    """

    mean: NDArray[np.int64]
    noisy: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class NoisySum(FederatedSystem):
    """One round in which users add whole numbers up and the server adds noise, once.

    Parameters
    ----------
    noise : LayeredGaussian
        What the server adds to each sum.
    key : Key
        The server's; whoever holds it can take the noise off again.
    distance : float
        Of all the draws together from rounded normal ones, in total variation.
    """

    _field: ClassVar[str]
    _purpose: ClassVar[str]

    def __init__(self, noise: LayeredGaussian, key: Key, distance: float):
        self.noise = noise
        self.key = key
        self.distance = distance

    @abstractmethod
    def _size(self, state: GramState) -> int:
        """How many sums there are."""

    @abstractmethod
    def _sums(self, state: GramState, shard: Interactions, n_threads: int) -> np.ndarray:
        """The exact sums over a shard's users, int64."""

    def _objection(self, state: GramState) -> str | None:
        """Say where the mean is outside of what the norm of a centred row is bounded for."""
        if len(state.mean) and (state.mean.min() < 0 or state.mean.max() > SCALE):
            return f"mean must be from 0 to {SCALE}, got {state.mean.min()} to {state.mean.max()}"
        return None

    def local_round(
        self,
        state: GramState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Add up one shard's contributions, exactly; nothing is drawn."""
        sums = self._sums(state, shard, resolve_n_threads(n_threads))
        return Update(round, sender, shard.n_users, {self._field: sums})

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so in any order."""
        if a.n_clients == 0:  # zeros, by the rules; and a copy of the others' sums may be gigabytes
            return Update(a.round, "merged", b.n_clients, b.arrays)
        return super().merge(a, b)

    def apply(self, state: GramState, update: Update) -> GramState:
        """Add the noise."""
        noisy = self.noise.add_noise(update.arrays[self._field], key=self.key, purpose=self._purpose)
        return GramState(state.mean, noisy)

    def zero_update(self, state: GramState, round: int) -> Update:
        """The identity of `merge`."""
        return Update(round, "nobody", 0, {self._field: np.zeros(self._size(state), dtype=np.int64)})

    def rules(self, state: GramState, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like: no entry beyond what so many users can add."""
        most = n_clients * UNIT
        return {self._field: ArrayRule(np.int64, (self._size(state),), -most, most)}

    def round_event(self, n_clients: int) -> Gaussian:
        """What the round costs: the noise is as wide whoever answers."""
        return Gaussian(
            self.noise.noise_multiplier(UNIT),
            f"Gaussian noise on {self._field.replace('_', ' ')}",
            neighboring="zero_out",
            sampling="none",
            distance=self.distance,
        )

    def traffic(self, state: GramState, n_clients: int) -> RoundTraffic:
        """What the round moves: the mean down as int32, where there is one; up, an int64 a sum."""
        return RoundTraffic(4 * int(state.mean.any()) * len(state.mean), 8 * self._size(state), n_clients)


class ShareSum(NoisySum):
    """Users add up their normalised rows: the first round."""

    _field = "item_shares"
    _purpose = "dp_gram.item_shares"

    def _size(self, state):
        return len(state.mean)

    def _sums(self, state, shard, n_threads):
        sums = np.zeros(shard.n_items, dtype=np.int64)
        _kernel.share_sums(shard.indptr, shard.indices, sums, UNIT)
        return sums


class PairSum(NoisySum):
    """Users add up the pairs i < j of their centred rows: the second round."""

    _field = "item_pairs"
    _purpose = "dp_gram.item_pairs"

    def _size(self, state):
        return len(state.mean) * (len(state.mean) - 1) // 2

    def _sums(self, state, shard, n_threads):
        indptr, indices = shard.indptr, shard.indices
        n_users, n_items = shard.shape
        # On a worker or node, of whose memory the fit knows nothing.
        check_memory("a shard of DPGram", n_items, 8 * self._size(state), FEWER_ITEMS, speaks=False)
        shares, weights = np.empty(n_users, dtype=np.int64), np.empty(n_users, dtype=np.uint64)
        _kernel.weigh_users(indptr, indices, state.mean, shares, weights, SCALE, UNIT, n_threads)
        item_sums, pair_sums = np.zeros(n_items, dtype=np.uint64), np.zeros(self._size(state), dtype=np.uint64)
        starts = np.empty(n_items + 1, dtype=np.int64)
        # A block ends with the user in whom its interactions run out.
        ends = np.searchsorted(indptr, np.minimum(np.arange(_BLOCK, indptr[-1] + _BLOCK, _BLOCK), indptr[-1]))
        edges = np.unique(np.concatenate([[0], ends]))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            part, n = slice(first, last), indptr[last] - indptr[first]
            places, owners = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int32)
            _kernel.add_pairs(
                indptr[first : last + 1], indices, shares[part], weights[part], starts, places, owners, item_sums,
                pair_sums, n_threads,
            )  # fmt: skip
        if len(pair_sums):
            total = int(weights.sum())  # modulo 2^64, as all of it
            _kernel.center_pairs(state.mean, item_sums, pair_sums, total, n_threads)
        return pair_sums.view(np.int64)
