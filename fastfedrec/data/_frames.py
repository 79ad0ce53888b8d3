"""Conversion of frame columns to NumPy; only Arrow streams of other libraries import pyarrow or polars."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastfedrec.core.check import plain_array
from fastfedrec.core.numbers import show_names
from fastfedrec.data.ids import check_one_column
from fastfedrec.data.pairs import check_values
from fastfedrec.data.times import check_timestamps

_NATIVE = {"pandas", "polars", "pyarrow"}  # frames of these libraries need no conversion


def is_frame(given: Any) -> bool:
    """Return whether an object is a frame of pandas, polars (also lazy) or pyarrow, or an Arrow stream."""
    return is_lazy(given) or _has_columns(given) or _is_stream(given)


def _has_columns(given: Any) -> bool:
    return hasattr(given, "columns") and hasattr(given, "__getitem__")


def _is_stream(given: Any) -> bool:
    """Return whether an object is a table with Arrow's C stream interface."""
    # Single columns have the interface, too.  The type is examined, because columns may be attributes of the object.
    kind = type(given)
    is_column = (hasattr(kind, "dtype") or hasattr(kind, "type")) and not hasattr(kind, "columns")
    return hasattr(kind, "__arrow_c_stream__") and not is_column


def native_frame(given: Any) -> Any:
    """Convert an Arrow stream, which can be read once, to a table of pyarrow or polars; return other objects unchanged.

    Parameters
    ----------
    given : object
        Object of any type, such as a DuckDB relation, a narwhals or cuDF frame, an Ibis table, or a pyarrow reader.

    Returns
    -------
    object
        Table of pyarrow, or of polars if pyarrow is not installed, or the object itself.

    Raises
    ------
    ImportError
        Neither pyarrow nor polars is installed.
    TypeError
        A stream without named columns, or one that its library cannot export.
    """
    is_native = any(kind.__module__.partition(".")[0] in _NATIVE for kind in type(given).__mro__)
    if is_lazy(given) or not _is_stream(given) or (is_native and _has_columns(given)):
        return given
    make = _table_maker(type(given).__name__)
    try:
        return make(given)
    except Exception as error:
        raise TypeError(
            f"a {type(given).__name__} must be an Arrow stream with named columns ({error}); convert it to a frame of "
            "pandas, polars or pyarrow"
        ) from error


def _table_maker(kind: str) -> Callable[[Any], Any]:
    try:
        import pyarrow

        return pyarrow.table
    except ImportError:
        pass
    try:
        import polars

        return polars.DataFrame
    except ImportError:
        raise ImportError(
            f"reading a {kind} needs pyarrow or polars: pip install 'fastfedrec[data]', or use from_arrays"
        ) from None


def is_lazy(given: Any) -> bool:
    """Return whether an object is a polars LazyFrame, which reads its data only when it is collected."""
    return hasattr(given, "collect") and hasattr(given, "collect_schema")


def column_names(frame: Any) -> list[Any]:
    """Return the names of a frame's columns, in order."""
    if is_lazy(frame):
        return list(frame.collect_schema().names())
    return list(getattr(frame, "column_names", frame.columns))  # `columns` of pyarrow holds the data


def columns_by_name(name: str, given: Any) -> dict[Any, Any]:
    """Return the columns of a mapping or a frame by name; None has no columns."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    if not is_frame(given):
        raise TypeError(
            f"{name} must be a mapping or a frame, got {type(given).__name__}; pass columns as {{'name': column}}"
        )
    given = native_frame(given)
    names = column_names(given)
    if len(set(names)) < len(names):
        raise KeyError(f"{name} must have distinct column names, got {show_names(names)}; rename the repeated one")
    frame = native_frame(given.collect()) if is_lazy(given) else given
    return {column: frame[column] for column in names}


def read_rows(frame: Any, roles: dict[str, str | None], timestamp_unit: str) -> dict[str, Any]:
    """Return the columns of a frame by role, as arguments of `Interactions.from_arrays`."""
    if not is_frame(frame):
        kinds = "a pandas or polars frame, or a pyarrow Table"
        raise TypeError(f"frame must be {kinds}, got {type(frame).__name__}; see from_arrays")
    frame = native_frame(frame)
    names = column_names(frame)
    column_of = {role: name for role, name in roles.items() if name is not None}
    for role, name in column_of.items():
        if names.count(name) != 1:
            fault = "occurs more than once" if name in names else "is not a column"
            raise KeyError(f"{role}={name!r} {fault}; the frame has {show_names(names)}")
    if is_lazy(frame):
        # Only the named columns of a lazy frame are read.
        frame = native_frame(frame.select(list(dict.fromkeys(column_of.values()))).collect())
    rows = {}
    for role, name in column_of.items():
        column, called = frame[name], f"column {name!r} ({role})"
        # Timestamps may be missing; ids and values may not.
        if role == "timestamp":
            rows["timestamps"] = check_timestamps(column, len(column), unit=timestamp_unit, name=called)
        else:
            if role != "value":
                check_one_column(called, column)
            array = _present(called, column)
            rows[f"{role}s"] = check_values(called, array, len(column)) if role == "value" else array
    return rows


def to_dataframe(self: Any) -> Any:
    """Return a pandas table with one row per interaction, for `from_dataframe` or for other packages.

    Returns
    -------
    pandas.DataFrame
        Columns "user" and "item" with the ids, "value" if there are values, and "timestamp" if there are any, by users
        and items in order.  Users and items without interactions are not in it.

    Raises
    ------
    ImportError
        pandas is not installed.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> Interactions.from_arrays(["ann", "bob"], [7, 8], [5.0, 3.0]).to_dataframe().values.tolist()
    [['ann', 7, 5.0], ['bob', 8, 3.0]]
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("to_dataframe needs pandas: pip install pandas") from None
    users = np.repeat(self.user_ids, np.diff(self.indptr))
    optional = {"value": self.values, "timestamp": self.timestamps}
    columns = {"user": users, "item": self.item_ids[self.indices]}
    return pd.DataFrame(columns | {name: column.copy() for name, column in optional.items() if column is not None})


def _present(called: str, column: Any) -> np.ndarray:
    """Return a column as an array, or raise for missing entries."""
    missing = np.asarray(column.is_null() if hasattr(column, "is_null") else column.isna())
    if missing.any():
        raise ValueError(
            f"{called} has {missing.sum()} missing entries, the first at position {missing.argmax()}; drop or fill "
            "those rows"
        )
    if hasattr(dtype := getattr(column, "dtype", None), "numpy_dtype"):  # nullable dtypes of pandas
        return column.to_numpy(dtype=dtype.numpy_dtype)  # type: ignore[union-attr]
    return plain_array(called, column, missing=True)  # the check above found none
