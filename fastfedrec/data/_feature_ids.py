"""Alignment of feature tables by ids in a column or in a pandas index."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.numbers import show_names
from fastfedrec.data._frames import columns_by_name
from fastfedrec.data.column_names import known_columns
from fastfedrec.data.ids import IdIndex, axis_ids, check_kinds, id_at

_N_FIRST = 8  # number of first rows that are searched for a known id before the whole column
_MIN_SHARE_OF_IDS = 0.9  # of the axis; a column with fewer distinct ids is a feature that happens to hold ids


class IdColumn(NamedTuple):
    """Ids of a table's rows, and their name in error messages."""

    called: str
    ids: Any


def split_ids(name: str, axis: str, given: Any) -> tuple[IdColumn | None, dict[Any, Any]]:
    """Return the column of ids of a table, or None if its rows are in the order of the axis, and its other columns."""
    # The ids have the name `axis`, or a usual name for it, as a column or as a pandas index.
    columns = columns_by_name(name, given)
    index = _shared_index(name, columns)
    # A column named `axis` or with a usual name has priority over the index.
    known = _known_name(name, axis, columns, index)
    if known in columns:
        return IdColumn(f"{name}[{known!r}]", columns.pop(known)), columns
    if index is None or (known is None and _counts_rows(index)):
        return None, columns
    if known is None:
        raise ValueError(
            f"{name} must have an index from 0 to n - 1 or an index of ids, got an index that begins with "
            f"{index[:1].tolist()[0]!r}; name ids with rename_axis({axis!r}); if the rows are in the order of "
            f"{axis}_ids, drop the index with reset_index(drop=True)"
        )
    if bare := [column for column, values in columns.items() if _index_of(values) is None]:
        raise ValueError(
            f"{name}[{bare[0]!r}] must have the index {known!r} of the other columns, got no index; pass all columns "
            "in one frame"
        )
    return IdColumn(f"{name}.index", index), columns


def align_columns(
    name: str, axis: str, given: Any, axis_values: NDArray[Any]
) -> tuple[dict[Any, Any], NDArray[np.int64] | None]:
    """Return a table's columns without the ids, and the row of each id of the axis or None for rows in its order."""
    id_column, columns = split_ids(name, axis, given)
    if id_column is None:
        return columns, None
    ids = axis_ids(id_column.called, id_column.ids, None)
    for column, values in columns.items():
        # A sparse matrix has no length, and is refused with a remedy later.
        if hasattr(values, "__len__") and not hasattr(values, "tocsr") and len(values) != len(ids):
            raise ValueError(f"{name}[{column!r}] must have {len(ids)} entries, one for each id, got {len(values)}")
    check_kinds(id_column.called, ids, axis_values, of=f"the {axis}s' ids")
    rows = IdIndex(axis, ids).find(axis_values)
    if (missing := np.flatnonzero(rows < 0)).size:
        # Error messages never name users.
        first = "" if axis == "user" else f", the first is {id_at(axis_values, missing[0])!r}"
        raise ValueError(
            f"{id_column.called} must have a row for each of the {len(rows)} {axis}s, got no row for {missing.size} of "
            f"them{first}; add these rows"
        )
    return columns, rows


def refuse_unnamed_ids(name: str, axis: str, columns: Mapping[Any, Any], axis_values: NDArray[Any]) -> None:
    """Raise if a table without ids has a column that holds nearly all ids of the axis in another order."""
    # If the ids are the row numbers, only columns with a name that ends in "id" count: other columns, such as ranks,
    # may hold the same numbers.
    are_numbers_of_rows = axis_values.dtype.kind in "iu" and (axis_values == np.arange(len(axis_values))).all()
    index = IdIndex(axis, axis_values)
    for column, values in columns.items():
        if are_numbers_of_rows and not str(column).lower().endswith("id"):
            continue
        # The first rows of most columns hold no ids, so the search of all rows is rarely needed.
        if len(values) != len(axis_values) or not (index.find(values[:_N_FIRST]) >= 0).any():
            continue
        rows = index.find(values)
        n_ids = len(np.unique(rows[rows >= 0]))
        if n_ids >= _MIN_SHARE_OF_IDS * len(rows) and (rows != np.arange(len(rows))).any():
            raise ValueError(
                f"{name}[{column!r}] must not hold ids in another order than {axis}_ids, got the ids of {n_ids} of the "
                f"{len(rows)} {axis}s; name it {axis!r} to align the rows by it, or add a column {axis!r} of ids"
            )


def _known_name(name: str, axis: str, columns: Mapping[Any, Any], index: Any) -> str | None:
    """Return the name of the column or index of ids, or None."""
    if axis in columns:
        return axis
    names = [column for column in columns if isinstance(column, str)]
    of_index = [index.name] if index is not None and isinstance(index.name, str) else []
    try:
        return known_columns([*names, *(label for label in of_index if label not in names)], [axis]).get(axis)
    except KeyError:
        raise KeyError(
            f"{name} must have one column of ids, got several candidates among {show_names([*names, *of_index])}; "
            f"rename the right one to {axis!r}"
        ) from None


def _index_of(column: Any) -> Any:
    """Return the index of a pandas column, or None for other columns."""
    # `iloc` identifies pandas; the attribute `index` of a list is a method.
    return getattr(column, "index", None) if hasattr(column, "iloc") else None


def _shared_index(name: str, columns: Mapping[Any, Any]) -> Any:
    """Return the common index of all pandas columns, or None; raise if the indexes differ."""
    indexes = {column: index for column, values in columns.items() if (index := _index_of(values)) is not None}
    if not indexes:
        return None
    first, index = next(iter(indexes.items()))
    for column, other in indexes.items():
        if not index.equals(other):
            raise ValueError(
                f"{name} must have columns with equal indexes, got different indexes of {column!r} and {first!r}; join "
                "the columns in one pandas frame first"
            )
    return index


def _counts_rows(index: Any) -> bool:
    """Return whether an index is 0 to n - 1."""
    labels = np.asarray(index)
    return labels.ndim == 1 and labels.dtype.kind in "iu" and bool((labels == np.arange(len(labels))).all())
