"""What models are asked and what they answer, as people have it: lists of ids, candidates, frames."""

import functools
import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.numbers import show_names
from fastfedrec.data.conversion import as_interactions, frame_columns, native_frame, value_column
from fastfedrec.data.ids import check_exact, check_kinds, check_one_column, column_array, id_at
from fastfedrec.data.interactions import Interactions


def as_column(name: str, ids: Any) -> np.ndarray:
    """Ids as an array of one dimension, in their order.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    ids : array_like
        External ids.

    Returns
    -------
    ndarray
        Of any type.

    Raises
    ------
    TypeError, ValueError
        A single id, a set, a mapping, a table, or more dimensions.
    """
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a sequence of ids, got the single id {ids!r}; pass [{ids!r}]")
    if isinstance(ids, Mapping):  # perhaps of each user's own
        raise TypeError(f"{name} must be ids alone, got a {type(ids).__name__}; pass a list of its keys if meant")
    check_one_column(name, ids)
    column = column_array(name, ids)
    check_exact(name, column)
    return column


def find_rows(data: Interactions, axis: str, ids: Any, name: str) -> NDArray[np.int64]:
    """Rows of ids, some of which may be unknown.

    Parameters
    ----------
    data : Interactions
        The model's.
    axis : {"user", "item"}
        Whose ids they are.
    ids : array_like
        External ids.
    name : str
        The argument's name, for the message.

    Returns
    -------
    ndarray of int64
        -1 for an unknown one.

    Raises
    ------
    TypeError
        None of them can equal any of the model's: it has numbers, and these are strings.
    """
    wanted = as_column(name, ids)
    check_kinds(name, wanted, getattr(data, f"{axis}_ids"), of=f"the model's {axis}s")
    return data._index(axis).find(wanted)


def choose_columns(data: Interactions, items: Any, exclude: Any) -> NDArray[np.int64] | None:
    """Columns that may be recommended.

    Parameters
    ----------
    data : Interactions
        Over the model's items.
    items : array_like or None
        External ids of the candidates; None for all items.
    exclude : array_like or None
        External ids that are none, whatever `items` says; one that the model does not know is none anyway.  Where it
        knows none of them, it warns.

    Returns
    -------
    ndarray of int64, or None
        Ascending and distinct; None for all.

    Raises
    ------
    KeyError
        A candidate that the model does not know.
    ValueError
        Nothing is left.
    """
    if items is None and exclude is None:
        return None
    chosen = np.ones(data.n_items, dtype=bool)
    if items is not None:
        wanted = as_column("items", items)
        chosen[:] = False
        chosen[data.item_index(wanted)] = True
    if exclude is not None:
        found = find_rows(data, "item", exclude, "exclude")
        if len(found) and (found < 0).all():
            first = id_at(as_column("exclude", exclude), 0)
            warnings.warn(
                f"exclude names none of the model's {data.n_items} items, so it leaves none out; its first id is "
                f"{first!r}, and the model's first is {id_at(data.item_ids, 0)!r}",
                stacklevel=3,
            )
        chosen[found[found >= 0]] = False
    if not chosen.any():
        what = "items must name an item" if exclude is None else "exclude must leave an item to recommend"
        raise ValueError(f"{what}, got none of the {data.n_items} there are")
    return None if chosen.all() else np.flatnonzero(chosen)


def seen_among(data: Interactions, rows: np.ndarray, columns: np.ndarray | None) -> Any:
    """What some users have, as compressed rows over some columns.

    Parameters
    ----------
    data : Interactions
        Of all users.
    rows : ndarray of int64
        The users.
    columns : ndarray of int64, or None
        Ascending; None for all.

    Returns
    -------
    Interactions, or (indptr, indices)
        As `fastfedrec.compute.ranking` takes them.
    """
    own = data._take_users(rows)
    if columns is None:
        return own
    places = np.full(data.n_items, -1, dtype=np.int32)
    places[columns] = np.arange(len(columns), dtype=np.int32)
    found = places[own.indices]
    kept = found >= 0
    return np.concatenate([[0], np.cumsum(kept)])[own.indptr], found[kept]


def people_of(given: Any, data: Interactions, *, takes_ratings: bool, unknown: str) -> Interactions:
    """People who were not there, over a model's items.

    Parameters
    ----------
    given : array_like, mapping, frame, SciPy matrix or Interactions
        What `Recommender.recommend_for` was given.
    data : Interactions
        The model's.
    takes_ratings : bool
        Whether an item without a value says nothing.
    unknown : {"error", "skip"}
        What becomes of an item that the model does not know.

    Returns
    -------
    Interactions
        One person, or several.

    Raises
    ------
    TypeError
        Ratings are missing.
    ValueError
        Somebody has an item that the model does not know.
    """
    people = _people(given, data.item_ids, takes_ratings)
    if not people.n_users:
        raise ValueError("item_ids must be of one person at least, got none")
    if np.array_equal(people.item_ids, data.item_ids):
        return people
    columns = find_rows(data, "item", people.item_ids, "item_ids")[people.indices]
    known = columns >= 0
    if unknown == "error" and not known.all():
        stranger = id_at(people.item_ids, people.indices[known.argmin()])
        raise ValueError(
            f"item_ids must be items that the model knows, got {stranger!r}; leave it out, or pass unknown='skip'"
        )
    users = np.repeat(np.arange(people.n_users), people.interactions_per_user())[known]
    values, times = (None if column is None else column[known] for column in (people.values, people.timestamps))
    placed = Interactions.from_arrays(
        people.user_ids[users], data.item_ids[columns[known]], values, times, duplicates="error",
        user_ids=people.user_ids, item_ids=data.item_ids,
    )  # fmt: skip
    return placed.with_features(user_features=people.user_features)


def _people(given: Any, item_ids: np.ndarray, takes_ratings: bool) -> Interactions:
    """Over whatever items they have."""
    given = native_frame(given)
    names = frame_columns(given)
    if names is not None and takes_ratings and value_column(names) is None:
        there = show_names(names)
        raise TypeError(f"item_ids must have a column of ratings, called value or rating, got the columns {there}")
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
    options: dict[str, Any] = {} if len(column) else {"item_ids": item_ids}
    return Interactions.from_arrays(
        np.zeros(len(column), dtype=np.int64), column, values, user_ids=[0], duplicates="sum", **options
    )


def frame_maker() -> Callable[[Mapping[str, np.ndarray]], Any]:
    """What makes a frame of columns: pandas, or polars where that is missing.

    Returns
    -------
    callable
        From columns by name.

    Raises
    ------
    ImportError
        Neither is there.
    """
    for name, make in (("pandas", _pandas), ("polars", _polars)):
        try:
            return functools.partial(make, importlib.import_module(name))
        except ImportError:
            continue
    raise ImportError("as_frame=True needs pandas or polars: pip install pandas, or pass as_frame=False")


def _pandas(pandas: Any, columns: Mapping[str, np.ndarray]) -> Any:
    return pandas.DataFrame(dict(columns))


def _polars(polars: Any, columns: Mapping[str, np.ndarray]) -> Any:
    # Ids that are tuples, or of several types, are no column of numbers or text.
    return polars.DataFrame(
        {
            name: polars.Series(column.tolist(), dtype=polars.Object) if column.dtype.kind == "O" else column
            for name, column in columns.items()
        }
    )


def list_of_best(users: np.ndarray, ids: np.ndarray, scores: np.ndarray, name: str = "user") -> dict[str, np.ndarray]:
    """Recommendations one below the other, without the places where there is none.

    Parameters
    ----------
    users : ndarray of shape (n_rows,)
        Whose they are.
    ids, scores : ndarray of shape (n_rows, n)
        Of which -inf is none.
    name : str
        What the first column is called.

    Returns
    -------
    dict of str to ndarray
        `name`, "item", "score" and "rank" (from 1).
    """
    there = scores > -np.inf
    rows, ranks = np.nonzero(there)
    return {name: users[rows], "item": ids[there], "score": scores[there], "rank": ranks + 1}
