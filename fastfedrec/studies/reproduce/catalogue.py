"""The figures and tables of ``fastfedrec reproduce``, each with its function, data and options."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets import load_eicu, load_frappe, load_movielens
from fastfedrec.datasets.files import Files
from fastfedrec.evaluation import KFold, PublishedFolds, Split
from fastfedrec.studies.report import Report
from fastfedrec.studies.reproduce.chien2021 import recall_table
from fastfedrec.studies.reproduce.gram_map import gain_map
from fastfedrec.studies.reproduce.he2017 import ncf_table
from fastfedrec.studies.reproduce.jeyamohan2019 import rating_figure
from fastfedrec.studies.reproduce.jiang2019 import sdcf_table
from fastfedrec.studies.reproduce.liang2021 import fedrec_table
from fastfedrec.studies.reproduce.minto2021.figure_4 import figure_4
from fastfedrec.studies.reproduce.minto2021.hit_ratios import hit_ratio_figure
from fastfedrec.studies.reproduce.own_systems import movielens_table, subspace_table
from fastfedrec.studies.reproduce.ribero2020.figures import prototype_figure
from fastfedrec.studies.reproduce.utility import utility_table
from fastfedrec.studies.reproduce.wang2021.accuracy import accuracy_table, epsilon_table
from fastfedrec.studies.reproduce.wang2021.activity import activity_figure
from fastfedrec.studies.reproduce.wang2021.attacks import attack_table
from fastfedrec.studies.reproduce.wang2021.figures import privrec_figure
from fastfedrec.studies.reproduce.wang2021.gap import gap_table
from fastfedrec.studies.reproduce.wang2021.stage1 import stage1_table
from fastfedrec.studies.reproduce.wu2021 import fedgnn_table
from fastfedrec.systems.rating_model import HALF_STARS, STARS

__all__ = ["PAPERS", "REPRODUCTIONS", "Data", "Reproduction"]


@dataclass(frozen=True)
class Data:
    """A data set that figures and tables are computed on."""

    name: str  # as in messages
    load: Callable[[Path], Any]
    is_required: bool = True  # False: data are generated in its place


@dataclass(frozen=True)
class Reproduction:
    """Figures or tables of one system that share their options."""

    system: str  # name of the system on the command line
    kind: str  # "figure" or "table"
    texts: dict[str, str]  # description of each figure or table by name; names without a number are not in the paper
    compute: Callable[..., Report]  # function of the name, the loaded data or None, and the options
    data: Data | None = None  # None: no data can be given
    seeds: int | str = "uses only seed 0"  # number of seeds, with --quick 1; or the reason why there is no choice
    has_only: bool = False  # whether `only` chooses models


# ---- data ------------------------------------------------------------------------------------------------------------


def _movielens(path: Path) -> Interactions:
    return load_movielens(path)


def _frappe(path: Path) -> InteractionLog:
    return load_frappe(path)


def _movielens_or_frappe(path: Path) -> Interactions | InteractionLog:
    return _frappe(path) if "frappe" in path.name.lower() else _movielens(path)


def _drawn_folds(path: Path) -> list[Split]:
    return list(KFold(5).split(load_movielens(path), key=Key.from_seed(0)))


def _published_folds(path: Any) -> list[Split]:
    # MovieLens 100K comes with folds; for all other data sets they are drawn.
    is_published = any(member.name == "u1.base" for member in Files(path, "MovieLens zip").members)
    splitter: Any = PublishedFolds(path) if is_published else KFold(5)
    return list(splitter.split(load_movielens(path), key=Key.from_seed(0)))


_MOVIELENS = Data("MovieLens 1M", _movielens)
_FRAPPE = Data("frappe.csv", _frappe)
_EITHER = Data("MovieLens 1M or frappe.csv", _movielens_or_frappe)
_OPTIONAL = Data("MovieLens 1M", _movielens, is_required=False)
_OPTIONAL_20M = Data("MovieLens 1M or 20M", _movielens, is_required=False)
_OPTIONAL_100K = Data("MovieLens 100K", _movielens, is_required=False)
_OPTIONAL_EITHER = Data("MovieLens 1M or frappe.csv", _movielens_or_frappe, is_required=False)
_FOLDS = Data("MovieLens 100K or 1M", _drawn_folds)
_PUBLISHED_FOLDS = Data("MovieLens 100K or 1M", _published_folds)
_ON_SPLITS = "runs on five splits, with --quick on one"

# ---- figures and tables ----------------------------------------------------------------------------------------------

#: Paper of each system, or "" for a system of this package.
PAPERS = {
    "fmf-ldp": "Minto et al. 2021", "laplace-rr-svd": "Jeyamohan et al. 2019", "fedrec": "Liang et al. 2021",
    "sdcf": "Jiang et al. 2019", "fedgnn": "Wu et al. 2021", "ncf": "He et al. 2017", "privrec": "Wang et al. 2021",
    "private-prototypes": "Ribero et al. 2020", "dp-als": "Chien et al. 2021", "dp-gram": "", "dp-subspace": "",
    "private-recommender": "",
}  # fmt: skip


def _fmf_figure(figure: str, data: Interactions | None, **options: Any) -> Report:
    return figure_4(data, **options) if figure == "4" else hit_ratio_figure(figure, data, **options)


def _rating_figure(figure: str, folds: list[Split], **options: Any) -> Report:
    # MovieLens 100K and 1M have whole stars, later data sets have half stars.
    has_halves = any((part.values_or_ones() % 1).any() for part in folds[0])
    return rating_figure(folds, figure, grid=HALF_STARS if has_halves else STARS, **options)


def _named(function: Callable[..., Report]) -> Callable[..., Report]:
    """Return a function of the name and the data for one of the data and the name."""
    return lambda name, data, **options: function(data, name, **options)


def _single(function: Callable[..., Report]) -> Callable[..., Report]:
    """Return a function of the name and the data for one of the data, which has only one figure or table."""
    return lambda _, data, **options: function(data, **options)


#: All figures and tables.
REPRODUCTIONS = (
    Reproduction(
        "fmf-ldp", "figure",
        {"2": "HR@10 over epsilon and reports", "3": "rounds", "4": "users and items", "5": "HR@K on all data"},
        _fmf_figure, _OPTIONAL_20M, 3,
    ),
    Reproduction(
        "laplace-rr-svd", "figure",
        {"2": "RMSE over equal epsilons", "3": "pairs of epsilons", "equal-epsilon": "exact epsilon of one rating"},
        _rating_figure, _PUBLISHED_FOLDS, _ON_SPLITS,
    ),
    Reproduction(
        "fedrec", "table",
        {"2": "MAE and RMSE over rho", "communication": "latent vectors", "client-share": "MAE and RMSE"},
        _named(fedrec_table), _FOLDS, _ON_SPLITS,
    ),
    Reproduction(
        "sdcf", "table",
        {"temperature": "MAE and RMSE, with and without denoising", "parties": "results of attacks"},
        _named(sdcf_table), _FOLDS, _ON_SPLITS,
    ),
    Reproduction(
        "fedgnn", "table", {"parts": "the cost of each", "parties": "results of attacks"}, _named(fedgnn_table),
        _PUBLISHED_FOLDS, _ON_SPLITS,
    ),
    Reproduction(
        "ncf", "table", {"accuracy": "HR@10 of its networks and of a dot product"}, _single(ncf_table),
        Data("MovieLens with timestamps", _movielens), has_only=True,
    ),
    Reproduction(
        "privrec", "figure", {"2": "users by visited items"}, lambda _, data, **__: activity_figure(data), _EITHER
    ),
    Reproduction("privrec", "figure", {"3": "Hits over rounds, epochs and cohort"}, _named(privrec_figure), _EITHER),
    Reproduction(
        "privrec", "figure",
        {"4": "Hits with privacy", "6": "Hits over epsilon", "8": "inactive users", "9": "time of a round"},
        _named(privrec_figure), _MOVIELENS,
    ),
    Reproduction("privrec", "figure", {"5": "4 on Frappe", "7": "6 on Frappe"}, _named(privrec_figure), _FRAPPE),
    Reproduction(
        "privrec", "table", {"2": "accuracy on MovieLens 1M"}, _named(accuracy_table), _MOVIELENS, has_only=True
    ),
    Reproduction("privrec", "table", {"3": "accuracy on Frappe"}, _named(accuracy_table), _FRAPPE, has_only=True),
    Reproduction(
        "privrec", "table", {"4": "epsilon on MovieLens 1M", "5": "on Frappe"},
        lambda table, _, **__: epsilon_table(table),
    ),
    Reproduction("privrec", "table", {"6": "membership inference"}, _named(attack_table), _OPTIONAL_EITHER),
    Reproduction("privrec", "table", {"attacks": "the same on every system"}, _named(attack_table), _OPTIONAL_100K),
    Reproduction("privrec", "table", {"stage1": "gain of its first stage"}, _single(stage1_table), _OPTIONAL_100K, 3),
    Reproduction(
        "privrec", "table", {"gap": "attempts to reach tables 2 and 3"}, _single(gap_table), _EITHER, 3, has_only=True
    ),
    Reproduction(
        "private-prototypes", "figure",
        {
            "1": "counts over prototypes", "3": "k-means objective over epsilon", "4": "the same over prototypes",
            "5": "counts over epochs and entities", "6": "counts over prototypes and factors",
            "7": "counts over factors", "structured": "structured counts over prototypes",
        },
        prototype_figure, None, 1,
    ),
    Reproduction(
        "private-prototypes", "figure", {"2": "eICU"}, prototype_figure,
        Data("a folder of eICU", lambda path: load_eicu(path, rows="stays")), 1,
    ),
    Reproduction(
        "private-prototypes", "figure",
        {"8": "MovieLens over epsilon", "9": "MovieLens over factors", "entity-size": "users of one entity"},
        prototype_figure, _MOVIELENS, 1,
    ),
    Reproduction(
        "dp-als", "table", {"recall": "of held-out users, with DPGram"}, _single(recall_table), _OPTIONAL_20M, 3,
        has_only=True,
    ),
    Reproduction(
        "dp-gram", "figure",
        {"map": "gain over popularity, and the model's choice", "order": "the last sampled item held out"},
        lambda figure, _, **options: gain_map(figure, **options),
    ),
    Reproduction("dp-gram", "table", {"movielens": "HR@10 by five protocols"}, _single(movielens_table), _MOVIELENS, 3),
    Reproduction(
        "dp-subspace", "table", {"sizes": "HR@10 over items and users"},
        lambda _, __, **options: subspace_table(**options), None, 3,
    ),
    Reproduction(
        "private-recommender", "table", {"utility": "HR@10 over epsilon on four kinds of data"}, _single(utility_table),
        _OPTIONAL, 3,
    ),
)  # fmt: skip
