"""Columns of text files, parsed block by block (_kernels/datasets/tables.pyx), so that no file need fit in memory."""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from fastfedrec._kernels.datasets import tables as _kernel
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.ids import Coded
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.files import refuse

_BLOCK_BYTES = 1 << 23  # read and parsed at once: with less, threads wait for one another more often
_PIECE_BYTES = 1 << 16  # worth a thread
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as the kernel reads one, of at most 63 bits
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Field:
    """What stands in one place of every line: a kind of the kernel, and in words what it must be."""

    name: str
    kind: int = _kernel.SKIP
    rule: str = ""


class FieldError(ValueError):
    """A field that is not what it should be: `index` and `text` of it."""

    def __init__(self, message: str, index: int, text: str):
        super().__init__(message)
        self.index, self.text = index, text


class ColumnReader:
    """Columns of one layout, gathered over any number of streams.

    With `headings`, a line such as "7:" stands above the lines it belongs to, and its number becomes a last column.
    Decimals must lie between `low` and `high`, and be multiples of `step` where that is not 0.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        separator: str,
        *,
        low: float = 0.0,
        high: float = math.inf,
        step: float = 0.0,
        quotes: bool = False,
        headings: bool = False,
    ):
        self._fields, self._separator, self._limits = fields, separator, (low, high, step)
        self._quotes, self._headings = quotes, headings
        self._kinds = np.array([field.kind for field in fields], dtype=np.int32)
        self._names = [_kernel.Names() for field in fields if field.kind & ~_kernel.OPTIONAL == _kernel.TEXT]
        self._kept = [place for place, field in enumerate(fields) if field.kind != _kernel.SKIP]
        if headings:
            self._kept.append(len(fields))
        self._blocks: list[list[np.ndarray]] = [[] for _ in self._kept]
        self._starts: list[int] = []  # first row of each stream
        self._stream_names: list[str] = []
        self.n_rows = 0

    def read(self, stream: IO[bytes], name: str, *, first_line: int = 1) -> None:
        """Append the rows of a stream, which messages call `name`, and which is at the start of its `first_line`."""
        heading = np.full(1 if self._headings else 0, -1, dtype=np.int64)
        self._starts.append(self.n_rows)
        self._stream_names.append(name)
        line, n_rows, rest, at_end, n_threads = first_line, self.n_rows, b"", False, resolve_n_threads(0)
        while not at_end:
            block = stream.read(_BLOCK_BYTES)
            at_end = not block
            text = rest + block
            if line == 1:
                text = text.removeprefix(_BYTE_ORDER_MARK)
            if at_end and text and not text.endswith(b"\n"):
                text += b"\n"
            done = 0
            if whole := text.rfind(b"\n") + 1:
                done, n_lines = self._parse(text, whole, heading, line, at_end, n_threads)
                line += n_lines
            rest = text[done:]
        if self.n_rows == n_rows:
            refuse(name, line, "the file is empty" if line == 1 else "the file ends without a single row")

    def _parse(
        self, text: bytes, whole: int, heading: np.ndarray, line: int, at_end: bool, n_threads: int
    ) -> tuple[int, int]:
        """Append the rows of the whole lines; the bytes and lines that were used (a quoted field may go on below)."""
        name = self._stream_names[-1]
        lines = np.frombuffer(text, dtype=np.uint8, count=whole)
        n_threads = min(n_threads, max(1, whole // _PIECE_BYTES))
        cuts = np.empty((n_threads + 1, 2), dtype=np.int64)
        _kernel.cut_lines(lines, cuts)
        columns = np.empty((len(self._fields) + self._headings, cuts[-1, 1]), dtype=np.int64)
        n, done, n_lines, problem, detail, begin, end = _kernel.parse(
            lines, cuts, np.frombuffer(self._separator.encode(), dtype=np.uint8),
            self._kinds, columns, heading, self._names, *self._limits, self._quotes, n_threads,
        )  # fmt: skip
        if problem == _kernel.WRONG_COUNT:
            wanted = f"{len(self._fields)} fields ({', '.join(field.name for field in self._fields)})"
            shown = text[done : text.find(b"\n", done)].decode(errors="replace")[:80]
            reason = f"expected {wanted} separated by {self._separator!r}, got {detail}: {shown!r}"
            refuse(name, line + n_lines, reason)
        if problem == _kernel.BAD_FIELD:
            field, got = self._fields[detail], text[begin:end].decode(errors="replace")
            message = f"{name}, line {line + n_lines}: {field.name} must be {field.rule}, got {got[:40]!r}"
            raise FieldError(message, detail, got)
        if problem == _kernel.NO_HEADING:
            refuse(name, line + n_lines, "a line such as '1:', which names the movie, must come first")
        if problem == _kernel.OPEN_QUOTE and at_end:
            refuse(name, line + n_lines, "a quote is opened and not closed")
        self._keep(
            [
                columns[place, :n].view(np.float64) if self._is(place, _kernel.DECIMAL) else columns[place, :n]
                for place in self._kept
            ]
        )
        self.n_rows += n
        return done, n_lines

    def _is(self, place: int, kind: int) -> bool:
        return place < len(self._fields) and self._fields[place].kind == kind

    def _keep(self, rows: list[np.ndarray]) -> None:
        """Take some more rows: of each column that is not skipped."""
        for blocks, column in zip(self._blocks, rows, strict=True):
            blocks.append(_narrow(column))

    def columns(self) -> list[Any]:
        """Each column that is not skipped, `Coded` or the narrowest exact array; the reader is empty after that."""
        names = iter(self._names)
        columns: list[np.ndarray | Coded] = []
        for blocks, place in zip(self._blocks, self._kept, strict=True):
            column = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
            blocks.clear()
            is_text = self._is(place, _kernel.TEXT)
            columns.append(self._decode(place, next(names).to_list(), column) if is_text else column)
        return columns

    def _decode(self, place: int, texts: list[bytes], numbers: np.ndarray) -> Coded:
        try:
            return Coded([text.decode() for text in texts], numbers)
        except UnicodeDecodeError as error:
            row = int(np.argmax(numbers == texts.index(error.object))) + 1
            reason = f"{self._fields[place].name} must be UTF-8 text, got {error.object[:40]!r}; convert the file"
            raise ValueError(f"{self._stream_names[-1]}, data row {row}: {reason}") from None

    def file_of(self, row: int) -> str:
        """The name of the stream that a row came from."""
        return self._stream_names[bisect_right(self._starts, row) - 1]


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


class TextList(list):
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
    unlisted: str = "error",
) -> Interactions:
    """Interactions of columns as read, with integer ids in the usual width."""
    item_ids, items = same_type(item_ids, items)
    options = {"duplicates": duplicates, "item_ids": item_ids, "unlisted": unlisted}
    data = Interactions.from_arrays(users, items, values, timestamps, **options)  # type: ignore[arg-type]
    wide = {
        name: ids.astype(np.int64) if ids.dtype.kind in "iu" and ids.dtype.itemsize < 8 else ids
        for name, ids in (("user_ids", data.user_ids), ("item_ids", data.item_ids))
    }
    return data._replace(**wide)
