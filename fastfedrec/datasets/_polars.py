"""Blocks of lines as columns, by polars; what it would understand in another way than `_records` is left in doubt."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec._kernels.datasets import _text as _kernel
from fastfedrec.core.threads import is_forked
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.datasets._fields import BYTE_ORDER_MARK, NULL, Field, Kind, iso_clock, iso_day, parse_field

_imported_in: int | None = None  # the process whose import of polars was ours
_POWERS = [10**k for k in range(1, 19)]
# Bytes that a text with blanks around fields has: in general, and where a single space separates two fields.
_BLANK_MARKS = (b" ", b"\t"), (b"  ", b"\t", b"\n ", b" \n", b" \r")
_WIDE_BLANKS = "\xa0".encode(), "\u1680".encode(), b"\xe2\x80", "\u205f".encode(), "\u3000".encode()
_FAR = 2**62  # of a day and of a time of the day, so that the sum is one of 64 bits


def import_polars(what: str) -> Any:
    """The library.

    Parameters
    ----------
    what : str
        What needs it, for the message.

    Returns
    -------
    module
        polars.

    Raises
    ------
    ImportError
        It is not installed; the extra that has it is named.
    """
    global _imported_in
    is_new = "polars" not in sys.modules
    try:
        polars = importlib.import_module("polars")
    except ImportError as error:
        raise ImportError(
            f"{what}: reading files needs polars: pip install 'fastfedrec[data]'; from_arrays, from_dataframe and "
            "from_scipy of Interactions take what other means have read"
        ) from error
    if is_new:
        _imported_in = os.getpid()
    return polars


def may_hang() -> bool:
    """Whether polars waits for threads that a fork has left behind."""
    return is_forked() and _imported_in != os.getpid()


def strip_blanks(text: bytes, separator: bytes, quotes: bool) -> bytes:
    """Remove the blanks around fields that stand in no quotes, as `_records` does.

    Parameters
    ----------
    text : bytes
        UTF-8 that begins with a record.
    separator : bytes
        Between two fields.
    quotes : bool
        Whether fields may stand in quotes.

    Returns
    -------
    bytes
        The same text where it has no such blanks.
    """
    marks = [mark for mark in _BLANK_MARKS[separator == b" "] if mark != separator]
    if not text.isascii():
        marks += [mark for mark in _WIDE_BLANKS if mark[:1] in text]  # one byte is found far sooner than several
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
    """Columns of whole lines in which every quote stands where it should.

    Parameters
    ----------
    text : bytes
        Lines in UTF-8, each ended by a line feed; carriage returns before those are no part of them.  Where there are
        quotes, no blanks stand around fields.
    separator : bytes
        A single one.
    fields : sequence of Field
        Of a line.
    quoted : bool
        Whether there are quotes, and they have a meaning.
    numbering : sequence of dict
        Of each text that is kept, the number of every one that has appeared; new ones are added.

    Returns
    -------
    list of ndarray, or None
        int64 or float64, of those that are kept; None where that is in doubt.
    """
    pl = importlib.import_module("polars")
    if text.startswith(BYTE_ORDER_MARK.encode()):  # of a file that was put behind another; polars takes it off
        return None
    seen = _kernel.survey(text, ord(separator))
    if not quoted and (seen[-1] or not seen[2] or separator == b" "):  # there may be blanks around fields
        stripped = strip_blanks(text, separator, quotes=False)
        seen = _kernel.survey(stripped, ord(separator)) if stripped is not text else seen
        text = stripped
    n_lines, n_separators, is_ascii, has_lone_return, is_doubtful = seen
    if has_lone_return or not (is_ascii or _is_utf8(text)):  # the first of which polars takes off numbers
        return None
    is_plain = not quoted and is_ascii and not is_doubtful
    types = {Kind.WHOLE: pl.Int64, Kind.DECIMAL: pl.Float64} | ({Kind.ID: pl.Int64} if is_plain else {})
    schema = {f"column_{place + 1}": types.get(field.kind, pl.String) for place, field in enumerate(fields)}
    kept = [place for place, field in enumerate(fields) if field.kind is not Kind.SKIP]
    try:
        frame = pl.read_csv(
            text, has_header=False, columns=kept, schema=schema, separator=separator.decode(),
            quote_char='"' if quoted else None, null_values=NULL if b"\\" in text else None,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    if quoted:
        n_lines, n_separators = _count_outside(text, separator)
    if len(frame) != n_lines or n_separators != n_lines * (len(fields) - 1):  # of too few fields the last are null
        return None
    empty = [fields[place] for series, place in zip(frame, kept, strict=True) if series.null_count()]
    if not all(field.optional for field in empty):
        return None
    ids = [name for name, field in zip(schema, fields, strict=True) if field.kind is Kind.ID and not is_plain]
    n_letters = frame.select(pl.col(ids).str.len_bytes().sum()).to_dict(as_series=False) if ids else {}
    frame = frame.with_columns(pl.col(ids).cast(pl.Int64, strict=False)) if ids else frame  # together, so on threads
    columns, numberings = [], iter(numbering)
    for series, place in zip(frame, kept, strict=True):
        field = fields[place]
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
    """How many line feeds and separators stand outside of quotes."""
    letters = np.frombuffer(text, dtype=np.uint8)
    outside = np.cumsum(letters == ord('"'), dtype=np.uint8) & 1 == 0
    lines, separators = (np.count_nonzero((letters == ord(letter)) & outside) for letter in (b"\n", separator))
    return int(lines), int(separators)


def _integers(series: Any, field: Field, n_letters: int | None = None) -> np.ndarray | None:
    """Whole numbers; where their letters are counted, as Python writes them, which takes the fewest."""
    if series.null_count():
        if not field.optional:
            return None
        known = series.drop_nulls().to_numpy()
        column = series.fill_null(MISSING_TIMESTAMP).to_numpy()
    else:
        known = column = series.to_numpy()
    if not len(known):
        return None if n_letters else column  # None where text stands
    low, high = int(known.min()), int(known.max())
    if low == MISSING_TIMESTAMP or not field.allows(low) or not field.allows(high):
        return None
    if n_letters is None:
        return column
    if low > -(2**31) and high < 2**31:
        known = known.astype(np.int32)
    negative = int(np.count_nonzero(known < 0)) if low < 0 else 0
    sizes = np.abs(known) if negative else known
    most = max(high, -low)
    least = len(known) + negative + sum(int(np.count_nonzero(sizes >= power)) for power in _POWERS if power <= most)
    return column if least == n_letters else None


def _decimals(numbers: np.ndarray, field: Field) -> np.ndarray | None:
    if not np.isfinite(numbers).all() or (
        len(numbers) and not field.low <= numbers.min() <= numbers.max() <= field.high
    ):
        return None
    if field.step and (numbers % field.step).any():
        return None
    return numbers + 0.0  # no negative zeros


def coded(series: Any) -> tuple[list[str], np.ndarray]:
    """Distinct texts as they appear, and the number of each entry among them: behind the last where it is null."""
    pl = importlib.import_module("polars")
    distinct = series.drop_nulls().unique(maintain_order=True)
    codes = series.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64).fill_null(len(distinct))
    return distinct.to_list(), codes.to_numpy()


def _texts(series: Any, field: Field, known: dict[str, int]) -> np.ndarray | None:
    distinct, codes = coded(series)
    if NULL in distinct:  # in quotes
        return None
    if "" in distinct and not field.optional:  # in quotes
        return None
    if any(text.startswith(BYTE_ORDER_MARK) for text in distinct):
        return None
    numbers = [known.setdefault(text, len(known)) if text else MISSING_TIMESTAMP for text in distinct]
    return np.array([*numbers, MISSING_TIMESTAMP], dtype=np.int64)[codes]


def moments(series: Any, unit: str) -> np.ndarray | None:
    """Numbers since 1970, of days and times of the day that are read once each; None where one is not of ISO 8601."""
    total: np.ndarray = np.zeros(len(series), dtype=np.int64)
    for part, read in ((series.str.slice(0, 10), iso_day), (series.str.slice(10), iso_clock)):
        distinct, codes = coded(part)
        numbers = [read(text, unit) for text in distinct]
        if any(number is None or abs(number) > _FAR for number in numbers):
            return None
        total += np.array([*numbers, 0], dtype=np.int64)[codes]
    total[series.is_null().to_numpy()] = MISSING_TIMESTAMP
    return total


def _stated_moments(series: Any, field: Field) -> np.ndarray | None:
    """Numbers since 1970, of times in a stated form that are read once each."""
    distinct, codes = coded(series)
    numbers = [parse_field(field, text) for text in distinct]
    if None in numbers:
        return None
    return np.array([*numbers, MISSING_TIMESTAMP], dtype=np.int64)[codes]
