"""Result of a sweep: table, curves of utility over true epsilon, and fronts, as text, files or a DataFrame."""

import importlib.util
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastfedrec.accounting.views import TRUST_WORDS, show_costs
from fastfedrec.core.text import NOT_COVERED, format_csv, format_epsilon, plain
from fastfedrec.evaluation import Sampled
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.files import write_report
from fastfedrec.studies.report import Report, Study
from fastfedrec.studies.sweep.cells import Cell, best_cells, pareto_front, trusts_of

__all__ = ["Sweep"]


class Sweep(Report):
    """All cells of a sweep.

    Parameters
    ----------
    source, settings : object
        Parameters of `Report`.
    cells : tuple of Cell
        Cells in the order of the given settings, baselines last.
    failures : tuple of dict
        Failed runs, each with its error.
    warnings : tuple of str
        A note if the list of items comes from private data, and the evaluation's warnings for each seed, for example
        about users with too few unseen items.
    tested : tuple of Cell
        Cells of the settings that were chosen on a validation split, with their figures on the test.  If there are any,
        `cells` have the figures of validation.
    """

    tested: tuple[Cell, ...] = ()

    def __init__(
        self,
        source: str,
        settings: dict[str, Any],
        cells: tuple[Cell, ...],
        failures: tuple[dict[str, Any], ...],
        warnings: tuple[str, ...] = (),
        tested: tuple[Cell, ...] = (),
    ) -> None:
        fields = {"tested": tested} if tested else {}
        super().__init__(STUDY, source, settings, cells=cells, failures=failures, warnings=warnings, **fields)

    def test_of(self, cell: Cell) -> Cell | None:
        """Return the cell with the test figures of a setting that was chosen on validation.

        Parameters
        ----------
        cell : Cell
            One of `cells`.

        Returns
        -------
        Cell or None
            One of `tested`; None if the setting was not chosen.
        """
        return next((other for other in self.tested if other.label == cell.label), None)

    @property
    def protocol(self) -> str:
        """Items that test items are ranked against, in the words of an `Evaluation`."""
        candidates = self.settings.get("candidates")
        return "all unseen items" if candidates is None else str(Sampled(**candidates))

    @property
    def metric(self) -> str:
        """The first metric, which fronts are drawn with."""
        return self.settings["metrics"][0]

    def front(self, trust: str, metric: str | None = None) -> list[Cell]:
        """Return the Pareto front across systems in one trust model.

        Parameters
        ----------
        trust : {"local", "shuffle", "central", "aggregator"}
            Trust model.
        metric : str or None
            Name of a metric; None for the first one.

        Returns
        -------
        list of Cell
            Front by `pareto_front`.
        """
        return pareto_front(self.cells, trust, metric or self.metric)

    def to_csv(self) -> str:
        """Return the table as CSV, with a line for each cell.

        Returns
        -------
        str
            CSV with a header; an epsilon without a guarantee is "infinite".
        """
        rows = plain(self._records())
        return format_csv(list(rows[0]) if rows else ["system"], [list(row.values()) for row in rows])

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            A row for each cell.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas, or use to_csv()") from None
        return pandas.DataFrame(self._records())

    def write(self, folder: str | Path) -> list[str]:
        """Write the table as JSON, CSV and Markdown, and the curves as PNG if matplotlib is installed.

        Parameters
        ----------
        folder : str or Path
            Folder for the files; it is created if it does not exist.

        Returns
        -------
        list of str
            Names of the files.
        """
        # matplotlib is an optional dependency.
        plot = importlib.util.find_spec("matplotlib") is not None
        return write_report(self, folder, "sweep", json.dumps(self.to_dict(), indent=2, allow_nan=False), plot=plot)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values.

        Returns
        -------
        dict
            The fields; "fronts", the labels of the cells on each front; "verdict"; "not_covered", the limits of every
            epsilon.
        """
        fields = {name: value for name, value in vars(self).items() if name != "study"}
        fields |= {name: [asdict(cell) for cell in fields[name]] for name in ("cells", "tested") if name in fields}
        fronts = {trust: [cell.label for cell in self.front(trust)] for trust in trusts_of(self.cells)}
        # `plain` writes an infinite epsilon as text, because JSON has no infinity.
        return plain(fields | {"fronts": fronts, "verdict": self.verdict(), "not_covered": NOT_COVERED})

    def _test_mean(self, cell: Cell, metric: str) -> float | None:
        return None if (of_test := self.test_of(cell)) is None else of_test.mean(metric)

    def _records(self) -> list[dict[str, Any]]:
        # Cells are compared by identity, because two cells may have equal fields.
        trusts = trusts_of(self.cells)
        on_front = {trust: {id(cell) for cell in self.front(trust)} for trust in trusts}
        return [
            {
                "system": cell.system,
                "parameters": ", ".join(f"{name}={value!r}" for name, value in cell.parameters.items()),
                "is_baseline": cell.is_baseline,
                "n_seeds": len(cell.seeds),
                "n_tested": cell.n_tested,
                **{name: cell.mean(name) for name in cell.metrics},
                **{f"{name}_std": cell.std(name) for name in cell.metrics},
                **{f"{name}_test": self._test_mean(cell, name) for name in cell.metrics if self.tested},
                "protocol": self.protocol,
                **{f"epsilon_{trust}": cell.true_epsilon(trust) for trust in trusts},
                "delta": cell.delta,
                **{f"front_{trust}": id(cell) in on_front[trust] for trust in trusts},
                "download_per_client": cell.bytes_per_client and cell.bytes_per_client["download"],
                "upload_per_client": cell.bytes_per_client and cell.bytes_per_client["upload"],
                "seconds": cell.seconds,
            }
            for cell in self.cells
        ]


def _remarks(sweep: Sweep) -> list[str]:
    """Return failed runs and warnings of the evaluation, one line for each."""
    failures = [
        f"failed: {', '.join([f['system'], *(f'{name}={value}' for name, value in f['parameters'].items())])}, "
        f"seed {f['seed']}: {f['error']}"
        for f in sweep.failures
    ]
    return [*failures, *(f"warning: {text}" for text in sweep.warnings)]


def _describe_fronts(sweep: Sweep) -> str:
    """Describe the cells on the front of each trust model, and the ones without a guarantee."""
    lines = []
    for trust in trusts_of(sweep.cells):
        front = [f"{cell.label} at {format_epsilon(cell.true_epsilon(trust))}" for cell in sweep.front(trust)]
        lines.append(f"Front, {trust} ({TRUST_WORDS[trust]}): {'; '.join(front) or 'nothing has a guarantee'}.")
    without_guarantee = [cell.label for cell in sweep.cells if not cell.is_private]
    lines.append(f"No guarantee in any of them: {'; '.join(without_guarantee) or 'none'}.")
    return "\n".join([*lines, *_describe_choices(sweep)])


def _columns(sweep: Sweep) -> list[Any]:
    trusts = trusts_of(sweep.cells)
    fronts = {trust: set(map(id, sweep.front(trust))) for trust in trusts}
    columns: list[Any] = [("", lambda cell: cell.label + "*" * cell.is_baseline)]
    for name in sweep.settings["metrics"]:
        columns += [
            (f"{name}, validation" if sweep.tested else name, lambda cell, name=name: f"{cell.mean(name):.3f}"),
            ("+-", lambda cell, name=name: f"{2 * cell.error(name):.3f}"),
        ]
        if sweep.tested:
            columns += [(f"{name}, test", lambda cell, name=name: _show_test(sweep, cell, name))]
    return [
        *columns,
        ("true epsilon", lambda cell: show_costs(cell.epsilon, cell.trust)),
        ("on the front", lambda cell: ", ".join(trust for trust in trusts if id(cell) in fronts[trust])),
        ("bytes a client", lambda cell: f"{sum(cell.bytes_per_client.values()):,}" if cell.bytes_per_client else "-"),
        ("seconds", "{.seconds:.2f}"),
    ]


def _show_test(sweep: Sweep, cell: Cell, metric: str) -> str:
    of_test = sweep.test_of(cell)
    return "-" if of_test is None else f"{of_test.mean(metric):.3f} +- {2 * of_test.error(metric):.3f}"


def _describe_choices(sweep: Sweep) -> list[str]:
    """Describe the setting of each system that is best on validation, with its test figure."""
    metric = sweep.metric
    best = [(cell, sweep.test_of(cell)) for cell in best_cells(sweep.cells, metric)]
    choices = [f"{cell.label} with {metric} {_show_test(sweep, cell, metric)}" for cell, of_test in best if of_test]
    divided = f" Validation is {sweep.settings['validation']} of train." if "validation" in sweep.settings else ""
    return [f"Chosen on validation, and tested: {'; '.join(choices)}.{divided}"] if choices else []


def _draw(sweep: Sweep, figure: Any) -> None:
    """Draw utility over true epsilon with a panel for each trust model; a horizontal line has no guarantee."""
    from matplotlib.ticker import LogLocator

    systems = list(dict.fromkeys(cell.system for cell in sweep.cells))
    for panel, trust in draw_panels(figure, trusts_of(sweep.cells), 5, 4.5, sharey=True):
        for number, system in enumerate(systems):
            cells = [cell for cell in sweep.cells if cell.system == system and cell.true_epsilon(trust) < math.inf]
            points = [(c.true_epsilon(trust), c.mean(sweep.metric), 2 * c.error(sweep.metric)) for c in cells]
            if points:
                panel.errorbar(*zip(*points, strict=True), fmt="o", color=f"C{number}", markersize=4, label=system)
        steps = [(cell.true_epsilon(trust), cell.mean(sweep.metric)) for cell in sweep.front(trust)]
        # Between two cells of the front the cheaper one is the best, and beyond the last cell the last one is.
        if steps:
            most = max(e for cell in sweep.cells if (e := cell.true_epsilon(trust)) < math.inf)
            costs, values = zip(*steps, (most, steps[-1][1]), strict=True)
            panel.step(costs, values, where="post", color="k", linewidth=1, label="front")
        # Cells without any guarantee are horizontal lines.
        for number, cell in enumerate(cell for cell in sweep.cells if not cell.is_private):
            style = ("--", ":", "-.")[number % 3]
            panel.axhline(cell.mean(sweep.metric), color="0.5", linestyle=style, label=f"{cell.label}, no guarantee")
        if steps:
            # A log scale needs at least one positive epsilon.
            panel.set_xscale("log")
            # Labels of all minor ticks would overlap.
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter("{x:g}")
            panel.xaxis.set_minor_formatter("")
        panel.set(title=f"trust: {trust}", xlabel="true epsilon (nats), replacing a user")
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="x-small")
    figure.axes[0].set_ylabel(f"{sweep.metric}, validation" if sweep.tested else sweep.metric)
    figure.suptitle(sweep.source, fontsize="small")


STUDY = Study(
    title="Utility and true privacy cost, against {.protocol}".format,
    legend=(
        "true epsilon: what the whole run costs one user, in nats, for replacing all data of one user, if the party in "
        "brackets is trusted (local: no party, shuffle: a shuffler, central: the server). none: no guarantee.\n"
        "+-: two standard errors, over seeds or over tested users, whichever is larger. *: added for comparison. Noise "
        "came from seeds: these runs are simulations of runs with a key from entropy.\n" + NOT_COVERED
    ),
    columns=_columns,
    verdict=_describe_fronts,
    draw=_draw,
    records="cells",
    remarks=_remarks,
)
