"""Rounds of projections: sums of item shares, then of items times projected users.  DPSubspace and DPGram plan them.

All are sums of whole numbers to which one user adds an array of norm at most `UNIT`, and to which the server adds
Gaussian noise: see docs/explanation/systems/subspace/dp-subspace-privacy.md.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.subspace import model as _kernel
from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key
from fastfedrec.data.pairs import sort_pairs
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.systems._noisy_sum import ItemShares, NoisySum

__all__ = [
    "FEWER_COLUMNS",
    "FINEST",
    "MAX_USERS",
    "MOST_COLUMNS",
    "SCALE",
    "UNIT",
    "ProjectionSum",
    "ShareSum",
    "ShareSumAgain",
    "ShareSumInstead",
    "SubspaceState",
    "SubspaceSum",
    "public_signs",
]

UNIT = 2**40  # norm of one user's contribution, in every round
SCALE = 2**11  # of a user's row, and of the mean: only accuracy rests on it
FINEST = 2**13  # largest entry of an encoder
MAX_USERS = 2**22  # sums stay far from the ends of int64
MOST_COLUMNS = _kernel.MOST_COLUMNS
#: What to do where the sums do not fit into memory.
FEWER_COLUMNS = "lower n_columns, or fit a shorter public list of items, or a private choice (choose_items)"
_SIGNS = "dp_subspace.signs"
_BLOCK = 2**18  # interactions and users of a block: what is projected stays near a cache


@dataclass(frozen=True)
class SubspaceState:
    """What the server broadcasts, and what it has at the end of the round.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), int32
        Public mean of the users' rows, in units of 1 / `SCALE`, of norm at most `SCALE`; zeros before there is one.
    encoder : ndarray of shape (n_items, n_columns), int16
        What users project their rows on, from -`FINEST` to `FINEST`; without rows, `public_signs` are meant.
    noisy : ndarray of int64
        The noisy sums; empty until the round is over.
    """

    mean: NDArray[np.int32]
    encoder: NDArray[np.int16]
    noisy: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def public_signs(n_items: int, n_columns: int) -> NDArray[np.int16]:
    """The first encoder: random signs that everybody can make, the same ones each time.

    Parameters
    ----------
    n_items, n_columns : int
        Its shape.

    Returns
    -------
    ndarray of shape (n_items, n_columns), int16
        Of -1 and 1.
    """
    n_bytes = -(-n_columns // 8)
    words = Key.from_seed(0).words(_SIGNS, size=-(-n_items * n_bytes // 8))
    rows = words.astype("<u8").view(np.uint8)[: n_items * n_bytes].reshape(n_items, n_bytes)
    signs = np.unpackbits(rows, axis=1, count=n_columns).astype(np.int16)
    signs *= 2
    signs -= 1
    return signs


class SubspaceSum(NoisySum):
    """A round of DPSubspace."""

    _unit = UNIT

    def _objection(self, state: SubspaceState) -> str | None:
        """Say what lies outside of what the norm of a contribution is bounded for."""
        mean = state.mean.astype(np.int64)
        # Entries first: the squares of others might not fit.
        if len(mean) and (mean.min() < 0 or mean.max() > SCALE or int(mean @ mean) > SCALE**2):
            return f"mean must be from 0 to {SCALE} and of no larger norm, got {mean.min()} to {mean.max()}"
        encoder = state.encoder
        if encoder.size and (encoder.min() < -FINEST or encoder.max() > FINEST):
            return f"encoder must be from {-FINEST} to {FINEST}, got {encoder.min()} to {encoder.max()}"
        return None

    def traffic(self, state: SubspaceState, n_clients: int) -> RoundTraffic:
        """What the round moves: mean and encoder down, where there are any; up, an int64 a sum."""
        down = int(state.mean.any()) * state.mean.nbytes + state.encoder.nbytes
        return RoundTraffic(down, self._sent_bytes(state), n_clients)


class ShareSum(ItemShares, SubspaceSum):
    """The first round."""

    _purpose = "dp_subspace.item_shares"


class ShareSumAgain(ShareSum):
    """The second round, if the first mean has much noise."""

    _purpose = "dp_subspace.item_shares_again"


class ShareSumInstead(ShareSum):
    """The round instead of the last projections, if the decision is for popularity."""

    _purpose = "dp_subspace.item_shares_instead"


class ProjectionSum(SubspaceSum):
    """Users add up their centred rows, each item's times the projection of all others: one of the later rounds.

    Parameters
    ----------
    noise, key, distance : object
        As for `NoisySum`.
    number : int
        Which of them: each has noise of its own.
    """

    _field = "item_projections"
    _owner, _remedy = "DPSubspace", FEWER_COLUMNS

    def __init__(self, noise: LayeredGaussian, key: Key, distance: float, number: int):
        super().__init__(noise, key, distance)
        self.number = number

    @property
    def _purpose(self) -> str:  # type: ignore[override]
        return f"dp_subspace.item_projections.{self.number}"

    def _shape(self, state):
        return len(state.mean), state.encoder.shape[1]

    def _sums(self, state, shard, n_threads):
        n_items, n_columns = self._shape(state)
        # On a worker or node, of whose memory the fit knows nothing.
        n_needed = n_items * (n_columns * (8 + state.encoder.itemsize) + 16)
        check_memory(f"a shard of {self._owner}", n_items, n_needed, self._remedy, speaks=False, growth="number")
        mean = state.mean.astype(np.int64)
        encoder = state.encoder if len(state.encoder) else public_signs(n_items, n_columns)
        squares = np.empty(n_items, dtype=np.int64)
        nobody = _kernel.Nobody(mean, encoder, squares)
        sums, item_weights = (np.zeros((n_items, n), dtype=np.uint64) for n in (n_columns, 2))
        totals = np.zeros(n_columns + 1, dtype=np.uint64)
        for first, last in _blocks(shard.indptr):
            indptr = shard.indptr[first : last + 1]
            weights, rows = (np.empty((last - first, n), dtype=np.uint64) for n in (3, n_columns))
            _kernel.project_users(
                nobody, indptr, shard.indices, mean, encoder, squares, weights, rows, SCALE, UNIT, n_threads
            )
            totals[-1] += weights[:, 0].sum()  # modulo 2^64, as all of it
            items = shard.indices[indptr[0] : indptr[-1]]
            users = np.repeat(np.arange(last - first, dtype=np.int32), np.diff(indptr))
            starts, order = sort_pairs(items, users, n_items, last - first, n_threads=n_threads)
            users = users if order is None else users[order]
            _kernel.add_rows(starts, users, weights, rows, sums, item_weights, n_threads)
        _kernel.add_projections(mean, encoder, item_weights, totals, n_threads)
        _kernel.center_rows(mean, encoder, totals, item_weights, sums, n_threads)
        return sums.view(np.int64)


def _blocks(indptr: np.ndarray) -> list[tuple[int, int]]:
    """First user and the one after the last of each block, none of which is empty."""
    so_far = indptr + np.arange(len(indptr))
    ends = np.searchsorted(so_far, np.minimum(np.arange(_BLOCK, so_far[-1] + _BLOCK, _BLOCK), so_far[-1]))
    return list(itertools.pairwise(np.unique(np.concatenate([[0], ends])).tolist()))
