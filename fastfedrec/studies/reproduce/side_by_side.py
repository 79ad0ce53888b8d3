"""Base class of reproduced figures and tables, with their forms as text, Markdown, JSON, CSV and plot."""

import csv
import functools
import io
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from fastfedrec.core.check import check_flag
from fastfedrec.core.files import write_text
from fastfedrec.core.text import format_table
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions

__all__ = ["RunOptions", "SideBySide"]

Run = TypeVar("Run")


@dataclass(frozen=True)
class SideBySide(ABC):
    """A figure or table of a paper, compared with the figures computed here.

    Parameters
    ----------
    source : str
        Description of the data; the first line of every form.
    settings : dict
        Settings that every number was computed with.
    """

    source: str
    settings: dict[str, Any]

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the system, and number of the figure or table."""

    @property
    @abstractmethod
    def legend(self) -> str:
        """Meaning of the columns."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Omitted parts, each with its reason."""
        return ()

    @abstractmethod
    def verdict(self) -> str:
        """State the result, with a line for each claim.

        Returns
        -------
        str
            One sentence per line.
        """

    @abstractmethod
    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of the table."""

    @abstractmethod
    def _draw(self, figure: Any) -> None:
        """Set the size of an empty matplotlib figure and draw on it."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values.

        Returns
        -------
        dict
            The fields, and "verdict".
        """
        return asdict(self) | {"verdict": self.verdict()}

    def summary(self) -> str:
        """Return the table with its explanations as text.

        Returns
        -------
        str
            The data in the first line; the title; the table; the legend; the remarks; the verdict.
        """
        table = format_table(*self._rows())
        return "\n".join([self.source, self.title, "", table, "", self.legend, *self.remarks, self.verdict()])

    def to_csv(self) -> str:
        """Return the table as comma-separated values.

        Returns
        -------
        str
            The header and the rows of `summary`.
        """
        text = io.StringIO()
        header, rows = self._rows()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        return text.getvalue()

    def to_markdown(self, plot: str | None = None, machine: str | None = None) -> str:
        """Return the table with its explanations as a Markdown page.

        Parameters
        ----------
        plot : str or None
            Link to the plot; None for no plot.
        machine : str or None
            Description of the machine; None for no mention.

        Returns
        -------
        str
            The content of `summary` with a Markdown table, the plot and the settings.
        """
        header, rows = self._rows()
        table = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
        lines = [f"# {self.title}", "", f"**{self.source}**", "", *table, "", self.legend]
        lines += ["", *(f"- {line}" for line in (*self.remarks, *self.verdict().splitlines()))]
        lines += ["", f"![{self.title}]({plot})"] if plot else []
        lines += ["", f"Written on {machine}."] if machine else []
        return "\n".join([*lines, "", "```json", json.dumps(self.settings, indent=2), "```", ""])

    def plot(self, path: str | Path) -> None:
        """Draw the figure and write it to a file.

        Parameters
        ----------
        path : str or Path
            Path of the file, with a suffix that matplotlib supports.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        try:
            # Not pyplot: it has global state, and PNG needs no display.
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("a plot needs matplotlib: pip install 'fastfedrec[plot]'") from None
        figure = Figure(layout="constrained")
        self._draw(figure)
        figure.savefig(path, dpi=150)


@dataclass(frozen=True)
class RunOptions:
    """Options that all reproductions share.

    Parameters
    ----------
    quick : bool
        Compute a smaller figure or table; each function documents the omitted parts.
    folder : str, Path or None
        Folder for a file of each finished part.  Parts with the same settings are read from it.  None stores no part.
    n_threads : int
        Number of threads; 0 for all processors.
    show_progress : bool
        Draw a progress bar (needs tqdm).
    """

    quick: bool = False
    folder: str | Path | None = None
    n_threads: int = 0
    show_progress: bool = False

    def __post_init__(self) -> None:
        # The class is frozen, so checked values are set through `object`.
        set_ = functools.partial(object.__setattr__, self)
        for name in ("quick", "show_progress"):
            set_(name, check_flag(name, getattr(self, name)))
        set_("n_threads", resolve_n_threads(self.n_threads))


def run_or_load(folder: str | Path | None, name: str, settings: dict[str, Any], run: Callable[[], Run]) -> Run:
    """Compute one part of a long computation, or read it if it was stored with the same settings.

    Parameters
    ----------
    folder : str, Path or None
        Folder of finished parts; None computes without storing.
    name : str
        Name of the part and of its file.
    settings : dict
        All settings that the part depends on, as JSON values.
    run : callable
        Function without arguments that computes the part, as JSON values.

    Returns
    -------
    object
        Result of `run`, computed or read.
    """
    if folder is None:
        return run()
    # The name identifies the file, and the settings in it decide whether its result is read.
    path = Path(folder) / f"{name}.json"
    try:
        stored = json.loads(path.read_text())
        if stored["settings"] == settings:
            return stored["run"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # there is no such file, or it does not have the format of this function
    result = run()
    path.parent.mkdir(parents=True, exist_ok=True)
    # NaN and infinity are not JSON, so runs return None or text in their place.
    write_text(path, json.dumps({"settings": settings, "run": result}, indent=2, allow_nan=False))
    return result


def checksum(parts: Iterable[Interactions]) -> int:
    """Return a checksum of the data that a part was computed on.

    Parameters
    ----------
    parts : iterable of Interactions
        Data sets in a fixed order.

    Returns
    -------
    int
        CRC-32 of the sparse matrices.
    """
    value = 0
    for part in parts:
        # Values are included because ratings change figures; ids of users and items are not.
        for array in (part.indptr, part.indices, part.values_or_ones()):
            value = zlib.crc32(array.tobytes(), value)
    return value
