"""Result of a sweep: table, curves of utility over true epsilon, and fronts, as text, files or a DataFrame."""

import csv
import importlib.util
import io
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS, TRUST_WORDS
from fastfedrec.core.files import write_text
from fastfedrec.core.text import NOT_COVERED, format_epsilon, plain
from fastfedrec.evaluation import Sampled
from fastfedrec.studies.reproduce.side_by_side import SideBySide
from fastfedrec.studies.sweep.cells import Cell, pareto_front

__all__ = ["Sweep"]


@dataclass(frozen=True)
class Sweep(SideBySide):
    """All cells of a sweep.

    Parameters
    ----------
    source, settings : object
        Parameters of `SideBySide`.
    cells : tuple of Cell
        Cells in the order of the given settings, baselines last.
    failures : tuple of dict
        Failed runs, each with its error.
    warnings : tuple of str
        A note if the list of items comes from private data, and the evaluation's warnings for each seed, for example
        about users with too few unseen items.
    """

    cells: tuple[Cell, ...]
    failures: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()

    legend = (
        "epsilon: true cost of the whole run from the ledger, in nats, for replacing all data of one user, against the "
        "server\n(trust: local), the server behind a shuffler (shuffle), and who sees what is released (central); "
        "none: no guarantee.\n+-: two standard errors, over seeds and over tested users, whichever is more.  *: added "
        "for comparison.  Noise came from\nseeds, so that these are simulations: the guarantee is that of the same run "
        "with a key from entropy.\n" + NOT_COVERED
    )

    @property
    def title(self) -> str:
        """Title of the table."""
        return f"Utility and true privacy cost, against {self.protocol}"

    @property
    def protocol(self) -> str:
        """Items that test items are ranked against, in the words of an `Evaluation`."""
        candidates = self.settings.get("candidates")
        return "all unseen items" if candidates is None else str(Sampled(**candidates))

    @property
    def metric(self) -> str:
        """The first metric, which fronts are drawn with."""
        return self.settings["metrics"][0]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Failed runs and warnings of the evaluation, one line for each."""
        failures = [
            f"failed: {failure['system']} {failure['parameters']}, seed {failure['seed']}: {failure['error']}"
            for failure in self.failures
        ]
        return (*failures, *(f"warning: {text}" for text in self.warnings))

    def front(self, trust: str, metric: str | None = None) -> list[Cell]:
        """Return the Pareto front across systems in one trust model.

        Parameters
        ----------
        trust : {"local", "shuffle", "central"}
            Trust model.
        metric : str or None
            Name of a metric; None for the first one.

        Returns
        -------
        list of Cell
            Front by `pareto_front`.
        """
        return pareto_front(self.cells, trust, metric or self.metric)

    def verdict(self) -> str:
        """Describe the cells on each front.

        Returns
        -------
        str
            A line for each trust model, and one for cells without a guarantee.
        """
        lines = []
        for trust, words in TRUST_WORDS.items():
            front = [f"{cell.label} at {format_epsilon(cell.true_epsilon(trust))}" for cell in self.front(trust)]
            lines.append(f"Front, {trust} ({words}): {'; '.join(front) or 'nothing has a guarantee'}.")
        without_guarantee = [cell.label for cell in self.cells if not cell.is_private]
        return "\n".join([*lines, f"No guarantee in any of them: {'; '.join(without_guarantee) or 'none'}."])

    def to_csv(self) -> str:
        """Return the table as CSV, with a line for each cell.

        Returns
        -------
        str
            CSV with a header; an epsilon without a guarantee is "infinite".
        """
        rows = self._records()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else ["system"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(plain(rows))
        return text.getvalue()

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
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        # matplotlib is an optional dependency.
        plot = "sweep.png" if importlib.util.find_spec("matplotlib") else None
        write_text(out / "sweep.json", json.dumps(self.to_dict(), indent=2, allow_nan=False))
        write_text(out / "sweep.csv", self.to_csv())
        write_text(out / "sweep.md", self.to_markdown(plot=plot))
        if plot:
            self.plot(out / plot)
        return ["sweep.json", "sweep.csv", "sweep.md", *filter(None, [plot])]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values.

        Returns
        -------
        dict
            The fields; "fronts", the labels of the cells on each front; "verdict"; "not_covered", the limits of every
            epsilon.
        """
        # `plain` writes an infinite epsilon as text, because JSON has no infinity.
        fronts = {trust: [cell.label for cell in self.front(trust)] for trust in TRUST_VIEWS}
        return plain(asdict(self) | {"fronts": fronts, "verdict": self.verdict(), "not_covered": NOT_COVERED})

    def _records(self) -> list[dict[str, Any]]:
        # Cells are compared by identity, because two cells may have equal fields.
        on_front = {trust: {id(cell) for cell in self.front(trust)} for trust in TRUST_VIEWS}
        return [
            {
                "system": cell.system,
                "parameters": ", ".join(f"{name}={value!r}" for name, value in cell.parameters.items()),
                "is_baseline": cell.is_baseline,
                "n_seeds": len(cell.seeds),
                "n_tested": cell.n_tested,
                **{name: cell.mean(name) for name in cell.metrics},
                **{f"{name}_std": cell.std(name) for name in cell.metrics},
                "protocol": self.protocol,
                **{f"epsilon_{trust}": cell.true_epsilon(trust) for trust in TRUST_VIEWS},
                "delta": cell.delta,
                **{f"front_{trust}": id(cell) in on_front[trust] for trust in TRUST_VIEWS},
                "download_per_client": cell.bytes_per_client and cell.bytes_per_client["download"],
                "upload_per_client": cell.bytes_per_client and cell.bytes_per_client["upload"],
                "seconds": cell.seconds,
            }
            for cell in self.cells
        ]

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        names = list(self.settings["metrics"])
        header = ["", *(text for name in names for text in (name, "+-")), *(f"epsilon, {t}" for t in TRUST_VIEWS)]
        header += ["on the front", "bytes a client", "seconds"]
        rows = []
        for cell, record in zip(self.cells, self._records(), strict=True):
            fronts = [trust for trust in TRUST_VIEWS if record[f"front_{trust}"]]
            sizes = cell.bytes_per_client
            rows.append(
                [
                    cell.label + "*" * cell.is_baseline,
                    *(f"{v:.3f}" for name in names for v in (cell.mean(name), 2 * cell.error(name))),
                    *map(format_epsilon, map(cell.true_epsilon, TRUST_VIEWS)),
                    ", ".join(fronts),
                    f"{sizes['download'] + sizes['upload']:,}" if sizes else "-",
                    f"{cell.seconds:.2f}",
                ]
            )
        return header, rows

    def _draw(self, figure: Any) -> None:
        """Draw utility over true epsilon with a panel for each trust model; a horizontal line has no guarantee."""
        figure.set_size_inches(5 * len(TRUST_VIEWS) + 1, 4.5)
        systems = list(dict.fromkeys(cell.system for cell in self.cells))
        panels = figure.subplots(1, len(TRUST_VIEWS), sharey=True)
        for panel, trust in zip(panels, TRUST_VIEWS, strict=True):
            for number, system in enumerate(systems):
                cells = [cell for cell in self.cells if cell.system == system and cell.true_epsilon(trust) < math.inf]
                points = [(c.true_epsilon(trust), c.mean(self.metric), 2 * c.error(self.metric)) for c in cells]
                if points:
                    panel.errorbar(*zip(*points, strict=True), fmt="o", color=f"C{number}", markersize=4, label=system)
            front = self.front(trust)
            steps = [(cell.true_epsilon(trust), cell.mean(self.metric)) for cell in front]
            # Between two cells of the front, the cheaper one is the best within the cost.
            panel.step(
                [x for x, _ in steps], [y for _, y in steps], where="post", color="k", linewidth=1, label="front"
            )
            # Cells without any guarantee are horizontal lines.
            for number, cell in enumerate(cell for cell in self.cells if not cell.is_private):
                style = ("--", ":", "-.")[number % 3]
                panel.axhline(cell.mean(self.metric), color="0.5", linestyle=style, label=f"{cell.label}, no guarantee")
            if front:
                # A log scale needs at least one positive epsilon.
                panel.set_xscale("log")
            panel.set(title=f"trust: {trust}", xlabel="true epsilon (nats), replacing a user")
            panel.legend(fontsize="x-small")
        panels[0].set_ylabel(self.metric)
        figure.suptitle(self.source, fontsize="small")
