"""Plain-text tables that fit into a terminal, and epsilons as text and as JSON."""

import csv
import decimal
import io
import json
import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any

__all__ = [
    "LARGE_DELTA",
    "NOT_COVERED",
    "did_you_mean",
    "epsilon_from_json",
    "epsilon_to_json",
    "fold",
    "format_csv",
    "format_epsilon",
    "format_table",
    "large_delta_note",
    "plain",
    "printable",
    "tables_within",
    "unique_fields",
]

#: Note below every table of scores and epsilons.
NOT_COVERED = (
    "These scores come from the raw data. Publishing them, or choosing settings by them, is not covered by any epsilon."
)

#: Words of `large_delta_note`, by which a page recognises it.
LARGE_DELTA = "is not below one over the number of users"

#: Maximum width of a table in columns; None for no limit.  The code that prints a table sets it.
_COLUMNS: ContextVar[int | None] = ContextVar("columns", default=None)
_GAP = "  "
_MAX_SUGGESTIONS = 3
_MAX_NAME_CHARACTERS = 60  # a longer name gets no suggestion, since a file may have names of millions of characters
# Characters that a terminal interprets: control characters except the newline, and marks that reverse the order of
# characters and so disguise a text.  Surrogates are included, because no file in UTF-8 can contain them.
_ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def large_delta_note(delta: float, n_users: int) -> str:
    """Return the note of a delta that allows to publish the data of one user, or "" if it is small enough."""
    if delta * n_users < 1:
        return ""
    return (
        f"Delta {delta:g} {LARGE_DELTA} ({n_users:,}). A mechanism that publishes one user's data would satisfy such "
        "a guarantee."
    )


@contextmanager
def tables_within(columns: int | None) -> Iterator[None]:
    """Limit the width of tables that are made in the block to `columns`; None for no limit."""
    # A table with a long word may still be wider.
    previous = _COLUMNS.get()
    try:
        _COLUMNS.set(columns)  # It is set inside, since an interrupt may come between two lines.
        yield
    finally:
        _COLUMNS.set(previous)


def printable(text: str) -> str:
    """Escape the characters of an untrusted text that a terminal would interpret, except ends of lines."""
    return _ACTS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def fold(text: str, columns: int | None) -> str:
    """Break lines that are wider than `columns` between words, with the indentation of each line; None for no limit."""
    if columns is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name as " (did you mean 'epsilon'?)", or "" if no known name is similar."""
    import difflib  # slow to import, and needed only for an error

    if len(name) > _MAX_NAME_CHARACTERS:
        return ""
    spellings: dict[str, str] = {}
    for word in known:
        spellings.setdefault(_spelling(str(word)), str(word))
    # A part of few names, such as "fmf" of "fmf-ldp" and "dp-fmf", stands for them all.
    matches = [word for word in spellings if _spelling(name) in word.split("-")]
    if not 0 < len(matches) <= _MAX_SUGGESTIONS:
        matches = difflib.get_close_matches(_spelling(name), spellings, n=1)
    meant = " or ".join(repr(spellings[word]) for word in matches)
    return f" (did you mean {meant}?)" if meant else ""


def _spelling(name: str) -> str:
    """Return a name in the form that is compared; the hyphens before an option would make all options similar."""
    return name.lower().replace("_", "-").lstrip("-")


def format_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as comma-separated values."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a plain-text table, with numbers aligned to the right and without a final newline."""
    # A limit by `tables_within` breaks cells between words.  If that is not enough, each row becomes a list of cells.
    header, *body = ([_one_line(cell) for cell in row] for row in (header, *rows))
    columns = list(zip(header, *body, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    right = [bool(body) and all(_numeric(cell) for cell in column[1:]) for column in columns]
    limit = _COLUMNS.get()
    if limit is not None:
        # A column cannot be narrower than its longest word.
        min_widths = [max(_width(word) for cell in column for word in cell.split() or [""]) for column in columns]
        if sum(min_widths) + len(_GAP) * (len(min_widths) - 1) > limit:
            return _as_lists(header, body, limit)
        while sum(widths) + len(_GAP) * (len(widths) - 1) > limit:
            # The widest column that can still shrink loses one character.
            shrunk = max((w, i) for i, w in enumerate(widths) if w > min_widths[i])[1]
            widths[shrunk] -= 1

    def lines(cells: Sequence[str]) -> Iterator[str]:
        parts = [
            _parts(cell, width) if _width(cell) > width else [cell] for cell, width in zip(cells, widths, strict=True)
        ]
        for row in zip_longest(*parts, fillvalue=""):
            yield _GAP.join(_padded(*cell) for cell in zip(row, widths, right, strict=True)).rstrip()

    rule = _GAP.join("-" * w for w in widths)
    return "\n".join([*lines(header), rule, *(line for cells in body for line in lines(cells))])


def _as_lists(header: Sequence[str], body: Sequence[Sequence[str]], limit: int) -> str:
    rows = [
        "\n".join(
            part
            for name, cell in zip(header, cells, strict=True)
            for part in _parts(f"{name}: {cell}" if name else cell, limit)
        )
        for cells in body
    ]
    return "\n\n".join(rows or [fold(", ".join(header), limit)])


def _parts(line: str, width: int) -> list[str]:
    if _width(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line, width, subsequent_indent=indent if len(indent) < width // 2 else "", drop_whitespace=True,
        break_long_words=False, break_on_hyphens=False,
    ) or [""]  # fmt: skip


def _padded(cell: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(cell))
    return blanks + cell if right else cell + blanks


def _one_line(cell: object) -> str:
    text = printable(str(cell))
    return text.replace("\n", "\\n") if "\n" in text else text


def _width(text: str) -> int:
    """Return a text's width on a terminal: two columns for a wide East Asian character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _numeric(cell: str) -> bool:
    return cell in ("", "-", "none") or cell.replace(".", "", 1).replace(",", "").lstrip("+-").isdigit()


_MIN_FIXED_POINT = 1e-12  # a smaller epsilon is written with an exponent


def format_epsilon(epsilon: float) -> str:
    """Format an epsilon (in nats) with 4 or 5 digits, rounded up (beyond a relative 1e-9); "none" for infinity."""
    if math.isinf(epsilon):
        return "none"
    if epsilon == 0:
        return "0"
    # For a tiny epsilon the power of ten that scales its digits could exceed the range of floats.
    if epsilon < _MIN_FIXED_POINT:
        four = decimal.Context(prec=4, rounding=decimal.ROUND_CEILING)
        return f"{four.create_decimal(decimal.Decimal(epsilon * (1 - 1e-9))):.3e}"
    digits = max(0, 4 - math.ceil(math.log10(epsilon)))
    # The tolerance prevents 2.50000000001 from becoming 2.5001.
    return f"{math.ceil(epsilon * (1 - 1e-9) * 10**digits) / 10**digits:.{digits}f}"


def epsilon_to_json(epsilon: float) -> float | str:
    """Return an epsilon as a JSON value, with "infinite" for no guarantee, because null means "not set"."""
    return "infinite" if math.isinf(epsilon) else epsilon


def epsilon_from_json(value: float | str) -> float:
    """Return the epsilon that `epsilon_to_json` converted."""
    return math.inf if value == "infinite" else float(value)


def plain(value: Any) -> Any:
    """Convert nested values to JSON types, with infinity as "infinite" and the `repr` of unsupported values."""

    def finite(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: finite(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return [finite(inner) for inner in part]
        return epsilon_to_json(part) if isinstance(part, float) else part

    return finite(json.loads(json.dumps(value, default=repr)))


def unique_fields(start: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object, or raise for a repeated name, which readers treat differently.

    The message begins with `start`, such as "ledger holds".
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{start} a field twice: {next(name for name in names if names.count(name) > 1)!r}")
    return fields
