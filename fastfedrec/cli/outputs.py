"""What commands print, as a terminal or a pipe takes it, and what they say where something optional is missing."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from fastfedrec.core.text import NOT_COVERED, fold, printable, tables_within
from fastfedrec.data.interactions import Interactions

__all__ = [
    "EPSILON_LEGEND",
    "NobodyReadsError",
    "any_terminal",
    "can_show_progress",
    "close_output",
    "describe",
    "has_extra",
    "make_axes",
    "missing_extra",
    "show",
]

EPSILON_LEGEND = (
    "epsilon: of a user in the whole run, in nats: against a server that sees who sent what, the same behind a "
    "shuffler,\nand the public; 'none' is no guarantee\n" + NOT_COVERED
)


@contextmanager
def any_terminal() -> Iterator[None]:
    """Let everything be printed: what an encoding lacks is escaped, and tables are as wide as the terminal at most."""
    with ExitStack() as stack:
        stack.enter_context(tables_within(_columns()))
        for stream in (sys.stdout, sys.stderr):
            if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # an item's name must not end a command half done
                stack.callback(stream.reconfigure, errors="strict")
        yield


def _columns() -> int | None:
    """Of the terminal that standard output is; None where it is a file or a pipe."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None


class NobodyReadsError(Exception):
    """The reader of the output has gone, as ``head`` does."""


def show(answer: str | dict[str, Any], file: Any = None) -> None:
    """Print text, or a document as JSON, so that nothing in it acts on a terminal.

    Parameters
    ----------
    answer : str or dict
        What JSON has no number for is an error.
    file : file or None
        Not the standard output.

    Raises
    ------
    NobodyReadsError
        It was a pipe, and its reader has gone.
    """
    if isinstance(answer, dict):
        text = json.dumps(answer, indent=2, allow_nan=False)
    else:
        text = printable(answer if file else fold(answer, _columns()))
    try:
        print(text, file=file, flush=True)
    except BrokenPipeError:
        raise NobodyReadsError from None


def close_output() -> None:
    """Write what is left; where that cannot be, see that Python does not complain of it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with suppress(OSError, ValueError):  # a stream without a number has nobody to tell
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def missing_extra(module: str, loss: str) -> str | None:
    """Say what is lost without an optional package, and how to install it; None where it is there."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"{loss}: {module} is not installed; pip install 'fastfedrec[cli]'"


def has_extra(module: str, loss: str, *, quiet: bool) -> bool:
    """Whether an optional package is there; where not, and unless quiet, standard error has been told what is lost."""
    problem = missing_extra(module, loss)
    if problem and not quiet:
        show(f"fastfedrec: {problem}", file=sys.stderr)
    return problem is None


def can_show_progress(quiet: bool) -> bool:
    """Whether to show a progress bar; where none can be shown, and unless quiet, standard error has been told."""
    return not quiet and has_extra("tqdm", "no progress bar", quiet=quiet)


def make_axes() -> tuple[Any, Any]:
    """A figure of one plot, and its axes; without pyplot, so that nothing global is touched and no display needed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("--plot needs matplotlib: pip install 'fastfedrec[plot]'") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    return figure, figure.subplots()


def describe(data: Interactions) -> dict[str, int]:
    """The sizes of data, for JSON."""
    return {"n_users": data.n_users, "n_items": data.n_items, "n_interactions": data.n_interactions}
