"""Rows that a split by time divides; a merged user-item pair has one row for each of its original rows."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import distinct, exceed
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.data.merging import merge_duplicates
from fastfedrec.data.pairs import compact_values


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Rows sorted by user and item, with their timestamps."""

    # The merged pairs.
    data: Interactions
    # Shape (n_users + 1,): the start of each user's rows.
    indptr: NDArray[np.int64]
    # Shape (n_rows,): the interaction of each row; None if no pair was merged.
    pairs: NDArray[np.int64] | None
    # Shape (n_rows,): `MISSING_TIMESTAMP` for an unknown time.
    timestamps: NDArray[np.int64]

    @classmethod
    def of(cls, data: Interactions) -> Self:
        """Return the original rows of merged interactions."""
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
        """Item index of each row."""
        return self.data.indices if self.pairs is None else self.data.indices[self.pairs]

    def latest(self, users: np.ndarray, counts: np.ndarray, purpose: str, key: Key) -> NDArray[np.bool_]:
        """Return a mask of each user's latest rows, `counts` of each; users are global ids."""
        lengths = np.diff(self.indptr)
        # `lexsort` orders by its last key first: by user, then time, then the random word that breaks ties.
        words, _ = key.ragged_words(f"{purpose}.ties", users, lengths)
        order = np.lexsort((words, self.timestamps, np.repeat(np.arange(len(users)), lengths)))
        chosen = np.empty(len(order), dtype=bool)
        chosen[order] = np.arange(len(order)) >= np.repeat(self.indptr[1:] - counts, lengths)
        return chosen

    def keep(self, mask: np.ndarray) -> Interactions:
        """Return the rows where `mask` is True, merged by the rule of the data."""
        data, repeats = self.data, self.data._repeats
        if self.pairs is None or repeats is None:
            return data.keep_interactions(mask)
        values = np.repeat(data.values_or_ones(), np.bincount(self.pairs))
        was_repeated = np.zeros(data.n_interactions, dtype=bool)
        was_repeated[repeats.positions] = True
        # Merged pairs get the values of their original rows back; every other pair is its single row.
        values[was_repeated[self.pairs]] = 1.0 if repeats.values is None else repeats.values
        ends = np.concatenate([[0], np.cumsum(mask)])
        pairs = self.pairs[mask]
        indptr, indices, merged, times, new_repeats = merge_duplicates(
            ends[self.indptr], data.indices[pairs], values[mask], self.timestamps[mask], repeats.rule,
            data.user_ids, data.item_ids,
        )  # fmt: skip
        merged_rows = data._replace(
            indptr=indptr, indices=indices, values=compact_values(merged), timestamps=times, repeats=new_repeats
        )
        if repeats.above is None:
            return merged_rows
        # The threshold was applied to the merged value of all rows; here it applies to the value of these rows alone.
        exceeds = ~was_repeated[distinct(pairs)] | exceed(merged_rows.values_or_ones(), repeats.above)
        merged_rows = merged_rows._keep(exceeds)
        new_repeats = merged_rows._exceeding(repeats.above, is_binary=repeats.is_binary)
        return merged_rows._replace(values=None if repeats.is_binary else merged_rows.values, repeats=new_repeats)
