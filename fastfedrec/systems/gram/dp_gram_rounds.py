"""The rounds of DPGram: sums of item shares, of pairs, and of cross products; `dp_gram.DPGram` runs them.

Each round sums whole numbers.  One user contributes a vector of norm at most `UNIT`, and the server adds Gaussian
noise: see docs/explanation/systems/gram/dp-gram-privacy.md.
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
    "RepeatedShareSum",
    "ShareSum",
    "SubstituteShareSum",
]

UNIT = 2**36  # L2 bound of one user's contribution, in the first two rounds
SCALE = 2**13  # units of shares and of the mean in the second round; it affects accuracy only
MAX_USERS = 2**25  # keeps sums far from the ends of int64
_N_KERNEL_COLUMNS = 8  # number of columns of an encoder that the kernel processes at the same time
_BLOCK = 2**19  # interactions of a block of users: their lists stay in a cache, and memory does not grow with users


@dataclass(frozen=True)
class GramState:
    """The state that the server broadcasts, and the round's result."""

    # Public mean of the users' rows, in units of 1 / `SCALE`, (n_items,); zeros before the first release.
    mean: NDArray[np.int64]
    # The noisy sums; empty until the end of the round.
    noisy: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class GramSum(NoisySum):
    """A round with a public mean in its state."""

    _unit = UNIT

    def _objection(self, state: GramState) -> str | None:
        """Return why a mean is outside the range for which the norm of a centred row is bounded, or None."""
        if len(state.mean) and (state.mean.min() < 0 or state.mean.max() > SCALE):
            return f"mean must be from 0 to {SCALE}, got {state.mean.min()} to {state.mean.max()}"
        return None

    def traffic(self, state: GramState, n_clients: int) -> RoundTraffic:
        """Return the traffic of the round: a non-zero mean down as int32, one int64 for each sum up."""
        down = 4 * int(state.mean.any()) * len(state.mean)
        return self.source.traffic(RoundTraffic(down, 8 * self.n_sums(state), n_clients))


class ShareSum(ItemShares, GramSum):
    """The first round, of item shares."""

    _purpose = "dp_gram.item_shares"


class RepeatedShareSum(ShareSum):
    """The second round, which repeats the item shares if the first mean is noisy."""

    _purpose = "dp_gram.item_shares_again"


class SubstituteShareSum(ShareSum):
    """The round of item shares that replaces the last columns if the decision is for popularity."""

    _purpose = "dp_gram.item_shares_instead"


class PairSum(GramSum):
    """A round that sums the pairs i < j of users' rows.

    With a mean in the state, users centre their rows and scale the whole matrix of a row, diagonal included, to sqrt(2)
    units.  Its pairs i < j then have a norm of at most one unit.  With a mean of zeros they scale the pairs i < j to
    one unit; then no pair is negative.  In both forms, two users are at most sqrt(2) units apart.
    """

    replace_sensitivity = SQRT_2
    _field = "item_pairs"
    _purpose = "dp_gram.item_pairs"

    def _shapes(self, state):
        return {self._field: (len(state.mean) * (len(state.mean) - 1) // 2,)}

    def _sums(self, state, shard, key, n_threads):
        indptr, indices = shard.indptr, shard.indices
        n_users, n_items = shard.shape
        # A shard may run on a worker or node that has less memory than the process of the fit.
        check_memory("a shard of DPGram", n_items, lambda n: 4 * n * (n - 1), FEWER_ITEMS, speaks=False)
        shares, weights = np.empty(n_users, dtype=np.int64), np.empty(n_users, dtype=np.uint64)
        is_full = bool(state.mean.any())
        _kernel.weigh_users(indptr, indices, state.mean, shares, weights, SCALE, UNIT, is_full, n_threads)
        # Unsigned sums wrap modulo 2^64, so a centred result that fits into int64 is exact.
        item_sums, pair_sums = np.zeros(n_items, dtype=np.uint64), np.zeros(self.n_sums(state), dtype=np.uint64)
        starts = np.empty(n_items + 2, dtype=np.int64)
        # A block ends with the user who has its last interaction.
        ends = np.searchsorted(indptr, np.minimum(np.arange(_BLOCK, indptr[-1] + _BLOCK, _BLOCK), indptr[-1]))
        edges = np.unique(np.concatenate([[0], ends]))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            part, n = slice(first, last), indptr[last] - indptr[first]
            positions, users = (np.empty(n, dtype=np.int32) for _ in range(2))
            _kernel.add_pairs(
                indptr[first : last + 1], indices, shares[part], weights[part], starts, positions, users, item_sums,
                pair_sums, n_threads,
            )  # fmt: skip
        if len(pair_sums):
            total = int(weights.sum())  # modulo 2^64, like all sums of the kernels
            _kernel.center_pairs(state.mean, item_sums, pair_sums, total, n_threads)
        return {self._field: pair_sums.view(np.int64)}


class CrossSum(ProjectionSum):
    """A later round, as in DPSubspace: sums of each item's entry times the projection of the user's other items."""

    shorter_axes = {}  # noqa: RUF012 -- never changed; columns that are not used are 0
    _owner, _remedy = "DPGram", FEWER_ITEMS

    @property
    # Each round draws its noise from a separate stream.
    def _purpose(self) -> str:  # type: ignore[override]
        return f"dp_gram.item_projections.{self.number}"

    def _sums(self, state, shard, key, n_threads):
        n_columns = state.encoder.shape[1]
        n_used = 1 + max(np.flatnonzero(state.encoder.any(axis=0)), default=-1)
        # The kernel needs a multiple of its number of columns.
        n_added = min(-(-n_used // _N_KERNEL_COLUMNS) * _N_KERNEL_COLUMNS, n_columns)
        sums = np.zeros((len(state.mean), n_columns), dtype=np.int64)
        if n_added:  # later columns of the encoder are 0, and so are their sums
            used = replace(state, encoder=np.ascontiguousarray(state.encoder[:, :n_added]))
            sums[:, :n_added] = super()._sums(used, shard, key, n_threads)[self._field]
        return {self._field: sums}
