"""The rows of user-item pairs that were merged from several: a split by time divides rows, not merged pairs."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_array, check_choice, check_real
from fastfedrec.data.csr import Remade, check_integers, own_array

__all__ = ["ARRAYS", "RULES", "Repeats", "file_of"]

#: The rules by which several rows of a pair become one.
RULES = ("sum", "mean", "first", "last", "earliest", "latest", "max")
#: The arrays of `Repeats`; the values may be missing.
ARRAYS = ("positions", "indptr", "timestamps", "values")


@dataclass(frozen=True, eq=False)
class Repeats(Remade):
    """The rows of all pairs that have more than one row.

    Parameters
    ----------
    positions : ndarray of shape (n_pairs,), int64
        Which interactions they are, ascending.
    indptr : ndarray of shape (n_pairs + 1,), int64
        Where each pair's rows begin; each has two at least.
    timestamps : ndarray of shape (n_rows,), int64
        In the order of the table.
    values : ndarray of shape (n_rows,), float32 or float64, or None
        None where all are 1.
    rule : {"sum", "mean", "first", "last", "earliest", "latest", "max"}
        How rows become one value.
    above : float or None
        A threshold that merged values were compared with: a part of the rows has to exceed it as well.
    is_binary : bool
        Whether values above it became 1.
    """

    positions: NDArray[np.int64]
    indptr: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    values: FloatArray | None
    rule: str
    above: float | None = None
    is_binary: bool = False

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
            raise ValueError("repeats must name each pair once, in order, with at least 2 rows; store the data again")

    def check_within(self, n_interactions: int, *, of: str = "repeats.positions") -> Self:
        """Raise unless all positions are below the number of interactions."""
        if len(self.positions) and not 0 <= self.positions[0] <= self.positions[-1] < n_interactions:
            raise ValueError(f"{of} must be from 0 to {n_interactions - 1}; store the data again")
        return self

    def select(self, where: slice | np.ndarray, n_interactions: int) -> "Repeats | None":
        """Return the repeats of selected interactions, in their new order.

        Parameters
        ----------
        where : slice, or ndarray of int or bool
            As the columns of interactions are indexed.
        n_interactions : int
            How many there were.

        Returns
        -------
        Repeats or None
            None where no pair is left.
        """
        if isinstance(where, slice):  # a range of users: without an array of all interactions
            start, stop, _ = where.indices(n_interactions)
            low, high = np.searchsorted(self.positions, (start, stop))
            return self._take(np.arange(low, high), self.positions[low:high] - start)
        places = np.full(n_interactions, -1, dtype=np.int64)
        places[where] = np.arange(np.count_nonzero(where) if where.dtype == bool else len(where))
        places = places[self.positions]
        order = np.argsort(places, kind="stable")
        order = order[np.count_nonzero(places < 0) :]
        return self._take(order, places[order])

    def expand(self, timestamps: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of rows of each interaction, and the timestamp of each row.

        Parameters
        ----------
        timestamps : ndarray of shape (n_interactions,), int64
            By interaction.

        Returns
        -------
        counts : ndarray of shape (n_interactions,), int64
            1 where a pair has one row.
        timestamps : ndarray of shape (counts.sum(),), int64
            By row, in the order of the interactions.
        """
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
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.repeat(self.indptr[pairs] - indptr[:-1], lengths) + np.arange(indptr[-1])
        values = None if self.values is None else self.values[rows]
        return replace(self, positions=positions, indptr=indptr, timestamps=self.timestamps[rows], values=values)

    def exceeding(self, threshold: float, *, is_binary: bool) -> Self:
        """Return the same after merged values were kept above a threshold, perhaps as 1."""
        if self.is_binary:  # all are 1
            return self
        return replace(self, above=max(threshold, self.above or 0.0), is_binary=is_binary)


def file_of(name: str) -> str:
    """Return the name of an array's file in a folder of interactions."""
    return f"repeats_{name}"
