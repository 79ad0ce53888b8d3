"""The rows that a split by time divides: a user-item pair that was merged from several has each of them."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import distinct, exceed
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.data.merging import merge_duplicates
from fastfedrec.data.pairs import compact_values


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Rows in the order of users and items, with their times.

    Parameters
    ----------
    data : Interactions
        The merged pairs.
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's rows begin.
    pairs : ndarray of shape (n_rows,), int64, or None
        The interaction of each row; None where each has one row.
    timestamps : ndarray of shape (n_rows,), int64
        `MISSING_TIMESTAMP` where one is not known.
    """

    data: Interactions
    indptr: NDArray[np.int64]
    pairs: NDArray[np.int64] | None
    timestamps: NDArray[np.int64]

    @classmethod
    def of(cls, data: Interactions) -> Self:
        """The rows of some data."""
        times, repeats = data.timestamps, data._repeats
        if times is None:
            times = np.full(data.n_interactions, MISSING_TIMESTAMP)
        if repeats is None:
            return cls(data, data.indptr, None, times)
        counts, times = repeats.expand(times)
        starts = np.concatenate([[0], np.cumsum(counts)])
        return cls(data, starts[data.indptr], np.repeat(np.arange(len(counts)), counts), times)

    @property
    def columns(self) -> NDArray[np.int32]:
        """The item of each row."""
        return self.data.indices if self.pairs is None else self.data.indices[self.pairs]

    def keep(self, mask: np.ndarray) -> Interactions:
        """The rows where `mask` is True, merged by the rule of the data."""
        data, repeats = self.data, self.data._repeats
        if self.pairs is None or repeats is None:
            return data.keep_interactions(mask)
        values = np.repeat(data.values_or_ones(), np.bincount(self.pairs))
        was_repeated = np.zeros(data.n_interactions, dtype=bool)
        was_repeated[repeats.positions] = True
        values[was_repeated[self.pairs]] = 1.0 if repeats.values is None else repeats.values
        ends = np.concatenate([[0], np.cumsum(mask)])
        pairs = self.pairs[mask]
        indptr, indices, merged, times, left = merge_duplicates(
            ends[self.indptr], data.indices[pairs], values[mask], self.timestamps[mask], repeats.rule,
            data.user_ids, data.item_ids,
        )  # fmt: skip
        kept = data._replace(
            indptr=indptr, indices=indices, values=compact_values(merged), timestamps=times, repeats=left
        )
        if repeats.above is None:
            return kept
        # The threshold was applied to the value of all rows; here it applies to the value of these rows alone.
        exceeds = ~was_repeated[distinct(pairs)] | exceed(kept.values_or_ones(), repeats.above)
        kept = kept._keep(exceeds)
        left = kept._exceeding(repeats.above, is_binary=repeats.is_binary)
        return kept._replace(values=None if repeats.is_binary else kept.values, repeats=left)
