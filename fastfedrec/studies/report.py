"""Figures and tables of studies: options, declared form, and reports as text, Markdown, JSON, CSV and plot."""

import copyreg
import functools
import importlib
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

from fastfedrec.core.check import check_flag
from fastfedrec.core.figures import new_figure, save_figure
from fastfedrec.core.text import format_csv, format_table
from fastfedrec.core.threads import resolve_n_threads

__all__ = ["Record", "Report", "RunOptions", "Study"]

# A header, and a function or a format that makes a cell from a record, such as "{.epsilon:g}" or "{[epsilon]:g}".
Column = tuple[str, Any]


@dataclass(frozen=True)
class Study:
    """The form of a figure or table.

    Parameters
    ----------
    title, legend : str or callable
        Title, and meaning of the columns.  Like all further arguments, each may be a function of the report.
    columns : sequence of tuple, or callable
        Pairs of a header and a format string or function that makes a cell from a record.
    verdict : callable
        Function of the report that states the result, one sentence per line.
    draw : callable
        Function of the report and an empty matplotlib figure, which it draws on.
    records : str or callable
        Name of the report's field with the records of the table, or a function of the report that returns them.
    remarks : sequence of str, or callable
        Omitted parts, each with its reason.
    """

    title: str | Callable[[Any], str]
    legend: str | Callable[[Any], str]
    columns: Sequence[Column] | Callable[[Any], Sequence[Column]]
    verdict: Callable[[Any], str]
    draw: Callable[[Any, Any], None]
    records: str | Callable[[Any], Iterable[Any]] = "rows"
    remarks: Sequence[str] | Callable[[Any], Sequence[str]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # Many of its functions have no name of their own, so a study is stored by its place in a module.
        for module, content in [(name, getattr(kept, "__dict__", {})) for name, kept in list(sys.modules.items())]:
            for name, value in list(content.items()):
                if value is self:
                    return _find_study, (module, name, None)
                if type(value) is dict:
                    for key, entry in list(value.items()):
                        if entry is self:
                            return _find_study, (module, name, key)
        raise pickle.PicklingError("a study must be a constant of a module, or an entry of one, to be pickled")


def _find_study(module: str, name: str, key: Any) -> Study:
    """Return the study at a place in a module; `key` is None for a constant."""
    value = getattr(importlib.import_module(module), name)
    return value if key is None else value[key]


class _Figures(SimpleNamespace):
    """Figures by name, which do not change."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), vars(self)  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> Never:
        raise AttributeError(f"{name} cannot be set: a {type(self).__name__} does not change; create another one")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"{name} cannot be deleted: a {type(self).__name__} does not change; create another one")


class Record(_Figures):
    """A row of a report, with its figures as attributes.

    Parameters
    ----------
    **figures : object
        Figures by name.
    """

    def __init__(self, **figures: Any) -> None:
        super().__init__(**figures)  # the signature of its base differs between versions of Python


class Report(_Figures):
    """Results of a study, compared with the figures of a paper or of other models.

    Parameters
    ----------
    study : Study
        Form of the figure or table.
    source : str
        Description of the data; the first line of every form.
    settings : dict
        Settings that every number was computed with.
    **fields : object
        Name of the figure or table, and its records, such as `rows` or `cells`.  Each field is an attribute, and a
        key of the JSON document.
    """

    def __init__(self, study: Study, source: str, settings: dict[str, Any], **fields: Any) -> None:
        super().__init__(study=study, source=source, settings=settings, **fields)

    def _form(self, name: str) -> Any:
        """Return a value of the study, computed if it is a function of the report."""
        value = getattr(self.study, name)
        return value(self) if callable(value) else value

    @property
    def title(self) -> str:
        """Name of the system, and number of the figure or table."""
        return self._form("title")

    @property
    def legend(self) -> str:
        """Meaning of the columns."""
        return self._form("legend")

    @property
    def remarks(self) -> tuple[str, ...]:
        """Omitted parts, each with its reason."""
        return tuple(self._form("remarks"))

    def verdict(self) -> str:
        """State the result, with a line for each claim.

        Returns
        -------
        str
            One sentence per line.
        """
        return self._form("verdict")

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of the table."""
        columns, records = self._form("columns"), self._form("records")
        if isinstance(records, str):
            records = getattr(self, records)
        cells = [cell.format if isinstance(cell, str) else cell for _, cell in columns]
        return [header for header, _ in columns], [[cell(record) for cell in cells] for record in records]

    def table_text(self) -> str:
        """Return the table as plain text.

        Returns
        -------
        str
            A line for each record below the header.
        """
        return format_table(*self._rows())

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values.

        Returns
        -------
        dict
            The fields, and "verdict".
        """
        fields = {name: value for name, value in vars(self).items() if name != "study"}
        return _plain(fields) | {"verdict": self.verdict()}

    def summary(self) -> str:
        """Return the table with its explanations as text.

        Returns
        -------
        str
            The data in the first line; the title; the table; the legend; the remarks; the verdict.
        """
        return "\n".join(
            [self.source, self.title, "", self.table_text(), "", self.legend, *self.remarks, self.verdict()]
        )

    def to_csv(self) -> str:
        """Return the table as comma-separated values.

        Returns
        -------
        str
            The header and the rows of `summary`.
        """
        return format_csv(*self._rows())

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
        figure = new_figure()
        self.study.draw(self, figure)
        save_figure(figure, Path(path))


def _plain(value: Any) -> Any:
    """Return the value with dictionaries in place of records."""
    if isinstance(value, Record | dict):
        fields = vars(value) if isinstance(value, Record) else value
        return {name: _plain(field) for name, field in fields.items()}
    return type(value)(map(_plain, value)) if isinstance(value, tuple | list) else value


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
