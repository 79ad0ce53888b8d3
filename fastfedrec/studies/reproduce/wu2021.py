"""FedGNN (Wu et al. 2021): cost of each of its parts in RMSE, and attacks of the parties."""

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
    fold_settings,
    mean_and_deviation,
    run_or_load_errors,
    track_progress,
)
from fastfedrec.studies.reproduce.side_by_side import RunOptions, run_or_load
from fastfedrec.systems.fedgnn.attacks import pseudo_item_intersection, pseudo_item_values
from fastfedrec.systems.fedgnn.model import FedGNN
from fastfedrec.systems.rating_svd.baselines import BiasedMF, GlobalMean

__all__ = ["FedGNNTable", "PartRow", "fedgnn_table"]

TABLES = ("parts", PARTIES)
PUBLISHED = 0.920  # RMSE on MovieLens 100K
COHORT_SIZE = 128  # clients of a round
N_MORE_ROUNDS, N_FULL_ROUNDS = 200, 100  # rounds of cohorts, and rounds of all clients
N_RECORDED = 8  # first rounds with recorded messages
_EPOCHS = 3
_AS_PRINTED = "as printed"
_TITLES = {"parts": "cost of each part in errors", PARTIES: "attacks of the parties"}
_LEGENDS = {
    "parts": (
        "A row that begins with 'and' has all changes of the rows above it, up to the one as printed.  As printed:\n"
        "noise of scale .2, numbers clipped to .1, 1,000 pseudo items, 10 neighbours, 128 clients a round, 3 epochs;\n"
        "but 32 factors instead of 256, and Adam.  Mean and deviation over splits."
    ),
    PARTIES: (
        "First split only, as printed: 128 clients a round; values of the first round, and intersection of the first\n"
        "eight rounds, for clients sampled at least twice.  claimed: pairs of a user and an item that the attack\n"
        "claims are rated; true: share of them that are rated; base: the same share of all pairs that the server\n"
        "receives; recall: share of the rated pairs that are claimed.  The membership attack knows a user's ratings\n"
        "and the released model; it has an AUC alone."
    ),
}


@dataclass(frozen=True)
class PartRow:
    """Errors of one model.

    Parameters
    ----------
    model : str
        Change to the printed settings, or name of a baseline.
    n_rounds : int or None
        Number of rounds; None for a baseline.
    mae, rmse : tuple of float
        Errors of each split.
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
        Parameters of `SideBySide`.
    table : {"parts", "parties"}
        Name of the table.
    rows : tuple of PartRow or of PartyRow
        Rows by model.
    """

    _system, _titles, _legends = "FedGNN", _TITLES, _LEGENDS

    def _error_verdict(self) -> str:
        steps = [(row.model, sum(row.rmse) / len(row.rmse)) for row in self.rows if _is_step(row.model)]
        # Changes are cumulative, so each difference of consecutive rows is the gain of one change.
        gains = {name: before - after for (_, before), (name, after) in itertools.pairwise(steps)}
        largest = max(gains, key=lambda name: gains[name])
        best = min(steps, key=lambda step: step[1])
        return (
            f"The change to the printed settings with the largest gain is '{largest}', {gains[largest]:.3f} of RMSE.  "
            f"The smallest error is {best[1]:.3f} ('{best[0]}'); printed for MovieLens 100K is {PUBLISHED:.3f}."
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
    """Compute errors of FedGNN with its parts removed successively, or attacks that infer ratings.

    Parameters
    ----------
    folds : sequence of tuple of Interactions
        Pairs (train, test) with ratings as values, for example from `evaluation.PublishedFolds`.
    table : {"parts", "parties"}
        "parts": MAE and RMSE.  "parties": the attacks of `fastfedrec.attacks` on the first split, and a membership
        attack.
    **options : object
        Options of `RunOptions`; no figure depends on `n_threads`.  `quick`: one split.

    Returns
    -------
    FedGNNTable
        The table, with the figures of every split.

    References
    ----------
    .. [1] Wu, Wu, Cao, Huang, Xie, "FedGNN: federated graph neural network for privacy-preserving recommendation",
       arXiv:2102.04925, 2021, Table 3.
    """
    check_choice("table", table, TABLES)
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.PublishedFolds", quick=how.quick or table == PARTIES)
    first, _ = folds[0]
    settings = fold_settings(folds)
    rows: list[Any] = []
    cases = _attacked_runs(first.n_users) if table == PARTIES else _models(first.n_users)
    for name, model in track_progress(cases.items(), how, f"Table {table}", "model"):
        part_settings = settings | {"model": repr(model), "recorded": N_RECORDED}
        part = f"fedgnn-{table}-{name}".replace(" ", "-").replace(",", "")
        if table == PARTIES:
            attack: Callable[[], Any] = functools.partial(_attack_run, name, model, first, how)
            rows += [PartyRow(**row) for row in run_or_load(how.folder, part, part_settings, attack)]
        else:
            mae, rmse = run_or_load_errors(part, part_settings, model, folds, how)
            rows.append(PartRow(name, getattr(model, "n_rounds", None), mae, rmse))
    return FedGNNTable(describe_folds(folds), settings, table, tuple(rows))


def _printed(n_users: int) -> dict[str, Any]:
    # An epoch has n_users / COHORT_SIZE rounds.
    n_rounds = max(2, round(_EPOCHS * n_users / COHORT_SIZE))
    return {"variant": "published", "cohort_size": COHORT_SIZE, "n_rounds": n_rounds, "expansion_round": n_rounds // 2}


def _models(n_users: int) -> dict[str, Any]:
    changes: dict[str, dict[str, Any]] = {
        _AS_PRINTED: {},
        "and no noise": {"noise_scale": 0.0},
        "and no pseudo items": {"n_pseudo_items": 0},
        "and no clip": {"clip": 1e3},
        "and no neighbours": {"n_neighbors": 0},
        "and more rounds": {"n_rounds": N_MORE_ROUNDS},
        "and of all users": {"cohort_size": n_users, "n_rounds": N_FULL_ROUNDS},
    }
    # Each model has its own change and all changes before it; the first item of `combined` is the printed setting.
    combined = itertools.accumulate(
        changes.values(), lambda options, change: options | change, initial=_printed(n_users)
    )
    models: dict[str, Any] = {
        name: FedGNN(**options) for name, options in zip(changes, itertools.islice(combined, 1, None), strict=True)
    }
    return models | {
        "guaranteed, epsilon 2": _guaranteed(n_users),
        "the mean of all ratings": GlobalMean(),
        "BiasedMF": BiasedMF(),
    }


def _is_step(name: str) -> bool:
    return name == _AS_PRINTED or name.startswith("and ")


def _attacked_runs(n_users: int) -> dict[str, FedGNN]:
    printed = _printed(n_users)
    return {
        _AS_PRINTED: FedGNN(**printed),
        "without noise": FedGNN(**printed | {"noise_scale": 0.0}),
        "guaranteed, epsilon 2": _guaranteed(n_users),
    }


def _guaranteed(n_users: int) -> FedGNN:
    return FedGNN(epsilon=2.0, cohort_size=COHORT_SIZE, n_rounds=_printed(n_users)["n_rounds"])


def _attack_run(name: str, model: FedGNN, train: Interactions, how: RunOptions) -> list[dict[str, Any]]:
    key, rows = Key.from_seed(0), []
    # The attacks on messages apply to the published variant alone.
    if model.variant == "published":
        recorded = range(min(N_RECORDED, model.n_rounds))
        records = model.fit(train, key=key, n_threads=how.n_threads, record_views=recorded).records_
        rows = attack_rows(name, [pseudo_item_values(records[0], train), pseudo_item_intersection(records, train)])
    return [*rows, membership_row(name, type(model)(**model.get_params()), train, key, how.n_threads)]
