"""Liang, Pan, Ming (FedRec++): the tables of errors and of communication, and errors over the share of clients."""

import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastfedrec._check import check_choice, check_flag, check_instance
from fastfedrec._progress import progress_rounds
from fastfedrec._table import format_table
from fastfedrec._version import __version__
from fastfedrec.evaluation import evaluate_ratings
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key
from fastfedrec.systems.fedrec import FedRec
from fastfedrec.systems.fedrec_plus_plus import FedRecPlusPlus
from fastfedrec.systems.rating_baselines import BiasedMF, GlobalMean, ItemMean, RatingItemKNN, UserMean

TABLES = ("2", "communication", "client-share")
SHARES = (0.2, 0.6, 1.0)
N_DRAWS = 10  # of denoisers, in each split
_TITLES = {
    "2": "errors of FedRec and FedRec++",
    "communication": "latent vectors in a round, by number of denoisers (rho 1)",
    "client-share": "errors over the share of clients in a round",
}
_LEGEND = {
    "2": "Mean and deviation over splits; FedRec++ has one denoiser and sharing as published.",
    "communication": (
        "A denoiser: received and sent; an ordinary client: sent; means over splits and draws of denoisers.  client: "
        "the mean\nof the two over all users, as we define it; the paper's third column is no mean of its other two."
    ),
    "client-share": "Mean and deviation over splits; the paper draws these and prints no number.",
}

# By number of ratings: name, learning rate, (t_predict, t_local) by rho, and what the paper prints.
_DATASETS: dict[int, tuple[str, float, dict[int, tuple[int, int]]]] = {
    100_000: ("MovieLens 100K", 0.8, {1: (10, 10), 2: (5, 15), 3: (5, 15)}),
    1_000_209: ("MovieLens 1M", 0.8, dict.fromkeys((1, 2, 3), (10, 15))),
    7_944_473: ("Netflix NF5K5K", 1.0, {1: (5, 10), 2: (5, 10), 3: (5, 15)}),
}
_OTHER = ("these data", 0.8, dict.fromkeys((1, 2, 3), (10, 15)))
_PAPER_ERRORS = {
    ("MovieLens 100K", "FedRec"): ((0.7418, 0.9424), (0.7440, 0.9432), (0.7445, 0.9431), (0.7447, 0.9431)),
    ("MovieLens 100K", "FedRec++"): (None, (0.7417, 0.9422), (0.7422, 0.9430), (0.7416, 0.9421)),
    ("MovieLens 1M", "FedRec"): ((0.7193, 0.9106), (0.7217, 0.9129), (0.7239, 0.9152), (0.7263, 0.9178)),
    ("MovieLens 1M", "FedRec++"): (None, (0.7198, 0.9113), (0.7195, 0.9109), (0.7196, 0.9109)),
    ("Netflix NF5K5K", "FedRec"): ((0.7139, 0.9090), (0.7148, 0.9102), (0.7152, 0.9104), (0.7160, 0.9110)),
    ("Netflix NF5K5K", "FedRec++"): (None, (0.7137, 0.9088), (0.7137, 0.9089), (0.7138, 0.9090)),
}
_PAPER_VECTORS = {
    "MovieLens 100K": {"0": (0, 170, 170), "1": (81_550, 254, 258), "n/4": (571, 256, 350), "n/2": (251, 256, 294)},
    "MovieLens 1M": {"0": (0, 265, 265), "1": (804_058, 397, 399), "n/4": (903, 397, 551), "n/2": (393, 397, 460)},
    "Netflix NF5K5K": {
        "0": (0, 2535, 2535),
        "1": (6_324_227, 3799, 3801),
        "n/4": (7309, 3800, 4608),
        "n/2": (3537, 3799, 4172),
    },
}


@dataclass(frozen=True)
class ErrorRow:
    """One model in one setting.

    Parameters
    ----------
    algorithm : str
        "FedRec", "FedRec++" or a baseline.
    rho : int or None
        Virtual items for each rated one; None for a baseline.
    client_share : float
        Of the users, in each round.
    mae, rmse : tuple of float
        One a split.
    paper : tuple of float or None
        MAE and RMSE as printed.
    """

    algorithm: str
    rho: int | None
    client_share: float
    mae: tuple[float, ...]
    rmse: tuple[float, ...]
    paper: tuple[float, float] | None


@dataclass(frozen=True)
class VectorRow:
    """One number of denoisers.

    Parameters
    ----------
    n_denoisers : str
        "0", "1", "n/4" or "n/2".
    denoiser, ordinary, client : float
        Latent vectors of a round.
    paper : tuple of int or None
        The same as printed.
    """

    n_denoisers: str
    denoiser: float
    ordinary: float
    client: float
    paper: tuple[int, int, int] | None


@dataclass(frozen=True)
class FedRecTable:
    """A table, with the paper's figures beside ours.

    Parameters
    ----------
    table : {"2", "communication", "client-share"}
        Which one.
    rows : tuple of ErrorRow or of VectorRow
        In the paper's order.
    settings : dict
        What every number was computed with.
    """

    table: str
    rows: tuple[Any, ...]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings.

        Returns
        -------
        dict
            The fields.
        """
        return asdict(self)

    def summary(self) -> str:
        """Lay out the table as text.

        Returns
        -------
        str
            A table, and what the columns mean.
        """
        return "\n".join([self._title(), "", format_table(*self._cells()), "", _LEGEND[self.table]])

    def to_markdown(self, plot: str | None = None) -> str:
        """Lay out the table as a page.

        Parameters
        ----------
        plot : None
            There is no plot.

        Returns
        -------
        str
            As `summary`, in Markdown, with the settings.
        """
        header, rows = self._cells()
        table = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
        settings = ["```json", json.dumps(self.settings, indent=2), "```"]
        return "\n".join([f"# {self._title()}", "", *table, "", _LEGEND[self.table], "", *settings, ""])

    def _title(self) -> str:
        return f"FedRec++ on {self.settings['data']}: {_TITLES[self.table]}"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        if self.table == "communication":
            names = ["denoiser", "ordinary", "client"]
            return ["denoisers", *itertools.chain.from_iterable((n, "paper") for n in names)], [
                [
                    row.n_denoisers,
                    *itertools.chain.from_iterable(
                        (f"{getattr(row, name):,.0f}", f"{row.paper[j]:,}" if row.paper else "-")
                        for j, name in enumerate(names)
                    ),
                ]
                for row in self.rows
            ]
        return ["algorithm", "rho", "share", "MAE", "paper", "RMSE", "paper"], [
            [
                row.algorithm,
                "-" if row.rho is None else str(row.rho),
                f"{row.client_share:g}",
                *itertools.chain.from_iterable(
                    (_spread(values), f"{row.paper[j]:.4f}" if row.paper else "-")
                    for j, values in enumerate((row.mae, row.rmse))
                ),
            ]
            for row in self.rows
        ]


def fedrec_table(
    folds: Sequence[tuple[Interactions, Interactions]],
    table: str,
    *,
    quick: bool = False,
    n_threads: int = 0,
    show_progress: bool = False,
) -> FedRecTable:
    """Compute one of the paper's tables, or the numbers behind its figure over shares of clients.

    Parameters
    ----------
    folds : sequence of tuple of Interactions
        (train, test) with ratings as values, as from `evaluation.k_fold`.
    table : {"2", "communication", "client-share"}
        "2": MAE and RMSE of FedRec and FedRec++ over rho, and baselines.  "communication": latent vectors in a round.
        "client-share": the errors with .2, .6 and 1 of the clients in each round.
    quick : bool
        One split.
    n_threads : int
        0 for all processors; no figure depends on it.
    show_progress : bool
        Draw a progress bar (needs tqdm).

    Returns
    -------
    FedRecTable
        With every split's figures.

    References
    ----------
    .. [1] Liang, Pan, Ming, "FedRec++: lossless federated recommendation with explicit feedback", AAAI 2021.
    """
    check_choice("table", table, TABLES)
    quick, show_progress = check_flag("quick", quick), check_flag("show_progress", show_progress)
    folds = list(folds)[: 1 if quick else None]
    if not folds:
        raise ValueError("folds must hold at least one pair (train, test), got none")
    for part in itertools.chain.from_iterable(folds):
        check_instance("folds", part, Interactions, "use evaluation.k_fold")
    n_ratings = sum(part.n_interactions for part in folds[0])
    name, learning_rate, steps = _DATASETS.get(n_ratings, _OTHER)
    settings = {
        "version": __version__,
        "data": name,
        "n_ratings": n_ratings,
        "n_splits": len(folds),
        "learning_rate": learning_rate,
        "t_predict and t_local": {str(rho): pair for rho, pair in steps.items()},
    }
    if table == "communication":
        return FedRecTable(table, _vector_rows(folds, name, n_threads), settings | {"n_draws": N_DRAWS})
    cases = _cases(table, learning_rate, steps)
    rows = []
    for number in progress_rounds(len(cases), show=show_progress, description=f"Table {table}", unit="model"):
        algorithm, rho, share, model = cases[number]
        found = [
            evaluate_ratings(model.fit(train, key=Key.from_seed(seed), n_threads=n_threads), test)
            for seed, (train, test) in enumerate(folds)
        ]
        printed = _PAPER_ERRORS.get((name, algorithm)) if share == 1 and rho is not None else None
        mae, rmse = (tuple(f[metric] for f in found) for metric in ("mae", "rmse"))
        rows.append(ErrorRow(algorithm, rho, share, mae, rmse, printed[rho or 0] if printed else None))
    return FedRecTable(table, tuple(rows), settings)


def _cases(table: str, learning_rate: float, steps: dict[int, tuple[int, int]]) -> list[tuple]:
    """(algorithm, rho, share, model) of every row."""
    cases: list[tuple] = []
    for share in SHARES if table == "client-share" else (1.0,):
        for rho in range(4):
            t_predict, t_local = steps.get(rho, (10, 10))
            options: dict[str, Any] = {
                "rho": rho,
                "t_predict": t_predict,
                "t_local": t_local,
                "client_share": share,
                "learning_rate": learning_rate,
            }
            cases.append(("FedRec", rho, share, FedRec(**options)))
            if rho:
                cases.append(("FedRec++", rho, share, FedRecPlusPlus(1, "published", **options)))
    if table == "2":
        baselines = (GlobalMean(), UserMean(), ItemMean(), BiasedMF(), RatingItemKNN())
        cases += [(type(model).__name__, None, 1.0, model) for model in baselines]
    return cases


def _vector_rows(
    folds: Sequence[tuple[Interactions, Interactions]], name: str, n_threads: int
) -> tuple[VectorRow, ...]:
    rows = []
    for label, share in (("0", None), ("1", 0.0), ("n/4", 0.25), ("n/2", 0.5)):
        found = []
        for seed, (train, _) in itertools.product(range(1 if share is None else N_DRAWS), folds):
            options: dict[str, Any] = {"rho": 1, "n_rounds": 1, "n_factors": 1}
            n_denoisers = max(1, int((share or 0) * train.n_users))
            model = FedRec(**options) if share is None else FedRecPlusPlus(n_denoisers, "published", **options)
            found.append(model.fit(train, key=Key.from_seed(seed), n_threads=n_threads).vectors_)
        denoiser, ordinary, client = (
            statistics.fmean(getattr(v, kind) for v in found) for kind in ("denoiser", "ordinary", "client")
        )
        rows.append(VectorRow(label, denoiser, ordinary, client, _PAPER_VECTORS.get(name, {}).get(label)))
    return tuple(rows)


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.4f}"
    return f"{mean} +- {statistics.stdev(values):.4f}" if len(values) > 1 else mean
