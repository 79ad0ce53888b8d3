"""Sweeps on generated data with the figures that `advise` reads: ``fastfedrec sweep --advice --out DIR``."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastfedrec.core.files import write_text
from fastfedrec.core.record_files import format_records
from fastfedrec.core.text import plain
from fastfedrec.evaluation import Sampled
from fastfedrec.studies.sweep.sweeps import GeneratedData, Setting, sweep
from fastfedrec.systems.private_recommender.choice import stored_sweeps
from fastfedrec.systems.private_recommender.recipes import RECIPES, Recipe, calibrated

__all__ = ["measure"]

USERS = (1_000, 10_000, 30_000, 100_000)
ITEMS = (300, 1_000, 3_000)
ROW_LENGTHS = (30.0, 100.0)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
FEW_EPSILONS = (0.5, 1.0, 2.0, 4.0)  # for data above the smallest number of users, where fits take longer
MAX_CELLS = 100_000_000  # maximum of users times items of a data set
SEEDS = {1_000: 3}  # number of seeds by number of users; larger data use one seed, which tests many users
DELTA = 1e-6
METRICS = ("hr@10", "ndcg@10")
REFERENCES = ("Popularity", "EASE")  # systems without privacy


def measure(
    folder: Path,
    *,
    systems: Sequence[str] | None = None,
    n_jobs: int = 1,
    n_threads: int = 0,
    show_progress: bool = False,
) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """Run the grid and write ``advice.json``; return its content and the failed runs.

    With `systems`, only these classes are measured, and all other rows are those of the stored file.
    """
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    run_settings: dict[str, Any] = {}
    for n_users, n_items, length in itertools.product(USERS, ITEMS, ROW_LENGTHS):
        if n_users * n_items > MAX_CELLS:
            continue
        plan = [step for step in _plan(n_users, n_items) if systems is None or step[0].system in systems]
        run = sweep(
            [setting for setting, *_ in plan],
            GeneratedData(n_users, n_items, length),
            seeds=SEEDS.get(n_users, 1),
            folder=folder / "cells",
            n_jobs=n_jobs,
            n_threads=n_threads,
            metrics=METRICS,
            candidates=Sampled(99, per="interaction"),
            delta=DELTA,
            with_baselines=False,
            show_progress=show_progress,
        )
        failures += run.failures
        cells = {(cell.system, str(cell.parameters)): cell for cell in run.cells}
        for setting, recipe, epsilon, is_popularity in plan:
            # A cell is missing if all its runs failed; these are listed in `failures`.
            cell = cells.get((setting.system, str(plain(dict(setting.parameters)))))
            if cell is None:
                continue
            rows.append(
                {
                    "n_users": n_users,
                    "n_items": n_items,
                    "row_length": length,
                    "system": cell.system,
                    "trust": recipe and recipe.trust,
                    "target": epsilon,
                    "epsilon": recipe and cell.true_epsilon(recipe.trust),
                    "parameters": cell.parameters,
                    "is_popularity": is_popularity,
                    "metrics": {name: [round(value, 5) for value in values] for name, values in cell.metrics.items()},
                    "n_tested": cell.n_tested,
                    "bytes_per_client": cell.bytes_per_client,
                    "seconds": round(cell.seconds, 3),
                }
            )
        run_settings = run.settings
    code = run_settings["code"]
    if systems is not None:
        # Rows of systems that are not measured are copied from the stored file.
        stored = stored_sweeps()
        code = f"{stored['code']}; {', '.join(systems)}: {code}"
        rows = [row for row in stored["rows"] if row["system"] not in systems] + rows
        rows.sort(key=lambda row: (row["n_users"], row["n_items"], row["row_length"]))
    n_candidates = run_settings["candidates"]["n"]
    document = {
        "source": "GENERATED DATA (generate_implicit, movielens-1m preset), drawn anew for each seed",
        "command": "fastfedrec sweep --advice",
        "code": code,
        "machine": run_settings["machine"],
        "n_threads": max(1, run_settings["n_threads"] // run_settings["n_jobs"]),
        "delta": DELTA,
        "privacy_unit": "user",
        "neighboring": "replace",
        "protocol": f"leave one out, {n_candidates} unseen items, at most {run_settings['n_tested']} users tested",
        "rows": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "advice.json", format_records(document))
    return document, tuple(failures)


_Step = tuple[Setting, Recipe | None, float | None, bool]


def _plan(n_users: int, n_items: int) -> list[_Step]:
    """Return the fits on one data set: each system at each epsilon that it can reach and that is small enough."""
    # The references have no privacy, so they have neither a recipe nor an epsilon.
    plan: list[_Step] = [(Setting(name, {}), None, None, name == "Popularity") for name in REFERENCES]
    for recipe, epsilon in itertools.product(RECIPES, EPSILONS if n_users == USERS[0] else FEW_EPSILONS):
        calibration = calibrated(recipe, epsilon, DELTA, n_users, n_items)
        if calibration is None:
            continue
        parameters, planned = calibration
        if recipe.is_small(n_users, n_items, planned):
            plan.append((Setting(recipe.system, parameters), recipe, epsilon, planned.is_popularity))
    return plan
