"""Log of interactions: one row per event, with the context of the event."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.arrays import Column, check_mask, check_rows
from fastfedrec.core.check import check_integer, plain_array
from fastfedrec.data.conversion import as_interactions
from fastfedrec.data.csr import Remade, check_columns, own_array
from fastfedrec.data.ids import find_rows
from fastfedrec.data.interactions import Interactions

__all__ = ["InteractionLog"]


@dataclass(frozen=True, eq=False)
class InteractionLog(Remade):
    """Log of interactions with one row per event, and the context of each event.

    Build a log with `from_arrays`.

    Parameters
    ----------
    interactions : Interactions
        User-item pairs; the value of a pair is the number of its entries in the log.
    users, items : ndarray of shape (n_entries,), int64
        Row and column of each entry in `interactions`, in the order of the log.
    contexts : mapping of str to ndarray
        Context columns of length `n_entries`.

    Examples
    --------
    >>> from fastfedrec.data.log import InteractionLog
    >>> log = InteractionLog.from_arrays(["ann", "bob", "ann"], ["maps", "maps", "maps"], {"hour": [8, 9, 20]})
    >>> log.interactions.to_scipy().toarray()
    array([[2.],
           [1.]], dtype=float32)
    >>> log.n_entries
    3
    """

    interactions: Interactions
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    contexts: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        data = as_interactions("interactions", self.interactions)
        users, items = check_rows("users", self.users, data.n_users), check_rows("items", self.items, data.n_items)
        if len(users) != len(items):
            raise ValueError(
                f"items must have the length of users ({len(users)}), got {len(items)}; pass one item for each user"
            )
        for name, checked in {"interactions": data, "users": own_array(users), "items": own_array(items)}.items():
            object.__setattr__(self, name, checked)
        object.__setattr__(self, "contexts", check_columns("contexts", self.contexts, len(users)))

    @classmethod
    def from_arrays(
        cls,
        users: Column,
        items: Column,
        contexts: Mapping[str, Any] | None = None,
        *,
        user_ids: Column | None = None,
        item_ids: Column | None = None,
        unlisted: str = "error",
    ) -> Self:
        """Build a log from arrays with one entry per event.

        Parameters
        ----------
        users, items : array_like of shape (n_entries,)
            External ids, see `Interactions.from_arrays`.
        contexts : mapping of str to array_like, or None
            Context columns of shape (n_entries,).
        user_ids, item_ids : array_like or None
            Complete list of users, or the whole catalogue, see `Interactions.from_arrays`.
        unlisted : {"error", "drop"}
            Treatment of an entry with a user or an item that is missing from a given list.

        Returns
        -------
        InteractionLog
            Log with every user and item that appears or is listed.

        Raises
        ------
        ValueError
            A column of another length.
        """
        data = Interactions.from_arrays(
            users, items, duplicates="sum", user_ids=user_ids, item_ids=item_ids, unlisted=unlisted
        )
        rows, columns = (find_rows(*axis) for axis in (("user", data.user_ids, users), ("item", data.item_ids, items)))
        contexts = check_columns("contexts", contexts, len(rows))
        is_listed = (rows >= 0) & (columns >= 0)
        if not is_listed.all():
            rows, columns = rows[is_listed], columns[is_listed]
            contexts = {name: column[is_listed] for name, column in contexts.items()}
        return cls(data, rows, columns, contexts)

    @property
    def n_entries(self) -> int:
        """Number of rows of the log.

        Returns
        -------
        int
            Number of events, at least the number of user-item pairs.
        """
        return len(self.users)

    @property
    def n_users(self) -> int:
        """Number of users.

        Returns
        -------
        int
            Number of users of `interactions`.
        """
        return self.interactions.n_users

    def shard(self, n: int) -> list[Self]:
        """Split the users into `n` contiguous shards of nearly equal size.

        Parameters
        ----------
        n : int
            Number of shards, at least 1.

        Returns
        -------
        list of InteractionLog
            Shards in the order of users, see `Interactions.shard`.
        """
        n = check_integer("n", n, low=1)
        edges = np.arange(n + 1) * self.n_users // n
        return [self.select_users(np.arange(start, stop)) for start, stop in pairwise(edges.tolist())]

    def with_features(self, **features: Any) -> Self:
        """Return the same log with other features of users or items.

        Parameters
        ----------
        **features : mapping of str to array_like
            Arguments of `Interactions.with_features`.

        Returns
        -------
        InteractionLog
            Log that shares its arrays with this one.
        """
        return replace(self, interactions=self.interactions.with_features(**features))

    def keep_entries(self, mask: np.ndarray) -> Self:
        """Select the entries with a True in `mask`, and keep all users and items.

        Parameters
        ----------
        mask : ndarray of shape (n_entries,), bool
            Mask in the order of the log.

        Returns
        -------
        InteractionLog
            Log of the selected entries; user-item pairs without an entry are dropped.
        """
        mask = check_mask(mask, self.n_entries)
        return self._take(mask, self.interactions, self.users[mask])

    def select_users(self, rows: ArrayLike) -> Self:
        """Select users in a given order, with their entries.

        Parameters
        ----------
        rows : array_like of int or bool
            Distinct row numbers, or a mask over all users.

        Returns
        -------
        InteractionLog
            Log of these users with all items.
        """
        selected = self.interactions.select_users(rows)
        rows_or_mask = plain_array("rows", rows)
        new_row = np.full(self.interactions.n_users, -1, dtype=np.int64)  # by old row; -1 marks dropped users
        new_row[np.flatnonzero(rows_or_mask) if rows_or_mask.dtype == bool else rows_or_mask] = np.arange(
            selected.n_users
        )
        users = new_row[self.users]
        return self._take(users >= 0, selected, users[users >= 0])

    def _take(self, mask: np.ndarray, axes: Interactions, users: np.ndarray) -> Self:
        """Return the log of masked entries with users `users`, counted on the axes of the interactions `axes`."""
        items = self.items[mask]
        # A pair (user, item) is coded as one integer, so that `unique` sorts by user and then by item.
        pairs, counts = np.unique(users * axes.n_items + items, return_counts=True)
        of_user, columns = np.divmod(pairs, max(axes.n_items, 1))
        lengths = np.bincount(of_user, minlength=axes.n_users)
        # The new values are counts of events, so timestamps and repeats of the old entries no longer apply.
        counted = axes._replace(
            indptr=np.concatenate([[0], np.cumsum(lengths)]),
            indices=columns,
            values=counts.astype(np.float32),
            timestamps=None,
        )
        contexts = {name: column[mask] for name, column in self.contexts.items()}
        return replace(self, interactions=counted, users=users, items=items, contexts=contexts)

    def __repr__(self) -> str:
        columns = f", contexts {', '.join(self.contexts)}" if self.contexts else ""
        return (
            f"<InteractionLog: {self.n_users:,} users x {self.interactions.n_items:,} items, "
            f"{self.n_entries:,} entries{columns}>"
        )
