"""Conversion of frames to NumPy and back; a library is imported only for its frames or for Arrow streams."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice, check_integer, plain_array
from fastfedrec.core.numbers import show_names
from fastfedrec.core.text import did_you_mean
from fastfedrec.core.warn import warn
from fastfedrec.data.column_names import known_columns
from fastfedrec.data.ids import check_one_column, warn_of_marks
from fastfedrec.data.pairs import check_values
from fastfedrec.data.times import MISSING_TIMESTAMP, check_timestamps

_NATIVE = ("pandas", "polars", "pyarrow")  # frames of these libraries need no conversion


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


def recognized_columns(names: Sequence[Any], roles: Mapping[str, str | None]) -> dict[str, str]:
    """Return the columns by role: those that are given, and those with usual names, as `load_table` recognizes them."""
    # A column with exactly the role's name has priority, but "value" and "rating" in one frame are ambiguous.
    given = {role: name for role, name in roles.items() if name is not None}
    missing = [role for role in ("user", "item") if role not in given]
    others = [name for name in names if isinstance(name, str) and name not in given.values()] if missing else []
    wanted = [role for role in roles if role not in given and (len(missing) == 2 or role in missing)]
    exact = {role: role for role in wanted if role != "value" and others.count(role) == 1}
    usual = [role for role in wanted if role not in exact]
    known = given | exact | known_columns([name for name in others if name not in exact.values()], usual)
    return {role: known[role] for role in roles if role in known}


def read_rows(
    frame: Any, roles: Mapping[str, str | None], timestamp_unit: str, *, warns: bool = True
) -> dict[str, Any]:
    """Return the columns of a frame by role, as arguments of `Interactions.from_arrays`.

    A column that only its name suggests as times is skipped if it holds no times, with a warning if `warns`.
    """
    if not is_frame(frame):
        kinds = "a pandas or polars frame, or a pyarrow Table"
        raise TypeError(f"frame must be {kinds}, got {type(frame).__name__}; see from_arrays")
    frame = native_frame(frame)
    names = column_names(frame)
    for role, name in roles.items():
        if name is not None and names.count(name) != 1:
            fault = "occurs more than once" if name in names else "is not a column"
            raise KeyError(f"{role}={name!r} {fault}{did_you_mean(name, names)}; the frame has {show_names(names)}")
    column_of = recognized_columns(names, roles)
    if unknown := [role for role in ("user", "item") if role not in column_of]:
        example = ", ".join(f"{role}='COLUMN'" for role in unknown)
        raise KeyError(
            f"{' and '.join(unknown)} must be given, because no column of the frame has a usual name, got "
            f"{show_names(names)}; pass {example}"
        )
    if len(set(column_of.values())) < len(column_of):
        raise ValueError(
            f"{', '.join(column_of)} must be different columns, got {show_names(column_of.values())}; name each column "
            "once"
        )
    if is_lazy(frame):
        # Only the columns of the roles are read from a lazy frame.
        frame = native_frame(frame.select(list(column_of.values())).collect())
    rows = {}
    for role, name in column_of.items():
        column, called = frame[name], f"column {name!r} ({role})"
        # Timestamps may be missing; ids and values may not.
        if role == "timestamp":
            try:
                rows["timestamps"] = check_timestamps(column, len(column), unit=timestamp_unit, name=called)
            except TypeError as error:
                if roles["timestamp"] is not None:
                    raise
                if warns:
                    warn(f"column {name!r} has a usual name of times, but is skipped: {error}; or name the columns")
        else:
            if role != "value":
                check_one_column(called, column)
            array = _present(called, column)
            rows[f"{role}s"] = check_values(called, array, len(column)) if role == "value" else array
    return rows


def with_noted_ids(data: Any) -> Any:
    """Return the interactions of a frame, with a warning about ids such as "nan"."""
    for role, ids in (("user", data.user_ids), ("item", data.item_ids)):
        if ids.dtype.kind not in "biuf":
            warn_of_marks(f"the frame's {role} column", role, ids.tolist())
    return data


def frame_maker(library: str | None) -> Callable[[Mapping[str, np.ndarray]], Any]:
    """Return a function that makes a frame of arrays, of a library or of the first one that is installed."""
    if library is not None:
        check_choice("library", library, _NATIVE)
    for name in _NATIVE if library is None else (library,):
        try:
            return functools.partial(_MAKERS[name], importlib.import_module(name))
        except ImportError:
            continue
    if library is None:
        raise ImportError("a frame needs pandas, polars or pyarrow: pip install pandas")
    raise ImportError(f"a frame of {library} needs {library}: pip install {library}")


def as_frame_maker(as_frame: bool | str) -> Callable[[Mapping[str, np.ndarray]], Any] | None:
    """Return a function that makes the frame of an answer, or None for an answer of arrays."""
    if isinstance(as_frame, str) and as_frame in _NATIVE:
        return frame_maker(as_frame)
    if not isinstance(as_frame, bool | np.bool_):
        raise TypeError(
            f"as_frame must be True or False, or one of {', '.join(map(repr, _NATIVE))}, got {as_frame!r}; True takes "
            "the first library that is installed"
        )
    return frame_maker(None) if as_frame else None


def _pandas_frame(pandas: Any, columns: Mapping[str, np.ndarray]) -> Any:
    return pandas.DataFrame(
        {
            name: pandas.arrays.IntegerArray(column.data.copy(), column.mask.copy())
            if isinstance(column, np.ma.MaskedArray)
            else column
            for name, column in columns.items()
        }
    )


def _polars_frame(polars: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Return a polars frame; ids of several types or tuples go into columns of objects."""
    series = {}
    for name, column in columns.items():
        if isinstance(column, np.ma.MaskedArray):
            series[name] = polars.Series(column.tolist(), dtype=polars.Int64)
        elif column.dtype.kind == "O":
            is_text = all(isinstance(entry, str) for entry in column)
            series[name] = polars.Series(column.tolist(), dtype=polars.String if is_text else polars.Object)
        else:
            series[name] = column
    return polars.DataFrame(series)


def _pyarrow_table(pyarrow: Any, columns: Mapping[str, np.ndarray]) -> Any:
    arrays = {}
    for name, column in columns.items():
        mask = column.mask if isinstance(column, np.ma.MaskedArray) else None
        try:
            arrays[name] = pyarrow.array(np.asarray(column), mask=mask)
            if pyarrow.types.is_nested(arrays[name].type):
                raise TypeError("tuples are not one id in each row")
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, TypeError) as error:
            raise TypeError(
                f"column {name!r} must hold numbers, dates or text of one type for pyarrow ({error}); use a frame of "
                "pandas or polars"
            ) from error
    return pyarrow.table(arrays)


_MAKERS: dict[str, Callable[..., Any]] = {"pandas": _pandas_frame, "polars": _polars_frame, "pyarrow": _pyarrow_table}


def to_frame(self: Any, library: str = "pandas") -> Any:
    """Return a frame with one row per interaction, for `from_dataframe` or for other packages.

    Parameters
    ----------
    library : {"pandas", "polars", "pyarrow"}
        Library of the frame.

    Returns
    -------
    pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Columns "user" and "item" with the ids, "value" if there are values, and "timestamp" if there are any, by users
        and items in order.  A missing timestamp is null.  Users and items without interactions are not in it.

    Raises
    ------
    ImportError
        The library is not installed.
    TypeError
        pyarrow has no type for the ids, such as tuples.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> data = Interactions.from_arrays(["ann", "bob"], [7, 8], [5.0, 3.0])
    >>> data.to_frame("polars").rows()
    [('ann', 7, 5.0), ('bob', 8, 3.0)]
    """
    return frame_maker(check_choice("library", library, _NATIVE))(_columns_of(self, self.n_interactions))


def head(self: Any, n: int = 5, library: str | None = None) -> Any:
    """Return the first interactions as a frame.

    Parameters
    ----------
    n : int
        Maximum number of interactions, at least 0.
    library : {"pandas", "polars", "pyarrow"} or None
        Library of the frame; None takes the first one that is installed.

    Returns
    -------
    pandas.DataFrame, polars.DataFrame or pyarrow.Table
        The first rows of `to_frame`.

    Raises
    ------
    ImportError
        The library is not installed.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> data = Interactions.from_arrays(["ann", "bob"], [7, 8], [5.0, 3.0])
    >>> data.head(1, "polars").rows()
    [('ann', 7, 5.0)]
    """
    return frame_maker(library)(_columns_of(self, min(check_integer("n", n, low=0), self.n_interactions)))


def to_dataframe(self: Any) -> Any:
    """Return a pandas table with one row per interaction, as `to_frame` does.

    Returns
    -------
    pandas.DataFrame
        See `to_frame`.

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
    return to_frame(self, "pandas")


def _columns_of(data: Any, n: int) -> dict[str, np.ndarray]:
    """Return the columns of the first `n` interactions by name, as copies."""
    rows = np.searchsorted(data.indptr, np.arange(n), side="right") - 1
    columns = {"user": data.user_ids[rows], "item": data.item_ids[data.indices[:n]]}
    if data.values is not None:
        columns["value"] = data.values[:n].copy()
    if data.timestamps is not None:
        times, missing = data.timestamps[:n].copy(), data.timestamps[:n] == MISSING_TIMESTAMP
        columns["timestamp"] = np.ma.MaskedArray(times, missing) if missing.any() else times
    return columns


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
