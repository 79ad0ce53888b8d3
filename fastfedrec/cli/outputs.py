"""Output of commands to a terminal or a pipe, and messages about missing optional packages."""

import csv
import importlib.util
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from fastfedrec.core.text import NOT_COVERED, fold, printable, tables_within
from fastfedrec.data.interactions import Interactions

__all__ = [
    "EPSILON_LEGEND",
    "ClosedOutputError",
    "any_terminal",
    "can_show_progress",
    "close_output",
    "csv_lines",
    "describe",
    "has_extra",
    "make_axes",
    "missing_extra",
    "show",
]

EPSILON_LEGEND = (
    "epsilon: cost of a user in the whole run, in nats: against the server that sees each sender's reports, the server "
    "behind\na shuffler, and the public; 'none' means no guarantee\n" + NOT_COVERED
)


@contextmanager
def any_terminal() -> Iterator[None]:
    """Make all text printable: escape characters that the encoding lacks, and fit tables to the terminal's width."""
    with ExitStack() as stack:
        stack.enter_context(tables_within(_columns()))
        for stream in (sys.stdout, sys.stderr):
            if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
                # A character in an item's name must not abort a command.
                stream.reconfigure(errors="backslashreplace")
                stack.callback(stream.reconfigure, errors="strict")
        yield


def _columns() -> int | None:
    """Return the width of standard output's terminal; None for a file or a pipe."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None


class ClosedOutputError(Exception):
    """The reader of the output, such as ``head``, has closed it."""


def show(answer: str | dict[str, Any], file: Any = None) -> None:
    """Print text, or a document as JSON, without control characters that would act on a terminal."""
    # JSON has no NaN or infinity: such a number in a document is a bug, and raises.
    if isinstance(answer, dict):
        text = json.dumps(answer, indent=2, allow_nan=False)
    else:
        # Only text on standard output is folded to the terminal's width.
        text = printable(answer if file else fold(answer, _columns()))
    try:
        print(text, file=file, flush=True)
    except BrokenPipeError:
        raise ClosedOutputError from None


def close_output() -> None:
    """Flush the output; if its reader has closed it, keep Python from printing an error at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            # Python flushes again at exit: the descriptor then writes to the null device.
            with suppress(OSError, ValueError):  # a stream without a descriptor
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def missing_extra(module: str, loss: str) -> str | None:
    """Return a message on the loss without an optional package and its installation, or None if it is installed."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"{loss}: {module} is not installed; pip install 'fastfedrec[cli]'"


def has_extra(module: str, loss: str, *, quiet: bool) -> bool:
    """Check whether an optional package is installed; print the loss on standard error if not, unless quiet."""
    problem = missing_extra(module, loss)
    if problem and not quiet:
        show(f"fastfedrec: {problem}", file=sys.stderr)
    return problem is None


def can_show_progress(quiet: bool) -> bool:
    """Check whether to show a progress bar; print a message on standard error if tqdm is missing, unless quiet."""
    return not quiet and has_extra("tqdm", "no progress bar", quiet=quiet)


def make_axes() -> tuple[Any, Any]:
    """Return a figure of one plot and its axes."""
    # Without pyplot there is no global state, and no display is needed.
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("--plot needs matplotlib; pip install 'fastfedrec[plot]'") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    return figure, figure.subplots()


def describe(data: Interactions) -> dict[str, int]:
    """Return the sizes of data, for JSON."""
    return {"n_users": data.n_users, "n_items": data.n_items, "n_interactions": data.n_interactions}


def csv_lines(rows: Iterable[Iterable[Any]], quote_text: bool = False) -> bytes:
    """Return rows as lines of CSV, with all text in quotes on request."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if quote_text else csv.QUOTE_MINIMAL).writerows(
        rows
    )
    return text.getvalue().encode()
