"""Private prototypes (Ribero, Henderson, Williamson, Vikalo 2020): figures on generated counts, eICU and MovieLens.

The paper draws its figures without printing numbers.  The published variant here is its own algorithm, run by
`PrivatePrototypes(variant="published")`: its epsilon is nominal, not a guarantee.
"""

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.clustering import assign_rows
from fastfedrec.core.check import check_choice, check_instance, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import PoissonCounts, generate_counts, zip_regions
from fastfedrec.evaluation import RandomHoldout, evaluate_ratings, mean_percentile_rank
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce.ribero2020.models import (
    AS_PUBLISHED,
    AXES,
    FIGURES,
    INDIVIDUAL,
    MANY,
    MEANS,
    N_ENTITIES,
    OBJECTIVES,
    ON_DATA,
    ONE,
    POINTS,
    ROWS,
    TITLES,
    Line,
    lines_at,
)
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
from fastfedrec.systems.private_prototypes.server import make_prototypes

__all__ = ["entity_prototypes", "prototype_figure"]

SHAPE, QUICK_SHAPE = (100_000, 500), (5_000, 100)
OBJECTIVE_SHAPE = (10_000, 100)  # users and items of the one entity of Figures 3 and 4; the paper's sizes are unknown
TO_COUNTS, TO_MEANS = "RMSE, training matrix", "RMSE, Poisson means"
TRAIN, TEST, RANK = "RMSE, train", "RMSE, test", "rank, test"
OBJECTIVE = "squared distance"
_FULL_EICU = 100_000  # lower bound on the number of rows in the paper's data


def _mean(cell: Record, metric: str, name: str) -> float:
    """Return the mean of a model's metric over seeds."""
    return statistics.fmean(cell.errors[metric][name])


def _compare_models(report: Report) -> str:
    """Name the best models by each metric, and compare the guaranteed ones with their baselines."""
    cells, lines = report.cells, []
    for metric, by_model in cells[0].errors.items():
        best = [min(by_model, key=functools.partial(_mean, cell, metric)) for cell in cells]
        lines.append(f"{metric}: lowest are {', '.join(dict.fromkeys(best))}.")
    # Each claim names a metric, a model, and the model that it should be below.
    claims = [(TEST, ONE, INDIVIDUAL), (TEST, MANY, ONE), (TO_COUNTS, ROWS, MEANS), (TO_MEANS, ROWS, MEANS)]
    claims += [(RANK, ONE, INDIVIDUAL), (OBJECTIVE, MANY, ONE), (OBJECTIVE, MANY, AS_PUBLISHED)]
    for metric, name, baseline in claims:
        if name in cells[0].errors.get(metric, ()):
            n_below = sum(_mean(cell, metric, name) < _mean(cell, metric, baseline) for cell in cells)
            lines.append(f"{metric}: {name} is below {baseline} in {n_below} of {len(cells)} cells.")
    return "\n".join(lines)


def _draw(report: Report, figure: Any) -> None:
    metrics = report.cells[0].errors
    for panel, metric in draw_panels(figure, metrics, 5, 4, margin=0):
        for name in metrics[metric]:
            means = [_mean(cell, metric, name) for cell in report.cells]
            panel.plot([cell.x for cell in report.cells], means, ".-", label=name)
        panel.set(xlabel=AXES[report.figure], ylabel=metric)
    panel.legend(fontsize="small")


def _columns(report: Report) -> list[Any]:
    def error(metric: str) -> Any:
        return metric, lambda row: f"{_mean(row[0], metric, row[1]):.4f}"

    columns = [
        (AXES[report.figure], "{0[0].x:g}"),
        ("model", "{[1]}"),
        ("guarantee", lambda row: row[0].guarantees[row[1]]),
    ]
    return [*columns, *map(error, report.cells[0].errors)]


STUDY = Study(
    title=lambda report: (
        f"Private prototypes, {f'Figure {report.figure}: ' if report.figure.isdigit() else ''}{TITLES[report.figure]}"
    ),
    legend=(
        "Means over seeds.  Guarantee: the epsilon and delta of adding or removing a user.  As published: the paper's "
        "own\nalgorithm at that epsilon, which is nominal, not a guarantee; the paper draws its figures and prints no "
        "number.\nMF sees all data; individual MF each entity's own; both, exact means and random rows have no privacy."
        "\nrank: mean percentile rank, 0 best, 0.5 random.  Poisson means: predictions of a perfect model.\n"
        "Squared distance: the mean, of a row to the nearest prototype."
    ),
    columns=_columns,
    verdict=_compare_models,
    draw=_draw,
    # Pairs of a cell and the name of a model.
    records=lambda report: [(cell, name) for cell in report.cells for name in cell.guarantees],
)


class _Split(NamedTuple):
    """One seed's data."""

    train: Interactions
    test: Interactions | None  # None for generated counts
    entities: np.ndarray
    users: np.ndarray | None  # user of each row, if users have several rows
    counts: PoissonCounts | None


def prototype_figure(
    figure: str,
    data: Interactions | None = None,
    *,
    shape: tuple[int, int] | None = None,
    points: Sequence[float] | None = None,
    n_seeds: int = 1,
    **options: Any,
) -> Report:
    """Compute one of the paper's figures, or figures that it lacks on structured counts and on entity sizes.

    Parameters
    ----------
    figure : {"1", "3", "4", "5", "6", "7", "structured", "2", "8", "9", "entity-size"}
        "1", "6" and "7": generated counts over prototypes and factors; "structured": the same from Gamma factors; "5":
        over the server's epochs and the number of entities.  "3" and "4": the objective of k-means over epsilon and the
        number of prototypes.  "2": eICU.  "8" and "9": MovieLens 1M over epsilon and factors.  "entity-size": one
        entity of users drawn with replacement from the data; errors are measured on the original users.
    data : Interactions or None
        Data of `datasets.load_eicu` ("2") or `datasets.load_movielens` ("8", "9", "entity-size"); None for all
        remaining figures.
    shape : tuple of int or None
        Numbers of users and items to generate; None: the paper's 100,000 and 500, 10,000 and 100 for "3" and "4", or
        5,000 and 100 if `quick`.
    points : sequence of float or None
        Points of the horizontal axis; None: the paper's, or for epsilon 1, 5 and 10.
    n_seeds : int
        Number of splits, or of generated data sets.
    **options : object
        Options of `RunOptions`; no error depends on `n_threads`.  `quick`: less data, and the first point alone.

    Returns
    -------
    Report
        The figure.  A cell of `cells` is a point `x` of the horizontal axis, with the `errors` of each seed by metric
        and model, and the `guarantees` of a user by model.

    References
    ----------
    .. [1] Ribero, Henderson, Williamson, Vikalo, "Federating recommendations using differentially private prototypes",
       2020.
    """
    check_choice("figure", figure, FIGURES)
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    generated = figure not in ON_DATA
    if generated != (data is None):
        raise ValueError(f"data must be {'None' if generated else 'given'} for figure {figure!r}, got {data!r}")
    if data is not None:
        check_instance("data", data, Interactions, "use datasets.load_movielens or datasets.load_eicu")
    paper_shape = OBJECTIVE_SHAPE if figure in OBJECTIVES else SHAPE
    n_users, n_items = shape or (QUICK_SHAPE if how.quick else paper_shape) if data is None else data.shape
    xs = (POINTS[figure][:1] if how.quick else POINTS[figure]) if points is None else tuple(points)
    if not xs:
        raise ValueError("points must hold at least one value, got none; None takes the paper's")
    data_sets = [] if data is None else [data]
    settings = {
        "version": __version__,
        "n_seeds": n_seeds,
        "shape": [n_users, n_items],
        "checksum": checksum(data_sets),
    }
    # Splits depend on the seed alone, so all points share them.
    splits = functools.cache(functools.partial(_split, figure, data, (n_users, n_items)))
    cases = {}
    for x in xs:
        lines = lines_at(x, figure)
        cell_settings = settings | {"models": {name: repr(line) for name, line in lines.items()}}
        # The horizontal axis of "entity-size" is the number of drawn users.
        n_drawn = int(x) if figure == "entity-size" else None
        measure = functools.partial(_run, x, lines, splits, n_seeds, n_drawn, how.n_threads)
        cases[x] = Case(f"{figure}-{x:g}", cell_settings, measure)
    cells = tuple(Record(**cell) for cell in measure_cases(cases, how, f"Figure {figure}", "point").values())
    kind = "Generated data" if generated else "The data given"
    if figure == "2" and n_users < _FULL_EICU:
        kind = "The demo or another part of eICU, not the paper's full data"
    source = f"{kind}: {n_users:,} users x {n_items:,} items"
    source += f", {n_seeds} seed{'s' if n_seeds > 1 else ''}"
    return Report(STUDY, source, cell_settings, figure=figure, cells=cells)


def _split(figure: str, data: Interactions | None, shape: tuple[int, int], seed: int) -> _Split:
    key = Key.from_seed(seed)
    if data is None:
        distribution = "gamma" if figure == "structured" else "normal"
        counts = generate_counts(*shape, key=key, distribution=distribution, n_entities=N_ENTITIES)
        # Users are assigned to entities cyclically.
        return _Split(_all_cells(counts.interactions), None, np.arange(shape[0]) % N_ENTITIES, None, counts)
    # Five entries of each of a fifth of the users are held out.
    train, test = next(RandomHoldout(n=5, user_share=0.2).split(data, key=key))
    if figure == "2":
        return _Split(train, test, data.user_features["hospital"], data.user_features["patient"], None)
    return _Split(train, test, zip_regions(data) if figure in ("8", "9") else np.zeros(data.n_users), None, None)


def _all_cells(data: Interactions) -> Interactions:
    """Return the data with stored zeros, because a count of 0 is an observation."""
    n_users, n_items = data.shape
    return data._replace(
        indptr=np.arange(n_users + 1, dtype=np.int64) * n_items,
        indices=np.tile(np.arange(n_items, dtype=np.int32), n_users),
        values=data.to_scipy().toarray().astype(np.float32).reshape(-1),
    )


def _draw_users(data: Interactions, n_users: int, seed: int) -> Interactions:
    """Draw users with replacement, each with the entries of a random user of the data."""
    # Uniform numbers in [0, 1) times the number of users are row indices, truncated.
    rows = Key.from_seed(seed).uniform("reproduce.ribero2020.users", size=n_users) * data.n_users
    ids = np.arange(n_users)
    return data._take_users(rows.astype(np.int64))._replace(
        timestamps=None, user_ids=ids, global_user_ids=ids.astype(np.uint64)
    )


def _run(
    x: float,
    lines: dict[str, Line],
    splits: Callable[[int], _Split],
    n_seeds: int,
    n_drawn: int | None,
    n_threads: int,
) -> dict[str, Any]:
    errors: dict[str, dict[str, list[float]]] = {}
    for seed in range(n_seeds):
        split = splits(seed)
        drawn_users = None if n_drawn is None else _draw_users(split.train, n_drawn, seed)
        for name, line in lines.items():
            for metric, value in _errors(line, split, drawn_users, Key.from_seed(seed), n_threads).items():
                errors.setdefault(metric, {}).setdefault(name, []).append(value)
    return {"x": x, "errors": errors, "guarantees": {name: line.guarantee for name, line in lines.items()}}


def _errors(line: Line, split: _Split, drawn_users: Interactions | None, key: Key, n_threads: int) -> dict[str, float]:
    """Return the errors of one model on one seed's data."""
    model, n_entities = line.model, line.n_entities
    if drawn_users is not None:
        served = model.fit(drawn_users, key=key, n_threads=n_threads).serve(split.train, n_threads=n_threads)
        return {TEST: _measure(served, split)[TEST]}
    if line.is_clustering:
        rows = split.train.values_or_ones().reshape(split.train.shape)
        prototypes = entity_prototypes(model, split.train, key, n_threads=n_threads)
        return {OBJECTIVE: float(assign_rows(rows, prototypes, n_threads=n_threads)[1].mean())}
    if n_entities is not None:
        # Only the first entities send messages, but errors are measured on all users.
        entity_rows = np.flatnonzero(split.entities < n_entities)
        model.fit(
            split.train.select_users(entity_rows), entities=split.entities[entity_rows], key=key, n_threads=n_threads
        )
        return _measure(model.serve(split.train, n_threads=n_threads), split)
    # eICU has several rows per patient; the baselines have no argument for that.
    options = {"users": split.users} if isinstance(model, PrivatePrototypes) and split.users is not None else {}
    return _measure(model.fit(split.train, entities=split.entities, key=key, n_threads=n_threads, **options), split)


def entity_prototypes(
    model: PrivatePrototypes, data: Interactions, key: Key, *, n_threads: int = 0
) -> NDArray[np.float64]:
    """Return the prototypes that the server computes from one entity's message, without factorisation.

    Parameters
    ----------
    model : PrivatePrototypes
        Model with a number of prototypes.
    data : Interactions
        Data of the entity.
    key : Key
        Key of a simulation; no cost is recorded.
    n_threads : int
        Number of threads; 0 for all.

    Returns
    -------
    ndarray of shape (n_prototypes, n_items), float64
        Prototypes, within the range of values.
    """
    # The steps of one round are called directly, because no factorisation follows.
    rounds = model._rounds(data.n_items)
    state = rounds.initial_state(("all",), (int(model.n_prototypes),), key)
    message = rounds.local_round(state, data, key, 0, sender="all", n_threads=n_threads)
    return make_prototypes(rounds.decode(rounds.apply(state, message)))[0]


def _measure(model: Any, split: _Split) -> dict[str, float]:
    if split.test is not None:
        return {
            TRAIN: evaluate_ratings(model, split.train, metrics=["rmse"])["rmse"],
            TEST: evaluate_ratings(model, split.test, metrics=["rmse"])["rmse"],
            RANK: mean_percentile_rank(model, split.test, seen=split.train),
        }
    assert split.counts is not None
    n_users, n_items = split.train.shape
    observed = split.train.values_or_ones().reshape(n_users, n_items)
    item_factors = model.item_factors_.reshape(-1, model.item_factors_.shape[-1])
    # Blocks of users bound the memory of the dense predictions.
    count_errors = mean_errors = 0.0
    for start in range(0, n_users, 10_000):
        rows = slice(start, start + 10_000)
        with one_blas_thread():
            predicted = model.user_factors_[rows] @ item_factors.T
        count_errors += float(((predicted - observed[rows]) ** 2).sum())
        mean_errors += float(((predicted - split.counts.rates(rows)) ** 2).sum())
    n_cells = n_users * n_items
    return {TO_COUNTS: (count_errors / n_cells) ** 0.5, TO_MEANS: (mean_errors / n_cells) ** 0.5}


refuse_old_names(__name__, PrototypeFigure="studies.report.Report", Cell="studies.report.Record")
