"""Parser of blocks of lines by polars, which rejects lines that polars and `_records` might read differently."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec._kernels.datasets import _text as _kernel
from fastfedrec.core.threads import is_forked
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.times import iso_clock, iso_day
from fastfedrec.datasets._fields import BYTE_ORDER_MARK, NULL, Field, Kind, parse_field

_imported_in: int | None = None  # id of the process in which this module imported polars
_POWERS = [10**k for k in range(1, 19)]
# Bytes in a text with blanks around fields, for any separator and for a space as the separator.
_BLANK_MARKS = (b" ", b"\t"), (b"  ", b"\t", b"\n ", b" \n", b" \r")
_WIDE_BLANKS = "\xa0".encode(), "\u1680".encode(), b"\xe2\x80", "\u205f".encode(), "\u3000".encode()
_MAX_PART = 2**62  # of a day and of a time of the day, so that their sum fits in 64 bits


def import_polars(purpose: str) -> Any:
    """Import polars, or raise an ImportError that names the purpose and the extra that installs it."""
    global _imported_in
    is_new = "polars" not in sys.modules
    try:
        polars = importlib.import_module("polars")
    except ImportError as error:
        raise ImportError(
            f"{purpose}: reading files needs polars: pip install 'fastfedrec[data]'; or read the file by other means, "
            "and use from_arrays, from_dataframe or from_scipy of Interactions"
        ) from error
    if is_new:
        _imported_in = os.getpid()
    return polars


def may_hang() -> bool:
    """Return whether polars might wait for threads that do not exist after a fork."""
    return is_forked() and _imported_in != os.getpid()


def strip_blanks(text: bytes, separator: bytes, quotes: bool) -> bytes:
    """Remove blanks around fields without quotes from UTF-8 text that begins with a record, as `_records` does."""
    marks = [mark for mark in _BLANK_MARKS[separator == b" "] if mark != separator]
    if not text.isascii():
        # The search for one byte is much faster than for several.
        marks += [mark for mark in _WIDE_BLANKS if mark[:1] in text]
    if not (text.startswith(b" ") or any(mark in text for mark in marks)):
        return text
    out = np.empty(len(text), dtype=np.uint8)
    return out[: _kernel.strip_blanks(text, separator, quotes, out)].tobytes()


def parse_lines(
    text: bytes,
    separator: bytes,
    fields: Sequence[Field],
    quoted: bool,
    numbering: Sequence[dict[str, int]],
) -> list[np.ndarray] | None:
    """Parse whole lines with valid quotes to int64 and float64 columns; return None for ambiguous lines."""
    # `text` is UTF-8, and each line ends with a line feed, before which carriage returns are ignored.  With quotes,
    # blanks around fields are already removed.  `numbering` maps the texts of each text column to numbers, and new
    # texts are added.
    pl = importlib.import_module("polars")
    if text.startswith(BYTE_ORDER_MARK.encode()):  # in concatenated files; polars would remove it
        return None
    scan = _kernel.scan(text, ord(separator))
    if not quoted and (scan[-1] or not scan[2] or separator == b" "):  # blanks around fields are possible
        stripped = strip_blanks(text, separator, quotes=False)
        scan = _kernel.scan(stripped, ord(separator)) if stripped is not text else scan
        text = stripped
    n_lines, n_separators, is_ascii, has_lone_return, is_ambiguous = scan
    if has_lone_return or not (is_ascii or _is_utf8(text)):  # polars removes a single carriage return from numbers
        return None
    # Only plain lines let polars parse ids as integers, because it would also accept "007" or quoted numbers.
    is_plain = not quoted and is_ascii and not is_ambiguous
    types = {Kind.WHOLE: pl.Int64, Kind.DECIMAL: pl.Float64} | ({Kind.ID: pl.Int64} if is_plain else {})
    schema = {f"column_{n}": types.get(field.kind, pl.String) for n, field in enumerate(fields, start=1)}
    read_positions = [position for position, field in enumerate(fields) if field.kind is not Kind.SKIP]
    try:
        frame = pl.read_csv(
            text, has_header=False, columns=read_positions, schema=schema, separator=separator.decode(),
            quote_char='"' if quoted else None, null_values=NULL if b"\\" in text else None,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    if quoted:
        n_lines, n_separators = _count_outside(text, separator)
    if len(frame) != n_lines or n_separators != n_lines * (len(fields) - 1):  # polars fills missing fields with null
        return None
    empty = [fields[position] for series, position in zip(frame, read_positions, strict=True) if series.null_count()]
    if not all(field.optional for field in empty):
        return None
    # Ids that are not plain are read as text, to compare their length with that of the canonical numbers.
    ids = [name for name, field in zip(schema, fields, strict=True) if field.kind is Kind.ID and not is_plain]
    n_letters = frame.select(pl.col(ids).str.len_bytes().sum()).to_dict(as_series=False) if ids else {}
    # One call casts all columns, so that polars uses its threads.
    frame = frame.with_columns(pl.col(ids).cast(pl.Int64, strict=False)) if ids else frame
    columns, numberings = [], iter(numbering)
    for series, position in zip(frame, read_positions, strict=True):
        field = fields[position]
        if field.kind is Kind.TEXT:
            column = _texts(series, field, next(numberings))
        elif field.kind is Kind.ISO:
            column = moments(series, field.unit)
        elif field.kind is Kind.STATED:
            column = _stated_moments(series, field)
        elif field.kind is Kind.DECIMAL:
            column = _decimals(series.to_numpy(), field)
        else:
            column = _integers(series, field, n_letters[series.name][0] if series.name in n_letters else None)
        if column is None:
            return None
        columns.append(column)
    return columns


def _is_utf8(lines: bytes) -> bool:
    try:
        lines.decode()
    except UnicodeDecodeError:
        return False
    return True


def _count_outside(text: bytes, separator: bytes) -> tuple[int, int]:
    """Return the numbers of line feeds and of separators outside of quotes."""
    # An even number of quotes so far means outside of quotes; only the lowest bit of the wrapping sum matters.
    letters = np.frombuffer(text, dtype=np.uint8)
    outside = np.cumsum(letters == ord('"'), dtype=np.uint8) & 1 == 0
    lines, separators = (np.count_nonzero((letters == ord(letter)) & outside) for letter in (b"\n", separator))
    return int(lines), int(separators)


def _integers(series: Any, field: Field, n_letters: int | None = None) -> np.ndarray | None:
    """Return whole numbers, or None if one is invalid or, given the number of letters, not canonical."""
    if series.null_count():
        if not field.optional:
            return None
        known = series.drop_nulls().to_numpy()
        column = series.fill_null(MISSING_TIMESTAMP).to_numpy()
    else:
        known = column = series.to_numpy()
    if not len(known):
        return None if n_letters else column  # only null: None if there is text
    low, high = int(known.min()), int(known.max())
    if low == MISSING_TIMESTAMP or not field.allows(low) or not field.allows(high):
        return None
    if n_letters is None:
        return column
    if low > -(2**31) and high < 2**31:
        known = known.astype(np.int32)
    negative = int(np.count_nonzero(known < 0)) if low < 0 else 0
    sizes = np.abs(known) if negative else known
    largest = max(high, -low)
    n_digits = len(known) + sum(int(np.count_nonzero(sizes >= power)) for power in _POWERS if power <= largest)
    # Any other form of a number, such as 007 or +7, has more letters than the digits and the sign.
    return column if n_digits + negative == n_letters else None


def _decimals(numbers: np.ndarray, field: Field) -> np.ndarray | None:
    if not np.isfinite(numbers).all() or (
        len(numbers) and not field.low <= numbers.min() <= numbers.max() <= field.high
    ):
        return None
    if field.step and (numbers % field.step).any():
        return None
    return numbers + 0.0  # removes negative zeros


def coded(series: Any) -> tuple[list[str], np.ndarray]:
    """Return distinct texts in order of appearance, and their number for each entry; null has the next number."""
    pl = importlib.import_module("polars")
    # The physical values of an Enum are the positions of its categories.
    distinct = series.drop_nulls().unique(maintain_order=True)
    codes = series.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64).fill_null(len(distinct))
    return distinct.to_list(), codes.to_numpy()


def _texts(series: Any, field: Field, known: dict[str, int]) -> np.ndarray | None:
    distinct, codes = coded(series)
    # These texts were in quotes, because polars reads them as null without quotes.
    if NULL in distinct:
        return None
    if "" in distinct and not field.optional:
        return None
    if any(text.startswith(BYTE_ORDER_MARK) for text in distinct):
        return None
    numbers = [known.setdefault(text, len(known)) if text else MISSING_TIMESTAMP for text in distinct]
    return np.array([*numbers, MISSING_TIMESTAMP], dtype=np.int64)[codes]


def moments(series: Any, unit: str) -> np.ndarray | None:
    """Return times of ISO 8601 as numbers since 1970, or None if one is invalid."""
    # Each distinct day and each distinct time of the day is parsed once.
    total: np.ndarray = np.zeros(len(series), dtype=np.int64)
    for part, read in ((series.str.slice(0, 10), iso_day), (series.str.slice(10), iso_clock)):
        distinct, codes = coded(part)
        numbers = [read(text, unit) for text in distinct]
        if any(number is None or abs(number) > _MAX_PART for number in numbers):
            return None
        total += np.array([*numbers, 0], dtype=np.int64)[codes]
    # The parts of a null entry count as 0 above, so it is marked last.
    total[series.is_null().to_numpy()] = MISSING_TIMESTAMP
    return total


def _stated_moments(series: Any, field: Field) -> np.ndarray | None:
    """Return times in a given format as numbers since 1970, or None if one is invalid."""
    distinct, codes = coded(series)
    numbers = [parse_field(field, text) for text in distinct]
    if None in numbers:
        return None
    return np.array([*numbers, MISSING_TIMESTAMP], dtype=np.int64)[codes]
