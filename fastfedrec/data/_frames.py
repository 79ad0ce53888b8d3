"""Columns of frames in NumPy's types; pyarrow or polars is imported only for Arrow streams of other libraries."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastfedrec.core.check import plain_array
from fastfedrec.core.numbers import show_names
from fastfedrec.data.ids import check_one_column
from fastfedrec.data.pairs import check_values
from fastfedrec.data.times import check_timestamps

_NATIVE = {"pandas", "polars", "pyarrow"}  # frames of these libraries are read as they are


def is_frame(given: Any) -> bool:
    """Whether it is a table with named columns: of pandas, polars (also lazy) or pyarrow, or an Arrow stream."""
    return is_lazy(given) or _has_columns(given) or _is_stream(given)


def _has_columns(given: Any) -> bool:
    return hasattr(given, "columns") and hasattr(given, "__getitem__")


def _is_stream(given: Any) -> bool:
    """Return whether it is a table with Arrow's C stream interface, which single columns have, too."""
    kind = type(given)  # the names of columns may be attributes of the object itself
    is_column = (hasattr(kind, "dtype") or hasattr(kind, "type")) and not hasattr(kind, "columns")
    return hasattr(kind, "__arrow_c_stream__") and not is_column


def native_frame(given: Any) -> Any:
    """Return a frame with columns by name; an Arrow stream of another library, which is read once, becomes a table.

    Parameters
    ----------
    given : object
        Anything, such as a relation of DuckDB, a frame of narwhals or cuDF, a table of Ibis, or a reader of pyarrow.

    Returns
    -------
    object
        A table of pyarrow, or of polars without it.  Other objects are returned as they are.

    Raises
    ------
    ImportError
        Neither pyarrow nor polars is installed.
    TypeError
        The stream has no named columns, or its library does not let it out.
    """
    is_native = any(kind.__module__.partition(".")[0] in _NATIVE for kind in type(given).__mro__)
    if is_lazy(given) or not _is_stream(given) or (is_native and _has_columns(given)):
        return given
    make = _table_maker(type(given).__name__)
    try:
        return make(given)
    except Exception as error:
        raise TypeError(
            f"a {type(given).__name__} must be an Arrow stream of rows with named columns: {error}; convert it to a "
            "frame of pandas, polars or pyarrow"
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
            f"reading a {kind} needs pyarrow or polars: pip install 'fastfedrec[data]'; from_arrays takes its columns"
        ) from None


def is_lazy(given: Any) -> bool:
    """Whether it is a polars LazyFrame, which has not read anything yet."""
    return hasattr(given, "collect") and hasattr(given, "collect_schema")


def column_names(frame: Any) -> list[Any]:
    """The names of its columns, in order."""
    if is_lazy(frame):
        return list(frame.collect_schema().names())
    return list(getattr(frame, "column_names", frame.columns))  # pyarrow's `columns` are the data


def columns_by_name(name: str, given: Any) -> dict[Any, Any]:
    """The columns of a mapping or of a frame.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    given : mapping, frame or None
        None has none.

    Returns
    -------
    dict
        As they are.

    Raises
    ------
    KeyError
        Two columns of one name.
    TypeError
        Anything else.
    """
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    if not is_frame(given):
        raise TypeError(f"{name} must be columns by their names, a mapping or a frame, got {type(given).__name__}")
    given = native_frame(given)
    names = column_names(given)
    if len(set(names)) < len(names):
        raise KeyError(f"{name} must have each name once, the frame has {show_names(names)}")
    frame = native_frame(given.collect()) if is_lazy(given) else given
    return {column: frame[column] for column in names}


def read_rows(frame: Any, wanted: dict[str, str | None], timestamp_unit: str) -> dict[str, Any]:
    """The arrays of a frame's rows, as `Interactions.from_arrays` takes them.

    Parameters
    ----------
    frame : object
        As `is_frame` knows it; of a lazy one only what is asked for is read.
    wanted : dict of str to str or None
        From "user", "item", "value" and "timestamp" to the name of a column.
    timestamp_unit : str
        What dates and times become.

    Returns
    -------
    dict of str to ndarray
        "users", "items", and where there are such "values" and "timestamps".

    Raises
    ------
    KeyError
        A column that is not there, or twice.
    TypeError
        No frame.
    ValueError
        A missing entry, unless it is a timestamp.
    """
    if not is_frame(frame):
        kinds = "a pandas or polars frame, or a pyarrow Table"
        raise TypeError(f"frame must be {kinds}, got {type(frame).__name__}; see from_arrays")
    frame = native_frame(frame)
    names = column_names(frame)
    wanted = {role: name for role, name in wanted.items() if name is not None}
    for role, name in wanted.items():
        if names.count(name) != 1:
            what = "stands there more than once" if name in names else "is not a column"
            raise KeyError(f"{role}={name!r} {what}; the frame has {show_names(names)}")
    if is_lazy(frame):
        frame = native_frame(frame.select(list(dict.fromkeys(wanted.values()))).collect())
    rows = {}
    for role, name in wanted.items():
        column, called = frame[name], f"column {name!r} ({role})"
        if role == "timestamp":
            rows["timestamps"] = check_timestamps(column, len(column), unit=timestamp_unit, name=called)
        else:
            if role != "value":
                check_one_column(called, column)
            array = _present(called, column)
            rows[f"{role}s"] = check_values(called, array, len(column)) if role == "value" else array
    return rows


def _present(called: str, column: Any) -> np.ndarray:
    """A column's entries as an array, or the refusal of a missing one."""
    missing = np.asarray(column.is_null() if hasattr(column, "is_null") else column.isna())
    if missing.any():
        raise ValueError(
            f"{called} has {missing.sum()} missing entries, the first at position {missing.argmax()}; drop or fill "
            "those rows"
        )
    if hasattr(dtype := getattr(column, "dtype", None), "numpy_dtype"):  # nullable ones of pandas
        return column.to_numpy(dtype=dtype.numpy_dtype)  # type: ignore[union-attr]
    return plain_array(called, column, missing=True)  # which was looked for above
