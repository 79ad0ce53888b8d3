"""SDCF (Jiang, Li, Lin 2019): errors over the temperature with and without denoising, and attacks of the parties."""

import statistics
from typing import Any

from fastfedrec.core.check import check_choice
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.studies.reproduce._parties import PARTIES, attack_rows, membership_row, party_study, system_rows
from fastfedrec.studies.reproduce._trials import Folds, check_folds, describe_folds, errors, fold_settings
from fastfedrec.systems.fedrec.attacks import run_attacks
from fastfedrec.systems.fedrec.model import FedRec
from fastfedrec.systems.rating_svd.baselines import BiasedMF
from fastfedrec.systems.sdcf.model import SDCF

__all__ = ["sdcf_table"]

TEMPERATURES = (0.01, 0.1, 1.0)
N_ROUNDS, N_RECORDED = 100, 3  # rounds of a fit, and its last rounds with recorded messages
_PLAIN, _DENOISED, _RATED_ONLY = "SDCF", "SDCF, denoised", "SDCF, rated items alone"


def _compare_denoised(table: Report) -> str:
    figures = {(row.algorithm, row.temperature): (row.mae, row.rmse) for row in table.rows}
    # Errors are compared bit for bit.
    is_equal = all(figures[_DENOISED, temperature] == figures[_RATED_ONLY, temperature] for temperature in TEMPERATURES)
    return (
        f"Denoised, errors are {'' if is_equal else 'NOT '}equal to the errors of sending rated items alone, to "
        "the last digit, in every split."
    )


def _draw_errors(table: Report, figure: Any) -> None:
    figure.set_size_inches(9, 5)
    panel = figure.subplots()
    for algorithm in dict.fromkeys(row.algorithm for row in table.rows):
        rows = [row for row in table.rows if row.algorithm == algorithm]
        means = [statistics.fmean(row.rmse) for row in rows]
        if rows[0].temperature is None:
            panel.axhline(means[0], label=algorithm, linestyle="--")
        else:
            panel.plot([row.temperature for row in rows], means, "o-", label=algorithm)
    panel.set(xscale="log", xlabel="temperature", ylabel="RMSE")
    panel.legend(fontsize="small")
    panel.set_title(table.title, fontsize="small")


STUDIES = {
    "temperature": Study(
        title="SDCF: errors over the temperature, denoised and not",
        legend="Mean and deviation over splits.  The paper was not available, so no printed figure is compared.",
        columns=[
            ("algorithm", "{.algorithm}"),
            ("temperature", lambda row: "-" if row.temperature is None else f"{row.temperature:g}"),
            ("MAE", errors("mae")),
            ("RMSE", errors("rmse")),
        ],
        verdict=_compare_denoised,
        draw=_draw_errors,
    ),
    PARTIES: party_study(
        "SDCF: attacks of the parties",
        "First split only.  claimed: pairs of a user and an item that the attack claims are rated; true: share of\n"
        "them that are rated; base: the same share of all pairs that the server receives; recall: share of the rated\n"
        "pairs that are claimed; stars: share of these with the exact rating inferred.  The membership attack knows a\n"
        "user's ratings and the released model; it has an AUC alone.",
    ),
}


def sdcf_table(folds: Folds, table: str, **options: Any) -> Report:
    """Compute errors of SDCF, its denoised form and FedRec, or attacks that infer ratings.

    Parameters
    ----------
    folds : sequence of tuple of Interactions
        Pairs (train, test) with ratings as values, for example from `evaluation.KFold`.
    table : {"temperature", "parties"}
        "temperature": MAE and RMSE.  "parties": the attacks of `fastfedrec.attacks` on the messages of the last rounds
        of the first split, and a membership attack.
    **options : object
        Options of `RunOptions`; no figure depends on `n_threads`.  `quick`: one split.

    Returns
    -------
    Report
        The table.  `rows` have `algorithm`, `temperature` (None for a baseline), and `mae` and `rmse` of each split; or
        `algorithm`, `attack` and the figures of the attack.

    References
    ----------
    .. [1] Jiang, Li, Lin, "Towards a more reliable privacy-preserving recommender system", Information Sciences 482,
       2019.
    """
    check_choice("table", table, tuple(STUDIES))
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.KFold", quick=how.quick or table == PARTIES)
    settings = fold_settings(folds) | {"n_rounds": N_ROUNDS}
    if table == PARTIES:
        models, attack = _attacked_runs(), _attack_run
    else:
        models, attack = _models(), None
    rows = system_rows(f"sdcf-{table}", models, settings, folds, attack, N_RECORDED, how)
    return Report(STUDIES[table], describe_folds(folds), settings, table=table, rows=rows)


def _models() -> dict[str, tuple[dict[str, Any], Any]]:
    rows: list[tuple[str, float | None, Any]] = []
    for temperature in TEMPERATURES:
        # With `filling="none"`, messages have rated items alone.
        options: dict[str, Any] = {"temperature": temperature, "n_rounds": N_ROUNDS}
        rows += [
            (_PLAIN, temperature, SDCF(**options)),
            (_DENOISED, temperature, SDCF(True, **options)),
            (_RATED_ONLY, temperature, SDCF(filling="none", **options)),
        ]
    rows += [("FedRec, rho 0", None, FedRec(0, n_rounds=N_ROUNDS)), ("BiasedMF", None, BiasedMF())]
    return {f"{name}-{t}": ({"algorithm": name, "temperature": t}, model) for name, t, model in rows}


def _attacked_runs() -> dict[str, tuple[dict[str, Any], Any]]:
    models = {
        _PLAIN: SDCF(n_rounds=N_ROUNDS),
        f"{_DENOISED}, published": SDCF(True, sharing="published", n_rounds=N_ROUNDS),
        f"{_DENOISED}, additive": SDCF(True, n_rounds=N_ROUNDS),
    }
    return {f"{name}-{model.temperature}": ({"algorithm": name}, model) for name, model in models.items()}


def _attack_run(name: str, model: SDCF, train: Interactions, how: RunOptions) -> list[dict[str, Any]]:
    key, recorded_rounds = Key.from_seed(0), range(model.n_rounds - N_RECORDED, model.n_rounds)
    model.fit(train, key=key, n_threads=how.n_threads, record_views=recorded_rounds)
    rows = attack_rows(name, run_attacks(model.records_, train, grid=model.grid))
    # The membership attack fits further models, so it receives an unfitted copy.
    return [*rows, membership_row(name, SDCF(**model.get_params()), train, key, how.n_threads)]


refuse_old_names(
    __name__,
    SDCFTable="studies.report.Report",
    TemperatureRow="studies.report.Record",
    PartyRow="studies.report.Record",
)
