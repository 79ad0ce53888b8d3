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
    """Return a frame of these columns; this is the only place that imports pandas or polars."""
    library = check_choice("library", library, LIBRARIES)
    try:
        frames = importlib.import_module(library)
    except ImportError as error:
        raise ImportError(f"library={library!r} needs {library}; install it, or use to_json()") from error
    return frames.DataFrame({name: list(values) for name, values in columns.items()})


def to_json(document: Mapping[str, Any]) -> str:
    """Return one line of JSON, with null for NaN and infinity, which JSON cannot express."""
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
    """Return a Markdown table with right-aligned numbers, without a final newline."""
    rows = _rows(columns, lambda text: text.replace("|", "\\|"))
    marks = ["---:" if all(map(_is_number, values)) else "---" for values in columns.values()]
    header = [name.replace("|", "\\|") for name in columns]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, marks, *rows])


def to_latex(columns: Columns) -> str:
    """Return a LaTeX tabular with the rules of booktabs, without a final newline."""
    alignment = "".join("r" if all(map(_is_number, values)) else "l" for values in columns.values())
    lines = [" & ".join(cells) + r" \\" for cells in [list(map(_escape, columns)), *_rows(columns, _escape)]]
    return "\n".join([rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", lines[0], r"\midrule", *lines[1:],
                      r"\bottomrule", r"\end{tabular}"])  # fmt: skip


def show(value: Any) -> str:
    """Return a cell's text: a float with four decimals, or two significant digits if small, and "-" for NaN."""
    if isinstance(value, float):
        if math.isnan(value):
            return "-"
        # Below 5e-4 four decimals would show at most one significant digit.
        return f"{value:.4f}" if value == 0 or abs(value) >= 5e-4 else f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show_interval(value: float, interval: tuple[float, float], dash: str = "to") -> str:
    """Return a cell of a value and its interval, such as "0.1234 (0.1200 to 0.1270)"; no interval if it is NaN."""
    low, high = map(show, interval)
    return show(value) if math.isnan(interval[0]) else f"{show(value)} ({low} {dash} {high})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _rows(columns: Columns, escape: Any) -> list[list[str]]:
    return [[escape(show(cell)) for cell in row] for row in zip(*columns.values(), strict=True)]


def _escape(text: str) -> str:
    # Characters that a backslash alone does not escape in LaTeX.
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(named.get(c, "\\" + c if c in "&%$#_{}" else c) for c in text)
