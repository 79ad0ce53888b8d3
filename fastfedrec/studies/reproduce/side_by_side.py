"""What every reproduced figure or table can do: show itself as text, as a page, as plain numbers and as a plot."""

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
    """A figure or table of a paper beside ours.

    Parameters
    ----------
    source : str
        Which data these are; the first line of every form.
    settings : dict
        What every number was computed with.
    """

    source: str
    settings: dict[str, Any]

    @property
    @abstractmethod
    def title(self) -> str:
        """System, and number of the figure or table."""

    @property
    @abstractmethod
    def legend(self) -> str:
        """What the columns mean."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was left out, and why."""
        return ()

    @abstractmethod
    def verdict(self) -> str:
        """Say what holds, a line for each claim.

        Returns
        -------
        str
            Sentences.
        """

    @abstractmethod
    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells of the table."""

    @abstractmethod
    def _draw(self, figure: Any) -> None:
        """Draw on an empty figure of matplotlib, whose size is to be set."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings.

        Returns
        -------
        dict
            The fields; "verdict" besides.
        """
        return asdict(self) | {"verdict": self.verdict()}

    def summary(self) -> str:
        """Lay out the whole as text.

        Returns
        -------
        str
            The data in the first line; the title; a table; what the columns mean; the verdict.
        """
        table = format_table(*self._rows())
        return "\n".join([self.source, self.title, "", table, "", self.legend, *self.remarks, self.verdict()])

    def to_csv(self) -> str:
        """Lay out the table as comma-separated values.

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
        """Lay out the whole as a page.

        Parameters
        ----------
        plot : str or None
            Where the plot lies, as the page should link to it; None for no plot.
        machine : str or None
            What it was computed on, for the page to name.

        Returns
        -------
        str
            As `summary`, with a table in Markdown, the plot and the settings.
        """
        header, rows = self._rows()
        table = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
        lines = [f"# {self.title}", "", f"**{self.source}**", "", *table, "", self.legend]
        lines += ["", *(f"- {line}" for line in (*self.remarks, *self.verdict().splitlines()))]
        lines += ["", f"![{self.title}]({plot})"] if plot else []
        lines += ["", f"Written on {machine}."] if machine else []
        return "\n".join([*lines, "", "```json", json.dumps(self.settings, indent=2), "```", ""])

    def plot(self, path: str | Path) -> None:
        """Draw it.

        Parameters
        ----------
        path : str or Path
            A file whose suffix matplotlib knows.

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        try:
            from matplotlib.figure import Figure  # no pyplot: nothing global is touched, and PNG needs no display
        except ImportError:
            raise ImportError("a plot needs matplotlib: pip install 'fastfedrec[plot]'") from None
        figure = Figure(layout="constrained")
        self._draw(figure)
        figure.savefig(path, dpi=150)


@dataclass(frozen=True)
class RunOptions:
    """How a figure or table is computed; all reproductions take these options.

    Parameters
    ----------
    quick : bool
        Compute a smaller one; each function says what is left out.
    folder : str, Path or None
        Keep every finished part there, and read those that were made with the same settings; None keeps nothing.
    n_threads : int
        0 for all processors.
    show_progress : bool
        Draw a progress bar (needs tqdm).
    """

    quick: bool = False
    folder: str | Path | None = None
    n_threads: int = 0
    show_progress: bool = False

    def __post_init__(self) -> None:
        set_ = functools.partial(object.__setattr__, self)
        for name in ("quick", "show_progress"):
            set_(name, check_flag(name, getattr(self, name)))
        set_("n_threads", resolve_n_threads(self.n_threads))


def kept(folder: str | Path | None, name: str, settings: dict[str, Any], run: Callable[[], Run]) -> Run:
    """Do one part of a long computation, or read it if it was done with the same settings.

    Parameters
    ----------
    folder : str, Path or None
        Where finished parts lie; None keeps nothing.
    name : str
        Of the part.
    settings : dict
        Everything the part depends on, in plain JSON.
    run : callable
        Computes it; plain JSON as well.

    Returns
    -------
    object
        What `run` returned, now or then.
    """
    if folder is None:
        return run()
    path = Path(folder) / f"{name}.json"
    try:
        found = json.loads(path.read_text())
        if found["settings"] == settings:
            return found["run"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # not made yet, or not by this function
    result = run()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"settings": settings, "run": result}, indent=2, allow_nan=False))
    return result


def checksum(parts: Iterable[Interactions]) -> int:
    """Name the data that a part was computed on.

    Parameters
    ----------
    parts : iterable of Interactions
        In a fixed order.

    Returns
    -------
    int
        CRC-32 of what is stored.
    """
    value = 0
    for part in parts:
        for array in (part.indptr, part.indices, part.values_or_ones()):
            value = zlib.crc32(array.tobytes(), value)
    return value
