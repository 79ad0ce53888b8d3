"""Selections of interactions: part of the class `Interactions`, each returning a new object."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.arrays import FloatArray, check_mask, distinct, exceed
from fastfedrec.core.check import check_integer, check_real, plain_array
from fastfedrec.data.csr import check_fields
from fastfedrec.data.repeats import Repeats

#: What the constructor of `Interactions` takes, in its order.
FIELDS = (
    "indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids", "user_features",
    "item_features", "catalogue",
)  # fmt: skip

_OF_ENTRIES = {"indptr", "indices", "values", "timestamps"}


class Selections:
    """The sizes and selections of `Interactions`: ids, features and global ids stay aligned with what is kept."""

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
    _repeats: Repeats | None  # the rows of pairs that have several, by which splits by time divide them

    @classmethod
    def _trusted(cls, fields: Mapping[str, Any]) -> Self:
        raise NotImplementedError

    @property
    def n_users(self) -> int:
        """Number of users, empty ones included."""
        return len(self.indptr) - 1

    @property
    def n_items(self) -> int:
        """Number of items, those nobody used included."""
        return len(self.item_ids)

    @property
    def catalogue(self) -> str:
        """Where the list of items comes from: "public", "data", "counts" or "chosen", as `Interactions` explains."""
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
        """Number of interactions of each user.

        Returns
        -------
        ndarray of shape (n_users,), int64
            In the order of `user_ids`.
        """
        return np.diff(self.indptr)

    def interactions_per_item(self) -> NDArray[np.int64]:
        """Number of interactions of each item.

        Returns
        -------
        ndarray of shape (n_items,), int64
            In the order of `item_ids`.
        """
        return np.bincount(self.indices, minlength=self.n_items).astype(np.int64)

    # ---- public -------------------------------------------------------------------------------------------------

    def binarize(self, threshold: float = 0) -> Self:
        """Keep the interactions whose value exceeds `threshold`, each with value 1.

        Parameters
        ----------
        threshold : float
            At least 0.

        Returns
        -------
        Interactions
            Same users and items, some of which may now be empty.
        """
        threshold = check_real("threshold", threshold, low=0.0)
        if self.values is None and (self._repeats is None or threshold >= 1):
            return self if threshold < 1 else self._keep(np.zeros(self.n_interactions, dtype=bool))
        kept = self if self.values is None else self._keep(exceed(self.values, threshold))
        return kept._replace(values=None, repeats=kept._exceeding(threshold, is_binary=True))

    def positive(self) -> Self:
        """Drop values of 0 and below: the interactions that count as implicit feedback, with their values.

        Returns
        -------
        Interactions
            This object where there is nothing to drop.
        """
        kept = self if self.values is None else self._keep(self.values > 0)
        if kept is self and self._repeats is None:
            return self
        return kept._replace(repeats=kept._exceeding(0.0, is_binary=False))

    def filter_core(self, *, min_interactions_per_user: int, min_interactions_per_item: int) -> Self:
        """Drop users and items with too few interactions, repeatedly, until all that remain have enough.

        Parameters
        ----------
        min_interactions_per_user, min_interactions_per_item : int
            At least 0; 0 keeps empty ones.

        Returns
        -------
        Interactions
            The largest such subset; it may be empty.  With a lowest number for items, which of them remain tells what
            users have: its `catalogue` is "counts", and no guarantee covers that choice.
        """
        low_user = check_integer("min_interactions_per_user", min_interactions_per_user, low=0)
        low_item = check_integer("min_interactions_per_item", min_interactions_per_item, low=0)
        rows = np.repeat(np.arange(self.n_users), self.interactions_per_user())
        user_kept = np.ones(self.n_users, dtype=bool)
        item_kept = np.ones(self.n_items, dtype=bool)
        alive = np.ones(self.n_interactions, dtype=bool)
        while True:
            users = user_kept & (np.bincount(rows[alive], minlength=self.n_users) >= low_user)
            items = item_kept & (np.bincount(self.indices[alive], minlength=self.n_items) >= low_item)
            if (users == user_kept).all() and (items == item_kept).all():
                break
            user_kept, item_kept = users, items
            alive = user_kept[rows] & item_kept[self.indices]
        kept = self._keep(alive)._take_users(np.flatnonzero(user_kept))._take_items(np.flatnonzero(item_kept))
        return kept._replace(catalogue="counts") if low_item else kept

    def top_items(self, n: int) -> Self:
        """Keep the `n` items with the most interactions; ties go to the earlier item.

        Parameters
        ----------
        n : int
            At least 1; more than there are keeps all.

        Returns
        -------
        Interactions
            All users, also those left without an interaction; items in their old order.  Which they are tells what
            users have: unless it keeps all, its `catalogue` is "counts", and no guarantee covers that choice
            (`fastfedrec.choose_items` makes a private one).
        """
        n = check_integer("n", n, low=1)
        if n >= self.n_items:
            return self
        best = self.select_items(np.argsort(-self.interactions_per_item(), kind="stable")[:n])
        return best._replace(catalogue="counts")

    def select_users(self, rows: ArrayLike) -> Self:
        """Keep these users, in this order, each with its global id.

        Parameters
        ----------
        rows : array_like of int or bool
            Distinct row numbers, or a mask over all users.

        Returns
        -------
        Interactions
            All items.
        """
        rows = _check_chosen("rows", "row", rows, self.n_users)
        if len(distinct(rows)) != len(rows):
            raise ValueError("rows must be distinct: one user stands for one person; see from_arrays to resample")
        return self._take_users(rows)

    def select_items(self, columns: ArrayLike) -> Self:
        """Keep these items, in their old order.

        Parameters
        ----------
        columns : array_like of int or bool
            Column numbers, or a mask over all items.

        Returns
        -------
        Interactions
            All users, also those left without an interaction.
        """
        mask = np.zeros(self.n_items, dtype=bool)
        mask[_check_chosen("columns", "column", columns, self.n_items)] = True
        return self._keep(mask[self.indices])._take_items(np.flatnonzero(mask))

    def shard(self, n: int) -> list[Self]:
        """Split the users into `n` contiguous shards of nearly equal size.

        Parameters
        ----------
        n : int
            At least 1; shards beyond the number of users are empty.

        Returns
        -------
        list of Interactions
            In order; each has all items, and its users keep their global ids.
        """
        n = check_integer("n", n, low=1)
        edges = np.arange(n + 1) * self.n_users // n
        return [self._user_range(start, stop) for start, stop in pairwise(edges.tolist())]

    def keep_interactions(self, mask: np.ndarray) -> Self:
        """Keep the interactions where `mask` is True; users and items stay.

        Parameters
        ----------
        mask : ndarray of shape (n_interactions,), bool
            In storage order: by user, then item.

        Returns
        -------
        Interactions
            Same shape.
        """
        return self._keep(check_mask(mask, self.n_interactions))

    # ---- plumbing -----------------------------------------------------------------------------------------------

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

    def _replace(self, **changes: Any) -> Self:
        # With other entries the rows of the old ones are forgotten, unless the caller has selected from them too.
        repeats = None if changes.keys() & _OF_ENTRIES else self._repeats
        return self._trusted(self._fields() | {"repeats": repeats} | changes)

    def _exceeding(self, threshold: float, *, is_binary: bool) -> Repeats | None:
        return None if self._repeats is None else self._repeats.exceeding(threshold, is_binary=is_binary)

    def _keep(self, mask: np.ndarray) -> Self:
        if mask.all():
            return self
        ends = np.concatenate([[0], np.cumsum(mask)])
        return self._replace(indptr=ends[self.indptr], **self._entries(mask))

    def _entries(self, where: slice | np.ndarray) -> dict[str, Any]:
        """What is stored of these interactions."""
        columns = {"indices": self.indices, "values": self.values, "timestamps": self.timestamps}
        entries: dict[str, Any] = {name: None if c is None else c[where] for name, c in columns.items()}
        return entries | {"repeats": self._repeats and self._repeats.select(where, self.n_interactions)}

    def _users(self, rows: slice | np.ndarray) -> dict[str, Any]:
        """What is known of these users."""
        features = {name: column[rows] for name, column in self.user_features.items()}
        ids, numbers = self.user_ids[rows], self.global_user_ids[rows]
        return {"user_ids": ids, "global_user_ids": numbers, "user_features": features}

    def _user_range(self, start: int, stop: int) -> Self:
        # Consecutive users share the parent's arrays: a shard costs no copy.
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
        where = np.arange(indptr[-1])  # the largest array here, so it is changed in place
        where += np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths)
        return self._replace(indptr=indptr, **self._entries(where), **self._users(rows))

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
    """Return interactions from a pickle, which are checked as the constructor checks them."""
    made = kind._trusted(check_fields(dict(zip(FIELDS, fields, strict=True)), aligned=True))
    return made if repeats is None else made._replace(repeats=repeats.check_within(made.n_interactions))


def _check_chosen(name: str, what: str, chosen: ArrayLike, n: int) -> np.ndarray:
    """Row or column numbers from numbers or a mask."""
    chosen = plain_array(name, chosen)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise ValueError(f"{name} must be a mask of shape ({n},), got {chosen.shape}")
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of {what} numbers, got {chosen.dtype} {chosen.shape}")
    chosen = chosen.astype(np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= n):
        raise ValueError(f"{name} must lie in [0, {n}), got {chosen.min()} to {chosen.max()}")
    return chosen
