"""How far the choice of `advise` is behind the best of all systems: ``fastfedrec sweep --choices --out DIR``.

The map has another preset of the generator than the sweeps.  Its systems are tested on users who take no part, so that
a difference of .02 is not chance with few users either.  No constant of the rule is set by it.
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
from fastfedrec.core.text import format_table, plain
from fastfedrec.evaluation import Sampled
from fastfedrec.studies.sweep.cells import Cell
from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, sweep
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import RECIPES, calibrated

__all__ = ["FULL", "QUICK", "Grid", "best_of", "choose_again", "measure_choices", "summary_of", "write_choices"]

PRESET = "movielens-20m"
_LONG_ROWS = 120.0  # of the preset, before rows are shortened
_TESTED = 4_000  # under each of three seeds: the standard error of a share of .3 is then .004
DELTA = 1e-6
METRIC = "hr@10"
BEHIND = 0.02  # that a choice may be behind


@dataclass(frozen=True)
class Grid:
    """The cells of the map: every combination, in every trust model.

    Parameters
    ----------
    users, items : tuple of int
        Sizes of the data.
    row_lengths : tuple of float
        Items of a user, on average, shorter than the preset's: each is kept with one probability.  Rows that are
        thinned to a few items carry less information than real short rows, so that the full map has none.
    epsilons : tuple of float
        For replacing all data of one user.
    n_seeds : int
        Data, split and noise are drawn anew for each.
    most_cells : int
        Users times items of a data set, at most.
    """

    users: tuple[int, ...]
    items: tuple[int, ...]
    row_lengths: tuple[float, ...]
    epsilons: tuple[float, ...]
    n_seeds: int
    most_cells: int = 11_000_000

    def data(self) -> list[GeneratedData]:
        """All data sets, the cheapest first.

        Returns
        -------
        list of GeneratedData
            Of no more cells than may be.
        """
        found = [
            GeneratedData(n_users, n_items, length, PRESET, length / _LONG_ROWS, _TESTED)
            for n_users, n_items, length in itertools.product(self.users, self.items, self.row_lengths)
            if n_users * n_items <= self.most_cells
        ]
        return sorted(found, key=lambda data: (data.n_users * data.n_items, data.row_length or 0.0))

    @property
    def n_cells(self) -> int:
        """Of the map."""
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
    """Measure every system at every epsilon of the map beside what `advise` chooses, and write ``choices.json``.

    Parameters
    ----------
    folder : Path
        For the file, which is written anew after each data set, and for finished runs: a second call goes on.
    quick : bool
        One small data set and epsilon.
    n_jobs, n_threads : int
        As for `sweep.sweep`.
    show_progress : bool
        Draw a bar for each data set.

    Returns
    -------
    dict
        What was written; "cells" has one entry for each trust model, epsilon and data set.
    """
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
        measured = {(cell.system, str(cell.parameters)): cell for cell in run.cells}
        cells += [
            _cell(data, trust, epsilon, measured) for trust, epsilon in itertools.product(TRUST_VIEWS, grid.epsilons)
        ]
        document = {
            "source": f"GENERATED DATA (generate_implicit, {PRESET} preset), drawn anew for each seed",
            "protocol": f"leave one out of {_TESTED:,} people who took no part, 99 unseen items",
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
        write_choices(folder, plain(document))
    return plain(document)


def choose_again(path: Path) -> dict[str, Any]:
    """Of a map that was measured before, what `advise` chooses now.

    Parameters
    ----------
    path : Path
        As `measure_choices` wrote it.

    Returns
    -------
    dict
        The map, with the choices of this version of the package.
    """
    document = json.loads(path.read_text())
    return document | {"cells": [cell | {"choice": _choice(cell)} for cell in document["cells"]]}


def write_choices(folder: Path, document: dict[str, Any]) -> None:
    """Write ``choices.json``, a line for each cell.

    Parameters
    ----------
    folder : Path
        Made where it is not there.
    document : dict
        A map.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = json.dumps(document | {"cells": []}, indent=1, allow_nan=False)
    lines = ",\n".join(json.dumps(cell, allow_nan=False) for cell in document["cells"])
    write_text(folder / "choices.json", head.replace('"cells": []', f'"cells": [\n{lines}\n ]') + "\n")


def _settings(data: GeneratedData, epsilons: Iterable[float]) -> list[Setting]:
    """Every system that can be had on one data set, in reasonable time, and items at random, each once."""
    found = {"Random()": Setting("Random", {})}
    for recipe, epsilon in itertools.product(RECIPES, epsilons):
        chosen = calibrated(recipe, epsilon, DELTA, data.n_users, data.n_items)
        if chosen is not None and recipe.is_small(data.n_users, data.n_items, chosen[1]):
            found[f"{recipe.system}({chosen[0]})"] = Setting(recipe.system, chosen[0])
    return list(found.values())


def _cell(data: GeneratedData, trust: str, epsilon: float, measured: dict[tuple[str, str], Cell]) -> dict[str, Any]:
    """Return the figures of all systems in one trust model at one epsilon, and the choice."""
    settings: list[tuple[str, dict[str, Any]]] = [("Random", {})]
    settings += [
        (recipe.system, chosen[0])
        for recipe in RECIPES
        if recipe.trust == trust
        and (chosen := calibrated(recipe, epsilon, DELTA, data.n_users, data.n_items)) is not None
    ]
    found = {system: measured.get((system, str(plain(parameters)))) for system, parameters in settings}
    cell = {
        "n_users": data.n_users, "n_items": data.n_items, "row_length": data.row_length, "epsilon": epsilon,
        "trust": trust,
        "systems": {
            system: [round(value, 4) for value in run.metrics[METRIC]]
            for system, run in found.items()
            if run is not None
        },
    }  # fmt: skip
    return cell | {"choice": _choice(cell)}


def _choice(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen system, and how far it is behind the best of a cell; None where it was not measured."""
    means = {system: statistics.fmean(values) for system, values in cell["systems"].items()}
    chosen = advise(cell["n_users"], cell["n_items"], cell["epsilon"], cell["trust"], delta=DELTA).best.system
    return {"system": chosen, "behind": round(max(means.values()) - means[chosen], 4) if chosen in means else None}


def best_of(cell: dict[str, Any]) -> str:
    """The best system of a cell, by its mean over seeds.

    Parameters
    ----------
    cell : dict
        Of a map.

    Returns
    -------
    str
        Its name.
    """
    return max(cell["systems"], key=lambda system: statistics.fmean(cell["systems"][system]))


def summary_of(document: dict[str, Any]) -> str:
    """Lay out a map as text.

    Parameters
    ----------
    document : dict
        As `measure_choices` returns it.

    Returns
    -------
    str
        How many cells there are, how far the choice is behind, and those that are too far.
    """
    lines = [f"{len(document['cells'])} of {document['n_cells']} cells; {document['source']}"]
    behind = [cell["choice"]["behind"] for cell in document["cells"]]
    known = [value for value in behind if value is not None]
    far = sum(value > BEHIND for value in known)
    most = f"{max(known):.3f}" if known else "-"
    lines.append(f"at most {most} behind the best, more than {BEHIND} in {far} of {len(known)} cells")
    if len(known) < len(behind):
        lines.append(f"  in {len(behind) - len(known)} the chosen system was not measured")
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
