"""Original rows of repeated user-item pairs, which a split by time divides instead of the merged pairs."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_array, check_choice, check_real
from fastfedrec.data.csr import Remade, check_integers, own_array

__all__ = ["ARRAYS", "RULES", "Repeats", "file_of"]

#: Rules that merge several rows of a pair.
RULES = ("sum", "mean", "first", "last", "earliest", "latest", "max")
#: Arrays of `Repeats`; `values` may be None.
ARRAYS = ("positions", "indptr", "timestamps", "values")


@dataclass(frozen=True, eq=False)
class Repeats(Remade):
    """Rows of all pairs with more than one row."""

    positions: NDArray[np.int64]  # [n_pairs], positions of the pairs among the interactions, ascending
    indptr: NDArray[np.int64]  # [n_pairs + 1], start of each pair's rows; a pair has at least two rows
    timestamps: NDArray[np.int64]  # [n_rows], in the order of the table within a pair
    values: FloatArray | None  # [n_rows], or None if all values are 1
    rule: str  # that merges the rows of a pair
    above: float | None = None  # threshold of merged values, which a part of a pair's rows must exceed, too
    is_binary: bool = False  # whether values above the threshold became 1

    def __post_init__(self) -> None:
        for name in ("positions", "indptr", "timestamps"):
            array = check_integers(f"repeats.{name}", getattr(self, name), np.int64)
            object.__setattr__(self, name, own_array(array))
        n_pairs, n_rows = len(self.positions), len(self.timestamps)
        if self.values is not None:
            values = check_array("repeats.values", self.values, ndim=1, shape=(n_rows,))
            object.__setattr__(self, "values", own_array(values))
        check_choice("repeats.rule", self.rule, RULES)
        if self.above is not None:
            check_real("repeats.above", self.above, low=0.0)
        is_whole = len(self.indptr) == n_pairs + 1 and self.indptr[0] == 0 and self.indptr[-1] == n_rows
        if not is_whole or (np.diff(self.indptr) < 2).any() or (np.diff(self.positions) <= 0).any():
            raise ValueError(
                "repeats must list distinct pairs in order, each with at least 2 rows; store the data again"
            )

    def check_within(self, n_interactions: int, *, of: str = "repeats.positions") -> Self:
        """Raise unless all positions are in [0, n_interactions)."""
        if len(self.positions) and not 0 <= self.positions[0] <= self.positions[-1] < n_interactions:
            raise ValueError(f"{of} must be from 0 to {n_interactions - 1}; store the data again")
        return self

    def select(self, selection: slice | np.ndarray, n_interactions: int) -> "Repeats | None":
        """Return the repeats of selected interactions in their new order, or None if no pair remains."""
        # A slice is a range of users, which needs no array of the length of all interactions.
        if isinstance(selection, slice):
            start, stop, _ = selection.indices(n_interactions)
            low, high = np.searchsorted(self.positions, (start, stop))
            return self._take(np.arange(low, high), self.positions[low:high] - start)
        new_positions = np.full(n_interactions, -1, dtype=np.int64)  # by old position; -1 marks dropped interactions
        n_selected = np.count_nonzero(selection) if selection.dtype == bool else len(selection)
        new_positions[selection] = np.arange(n_selected)
        new_positions = new_positions[self.positions]
        order = np.argsort(new_positions, kind="stable")
        order = order[np.count_nonzero(new_positions < 0) :]
        return self._take(order, new_positions[order])

    def expand(self, timestamps: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of rows of each interaction, and the timestamp of each row in the order of interactions."""
        # Pairs without repeats have one row, which is not stored here.
        counts = np.ones(len(timestamps), dtype=np.int64)
        counts[self.positions] = np.diff(self.indptr)
        times = np.repeat(timestamps, counts)
        times[np.repeat(counts > 1, counts)] = self.timestamps
        return counts, times

    def _take(self, pairs: np.ndarray, positions: np.ndarray) -> "Repeats | None":
        if not len(pairs):
            return None
        if len(pairs) == len(self.positions) and (pairs[1:] > pairs[:-1]).all():
            return replace(self, positions=positions)
        lengths = np.diff(self.indptr)[pairs]
        # Each row is its pair's old start plus its position within the pair.
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.repeat(self.indptr[pairs] - indptr[:-1], lengths) + np.arange(indptr[-1])
        values = None if self.values is None else self.values[rows]
        return replace(self, positions=positions, indptr=indptr, timestamps=self.timestamps[rows], values=values)

    def exceeding(self, threshold: float, *, is_binary: bool) -> Self:
        """Return the repeats after a selection of merged values above a threshold; `is_binary` sets them to 1."""
        if self.is_binary:  # later thresholds do not change values of 1
            return self
        return replace(self, above=max(threshold, self.above or 0.0), is_binary=is_binary)


def file_of(name: str) -> str:
    """Return the name of an array's file in a folder of interactions."""
    return f"repeats_{name}"
