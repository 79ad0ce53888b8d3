"""Ribero, Henderson, Williamson, Vikalo (private prototypes): figures on generated counts, eICU and MovieLens.

The paper draws its figures and prints no number.  So what stands here for the paper is its own algorithm, as
`PrivatePrototypes(variant="published")` runs it: nominal, not a guarantee.
"""

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.clustering import assign_rows
from fastfedrec.core.check import check_choice, check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import PoissonCounts, generate_counts, zip_regions
from fastfedrec.evaluation import RandomHoldout, evaluate_ratings, mean_percentile_rank
from fastfedrec.studies.reproduce._trials import each
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
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, checksum, kept
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
from fastfedrec.systems.private_prototypes.server import make_prototypes

__all__ = ["Cell", "PrototypeFigure", "entity_prototypes", "prototype_figure"]

SHAPE, QUICK_SHAPE = (100_000, 500), (5_000, 100)
OBJECTIVE_SHAPE = (10_000, 100)  # of Figures 3 and 4: one entity; the paper's own sizes are lost
TO_COUNTS, TO_MEANS = "RMSE, training matrix", "RMSE, Poisson means"
TRAIN, TEST, RANK = "RMSE, train", "RMSE, test", "rank, test"
OBJECTIVE = "squared distance"
_FULL_EICU = 100_000  # rows that the paper had at least
_LEGEND = (
    "Means over seeds.  Guarantee: the epsilon and delta of adding or removing a user.  As published: the paper's own\n"
    "algorithm at that epsilon, which is nominal, not a guarantee; the paper draws its figures and prints no number.\n"
    "MF sees all data; individual MF each entity's own; both, exact means and random rows have no privacy.\n"
    "rank: mean percentile rank, 0 best, 0.5 random.  Poisson means: what a perfect model would predict.\n"
    "Squared distance: the mean, of a row to the nearest prototype."
)


@dataclass(frozen=True)
class Cell:
    """One point of the horizontal axis.

    Parameters
    ----------
    x : float
        Prototypes in all, factors, or epsilon.
    errors : dict of str to dict of str to list of float
        By metric and model, a number of each seed.
    guarantees : dict of str to str
        Of each model, for a user.
    """

    x: float
    errors: dict[str, dict[str, list[float]]]
    guarantees: dict[str, str]

    def mean(self, metric: str, name: str) -> float:
        """The mean of a model's metric.

        Parameters
        ----------
        metric, name : str
            Keys of `errors`.

        Returns
        -------
        float
            Over seeds.
        """
        return statistics.fmean(self.errors[metric][name])


@dataclass(frozen=True)
class PrototypeFigure(SideBySide):
    """A figure, with all models side by side.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    figure : str
        One of `FIGURES`.
    cells : tuple of Cell
        Along the horizontal axis.
    """

    figure: str
    cells: tuple[Cell, ...]

    legend = _LEGEND

    @property
    def title(self) -> str:
        """System, and number of the figure."""
        name = f"Figure {self.figure}: " if self.figure.isdigit() else ""
        return f"Private prototypes, {name}{TITLES[self.figure]}"

    def verdict(self) -> str:
        """Say which model is best by each metric, and whether the guaranteed ones beat what they should.

        Returns
        -------
        str
            A sentence for each metric and claim.
        """
        lines = []
        for metric, by_model in self.cells[0].errors.items():
            best = [min(by_model, key=functools.partial(cell.mean, metric)) for cell in self.cells]
            lines.append(f"{metric}: lowest are {', '.join(dict.fromkeys(best))}.")
        claims = [(TEST, ONE, INDIVIDUAL), (TEST, MANY, ONE), (TO_COUNTS, ROWS, MEANS), (TO_MEANS, ROWS, MEANS)]
        claims += [(RANK, ONE, INDIVIDUAL), (OBJECTIVE, MANY, ONE), (OBJECTIVE, MANY, AS_PUBLISHED)]
        for metric, name, other in claims:
            if name in self.cells[0].errors.get(metric, ()):
                n_below = sum(cell.mean(metric, name) < cell.mean(metric, other) for cell in self.cells)
                lines.append(f"{metric}: {name} is below {other} in {n_below} of {len(self.cells)} cells.")
        return "\n".join(lines)

    def _draw(self, figure: Any) -> None:
        metrics = self.cells[0].errors
        figure.set_size_inches(5 * len(metrics), 4)
        for panel, (metric, by_model) in zip(
            figure.subplots(1, len(metrics), squeeze=False)[0], metrics.items(), strict=True
        ):
            for name in by_model:
                panel.plot([c.x for c in self.cells], [c.mean(metric, name) for c in self.cells], ".-", label=name)
            panel.set(xlabel=AXES[self.figure], ylabel=metric)
        panel.legend(fontsize="small")

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        metrics = list(self.cells[0].errors)
        rows = [
            [f"{cell.x:g}", name, cell.guarantees[name], *(f"{cell.mean(metric, name):.4f}" for metric in metrics)]
            for cell in self.cells
            for name in cell.errors[metrics[0]]
        ]
        return [AXES[self.figure], "model", "guarantee", *metrics], rows


class _Split(NamedTuple):
    """One seed's data."""

    train: Interactions
    test: Interactions | None  # None for generated counts
    entities: np.ndarray
    users: np.ndarray | None  # whose each row is, where a user has several
    counts: PoissonCounts | None


def prototype_figure(
    figure: str,
    data: Interactions | None = None,
    *,
    shape: tuple[int, int] | None = None,
    points: Sequence[float] | None = None,
    n_seeds: int = 1,
    **options: Any,
) -> PrototypeFigure:
    """Compute one of the paper's figures, or the law with structure that it lacks.

    Parameters
    ----------
    figure : {"1", "3", "4", "5", "6", "7", "structured", "2", "8", "9", "entity-size"}
        "1", "6" and "7": generated counts over prototypes and factors; "structured": the same from Gamma factors; "5":
        over the server's epochs and the number of entities.  "3" and "4": the objective of k-means over epsilon and the
        number of prototypes.  "2": eICU.  "8" and "9": MovieLens 1M over epsilon and factors.  "entity-size": one
        entity of users drawn with replacement from the data's, for whom an error is measured.
    data : Interactions or None
        As from `datasets.load_eicu` ("2") or `datasets.load_movielens` ("8", "9", "entity-size"); else None.
    shape : tuple of int or None
        Users and items to generate; None: the paper's 100,000 and 500, 10,000 and 100 for "3" and "4", or 5,000 and 100
        where `quick`.
    points : sequence of float or None
        Of the horizontal axis; None: the paper's, or for epsilon 1, 5 and 10.
    n_seeds : int
        Splits, or data sets.
    **options : object
        As for `RunOptions`; no error depends on `n_threads`.  `quick`: less data, and the first of the points.

    Returns
    -------
    PrototypeFigure
        With all models at each point.

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
    whole = OBJECTIVE_SHAPE if figure in OBJECTIVES else SHAPE
    n_users, n_items = shape or (QUICK_SHAPE if how.quick else whole) if data is None else data.shape
    xs = (POINTS[figure][:1] if how.quick else POINTS[figure]) if points is None else tuple(points)
    if not xs:
        raise ValueError("points must hold at least one value, got none; None takes the paper's")
    given = [] if data is None else [data]
    settings = {"version": __version__, "n_seeds": n_seeds, "shape": [n_users, n_items], "checksum": checksum(given)}
    splits = functools.cache(functools.partial(_split, figure, data, (n_users, n_items)))
    cells = []
    for x in each(xs, how, f"Figure {figure}", "point"):
        lines = lines_at(x, figure)
        own = settings | {"models": {name: repr(line) for name, line in lines.items()}}
        n_drawn = int(x) if figure == "entity-size" else None
        run = functools.partial(_run, x, lines, splits, n_seeds, n_drawn, how.n_threads)
        cells.append(Cell(**kept(how.folder, f"{figure}-{x:g}", own, run)))
    kind = "Generated data" if generated else "The data given"
    if figure == "2" and n_users < _FULL_EICU:
        kind = "The demo or another part of eICU, not the paper's full data"
    source = f"{kind}: {n_users:,} users x {n_items:,} items"
    return PrototypeFigure(f"{source}, {n_seeds} seed{'s' if n_seeds > 1 else ''}", own, figure, tuple(cells))


def _split(figure: str, data: Interactions | None, shape: tuple[int, int], seed: int) -> _Split:
    key = Key.from_seed(seed)
    if data is None:
        law = "gamma" if figure == "structured" else "normal"
        counts = generate_counts(*shape, key=key, law=law, n_entities=N_ENTITIES)
        return _Split(_all_cells(counts.interactions), None, np.arange(shape[0]) % N_ENTITIES, None, counts)
    train, test = next(RandomHoldout(n=5, user_share=0.2).split(data, key=key))
    if figure == "2":
        return _Split(train, test, data.user_features["hospital"], data.user_features["patient"], None)
    return _Split(train, test, zip_regions(data) if figure in ("8", "9") else np.zeros(data.n_users), None, None)


def _all_cells(data: Interactions) -> Interactions:
    """The same with zeros stored: a count of 0 is an observation."""
    n_users, n_items = data.shape
    return data._replace(
        indptr=np.arange(n_users + 1, dtype=np.int64) * n_items,
        indices=np.tile(np.arange(n_items, dtype=np.int32), n_users),
        values=data.to_scipy().toarray().astype(np.float32).reshape(-1),
    )


def _draw_users(data: Interactions, n_users: int, seed: int) -> Interactions:
    """So many users, each with the entries of a random one."""
    drawn = Key.from_seed(seed).uniform("reproduce.ribero2020.users", size=n_users) * data.n_users
    ids = np.arange(n_users)
    return data._take_users(drawn.astype(np.int64))._replace(
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
        drawn = None if n_drawn is None else _draw_users(split.train, n_drawn, seed)
        for name, line in lines.items():
            for metric, value in _errors(line, split, drawn, Key.from_seed(seed), n_threads).items():
                errors.setdefault(metric, {}).setdefault(name, []).append(value)
    return {"x": x, "errors": errors, "guarantees": {name: line.guarantee for name, line in lines.items()}}


def _errors(line: Line, split: _Split, drawn: Interactions | None, key: Key, n_threads: int) -> dict[str, float]:
    """What one seed gives of one model."""
    model, n_entities = line.model, line.n_entities
    if drawn is not None:
        served = model.fit(drawn, key=key, n_threads=n_threads).serve(split.train, n_threads=n_threads)
        return {TEST: _measure(served, split)[TEST]}
    if line.is_clustering:
        rows = split.train.values_or_ones().reshape(split.train.shape)
        prototypes = entity_prototypes(model, split.train, key, n_threads=n_threads)
        return {OBJECTIVE: float(assign_rows(rows, prototypes, n_threads=n_threads)[1].mean())}
    if n_entities is not None:
        part = np.flatnonzero(split.entities < n_entities)
        model.fit(split.train.select_users(part), entities=split.entities[part], key=key, n_threads=n_threads)
        return _measure(model.serve(split.train, n_threads=n_threads), split)
    whose = {"users": split.users} if isinstance(model, PrivatePrototypes) and split.users is not None else {}
    return _measure(model.fit(split.train, entities=split.entities, key=key, n_threads=n_threads, **whose), split)


def entity_prototypes(
    model: PrivatePrototypes, data: Interactions, key: Key, *, n_threads: int = 0
) -> NDArray[np.float64]:
    """What the server makes of the one message of one entity, without any factorisation.

    Parameters
    ----------
    model : PrivatePrototypes
        With a number of prototypes.
    data : Interactions
        The entity's.
    key : Key
        Of a simulation: nothing is booked.
    n_threads : int
        0 for all.

    Returns
    -------
    ndarray of shape (n_prototypes, n_items), float64
        Within the range of values.
    """
    state = model.initial_state(("all",), (int(model.n_prototypes),), data.n_items, key)
    sent = model.local_round(state, data, key, 0, sender="all", n_threads=n_threads)
    return make_prototypes(model._decode(model.apply(state, sent)))[0]


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
    to_counts = to_means = 0.0
    for start in range(0, n_users, 10_000):
        rows = slice(start, start + 10_000)
        with one_blas_thread():
            predicted = model.user_factors_[rows] @ item_factors.T
        to_counts += float(((predicted - observed[rows]) ** 2).sum())
        to_means += float(((predicted - split.counts.rates(rows)) ** 2).sum())
    n_cells = n_users * n_items
    return {TO_COUNTS: (to_counts / n_cells) ** 0.5, TO_MEANS: (to_means / n_cells) ** 0.5}
