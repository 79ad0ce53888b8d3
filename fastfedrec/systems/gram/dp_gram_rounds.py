"""The rounds of DPGram: sums of item shares, of pairs, and of cross products; around them, `dp_gram.DPGram`.

All are sums of whole numbers to which one user adds a vector of norm at most `UNIT`, and to which the server adds
Gaussian noise: see docs/explanation/systems/gram/dp-gram-privacy.md.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.gram import dp_gram as _kernel
from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.memory import check_memory
from fastfedrec.systems._noisy_sum import SQRT_2, ItemShares, NoisySum
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.projection_rounds import ProjectionSum

__all__ = [
    "MAX_USERS",
    "SCALE",
    "UNIT",
    "CrossSum",
    "GramState",
    "GramSum",
    "PairSum",
    "ShareSum",
    "ShareSumAgain",
    "ShareSumInstead",
]

UNIT = 2**36  # norm of one user's contribution, in the first two rounds
SCALE = 2**13  # of shares and of the mean in the second round: only accuracy rests on it
MAX_USERS = 2**25  # sums stay far from the ends of int64
_AT_ONCE = 8  # columns of an encoder that the kernel takes at a time
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


class GramSum(NoisySum):
    """A round about a mean."""

    _unit = UNIT

    def _objection(self, state: GramState) -> str | None:
        """Say where the mean is outside of what the norm of a centred row is bounded for."""
        if len(state.mean) and (state.mean.min() < 0 or state.mean.max() > SCALE):
            return f"mean must be from 0 to {SCALE}, got {state.mean.min()} to {state.mean.max()}"
        return None

    def traffic(self, state: GramState, n_clients: int) -> RoundTraffic:
        """What the round moves: the mean down as int32, where there is one; up, an int64 a sum."""
        return RoundTraffic(4 * int(state.mean.any()) * len(state.mean), self._sent_bytes(state), n_clients)


class ShareSum(ItemShares, GramSum):
    """The first round."""

    _purpose = "dp_gram.item_shares"


class ShareSumAgain(ShareSum):
    """The second round, if the first mean has much noise."""

    _purpose = "dp_gram.item_shares_again"


class ShareSumInstead(ShareSum):
    """The round instead of the last columns, if the decision is for popularity."""

    _purpose = "dp_gram.item_shares_instead"


class PairSum(GramSum):
    """Users add up the pairs i < j of their rows: the second round.

    With a mean in the state, users centre their rows and scale the whole matrix of a row, diagonal included, to sqrt(2)
    units; its pairs i < j then have a norm of at most one unit.  With a mean of zeros they scale the pairs i < j to one
    unit; then no pair is negative.  In both forms, two users are at most sqrt(2) units apart.
    """

    replace_sensitivity = SQRT_2
    _field = "item_pairs"
    _purpose = "dp_gram.item_pairs"

    def _shape(self, state):
        return (len(state.mean) * (len(state.mean) - 1) // 2,)

    def _sums(self, state, shard, n_threads):
        indptr, indices = shard.indptr, shard.indices
        n_users, n_items = shard.shape
        # On a worker or node, of whose memory the fit knows nothing.
        check_memory("a shard of DPGram", n_items, 8 * self._shape(state)[0], FEWER_ITEMS, speaks=False)
        shares, weights = np.empty(n_users, dtype=np.int64), np.empty(n_users, dtype=np.uint64)
        is_full = bool(state.mean.any())
        _kernel.weigh_users(indptr, indices, state.mean, shares, weights, SCALE, UNIT, is_full, n_threads)
        item_sums, pair_sums = np.zeros(n_items, dtype=np.uint64), np.zeros(self._shape(state), dtype=np.uint64)
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


class CrossSum(ProjectionSum):
    """Users add up each item's entry times the projection of the others: a later round, as one of DPSubspace's.

    Parameters
    ----------
    noise, key, distance : object
        As for `NoisySum`.
    number : int
        Position among these rounds: each has noise of its own.
    """

    _owner, _remedy = "DPGram", FEWER_ITEMS

    @property
    def _purpose(self) -> str:  # type: ignore[override]
        return f"dp_gram.item_projections.{self.number}"

    def _sums(self, state, shard, n_threads):
        n_columns = state.encoder.shape[1]
        n_used = 1 + max(np.flatnonzero(state.encoder.any(axis=0)), default=-1)
        n_added = min(-(-n_used // _AT_ONCE) * _AT_ONCE, n_columns)
        sums = np.zeros(self._shape(state), dtype=np.int64)
        if n_added:  # the sums of columns of zeros are 0
            used = replace(state, encoder=np.ascontiguousarray(state.encoder[:, :n_added]))
            sums[:, :n_added] = super()._sums(used, shard, n_threads)
        return sums
