"""Regret of the choice of `advise` against the best of all systems: ``fastfedrec sweep --choices --out DIR``.

The map has data of different kinds, and none of the preset of the sweeps.  On generated data, systems are tested on
held-out users, so that a difference of .02 is significant with few train users as well.
"""

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastfedrec.core.files import write_text
from fastfedrec.core.record_files import format_records
from fastfedrec.core.text import format_table, plain
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Sampled
from fastfedrec.studies.reproduce.movielens_users import users_of_the_thousand
from fastfedrec.studies.sweep.cells import Cell
from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, sweep
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import RECIPES, calibrated

__all__ = ["FULL", "QUICK", "Grid", "best_of", "choose_again", "measure_choices", "summary_of", "write_choices"]

MOVIES = "movies"  # MovieLens 1M
_N_HELD_OUT = 4_000  # tested users of each of three seeds; the standard error of a share of .3 is then .004
DELTA = 1e-6
METRIC = "hr@10"  # metric of the choice's regret, among 99 sampled items
AMONG_ALL = ("hr@10", "ndcg@10")  # metrics among all unseen items
METRICS = (METRIC, *(f"{name}_all" for name in AMONG_ALL))
TRUSTS = ("local", "shuffle", "central")  # secure sums have the systems of a trusted server
BEHIND = 0.02  # largest accepted difference between the best system's metric and the choice's


@dataclass(frozen=True)
class Grid:
    """The cells of the map: every kind of data at every epsilon, in every trust model."""

    epsilons: tuple[float, ...]  # nats, for replacing all data of one user
    n_seeds: int
    generated: Mapping[str, GeneratedData] = field(default_factory=dict)

    def data(self, movies: Interactions | None = None) -> dict[str, GeneratedData | Interactions]:
        """Return all data sets by name."""
        return dict(self.generated) | ({} if movies is None else {MOVIES: users_of_the_thousand(movies)})

    def n_cells(self, movies: Interactions | None = None) -> int:
        """Return the number of cells of the map."""
        return len(self.data(movies)) * len(self.epsilons) * len(TRUSTS)


def _thinned(n_users: int, n_items: int, row_length: float, n_held_out: int = _N_HELD_OUT) -> GeneratedData:
    """Return data like MovieLens 20M with shorter rows."""
    # Rows are thinned from 120 items, since shorter rows of the generator carry more information than real ones.
    return GeneratedData(n_users, n_items, row_length, "movielens-20m", row_length / 120, n_held_out)


FULL = Grid(
    (0.5, 1.0, 2.0, 4.0),
    3,
    {
        "2,500 users": _thinned(2_500, 400, 60.0),
        "9,000 users": _thinned(9_000, 400, 60.0),
        "check-ins": GeneratedData(14_066, 1_000, None, "check-ins", n_held_out=_N_HELD_OUT),
        "purchases": GeneratedData(35_219, 1_000, None, "purchases", n_held_out=_N_HELD_OUT),
        "catalogue": GeneratedData(20_000, 2_500, None, "catalogue", n_held_out=_N_HELD_OUT),
    },
)
QUICK = Grid((2.0,), 1, {"300 users": _thinned(300, 320, 12.0)})


def measure_choices(
    folder: Path,
    *,
    movies: Interactions | None = None,
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
    for name, data in grid.data(movies).items():
        run = sweep(
            _settings(data, grid.epsilons),
            data,
            seeds=grid.n_seeds,
            folder=folder / "cells",
            n_jobs=n_jobs,
            n_threads=n_threads,
            metrics=(METRIC,),
            candidates=Sampled(99, per="interaction"),
            metrics_among_all=AMONG_ALL,
            delta=DELTA,
            with_baselines=False,
            show_progress=show_progress,
        )
        failures += run.failures
        # A dict is not hashable, so parameters are compared as text.
        measured = {(cell.system, str(cell.parameters)): cell for cell in run.cells}
        cells += [
            _cell(name, data, trust, epsilon, measured) for trust, epsilon in itertools.product(TRUSTS, grid.epsilons)
        ]
        document = {
            "source": "GENERATED DATA (generate_implicit), drawn anew for each seed"
            + ("" if movies is None else f", except for {MOVIES}: the data given"),
            "protocol": f"leave one out, of generated data for {_N_HELD_OUT:,} held-out users; {METRIC} among 99 "
            "unseen items, _all among all",
            "code": run.settings["code"],
            "delta": DELTA,
            "privacy_unit": "user",
            "neighboring": "replace",
            "n_seeds": grid.n_seeds,
            "n_cells": grid.n_cells(movies),
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


def _settings(data: GeneratedData | Interactions, epsilons: Iterable[float]) -> list[Setting]:
    """Return the distinct settings of every system that is feasible on one data set, and the random recommender."""
    settings = {"Random()": Setting("Random", {})}
    for recipe, epsilon in itertools.product(RECIPES, epsilons):
        chosen = calibrated(recipe, epsilon, DELTA, data.n_users, data.n_items)
        if chosen is not None and recipe.is_small(data.n_users, data.n_items, chosen[1]):
            # The text is a key, so that equal settings of several recipes are fitted once.
            settings[f"{recipe.system}({chosen[0]})"] = Setting(recipe.system, chosen[0])
    return list(settings.values())


def _cell(
    name: str,
    data: GeneratedData | Interactions,
    trust: str,
    epsilon: float,
    measured: Mapping[tuple[str, str], Cell],
) -> dict[str, Any]:
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
        "data": name, "n_users": data.n_users, "n_items": data.n_items, "epsilon": epsilon, "trust": trust,
        "systems": {
            system: {metric: [round(value, 4) for value in run.metrics[metric]] for metric in METRICS}
            for system, run in cells_by_system.items()
            if run is not None
        },
    }  # fmt: skip
    return cell | {"choice": _choice(cell)}


def _choice(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen system of a cell, and by metric its difference from the best one; None if not measured."""
    # `advise` receives public numbers alone, and no measured figure of the cell.
    chosen = advise(cell["n_users"], cell["n_items"], cell["epsilon"], cell["trust"], delta=DELTA).best.system
    if chosen not in cell["systems"]:
        return {"system": chosen, "behind": None}
    means = {metric: _means(cell, metric) for metric in METRICS}
    return {
        "system": chosen,
        "behind": {metric: round(max(of.values()) - of[chosen], 4) for metric, of in means.items()},
    }


def _means(cell: dict[str, Any], metric: str) -> dict[str, float]:
    """Return the mean over seeds of a metric, by system."""
    return {system: statistics.fmean(values[metric]) for system, values in cell["systems"].items()}


def best_of(cell: dict[str, Any]) -> str:
    """Return the name of a cell's best system, by its mean over seeds."""
    means = _means(cell, METRIC)
    return max(means, key=means.__getitem__)


def summary_of(document: dict[str, Any]) -> str:
    """Format a map as text: the number of cells, the largest difference, and the cells above `BEHIND`."""
    lines = [f"{len(document['cells'])} of {document['n_cells']} cells; {document['source']}"]
    measured = [cell for cell in document["cells"] if cell["choice"]["behind"] is not None]
    too_far = [cell for cell in measured if cell["choice"]["behind"][METRIC] > BEHIND]
    max_behind = max((cell["choice"]["behind"][METRIC] for cell in measured), default=None)
    shown = "-" if max_behind is None else f"{max_behind:.3f}"
    lines.append(f"at most {shown} behind the best, more than {BEHIND} in {len(too_far)} of {len(measured)} cells")
    if len(measured) < len(document["cells"]):
        lines.append(f"  in {len(document['cells']) - len(measured)} the chosen system was not measured")
    rows = [
        (
            cell["trust"], cell["data"], f"{cell['n_users']:,}", f"{cell['n_items']:,}", f"{cell['epsilon']:g}",
            cell["choice"]["system"], best_of(cell), *(f"{cell['choice']['behind'][metric]:.3f}" for metric in METRICS),
        )
        for cell in too_far
    ]  # fmt: skip
    if rows:
        header = ("trust", "data", "users", "items", "epsilon", "chosen", "best", *METRICS)
        lines += ["", "difference from the best:", "", format_table(header, rows)]
    return "\n".join(lines)
