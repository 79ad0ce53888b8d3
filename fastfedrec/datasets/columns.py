"""Columns of text files, read block by block, so that no file need fit in memory.

Blocks are parsed by polars; what is in doubt, and what is wrong, is read again by Python (`_records`), which decides.
"""

import itertools
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.ids import Coded
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.datasets._fields import BLANKS, Field, Kind
from fastfedrec.datasets._gathered import GatheredColumn
from fastfedrec.datasets._polars import import_polars, may_hang, parse_lines, strip_blanks
from fastfedrec.datasets._records import OpenQuote, parse_records, split_records
from fastfedrec.datasets._streams import NotUTF8
from fastfedrec.datasets.files import refuse

__all__ = ["BLANKS", "ColumnReader", "OpenQuote", "TextList", "find_duplicate", "split_records", "to_interactions"]

_BLOCK_BYTES = 1 << 23  # read and parsed at once
_PART_BYTES = 1 << 20  # of what is not worth being parsed in parts
_DOUBTFUL_BYTES = 1 << 15  # of lines that Python reads where polars leaves them in doubt
_SPARE = 1.2  # of the memory that rows behind as many bytes as those before would need; what is not used costs none
_STAND_INS = b"\x1f\x1e\x1d\x1c\x01\x02\x03\x04"  # for a separator of several bytes, where a block has none of them
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b"\r\n"


class Stream(Protocol):
    """What is read from: bytes, with plain line ends."""

    def read(self, size: int, /) -> bytes:
        """Some bytes, none at the end."""


class ColumnReader:
    """Columns of one layout, gathered over any number of streams.

    With `headings`, a line such as "7:" stands above the lines it belongs to, and its number becomes a last column.
    Blank last lines are no rows, nor are lines that begin with `comment`.  With `drop_missing`, rows without an id are
    left out, and counted.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        separator: str,
        *,
        quotes: bool = False,
        headings: bool = False,
        comment: str | None = None,
        drop_missing: bool = False,
    ):
        self._fields, self._separator = fields, separator
        self._quotes, self._headings = quotes, headings
        self._kept = [place for place, field in enumerate(fields) if field.kind is not Kind.SKIP]
        if headings:
            self._kept.append(len(fields))
        self._numbering: dict[int, dict[str, int]] = {
            place: {} for place, field in enumerate(fields) if field.kind is Kind.TEXT
        }
        self._comment = comment
        is_id = [place < len(fields) and fields[place].kind in (Kind.ID, Kind.TEXT) for place in self._kept]
        self._id_columns = [k for k, it_is in enumerate(is_id) if it_is and drop_missing]
        self._gathered = [GatheredColumn() for _ in self._kept]
        self._starts: list[int] = []  # first row of each stream
        self._stream_names: list[str] = []
        self.n_rows, self.n_dropped = 0, 0

    def read(self, stream: Stream, name: str, *, first_line: int = 1, n_bytes: int = 0) -> None:
        """Append the rows of a stream, which messages call `name`, and which is at the start of its `first_line`.

        About so many bytes, where that is known: memory is set aside for their rows.
        """
        import_polars(name)
        self._n_bytes, self._n_taken, self._n_before = n_bytes, 0, self.n_rows
        self._starts.append(self.n_rows)
        self._stream_names.append(name)
        place, n_rows, rest, at_end = _Place(first_line, None), self.n_rows, b"", False
        n_parts = min(resolve_n_threads(0), 4)
        parsed: deque[_Parsed] = deque()
        with ThreadPoolExecutor(n_parts + 1) as workers:  # a block is read while those before it are parsed
            block = stream.read(_BLOCK_BYTES)
            if first_line == 1:
                block = block.removeprefix(_BYTE_ORDER_MARK)
            while not at_end:
                at_end = not block
                coming = workers.submit(stream.read, _BLOCK_BYTES) if len(block) >= _BLOCK_BYTES // 2 else None
                parts, after = self._split(rest, block, n_parts)
                if parts:
                    parsed.append(_Parsed(parts, [workers.submit(self._parse_part, part) for part in parts]))
                while len(parsed) > bool(parts):
                    place = self._take(parsed.popleft(), place)
                rest = after
                if not parts:  # what is before these lines has a say in what they mean
                    text = rest + block if rest else block
                    text += b"\n" if at_end and text else b""  # behind the last line, which may have no end
                    if self._quotes and b'"' in text and not self._has_comments(text):
                        text = strip_blanks(text, self._separator.encode(), quotes=True)
                    if at_end:
                        text = text.rstrip(_BLANK)  # blank last lines
                        text += b"\n" if text else b""
                    done, place = self._parse(text, place, at_end)
                    rest = text[done:] if done else text
                if not at_end:
                    block = coming.result() if coming else stream.read(_BLOCK_BYTES)
        if self.n_rows == n_rows and self.n_dropped:
            refuse(name, first_line, "no row has both ids, so that all would be dropped; are the columns right?")
        if self.n_rows == n_rows:
            refuse(name, place.line, "the file is empty" if place.line == 1 else "the file ends without a single row")

    def _split(self, rest: bytes, block: bytes, n_parts: int) -> tuple[list[bytes], bytes]:
        """Whole lines that can be parsed apart from each other, none where that is not so, and what is left then.

        It is not so where texts are numbered as they appear, where headings stand above lines, and within quotes.
        """
        if self._numbering or self._headings or (self._quotes and (b'"' in block or b'"' in rest)):
            return [], rest
        end = _end_of_lines(block)
        if not end:
            return [], rest
        n_parts = n_parts if end >= _PART_BYTES * n_parts else 1
        ends = {block.rfind(b"\n", 0, end * part // n_parts) + 1 for part in range(1, n_parts)}
        first, *others = itertools.pairwise(sorted(ends | {0, end}))
        parts = [b"".join((rest, memoryview(block)[slice(*first)]))] + [block[slice(*other)] for other in others]
        return parts, block[end:]

    def _parse_part(self, lines: bytes) -> list[np.ndarray] | None:
        """Columns of lines without quotes that mean something, or None where Python must look at them."""
        columns = self._parse_plain(lines, quoted=False)
        return None if columns is None else self._compact(columns)

    def _take(self, block: "_Parsed", place: "_Place") -> "_Place":
        """Append what the parts of a block had, and say where reading goes on."""
        for part, lines in zip(block.columns, block.lines, strict=True):
            if (columns := part.result()) is None:
                place = self._parse_in_doubt(lines, place)
                continue
            self._n_taken += len(lines)
            self._append(columns)
            place = _Place(place.line + len(columns[0]), place.heading)
        return place

    def _parse_in_doubt(self, lines: bytes, place: "_Place") -> "_Place":
        """Append records that polars did not read at once: Python reads only the few beside the one in doubt."""
        middle, *_ = _cut(lines, lines.rfind(b"\n", 0, len(lines) // 2) + 1, self._separator, self._quotes)
        if len(lines) <= _DOUBTFUL_BYTES or not middle:
            columns, _, place = self._parse_slowly(lines, place, at_end=False)
            self._append(self._compact(columns))
            return place
        for half in (lines[:middle], lines[middle:]):
            quoted = self._quotes and b'"' in half
            if (found := self._parse_below(half, quoted, place)) is None:
                place = self._parse_in_doubt(half, place)
            else:
                columns, place = found
                self._append(self._compact(columns))
        return place

    def _parse(self, text: bytes, place: "_Place", at_end: bool) -> tuple[int, "_Place"]:
        """Append the rows of whole records, which the text begins with; the bytes that were used, and where that is."""
        whole = _end_of_lines(text)
        end, is_sure, quoted = _cut(text, whole, self._separator, self._quotes)
        if not whole or (is_sure and not end and not at_end):
            return 0, place
        if self._has_comments(text):  # quotes in a comment mean nothing, but are counted here
            end, is_sure = whole, not (self._quotes and b'"' in text)
        lines = text if end == len(text) else text[:end]
        if is_sure and end:
            if (found := self._parse_below(lines, quoted, place)) is None:
                return end, self._parse_in_doubt(lines, place)
            columns, place = found
        else:
            columns, end, place = self._parse_slowly(text[:whole], place, at_end)
        self._append(self._compact(columns))
        return end, place

    def _parse_below(self, lines: bytes, quoted: bool, place: "_Place") -> tuple[list[np.ndarray], "_Place"] | None:
        """Columns of lines below a heading, and where reading goes on, or None where Python must look at them."""
        n_lines, heading = _count_lines(lines), place.heading
        numbers: list[int] = []
        counts: list[int] = []
        if self._headings:
            lines, numbers, counts = _without_headings(lines)
            if place.heading is None and counts[0]:
                return None
            numbers[0] = -1 if place.heading is None else place.heading
            heading = numbers[-1] if len(numbers) > 1 else place.heading
        columns = self._parse_plain(lines, quoted)
        if columns is None:
            return None
        if self._headings:
            columns.append(np.repeat(np.array(numbers, dtype=np.int64), counts))
        return columns, _Place(place.line + n_lines, heading)

    def _parse_plain(self, lines: bytes, quoted: bool) -> list[np.ndarray] | None:
        """Columns of lines without headings, or None where Python must look at them."""
        if may_hang() or self._has_comments(lines):
            return None
        separator = self._separator.encode()
        if len(separator) > 1:
            stand_in = next((bytes([byte]) for byte in _STAND_INS if byte not in lines), None)
            if stand_in is None or quoted:
                return None
            lines, separator = lines.replace(separator, stand_in), stand_in
        return parse_lines(lines, separator, self._fields, quoted, list(self._numbering.values()))

    def _parse_slowly(self, lines: bytes, place: "_Place", at_end: bool) -> tuple[list[np.ndarray], int, "_Place"]:
        text = self._decode(lines, place)
        found, used, n_lines, heading = parse_records(
            text, self._fields, self._separator, self._quotes, name=self._stream_names[-1], line=place.line,
            heading=place.heading, headings=self._headings, at_end=at_end,
            comment=self._comment,
        )  # fmt: skip
        columns = []
        for kept, column in zip(self._kept, found, strict=True):
            if (known := self._numbering.get(kept)) is not None:
                column = [known.setdefault(text, len(known)) if text else MISSING_TIMESTAMP for text in column]
            is_decimal = kept < len(self._fields) and self._fields[kept].kind is Kind.DECIMAL
            columns.append(np.array(column, dtype=np.float64 if is_decimal else np.int64))
        return columns, len(text[:used].encode()), _Place(place.line + n_lines, heading)

    def _decode(self, lines: bytes, place: "_Place") -> str:
        try:
            return lines.decode()
        except UnicodeDecodeError as error:
            line = place.line + lines.count(b"\n", 0, error.start)
            message = f"{self._stream_names[-1]}, line {line}: not UTF-8 text ({error.reason}); convert the file"
            raise NotUTF8(message) from None

    def _has_comments(self, text: bytes) -> bool:
        if self._comment is None:
            return False
        comment = self._comment.encode()
        return text.startswith(comment) or b"\n" + comment in text

    def _append(self, rows: list[np.ndarray]) -> None:
        """Take the rows of a block, but for those without an id where these are dropped."""
        if self._id_columns:
            is_missing = np.any([rows[column] == MISSING_TIMESTAMP for column in self._id_columns], axis=0)
            self.n_dropped += int(np.count_nonzero(is_missing))
            rows = self._compact([column[~is_missing] for column in rows]) if is_missing.any() else rows
        if len(rows[0]):
            self._keep(rows)
            self.n_rows += len(rows[0])

    def _compact(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """Columns as they are kept, that of parts of a block on threads."""
        return [_narrow(column) for column in rows]

    def _keep(self, rows: list[np.ndarray]) -> None:
        """Take some more rows: of each column that is not skipped."""
        n_read = self.n_rows - self._n_before + len(rows[0])
        n_expected = int(_SPARE * n_read * self._n_bytes / self._n_taken) if self._n_taken else 0
        for gathered, column in zip(self._gathered, rows, strict=True):
            gathered.append(column, self._n_before + n_expected)

    def columns(self) -> list[Any]:
        """Each column that is not skipped, `Coded` or the narrowest exact array."""
        return [
            Coded(list(self._numbering[place]), column) if place in self._numbering else column
            for place, column in zip(self._kept, self._arrays(), strict=True)
        ]

    def _arrays(self) -> list[Any]:
        return [gathered.array() for gathered in self._gathered]

    def file_of(self, row: int) -> str:
        """The name of the stream that a row came from."""
        return self._stream_names[bisect_right(self._starts, row) - 1]


class _Place(NamedTuple):
    """Where reading goes on: the number of the line, and the last heading above it."""

    line: int
    heading: int | None


class _Parsed(NamedTuple):
    """Parts of a block, and their columns as soon as they are there."""

    lines: list[bytes]
    columns: "list[Future[list[np.ndarray] | None]]"


def _end_of_lines(text: bytes) -> int:
    """Behind the last line that has an end and is not blank: blank ones may be the last of all."""
    end = text.rfind(b"\n") + 1
    tail = text[max(end - 64, 0) : end]
    if tail.rstrip(_BLANK) or len(tail) < 64:
        end -= len(tail) - len(tail.rstrip(_BLANK))
    else:
        end = len(text[:end].rstrip(_BLANK))
    return text.find(b"\n", end) + 1 if end else 0


def _count_lines(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")))


def _cut(text: bytes, end: int, separator: str, quotes: bool) -> tuple[int, bool, bool]:
    """The end of the last whole record before one; whether that is sure; whether there are quotes with a meaning.

    It is sure where every quote stands where it should: opening a field, closing one, or written as two.
    """
    if not quotes or text.find(b'"', 0, end) < 0:
        return end, True, False
    letters = np.frombuffer(text, dtype=np.uint8, count=end)
    places = np.flatnonzero(letters == ord('"'))
    while end and np.searchsorted(places, end) % 2:  # within quotes
        end = text.rfind(b"\n", 0, places[np.searchsorted(places, end) - 1]) + 1
    places = places[: np.searchsorted(places, end)]
    last = np.frombuffer(separator[-1].encode()[-1:], dtype=np.uint8)[0]
    first = np.frombuffer(separator[0].encode()[:1], dtype=np.uint8)[0]
    opening, closing = places[::2], places[1::2]
    before = letters[np.maximum(opening - 1, 0)]
    after = letters[np.minimum(closing + 1, end - 1)]
    returns = (after == ord("\r")) & (letters[np.minimum(closing + 2, end - 1)] == ord("\n"))
    opens = (opening == 0) | np.isin(before, (last, ord("\n"))) | (before == ord('"'))
    closes = np.isin(after, (first, ord("\n"), ord('"'))) | returns
    return end, bool(opens.all() and closes.all()) and end > 0, len(places) > 0


def _without_headings(lines: bytes) -> tuple[bytes, list[int], list[int]]:
    """The other lines; the number of every heading, after that of those above; how many lines follow each."""
    numbers, parts, start, place = [-1], [], 0, lines.find(b":")
    counts = []
    while place >= 0:
        begin, end = lines.rfind(b"\n", 0, place) + 1, lines.find(b"\n", place) + 1
        heading = lines[begin:place]
        if heading.isdigit() and lines[place + 1 : end] in (b"\n", b"\r\n") and _INTEGER.fullmatch(heading.decode()):
            parts.append(lines[start:begin])
            counts.append(_count_lines(parts[-1]))
            numbers.append(int(heading))
            start = end
        place = lines.find(b":", end)
    parts.append(lines[start:])
    counts.append(_count_lines(parts[-1]))
    return b"".join(parts), numbers, counts


def _narrow(column: np.ndarray) -> np.ndarray:
    """A copy in half the width where that is exact."""
    if column.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = column.astype(np.float32)
        return narrow if (narrow == column).all() else column.copy()
    limits = np.iinfo(np.int32)
    fits = not len(column) or (column.min() >= limits.min and column.max() <= limits.max)
    return column.astype(np.int32) if fits else column.copy()


def find_duplicate(users: np.ndarray, items: np.ndarray) -> tuple[int, int] | None:
    """The first row that repeats a pair, after the row that it repeats."""
    order = np.lexsort((items, users))  # stable: of two equal pairs the later row comes second
    again = (np.diff(users[order]) == 0) & (np.diff(items[order]) == 0)
    if not again.any():
        return None
    row = int(order[1:][again].min())
    return int(np.flatnonzero((users == users[row]) & (items == items[row]))[0]), row


class TextList(list[str]):
    """Ids read from a text file, whose type is that of the data's."""


def same_type(item_ids: Any, items: np.ndarray | Coded) -> tuple[Any, np.ndarray | Coded]:
    """A catalogue read from a text file, and a column of items, in one type: integers where both are written so."""
    if not isinstance(item_ids, TextList) or isinstance(items, Coded) or items.dtype.kind in "OU":
        return item_ids, items
    if all(_INTEGER.fullmatch(text) for text in item_ids):
        return np.array(item_ids, dtype=np.int64), items
    distinct, rows = np.unique(items, return_inverse=True)
    return item_ids, Coded([str(number) for number in distinct.tolist()], rows.reshape(-1))


def to_interactions(
    users: np.ndarray | Coded,
    items: np.ndarray | Coded,
    values: np.ndarray | None,
    timestamps: np.ndarray | None,
    *,
    duplicates: str | None,
    item_ids: Any = None,
    user_ids: Any = None,
    unlisted: str = "error",
) -> Interactions:
    """Interactions of columns as read, with integer ids in the usual width."""
    item_ids, items = same_type(item_ids, items)
    options = {"duplicates": duplicates, "item_ids": item_ids, "user_ids": user_ids, "unlisted": unlisted}
    data = Interactions.from_arrays(users, items, values, timestamps, **options)  # type: ignore[arg-type]
    wide = {
        name: ids.astype(np.int64) if ids.dtype.kind in "iu" and ids.dtype.itemsize < 8 else ids
        for name, ids in (("user_ids", data.user_ids), ("item_ids", data.item_ids))
    }
    return data._replace(**wide)
