"""Rounds of DPSubspace and DPGram: sums of item shares, then sums of items times projected user rows.

Each round adds up whole numbers; one user's array has norm at most `UNIT`, and the server adds Gaussian noise to the
sums.  See docs/explanation/systems/subspace/dp-subspace-privacy.md.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.subspace import model as _kernel
from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.systems._noisy_sum import ItemShares, NoisySum

__all__ = [
    "FEWER_COLUMNS",
    "FINEST",
    "MAX_COLUMNS",
    "MAX_USERS",
    "SCALE",
    "UNIT",
    "ProjectionSum",
    "RepeatedShareSum",
    "ShareSum",
    "SubspaceState",
    "SubspaceSum",
    "SubstituteShareSum",
    "public_signs",
]

UNIT = 2**40  # L2 bound of one user's contribution, in every round
SCALE = 2**11  # units of a user's row and of the mean; it affects accuracy only
FINEST = 2**13  # largest absolute entry of an encoder
MAX_USERS = 2**22  # keeps sums far from the ends of int64
MAX_COLUMNS = _kernel.MAX_COLUMNS
#: Remedies if the sums do not fit into memory.
FEWER_COLUMNS = "lower n_columns, or fit a shorter public list of items, or a private choice (choose_items)"
_SIGNS = "dp_subspace.signs"
_BLOCK = 2**18  # interactions plus users of a block, so that its projections stay in a cache


@dataclass(frozen=True)
class SubspaceState:
    """The state that the server broadcasts, and the round's result.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), int32
        Public mean of the users' rows, in units of 1 / `SCALE`, of norm at most `SCALE`; zeros in the first round.
    encoder : ndarray of shape (n_items, n_columns), int16
        Columns that users project their rows on, from -`FINEST` to `FINEST`; without rows, `public_signs` is used.
    noisy : ndarray of int64
        Noisy sums; empty before the end of the round.
    """

    mean: NDArray[np.int32]
    encoder: NDArray[np.int16]
    noisy: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def public_signs(n_items: int, n_columns: int) -> NDArray[np.int16]:
    """Return the first encoder, -1 and 1 of this shape: random but public, so the same signs every time."""
    n_bytes = -(-n_columns // 8)
    words = Key.from_seed(0).words(_SIGNS, size=-(-n_items * n_bytes // 8))
    rows = words.astype("<u8").view(np.uint8)[: n_items * n_bytes].reshape(n_items, n_bytes)
    signs = np.unpackbits(rows, axis=1, count=n_columns).astype(np.int16)
    signs *= 2
    signs -= 1
    return signs


class SubspaceSum(NoisySum):
    """A round of sums with L2 bound `UNIT`."""

    _unit = UNIT

    def _objection(self, state: SubspaceState) -> str | None:
        """Return why a state is outside the ranges that the L2 bound is proved for, or None."""
        mean = state.mean.astype(np.int64)
        # Check the entries first: the squares of larger ones could overflow.
        if len(mean) and (mean.min() < 0 or mean.max() > SCALE or int(mean @ mean) > SCALE**2):
            return f"mean must be from 0 to {SCALE} and of no larger norm, got {mean.min()} to {mean.max()}"
        encoder = state.encoder
        if encoder.size and (encoder.min() < -FINEST or encoder.max() > FINEST):
            return f"encoder must be from {-FINEST} to {FINEST}, got {encoder.min()} to {encoder.max()}"
        return None

    def traffic(self, state: SubspaceState, n_clients: int) -> RoundTraffic:
        """Traffic of the round: non-zero mean and encoder down, one int64 for each sum up."""
        down = int(state.mean.any()) * state.mean.nbytes + state.encoder.nbytes
        return self.source.traffic(RoundTraffic(down, 8 * self.n_sums(state), n_clients))


class ShareSum(ItemShares, SubspaceSum):
    """The first round, of item shares."""

    _purpose = "dp_subspace.item_shares"


class RepeatedShareSum(ShareSum):
    """The second round, which repeats the item shares if the first mean is noisy."""

    _purpose = "dp_subspace.item_shares_again"


class SubstituteShareSum(ShareSum):
    """The round of item shares that replaces the last projections if the gate selects popularity."""

    _purpose = "dp_subspace.item_shares_instead"


class ProjectionSum(SubspaceSum):
    """A later round, number `number` of its plan: sums of each centred entry times the projection of the user's row."""

    # The L2 bound holds for any encoder, so a release may choose fewer columns than planned.
    shorter_axes = {"encoder": 1}  # noqa: RUF012 -- never changed
    _field = "item_projections"
    _owner, _remedy = "DPSubspace", FEWER_COLUMNS

    def __init__(self, noise: LayeredGaussian, key: Key, distance: float, number: int):
        super().__init__(noise, key, distance)
        self.number = number

    @property
    # Each round draws its noise from a stream of its own.
    def _purpose(self) -> str:  # type: ignore[override]
        return f"dp_subspace.item_projections.{self.number}"

    def _shapes(self, state):
        return {self._field: (len(state.mean), state.encoder.shape[1])}

    def _sums(self, state, shard, key, n_threads):
        n_items, n_columns = len(state.mean), state.encoder.shape[1]
        # A shard may run on a worker or node that has less memory than the process of the fit.
        bytes_of_row = n_columns * (8 + state.encoder.itemsize) + 16
        check_memory(f"a shard of {self._owner}", n_items, lambda n: n * bytes_of_row, self._remedy, speaks=False)
        mean = state.mean.astype(np.int64)
        encoder = state.encoder if len(state.encoder) else public_signs(n_items, n_columns)
        squares = np.empty(n_items, dtype=np.int64)
        no_user = _kernel.EmptyRow(mean, encoder, squares)
        sums, item_weights = (np.zeros((n_items, n), dtype=np.uint64) for n in (n_columns, 2))
        totals, starts = np.zeros(n_columns + 1, dtype=np.uint64), np.empty(n_items + 2, dtype=np.int64)
        # A block's pairs are sorted by item, so that each thread adds to rows of its own.
        for first, last in _blocks(shard.indptr):
            indptr = shard.indptr[first : last + 1]
            weights, rows = (np.empty((last - first, n), dtype=np.uint64) for n in (3, n_columns))
            _kernel.project_users(
                no_user, indptr, shard.indices, mean, encoder, squares, weights, rows, SCALE, UNIT, n_threads
            )
            totals[-1] += weights[:, 0].sum()  # modulo 2^64, like all sums of the kernels
            users = np.empty(indptr[-1] - indptr[0], dtype=np.int32)
            _kernel.add_rows(indptr, shard.indices, starts, users, weights, rows, sums, item_weights, n_threads)
        _kernel.add_projections(mean, encoder, item_weights, totals, n_threads)
        _kernel.center_rows(mean, encoder, totals, item_weights, sums, n_threads)
        return {self._field: sums.view(np.int64)}


def _blocks(indptr: np.ndarray) -> list[tuple[int, int]]:
    """Return the first user and the end of each block; no block is empty."""
    # A user counts as one unit of work more than the user's interactions, so that empty rows have a size.
    so_far = indptr + np.arange(len(indptr))
    ends = np.searchsorted(so_far, np.minimum(np.arange(_BLOCK, so_far[-1] + _BLOCK, _BLOCK), so_far[-1]))
    return list(itertools.pairwise(np.unique(np.concatenate([[0], ends])).tolist()))
