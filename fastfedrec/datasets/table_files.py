"""Where the columns of a table are, and their reading: from text or Parquet, whole or in batches."""

import csv
import gzip
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastfedrec._kernels.datasets.tables import DECIMAL, INTEGER, ISO, OPTIONAL, TEXT
from fastfedrec.core.check import check_flag, check_integer
from fastfedrec.data.ids import Coded
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.pairs import check_timestamps
from fastfedrec.datasets.columns import ColumnReader, Field, FieldError
from fastfedrec.datasets.files import refuse, unpacking

_PARQUET = (".parquet", ".pq")
_ID = "an id"
_VALUE = "a finite number of at least 0"
_TIME = "whole seconds since 1970 in every line, or ISO 8601 such as 2009-02-13T23:31:30Z in every line"

# What a column may hold: the first kind that fits all of its lines.
_KINDS = {
    "user": ((INTEGER, _ID), (TEXT, _ID)),
    "item": ((INTEGER, _ID), (TEXT, _ID)),
    "value": ((DECIMAL, _VALUE),),
    "timestamp": ((INTEGER | OPTIONAL, _TIME), (ISO | OPTIONAL, _TIME)),
}


@dataclass(frozen=True)
class Layout:
    """Where a table's columns are: the names of all, and the places of those that are read, by role."""

    path: Path
    names: list[str]
    places: dict[str, int]
    separator: str
    first_line: int  # of the rows

    @property
    def is_parquet(self) -> bool:
        """By its name."""
        return self.path.suffix in _PARQUET


def find_layout(
    path: str | os.PathLike,
    user: str | int,
    item: str | int,
    value: str | int | None,
    timestamp: str | int | None,
    separator: str,
    header: bool,
) -> Layout:
    """The layout that the arguments of `load_table` describe."""
    path = Path(path)
    header = check_flag("header", header)
    names = table_columns(path, separator)
    roles = {"user": user, "item": item, "value": value, "timestamp": timestamp}
    chosen = {role: column for role, column in roles.items() if column is not None}
    places = _find_columns(path, chosen, names, by_name=header or path.suffix in _PARQUET)
    if not header and path.suffix not in _PARQUET:
        names = [f"column {place}" for place in range(len(names))]
    return Layout(path, names, places, separator, 1 + header)


def table_columns(path: str | os.PathLike, separator: str = ",") -> list[str]:
    """Names of a table's columns: of a Parquet file, or the fields of a text file's first line.

    Parameters
    ----------
    path : str or path-like
        As in `load_table`.
    separator : str
        As in `load_table`.

    Returns
    -------
    list of str
        In the order of the file.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`.
    ValueError
        An empty file, or a first line with a quote too many.
    """
    path = Path(path)
    if not isinstance(separator, str) or not separator or set(separator) & set('"\r\n'):
        raise ValueError(f"separator must be text without quotes and line ends, got {separator!r}; for example ','")
    if not path.is_file():
        raise FileNotFoundError(f"path {str(path)!r} is no file; pass a CSV or Parquet file")
    if path.suffix in _PARQUET:
        return _parquet_columns(path)
    with open_text(path) as stream:
        text = TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        try:
            if len(separator) == 1:
                names = next(csv.reader(text, delimiter=separator, strict=True), None)
            else:  # which the csv module does not know
                line = text.readline()
                names = line.rstrip("\r\n").split(separator) if line else None
        except csv.Error as error:
            refuse(str(path), 1, f"{error}; check its quotes")
    if names is None:
        refuse(str(path), 1, "the file is empty")
    return names or [""]


def _find_columns(
    path: Path, chosen: Mapping[str, str | int], names: Sequence[str], *, by_name: bool
) -> dict[str, int]:
    """The place of each chosen column."""
    places: dict[str, int] = {}
    for role, column in chosen.items():
        if by_name:
            if not isinstance(column, str):
                raise TypeError(f"{role} must be the name of a column, got {column!r}; places need header=False")
            if names.count(column) != 1:
                problem = "stands twice" if column in names else "is not a column"
                raise KeyError(f"{role}={column!r} {problem}; {path} has {list(names)}")
            places[role] = names.index(column)
        else:
            places[role] = check_integer(role, column, low=0, high=len(names) - 1)
    if len(set(places.values())) < len(places):
        raise ValueError(f"{', '.join(places)} must be different columns, got {list(chosen.values())}")
    return places


# ---- text ---------------------------------------------------------------------------------------------------------


@contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """Open a text file, unpacked where its name ends in ``.gz``.

    Parameters
    ----------
    path : Path
        The file.

    Yields
    ------
    file
        Of bytes.
    """
    with unpacking(str(path)), open(path, "rb") as stream:
        if path.suffix == ".gz":
            with gzip.open(stream) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield stream


def read_text(layout: Layout, reader_type: type[ColumnReader] = ColumnReader, **options: Any) -> dict[str, Any]:
    """Each role's column.  What proves to hold the second of its kinds is read again as that."""
    kinds = {place: _KINDS[role] for role, place in layout.places.items()}
    while True:
        fields = [
            Field(name, *kinds[place][0]) if place in kinds else Field(name) for place, name in enumerate(layout.names)
        ]
        reader = reader_type(fields, layout.separator, quotes=True, **options)
        try:
            with open_text(layout.path) as stream:
                if layout.first_line == 2:
                    stream.readline()
                reader.read(stream, str(layout.path), first_line=layout.first_line)
        except FieldError as error:
            others = kinds[error.index][1:]
            if not others or not _fits(others[0][0], error.text):
                raise
            kinds[error.index] = others
        else:
            columns = reader.columns()
            return {role: columns[sorted(kinds).index(place)] for role, place in layout.places.items()}


def _fits(kind: int, text: str) -> bool:
    try:
        ColumnReader([Field("", kind)], "\n", quotes=True).read(BytesIO(text.encode()), "")
    except ValueError:
        return False
    return True


# ---- Parquet ------------------------------------------------------------------------------------------------------


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file where a library tells of damage in its own way."""
    try:
        yield
    except (ImportError, FileNotFoundError):
        raise
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(f"{path} cannot be read as Parquet ({reason}); write or download it again") from error


def _next(layout: Layout, batches: Iterator[Any]) -> Any:
    with _reading(layout.path):
        return next(batches, None)


def _parquet_columns(path: Path) -> list[str]:
    with _reading(path):
        if pyarrow := _import("pyarrow.parquet"):
            return list(pyarrow.read_schema(path).names)
        if polars := _import("polars"):
            return list(polars.read_parquet_schema(path))
    raise ImportError(
        f"{path}: reading Parquet needs pyarrow or polars; install one (pip install pyarrow), or read the file "
        "by other means and pass the frame to Interactions.from_dataframe"
    )


def read_parquet(layout: Layout) -> dict[str, Any]:
    """Each role's column."""
    pyarrow = _import("pyarrow.parquet")
    read = pyarrow.read_table if pyarrow else _import("polars").read_parquet
    with _reading(layout.path):
        table = read(layout.path, columns=_parquet_names(layout))
    return _parquet_arrays(layout, table)


def parquet_batches(layout: Layout, n_rows: int) -> Iterator[dict[str, Any]]:
    """The same of about so many rows at a time."""
    if pyarrow := _import("pyarrow.parquet"):
        with _reading(layout.path):
            opened = pyarrow.ParquetFile(layout.path)
        with opened as file:
            batches = file.iter_batches(n_rows, columns=_parquet_names(layout))
            while (batch := _next(layout, batches)) is not None:
                yield _parquet_arrays(layout, _import("pyarrow").Table.from_batches([batch]))
        return
    table = _import("polars").scan_parquet(layout.path).select(_parquet_names(layout))
    start = 0
    while True:
        with _reading(layout.path):
            part = table.slice(start, n_rows).collect()
        if not len(part):
            return
        yield _parquet_arrays(layout, part)
        start += len(part)


def _parquet_names(layout: Layout) -> list[str]:
    return [layout.names[place] for place in layout.places.values()]


def _parquet_arrays(layout: Layout, table: Any) -> dict[str, Any]:
    """Each role's column of a table of pyarrow or polars."""
    columns: dict[str, Any] = {}
    for role, name in zip(layout.places, _parquet_names(layout), strict=True):
        column = table[name]
        n_missing = column.null_count() if callable(column.null_count) else column.null_count
        if n_missing and role != "timestamp":
            raise ValueError(
                f"{layout.path}: column {name!r} ({role}) has {n_missing} missing entries; drop or fill those rows"
            )
        if str(getattr(column, "type", "")) in ("string", "large_string"):  # without an object per entry
            encoded = column.combine_chunks().dictionary_encode()
            columns[role] = Coded(encoded.dictionary.to_pylist(), encoded.indices.to_numpy())
        else:
            columns[role] = column.to_numpy()
    if (seconds := columns.get("timestamp")) is not None and seconds.dtype.kind == "f":  # integers with gaps
        known = ~np.isnan(seconds)
        columns["timestamp"] = np.full(len(seconds), MISSING_TIMESTAMP)
        columns["timestamp"][known] = check_timestamps(seconds[known], int(known.sum()))
    return columns
