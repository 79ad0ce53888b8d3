"""Tables of results as frames, JSON, Markdown and LaTeX."""

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastfedrec.core.check import check_choice

__all__ = ["show", "show_interval", "to_frame", "to_json", "to_latex", "to_markdown"]

Columns = Mapping[str, Sequence[Any]]

LIBRARIES = ("pandas", "polars")


def to_frame(columns: Columns, library: str) -> Any:
    """A frame of these columns.

    Parameters
    ----------
    columns : mapping of str to sequence
        All of one length; NaN where there is no number.
    library : {"pandas", "polars"}
        Imported here, and nowhere else.

    Returns
    -------
    pandas.DataFrame or polars.DataFrame
        In the order of the columns.

    Raises
    ------
    ImportError
        The library is not installed.
    """
    library = check_choice("library", library, LIBRARIES)
    try:
        frames = importlib.import_module(library)
    except ImportError as error:
        raise ImportError(f"library={library!r} needs {library}; install it, or use to_json()") from error
    return frames.DataFrame({name: list(values) for name, values in columns.items()})


def to_json(document: Mapping[str, Any]) -> str:
    """JSON text, with null for NaN, which JSON has no number for.

    Parameters
    ----------
    document : mapping
        Of strings, numbers, lists and mappings.

    Returns
    -------
    str
        One line.
    """
    return json.dumps(_plain(document), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_markdown(columns: Columns) -> str:
    """A Markdown table, numbers to the right.

    Parameters
    ----------
    columns : mapping of str to sequence of str or number
        Cells; numbers are shown with four decimals.

    Returns
    -------
    str
        Without a final newline.
    """
    rows = _rows(columns, lambda text: text.replace("|", "\\|"))
    marks = ["---:" if all(map(_is_number, values)) else "---" for values in columns.values()]
    header = [name.replace("|", "\\|") for name in columns]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, marks, *rows])


def to_latex(columns: Columns) -> str:
    """A LaTeX tabular with the rules of booktabs.

    Parameters
    ----------
    columns : mapping of str to sequence of str or number
        Cells; numbers are shown with four decimals.

    Returns
    -------
    str
        Without a final newline.
    """
    alignment = "".join("r" if all(map(_is_number, values)) else "l" for values in columns.values())
    lines = [" & ".join(cells) + r" \\" for cells in [list(map(_escape, columns)), *_rows(columns, _escape)]]
    return "\n".join([rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", lines[0], r"\midrule", *lines[1:],
                      r"\bottomrule", r"\end{tabular}"])  # fmt: skip


def show(value: Any) -> str:
    """A cell: four decimals for a number, or as many digits as a small one needs; "-" for NaN.

    Parameters
    ----------
    value : object
        A number, or anything `str` can show.

    Returns
    -------
    str
        The cell's text.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "-"
        return f"{value:.4f}" if value == 0 or abs(value) >= 5e-4 else f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show_interval(value: float, interval: tuple[float, float], dash: str = "to") -> str:
    """A cell of a value and its interval.

    Parameters
    ----------
    value : float
        As for `show`.
    interval : (float, float)
        Its ends; NaN where there are none.
    dash : str
        Stands between them.

    Returns
    -------
    str
        As "0.1234 (0.1200 to 0.1270)".
    """
    low, high = map(show, interval)
    return show(value) if math.isnan(interval[0]) else f"{show(value)} ({low} {dash} {high})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _rows(columns: Columns, escape: Any) -> list[list[str]]:
    return [[escape(show(cell)) for cell in row] for row in zip(*columns.values(), strict=True)]


def _escape(text: str) -> str:
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(named.get(c, "\\" + c if c in "&%$#_{}" else c) for c in text)
