"""FedGNN (Wu et al. 2021): cost of each of its parts in RMSE, and attacks of the parties."""

import itertools
from typing import Any

from fastfedrec.core.check import check_choice
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.studies.reproduce._parties import PARTIES, attack_rows, membership_row, party_study, system_rows
from fastfedrec.studies.reproduce._trials import Folds, check_folds, describe_folds, errors, fold_settings
from fastfedrec.systems.fedgnn.attacks import pseudo_item_intersection, pseudo_item_values
from fastfedrec.systems.fedgnn.model import FedGNN
from fastfedrec.systems.rating_svd.baselines import BiasedMF, GlobalMean

__all__ = ["fedgnn_table"]

PUBLISHED = 0.920  # RMSE on MovieLens 100K
COHORT_SIZE = 128  # clients of a round
N_MORE_ROUNDS, N_FULL_ROUNDS = 200, 100  # rounds of cohorts, and rounds of all clients
N_RECORDED = 8  # first rounds with recorded messages
_EPOCHS = 3
_AS_PRINTED = "as printed"


def _compare_parts(table: Report) -> str:
    steps = [(row.model, sum(row.rmse) / len(row.rmse)) for row in table.rows if _is_step(row.model)]
    # Changes are cumulative, so each difference of consecutive rows is the gain of one change.
    gains = {name: before - after for (_, before), (name, after) in itertools.pairwise(steps)}
    largest = max(gains, key=lambda name: gains[name])
    best = min(steps, key=lambda step: step[1])
    return (
        f"The change to the printed settings with the largest gain is '{largest}', {gains[largest]:.3f} of RMSE.  "
        f"The smallest error is {best[1]:.3f} ('{best[0]}'); printed for MovieLens 100K is {PUBLISHED:.3f}."
    )


def _draw_errors(table: Report, figure: Any) -> None:
    figure.set_size_inches(9, 5)
    panel = figure.subplots()
    panel.plot([sum(row.rmse) / len(row.rmse) for row in table.rows], [row.model for row in table.rows], "o")
    panel.axvline(PUBLISHED, color="black", linestyle="--", linewidth=1)
    panel.set(xlabel="RMSE (line: as printed for MovieLens 100K)")
    panel.invert_yaxis()
    panel.set_title(table.title, fontsize="small")


STUDIES = {
    "parts": Study(
        title="FedGNN: cost of each part in errors",
        legend=(
            "A row that begins with 'and' has all changes of the rows above it, up to the one as printed.  As "
            "printed:\nnoise of scale .2, numbers clipped to .1, 1,000 pseudo items, 10 neighbours, 128 clients a "
            "round, 3 epochs;\nbut 32 factors instead of 256, and Adam.  Mean and deviation over splits."
        ),
        columns=[
            ("model", "{.model}"),
            ("rounds", lambda row: "-" if row.n_rounds is None else str(row.n_rounds)),
            ("MAE", errors("mae")),
            ("RMSE", errors("rmse")),
        ],
        verdict=_compare_parts,
        draw=_draw_errors,
    ),
    PARTIES: party_study(
        "FedGNN: attacks of the parties",
        "First split only, as printed: 128 clients a round; values of the first round, and intersection of the first\n"
        "eight rounds, for clients sampled at least twice.  claimed: pairs of a user and an item that the attack\n"
        "claims are rated; true: share of them that are rated; base: the same share of all pairs that the server\n"
        "receives; recall: share of the rated pairs that are claimed.  The membership attack knows a user's ratings\n"
        "and the released model; it has an AUC alone.",
    ),
}


def fedgnn_table(folds: Folds, table: str, **options: Any) -> Report:
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
    Report
        The table.  `rows` have `model`, `n_rounds` (None for a baseline), and `mae` and `rmse` of each split; or
        `algorithm`, `attack` and the figures of the attack.

    References
    ----------
    .. [1] Wu, Wu, Cao, Huang, Xie, "FedGNN: federated graph neural network for privacy-preserving recommendation",
       arXiv:2102.04925, 2021, Table 3.
    """
    check_choice("table", table, tuple(STUDIES))
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.PublishedFolds", quick=how.quick or table == PARTIES)
    first, _ = folds[0]
    settings = fold_settings(folds)
    rows_of: dict[str, tuple[dict[str, Any], Any]]
    if table == PARTIES:
        attack, models = _attack_run, _attacked_runs(first.n_users)
        rows_of = {name: ({"algorithm": name}, model) for name, model in models.items()}
    else:
        attack, models = None, _models(first.n_users)
        rows_of = {name: ({"model": name, "n_rounds": getattr(m, "n_rounds", None)}, m) for name, m in models.items()}
    rows = system_rows(f"fedgnn-{table}", rows_of, settings, folds, attack, N_RECORDED, how)
    return Report(STUDIES[table], describe_folds(folds), settings, table=table, rows=rows)


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


refuse_old_names(__name__, FedGNNTable="studies.report.Report", PartRow="studies.report.Record")
