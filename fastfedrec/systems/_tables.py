"""Arguments and results of a model's queries: lists of ids, the items of users, and tables of ranked items."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.ids import check_exact, check_kinds, check_one_column, column_array
from fastfedrec.data.interactions import Interactions


def as_column(name: str, ids: Any) -> np.ndarray:
    """Return ids as an array of one dimension; raise for a single id, a set, a mapping, a table or more dimensions."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a sequence of ids, got the single id {ids!r}; pass [{ids!r}]")
    if isinstance(ids, Mapping):  # the values would be ignored
        raise TypeError(f"{name} must be ids alone, got a {type(ids).__name__}; pass a list of its keys if meant")
    check_one_column(name, ids)
    column = column_array(name, ids)
    check_exact(name, column)
    return column


def has_lists(name: str, given: Any, *, of: str = "ids") -> bool:
    """Return whether an argument holds a list for each user instead of ids; raise if it holds both."""
    # A tuple is an id unless it is the value of a mapping, so the lists of a sequence are lists, arrays or mappings.
    list_types: tuple[type, ...] = (list, Mapping, np.ndarray)
    if isinstance(given, Mapping):
        entries, list_types = list(given.values()), (*list_types, tuple)
    elif isinstance(given, list | tuple):
        entries = list(given)
    else:
        return False
    are_lists = {issubclass(kind, list_types) for kind in set(map(type, entries))}
    if len(are_lists) > 1:
        raise TypeError(
            f"{name} must hold {of}, or a list for each user, got both; put the {of} of each user into a list"
        )
    return True in are_lists


def find_rows(data: Interactions, axis: str, ids: Any, name: str) -> NDArray[np.int64]:
    """Return the rows of ids on an axis, -1 for an unknown id; raise `TypeError` if the ids' kinds cannot match."""
    return find_column(data, axis, as_column(name, ids), name)


def find_column(data: Interactions, axis: str, id_column: np.ndarray, name: str) -> NDArray[np.int64]:
    """Return the rows of a column that `as_column` returned, as `find_rows` does."""
    check_kinds(name, id_column, getattr(data, f"{axis}_ids"), of=f"the model's {axis}s")
    return data._index(axis).find(id_column)


def seen_among(data: Interactions, rows: np.ndarray, columns: np.ndarray | None) -> Any:
    """Return the items of some users as CSR rows over some ascending columns (None: all), for `compute.ranking`."""
    user_rows = data._take_users(rows)
    if columns is None:
        return user_rows
    positions = np.full(data.n_items, -1, dtype=np.int32)
    positions[columns] = np.arange(len(columns), dtype=np.int32)
    seen_positions = positions[user_rows.indices]
    is_candidate = seen_positions >= 0
    # The running count of candidates turns old row boundaries into new ones.
    return np.concatenate([[0], np.cumsum(is_candidate)])[user_rows.indptr], seen_positions[is_candidate]


def list_of_best(users: np.ndarray, ids: np.ndarray, scores: np.ndarray, name: str = "user") -> dict[str, np.ndarray]:
    """Return ranked items as columns with a row for each recommendation, without ranks of score -inf.

    The columns are `name` (of `users`), "item", "score" and "rank" (from 1).
    """
    exists = scores > -np.inf
    rows, ranks = np.nonzero(exists)
    return {name: users[rows], "item": ids[exists], "score": scores[exists], "rank": ranks + 1}
