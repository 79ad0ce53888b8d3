"""Laplace-RR-SVD (Jeyamohan, Chen, Aslam 2019): Figures 2 and 3, and a comparison at equal exact epsilon.

The paper draws its figures without printing numbers, and does not describe the training of its SVD.  The published
variant here is therefore its mechanism with plain stochastic gradient descent: `LaplaceRRSVD(variant="published")`.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfedrec.core.check import check_choice
from fastfedrec.core.text import format_epsilon
from fastfedrec.core.version import __version__
from fastfedrec.studies.reproduce._trials import Folds, check_folds, describe_folds, rating_errors, track_progress
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, checksum, run_or_load
from fastfedrec.systems.rating_model import STARS
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean
from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD

__all__ = ["Cell", "RatingFigure", "rating_figure"]

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
_LEGEND = (
    "RMSE on the ratings' own scale, mean over splits (simulations).  exact epsilon: of one rating, as variant\n"
    "'optimal' sends it, in nats, from the channel that ran; a user's n ratings cost n times as much, and which items\n"
    "were rated is not hidden.  As published there is none: delta is at least e^epsilon 2 / (1 + e^epsilon 2)."
)


@dataclass(frozen=True)
class Cell:
    """One pair of parameters.

    Parameters
    ----------
    epsilon_1, epsilon_2 : float
        Epsilons of the Laplace noise and of the randomized response.
    exact_epsilon : dict of str to float or None
        Exact epsilon of one rating by model; None without a guarantee.
    errors : dict of str to list of float
        RMSE of each split by model.
    n_epochs : dict of str to list of int
        Numbers of epochs of the factors by model; 0 if the model uses biases alone.
    """

    epsilon_1: float
    epsilon_2: float
    exact_epsilon: dict[str, float | None]
    errors: dict[str, list[float]]
    n_epochs: dict[str, list[int]]

    def mean(self, name: str) -> float:
        """Return the mean RMSE of a model.

        Parameters
        ----------
        name : str
            Key of `errors`.

        Returns
        -------
        float
            Mean over splits.
        """
        return statistics.fmean(self.errors[name])


@dataclass(frozen=True)
class RatingFigure(SideBySide):
    """A figure that compares all models.

    Parameters
    ----------
    source, settings : object
        Parameters of `SideBySide`.
    figure : {"2", "3", "equal-epsilon"}
        Name of the figure.
    cells : tuple of Cell
        Cells by epsilon 1, then epsilon 2.
    """

    figure: str
    cells: tuple[Cell, ...]

    legend = _LEGEND

    @property
    def title(self) -> str:
        """Name of the system, and number of the figure."""
        name = f"Figure {self.figure}" if self.figure in ("2", "3") else "equal exact epsilon"
        return f"Laplace-RR-SVD, {name}: {_TITLES[self.figure]}"

    def verdict(self) -> str:
        """Count the cells with the guaranteed model below the private item mean, and those with factors.

        Returns
        -------
        str
            Two sentences.
        """
        cells_below_item_mean = [cell for cell in self.cells if cell.mean("optimal") < cell.mean(ITEM_MEAN)]
        cells_with_factors = [cell for cell in self.cells if any(cell.n_epochs["optimal"])]
        # None is no guarantee, which counts as an infinite epsilon.
        exact_epsilons = [cell.exact_epsilon["optimal"] or math.inf for cell in cells_with_factors]
        threshold = f", from an exact epsilon of {min(exact_epsilons):.3g} on" if exact_epsilons else ""
        return (
            f"optimal: below the private item mean in {len(cells_below_item_mean)} of {len(self.cells)} cells.\n"
            f"Its factors were used in {len(cells_with_factors)} of {len(self.cells)} cells{threshold}; the remaining "
            "cells use biases alone."
        )

    def _draw(self, figure: Any) -> None:
        """Draw lines over epsilon, or for Figure 3 a map of each model."""
        names = list(self.cells[0].errors)
        if self.figure != "3":
            figure.set_size_inches(7, 5)
            panel = figure.subplots()
            for name in names:
                panel.plot([c.epsilon_1 for c in self.cells], [c.mean(name) for c in self.cells], ".-", label=name)
            axis_label = "exact epsilon of one rating" if self.figure == "equal-epsilon" else "epsilon 1 = epsilon 2"
            panel.set(xlabel=axis_label, ylabel="RMSE", title=_TITLES[self.figure])
            panel.legend(fontsize="small")
        else:
            first, second = (sorted({getattr(c, f"epsilon_{j}") for c in self.cells}) for j in (1, 2))
            figure.set_size_inches(4 * len(names), 4)
            for panel, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
                means = {(c.epsilon_1, c.epsilon_2): c.mean(name) for c in self.cells}
                mesh = panel.pcolormesh(
                    first, second, [[means[a, b] for a in first] for b in second], shading="nearest"
                )
                panel.set(title=name, xlabel="epsilon 1", ylabel="epsilon 2")
                figure.colorbar(mesh, ax=panel)

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        names = list(self.cells[0].errors)
        epsilon_columns = (
            ["exact epsilon"] if self.figure == "equal-epsilon" else ["epsilon 1", "epsilon 2", "exact epsilon"]
        )
        rows = []
        for cell in self.cells:
            exact = format_epsilon(cell.exact_epsilon["optimal"] or math.inf)
            parts = [] if self.figure == "equal-epsilon" else [f"{cell.epsilon_1:g}", f"{cell.epsilon_2:g}"]
            rows.append([*parts, exact, *(f"{cell.mean(name):.4f}" for name in names)])
        return [*epsilon_columns, *names], rows


def rating_figure(
    folds: Folds, figure: str, *, epsilons: Sequence[float] | None = None, grid: Sequence[float] = STARS, **options: Any
) -> RatingFigure:
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
    RatingFigure
        The figure, with the RMSE of each model in each split.

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
    cells = []
    for pair in track_progress(pairs, how, f"Figure {figure}", "cell"):
        models = _models_at(pair, figure, grid)
        cell_settings = settings | {"models": {name: repr(model) for name, model in models.items()}}
        name = f"{figure}-{pair[0]:g}-{pair[1]:g}"
        cells.append(
            Cell(
                **run_or_load(
                    how.folder, name, cell_settings, functools.partial(_run, pair, models, folds, how.n_threads)
                )
            )
        )
    return RatingFigure(describe_folds(folds), cell_settings, figure, tuple(cells))


def _models_at(pair: tuple[float, float], figure: str, grid: tuple[float, ...]) -> dict[str, Any]:
    first, second = pair
    # All variants except "serial" cost the sum of both epsilons, so each part has half of the exact epsilon.
    if figure == "equal-epsilon":
        serial = serial_epsilon(first, grid)
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


def serial_epsilon(exact: float, grid: Sequence[float] = STARS) -> float:
    """Return the epsilon of both parts of the variant "serial" for a given exact epsilon of one rating.

    Parameters
    ----------
    exact : float
        Exact epsilon of one rating, in nats.
    grid : sequence of float
        Possible ratings.

    Returns
    -------
    float
        Largest epsilon of both parts with a cost of at most `exact`, with a relative error of 3e-6.
    """
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
