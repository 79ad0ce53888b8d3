"""Reference parser of lines in Python, for lines that polars cannot parse reliably, and for error messages.

A field that begins with a quote ends at the closing quote.  It may contain line ends, and doubled quotes.  Blanks
around a field without quotes are removed.  If a space separates fields, any number of blanks counts as one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastfedrec.datasets._fields import BLANKS, Field, FieldError, Kind, parse_field
from fastfedrec.datasets.files import refuse

_RUN = re.compile(f"[{BLANKS}]*[ \t][{BLANKS}]*")  # separator of two fields for a space
_UNQUOTED = "pass quotes=False if quotes are part of the text"


class OpenQuote(Exception):
    """Signal that a record continues after the end of the text."""


@dataclass(frozen=True)
class Record:
    """Record of one line, or of several lines if a field in quotes contains line ends."""

    fields: list[str]
    raw: list[str]  # the fields with their quotes
    start: int  # position of its first character in the text
    end: int  # position after its last character
    n_lines: int
    separator: str
    broken: int | None = None  # position of the first field with text after the closing quote


def split_records(text: str, separator: str, quotes: bool, comment: str | None = None) -> Iterator[Record]:
    """Yield the records of whole lines, and records without fields for comments; raise `OpenQuote` at an open quote."""
    start = 0
    while start < len(text):
        end = text.index("\n", start) + 1
        # Lines without quotes, which are almost all, need no search for closing quotes.
        line = text[start : end - 1].removesuffix("\r")
        if comment and text.startswith(comment, start):
            record = Record([], [], start, end, 1, separator)
        elif quotes and '"' in line:
            record = _split_quoted(text, start, separator)
        else:
            parts = _RUN.split(line.strip(BLANKS)) if separator == " " else line.split(separator)
            fields = [part.strip(BLANKS) for part in parts]
            record = Record(fields, fields, start, end, 1, separator)
        yield record
        start = record.end


def _split_quoted(text: str, start: int, separator: str) -> Record:
    fields: list[str] = []
    raw: list[str] = []
    position, is_last, broken = start, False, None
    while not is_last:
        begin = after = _skip_blanks(text, position, separator)
        if opened := text[begin] == '"':
            after = _after_quotes(text, begin)
            content = text[begin + 1 : after - 1].replace('""', '"')
        line_end = text.index("\n", after)
        end, position = _find_separator(text, after, line_end, separator)
        is_last = end == line_end
        unquoted = (text[after:end].removesuffix("\r") if is_last else text[after:end]).strip(BLANKS)
        raw.append(text[begin:after] + unquoted)
        fields.append(content if opened else unquoted)
        if opened and unquoted and broken is None:
            broken = len(fields) - 1
    return Record(fields, raw, start, position, text.count("\n", start, position), separator, broken)


def _skip_blanks(text: str, position: int, separator: str) -> int:
    """Return the position of the first character that is not a blank before a field."""
    # A separator may itself be a blank, such as a tab, which is not skipped.
    while text[position] in BLANKS and (separator == " " or not text.startswith(separator, position)):
        position += 1
    return position


def _find_separator(text: str, begin: int, line_end: int, separator: str) -> tuple[int, int]:
    """Return the end of a field, which is `line_end` for the last field, and the start of the next field."""
    if separator != " ":
        end = text.find(separator, begin, line_end)
        return (line_end, line_end + 1) if end < 0 else (end, end + len(separator))
    run = _RUN.search(text, begin, line_end)
    if run is None or text[run.end() : line_end] in ("", "\r"):
        return line_end, line_end + 1
    return run.span()


def _after_quotes(text: str, position: int) -> int:
    """Return the position after the closing quote of the quote at `position`."""
    while True:
        position = text.find('"', position + 1)
        if position < 0:
            raise OpenQuote
        if text[position + 1 : position + 2] != '"':
            return position + 1
        position += 1  # a doubled quote does not close the field


def parse_records(
    text: str,
    fields: Sequence[Field],
    separator: str,
    quotes: bool,
    *,
    name: str,
    line: int,
    heading: int | None,
    headings: bool,
    at_end: bool,
    comment: str | None = None,
) -> tuple[list[list[Any]], int, int, int | None]:
    """Parse records; return columns, the numbers of used characters and lines, and the last heading, or raise."""
    # `line` is the number of the first line, `heading` the last heading before the text.  With `headings`, a line such
    # as "7:" precedes the lines that belong to it, and its number is a last column.  With `at_end`, quotes must close.
    read_positions = [position for position, field in enumerate(fields) if field.kind is not Kind.SKIP]
    columns: list[list[Any]] = [[] for _ in range(len(read_positions) + headings)]
    end, first = 0, line
    try:
        for record in split_records(text, separator, quotes, comment):
            if not record.fields:
                pass
            elif headings and (number := _heading_number(record)) is not None:
                heading = number
            else:
                _check_count(record, fields, separator, name, line)
                # `_parse` reports a broken field that is read; this reports a broken field that is skipped.
                if record.broken is not None and record.broken not in read_positions:
                    unread, shown = fields[record.broken].name, record.raw[record.broken][:40]
                    refuse(name, line, f"{unread} must end at its closing quote, got {shown!r}; {_UNQUOTED}")
                for column, position in zip(columns, read_positions, strict=False):
                    column.append(_parse(record, fields, position, name, line))
                if headings:
                    if heading is None:
                        refuse(name, line, "the first line must be a heading such as '1:'; download the data again")
                    columns[-1].append(heading)
            end, line = record.end, line + record.n_lines
    except OpenQuote:
        if at_end:
            refuse(name, line, f"a quote must be closed, got an open one; {_UNQUOTED}")
    return columns, end, line - first, heading


def _heading_number(record: Record) -> int | None:
    text = record.raw[0]
    is_heading = len(record.fields) == 1 and text.endswith(":") and text[:-1].isascii() and text[:-1].isdigit()
    return parse_field(Field("heading", Kind.ID), text[:-1]) if is_heading else None  # type: ignore[return-value]


def _check_count(record: Record, fields: Sequence[Field], separator: str, name: str, line: int) -> None:
    if len(record.fields) != len(fields):
        expected = f"{len(fields)} fields ({', '.join(field.name for field in fields)}) separated by {separator!r}"
        shown = separator.join(record.raw).split("\n")[0][:80]
        refuse(name, line, f"expected {expected}, got {len(record.fields)}: {shown!r}")


def _parse(record: Record, fields: Sequence[Field], position: int, name: str, line: int) -> int | float | str:
    """Return the value of a field, or raise a `FieldError` that names the line and the rule."""
    field, text = fields[position], record.fields[position]
    value = None if position == record.broken else parse_field(field, text)
    if value is None:
        raw = record.raw[position]
        is_broken = position == record.broken
        message = f"{name}, line {line}: {field.name} must be {field.rule}, got {raw[:40]!r}"
        raise FieldError(message + f"; {_UNQUOTED}" * is_broken, position, raw if is_broken else text)
    return value
