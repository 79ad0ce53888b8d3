"""The command ``fastfedrec reproduce``: a paper's figure, side by side with ours."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from fastfedrec._check import check_integer
from fastfedrec._demo import missing_extra
from fastfedrec.datasets import load_eicu, load_movielens, load_movielens_folds
from fastfedrec.datasets._files import Files
from fastfedrec.evaluation import k_fold
from fastfedrec.randomness import Key
from fastfedrec.reproduce import ribero2020
from fastfedrec.reproduce.jeyamohan2019 import FIGURES, RatingFigure, rating_figure
from fastfedrec.reproduce.minto2021 import Figure4, figure_4
from fastfedrec.systems._rating_model import HALF_STARS, STARS

_FIGURES = {"fmf-ldp": ("4",), "laplace-rr-svd": FIGURES, "private-prototypes": ribero2020.FIGURES}


def add_reproduce(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `cli`."""
    command = add(
        "reproduce", run_reproduce, "A paper's figure side by side with ours; finished parts are kept and not repeated."
    )
    command.add_argument(
        "system",
        metavar="SYSTEM",
        choices=list(_FIGURES),
        help="fmf-ldp (Minto et al. 2021), laplace-rr-svd (Jeyamohan et al. 2019), private-prototypes (Ribero et al. "
        "2020)",
    )
    command.add_argument(
        "--figure",
        metavar="N",
        choices=list(dict.fromkeys(figure for figures in _FIGURES.values() for figure in figures)),
        required=True,
        help="fmf-ldp: 4 (HR@10 over users and items); laplace-rr-svd: 2 or 3 (RMSE over epsilons), or equal-epsilon; "
        "private-prototypes: 1 or 7 (generated counts over prototypes or factors), structured, 2 (eICU), 8 (MovieLens) "
        "or entity-size",
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="MovieLens as downloaded: 20M for fmf-ldp (without it the data are generated), 100K for laplace-rr-svd, "
        "1M for figure 8 of private-prototypes, whose figure 2 takes a folder of eICU",
    )
    command.add_argument("--quick", action="store_true", help="one seed or split, fewer users or epsilons")
    command.add_argument(
        "--out", type=Path, default=Path("reproduce-output"), metavar="DIR", help="folder for all that is written"
    )
    command.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="runs with seeds 0 to N - 1 (fmf-ldp: 3, with --quick 1; private-prototypes: 1)",
    )
    command.add_argument("--threads", type=int, default=0, metavar="N", help="0 (all); changes no hit ratio")


def run_reproduce(arguments: argparse.Namespace) -> None:
    """Compute, show, and write the same as JSON, as a page and as a plot."""
    out = arguments.out
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} must be a folder, and a file is there")
    no_bar, no_plot = missing_extra("tqdm", "no progress bar"), missing_extra("matplotlib", "no plot")
    for problem in filter(None, (no_bar, no_plot)):
        print(f"fastfedrec: {problem}", file=sys.stderr)
    if arguments.figure not in _FIGURES[arguments.system]:
        raise ValueError(f"--figure of {arguments.system} must be one of {', '.join(_FIGURES[arguments.system])}")
    compute = {"fmf-ldp": _compute_minto, "laplace-rr-svd": _compute_jeyamohan, "private-prototypes": _compute_ribero}
    figure = compute[arguments.system](arguments, no_bar is None)
    name = f"figure-{arguments.figure}" if arguments.figure.isdigit() else arguments.figure
    document = json.dumps(figure.to_dict(), indent=2, allow_nan=False)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(document)
    (out / f"{name}.md").write_text(figure.to_markdown(plot=None if no_plot else f"{name}.png"))
    if no_plot is None:
        figure.plot(out / f"{name}.png")
    if arguments.json:
        print(document)
    else:
        print(f"{figure.summary()}\n\nWritten to {out}: {name}.json, .md{'' if no_plot else ', .png'}")


def _compute_minto(arguments: argparse.Namespace, show_progress: bool) -> Figure4:
    n_seeds = (
        (1 if arguments.quick else 3) if arguments.seeds is None else check_integer("--seeds", arguments.seeds, low=1)
    )
    return figure_4(
        None if arguments.data is None else load_movielens(arguments.data),
        n_seeds=n_seeds,
        quick=arguments.quick,
        folder=arguments.out / "cells",
        n_threads=arguments.threads,
        show_progress=show_progress,
    )


def _compute_jeyamohan(arguments: argparse.Namespace, show_progress: bool) -> RatingFigure:
    if arguments.data is None:
        raise ValueError("--data is required for laplace-rr-svd: MovieLens as downloaded; ratings are not generated")
    if arguments.seeds is not None:
        raise ValueError("--seeds is for fmf-ldp; laplace-rr-svd runs over five splits, with --quick over one")
    if any(member.name == "u1.base" for member in Files(arguments.data, "MovieLens zip").members):
        folds = load_movielens_folds(arguments.data)
    else:
        folds = list(k_fold(load_movielens(arguments.data), n_folds=5, key=Key.from_seed(0)))
    has_halves = bool((folds[0][0].values_or_ones() % 1).any())
    return rating_figure(
        folds,
        arguments.figure,
        quick=arguments.quick,
        grid=HALF_STARS if has_halves else STARS,
        folder=arguments.out / "cells",
        n_threads=arguments.threads,
        show_progress=show_progress,
    )


def _compute_ribero(arguments: argparse.Namespace, show_progress: bool) -> ribero2020.PrototypeFigure:
    data = None
    if arguments.figure in ("2", "8", "entity-size"):
        if arguments.data is None:
            raise ValueError(f"--data is required for figure {arguments.figure}: eICU (2) or MovieLens 1M")
        data = load_eicu(arguments.data, rows="stays") if arguments.figure == "2" else load_movielens(arguments.data)
    elif arguments.data is not None:
        raise ValueError(f"--data is not for figure {arguments.figure}, whose counts are generated")
    n_seeds = 1 if arguments.seeds is None else check_integer("--seeds", arguments.seeds, low=1)
    return ribero2020.prototype_figure(
        arguments.figure,
        data,
        n_seeds=n_seeds,
        quick=arguments.quick,
        folder=arguments.out / "cells",
        n_threads=arguments.threads,
        show_progress=show_progress,
    )
