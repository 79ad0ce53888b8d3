"""Regret of the choice of `advise` against the best of all systems: ``fastfedrec sweep --choices --out DIR``.

The map uses a different preset of the generator than the sweeps.  Its systems are tested on held-out users, so that a
difference of .02 is significant with few train users as well.  No constant of the rule is tuned on it.
"""

import itertools
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.core.files import write_text
from fastfedrec.core.record_files import format_records
from fastfedrec.core.text import format_table, plain
from fastfedrec.evaluation import Sampled
from fastfedrec.studies.sweep.cells import Cell
from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, sweep
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import RECIPES, calibrated

__all__ = ["FULL", "QUICK", "Grid", "best_of", "choose_again", "measure_choices", "summary_of", "write_choices"]

# A different preset from the sweeps that `advise` reads, so the map tests the choice on different data.
PRESET = "movielens-20m"
_PRESET_ROW_LENGTH = 120.0  # mean number of items per user before rows are thinned
_N_HELD_OUT = 4_000  # tested users of each of three seeds; the standard error of a share of .3 is then .004
DELTA = 1e-6
METRIC = "hr@10"
BEHIND = 0.02  # largest accepted difference between the best system's metric and the choice's


@dataclass(frozen=True)
class Grid:
    """The cells of the map: every combination of sizes, row lengths and epsilons, in every trust model."""

    users: tuple[int, ...]
    items: tuple[int, ...]
    # Rows are thinned to this mean length.  Rows of a few items would carry less information than real short rows.
    row_lengths: tuple[float, ...]
    epsilons: tuple[float, ...]  # nats, for replacing all data of one user
    n_seeds: int
    max_cells: int = 11_000_000  # maximum of users times items of a data set

    def data(self) -> list[GeneratedData]:
        """Return all data sets of at most `max_cells` cells, the smallest first."""
        data_sets = [
            GeneratedData(n_users, n_items, length, PRESET, length / _PRESET_ROW_LENGTH, _N_HELD_OUT)
            for n_users, n_items, length in itertools.product(self.users, self.items, self.row_lengths)
            if n_users * n_items <= self.max_cells
        ]
        return sorted(data_sets, key=lambda data: (data.n_users * data.n_items, data.row_length or 0.0))

    @property
    def n_cells(self) -> int:
        """Number of cells of the map."""
        return len(self.data()) * len(self.epsilons) * len(TRUST_VIEWS)


FULL = Grid((2_500, 9_000), (400,), (60.0,), (0.5, 1.0, 2.0, 4.0), 3)
QUICK = Grid((300,), (320,), (12.0,), (2.0,), 1)


def measure_choices(
    folder: Path,
    *,
    quick: bool = False,
    n_jobs: int = 1,
    n_threads: int = 0,
    show_progress: bool = False,
) -> dict[str, Any]:
    """Measure every system and the choice of `advise` at every epsilon of the map, and write ``choices.json``."""
    grid = QUICK if quick else FULL
    cells: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    document: dict[str, Any] = {}
    for data in grid.data():
        run = sweep(
            _settings(data, grid.epsilons),
            data,
            seeds=grid.n_seeds,
            folder=folder / "cells",
            n_jobs=n_jobs,
            n_threads=n_threads,
            metrics=(METRIC,),
            candidates=Sampled(99, per="interaction"),
            delta=DELTA,
            with_baselines=False,
            show_progress=show_progress,
        )
        failures += run.failures
        # A dict is not hashable, so parameters are compared as text.
        measured = {(cell.system, str(cell.parameters)): cell for cell in run.cells}
        cells += [
            _cell(data, trust, epsilon, measured) for trust, epsilon in itertools.product(TRUST_VIEWS, grid.epsilons)
        ]
        document = {
            "source": f"GENERATED DATA (generate_implicit, {PRESET} preset), drawn anew for each seed",
            "protocol": f"leave one out of {_N_HELD_OUT:,} held-out users, 99 unseen items",
            "code": run.settings["code"],
            "delta": DELTA,
            "privacy_unit": "user",
            "neighboring": "replace",
            "metric": METRIC,
            "n_seeds": grid.n_seeds,
            "n_cells": grid.n_cells,
            "failures": failures,
            "cells": cells,
        }
        # The file is written after each data set, and a second call continues from the finished runs.
        write_choices(folder, plain(document))
    return plain(document)


def choose_again(path: Path) -> dict[str, Any]:
    """Read a map of `measure_choices`, and return it with the choices of this version of `advise`."""
    document = json.loads(path.read_text())
    return document | {"cells": [cell | {"choice": _choice(cell)} for cell in document["cells"]]}


def write_choices(folder: Path, document: dict[str, Any]) -> None:
    """Write ``choices.json`` with a line for each cell, and create its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "choices.json", format_records(document))


def _settings(data: GeneratedData, epsilons: Iterable[float]) -> list[Setting]:
    """Return the distinct settings of every system that is feasible on one data set, and the random recommender."""
    settings = {"Random()": Setting("Random", {})}
    for recipe, epsilon in itertools.product(RECIPES, epsilons):
        chosen = calibrated(recipe, epsilon, DELTA, data.n_users, data.n_items)
        if chosen is not None and recipe.is_small(data.n_users, data.n_items, chosen[1]):
            # The text is a key, so that equal settings of several recipes are fitted once.
            settings[f"{recipe.system}({chosen[0]})"] = Setting(recipe.system, chosen[0])
    return list(settings.values())


def _cell(data: GeneratedData, trust: str, epsilon: float, measured: dict[tuple[str, str], Cell]) -> dict[str, Any]:
    """Return the figures of all systems in one trust model at one epsilon, and the choice."""
    settings: list[tuple[str, dict[str, Any]]] = [("Random", {})]
    settings += [
        (recipe.system, chosen[0])
        for recipe in RECIPES
        if recipe.trust == trust
        and (chosen := calibrated(recipe, epsilon, DELTA, data.n_users, data.n_items)) is not None
    ]
    cells_by_system = {system: measured.get((system, str(plain(parameters)))) for system, parameters in settings}
    cell = {
        "n_users": data.n_users, "n_items": data.n_items, "row_length": data.row_length, "epsilon": epsilon,
        "trust": trust,
        "systems": {
            system: [round(value, 4) for value in run.metrics[METRIC]]
            for system, run in cells_by_system.items()
            if run is not None
        },
    }  # fmt: skip
    return cell | {"choice": _choice(cell)}


def _choice(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen system of a cell and its difference from the best one, or None if it was not measured."""
    means = {system: statistics.fmean(values) for system, values in cell["systems"].items()}
    # `advise` receives public numbers alone, and no measured figure of the cell.
    chosen = advise(cell["n_users"], cell["n_items"], cell["epsilon"], cell["trust"], delta=DELTA).best.system
    return {"system": chosen, "behind": round(max(means.values()) - means[chosen], 4) if chosen in means else None}


def best_of(cell: dict[str, Any]) -> str:
    """Return the name of a cell's best system, by its mean over seeds."""
    return max(cell["systems"], key=lambda system: statistics.fmean(cell["systems"][system]))


def summary_of(document: dict[str, Any]) -> str:
    """Format a map as text: the number of cells, the largest difference, and the cells above `BEHIND`."""
    lines = [f"{len(document['cells'])} of {document['n_cells']} cells; {document['source']}"]
    behind = [cell["choice"]["behind"] for cell in document["cells"]]
    measured = [value for value in behind if value is not None]
    n_too_far = sum(value > BEHIND for value in measured)
    max_behind = f"{max(measured):.3f}" if measured else "-"
    lines.append(f"at most {max_behind} behind the best, more than {BEHIND} in {n_too_far} of {len(measured)} cells")
    if len(measured) < len(behind):
        lines.append(f"  in {len(behind) - len(measured)} the chosen system was not measured")
    rows = [
        (
            cell["trust"], f"{cell['n_users']:,}", f"{cell['n_items']:,}", f"{cell['row_length']:g}",
            f"{cell['epsilon']:g}", choice["system"], best_of(cell), f"{choice['behind']:.3f}",
        )
        for cell in document["cells"]
        for choice in [cell["choice"]]
        if choice["behind"] is not None and choice["behind"] > BEHIND
    ]  # fmt: skip
    if rows:
        header = ("trust", "users", "items", "rows", "epsilon", "chosen", "best", "behind")
        lines += ["", format_table(header, rows)]
    return "\n".join(lines)
