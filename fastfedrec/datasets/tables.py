"""Reader of any table with a row per interaction: CSV and its relatives, plain or gzipped, and Parquet."""

import csv
import gzip
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastfedrec._check import check_flag, check_integer
from fastfedrec._ids import Coded
from fastfedrec._kernels.tables import DECIMAL, INTEGER, ISO, OPTIONAL, TEXT
from fastfedrec._pairs import check_timestamps
from fastfedrec.datasets._columns import ColumnReader, Field, FieldError, to_interactions
from fastfedrec.datasets._files import refuse, unpacking
from fastfedrec.interactions import MISSING_TIMESTAMP, Interactions

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


def load_table(
    path: str | os.PathLike,
    *,
    user: str | int,
    item: str | int,
    value: str | int | None = None,
    timestamp: str | int | None = None,
    separator: str = ",",
    header: bool = True,
    duplicates: str | None = None,
) -> Interactions:
    r"""Read a CSV, TSV or Parquet file with one row per interaction.

    Text files are read block by block, in UTF-8, with or without gzip (``.gz``).  A field may stand in double quotes,
    and then hold separators, line ends, and quotes written twice.

    Parameters
    ----------
    path : str or path-like
        ``.parquet`` or ``.pq`` is read as Parquet, for which pyarrow or polars must be installed; all else as text.
    user, item : str or int
        Column of the ids: its name in the header, or where there is none its place from 0.  Ids stay integers where
        every one in the column is written as one (as 7, not 007 or 7.0), and are strings otherwise.
    value, timestamp : str or int or None
        Column of the ratings or counts, at least 0, and of the time: seconds since 1970 (any whole numbers will do), or
        dates or dates and times of ISO 8601, which become seconds, in UTC where they name no zone.  An empty time
        becomes `fastfedrec.interactions.MISSING_TIMESTAMP`.
    separator : str
        What stands between two fields, such as ``"\t"`` or ``"::"``.  Not for Parquet.
    header : bool
        Whether the first line names the columns.  Not for Parquet.
    duplicates : {"sum", "last", "max", "error"} or None
        What becomes of a user-item pair that stands twice, as in `Interactions.from_arrays`.

    Returns
    -------
    Interactions
        Every user and item that appears.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`.
    KeyError
        A column that is not there; the columns that are get listed.
    ValueError
        A malformed file; the file, line, column and field are named.
    ImportError
        A Parquet file, and nothing installed that can read it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec.datasets import load_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "plays.csv")
    ...     _ = file.write_text("who,what,when\nann,7,2024-05-01\nbob,7,2024-05-02T10:00:00Z\nann,9,\n")
    ...     data = load_table(file, user="who", item="what", timestamp="when")
    >>> data
    <Interactions: 2 users x 2 items, 3 interactions>
    >>> data.user_ids.tolist(), data.item_ids.tolist()
    (['ann', 'bob'], [7, 9])
    """
    path = Path(path)
    header = check_flag("header", header)
    names = table_columns(path, separator)
    roles = {"user": user, "item": item, "value": value, "timestamp": timestamp}
    chosen = {role: column for role, column in roles.items() if column is not None}
    if path.suffix in _PARQUET:
        places = _find_columns(path, chosen, names, by_name=True)
        columns = _read_parquet(path, {role: names[place] for role, place in places.items()})
    else:
        places = _find_columns(path, chosen, names, by_name=header)
        if not header:
            names = [f"column {place}" for place in range(len(names))]
        columns = _read_text(path, separator, names, places, first_line=1 + header)
    return to_interactions(
        columns["user"], columns["item"], columns.get("value"), columns.get("timestamp"), duplicates=duplicates
    )


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


def _read_text(
    path: Path, separator: str, names: Sequence[str], places: Mapping[str, int], *, first_line: int
) -> dict[str, Any]:
    """Each role's column.  What proves to hold the second of its kinds is read again as that."""
    kinds = {place: _KINDS[role] for role, place in places.items()}
    while True:
        fields = [Field(name, *kinds[place][0]) if place in kinds else Field(name) for place, name in enumerate(names)]
        reader = ColumnReader(fields, separator, quotes=True)
        try:
            with open_text(path) as stream:
                if first_line == 2:
                    stream.readline()
                reader.read(stream, str(path), first_line=first_line)
        except FieldError as error:
            others = kinds[error.index][1:]
            if not others or not _fits(others[0][0], error.text):
                raise
            kinds[error.index] = others
        else:
            columns = reader.columns()
            return {role: columns[sorted(kinds).index(place)] for role, place in places.items()}


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


def _parquet_columns(path: Path) -> list[str]:
    if pyarrow := _import("pyarrow.parquet"):
        return list(pyarrow.read_schema(path).names)
    if polars := _import("polars"):
        return list(polars.read_parquet_schema(path))
    raise ImportError(
        f"{path}: reading Parquet needs pyarrow or polars; install one (pip install pyarrow), or read the file "
        "by other means and pass the frame to Interactions.from_dataframe"
    )


def _read_parquet(path: Path, names: Mapping[str, str]) -> dict[str, Any]:
    """Each role's column."""
    pyarrow = _import("pyarrow.parquet")
    read = pyarrow.read_table if pyarrow else _import("polars").read_parquet
    table = read(path, columns=list(names.values()))
    columns: dict[str, Any] = {}
    for role, name in names.items():
        column = table[name]
        n_missing = column.null_count if pyarrow else column.null_count()
        if n_missing and role != "timestamp":
            raise ValueError(
                f"{path}: column {name!r} ({role}) has {n_missing} missing entries; drop or fill those rows"
            )
        if pyarrow and str(column.type) in ("string", "large_string"):  # without an object per entry
            encoded = column.combine_chunks().dictionary_encode()
            columns[role] = Coded(encoded.dictionary.to_pylist(), encoded.indices.to_numpy())
        else:
            columns[role] = column.to_numpy()
    if (seconds := columns.get("timestamp")) is not None and seconds.dtype.kind == "f":  # integers with gaps
        known = ~np.isnan(seconds)
        columns["timestamp"] = np.full(len(seconds), MISSING_TIMESTAMP)
        columns["timestamp"][known] = check_timestamps(seconds[known], int(known.sum()))
    return columns
