"""Rows of new users over a model's items, from the items of one or several users."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fastfedrec.core.interface import choose_words
from fastfedrec.core.numbers import show_names
from fastfedrec.data.conversion import as_interactions, frame_columns, is_table, native_frame, value_column
from fastfedrec.data.csr import owned
from fastfedrec.data.ids import axis_ids, id_at, join_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.merging import merge_duplicates
from fastfedrec.data.pairs import check_values, compact_values, sort_pairs
from fastfedrec.systems._tables import as_column, find_column, has_lists

_NUMBER_OF_ONE_USER = owned(np.zeros(1, dtype=np.int64))


def read_new_users(given: Any, data: Interactions, *, takes_ratings: bool, unknown: str) -> Interactions:
    """Return the rows of new users, as `Recommender.recommend_for` gets them, over the model's items.

    Missing ratings raise `TypeError`; an unknown item raises `ValueError` unless `unknown` is "skip".
    """
    given = native_frame(given)
    if is_table(given):
        return _read_table(given, data, takes_ratings, unknown)
    if has_lists("item_ids", given, of="ids" if isinstance(given, list | tuple) else "values"):
        is_named = isinstance(given, Mapping)
        lists = list(given.values() if is_named else given)
        user_ids = axis_ids("item_ids", list(given), None) if is_named else np.arange(len(lists))
        lengths, items, values = _join(lists, takes_ratings)
    else:
        user_ids, (items, values) = _NUMBER_OF_ONE_USER, _items_and_values(given, takes_ratings)
        lengths = np.array([len(items)])
    ratings = None if values is None else check_values("item_ids", values, len(items))
    columns = find_column(data, "item", items, "item_ids")
    known = _check_known(columns, items, unknown)
    rows = np.repeat(np.arange(len(user_ids)), lengths)
    if known is not None:
        rows, columns, ratings = rows[known], columns[known], None if ratings is None else ratings[known]
    return _over_items(data, user_ids, rows, columns, ratings)


def _join(lists: list[Any], takes_ratings: bool) -> tuple[np.ndarray, np.ndarray, list[Any] | None]:
    """Return the number of items of each user, all items in order, and their values."""
    parts = [_items_and_values(one, takes_ratings) for one in lists]
    lengths = np.array([len(items) for items, _ in parts])
    if len({values is None for _, values in parts}) > 1:
        raise TypeError("item_ids must have values for all users or for none, got both; pass {item: value} for each")
    items = join_ids([one for one, _ in parts])
    if parts[0][1] is None:
        return lengths, items, None
    return lengths, items, [value for _, values in parts for value in values or ()]


def _items_and_values(given: Any, takes_ratings: bool) -> tuple[np.ndarray, list[Any] | None]:
    """Return the items of one user, and the values of a mapping."""
    if isinstance(given, Mapping):
        return as_column("item_ids", list(given)), list(given.values())
    if takes_ratings:
        raise TypeError(
            "item_ids must come with ratings for this model; pass {item: rating}, or a frame with the columns user, "
            "item and value"
        )
    return as_column("item_ids", given), None


def _read_table(given: Any, data: Interactions, takes_ratings: bool, unknown: str) -> Interactions:
    """Return the rows of interactions, a matrix or a frame over the model's items."""
    names = frame_columns(given)
    if names is not None and takes_ratings and value_column(names) is None:
        shown = show_names(names)
        raise TypeError(f"item_ids must have a column of ratings, called value or rating, got the columns {shown}")
    users = as_interactions("item_ids", given, item_ids=None if names is not None else data.item_ids)
    if not users.n_users:
        raise ValueError("item_ids must have at least one user, got none")
    if users.item_ids is data.item_ids or np.array_equal(users.item_ids, data.item_ids):
        return users
    columns = find_column(data, "item", users.item_ids, "item_ids")[users.indices]
    known = _check_known(columns, users.item_ids[users.indices], unknown)
    selection = slice(None) if known is None else known
    rows = np.repeat(np.arange(users.n_users), users.interactions_per_user())[selection]
    values, times = (None if column is None else column[selection] for column in (users.values, users.timestamps))
    return _over_items(data, users.user_ids, rows, columns[selection], values, times, users.user_features)


def _check_known(columns: np.ndarray, items: Iterable[Any], unknown: str) -> np.ndarray | None:
    """Return a mask of the entries with an item of the model, or None if all have one; raise unless skipped."""
    known = columns >= 0
    if known.all():
        return None
    if unknown == "error":
        unknown_id = id_at(np.asarray(items), int(known.argmin()))
        raise ValueError(
            f"{choose_words('item_ids', '--items-of')} must be items that the model knows, got {unknown_id!r}; leave "
            "it out, or pass unknown='skip'"
        )
    return known


def _over_items(
    data: Interactions,
    user_ids: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray | None,
    timestamps: np.ndarray | None = None,
    user_features: Mapping[str, np.ndarray] | None = None,
) -> Interactions:
    """Return interactions over the model's items from checked entries; values of repeated items are summed."""
    n_users, columns = len(user_ids), columns.astype(np.int32)
    indptr, order = sort_pairs(rows, columns, n_users, data.n_items)
    if order is not None:
        columns = columns[order]
        values, timestamps = (None if entry is None else entry[order] for entry in (values, timestamps))
    indptr, columns, values, timestamps, _ = merge_duplicates(
        indptr, columns, values, timestamps, "sum", user_ids, data.item_ids
    )
    return Interactions._trusted(
        {
            "indptr": owned(indptr),
            "indices": owned(columns),
            "values": compact_values(values),
            "timestamps": timestamps,
            "user_ids": user_ids,
            "item_ids": data.item_ids,
            "global_user_ids": np.arange(n_users, dtype=np.uint64),
            "user_features": user_features or {},
            "item_features": {},
            "catalogue": "public",
        }
    )
