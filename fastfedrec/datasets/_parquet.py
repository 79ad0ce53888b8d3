"""Columns of a Parquet table, as a whole or in batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastfedrec.data.ids import Coded, check_exact, check_one_column, encode_ids, warn_of_marks
from fastfedrec.data.pairs import check_values
from fastfedrec.data.times import MISSING_TIMESTAMP, check_timestamps
from fastfedrec.datasets._fields import stated_moment
from fastfedrec.datasets._polars import coded, import_polars, moments
from fastfedrec.datasets._table_notes import remedy, warn_of_dropped, warn_of_unread_times
from fastfedrec.datasets.files import reading_parquet
from fastfedrec.datasets.table_files import Layout


def read_parquet(layout: Layout) -> dict[str, Any]:
    """Read the column of each role."""
    polars = import_polars(str(layout.path))
    with reading_parquet(layout.path):
        table = polars.read_parquet(layout.path, columns=_parquet_names(layout))
    if not len(table):
        raise ValueError(f"{layout.path}: the file ends without a single row")
    rows = _with_ids(layout, table)
    warn_of_dropped(layout, len(table) - len(rows), len(rows))
    return _parquet_arrays(layout, rows)


def _with_ids(layout: Layout, table: Any) -> Any:
    """Replace empty text and NaN in ids by null, and drop rows without an id if the layout states it."""
    polars = import_polars(str(layout.path))
    table = table.with_columns(polars.col(polars.Categorical, polars.Enum).cast(polars.String))
    # polars drops only nulls, so other marks of a missing id become null.
    ids = [layout.named("user"), layout.named("item")]
    for name in ids:
        if str(table[name].dtype) == "String":
            table = table.with_columns(polars.when(polars.col(name) != "").then(polars.col(name)).alias(name))
        elif table[name].dtype.is_float():
            table = table.with_columns(polars.col(name).fill_nan(None))
    return table.drop_nulls(ids) if layout.drops_missing else table


def parquet_batches(layout: Layout, n_rows: int) -> Iterator[dict[str, Any]]:
    """Read the columns in batches of `n_rows` rows; an empty table raises as in `read_parquet`."""
    table = import_polars(str(layout.path)).scan_parquet(layout.path).select(_parquet_names(layout))
    start = n_dropped = 0
    while True:
        with reading_parquet(layout.path):
            part = table.slice(start, n_rows).collect()
        if not len(part) and start:
            warn_of_dropped(layout, n_dropped, start - n_dropped)
            return
        start += len(part)
        rows = _with_ids(layout, part)
        n_dropped += len(part) - len(rows)
        if len(rows) or not len(part):
            yield _parquet_arrays(layout, rows)


def _parquet_names(layout: Layout) -> list[str]:
    return [layout.names[place] for place in layout.places.values()]


def _parquet_arrays(layout: Layout, table: Any) -> dict[str, Any]:
    """Return the column of each role of a frame."""
    if not len(table):
        raise ValueError(f"{layout.path}: the file ends without a single row with ids")
    columns: dict[str, Any] = {}
    for role, name in zip(layout.places, _parquet_names(layout), strict=True):
        column, called = table[name], f"{layout.path}: column {name!r} ({role})"
        if column.dtype.is_nested():
            raise TypeError(f"{called} must hold one number, text or time per row, got {column.dtype}; unnest it first")
        if (n_missing := column.null_count()) and role != "timestamp":
            raise ValueError(f"{called} has {n_missing} missing entries; drop or fill those rows{remedy(role, '')}")
        if role == "timestamp":
            if (times := _parquet_times(layout, column, called)) is not None:
                columns[role] = times
        elif role == "value":
            columns[role] = check_values(called, column, len(column))
        else:
            check_one_column(called, column)
            columns[role] = Coded(*coded(column)) if str(column.dtype) == "String" else column.to_numpy()
            if isinstance(columns[role], Coded):
                warn_of_marks(called, role, columns[role].ids)
            else:
                check_exact(called, columns[role])
                if columns[role].dtype.kind == "O":  # all entries have one type, which may be no type of ids
                    encode_ids(called, columns[role][:1])
    return columns


def _parquet_times(layout: Layout, column: Any, called: str) -> np.ndarray | None:
    """Return the times of a column, or None if only its name suggests times and its entries are not times."""
    is_text = str(column.dtype) == "String"
    if layout.time_format is None and is_text and (times := moments(column, layout.timestamp_unit)) is not None:
        return times
    if layout.time_format is None:
        try:
            return check_timestamps(column, len(column), unit=layout.timestamp_unit, name=called)
        except (TypeError, ValueError) as error:
            if isinstance(error, ValueError) and not is_text:
                raise
            has_fractions = column.dtype.is_float() and bool((column % 1 > 0).any())
            first = column.drop_nulls().head(1).to_list()[0] if is_text else "0.5" if has_fractions else None
            problem = str(error) if first is None else f"{error}{remedy('timestamp', first)}"
            if "timestamp" not in layout.recognized or not (is_text or has_fractions):
                raise TypeError(problem) from None
            warn_of_unread_times(layout, problem)
            return None
    # Each distinct text is parsed once.
    distinct, codes = coded(column.cast(import_polars(called).String))
    numbers = [stated_moment(text, layout.time_format, layout.timestamp_unit) for text in distinct]
    if None in numbers:
        text = distinct[numbers.index(None)]
        raise ValueError(f"{called} must hold times of time_format={layout.time_format!r}, got {text!r}")
    return np.array([*numbers, MISSING_TIMESTAMP], dtype=np.int64)[codes]
