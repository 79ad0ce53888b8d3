"""FedGNN (Wu et al. 2021): what each of its parts costs in RMSE, and what the parties find out."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastfedrec.core.check import check_choice
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.reproduce._parties import PARTIES, PartyRow, SystemTable, attack_rows, membership_row
from fastfedrec.studies.reproduce._trials import (
    Folds,
    check_folds,
    describe_folds,
    each,
    kept_errors,
    mean_and_deviation,
    settings_of,
)
from fastfedrec.studies.reproduce.side_by_side import RunOptions, kept
from fastfedrec.systems.fedgnn.attacks import pseudo_item_intersection, pseudo_item_values
from fastfedrec.systems.fedgnn.model import FedGNN
from fastfedrec.systems.rating_svd.baselines import BiasedMF, GlobalMean

__all__ = ["FedGNNTable", "PartRow", "fedgnn_table"]

TABLES = ("parts", PARTIES)
PUBLISHED = 0.920  # RMSE on MovieLens 100K
COHORT, MANY, WHOLE = 128, 200, 100  # clients of a round; rounds of so many, and of all
N_RECORDED = 8
_EPOCHS = 3
_AS_PRINTED = "as printed"
_TITLES = {"parts": "what each part costs in errors", PARTIES: "what the parties find out"}
_LEGENDS = {
    "parts": (
        "A row that begins with 'and' has all changes of those above it, up to the one as printed.  As printed: noise\n"
        "of scale .2, numbers clipped to .1, 1,000 pseudo items, 10 neighbours, 128 clients a round, 3 epochs; but 32\n"
        "factors of 256, and Adam.  Mean and deviation over splits."
    ),
    PARTIES: (
        "Of the first split, as printed: 128 clients a round; values of the first round, intersection of the first\n"
        "eight, of clients asked twice or more.  claimed: pairs of a user and an item said to be rated; true: so many\n"
        "of them are; base: of all pairs that the server hears of; recall: of the rated ones.  Membership knows a\n"
        "user's ratings and the released model; it has an AUC alone."
    ),
}


@dataclass(frozen=True)
class PartRow:
    """One model.

    Parameters
    ----------
    model : str
        What is changed, or a baseline's name.
    n_rounds : int or None
        None for a baseline.
    mae, rmse : tuple of float
        One a split.
    """

    model: str
    n_rounds: int | None
    mae: tuple[float, ...]
    rmse: tuple[float, ...]


@dataclass(frozen=True)
class FedGNNTable(SystemTable):
    """A table of FedGNN.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    table : {"parts", "parties"}
        Which one.
    rows : tuple of PartRow or of PartyRow
        By model.
    """

    _system, _titles, _legends = "FedGNN", _TITLES, _LEGENDS

    def _errors_say(self) -> str:
        ladder = [(row.model, sum(row.rmse) / len(row.rmse)) for row in self.rows if _is_step(row.model)]
        gains = {name: before - after for (_, before), (name, after) in itertools.pairwise(ladder)}
        most = max(gains, key=lambda name: gains[name])
        least = min(ladder, key=lambda step: step[1])
        return (
            f"Of the changes to the printed settings '{most}' is worth most, {gains[most]:.3f} of RMSE.  The least "
            f"error is {least[1]:.3f} ('{least[0]}'); printed for MovieLens 100K is {PUBLISHED:.3f}."
        )

    def _draw_errors(self, panel: Any) -> None:
        panel.plot([sum(row.rmse) / len(row.rmse) for row in self.rows], [row.model for row in self.rows], "o")
        panel.axvline(PUBLISHED, color="black", linestyle="--", linewidth=1)
        panel.set(xlabel="RMSE (line: as printed for MovieLens 100K)")
        panel.invert_yaxis()

    def _error_rows(self) -> tuple[list[str], list[list[str]]]:
        return ["model", "rounds", "MAE", "RMSE"], [
            [
                row.model,
                "-" if row.n_rounds is None else str(row.n_rounds),
                *(mean_and_deviation(values, "{:.4f}", " +- {:.4f}") for values in (row.mae, row.rmse)),
            ]
            for row in self.rows
        ]


def fedgnn_table(folds: Folds, table: str, **options: Any) -> FedGNNTable:
    """Compute errors of FedGNN, one part of it after another left out, or what is found out about ratings.

    Parameters
    ----------
    folds : sequence of tuple of Interactions
        (train, test) with ratings as values, as from `evaluation.PublishedFolds`.
    table : {"parts", "parties"}
        "parts": MAE and RMSE.  "parties": the attacks of `fastfedrec.attacks` on the first split, and membership.
    **options : object
        As for `RunOptions`; no figure depends on `n_threads`.  `quick`: one split.

    Returns
    -------
    FedGNNTable
        With every split's figures.

    References
    ----------
    .. [1] Wu, Wu, Cao, Huang, Xie, "FedGNN: federated graph neural network for privacy-preserving recommendation",
       arXiv:2102.04925, 2021, Table 3.
    """
    check_choice("table", table, TABLES)
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.PublishedFolds", quick=how.quick or table == PARTIES)
    first, _ = folds[0]
    settings = settings_of(folds)
    rows: list[Any] = []
    cases = _runs(first.n_users) if table == PARTIES else _models(first.n_users)
    for name, model in each(cases.items(), how, f"Table {table}", "model"):
        place = settings | {"model": repr(model), "recorded": N_RECORDED}
        part = f"fedgnn-{table}-{name}".replace(" ", "-").replace(",", "")
        if table == PARTIES:
            attack: Callable[[], Any] = functools.partial(_attacked, name, model, first, how)
            rows += [PartyRow(**row) for row in kept(how.folder, part, place, attack)]
        else:
            mae, rmse = kept_errors(part, place, model, folds, how)
            rows.append(PartRow(name, getattr(model, "n_rounds", None), mae, rmse))
    return FedGNNTable(describe_folds(folds), settings, table, tuple(rows))


def _printed(n_users: int) -> dict[str, Any]:
    n_rounds = max(2, round(_EPOCHS * n_users / COHORT))
    return {"variant": "published", "cohort_size": COHORT, "n_rounds": n_rounds, "expansion_round": n_rounds // 2}


def _models(n_users: int) -> dict[str, Any]:
    changes: dict[str, dict[str, Any]] = {
        _AS_PRINTED: {},
        "and no noise": {"noise_scale": 0.0},
        "and no pseudo items": {"n_pseudo_items": 0},
        "and no clip": {"clip": 1e3},
        "and no neighbours": {"n_neighbors": 0},
        "and more rounds": {"n_rounds": MANY},
        "and of all users": {"cohort_size": n_users, "n_rounds": WHOLE},
    }
    together = itertools.accumulate(changes.values(), lambda before, change: before | change, initial=_printed(n_users))
    models: dict[str, Any] = {
        name: FedGNN(**options) for name, options in zip(changes, itertools.islice(together, 1, None), strict=True)
    }
    return models | {
        "guaranteed, epsilon 2": _guaranteed(n_users),
        "the mean of all ratings": GlobalMean(),
        "BiasedMF": BiasedMF(),
    }


def _is_step(name: str) -> bool:
    return name == _AS_PRINTED or name.startswith("and ")


def _runs(n_users: int) -> dict[str, FedGNN]:
    printed = _printed(n_users)
    return {
        _AS_PRINTED: FedGNN(**printed),
        "without noise": FedGNN(**printed | {"noise_scale": 0.0}),
        "guaranteed, epsilon 2": _guaranteed(n_users),
    }


def _guaranteed(n_users: int) -> FedGNN:
    return FedGNN(epsilon=2.0, cohort_size=COHORT, n_rounds=_printed(n_users)["n_rounds"])


def _attacked(name: str, model: FedGNN, train: Interactions, how: RunOptions) -> list[dict[str, Any]]:
    key, rows = Key.from_seed(0), []
    if model.variant == "published":
        recorded = range(min(N_RECORDED, model.n_rounds))
        records = model.fit(train, key=key, n_threads=how.n_threads, record_views=recorded).records_
        rows = attack_rows(name, [pseudo_item_values(records[0], train), pseudo_item_intersection(records, train)])
    return [*rows, membership_row(name, type(model)(**model.get_params()), train, key, how.n_threads)]
