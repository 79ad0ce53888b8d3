"""Where the columns of a table are, and their reading from text."""

import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice, check_flag, check_integer
from fastfedrec.core.files import check_path
from fastfedrec.core.numbers import show_names
from fastfedrec.data.column_names import known_columns
from fastfedrec.data.ids import Coded
from fastfedrec.data.times import UNITS
from fastfedrec.datasets._fields import Field, FieldError, Kind, check_time_format, parse_field
from fastfedrec.datasets._polars import import_polars
from fastfedrec.datasets._records import OpenQuote, Record, split_records
from fastfedrec.datasets._streams import COMMENT_LINE, NotUTF8, open_text
from fastfedrec.datasets._table_notes import check_float_ids, remedy, warn_of_dropped, warn_of_unread_times
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.files import reading_parquet, refuse

__all__ = [
    "Layout",
    "find_layout",
    "first_record",
    "is_parquet",
    "read_text",
    "table_columns",
]

_PARQUET = (".parquet", ".pq")
_LONG_NAME = 40  # of a column, which no message gives as an example
_ID = "an id"
_VALUE = "a finite number"
_TIME = (
    "whole seconds since 1970 in every line, or ISO 8601 such as 2009-02-13T23:31:30Z in every line (a date with parts "
    "of a second needs timestamp_unit='ms', 'us' or 'ns')"
)
_FINE_TIME = (
    "whole numbers in every line, or ISO 8601 in every line that 64 bits of timestamp_unit={unit!r} hold exactly"
)
_SEPARATORS = ("\t", "::", ",", ";", "|", " ")  # looked for in this order
_JSON = re.compile(rb'\s*(\[\s*\{|\{\s*"|[\[{]\s*$)')  # a record in one line, or the begin of several lines
_STATED_SEPARATOR = re.compile(rb'"?sep=([^\r\n"])"?\r?\n?', re.IGNORECASE)  # which spreadsheets write above the header

# What a column may hold: the first kind that fits all of its lines.
_KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "user": ({"kind": Kind.ID, "rule": _ID}, {"kind": Kind.TEXT, "rule": _ID}),
    "item": ({"kind": Kind.ID, "rule": _ID}, {"kind": Kind.TEXT, "rule": _ID}),
    "value": ({"kind": Kind.DECIMAL, "rule": _VALUE},),
    "timestamp": (
        {"kind": Kind.WHOLE, "optional": True},
        {"kind": Kind.ISO, "optional": True},
        # As 978300760.0; at 2**53 a float may stand for the whole number beside it.
        {"kind": Kind.DECIMAL, "step": 1.0, "low": 1 - 2.0**53, "high": 2.0**53 - 1},
    ),
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """Where a table's columns are: the names of all, and the places of those that are read, by role."""

    path: Path
    names: list[str]
    places: dict[str, int]
    separator: str
    quotes: bool
    first_line: int  # of the rows
    is_parquet: bool
    timestamp_unit: str
    time_format: str | None
    comment: str | None
    drops_missing: bool
    recognized: frozenset[str]  # roles of columns that are known by their names alone

    def kinds(self) -> dict[int, tuple[dict[str, Any], ...]]:
        """What each place that is read may hold."""
        rule = _TIME if self.timestamp_unit == "s" else _FINE_TIME.format(unit=self.timestamp_unit)
        times: tuple[dict[str, Any], ...] = tuple(
            kind | {"rule": rule, "unit": self.timestamp_unit} for kind in _KINDS["timestamp"]
        )
        if self.time_format is not None:
            form = {"time_format": self.time_format, "unit": self.timestamp_unit, "optional": True}
            rule = (
                f"a time of time_format={self.time_format!r} that timestamp_unit={self.timestamp_unit!r} holds exactly"
            )
            times = (form | {"kind": Kind.STATED, "rule": rule},)
        ids = {"optional": self.drops_missing}
        kinds = {role: tuple(kind | ids for kind in _KINDS[role]) for role in ("user", "item")}
        kinds |= {"value": _KINDS["value"], "timestamp": times}
        return {place: kinds[role] for role, place in self.places.items()}

    def named(self, role: str) -> str:
        """The name of a role's column."""
        return self.names[self.places[role]]


def find_layout(
    path: str | os.PathLike[str],
    user: str | int | None,
    item: str | int | None,
    value: str | int | None,
    timestamp: str | int | None,
    separator: str | None,
    header: bool,
    quotes: bool,
    timestamp_unit: str = "s",
    time_format: str | None = None,
    comment: str | None = None,
    missing_ids: str = "error",
) -> Layout:
    """The layout that the arguments of `load_table` describe."""
    check_choice("timestamp_unit", timestamp_unit, UNITS)
    check_choice("missing_ids", missing_ids, ("error", "drop"))
    if time_format is not None:
        check_time_format(time_format)
    path, header, quotes = check_path("path", path), check_flag("header", header), check_flag("quotes", quotes)
    names = table_columns(path, separator, quotes=quotes, comment=comment)
    parquet = is_parquet(path)
    by_name = header or parquet
    roles = {"user": user, "item": item, "value": value, "timestamp": timestamp}
    chosen: Mapping[str, str | int] = {role: column for role, column in roles.items() if column is not None}
    if not {"user", "item"} <= chosen.keys():
        chosen = _recognized(path, names, chosen, by_name)
    recognized = frozenset(chosen.keys() - {role for role, column in roles.items() if column is not None})
    places = _find_columns(path, chosen, names, by_name=by_name)
    if not by_name:
        names = [f"column {place}" for place in range(len(names))]
    options = timestamp_unit, time_format, comment, missing_ids == "drop", recognized
    if parquet:
        return Layout(path, names, places, "", quotes, 1, True, *options)
    first, line = first_record(path, separator, quotes, comment)
    return Layout(path, names, places, first.separator, quotes, line + header * first.n_lines, False, *options)


def _recognized(
    path: Path, names: Sequence[str], chosen: Mapping[str, str | int], by_name: bool
) -> Mapping[str, str | int]:
    """The columns that are named, and those that are known by their names; which they are, is told."""
    missing = [role for role in ("user", "item") if role not in chosen]
    if not by_name:
        raise ValueError(
            f"{' and '.join(missing)} must be given where there is no header: places from 0 to {len(names) - 1} of "
            f"{path}"
        )
    known = known_columns([name for name in names if name not in chosen.values()])
    wanted = [role for role in _KINDS if role in chosen or len(missing) == 2 or role in missing]
    found = {role: chosen.get(role, known.get(role)) for role in wanted}
    if all(re.fullmatch("[0-9.]+", name) for name in names):
        raise KeyError(
            f"user and item are not given, and the first line of {path}, {show_names(names)}, looks like a row; pass "
            "header=False with places, as user=0, item=1 (in a shell --no-header --user 0 --item 1)"
        )
    if unknown := [role for role in missing if found[role] is None]:
        others = [name for name in names if name not in found.values() and len(name) <= _LONG_NAME]
        example = dict(zip(unknown, [*others, "COLUMN", "COLUMN"], strict=False))
        in_python = ", ".join(f"{role}={name!r}" for role, name in example.items())
        in_a_shell = " ".join(f"--{role} {shlex.quote(name)}" for role, name in example.items())
        are, one, it = ("are", "either", "them") if len(unknown) > 1 else ("is", "one", "it")
        raise KeyError(
            f"{' and '.join(unknown)} {are} not given, and none of {show_names(names)} of {path} is known as {one}; "
            f"name {it}, as {in_python} (in a shell {in_a_shell})"
        )
    columns = {role: column for role, column in found.items() if column is not None}
    _logger.info("%s: %s", path, ", ".join(f"{role}={column!r}" for role, column in columns.items()))
    return columns


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name or its first bytes.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool
        The answer.
    """
    if path.suffix in _PARQUET:
        return True
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def table_columns(
    path: str | os.PathLike[str], separator: str | None = ",", *, quotes: bool = True, comment: str | None = None
) -> list[str]:
    """Names of a table's columns: of a Parquet file, or the fields of a text file's first line.

    Parameters
    ----------
    path : str or path-like
        As in `load_table`.
    separator : str or None
        As in `load_table`.
    quotes : bool
        As in `load_table`.
    comment : str or None
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
    ImportError
        A Parquet file, without polars.
    """
    path = check_path("path", path)
    if separator is not None and (not isinstance(separator, str) or not separator or set(separator) & set('"\r\n')):
        raise ValueError(f"separator must be text without quotes and line ends, got {separator!r}; for example ','")
    if comment is not None and (not isinstance(comment, str) or not comment.strip() or set(comment) & set('"\r\n')):
        raise ValueError(f"comment must be text without quotes and line ends, got {comment!r}; for example '#'")
    if not path.is_file():
        raise FileNotFoundError(f"path {str(path)!r} is no file; pass a CSV or Parquet file")
    if is_parquet(path):
        polars = import_polars(str(path))
        with reading_parquet(path):
            return list(polars.read_parquet_schema(path))
    return first_record(path, separator, quotes, comment)[0].fields


def first_record(path: Path, separator: str | None, quotes: bool, comment: str | None = None) -> tuple[Record, int]:
    """The header, or the first row, and the number of its line, below all lines of comments."""
    with open_text(path) as stream:
        line, number = stream.readline(), 1
        if stated := _STATED_SEPARATOR.fullmatch(line):
            line, number, separator = stream.readline(), 2, separator or stated[1].decode()
        while line.startswith(comment.encode()) if comment else COMMENT_LINE.match(line):
            line, number = stream.readline(), number + 1
        if not line:
            refuse(str(path), number, "the file is empty")
        if not line.rstrip(b"\r\n"):
            refuse(str(path), number, "the line is blank; remove it")
        if _JSON.match(line):
            refuse(
                str(path), number, "this is JSON; read it with pandas or polars, and use Interactions.from_dataframe"
            )
        found = _separator(_decoded(line), separator)
        while True:
            try:
                record = next(split_records(_decoded(line).rstrip("\r\n") + "\n", found, quotes))
                break
            except OpenQuote:
                if not (more := stream.readline()):
                    refuse(str(path), number, "a quote is opened and not closed; check its quotes")
                line += more
    if record.broken is not None:
        shown = record.raw[record.broken][:40]
        refuse(str(path), number, f"text follows a closing quote in {shown!r}; check its quotes")
    return record, number


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _separator(line: str, separator: str | None) -> str:
    """The one that is given, or the one of the first line."""
    return separator or next((found for found in _SEPARATORS if found in line), ",")


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
                raise KeyError(f"{role}={column!r} {problem}; {path} has {show_names(names)}")
            places[role] = names.index(column)
        else:
            places[role] = check_integer(role, column, low=0, high=len(names) - 1)
    if len(set(places.values())) < len(places):
        raise ValueError(f"{', '.join(places)} must be different columns, got {list(chosen.values())}")
    return places


# ---- text ---------------------------------------------------------------------------------------------------------


def read_text(layout: Layout, reader_type: type[ColumnReader] = ColumnReader, **options: Any) -> dict[str, Any]:
    """Each role's column.  What proves to hold another of its kinds is read again as that."""
    kinds = layout.kinds()
    roles = {place: role for role, place in layout.places.items()}
    encoding = "utf-8"
    while True:
        fields = [
            Field(name, **kinds[place][0]) if place in kinds else Field(name) for place, name in enumerate(layout.names)
        ]
        reader = reader_type(
            fields, layout.separator, quotes=layout.quotes, comment=layout.comment, drop_missing=layout.drops_missing,
            **options,
        )  # fmt: skip
        try:
            with open_text(layout.path, encoding) as stream:
                for _ in range(1, layout.first_line):
                    stream.readline()
                reader.read(stream, str(layout.path), first_line=layout.first_line, n_bytes=layout.path.stat().st_size)
        except NotUTF8:
            _logger.info("%s: no UTF-8 text, read as Latin-1", layout.path)
            encoding = "latin-1"
        except FieldError as error:
            others = kinds.get(error.index, ())[1:]
            fitting = [k for k, of in enumerate(others) if parse_field(Field("", **of), error.text) is not None]
            role = roles.get(error.index, "")
            if fitting:
                kinds[error.index] = others[fitting[0] :]
            elif role == "timestamp" and role in layout.recognized and layout.time_format is None:
                warn_of_unread_times(layout, f"{error}{remedy(role, error.text)}")
                del kinds[error.index]
            else:
                raise FieldError(f"{error}{remedy(role, error.text)}", error.index, error.text) from None
        else:
            columns = dict(zip(sorted(kinds), reader.columns(), strict=True))
            found = {roles[place]: column for place, column in columns.items()}
            if "timestamp" in found and found["timestamp"].dtype.kind == "f":
                found["timestamp"] = found["timestamp"].astype(np.int64)
            warn_of_dropped(layout, reader.n_dropped, reader.n_rows)
            for role in ("user", "item"):
                if isinstance(found[role], Coded):
                    check_float_ids(layout, role, found[role].ids)
            return {role: found[role] for role in layout.places if role in found}
