"""Rows of feature tables, aligned by the ids that stand in a column or in the index of pandas."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.numbers import show_names
from fastfedrec.data._frames import columns_by_name
from fastfedrec.data.column_names import known_columns
from fastfedrec.data.ids import IdIndex, axis_ids, check_kinds, id_at

_N_FIRST = 8  # rows in which a column of ids has one that is known
_MIN_SHARE_OF_IDS = 0.9  # of the axis: a column with fewer distinct ids is a feature whose values happen to be ids


class IdColumn(NamedTuple):
    """The ids of a table's rows, and their name in messages."""

    called: str
    ids: Any


def split_ids(name: str, axis: str, given: Any) -> tuple[IdColumn | None, dict[Any, Any]]:
    """Separate the ids of a table's rows from its other columns.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    axis : {"user", "item"}
        The axis that the rows describe.
    given : mapping, frame or None
        The column of ids is called as `axis`, or by a name that publishers use for it, or is the index of pandas.

    Returns
    -------
    tuple of IdColumn or None, and dict
        None where rows are in the order of the axis.

    Raises
    ------
    KeyError
        Two columns may be the ids.
    ValueError
        An index that is neither 0 to n - 1 nor known as ids, or columns with different indexes.
    """
    columns = columns_by_name(name, given)
    index = _shared_index(name, columns)
    known = _known_name(name, axis, columns, index)
    if known in columns:
        return IdColumn(f"{name}[{known!r}]", columns.pop(known)), columns
    if index is None or (known is None and _counts_rows(index)):
        return None, columns
    if known is None:
        raise ValueError(
            f"{name} has an index of pandas that is not 0 to n - 1: it begins with {index[:1].tolist()[0]!r}; where it "
            f"holds the ids, name it {axis!r} with rename_axis({axis!r}); where rows are in the order of {axis}_ids, "
            "remove it with reset_index(drop=True)"
        )
    if bare := [column for column, values in columns.items() if _index_of(values) is None]:
        raise ValueError(
            f"{name}[{bare[0]!r}] must have the index {known!r} that other columns have, got none; give all columns in "
            "one frame"
        )
    return IdColumn(f"{name}.index", index), columns


def align_columns(
    name: str, axis: str, given: Any, axis_values: NDArray[Any]
) -> tuple[dict[Any, Any], NDArray[np.int64] | None]:
    """Find the row of each user or item in a table of features.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    axis : {"user", "item"}
        The axis that the rows describe.
    given : mapping, frame or None
        As in `split_ids`.
    axis_values : ndarray
        The ids of the axis.

    Returns
    -------
    tuple of dict, and ndarray of int64 or None
        The columns without the ids; and the row of each id of the axis, or None where rows are in this order.

    Raises
    ------
    TypeError, ValueError
        Ids of another type, ids that are repeated, or a user or an item without a row.
    """
    id_column, columns = split_ids(name, axis, given)
    if id_column is None:
        return columns, None
    ids = axis_ids(id_column.called, id_column.ids, None)
    for column, values in columns.items():
        if hasattr(values, "__len__") and len(values) != len(ids):
            raise ValueError(f"{name}[{column!r}] must have {len(ids)} entries, one for each id, got {len(values)}")
    check_kinds(id_column.called, ids, axis_values, of=f"the {axis}s' ids")
    rows = IdIndex(axis, ids).find(axis_values)
    if (missing := np.flatnonzero(rows < 0)).size:
        # Users are never named.
        first = "" if axis == "user" else f", the first is {id_at(axis_values, missing[0])!r}"
        raise ValueError(
            f"{id_column.called} must have a row for each of the {len(rows)} {axis}s, got none for {missing.size} of "
            f"them{first}; add these rows"
        )
    return columns, rows


def refuse_unnamed_ids(name: str, axis: str, columns: Mapping[Any, Any], axis_values: NDArray[Any]) -> None:
    """Raise where a table without ids has a column that holds nearly all of the axis, in another order.

    Where ids number the rows from 0, only columns with names that end in "id" are compared: any other column may hold
    these numbers, such as a rank.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    axis : {"user", "item"}
        The axis that the rows describe.
    columns : mapping of str to ndarray
        All columns.
    axis_values : ndarray
        The ids of the axis.

    Raises
    ------
    ValueError
        The column is named.
    """
    are_numbers_of_rows = axis_values.dtype.kind in "iu" and (axis_values == np.arange(len(axis_values))).all()
    index = IdIndex(axis, axis_values)
    for column, values in columns.items():
        if are_numbers_of_rows and not str(column).lower().endswith("id"):
            continue
        # Most columns hold no ids in their first rows, and the rest of them is not looked at.
        if len(values) != len(axis_values) or not (index.find(values[:_N_FIRST]) >= 0).any():
            continue
        rows = index.find(values)
        n_ids = len(np.unique(rows[rows >= 0]))
        if n_ids >= _MIN_SHARE_OF_IDS * len(rows) and (rows != np.arange(len(rows))).any():
            raise ValueError(
                f"{name}[{column!r}] has the ids of {n_ids} of the {len(rows)} {axis}s, in another order than "
                f"{axis}_ids; name it {axis!r} to align the rows by it, or add a column {axis!r} with each row's id"
            )


def _known_name(name: str, axis: str, columns: Mapping[Any, Any], index: Any) -> str | None:
    """The name of the column or index of ids."""
    if axis in columns:
        return axis
    names = [column for column in columns if isinstance(column, str)]
    of_index = [index.name] if index is not None and isinstance(index.name, str) else []
    try:
        return known_columns([*names, *(label for label in of_index if label not in names)], [axis]).get(axis)
    except KeyError:
        raise KeyError(
            f"{name} must have one column of ids, and several of {show_names([*names, *of_index])} may be it; rename "
            f"the right one to {axis!r}"
        ) from None


def _index_of(column: Any) -> Any:
    """The index of a column of pandas, and None of all others: the `index` of a list is a method."""
    return getattr(column, "index", None) if hasattr(column, "iloc") else None


def _shared_index(name: str, columns: Mapping[Any, Any]) -> Any:
    """The index that all columns of pandas have."""
    indexes = {column: index for column, values in columns.items() if (index := _index_of(values)) is not None}
    if not indexes:
        return None
    first, index = next(iter(indexes.items()))
    for column, other in indexes.items():
        if not index.equals(other):
            raise ValueError(
                f"{name} must have columns with one index, got another index of {column!r} than of {first!r}; join the "
                "columns in one frame of pandas first"
            )
    return index


def _counts_rows(index: Any) -> bool:
    """Return whether an index is 0 to n - 1."""
    labels = np.asarray(index)
    return labels.ndim == 1 and labels.dtype.kind in "iu" and bool((labels == np.arange(len(labels))).all())
