"""Base class of `Interactions` with its sizes, its description and selections."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.arrays import FloatArray, check_mask, distinct, exceed
from fastfedrec.core.check import check_integer, check_real, plain_array
from fastfedrec.core.html import html_card
from fastfedrec.data.csr import check_fields
from fastfedrec.data.repeats import Repeats

#: Parameters of the constructor of `Interactions`, in its order.
FIELDS = (
    "indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids", "user_features",
    "item_features", "catalogue",
)  # fmt: skip

_ENTRY_FIELDS = {"indptr", "indices", "values", "timestamps"}


class Selections:
    """Sizes and selections of `Interactions`; each selection returns a new object with aligned ids and features."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: FloatArray | None
    timestamps: NDArray[np.int64] | None
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    global_user_ids: NDArray[np.uint64]
    user_features: Mapping[str, NDArray[Any]]
    item_features: Mapping[str, NDArray[Any]]
    _catalogue: str
    _repeats: Repeats | None  # rows of repeated pairs, which splits by time divide

    @classmethod
    def _trusted(cls, fields: Mapping[str, Any]) -> Self:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.n_interactions

    def __bool__(self) -> bool:
        return True  # also without interactions

    @property
    def n_users(self) -> int:
        """Number of users, including users without interactions."""
        return len(self.indptr) - 1

    @property
    def n_items(self) -> int:
        """Number of items, including items without interactions."""
        return len(self.item_ids)

    @property
    def catalogue(self) -> str:
        """Source of the list of items: "public", "data", "counts" or "chosen", see `Interactions`."""
        return self._catalogue

    @property
    def n_interactions(self) -> int:
        """Number of stored user-item pairs."""
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_users, n_items)."""
        return self.n_users, self.n_items

    def interactions_per_user(self) -> NDArray[np.int64]:
        """Return the number of interactions of each user.

        Returns
        -------
        ndarray of shape (n_users,), int64
            Counts in the order of `user_ids`.
        """
        return np.diff(self.indptr)

    def interactions_per_item(self) -> NDArray[np.int64]:
        """Return the number of interactions of each item.

        Returns
        -------
        ndarray of shape (n_items,), int64
            Counts in the order of `item_ids`.
        """
        return np.bincount(self.indices, minlength=self.n_items).astype(np.int64)

    def _repr_html_(self) -> str:
        cells = max(self.n_users * self.n_items, 1)
        facts = {
            "users": f"{self.n_users:,}",
            "items": f"{self.n_items:,} (catalogue: {self.catalogue})",
            "interactions": f"{self.n_interactions:,}, {self.n_interactions / cells:.2%} of all",
            "values": "none: each counts 1" if self.values is None else self.values.dtype,
            "timestamps": "none" if self.timestamps is None else "with each interaction",
            "user features": ", ".join(map(str, self.user_features)) or "none",
            "item features": ", ".join(map(str, self.item_features)) or "none",
        }
        return html_card("Interactions", facts)

    # ---- selections -------------------------------------------------------------------------------------------------

    def binarize(self, threshold: float = 0) -> Self:
        """Select interactions with a value above `threshold`, and set their values to 1.

        Parameters
        ----------
        threshold : float
            Threshold, at least 0.

        Returns
        -------
        Interactions
            Interactions with the same users and items, some of which may be empty.
        """
        threshold = check_real("threshold", threshold, low=0.0)
        if self.values is None and (self._repeats is None or threshold >= 1):
            return self if threshold < 1 else self._keep(np.zeros(self.n_interactions, dtype=bool))
        above = self if self.values is None else self._keep(exceed(self.values, threshold))
        return above._replace(values=None, repeats=above._exceeding(threshold, is_binary=True))

    def positive(self) -> Self:
        """Select interactions with a value above 0, which count as implicit feedback, and keep their values.

        Returns
        -------
        Interactions
            Positive interactions; this object itself if all values are positive.
        """
        above = self if self.values is None else self._keep(self.values > 0)
        if above is self and self._repeats is None:
            return self
        return above._replace(repeats=above._exceeding(0.0, is_binary=False))

    def filter_core(self, *, min_interactions_per_user: int, min_interactions_per_item: int) -> Self:
        """Drop users and items with too few interactions until all remaining ones have enough.

        Parameters
        ----------
        min_interactions_per_user, min_interactions_per_item : int
            Minimum number of interactions, at least 0; 0 keeps users or items without interactions.

        Returns
        -------
        Interactions
            Largest subset that meets both minimums; it may be empty.  With a minimum for items, the list of remaining
            items reveals information about users: `catalogue` becomes "counts", and no guarantee covers the choice.
        """
        low_user = check_integer("min_interactions_per_user", min_interactions_per_user, low=0)
        low_item = check_integer("min_interactions_per_item", min_interactions_per_item, low=0)
        rows = np.repeat(np.arange(self.n_users), self.interactions_per_user())
        user_mask = np.ones(self.n_users, dtype=bool)
        item_mask = np.ones(self.n_items, dtype=bool)
        alive = np.ones(self.n_interactions, dtype=bool)
        # A dropped user lowers the counts of items and vice versa, so this repeats until both masks are stable.
        while True:
            users = user_mask & (np.bincount(rows[alive], minlength=self.n_users) >= low_user)
            items = item_mask & (np.bincount(self.indices[alive], minlength=self.n_items) >= low_item)
            if (users == user_mask).all() and (items == item_mask).all():
                break
            user_mask, item_mask = users, items
            alive = user_mask[rows] & item_mask[self.indices]
        core = self._keep(alive)._take_users(np.flatnonzero(user_mask))._take_items(np.flatnonzero(item_mask))
        return core._replace(catalogue="counts") if low_item else core

    def top_items(self, n: int) -> Self:
        """Select the `n` items with the most interactions; among equal counts the earlier item is selected.

        Parameters
        ----------
        n : int
            Number of items, at least 1; a number above `n_items` selects all items.

        Returns
        -------
        Interactions
            Interactions with all users, including users without interactions, and items in their original order.
            The choice reveals information about users.  Unless all items are selected, `catalogue` becomes "counts",
            and no guarantee covers the choice; `fastfedrec.choose_items` makes a private choice.
        """
        n = check_integer("n", n, low=1)
        if n >= self.n_items:
            return self
        best = self.select_items(np.argsort(-self.interactions_per_item(), kind="stable")[:n])
        return best._replace(catalogue="counts")

    def select_users(self, rows: ArrayLike) -> Self:
        """Select users in a given order, each with its global id.

        Parameters
        ----------
        rows : array_like of int or bool
            Distinct row numbers, or a mask over all users.

        Returns
        -------
        Interactions
            Interactions of these users with all items.
        """
        rows = _check_positions("rows", "row", rows, self.n_users)
        if len(distinct(rows)) != len(rows):
            raise ValueError(
                "rows must be distinct, got a repeated row: each user must occur once; see from_arrays to resample"
            )
        return self._take_users(rows)

    def select_items(self, columns: ArrayLike) -> Self:
        """Select items, in their original order.

        Parameters
        ----------
        columns : array_like of int or bool
            Column numbers, or a mask over all items.

        Returns
        -------
        Interactions
            Interactions with these items and all users, including users without interactions.
        """
        mask = np.zeros(self.n_items, dtype=bool)
        mask[_check_positions("columns", "column", columns, self.n_items)] = True
        return self._keep(mask[self.indices])._take_items(np.flatnonzero(mask))

    def shard(self, n: int) -> list[Self]:
        """Split the users into `n` contiguous shards of nearly equal size.

        Parameters
        ----------
        n : int
            Number of shards, at least 1; shards beyond the number of users are empty.

        Returns
        -------
        list of Interactions
            Shards in the order of users, with all items; users keep their global ids.
        """
        n = check_integer("n", n, low=1)
        edges = np.arange(n + 1) * self.n_users // n
        return [self._user_range(start, stop) for start, stop in pairwise(edges.tolist())]

    def keep_interactions(self, mask: np.ndarray) -> Self:
        """Select the interactions with a True in `mask`, and keep all users and items.

        Parameters
        ----------
        mask : ndarray of shape (n_interactions,), bool
            Mask in storage order, which is by user and then by item.

        Returns
        -------
        Interactions
            Interactions of the same shape.
        """
        return self._keep(check_mask(mask, self.n_interactions))

    # ---- private helpers ----------------------------------------------------------------------------------------

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

    def _replace(self, **changes: Any) -> Self:
        # New entries invalidate the rows of repeated pairs, unless the caller also passes the selected `repeats`.
        repeats = None if changes.keys() & _ENTRY_FIELDS else self._repeats
        return self._trusted(self._fields() | {"repeats": repeats} | changes)

    def _exceeding(self, threshold: float, *, is_binary: bool) -> Repeats | None:
        return None if self._repeats is None else self._repeats.exceeding(threshold, is_binary=is_binary)

    def _keep(self, mask: np.ndarray) -> Self:
        if mask.all():
            return self
        ends = np.concatenate([[0], np.cumsum(mask)])
        return self._replace(indptr=ends[self.indptr], **self._entries(mask))

    def _entries(self, selection: slice | np.ndarray) -> dict[str, Any]:
        """Return the stored fields of selected interactions."""
        columns = {"indices": self.indices, "values": self.values, "timestamps": self.timestamps}
        entries: dict[str, Any] = {name: None if c is None else c[selection] for name, c in columns.items()}
        return entries | {"repeats": self._repeats and self._repeats.select(selection, self.n_interactions)}

    def _users(self, rows: slice | np.ndarray) -> dict[str, Any]:
        """Return the ids and features of selected users."""
        features = {name: column[rows] for name, column in self.user_features.items()}
        ids, numbers = self.user_ids[rows], self.global_user_ids[rows]
        return {"user_ids": ids, "global_user_ids": numbers, "user_features": features}

    def _user_range(self, start: int, stop: int) -> Self:
        # Consecutive users are slices, which share the parent's arrays, so a shard needs no copy.
        indptr = self.indptr[start : stop + 1]
        stored = self._entries(slice(int(indptr[0]), int(indptr[-1])))
        return self._replace(indptr=indptr - indptr[0], **stored, **self._users(slice(start, stop)))

    def _take_users(self, rows: np.ndarray) -> Self:
        if len(rows) == self.n_users and (rows == np.arange(self.n_users)).all():
            return self
        if len(rows) and (rows == np.arange(rows[0], rows[0] + len(rows))).all():
            return self._user_range(int(rows[0]), int(rows[0]) + len(rows))
        lengths = self.interactions_per_user()[rows]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        positions = np.arange(indptr[-1])  # the largest array of this method, so it is changed in place
        # Add to each new position the shift from its row's new start to the row's old start.
        positions += np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths)
        return self._replace(indptr=indptr, **self._entries(positions), **self._users(rows))

    def _take_items(self, columns: np.ndarray) -> Self:
        # The caller has dropped the interactions of all other items; ascending columns keep rows sorted.
        if len(columns) == self.n_items:
            return self
        renumber = np.full(self.n_items, -1, dtype=np.int32)
        renumber[columns] = np.arange(len(columns), dtype=np.int32)
        return self._replace(
            indices=renumber[self.indices],
            repeats=self._repeats,
            item_ids=self.item_ids[columns],
            item_features={name: column[columns] for name, column in self.item_features.items()},
        )


def unpickled(kind: type[Selections], fields: tuple[Any, ...], repeats: Repeats | None) -> Selections:
    """Return interactions from the fields of a pickle, with the checks of the constructor."""
    interactions = kind._trusted(check_fields(dict(zip(FIELDS, fields, strict=True)), aligned=True))
    if repeats is None:
        return interactions
    return interactions._replace(repeats=repeats.check_within(interactions.n_interactions))


def _check_positions(name: str, axis: str, selection: ArrayLike, n: int) -> np.ndarray:
    """Return row or column numbers as int64, from numbers or a mask."""
    positions = plain_array(name, selection)
    if positions.dtype == bool:
        if positions.shape != (n,):
            raise ValueError(f"{name} must be a mask of shape ({n},), got {positions.shape}")
        positions = np.flatnonzero(positions)
    if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be a one-dimensional array of {axis} numbers, got {positions.dtype} {positions.shape}"
        )
    positions = positions.astype(np.int64)
    if positions.size and (positions.min() < 0 or positions.max() >= n):
        raise ValueError(f"{name} must be in [0, {n}), got {positions.min()} to {positions.max()}")
    return positions
