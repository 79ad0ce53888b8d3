"""Arguments and results of a model's queries: lists of ids, candidates, new users' rows, and frames."""

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.numbers import show_names
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import as_interactions, frame_columns, native_frame, value_column
from fastfedrec.data.ids import check_exact, check_kinds, check_one_column, column_array, id_at
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


def find_rows(data: Interactions, axis: str, ids: Any, name: str) -> NDArray[np.int64]:
    """Return the rows of ids on an axis, -1 for an unknown id; raise `TypeError` if the ids' kinds cannot match."""
    id_column = as_column(name, ids)
    check_kinds(name, id_column, getattr(data, f"{axis}_ids"), of=f"the model's {axis}s")
    return data._index(axis).find(id_column)


def choose_columns(data: Interactions, items: Any, exclude: Any) -> NDArray[np.int64] | None:
    """Return the columns that may be recommended, ascending, or None for all.

    Unknown ids of `exclude` are ignored, with a warning if all are unknown.  An unknown candidate raises `KeyError`,
    and an empty result `ValueError`.
    """
    if items is None and exclude is None:
        return None
    chosen = np.ones(data.n_items, dtype=bool)
    if items is not None:
        candidates = as_column("items", items)
        chosen[:] = False
        chosen[data.item_index(candidates)] = True
    if exclude is not None:
        columns = find_rows(data, "item", exclude, "exclude")
        if len(columns) and (columns < 0).all():
            first = id_at(as_column("exclude", exclude), 0)
            warn(
                f"exclude names none of the model's {data.n_items} items, so it leaves none out; its first id is "
                f"{first!r}, and the model's first is {id_at(data.item_ids, 0)!r}",
            )
        chosen[columns[columns >= 0]] = False
    if not chosen.any():
        reason = "items must name an item" if exclude is None else "exclude must leave an item to recommend"
        raise ValueError(f"{reason}, got none of the model's {data.n_items}")
    return None if chosen.all() else np.flatnonzero(chosen)


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


def read_new_users(given: Any, data: Interactions, *, takes_ratings: bool, unknown: str) -> Interactions:
    """Return the rows of new users, as `Recommender.recommend_for` gets them, over the model's items.

    Missing ratings raise `TypeError`; an unknown item raises `ValueError` unless `unknown` is "skip".
    """
    users = _read_rows(given, data.item_ids, takes_ratings)
    if not users.n_users:
        raise ValueError("item_ids must have at least one user, got none")
    if np.array_equal(users.item_ids, data.item_ids):
        return users
    columns = find_rows(data, "item", users.item_ids, "item_ids")[users.indices]
    known = columns >= 0
    if unknown == "error" and not known.all():
        unknown_id = id_at(users.item_ids, users.indices[known.argmin()])
        raise ValueError(
            f"item_ids must be items that the model knows, got {unknown_id!r}; leave it out, or pass unknown='skip'"
        )
    row_numbers = np.repeat(np.arange(users.n_users), users.interactions_per_user())[known]
    values, times = (None if column is None else column[known] for column in (users.values, users.timestamps))
    new_users = Interactions.from_arrays(
        users.user_ids[row_numbers], data.item_ids[columns[known]], values, times, duplicates="error",
        user_ids=users.user_ids, item_ids=data.item_ids,
    )  # fmt: skip
    return new_users.with_features(user_features=users.user_features)


def _read_rows(given: Any, item_ids: np.ndarray, takes_ratings: bool) -> Interactions:
    """Return new users' rows over their own items."""
    given = native_frame(given)
    names = frame_columns(given)
    if names is not None and takes_ratings and value_column(names) is None:
        shown = show_names(names)
        raise TypeError(f"item_ids must have a column of ratings, called value or rating, got the columns {shown}")
    if names is not None:
        return as_interactions("item_ids", given)
    if isinstance(given, Interactions) or scipy.sparse.issparse(given):
        return as_interactions("item_ids", given, item_ids=item_ids)
    values = None
    if isinstance(given, Mapping):
        given, values = list(given), list(given.values())
    elif takes_ratings:
        raise TypeError(
            "item_ids must come with ratings for this model; pass {item: rating}, or a frame with the columns user, "
            "item and value"
        )
    column = as_column("item_ids", given)
    # An empty column has no kind of ids, so it takes the model's.
    options: dict[str, Any] = {} if len(column) else {"item_ids": item_ids}
    return Interactions.from_arrays(
        np.zeros(len(column), dtype=np.int64), column, values, user_ids=[0], duplicates="sum", **options
    )


def frame_maker() -> Callable[[Mapping[str, np.ndarray]], Any]:
    """Return a function that makes a frame of columns, of pandas or else of polars; raise if both are missing."""
    for name, make in (("pandas", _pandas), ("polars", _polars)):
        try:
            return functools.partial(make, importlib.import_module(name))
        except ImportError:
            continue
    raise ImportError("as_frame=True needs pandas or polars: pip install pandas, or pass as_frame=False")


def _pandas(pandas: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Return a pandas frame."""
    return pandas.DataFrame(dict(columns))


def _polars(polars: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Return a polars frame; ids of several types or tuples go into columns of objects."""
    return polars.DataFrame(
        {
            name: polars.Series(column.tolist(), dtype=polars.Object) if column.dtype.kind == "O" else column
            for name, column in columns.items()
        }
    )


def list_of_best(users: np.ndarray, ids: np.ndarray, scores: np.ndarray, name: str = "user") -> dict[str, np.ndarray]:
    """Return ranked items as columns with a row for each recommendation, without ranks of score -inf.

    The columns are `name` (of `users`), "item", "score" and "rank" (from 1).
    """
    exists = scores > -np.inf
    rows, ranks = np.nonzero(exists)
    return {name: users[rows], "item": ids[exists], "score": scores[exists], "rank": ranks + 1}
