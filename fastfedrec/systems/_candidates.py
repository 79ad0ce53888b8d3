"""Items that may be recommended: one choice for all users, or a list for each user."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import plain_array
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import frame_columns, native_frame, split_ids
from fastfedrec.data.ids import IdIndex, axis_ids, check_kinds, column_array, id_at, join_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._tables import as_column, find_column, has_lists, seen_among


@dataclass(frozen=True)
class _Lists:
    """Columns of the model for some of the requested users, in the order of the request."""

    indptr: NDArray[np.int64]
    columns: NDArray[np.int64]
    is_given: NDArray[np.bool_]  # whether the user has a list

    def mark(self, marks: np.ndarray, users: np.ndarray, positions: np.ndarray, *, value: bool) -> None:
        """Set the marks of these users' columns, which have these positions, or -1 for no position."""
        lengths = np.diff(self.indptr)[users]
        starts = np.repeat(self.indptr[users] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
        at = positions[self.columns[starts + np.arange(len(starts))]]
        rows = np.repeat(np.arange(len(users)), lengths)
        marks[rows[at >= 0], at[at >= 0]] = value


@dataclass(frozen=True)
class Candidates:
    """Columns that may be recommended to some user, ascending (None: all), and the lists of single users."""

    columns: NDArray[np.int64] | None
    items: _Lists | None = None
    exclude: _Lists | None = None

    @property
    def is_for_all(self) -> bool:
        """Whether every user has the same candidates."""
        return self.items is None and self.exclude is None

    def hidden(self, data: Interactions, users: np.ndarray, rows: np.ndarray | None) -> Any:
        """Return CSR rows of the positions among `columns` that some requested users may not get.

        `users` are positions in the request, and `rows` are the users' rows in `data` if seen items are hidden.
        """
        if self.is_for_all:
            return None if rows is None else seen_among(data, rows, self.columns)
        n_columns = data.n_items if self.columns is None else len(self.columns)
        positions = np.arange(data.n_items)
        if self.columns is not None:
            positions[:] = -1
            positions[self.columns] = np.arange(n_columns)
        marks = np.zeros((len(users), n_columns), dtype=bool)
        if self.items is not None:
            marks[self.items.is_given[users]] = True
            self.items.mark(marks, users, positions, value=False)
        if self.exclude is not None:
            self.exclude.mark(marks, users, positions, value=True)
        if rows is not None:
            seen = data._take_users(rows)
            at = positions[seen.indices]
            marks[np.repeat(np.arange(len(rows)), seen.interactions_per_user())[at >= 0], at[at >= 0]] = True
        return np.concatenate([[0], np.cumsum(marks.sum(axis=1))]), np.nonzero(marks)[1].astype(np.int32)


class ItemTable:
    """Frame with a column of item ids: candidates, and columns to join into an answer."""

    def __init__(self, frame: Any) -> None:
        id_column, columns = split_ids("items", "item", frame)
        if id_column is None:
            raise KeyError(
                f"items must have a column of ids if it is a frame, called 'item' or by a usual name such as "
                f"'movieId', got the columns {list(columns)}; rename the column, or pass the ids alone"
            )
        if clashing := [name for name in columns if name in ("user", "item", "score", "rank")]:
            raise KeyError(
                f"items must not have the column {clashing[0]!r} besides the ids, for the answer has a column of that "
                "name; rename it"
            )
        self.ids = axis_ids(id_column.called, id_column.ids, None)
        self._columns = columns

    def join(self, table: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an answer with the columns of its items."""
        rows = IdIndex("item", self.ids).find(table["item"])
        joined = {name: plain_array(f"items[{name!r}]", column, missing=True) for name, column in self._columns.items()}
        return dict(table) | {name: column[rows] for name, column in joined.items()}


def item_table(items: Any) -> ItemTable | None:
    """Return the table of a frame of candidates, or None for candidates of another form."""
    frame = native_frame(items)
    return ItemTable(frame) if frame_columns(frame) is not None else None


def choose_candidates(data: Interactions, users: np.ndarray, items: Any, exclude: Any) -> Candidates:
    """Return the items that some users may get.

    Unknown ids of `exclude` and of a table are ignored, with a warning if all excluded ones are unknown.  Another
    unknown candidate raises `KeyError`, and an empty choice `ValueError`.
    """
    if items is None and exclude is None:
        return Candidates(None)
    chosen = np.ones(data.n_items, dtype=bool)
    lists: dict[str, _Lists | None] = {"items": None, "exclude": None}
    for name, given in (("items", items), ("exclude", exclude)):
        if isinstance(given, Mapping) or has_lists(name, given):
            lists[name] = _lists_of_users(name, given, data, users)
    of_users = lists["items"]
    if of_users is not None and of_users.is_given.all():
        chosen[:] = False
        chosen[of_users.columns] = True
    elif of_users is None and items is not None:
        chosen[:] = False
        chosen[_columns_of("items", items, data)] = True
    if exclude is not None and lists["exclude"] is None:
        chosen[_columns_of("exclude", exclude, data)] = False
    if not chosen.any():
        reason = "items must name an item" if exclude is None else "exclude must leave an item to recommend"
        raise ValueError(f"{reason}, got none of the model's {data.n_items}")
    return Candidates(None if chosen.all() else np.flatnonzero(chosen), lists["items"], lists["exclude"])


def _columns_of(name: str, ids: Any, data: Interactions) -> NDArray[np.int64]:
    """Return the columns of candidates or of excluded items, without unknown ids where these are ignored."""
    if isinstance(ids, ItemTable):
        columns = find_column(data, "item", ids.ids, name)
        return columns[columns >= 0]
    id_column = as_column(name, ids)
    if name == "items":
        return data.item_index(id_column)
    columns = find_column(data, "item", id_column, name)
    if len(columns) and (columns < 0).all():
        warn(
            # A server would log the message, so it shows no id of a user's list.
            f"exclude names none of the model's {data.n_items} items, so it leaves none out; compare its ids with the "
            f"model's, such as {id_at(data.item_ids, 0)!r}",
        )
    return columns[columns >= 0]


def _lists_of_users(name: str, given: Any, data: Interactions, users: np.ndarray) -> _Lists:
    """Return the columns of a list for each user; a mapping may lack users, who have no restriction."""
    if isinstance(given, Mapping):
        if given and not has_lists(name, given):
            raise TypeError(
                f"{name} must be ids, or a list of ids for each user, got a {type(given).__name__} with the value "
                f"{next(iter(given.values()))!r}; pass a list of its keys, or {{user: [ids]}}"
            )
        # Ids of another kind would match no user, and all exclusions would be lost without a message.
        check_kinds(name, column_array(name, list(given)), users, of="the requested users")
        by_user = [given.get(user) for user in (users.tolist() if users.dtype.kind not in "Mm" else users)]
    else:
        by_user = list(given)
        if len(by_user) != len(users):
            raise ValueError(
                f"{name} must have a list for each of the {len(users)} requested users, got {len(by_user)} lists; pass "
                "{user: [ids]} to restrict some users"
            )
    parts = [np.empty(0, dtype=np.int64) if ids is None else as_column(name, ids) for ids in by_user]
    flat = join_ids(parts)
    columns = data.item_index(flat) if name == "items" else find_column(data, "item", flat, name)
    rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[columns >= 0]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(parts)))])
    return _Lists(indptr, columns[columns >= 0], np.array([ids is not None for ids in by_user]))
