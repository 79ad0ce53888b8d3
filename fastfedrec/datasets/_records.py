"""Lines of separated fields as Python reads them, one after the other: what polars leaves in doubt, and why.

A field that begins with a quote runs to the closing one, line ends included, and holds a quote as two.  Blanks around a
field without quotes are no part of it.  Between fields that a space separates, any number of blanks counts as one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastfedrec.datasets._fields import BLANKS, Field, FieldError, Kind, parse_field
from fastfedrec.datasets.files import refuse

_RUN = re.compile(f"[{BLANKS}]*[ \t][{BLANKS}]*")  # that separates two fields where a space does
_UNQUOTED = "pass quotes=False where quotes are part of the text"


class OpenQuote(Exception):
    """A record goes on beyond the text."""


@dataclass(frozen=True)
class Record:
    """One line, or several where quotes hold line ends: its fields, and its place."""

    fields: list[str]
    raw: list[str]  # the same with their quotes
    start: int  # of its text
    end: int
    n_lines: int
    separator: str
    broken: int | None = None  # the first field in which text follows the closing quote


def split_records(text: str, separator: str, quotes: bool, comment: str | None = None) -> Iterator[Record]:
    """Every record of a text of whole lines.

    Parameters
    ----------
    text : str
        That ends with a line feed.
    separator : str
        Between two fields.
    quotes : bool
        Whether fields may stand in quotes.
    comment : str or None
        The begin of lines that are comments, which have no fields.

    Yields
    ------
    Record
        In order.

    Raises
    ------
    OpenQuote
        In place of a record whose quote is not closed.
    """
    start = 0
    while start < len(text):
        end = text.index("\n", start) + 1
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
    place, last, broken = start, False, None
    while not last:
        begin = after = _skip_blanks(text, place, separator)
        if opened := text[begin] == '"':
            after = _after_quotes(text, begin)
            content = text[begin + 1 : after - 1].replace('""', '"')
        line_end = text.index("\n", after)
        end, place = _find_separator(text, after, line_end, separator)
        last = end == line_end
        rest = (text[after:end].removesuffix("\r") if last else text[after:end]).strip(BLANKS)
        raw.append(text[begin:after] + rest)
        fields.append(content if opened else rest)
        if opened and rest and broken is None:
            broken = len(fields) - 1
    return Record(fields, raw, start, place, text.count("\n", start, place), separator, broken)


def _skip_blanks(text: str, place: int, separator: str) -> int:
    """The begin of a field behind the blanks before it, or of what ends it."""
    while text[place] in BLANKS and (separator == " " or not text.startswith(separator, place)):
        place += 1
    return place


def _find_separator(text: str, begin: int, line_end: int, separator: str) -> tuple[int, int]:
    """The end of a field, which is that of the line for the last one, and the begin of the next."""
    if separator != " ":
        end = text.find(separator, begin, line_end)
        return (line_end, line_end + 1) if end < 0 else (end, end + len(separator))
    run = _RUN.search(text, begin, line_end)
    if run is None or text[run.end() : line_end] in ("", "\r"):
        return line_end, line_end + 1
    return run.span()


def _after_quotes(text: str, place: int) -> int:
    while True:
        place = text.find('"', place + 1)
        if place < 0:
            raise OpenQuote
        if text[place + 1 : place + 2] != '"':
            return place + 1
        place += 1


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
    """Read records until the text ends, or refuse the first that is wrong.

    Parameters
    ----------
    text : str
        Of whole lines.
    fields : sequence of Field
        Of a line.
    separator : str
        Between two fields.
    quotes : bool
        Whether fields may stand in quotes.
    name : str
        Of the file, for messages.
    line : int
        Number of the first line.
    heading : int or None
        The last heading before the text.
    headings : bool
        Whether a line such as "7:" stands above the lines it belongs to.
    at_end : bool
        Whether no text follows, so that a quote must be closed here.
    comment : str or None
        The begin of lines that are comments.

    Returns
    -------
    tuple of (list of list, int, int, int or None)
        The columns that are kept, with headings one more; how much of the text and how many lines were read; and the
        last heading.
    """
    kept = [place for place, field in enumerate(fields) if field.kind is not Kind.SKIP]
    columns: list[list[Any]] = [[] for _ in range(len(kept) + headings)]
    end, first = 0, line
    try:
        for record in split_records(text, separator, quotes, comment):
            if not record.fields:
                pass
            elif headings and (found := _heading(record)) is not None:
                heading = found
            else:
                _check_count(record, fields, separator, name, line)
                if record.broken is not None and record.broken not in kept:
                    unread, shown = fields[record.broken].name, record.raw[record.broken][:40]
                    refuse(name, line, f"{unread} has text behind its closing quote, got {shown!r}; {_UNQUOTED}")
                for column, place in zip(columns, kept, strict=False):
                    column.append(_parse(record, fields, place, name, line))
                if headings:
                    if heading is None:
                        refuse(name, line, "a line such as '1:', which names the movie, must come first")
                    columns[-1].append(heading)
            end, line = record.end, line + record.n_lines
    except OpenQuote:
        if at_end:
            refuse(name, line, f"a quote is opened and not closed; {_UNQUOTED}")
    return columns, end, line - first, heading


def _heading(record: Record) -> int | None:
    text = record.raw[0]
    is_heading = len(record.fields) == 1 and text.endswith(":") and text[:-1].isascii() and text[:-1].isdigit()
    return parse_field(Field("heading", Kind.ID), text[:-1]) if is_heading else None  # type: ignore[return-value]


def _check_count(record: Record, fields: Sequence[Field], separator: str, name: str, line: int) -> None:
    if len(record.fields) != len(fields):
        wanted = f"{len(fields)} fields ({', '.join(field.name for field in fields)}) separated by {separator!r}"
        shown = separator.join(record.raw).split("\n")[0][:80]
        refuse(name, line, f"expected {wanted}, got {len(record.fields)}: {shown!r}")


def _parse(record: Record, fields: Sequence[Field], place: int, name: str, line: int) -> int | float | str:
    field, text = fields[place], record.fields[place]
    value = None if place == record.broken else parse_field(field, text)
    if value is None:
        raw = record.raw[place]
        is_broken = place == record.broken
        message = f"{name}, line {line}: {field.name} must be {field.rule}, got {raw[:40]!r}"
        raise FieldError(message + f"; {_UNQUOTED}" * is_broken, place, raw if is_broken else text)
    return value
