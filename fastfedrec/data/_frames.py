"""Columns of pandas, polars and pyarrow, none of which is imported: what they hold, in NumPy's types."""

from typing import Any

import numpy as np


def is_frame(given: Any) -> bool:
    """Whether it is a table with named columns: a frame of pandas or polars, also lazy, or a table of pyarrow."""
    return is_lazy(given) or (hasattr(given, "columns") and hasattr(given, "__getitem__"))


def is_lazy(given: Any) -> bool:
    """Whether it is a polars LazyFrame, which has not read anything yet."""
    return hasattr(given, "collect") and hasattr(given, "collect_schema")


def column_names(frame: Any) -> list[Any]:
    """The names of its columns, in order."""
    if is_lazy(frame):
        return list(frame.collect_schema().names())
    return list(getattr(frame, "column_names", frame.columns))  # pyarrow's `columns` are the data


def read_columns(frame: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Columns by argument, of those arguments that name one.

    Parameters
    ----------
    frame : object
        As `is_frame` knows it.
    wanted : dict of str to str or None
        From an argument to the name of a column.

    Returns
    -------
    dict of str to object
        The columns themselves.

    Raises
    ------
    KeyError
        A column that is not there, or twice.
    TypeError
        No frame.
    """
    if not is_frame(frame):
        kinds = "a pandas or polars frame, or a pyarrow Table"
        raise TypeError(f"frame must be {kinds}, got {type(frame).__name__}; see from_arrays")
    names = column_names(frame)
    wanted = {argument: name for argument, name in wanted.items() if name is not None}
    for argument, name in wanted.items():
        if names.count(name) != 1:
            what = "stands there more than once" if name in names else "is not a column"
            raise KeyError(f"{argument}={name!r} {what}; the frame has {names}")
    if is_lazy(frame):  # no more is read than is asked for
        frame = frame.select(list(dict.fromkeys(wanted.values()))).collect()
    return {argument: frame[name] for argument, name in wanted.items()}


def present(argument: str, name: Any, column: Any) -> Any:
    """A column's entries as an array, or the refusal of a missing one."""
    missing = np.asarray(column.is_null() if hasattr(column, "is_null") else column.isna())
    if missing.any():
        problem = f"has {missing.sum()} missing entries, the first at position {missing.argmax()}"
        raise ValueError(f"column {name!r} ({argument}) {problem}; drop or fill those rows")
    return column.to_numpy()
