"""Layout of the columns of a table, and the loader of text tables."""

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
from fastfedrec.core.files import check_file, check_path
from fastfedrec.core.interface import choose_words
from fastfedrec.core.numbers import show_names
from fastfedrec.core.text import did_you_mean
from fastfedrec.data.column_names import known_columns
from fastfedrec.data.ids import Coded, warn_of_marks
from fastfedrec.data.times import UNITS
from fastfedrec.datasets._fields import Field, FieldError, Kind, check_time_format, parse_field
from fastfedrec.datasets._polars import import_polars
from fastfedrec.datasets._records import OpenQuote, Record, split_records
from fastfedrec.datasets._streams import COMMENT_LINE, NotUTF8, decoded, open_text
from fastfedrec.datasets._table_notes import (
    check_float_ids,
    remedy,
    warn_of_dropped,
    warn_of_unread_times,
)
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
_MAX_EXAMPLE_LENGTH = 40  # of a column name that an error message gives as an example
_ID = "an id"
_VALUE = "a finite number"
_TIME = (
    "whole seconds since 1970 in every line, or ISO 8601 such as 2009-02-13T23:31:30Z in every line (a date with parts "
    "of a second needs timestamp_unit='ms', 'us' or 'ns')"
)
_FINE_TIME = (
    "whole numbers in every line, or ISO 8601 in every line that 64 bits of timestamp_unit={unit!r} hold exactly"
)
_SEPARATORS = ("\t", "::", ",", ";", "|", " ")  # candidates in order of preference
_JSON = re.compile(rb'\s*(\[\s*\{|\{\s*"|[\[{]\s*$)')  # a record in one line, or the start of a record in several lines
_STATED_SEPARATOR = re.compile(rb'"?sep=([^\r\n"])"?\r?\n?', re.IGNORECASE)  # written by spreadsheets before the header

# Kinds of fields by role: a column has the first kind that fits all of its lines.
_KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "user": ({"kind": Kind.ID, "rule": _ID}, {"kind": Kind.TEXT, "rule": _ID}),
    "item": ({"kind": Kind.ID, "rule": _ID}, {"kind": Kind.TEXT, "rule": _ID}),
    "value": ({"kind": Kind.DECIMAL, "rule": _VALUE},),
    "timestamp": (
        {"kind": Kind.WHOLE, "optional": True},
        {"kind": Kind.ISO, "optional": True},
        # Whole numbers such as 978300760.0; from 2**53 on, floats do not represent every whole number.
        {"kind": Kind.DECIMAL, "step": 1.0, "low": 1 - 2.0**53, "high": 2.0**53 - 1},
    ),
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """Layout of a table: the names of all columns, and the positions of the columns to read, by role."""

    path: Path
    names: list[str]
    places: dict[str, int]
    separator: str
    quotes: bool
    first_line: int  # number of the line of the first row
    is_parquet: bool
    timestamp_unit: str
    time_format: str | None
    comment: str | None
    drops_missing: bool
    recognized: frozenset[str]  # roles of columns that were selected by their usual names

    def kinds(self) -> dict[int, tuple[dict[str, Any], ...]]:
        """Return the kinds of fields that each column to read may have, by position."""
        rule = _TIME if self.timestamp_unit == "s" else _FINE_TIME.format(unit=self.timestamp_unit)
        times: tuple[dict[str, Any], ...] = tuple(
            kind | {"rule": rule, "unit": self.timestamp_unit} for kind in _KINDS["timestamp"]
        )
        if self.time_format is not None:
            form = {"time_format": self.time_format, "unit": self.timestamp_unit, "optional": True}
            rule = f"a time of time_format={self.time_format!r} that is exact in timestamp_unit={self.timestamp_unit!r}"
            times = (form | {"kind": Kind.STATED, "rule": rule},)
        ids = {"optional": self.drops_missing}
        kinds = {role: tuple(kind | ids for kind in _KINDS[role]) for role in ("user", "item")}
        kinds |= {"value": _KINDS["value"], "timestamp": times}
        return {position: kinds[role] for role, position in self.places.items()}

    def named(self, role: str) -> str:
        """Return the name of a role's column."""
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
    """Return the layout for the arguments of `load_table`."""
    check_choice("timestamp_unit", timestamp_unit, UNITS)
    check_choice("missing_ids", missing_ids, ("error", "drop"))
    if time_format is not None:
        check_time_format(time_format)
    path, header, quotes = check_path("path", path), check_flag("header", header), check_flag("quotes", quotes)
    names = table_columns(path, separator, quotes=quotes, comment=comment)
    parquet = is_parquet(path)
    by_name = header or parquet
    roles = {"user": user, "item": item, "value": value, "timestamp": timestamp}
    columns: Mapping[str, str | int] = {role: column for role, column in roles.items() if column is not None}
    if not {"user", "item"} <= columns.keys():
        columns = _recognize_columns(path, names, columns, by_name)
    recognized = frozenset(columns.keys() - {role for role, column in roles.items() if column is not None})
    positions = _find_columns(path, columns, names, by_name=by_name)
    if not by_name:
        names = [f"column {position}" for position in range(len(names))]
    options = timestamp_unit, time_format, comment, missing_ids == "drop", recognized
    if parquet:
        return Layout(path, names, positions, "", quotes, 1, True, *options)
    first, line = first_record(path, separator, quotes, comment)
    return Layout(path, names, positions, first.separator, quotes, line + header * first.n_lines, False, *options)


def _recognize_columns(
    path: Path, names: Sequence[str], given: Mapping[str, str | int], by_name: bool
) -> Mapping[str, str | int]:
    """Return the given columns and those with usual names, and log them."""
    missing = [role for role in ("user", "item") if role not in given]
    if not by_name:
        raise ValueError(
            f"{' and '.join(missing)} must be given for a file without a header; pass positions from 0 to "
            f"{len(names) - 1} of the columns of {path}"
        )
    known = known_columns([name for name in names if name not in given.values()], source=str(path))
    roles = [role for role in _KINDS if role in given or len(missing) == 2 or role in missing]
    column_of = {role: given.get(role, known.get(role)) for role in roles}
    # A first line of numbers is probably a row of a file without a header.
    if all(re.fullmatch("[0-9.]+", name) for name in names):
        raise KeyError(
            f"user and item must be given, because the first line of {path}, {show_names(names)}, looks like a row; "
            + choose_words(
                "pass header=False and positions, such as user=0, item=1", "add --no-header --user 0 --item 1"
            )
        )
    if unknown := [role for role in missing if column_of[role] is None]:
        candidates = [name for name in names if name not in column_of.values() and len(name) <= _MAX_EXAMPLE_LENGTH]
        example = dict(zip(unknown, [*candidates, "COLUMN", "COLUMN"], strict=False))
        in_python = ", ".join(f"{role}={name!r}" for role, name in example.items())
        in_shell = " ".join(f"--{role} {shlex.quote(name)}" for role, name in example.items())
        raise KeyError(
            f"{' and '.join(unknown)} must be given, because no column of {path} has a usual name, got "
            f"{show_names(names)}; name {'them' if len(unknown) > 1 else 'it'}, for example "
            + choose_words(in_python, in_shell)
        )
    columns = {role: column for role, column in column_of.items() if column is not None}
    _logger.info("%s: %s", path, ", ".join(f"{role}={column!r}" for role, column in columns.items()))
    return columns


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its name or its first bytes."""
    if path.suffix in _PARQUET:
        return True
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def table_columns(
    path: str | os.PathLike[str], separator: str | None = ",", *, quotes: bool = True, comment: str | None = None
) -> list[str]:
    """Return the column names of a Parquet file, or the fields of a text file's first line."""
    path = check_path("path", path)
    if separator is not None and (not isinstance(separator, str) or not separator or set(separator) & set('"\r\n')):
        raise ValueError(f"separator must be text without quotes and line ends, got {separator!r}; for example ','")
    if comment is not None and (not isinstance(comment, str) or not comment.strip() or set(comment) & set('"\r\n')):
        raise ValueError(f"comment must be text without quotes and line ends, got {comment!r}; for example '#'")
    check_file("path", path, "a CSV or Parquet file")
    if is_parquet(path):
        polars = import_polars(str(path))
        with reading_parquet(path):
            return list(polars.read_parquet_schema(path))
    return first_record(path, separator, quotes, comment)[0].fields


def first_record(path: Path, separator: str | None, quotes: bool, comment: str | None = None) -> tuple[Record, int]:
    """Return the header or the first row, which follows any comments, and its line number."""
    with open_text(path) as stream:
        line, number = stream.readline(), 1
        if stated := _STATED_SEPARATOR.fullmatch(line):
            line, number, separator = stream.readline(), 2, separator or stated[1].decode()
        while line.startswith(comment.encode()) if comment else COMMENT_LINE.match(line):
            line, number = stream.readline(), number + 1
        if not line:
            refuse(str(path), number, "the file is empty")
        if not line.rstrip(b"\r\n"):
            refuse(str(path), number, "the line must not be blank; remove it")
        if _JSON.match(line):
            reason = "the file is JSON; read it with pandas or polars, and use Interactions.from_dataframe"
            refuse(str(path), number, reason)
        line_separator = _infer_separator(decoded(line), separator)
        while True:
            try:
                record = next(split_records(decoded(line).rstrip("\r\n") + "\n", line_separator, quotes))
                break
            except OpenQuote:
                if not (more := stream.readline()):
                    refuse(str(path), number, "a quote must be closed, got an open one; check the quotes")
                line += more
    if record.broken is not None:
        shown = record.raw[record.broken][:40]
        refuse(str(path), number, f"a closing quote must end the field, got {shown!r}; check the quotes")
    return record, number


def _infer_separator(line: str, separator: str | None) -> str:
    """Return the given separator, or the first candidate that occurs in a line."""
    return separator or next((candidate for candidate in _SEPARATORS if candidate in line), ",")


def _find_columns(
    path: Path, columns: Mapping[str, str | int], names: Sequence[str], *, by_name: bool
) -> dict[str, int]:
    """Return the position of the column of each role."""
    positions: dict[str, int] = {}
    for role, column in columns.items():
        if by_name:
            if not isinstance(column, str):
                raise TypeError(f"{role} must be the name of a column, got {column!r}; positions need header=False")
            if names.count(column) != 1:
                problem = "occurs more than once" if column in names else "is not a column"
                meant = did_you_mean(column, names)
                raise KeyError(f"{role}={column!r} {problem}{meant}; {path} has {show_names(names)}")
            positions[role] = names.index(column)
        else:
            positions[role] = check_integer(role, column, low=0, high=len(names) - 1)
    if len(set(positions.values())) < len(positions):
        raise ValueError(f"{', '.join(positions)} must be different columns, got {list(columns.values())}")
    return positions


# ---- text ---------------------------------------------------------------------------------------------------------


def read_text(layout: Layout, reader_type: type[ColumnReader] = ColumnReader, **options: Any) -> dict[str, Any]:
    """Read the column of each role, and read the file again if a field requires another kind or encoding."""
    kinds = layout.kinds()
    roles = {position: role for role, position in layout.places.items()}
    encoding = "utf-8"
    while True:
        # `kinds` loses its first entry for a column when a field does not fit, and the file is read again.
        fields = [
            Field(name, **kinds[position][0]) if position in kinds else Field(name)
            for position, name in enumerate(layout.names)
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
            _logger.info("%s: not UTF-8 text, read as Latin-1", layout.path)
            encoding = "latin-1"
        except FieldError as error:
            alternatives = kinds.get(error.index, ())[1:]
            fitting = [
                k for k, options in enumerate(alternatives) if parse_field(Field("", **options), error.text) is not None
            ]
            role = roles.get(error.index, "")
            if fitting:
                kinds[error.index] = alternatives[fitting[0] :]
            elif role == "timestamp" and role in layout.recognized and layout.time_format is None:
                warn_of_unread_times(layout, f"{error}{remedy(role, error.text)}")
                del kinds[error.index]
            else:
                raise FieldError(f"{error}{remedy(role, error.text)}", error.index, error.text) from None
        else:
            columns = dict(zip(sorted(kinds), reader.columns(), strict=True))
            by_role = {roles[position]: column for position, column in columns.items()}
            if "timestamp" in by_role and by_role["timestamp"].dtype.kind == "f":
                by_role["timestamp"] = by_role["timestamp"].astype(np.int64)
            warn_of_dropped(layout, reader.n_dropped, reader.n_rows)
            for role in ("user", "item"):
                if isinstance(by_role[role], Coded):
                    check_float_ids(layout, role, by_role[role].ids)
                    called = f"{layout.path}: column {layout.named(role)!r} ({role})"
                    warn_of_marks(called, role, by_role[role].ids)
            return {role: by_role[role] for role in layout.places if role in by_role}
