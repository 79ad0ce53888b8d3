"""A log of interactions: a row for each time that one happened, with the context it happened in."""

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
    """Interactions with a row for each time that one happened, and the context it happened in.

    Make one with `from_arrays`.

    Parameters
    ----------
    interactions : Interactions
        Pairs of user and item; the value is the number of their entries in the log.
    users, items : ndarray of shape (n_entries,), int64
        Rows and columns of `interactions`, in the order of the log.
    contexts : mapping of str to ndarray
        Columns of `n_entries` each.

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
            raise ValueError(f"items must have one entry for each of users ({len(users)}), got {len(items)}")
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
        """Build from one row per entry.

        Parameters
        ----------
        users, items : array_like of shape (n_entries,)
            External ids, as for `Interactions.from_arrays`.
        contexts : mapping of str to array_like, or None
            Columns beside them.
        user_ids, item_ids : array_like or None
            All users, or the whole catalogue, as for `Interactions.from_arrays`.
        unlisted : {"error", "drop"}
            What becomes of an entry whose user or item is not in the list that was given.

        Returns
        -------
        InteractionLog
            Every user and item that appears, or that is listed.

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
        kept = (rows >= 0) & (columns >= 0)
        if not kept.all():
            rows, columns = rows[kept], columns[kept]
            contexts = {name: column[kept] for name, column in contexts.items()}
        return cls(data, rows, columns, contexts)

    @property
    def n_entries(self) -> int:
        """Rows of the log.

        Returns
        -------
        int
            At least the number of pairs.
        """
        return len(self.users)

    @property
    def n_users(self) -> int:
        """Number of users.

        Returns
        -------
        int
            Those of `interactions`.
        """
        return self.interactions.n_users

    def shard(self, n: int) -> list[Self]:
        """Split the users into `n` contiguous shards of nearly equal size.

        Parameters
        ----------
        n : int
            At least 1.

        Returns
        -------
        list of InteractionLog
            As `Interactions.shard`.
        """
        n = check_integer("n", n, low=1)
        edges = np.arange(n + 1) * self.n_users // n
        return [self.select_users(np.arange(start, stop)) for start, stop in pairwise(edges.tolist())]

    def with_features(self, **features: Any) -> Self:
        """The same log with other features of users or items.

        Parameters
        ----------
        **features : mapping of str to array_like
            As for `Interactions.with_features`.

        Returns
        -------
        InteractionLog
            Shares its arrays with this one.
        """
        return replace(self, interactions=self.interactions.with_features(**features))

    def keep_entries(self, mask: np.ndarray) -> Self:
        """Keep the entries where `mask` is True; users and items stay.

        Parameters
        ----------
        mask : ndarray of shape (n_entries,), bool
            In the order of the log.

        Returns
        -------
        InteractionLog
            Pairs without an entry are gone.
        """
        mask = check_mask(mask, self.n_entries)
        return self._take(mask, self.interactions, self.users[mask])

    def select_users(self, rows: ArrayLike) -> Self:
        """Keep these users, in this order, and their entries.

        Parameters
        ----------
        rows : array_like of int or bool
            Distinct row numbers, or a mask over all users.

        Returns
        -------
        InteractionLog
            All items.
        """
        chosen = self.interactions.select_users(rows)
        asked = plain_array("rows", rows)
        row_of = np.full(self.interactions.n_users, -1, dtype=np.int64)
        row_of[np.flatnonzero(asked) if asked.dtype == bool else asked] = np.arange(chosen.n_users)
        users = row_of[self.users]
        return self._take(users >= 0, chosen, users[users >= 0])

    def _take(self, mask: np.ndarray, axes: Interactions, users: np.ndarray) -> Self:
        """The entries in `mask`, of `users`, counted anew on the axes of other interactions."""
        items = self.items[mask]
        pairs, counts = np.unique(users * axes.n_items + items, return_counts=True)
        of_user, columns = np.divmod(pairs, max(axes.n_items, 1))
        lengths = np.bincount(of_user, minlength=axes.n_users)
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
