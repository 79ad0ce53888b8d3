"""The command ``fastfedrec reproduce``: a paper's figure, side by side with ours."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from fastfedrec._check import check_integer
from fastfedrec._demo import missing_extra
from fastfedrec.datasets import load_movielens, load_movielens_folds
from fastfedrec.reproduce.jeyamohan2019 import FIGURES, rating_figure
from fastfedrec.reproduce.minto2021 import figure_4

_FIGURES = {"fmf-ldp": ("4",), "laplace-rr-svd": FIGURES}


def add_reproduce(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `cli`."""
    command = add(
        "reproduce", run_reproduce, "A paper's figure side by side with ours; finished parts are kept and not repeated."
    )
    command.add_argument(
        "system",
        metavar="SYSTEM",
        choices=list(_FIGURES),
        help="fmf-ldp (Minto et al. 2021) or laplace-rr-svd (Jeyamohan et al. 2019)",
    )
    command.add_argument(
        "--figure",
        metavar="N",
        choices=[figure for figures in _FIGURES.values() for figure in figures],
        required=True,
        help="fmf-ldp: 4 (HR@10 over users and items); laplace-rr-svd: 2 or 3 (RMSE over epsilons), or equal-epsilon",
    )
    command.add_argument(
        "--data", type=Path, metavar="PATH", help="MovieLens 20M as downloaded; without it the data are generated"
    )
    command.add_argument("--quick", action="store_true", help="one seed, and no more than 10,000 users")
    command.add_argument(
        "--out", type=Path, default=Path("reproduce-output"), metavar="DIR", help="folder for all that is written"
    )
    command.add_argument("--seeds", type=int, metavar="N", help="runs with seeds 0 to N - 1 (3; with --quick 1)")
    command.add_argument("--threads", type=int, default=0, metavar="N", help="0 (all); changes no hit ratio")


def run_reproduce(arguments: argparse.Namespace) -> None:
    """Compute, show, and write the same as JSON, as a page and as a plot."""
    out = arguments.out
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} must be a folder, and a file is there")
    n_seeds = (
        (1 if arguments.quick else 3) if arguments.seeds is None else check_integer("--seeds", arguments.seeds, low=1)
    )
    no_bar, no_plot = missing_extra("tqdm", "no progress bar"), missing_extra("matplotlib", "no plot")
    for problem in filter(None, (no_bar, no_plot)):
        print(f"fastfedrec: {problem}", file=sys.stderr)
    figure = figure_4(
        None if arguments.data is None else load_movielens(arguments.data),
        n_seeds=n_seeds,
        quick=arguments.quick,
        folder=out / "cells",
        n_threads=arguments.threads,
        show_progress=no_bar is None,
    )
    document = json.dumps(figure.to_dict(), indent=2, allow_nan=False)
    (out / "figure-4.json").write_text(document)
    (out / "figure-4.md").write_text(figure.to_markdown(plot=None if no_plot else "figure-4.png"))
    if no_plot is None:
        figure.plot(out / "figure-4.png")
    if arguments.json:
        print(document)
    else:
        print(f"{figure.summary()}\n\nWritten to {out}: figure-4.json, .md{'' if no_plot else ', .png'}")
