"""The command ``fastfedrec reproduce``: a paper's figure or table, side by side with this package's results."""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfedrec.cli.outputs import can_show_progress, has_extra
from fastfedrec.core import doctor
from fastfedrec.core.check import check_integer
from fastfedrec.core.files import check_folder, write_text
from fastfedrec.core.randomness import Key
from fastfedrec.core.record_files import format_records
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import load_eicu, load_frappe, load_movielens
from fastfedrec.datasets.files import Files
from fastfedrec.evaluation import KFold, PublishedFolds, Split, Splitter
from fastfedrec.studies.reproduce import chien2021, he2017, jiang2019, liang2021, utility, wu2021
from fastfedrec.studies.reproduce.gram_map import FIGURES as GRAM_FIGURES
from fastfedrec.studies.reproduce.gram_map import gain_map
from fastfedrec.studies.reproduce.he2017 import ncf_table
from fastfedrec.studies.reproduce.jeyamohan2019 import FIGURES, rating_figure
from fastfedrec.studies.reproduce.jiang2019 import sdcf_table
from fastfedrec.studies.reproduce.liang2021 import fedrec_table
from fastfedrec.studies.reproduce.minto2021.figure_4 import figure_4
from fastfedrec.studies.reproduce.minto2021.hit_ratios import FIGURES as HIT_RATIO_FIGURES
from fastfedrec.studies.reproduce.minto2021.hit_ratios import hit_ratio_figure
from fastfedrec.studies.reproduce.own_systems import MOVIELENS, SIZES, movielens_table, subspace_table
from fastfedrec.studies.reproduce.ribero2020 import figures as ribero2020
from fastfedrec.studies.reproduce.ribero2020.models import FIGURES as PROTOTYPE_FIGURES
from fastfedrec.studies.reproduce.ribero2020.models import ON_DATA
from fastfedrec.studies.reproduce.side_by_side import SideBySide
from fastfedrec.studies.reproduce.wang2021 import accuracy as wang2021
from fastfedrec.studies.reproduce.wang2021 import activity as wang2021_activity
from fastfedrec.studies.reproduce.wang2021 import attacks as wang2021_attacks
from fastfedrec.studies.reproduce.wang2021 import figures as wang2021_figures
from fastfedrec.studies.reproduce.wang2021 import gap as wang2021_gap
from fastfedrec.studies.reproduce.wang2021 import stage1 as wang2021_stage1
from fastfedrec.studies.reproduce.wang2021.accuracy import accuracy_table, epsilon_table
from fastfedrec.studies.reproduce.wang2021.figures import privrec_figure
from fastfedrec.studies.reproduce.wu2021 import fedgnn_table
from fastfedrec.systems.rating_model import HALF_STARS, STARS

__all__ = ["add_reproduce"]

# Figures and tables of each system; names without a number are not in the paper.
_FIGURES = {
    "dp-gram": GRAM_FIGURES, "fmf-ldp": tuple(sorted(("4", *HIT_RATIO_FIGURES))), "laplace-rr-svd": FIGURES,
    "private-prototypes": PROTOTYPE_FIGURES, "privrec": (wang2021_activity.FIGURE, *wang2021_figures.FIGURES),
}  # fmt: skip
_TABLES = {
    "dp-als": (chien2021.TABLE,),
    "dp-gram": (MOVIELENS,),
    "dp-subspace": (SIZES,),
    "fedrec": liang2021.TABLES,
    "sdcf": jiang2019.TABLES,
    "fedgnn": wu2021.TABLES,
    "ncf": he2017.TABLES,
    "private-recommender": (utility.TABLE,),
    "privrec": (*wang2021.TABLES, wang2021_stage1.TABLE, *wang2021_attacks.TABLES, wang2021_gap.TABLE),
}

# Systems and tables that accept --only.
_ONLY = (
    [("dp-als", chien2021.TABLE)]
    + [("ncf", table) for table in he2017.TABLES]
    + [("privrec", table) for table in ("2", "3", wang2021_gap.TABLE)]
)


def add_reproduce(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "reproduce",
        run_reproduce,
        "Compute a paper's figure or table and print it side by side with the published one; finished parts are saved "
        "and not repeated.",
        [
            "fastfedrec reproduce fmf-ldp --figure 4 --quick",
            "fastfedrec reproduce privrec --table 2 --data ml-1m.zip",
        ],
    )
    command.add_argument(
        "system",
        metavar="SYSTEM",
        choices=list(dict.fromkeys([*_FIGURES, *_TABLES])),
        help="fmf-ldp (Minto et al. 2021), laplace-rr-svd (Jeyamohan et al. 2019), fedrec (Liang et al. 2021), "
        "sdcf (Jiang et al. 2019), fedgnn (Wu et al. 2021), ncf (He et al. 2017), "
        "privrec (Wang et al. 2021), private-prototypes (Ribero et al. 2020), dp-als (Chien et al. 2021), "
        "or dp-gram, dp-subspace and private-recommender (of this package, without a paper)",
    )
    figure_or_table = command.add_mutually_exclusive_group(required=True)
    figure_or_table.add_argument(
        "--figure",
        metavar="N",
        choices=list(dict.fromkeys(figure for figures in _FIGURES.values() for figure in figures)),
        help="fmf-ldp: 2 (HR@10 over epsilon and reports), 3 (over rounds), 4 (over users and items) or 5 (HR@K on all "
        "data); laplace-rr-svd: 2 or 3 (RMSE over epsilons), or equal-epsilon; "
        "private-prototypes: 1, 5, 6 or 7 (generated counts), 3 or 4 (k-means objective), structured, 2 (eICU), 8 or 9 "
        "(MovieLens), or entity-size; privrec: 2 (users by visited items), 3 (Hits over rounds, epochs and cohort), 4 "
        "or 6 (with privacy; 5 or 7 on Frappe), 8 (inactive users) or 9 (time); dp-gram: map (gain over popularity, "
        "and the model's choice) or order (the last sampled item is held out), on generated data",
    )
    figure_or_table.add_argument(
        "--table",
        metavar="N",
        choices=[table for tables in _TABLES.values() for table in tables],
        help="dp-als: recall (of held-out users, with DPGram); dp-gram: movielens (HR@10 by four protocols); "
        "dp-subspace: sizes (HR@10 over items and users); "
        "fedrec: 2 (MAE and RMSE over rho), communication (latent vectors) or client-share (MAE and RMSE); "
        "sdcf: temperature (MAE and RMSE, with and without denoising) or parties (results of attacks); "
        "fedgnn: parts (the cost of each) or parties; "
        "ncf: accuracy (HR@10 of its networks and of a dot product); "
        "private-recommender: utility (HR@10 over epsilon on four kinds of data); "
        "privrec: 2 or 3 (accuracy on MovieLens 1M or Frappe), 4 or 5 (epsilon; needs no data), stage1 (the gain of "
        "its first stage), 6 (membership inference), attacks (the same on every system), or gap (attempts to reach "
        "tables 2 and 3)",
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="as downloaded: MovieLens 20M for fmf-ldp, 1M or 20M for dp-als, 1M for private-recommender (without it "
        "data are generated), 100K or 1M for all other systems; for privrec MovieLens 1M, or frappe.csv (table 3, "
        "figures 5 and 7; table 6 and figures 2 and 3 take either), or 100K (table stage1; without it sequences are "
        "generated; tables 6 and attacks generate data without it; gap: any); for private-prototypes MovieLens 1M, or "
        "a folder of eICU (figure 2)",
    )
    command.add_argument("--quick", action="store_true", help="one seed or split, fewer users or epsilons")
    command.add_argument(
        "--out", type=Path, default=Path("reproduce-output"), metavar="DIR", help="folder of all output"
    )
    command.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="runs with seeds 0 to N - 1 (dp-als, fmf-ldp, stage1, gap, movielens, sizes, utility: 3, with --quick 1; "
        "else 1)",
    )
    command.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="MODEL",
        help="dp-als, ncf, and tables 2, 3 and gap of privrec: compute only these models, named as in the table",
    )
    command.add_argument(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="number of threads, 0 for all processors; hit ratios do not depend on it",
    )


def run_reproduce(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Compute the figure or table, and write it as JSON, CSV, Markdown and a plot."""
    out = arguments.out
    check_folder("--out", out)
    is_table = arguments.table is not None
    number = arguments.table if is_table else arguments.figure
    # argparse checks the number against the choices of all systems; this checks it for the chosen one.
    if number not in (_TABLES if is_table else _FIGURES).get(arguments.system, ()):
        choices = [
            f"{option} of {arguments.system} must be one of {', '.join(names[arguments.system])}"
            for option, names in (("--figure", _FIGURES), ("--table", _TABLES))
            if arguments.system in names
        ]
        raise ValueError("; ".join(choices))
    if arguments.only is not None and (arguments.system, number if is_table else None) not in _ONLY:
        raise ValueError("--only is for dp-als and ncf, and for tables 2, 3 and gap of privrec; leave it out")
    # Without matplotlib there is no plot, and the command continues.
    show_progress, can_plot = (
        can_show_progress(arguments.quiet),
        has_extra("matplotlib", "no plot", quiet=arguments.quiet),
    )
    options = {"quick": arguments.quick, "folder": out / "cells", "n_threads": arguments.threads}
    figure = _COMPUTE[arguments.system](arguments, options | {"show_progress": show_progress})
    # Numbers get the prefix "figure-" or "table-"; names such as "recall" are unique.
    name = f"{'table' if is_table else 'figure'}-{number}" if number.isdigit() else number
    plot = f"{name}.png" if can_plot else None
    machine = doctor.describe_machine()
    document = figure.to_dict() | {"machine": machine}
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / f"{name}.json", format_records(document))
    write_text(out / f"{name}.csv", figure.to_csv())
    write_text(out / f"{name}.md", figure.to_markdown(plot=plot, machine=machine))
    if plot:
        figure.plot(out / plot)
    written = f"Written to {out}: {name}.json, .csv, .md{', .png' if plot else ''}"
    return document if arguments.json else f"{figure.summary()}\n\n{written}"


# ---- one function for each paper, which checks the options and loads the data ----------------------------------------


def _compute_gram(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    if arguments.table is not None:
        data = _movielens(arguments)
        if data is None:
            raise ValueError(f"--data is required for table {arguments.table} of dp-gram; pass MovieLens 1M")
        return movielens_table(data, n_seeds=_n_seeds(arguments, 3), **how)
    if arguments.data is not None:
        raise ValueError(f"figure {arguments.figure} of dp-gram uses generated data; leave --data out")
    if arguments.seeds is not None:
        raise ValueError(f"figure {arguments.figure} of dp-gram uses only seed 0; leave --seeds out")
    return gain_map(arguments.figure, **how)


def _compute_als(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    return chien2021.recall_table(_movielens(arguments), n_seeds=_n_seeds(arguments, 3), only=arguments.only, **how)


def _compute_subspace(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    if arguments.data is not None:
        raise ValueError(f"table {arguments.table} of dp-subspace uses generated data; leave --data out")
    return subspace_table(n_seeds=_n_seeds(arguments, 3), **how)


def _compute_private_recommender(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    return utility.utility_table(_movielens(arguments), n_seeds=_n_seeds(arguments, 3), **how)


def _compute_minto(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    compute = figure_4 if arguments.figure == "4" else functools.partial(hit_ratio_figure, arguments.figure)
    return compute(_movielens(arguments), n_seeds=_n_seeds(arguments, 3), **how)


def _movielens(arguments: argparse.Namespace) -> Interactions | None:
    return None if arguments.data is None else load_movielens(arguments.data)


def _n_seeds(arguments: argparse.Namespace, default: int) -> int:
    if arguments.seeds is not None:
        return check_integer("--seeds", arguments.seeds, low=1)
    return 1 if arguments.quick else default


def _check_ratings(arguments: argparse.Namespace) -> None:
    if arguments.data is None:
        raise ValueError(
            f"--data is required for {arguments.system}, since ratings are not generated; pass MovieLens as downloaded"
        )
    if arguments.seeds is not None:
        raise ValueError(f"{arguments.system} runs on five splits, with --quick on one; leave --seeds out")


def _published_folds(arguments: argparse.Namespace) -> tuple[Interactions, list[Split]]:
    _check_ratings(arguments)
    if any(member.name == "u1.base" for member in Files(arguments.data, "MovieLens zip").members):
        splitter: Splitter = PublishedFolds(arguments.data)
    else:
        splitter = KFold(5)
    # MovieLens 100K comes with folds; for all other data sets they are drawn.
    data = load_movielens(arguments.data)
    return data, list(splitter.split(data, key=Key.from_seed(0)))


def _compute_wu(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    return fedgnn_table(_published_folds(arguments)[1], arguments.table, **how)


def _compute_jeyamohan(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    data, folds = _published_folds(arguments)
    # MovieLens 100K and 1M have whole stars, later data sets have half stars.
    has_halves = bool((data.values_or_ones() % 1).any())
    return rating_figure(folds, arguments.figure, grid=HALF_STARS if has_halves else STARS, **how)


def _compute_liang(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    _check_ratings(arguments)
    folds = list(KFold(5).split(load_movielens(arguments.data), key=Key.from_seed(0)))
    return (sdcf_table if arguments.system == "sdcf" else fedrec_table)(folds, arguments.table, **how)


def _compute_ncf(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    if arguments.data is None:
        raise ValueError("--data is required for ncf; pass MovieLens with timestamps, as downloaded")
    if arguments.seeds is not None:
        raise ValueError("ncf uses only seed 0; leave --seeds out")
    return ncf_table(load_movielens(arguments.data), only=arguments.only, **how)


def _compute_wang(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    seeded_tables = (wang2021_stage1.TABLE, wang2021_gap.TABLE)
    if arguments.seeds is not None and arguments.table not in seeded_tables:
        raise ValueError(
            f"--seeds is for tables {' and '.join(seeded_tables)} of privrec, and its other figures and tables use "
            "seed 0; leave it out"
        )
    if arguments.table in ("4", "5"):
        if arguments.data is not None:
            raise ValueError(f"table {arguments.table} of privrec is computed without data; leave --data out")
        return epsilon_table(arguments.table)
    if arguments.table == wang2021_stage1.TABLE:
        return wang2021_stage1.stage1_table(_movielens(arguments), n_seeds=_n_seeds(arguments, 3), **how)
    if arguments.table in wang2021_attacks.TABLES:
        if arguments.table == "6" and arguments.data is not None and "frappe" in arguments.data.name.lower():
            return wang2021_attacks.attack_table(load_frappe(arguments.data), arguments.table, **how)
        return wang2021_attacks.attack_table(_movielens(arguments), arguments.table, **how)
    number = arguments.table or arguments.figure
    if arguments.data is None:
        kind = "table" if arguments.table else "figure"
        raise ValueError(f"--data is required for {kind} {number} of privrec; pass MovieLens 1M or frappe.csv")
    # Some figures and tables accept either data set, and the name of the file decides.
    is_frappe = arguments.table == "3" or arguments.figure in wang2021_figures.OF_LOG
    if arguments.table == wang2021_gap.TABLE or arguments.figure in (
        wang2021_activity.FIGURE,
        *wang2021_figures.OF_EITHER,
    ):
        is_frappe = "frappe" in arguments.data.name.lower()
    data = load_frappe(arguments.data) if is_frappe else load_movielens(arguments.data)
    if arguments.figure == wang2021_activity.FIGURE:
        return wang2021_activity.activity_figure(data)
    if arguments.table == wang2021_gap.TABLE:
        return wang2021_gap.gap_table(data, n_seeds=_n_seeds(arguments, 3), only=arguments.only, **how)
    if arguments.table:
        return accuracy_table(data, number, only=arguments.only, **how)
    return privrec_figure(data, number, **how)


def _compute_ribero(arguments: argparse.Namespace, how: dict[str, Any]) -> SideBySide:
    data = None
    if arguments.figure in ON_DATA:
        if arguments.data is None:
            raise ValueError(f"--data is required for figure {arguments.figure}; pass eICU (2) or MovieLens 1M")
        data = load_eicu(arguments.data, rows="stays") if arguments.figure == "2" else load_movielens(arguments.data)
    elif arguments.data is not None:
        raise ValueError(f"figure {arguments.figure} uses generated counts; leave --data out")
    return ribero2020.prototype_figure(arguments.figure, data, n_seeds=_n_seeds(arguments, 1), **how)


# Functions by the system's name on the command line.
_COMPUTE: dict[str, Callable[[argparse.Namespace, dict[str, Any]], SideBySide]] = {
    "dp-als": _compute_als,
    "dp-gram": _compute_gram,
    "dp-subspace": _compute_subspace,
    "fmf-ldp": _compute_minto,
    "laplace-rr-svd": _compute_jeyamohan,
    "fedrec": _compute_liang,
    "sdcf": _compute_liang,
    "fedgnn": _compute_wu,
    "ncf": _compute_ncf,
    "privrec": _compute_wang,
    "private-recommender": _compute_private_recommender,
    "private-prototypes": _compute_ribero,
}
