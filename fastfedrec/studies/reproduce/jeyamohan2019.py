"""Laplace-RR-SVD (Jeyamohan, Chen, Aslam 2019): Figures 2 and 3, and a comparison at equal exact epsilon.

The paper draws its figures without printing numbers, and does not describe the training of its SVD.  The published
variant here is therefore its mechanism with plain stochastic gradient descent: `LaplaceRRSVD(variant="published")`.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from fastfedrec.core.check import check_choice
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.text import format_epsilon
from fastfedrec.core.version import __version__
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import Folds, check_folds, describe_folds, rating_errors
from fastfedrec.systems.rating_model import STARS
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean
from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD

__all__ = ["rating_figure"]

FIGURES = ("2", "3", "equal-epsilon")
EPSILONS = tuple(round(0.1 * j, 1) for j in range(1, 31))  # epsilons of each part
QUICK_EPSILONS = (0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
EXACT_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
AS_PUBLISHED = "as published"
LAPLACE = "Laplace-SVD"
ITEM_MEAN, GLOBAL_MEAN = "private item mean", "private global mean"
WITHOUT = "without privacy"
_TITLES = {
    "2": "RMSE as epsilon 1 and epsilon 2 grow together",
    "3": "RMSE over epsilon 1 and epsilon 2",
    "equal-epsilon": "RMSE at equal exact epsilon of one rating",
}


def _mean(cell: Record, name: str) -> float:
    """Return the mean RMSE of a model over splits."""
    return statistics.fmean(cell.errors[name])


def _count_cells(report: Report) -> str:
    """Count the cells with the guaranteed model below the private item mean, and those with factors."""
    cells_below_item_mean = [cell for cell in report.cells if _mean(cell, "optimal") < _mean(cell, ITEM_MEAN)]
    cells_with_factors = [cell for cell in report.cells if any(cell.n_epochs["optimal"])]
    # None is no guarantee, which counts as an infinite epsilon.
    exact_epsilons = [cell.exact_epsilon["optimal"] or math.inf for cell in cells_with_factors]
    threshold = f", from an exact epsilon of {min(exact_epsilons):.3g} on" if exact_epsilons else ""
    return (
        f"optimal: below the private item mean in {len(cells_below_item_mean)} of {len(report.cells)} cells.\n"
        f"Its factors were used in {len(cells_with_factors)} of {len(report.cells)} cells{threshold}; the remaining "
        "cells use biases alone."
    )


def _draw(report: Report, figure: Any) -> None:
    """Draw lines over epsilon, or for Figure 3 a map of each model."""
    cells, names = report.cells, list(report.cells[0].errors)
    if report.figure != "3":
        figure.set_size_inches(7, 5)
        panel = figure.subplots()
        for name in names:
            panel.plot([c.epsilon_1 for c in cells], [_mean(c, name) for c in cells], ".-", label=name)
        axis_label = "exact epsilon of one rating" if report.figure == "equal-epsilon" else "epsilon 1 = epsilon 2"
        panel.set(xlabel=axis_label, ylabel="RMSE", title=_TITLES[report.figure])
        panel.legend(fontsize="small")
        return
    first, second = (sorted({getattr(c, f"epsilon_{j}") for c in cells}) for j in (1, 2))
    for panel, name in draw_panels(figure, names, 4, 4, margin=0):
        means = {(c.epsilon_1, c.epsilon_2): _mean(c, name) for c in cells}
        mesh = panel.pcolormesh(first, second, [[means[a, b] for a in first] for b in second], shading="nearest")
        panel.set(title=name, xlabel="epsilon 1", ylabel="epsilon 2")
        figure.colorbar(mesh, ax=panel)


def _format_mean(name: str, cell: Record) -> str:
    return f"{_mean(cell, name):.4f}"


def _columns(report: Report) -> list[Any]:
    parts = [("epsilon 1", "{.epsilon_1:g}"), ("epsilon 2", "{.epsilon_2:g}")]
    errors = [(name, functools.partial(_format_mean, name)) for name in report.cells[0].errors]
    exact = ("exact epsilon", lambda cell: format_epsilon(cell.exact_epsilon["optimal"] or math.inf))
    return [*(parts if report.figure != "equal-epsilon" else []), exact, *errors]


STUDY = Study(
    title=lambda report: (
        f"Laplace-RR-SVD, {f'Figure {report.figure}' if report.figure.isdigit() else 'equal exact epsilon'}: "
        f"{_TITLES[report.figure]}"
    ),
    legend=(
        "RMSE on the ratings' own scale, mean over splits (simulations).  exact epsilon: of one rating, as variant\n"
        "'optimal' sends it, in nats, from the channel that ran; a user's n ratings cost n times as much, and which "
        "items\nwere rated is not hidden.  As published there is none: delta is at least e^epsilon 2 / (1 + e^epsilon "
        "2)."
    ),
    columns=_columns,
    verdict=_count_cells,
    draw=_draw,
    records="cells",
)


def rating_figure(
    folds: Folds, figure: str, *, epsilons: Sequence[float] | None = None, grid: Sequence[float] = STARS, **options: Any
) -> Report:
    """Compute one of the paper's two figures, or the comparison at equal exact epsilon.

    Parameters
    ----------
    folds : sequence of tuple of Interactions
        Pairs (train, test) with ratings as values, from `evaluation.PublishedFolds` or `evaluation.KFold`.
    figure : {"2", "3", "equal-epsilon"}
        "2": both epsilons equal; the published mechanism, Laplace noise alone, the guaranteed variants, baselines.
        "3": every pair of epsilons.  "equal-epsilon": every guaranteed variant at the same exact epsilon of one rating.
    epsilons : sequence of float or None
        Epsilons of each part; for "equal-epsilon" exact ones.  None: the paper's .1, .2, ..., 3; or 0.5 to 6.
    grid : sequence of float
        Possible ratings.
    **options : object
        Options of `RunOptions`; no error depends on `n_threads`.  `quick`: one split, and seven epsilons instead of
        thirty.

    Returns
    -------
    Report
        The figure.  A cell of `cells` has `epsilon_1` and `epsilon_2`, and by model `exact_epsilon`, `errors` (RMSE of
        each split) and `n_epochs` (epochs of the factors in each split; 0 if the model uses biases alone).

    References
    ----------
    .. [1] Jeyamohan, Chen, Aslam, "Local differentially private matrix factorization for recommendations", 2019,
       Figures 2 and 3.
    """
    check_choice("figure", figure, FIGURES)
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.PublishedFolds or evaluation.KFold", quick=how.quick)
    if epsilons is None:
        parts = QUICK_EPSILONS if how.quick else EPSILONS
        epsilons = EXACT_EPSILONS if figure == "equal-epsilon" else parts
    if not len(epsilons):
        raise ValueError("epsilons must hold at least one value, got none; None takes the paper's")
    # Figure 3 has every pair of epsilons, and all remaining figures have equal ones.
    pairs = [(e, e) for e in epsilons] if figure != "3" else list(itertools.product(epsilons, epsilons))
    # Integer and float grids must have equal settings.
    grid = tuple(map(float, grid))
    settings = {
        "version": __version__,
        "n_splits": len(folds),
        "n_ratings": [train.n_interactions for train, _ in folds],
        "checksum": checksum(itertools.chain.from_iterable(folds)),
        "grid": list(grid),
    }
    cases = {}
    for pair in pairs:
        models = _models_at(pair, figure, grid)
        cell_settings = settings | {"models": {name: repr(model) for name, model in models.items()}}
        measure = functools.partial(_run, pair, models, folds, how.n_threads)
        cases[pair] = Case(f"{figure}-{pair[0]:g}-{pair[1]:g}", cell_settings, measure)
    cells = tuple(Record(**cell) for cell in measure_cases(cases, how, f"Figure {figure}", "cell").values())
    return Report(STUDY, describe_folds(folds), cell_settings, figure=figure, cells=cells)


def _models_at(pair: tuple[float, float], figure: str, grid: tuple[float, ...]) -> dict[str, Any]:
    first, second = pair
    # All variants except "serial" cost the sum of both epsilons, so each part has half of the exact epsilon.
    if figure == "equal-epsilon":
        serial = _serial_epsilon(first, grid)
        return {
            **{name: LaplaceRRSVD(name, first / 2, first / 2, grid=grid) for name in ("optimal", "mixture", "laplace")},
            "serial": LaplaceRRSVD("serial", serial, serial, grid=grid),
            ITEM_MEAN: ItemMean(first, grid=grid),
            GLOBAL_MEAN: GlobalMean(first, grid=grid),
            WITHOUT: LaplaceRRSVD(None, grid=grid),
        }
    models = {
        AS_PUBLISHED: LaplaceRRSVD("published", first, second, grid=grid),
        "optimal": LaplaceRRSVD("optimal", first, second, grid=grid),
        "mixture": LaplaceRRSVD("mixture", first, second, grid=grid),
        ITEM_MEAN: ItemMean(first + second, grid=grid),
    }
    if figure == "2":
        # Figure 3 has no map of these models.
        models |= {
            LAPLACE: LaplaceRRSVD("laplace", first / 2, first / 2, grid=grid),
            GLOBAL_MEAN: GlobalMean(first + second, grid=grid),
            WITHOUT: LaplaceRRSVD(None, grid=grid),
        }
    return models


def _run(pair: tuple[float, float], models: dict[str, Any], folds: Folds, n_threads: int) -> dict[str, Any]:
    errors: dict[str, list[float]] = {name: [] for name in models}
    n_epochs: dict[str, list[int]] = {}
    exact: dict[str, float | None] = {}
    for name, model in models.items():
        # The model remains fitted on a fold until the next one, so its epochs are read in the loop.
        for fold_errors in rating_errors(model, folds, n_threads):
            errors[name].append(fold_errors["rmse"])
            if isinstance(model, LaplaceRRSVD):
                n_epochs.setdefault(name, []).append(model.n_epochs_)
                exact[name] = model.channel.epsilon if model.channel is not None else None
    return {
        "epsilon_1": pair[0],
        "epsilon_2": pair[1],
        "exact_epsilon": exact,
        "errors": errors,
        "n_epochs": n_epochs,
    }


def _serial_epsilon(exact: float, grid: Sequence[float] = STARS) -> float:
    """Return the largest epsilon of both parts of "serial" with a cost of at most `exact`, within a share of 3e-6."""
    # Bisection: the cost grows with the epsilon of both parts, and `low` always has a cost of at most `exact`.
    low, high = exact, exact + 8.0
    while high - low > 3e-6 * low:
        middle = (low + high) / 2
        channel = LaplaceRRSVD("serial", middle, middle, grid=grid).channel
        if channel is not None and channel.epsilon <= exact:
            low = middle
        else:
            high = middle
    return low


refuse_old_names(__name__, RatingFigure="studies.report.Report", Cell="studies.report.Record")
