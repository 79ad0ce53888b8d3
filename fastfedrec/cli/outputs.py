"""Output of commands to a terminal or a pipe, and messages about missing optional packages."""

import argparse
import csv
import importlib.util
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fastfedrec.accounting.views import OBSERVERS
from fastfedrec.core.figures import new_figure
from fastfedrec.core.text import fold, printable, tables_within
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.claims import catalogue_note

if TYPE_CHECKING:
    from fastfedrec.evaluation import Evaluation

__all__ = [
    "ClosedOutputError",
    "add_details",
    "any_terminal",
    "can_show_progress",
    "close_output",
    "csv_lines",
    "describe",
    "epsilon_legend",
    "footer",
    "has_extra",
    "list_source",
    "make_axes",
    "missing_extra",
    "report_text",
    "same_list",
    "show",
]

#: Sentence below columns of epsilons.
_MAX_FOOTER_LINES = 3


def epsilon_legend(results: Iterable["Evaluation"]) -> str:
    """Return the meaning of the true epsilons of a table, with the deltas of their ledgers."""
    ledgers = [one.ledger for result in results for one in (result.fits or (result,)) if one.ledger is not None]
    # A ledger without a finite figure has no use for its delta.
    deltas = sorted({ledger.delta for ledger in ledgers if math.isfinite(min(map(ledger.epsilon, OBSERVERS)))})
    delta = f", at delta {' or '.join(f'{value:g}' for value in deltas)}" if deltas else ""
    return (
        f"true epsilon: what the whole run costs one user, in nats{delta}, for replacing all of the user's data, if "
        "the party in brackets is trusted (local: no party, shuffle: a shuffler, central: the server). "
        "'none': no guarantee."
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
    figure = new_figure("--plot", figsize=(7, 4.5))
    return figure, figure.subplots()


def add_details(command: argparse.ArgumentParser) -> None:
    """Add the argument that prints all remarks."""
    command.add_argument("--details", action="store_true", help="print all remarks below the table")


def footer(arguments: argparse.Namespace, *lines: str, details: Sequence[str] = ()) -> list[str]:
    """Return the sentences below a table: the first three lines, or all lines and `details` with --details."""
    everything = [*lines, *details]
    if arguments.details:
        return everything
    *shown, last = lines[:_MAX_FOOTER_LINES]
    n_hidden = len(everything) - len(shown) - 1
    return [*shown, f"{last} (--details: {n_hidden} more)" if n_hidden else last]


def list_source(data: Any) -> list[str]:
    """Return the sentence on a list of items that was taken from the data; none for a public list."""
    note = catalogue_note(data) if isinstance(data, Interactions) else None
    return [f"{note[0].upper()}{note[1:].rstrip('.')}."] if note else []


def same_list(name: str, model: Any) -> list[str]:
    """Return a sentence if a system gave all users the same list, by its releases or by the rule that chose it."""
    if getattr(model, "is_personal_", True):
        return []
    if getattr(model, "decision_", None) is None and hasattr(model, "reason_"):
        return [f"{name}: {model.reason_}"]
    return [f"{name} gave all users the same list, by its own private measurement."]


def report_text(arguments: argparse.Namespace, report: Any, *sentences: str) -> str:
    """Return a study's table with its title and these sentences below it."""
    return "\n".join([report.source, report.title, "", report.table_text(), "", *footer(arguments, *sentences)])


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
