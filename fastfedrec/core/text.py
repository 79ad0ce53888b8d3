"""Plain-text tables as wide as a terminal is, and an epsilon, infinity included, as text and JSON have it."""

import decimal
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
    "NOT_COVERED",
    "did_you_mean",
    "epsilon_from_json",
    "epsilon_to_json",
    "fold",
    "format_epsilon",
    "format_table",
    "plain",
    "printable",
    "tables_within",
]

#: Beside every table of scores and epsilons.
NOT_COVERED = (
    "Scores are computed from the data as they are: no epsilon here covers them, nor a setting that is chosen by them."
)

#: Columns that a table may take; None: as many as it wants.  Whoever prints knows, and whoever makes a table does not.
_COLUMNS: ContextVar[int | None] = ContextVar("columns", default=None)
_GAP = "  "
_LONGEST_NAME = 60  # that is compared with what there is: a file may hold millions of letters
# What a terminal acts on instead of showing it: control characters but the end of a line, and marks that turn the
# order of letters about, so that a text reads otherwise than it is; and halves of letters, which no file can hold.
_ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@contextmanager
def tables_within(columns: int | None) -> Iterator[None]:
    """Let tables that are made within take so many columns, where their words allow it.

    Parameters
    ----------
    columns : int or None
        Of the terminal; None for no limit.
    """
    token = _COLUMNS.set(columns)
    try:
        yield
    finally:
        _COLUMNS.reset(token)


def printable(text: str) -> str:
    """Escape what a terminal would act on, but for ends of lines.

    Parameters
    ----------
    text : str
        Any, such as an id of somebody's file.

    Returns
    -------
    str
        The same where nothing is to escape.
    """
    return _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def fold(text: str, columns: int | None) -> str:
    """Break lines that are longer than a terminal is wide between words, each part indented as its line.

    Parameters
    ----------
    text : str
        Lines.
    columns : int or None
        Of the terminal; None for no limit.

    Returns
    -------
    str
        More lines.
    """
    if columns is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Name what may have been meant, to stand in an error's message behind what was given.

    Parameters
    ----------
    name : str
        What nobody knows.
    known : iterable of str
        What there is.

    Returns
    -------
    str
        As " (did you mean 'epsilon'?)"; empty where nothing is alike.
    """
    import difflib  # slow to import, and only an error needs it

    if len(name) > _LONGEST_NAME:
        return ""
    spellings: dict[str, str] = {}
    for word in known:
        spellings.setdefault(str(word).lower().replace("_", "-"), str(word))
    found = difflib.get_close_matches(name.lower().replace("_", "-"), spellings, n=1)
    return f" (did you mean {spellings[found[0]]!r}?)" if found else ""


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay out rows under a header, numbers to the right.

    Parameters
    ----------
    header : sequence of str
        Column names.
    rows : iterable of sequences
        Cells; anything `str` can show.

    Returns
    -------
    str
        One line a row, without a final newline; more where `tables_within` asks for it: then cells are broken between
        words, and where that is not enough each row is a list of its cells.
    """
    header, *body = ([_one_line(cell) for cell in row] for row in (header, *rows))
    columns = list(zip(header, *body, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    right = [bool(body) and all(_numeric(cell) for cell in column[1:]) for column in columns]
    limit = _COLUMNS.get()
    if limit is not None:
        least = [max(_width(word) for cell in column for word in cell.split() or [""]) for column in columns]
        if sum(least) + len(_GAP) * (len(least) - 1) > limit:
            return _as_lists(header, body, limit)
        while sum(widths) + len(_GAP) * (len(widths) - 1) > limit:
            broken = max((w, i) for i, w in enumerate(widths) if w > least[i])[1]
            widths[broken] -= 1

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
    """Columns of a terminal: letters of East Asia take two, and marks upon letters none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _numeric(cell: str) -> bool:
    return cell in ("", "-", "none") or cell.replace(".", "", 1).replace(",", "").lstrip("+-").isdigit()


_LEAST_WRITTEN_OUT = 1e-12


def format_epsilon(epsilon: float) -> str:
    """Show a privacy cost: rounded up at the digits shown (beyond a relative 1e-9); "none" where nothing is guaranteed.

    Parameters
    ----------
    epsilon : float
        At least 0, in nats.

    Returns
    -------
    str
        Four or five digits; below 1e-12 with an exponent.
    """
    if math.isinf(epsilon):
        return "none"
    if epsilon == 0:
        return "0"
    if epsilon < _LEAST_WRITTEN_OUT:  # a power of ten that would bring its digits before the point need be no float
        four = decimal.Context(prec=4, rounding=decimal.ROUND_CEILING)
        return f"{four.create_decimal(decimal.Decimal(epsilon * (1 - 1e-9))):.3e}"
    digits = max(0, 4 - math.ceil(math.log10(epsilon)))
    # The tolerance keeps 2.50000000001 from showing as 2.5001.
    return f"{math.ceil(epsilon * (1 - 1e-9) * 10**digits) / 10**digits:.{digits}f}"


def epsilon_to_json(epsilon: float) -> float | str:
    """A privacy cost as JSON can hold it: "infinite" where nothing is guaranteed, for null means "not set" elsewhere.

    Parameters
    ----------
    epsilon : float
        At least 0, in nats.

    Returns
    -------
    float or str
        A number, or "infinite".
    """
    return "infinite" if math.isinf(epsilon) else epsilon


def epsilon_from_json(value: float | str) -> float:
    """What `epsilon_to_json` was given.

    Parameters
    ----------
    value : float or str
        A number, or "infinite".

    Returns
    -------
    float
        In nats.
    """
    return math.inf if value == "infinite" else float(value)


def plain(value: Any) -> Any:
    """The same in types that JSON has: infinity as "infinite", and what it has no word for as Python would write it.

    Parameters
    ----------
    value : object
        Numbers, strings, sequences and mappings, nested.

    Returns
    -------
    object
        Dicts, lists, numbers, strings, booleans and None.
    """

    def finite(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: finite(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return [finite(inner) for inner in part]
        return epsilon_to_json(part) if isinstance(part, float) else part

    return finite(json.loads(json.dumps(value, default=repr)))
