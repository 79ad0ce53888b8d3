"""The table of ``fastfedrec compare``: its text and its files."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastfedrec.accounting.views import View, show_costs
from fastfedrec.cli.outputs import epsilon_legend, footer, list_source
from fastfedrec.cli.parts import describe_dropped
from fastfedrec.cli.settings import SystemSettings
from fastfedrec.core.figures import PLOT_ENDINGS, new_figure, save_figure
from fastfedrec.core.files import write_text
from fastfedrec.core.text import NOT_COVERED, format_table
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Evaluation
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.comparison import Comparison

__all__ = ["ENDINGS", "ComparedRun", "ComparisonTable"]

#: Endings of the files that a table can be written to.
ENDINGS = (".md", ".csv", ".json", ".tex", ".txt", *PLOT_ENDINGS)
_TOO_FEW_USERS = (
    "Without a public item list, only items with many users can be chosen privately; pass one with --catalogue."
)
_FROM_DATA = "The item list came from these data, which no epsilon covers either; pass a public one with --catalogue."


@dataclass
class ComparedRun:
    """A system under its label, before and after its fits."""

    label: str
    settings: SystemSettings
    model: Any
    parameters: dict[str, Any] = field(default_factory=dict)
    result: Evaluation | None = None
    epsilon: Mapping[View, float] = field(default_factory=dict)
    parties: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    n_items: int = 0
    same_list: str = ""  # sentence on a system that gave all users the same list
    seconds: float = 0.0

    @property
    def cost(self) -> str:
        """Each finite true epsilon with the trust that it needs, or "none"."""
        return show_costs(self.epsilon, self.parties)


@dataclass
class ComparisonTable:
    """The compared runs with everything that is printed or written about them."""

    head: Sequence[str]  # lines above the table
    runs: Sequence[ComparedRun]
    comparison: Comparison
    train: Interactions
    failures: Sequence[tuple[str, str]]
    document: dict[str, Any]
    by_group: str = ""  # table of the metrics in groups of users

    def text(self, arguments: argparse.Namespace) -> str:
        """Return the table with at most three lines below it, or all of them with --details."""
        columns = self._columns()
        table = format_table(list(columns), zip(*columns.values(), strict=True))
        return "\n".join(
            [
                *self.head,
                "",
                table,
                "",
                *filter(None, [self.by_group]),
                *footer(arguments, *self._main(), details=self._details()),
            ]
        )

    def write(self, files: Sequence[Path]) -> None:
        """Write the table to each file in the format that its ending names."""
        # Functions of the text in each format, called only for requested formats.
        makers: dict[str, Callable[[], str]] = {
            ".txt": lambda: self.text(argparse.Namespace(details=True)),
            ".md": self._markdown,
            ".tex": self._latex,
            ".csv": self.comparison.to_csv,
            ".json": lambda: json.dumps(self.document, indent=2, allow_nan=False),
        }
        for path in files:
            if (ending := path.suffix.lower()) in PLOT_ENDINGS:
                self._plot(path)
            else:
                write_text(path, makers[ending]().rstrip("\n") + "\n")

    def _columns(self, dash: str = "to") -> dict[str, list[str]]:
        """Return the columns of the table: each system's metrics with intervals, and its privacy cost."""
        results, intervals = self.comparison.results, self.comparison.intervals
        columns = {"system": [run.label for run in self.runs]}
        for metric in next(iter(results.values())):
            columns[metric] = [
                tables.show_interval(results[run.label][metric], intervals[run.label][metric], dash)
                for run in self.runs
            ]
        return columns | {"true epsilon": [run.cost for run in self.runs]}

    def _main(self) -> list[str]:
        """Return three lines at most: the result, lost users, the meaning of epsilon, and the limits of the figures."""
        verdict, *_ = self.comparison.verdicts() or ["No metric has a paired test."]
        for run in self.runs:
            if run.same_list:
                verdict += f" {run.same_list}"
        # A private choice of items from such a list is in the cost of its row.
        is_source_open = any(run.settings.choice is None for run in self.runs if run.cost != "none")
        source = [_FROM_DATA] if self.train.catalogue == "data" else list_source(self.train)
        limits = " ".join([NOT_COVERED, *(source if is_source_open else [])])
        dropped = self._dropped()
        # Users without a test interaction matter more than a line for each of the other two sentences.
        legend = epsilon_legend(self.comparison.results.values())
        return [verdict, *dropped, f"{legend} {limits}"] if dropped else [verdict, legend, limits]

    def _dropped(self) -> list[str]:
        """Return the sentence on users who lost all of their test interactions, if there are any."""
        dropped = next(iter(self.comparison.results.values())).dropped
        return describe_dropped(dropped) if dropped["users"] else []

    def _details(self) -> list[str]:
        """Return further sentences: results by other metrics, failures, dropped interactions and notes of ledgers."""
        lines = self.comparison.verdicts()[1:]
        lines += [f"{label} failed: {error}" for label, error in self.failures]
        if not self._dropped():
            lines += describe_dropped(next(iter(self.comparison.results.values())).dropped)
        for run in self.runs:
            if run.n_items < self.train.n_items:
                few = f"{run.label} scores {run.n_items:,} of {self.train.n_items:,} items. All other items rank last."
                is_hidden = run.settings.choice is not None and self.train.catalogue == "data"
                lines.append(few + (f" {_TOO_FEW_USERS}" if is_hidden else ""))
            if run.cost != "none":
                lines += [f"{run.label}: {note}" for note in run.notes]
        return lines

    def _markdown(self) -> str:
        lines = [f"- {text}" for text in (*self._main(), *self._details())]
        return "\n".join(["  \n".join(self.head), "", tables.to_markdown(self._columns()), "", *lines])

    def _latex(self) -> str:
        """Return a tabular, after comments with the data, the protocol and the meaning of epsilon."""
        comments = [f"% {' '.join(text.split())}" for text in (*self.head, *self._main())]
        return "\n".join([*comments, tables.to_latex(self._columns("--"))])

    def _plot(self, path: Path) -> None:
        """Draw a panel for each metric, with the cost of each system below its name."""
        metrics = list(next(iter(self.comparison.results.values())))
        figure = new_figure(f"--out {path}", figsize=(3 + 3.5 * len(metrics), 1.5 + 0.5 * len(self.runs)))
        panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            self.comparison.plot(metric, ax=panel)
        panels[0].set_yticks(
            range(len(self.runs)), [f"{run.label}\n{_describe_cost(run)}" for run in self.runs], fontsize="small"
        )
        save_figure(figure, path)


def _describe_cost(run: ComparedRun) -> str:
    return "no guarantee" if run.cost == "none" else f"true epsilon {run.cost}"
