"""Reader of text files in blocks, so that a file need not fit in memory.

polars parses the blocks.  Python (`_records`) reads ambiguous or invalid lines again, and its result counts.
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
from fastfedrec.datasets._fields import BLANKS, Field, Kind, parse_field
from fastfedrec.datasets._gathered import GatheredColumn
from fastfedrec.datasets._polars import import_polars, may_hang, parse_lines, strip_blanks
from fastfedrec.datasets._records import OpenQuote, parse_records, split_records
from fastfedrec.datasets._streams import NotUTF8
from fastfedrec.datasets.files import refuse

__all__ = [
    "BLANKS",
    "ColumnReader",
    "OpenQuote",
    "TextList",
    "find_duplicate",
    "is_readable_id",
    "split_records",
    "to_interactions",
]

_BLOCK_BYTES = 1 << 23  # per read and parse
_PART_BYTES = 1 << 20  # smallest part of a block that is parsed on its own thread
_DOUBTFUL_BYTES = 1 << 15  # largest piece of ambiguous lines that Python reads without further division
_SPARE = 1.2  # factor on the expected number of rows; unused capacity takes no memory
_STAND_INS = b"\x1f\x1e\x1d\x1c\x01\x02\x03\x04"  # replace a separator of several bytes in blocks without this byte
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b"\r\n"
_TEXT = Field("id", Kind.TEXT)


class Stream(Protocol):
    """Source of bytes with line feeds as line ends."""

    def read(self, size: int, /) -> bytes:
        """Return some bytes, or none at the end."""


class ColumnReader:
    """Reader of the columns of one layout from any number of streams."""

    # With `headings`, a line such as "7:" precedes the lines that belong to it, and its number becomes a last column.
    # Blank lines at the end and lines that begin with `comment` are not rows.  With `drop_missing`, rows without an id
    # are dropped and counted.

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
        self._read_positions = [position for position, field in enumerate(fields) if field.kind is not Kind.SKIP]
        if headings:
            self._read_positions.append(len(fields))
        # Texts are numbered in order of first appearance, so that memory holds each distinct text once.
        self._numbering: dict[int, dict[str, int]] = {
            position: {} for position, field in enumerate(fields) if field.kind is Kind.TEXT
        }
        self._comment = comment
        is_id = [
            position < len(fields) and fields[position].kind in (Kind.ID, Kind.TEXT)
            for position in self._read_positions
        ]
        self._id_columns = [k for k, has_ids in enumerate(is_id) if has_ids and drop_missing]
        self._gathered = [GatheredColumn() for _ in self._read_positions]
        self._starts: list[int] = []  # first row of each stream
        self._stream_names: list[str] = []
        self.n_rows, self.n_dropped = 0, 0

    def read(self, stream: Stream, name: str, *, first_line: int = 1, n_bytes: int = 0) -> None:
        """Append the rows of a stream at its `first_line`; `n_bytes` is its approximate size, or 0 if unknown."""
        import_polars(name)
        self._n_bytes, self._n_taken, self._n_before = n_bytes, 0, self.n_rows
        self._starts.append(self.n_rows)
        self._stream_names.append(name)
        cursor, n_rows, tail, at_end = _Cursor(first_line, None), self.n_rows, b"", False
        n_parts = min(resolve_n_threads(0), 4)
        parsed: deque[_Parsed] = deque()
        with ThreadPoolExecutor(n_parts + 1) as workers:  # a block is read while the previous ones are parsed
            block = stream.read(_BLOCK_BYTES)
            if first_line == 1:
                block = block.removeprefix(_BYTE_ORDER_MARK)
            while not at_end:
                at_end = not block
                next_block = workers.submit(stream.read, _BLOCK_BYTES) if len(block) >= _BLOCK_BYTES // 2 else None
                parts, new_tail = self._split(tail, block, n_parts)
                if parts:
                    parsed.append(_Parsed(parts, [workers.submit(self._parse_part, part) for part in parts]))
                while len(parsed) > bool(parts):
                    cursor = self._append_parsed(parsed.popleft(), cursor)
                tail = new_tail
                if not parts:  # the meaning of these lines depends on previous lines
                    text = tail + block if tail else block
                    text += b"\n" if at_end and text else b""  # the last line may have no line feed
                    if self._quotes and b'"' in text and not self._has_comments(text):
                        text = strip_blanks(text, self._separator.encode(), quotes=True)
                    if at_end:
                        text = text.rstrip(_BLANK)  # blank lines at the end
                        text += b"\n" if text else b""
                    n_used, cursor = self._parse(text, cursor, at_end)
                    tail = text[n_used:] if n_used else text
                if not at_end:
                    block = next_block.result() if next_block else stream.read(_BLOCK_BYTES)
        if self.n_rows == n_rows and self.n_dropped:
            refuse(name, first_line, "at least one row must have both ids, got none; check the columns of the ids")
        if self.n_rows == n_rows:
            refuse(name, cursor.line, "the file is empty" if cursor.line == 1 else "the file ends without a single row")

    def _split(self, tail: bytes, block: bytes, n_parts: int) -> tuple[list[bytes], bytes]:
        """Return parts of whole lines that can be parsed in parallel, or none, and the remaining bytes."""
        # The numbers of texts, headings and open quotes depend on previous lines, which excludes parallel parts.
        if self._numbering or self._headings or (self._quotes and (b'"' in block or b'"' in tail)):
            return [], tail
        end = _end_of_lines(block)
        if not end:
            return [], tail
        # Small blocks are parsed as one part, because threads would cost more than they save.
        n_parts = n_parts if end >= _PART_BYTES * n_parts else 1
        ends = {block.rfind(b"\n", 0, end * part // n_parts) + 1 for part in range(1, n_parts)}
        first, *later = itertools.pairwise(sorted(ends | {0, end}))
        parts = [b"".join((tail, memoryview(block)[slice(*first)]))] + [block[slice(*bounds)] for bounds in later]
        return parts, block[end:]

    def _parse_part(self, lines: bytes) -> list[np.ndarray] | None:
        """Parse lines without quoted fields; return their columns, or None if Python must read them."""
        columns = self._parse_plain(lines, quoted=False)
        return None if columns is None else self._compact(columns)

    def _append_parsed(self, block: "_Parsed", cursor: "_Cursor") -> "_Cursor":
        """Append the columns of the parts of a block, and return the new cursor."""
        for part, lines in zip(block.columns, block.lines, strict=True):
            if (columns := part.result()) is None:
                cursor = self._parse_ambiguous(lines, cursor)
                continue
            self._n_taken += len(lines)
            self._append(columns)
            cursor = _Cursor(cursor.line + len(columns[0]), cursor.heading)
        return cursor

    def _parse_ambiguous(self, lines: bytes, cursor: "_Cursor") -> "_Cursor":
        """Append ambiguous lines, and return the new cursor."""
        # Bisection leaves Python, which is slow, only a small piece around the ambiguous record.
        middle, *_ = _cut(lines, lines.rfind(b"\n", 0, len(lines) // 2) + 1, self._separator, self._quotes)
        if len(lines) <= _DOUBTFUL_BYTES or not middle:
            columns, _, cursor = self._parse_slowly(lines, cursor, at_end=False)
            self._append(self._compact(columns))
            return cursor
        for half in (lines[:middle], lines[middle:]):
            quoted = self._quotes and b'"' in half
            if (parsed := self._parse_with_headings(half, quoted, cursor)) is None:
                cursor = self._parse_ambiguous(half, cursor)
            else:
                columns, cursor = parsed
                self._append(self._compact(columns))
        return cursor

    def _parse(self, text: bytes, cursor: "_Cursor", at_end: bool) -> tuple[int, "_Cursor"]:
        """Append the whole records at the start of the text; return the number of used bytes and the new cursor."""
        whole = _end_of_lines(text)
        end, is_sure, quoted = _cut(text, whole, self._separator, self._quotes)
        if not whole or (is_sure and not end and not at_end):
            return 0, cursor
        if self._has_comments(text):  # `_cut` also counts the quotes in comments, so its result is unsure
            end, is_sure = whole, not (self._quotes and b'"' in text)
        lines = text if end == len(text) else text[:end]
        if is_sure and end:
            if (parsed := self._parse_with_headings(lines, quoted, cursor)) is None:
                return end, self._parse_ambiguous(lines, cursor)
            columns, cursor = parsed
        else:
            columns, end, cursor = self._parse_slowly(text[:whole], cursor, at_end)
        self._append(self._compact(columns))
        return end, cursor

    def _parse_with_headings(
        self, lines: bytes, quoted: bool, cursor: "_Cursor"
    ) -> tuple[list[np.ndarray], "_Cursor"] | None:
        """Parse lines with headings; return columns and the new cursor, or None if Python must read the lines."""
        n_lines, heading = _count_lines(lines), cursor.heading
        numbers: list[int] = []
        counts: list[int] = []
        if self._headings:
            lines, numbers, counts = _without_headings(lines)
            if cursor.heading is None and counts[0]:
                return None
            numbers[0] = -1 if cursor.heading is None else cursor.heading
            heading = numbers[-1] if len(numbers) > 1 else cursor.heading
        columns = self._parse_plain(lines, quoted)
        if columns is None:
            return None
        if self._headings:
            columns.append(np.repeat(np.array(numbers, dtype=np.int64), counts))
        return columns, _Cursor(cursor.line + n_lines, heading)

    def _parse_plain(self, lines: bytes, quoted: bool) -> list[np.ndarray] | None:
        """Parse lines without headings; return their columns, or None if Python must read the lines."""
        if may_hang() or self._has_comments(lines):
            return None
        separator = self._separator.encode()
        if len(separator) > 1:
            # polars takes separators of one byte only.
            stand_in = next((bytes([byte]) for byte in _STAND_INS if byte not in lines), None)
            if stand_in is None or quoted:
                return None
            lines, separator = lines.replace(separator, stand_in), stand_in
        return parse_lines(lines, separator, self._fields, quoted, list(self._numbering.values()))

    def _parse_slowly(self, lines: bytes, cursor: "_Cursor", at_end: bool) -> tuple[list[np.ndarray], int, "_Cursor"]:
        """Parse lines by Python; return columns, the number of used bytes and the new cursor."""
        text = self._decode(lines, cursor)
        parsed_columns, used, n_lines, heading = parse_records(
            text, self._fields, self._separator, self._quotes, name=self._stream_names[-1], line=cursor.line,
            heading=cursor.heading, headings=self._headings, at_end=at_end,
            comment=self._comment,
        )  # fmt: skip
        columns = []
        for position, column in zip(self._read_positions, parsed_columns, strict=True):
            if (known := self._numbering.get(position)) is not None:
                column = [known.setdefault(text, len(known)) if text else MISSING_TIMESTAMP for text in column]
            is_decimal = position < len(self._fields) and self._fields[position].kind is Kind.DECIMAL
            columns.append(np.array(column, dtype=np.float64 if is_decimal else np.int64))
        return columns, len(text[:used].encode()), _Cursor(cursor.line + n_lines, heading)

    def _decode(self, lines: bytes, cursor: "_Cursor") -> str:
        try:
            return lines.decode()
        except UnicodeDecodeError as error:
            line = cursor.line + lines.count(b"\n", 0, error.start)
            message = f"{self._stream_names[-1]}, line {line}: the file is not UTF-8 text ({error.reason}); convert it"
            raise NotUTF8(message) from None

    def _has_comments(self, text: bytes) -> bool:
        if self._comment is None:
            return False
        comment = self._comment.encode()
        return text.startswith(comment) or b"\n" + comment in text

    def _append(self, rows: list[np.ndarray]) -> None:
        """Append the rows of a block, without rows that lack an id if these are dropped."""
        if self._id_columns:
            is_missing = np.any([rows[column] == MISSING_TIMESTAMP for column in self._id_columns], axis=0)
            self.n_dropped += int(np.count_nonzero(is_missing))
            rows = self._compact([column[~is_missing] for column in rows]) if is_missing.any() else rows
        if len(rows[0]):
            self._add_rows(rows)
            self.n_rows += len(rows[0])

    def _compact(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """Return columns in their stored dtype; for parallel parts this runs on their threads."""
        return [_narrow(column) for column in rows]

    def _add_rows(self, rows: list[np.ndarray]) -> None:
        """Append rows, given by column."""
        # The expected number of rows extrapolates the rows per byte so far.
        n_read = self.n_rows - self._n_before + len(rows[0])
        n_expected = int(_SPARE * n_read * self._n_bytes / self._n_taken) if self._n_taken else 0
        for gathered, column in zip(self._gathered, rows, strict=True):
            gathered.append(column, self._n_before + n_expected)

    def columns(self) -> list[Any]:
        """Return each column that is not skipped, as `Coded` or as the smallest exact array."""
        return [
            Coded(list(self._numbering[position]), column) if position in self._numbering else column
            for position, column in zip(self._read_positions, self._arrays(), strict=True)
        ]

    def _arrays(self) -> list[Any]:
        return [gathered.array() for gathered in self._gathered]

    def file_of(self, row: int) -> str:
        """Return the name of the stream of a row."""
        return self._stream_names[bisect_right(self._starts, row) - 1]


class _Cursor(NamedTuple):
    """Position of the reader: the number of the next line, and the last heading before it."""

    line: int
    heading: int | None


class _Parsed(NamedTuple):
    """Parts of a block, and their columns when they are parsed."""

    lines: list[bytes]
    columns: "list[Future[list[np.ndarray] | None]]"


def _end_of_lines(text: bytes) -> int:
    """Return the position after the last line that has a line feed and is not blank."""
    # Blank lines may only be at the end of a file, so they wait for the next block.
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
    """Return the end of the last whole record, whether it is sure, and whether fields are in quotes."""
    # It is sure if every quote opens a field, closes a field, or is one of a pair of doubled quotes.
    if not quotes or text.find(b'"', 0, end) < 0:
        return end, True, False
    letters = np.frombuffer(text, dtype=np.uint8, count=end)
    quote_positions = np.flatnonzero(letters == ord('"'))
    while end and np.searchsorted(quote_positions, end) % 2:  # an odd number of quotes: the end is within quotes
        end = text.rfind(b"\n", 0, quote_positions[np.searchsorted(quote_positions, end) - 1]) + 1
    quote_positions = quote_positions[: np.searchsorted(quote_positions, end)]
    last = np.frombuffer(separator[-1].encode()[-1:], dtype=np.uint8)[0]
    first = np.frombuffer(separator[0].encode()[:1], dtype=np.uint8)[0]
    opening, closing = quote_positions[::2], quote_positions[1::2]
    before = letters[np.maximum(opening - 1, 0)]
    after = letters[np.minimum(closing + 1, end - 1)]
    returns = (after == ord("\r")) & (letters[np.minimum(closing + 2, end - 1)] == ord("\n"))
    opens = (opening == 0) | np.isin(before, (last, ord("\n"))) | (before == ord('"'))
    closes = np.isin(after, (first, ord("\n"), ord('"'))) | returns
    return end, bool(opens.all() and closes.all()) and end > 0, len(quote_positions) > 0


def _without_headings(lines: bytes) -> tuple[bytes, list[int], list[int]]:
    """Remove headings; return the other lines, the numbers of the headings after a -1, and the lines below each."""
    numbers, parts, start, colon = [-1], [], 0, lines.find(b":")
    counts = []
    while colon >= 0:
        begin, end = lines.rfind(b"\n", 0, colon) + 1, lines.find(b"\n", colon) + 1
        heading = lines[begin:colon]
        if heading.isdigit() and lines[colon + 1 : end] in (b"\n", b"\r\n") and _INTEGER.fullmatch(heading.decode()):
            parts.append(lines[start:begin])
            counts.append(_count_lines(parts[-1]))
            numbers.append(int(heading))
            start = end
        colon = lines.find(b":", end)
    parts.append(lines[start:])
    counts.append(_count_lines(parts[-1]))
    return b"".join(parts), numbers, counts


def _narrow(column: np.ndarray) -> np.ndarray:
    """Return a copy in 32 bits if that is exact, otherwise a copy in the same dtype."""
    if column.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = column.astype(np.float32)
        return narrow if (narrow == column).all() else column.copy()
    limits = np.iinfo(np.int32)
    fits = not len(column) or (column.min() >= limits.min and column.max() <= limits.max)
    return column.astype(np.int32) if fits else column.copy()


def find_duplicate(users: np.ndarray, items: np.ndarray) -> tuple[int, int] | None:
    """Return the earlier and the later row of the first repeated pair, or None if pairs are distinct."""
    order = np.lexsort((items, users))  # stable: among equal pairs the later row comes second
    is_repeat = (np.diff(users[order]) == 0) & (np.diff(items[order]) == 0)
    if not is_repeat.any():
        return None
    row = int(order[1:][is_repeat].min())
    return int(np.flatnonzero((users == users[row]) & (items == items[row]))[0]), row


class TextList(list[str]):
    """Ids from a text file, which are converted to the type of the ids in the data."""


def same_type(item_ids: Any, items: np.ndarray | Coded) -> tuple[Any, np.ndarray | Coded]:
    """Return a catalogue from a text file and a column of items in a common type: integers if both are integers."""
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
    """Build interactions from columns of a reader, with integer ids as int64."""
    item_ids, items = same_type(item_ids, items)
    options = {"duplicates": duplicates, "item_ids": item_ids, "user_ids": user_ids, "unlisted": unlisted}
    # Readers narrow integer ids to 32 bits; users see int64 for any file.
    data = Interactions.from_arrays(users, items, values, timestamps, **options)  # type: ignore[arg-type]
    wide = {
        name: ids.astype(np.int64) if ids.dtype.kind in "iu" and ids.dtype.itemsize < 8 else ids
        for name, ids in (("user_ids", data.user_ids), ("item_ids", data.item_ids))
    }
    return data._replace(**wide)


def is_readable_id(text: str) -> bool:
    """Return whether a text file can hold an id: loaders refuse byte 0, and read some texts as a missing id.

    Parameters
    ----------
    text : str
        Id.

    Returns
    -------
    bool
        Whether loaders read the id back.
    """
    return "\0" not in text and parse_field(_TEXT, text) == text
