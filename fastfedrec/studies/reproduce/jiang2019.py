"""SDCF (Jiang, Li, Lin 2019): errors over the temperature with and without denoising, and attacks of the parties."""

import functools
import statistics
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
from fastfedrec.systems.fedrec.attacks import run_attacks
from fastfedrec.systems.fedrec.model import FedRec
from fastfedrec.systems.rating_svd.baselines import BiasedMF
from fastfedrec.systems.sdcf.model import SDCF

__all__ = ["PartyRow", "SDCFTable", "TemperatureRow", "sdcf_table"]

TABLES = ("temperature", PARTIES)
TEMPERATURES = (0.01, 0.1, 1.0)
N_ROUNDS, N_RECORDED = 100, 3  # rounds of a fit, and its last rounds with recorded messages
_PLAIN, _DENOISED, _RATED_ONLY = "SDCF", "SDCF, denoised", "SDCF, rated items alone"
_TITLES = {"temperature": "errors over the temperature, denoised and not", PARTIES: "attacks of the parties"}
_LEGENDS = {
    "temperature": "Mean and deviation over splits.  The paper was not available, so no printed figure is compared.",
    PARTIES: (
        "First split only.  claimed: pairs of a user and an item that the attack claims are rated; true: share of\n"
        "them that are rated; base: the same share of all pairs that the server receives; recall: share of the rated\n"
        "pairs that are claimed; stars: share of these with the exact rating inferred.  The membership attack knows a\n"
        "user's ratings and the released model; it has an AUC alone."
    ),
}


@dataclass(frozen=True)
class TemperatureRow:
    """One model at one temperature.

    Parameters
    ----------
    algorithm : str
        SDCF with denoisers, without denoisers, or with messages of rated items alone; or a baseline.
    temperature : float or None
        Temperature of the Langevin noise; None for a baseline.
    mae, rmse : tuple of float
        Errors of each split.
    """

    algorithm: str
    temperature: float | None
    mae: tuple[float, ...]
    rmse: tuple[float, ...]


@dataclass(frozen=True)
class SDCFTable(SystemTable):
    """A table of SDCF.

    Parameters
    ----------
    source, settings : object
        Parameters of `SideBySide`.
    table : {"temperature", "parties"}
        Name of the table.
    rows : tuple of TemperatureRow or of PartyRow
        Rows by model.
    """

    _system, _titles, _legends = "SDCF", _TITLES, _LEGENDS

    def _error_verdict(self) -> str:
        errors = {(row.algorithm, row.temperature): (row.mae, row.rmse) for row in self.rows}
        # Errors are compared bit for bit.
        is_equal = all(
            errors[_DENOISED, temperature] == errors[_RATED_ONLY, temperature] for temperature in TEMPERATURES
        )
        return (
            f"Denoised, errors are {'' if is_equal else 'NOT '}equal to the errors of sending rated items alone, to "
            "the last digit, in every split."
        )

    def _draw_errors(self, panel: Any) -> None:
        for algorithm in dict.fromkeys(row.algorithm for row in self.rows):
            rows = [row for row in self.rows if row.algorithm == algorithm]
            means = [statistics.fmean(row.rmse) for row in rows]
            if rows[0].temperature is None:
                panel.axhline(means[0], label=algorithm, linestyle="--")
            else:
                panel.plot([row.temperature for row in rows], means, "o-", label=algorithm)
        panel.set(xscale="log", xlabel="temperature", ylabel="RMSE")
        panel.legend(fontsize="small")

    def _error_rows(self) -> tuple[list[str], list[list[str]]]:
        return ["algorithm", "temperature", "MAE", "RMSE"], [
            [
                row.algorithm,
                "-" if row.temperature is None else f"{row.temperature:g}",
                *(mean_and_deviation(values, "{:.4f}", " +- {:.4f}") for values in (row.mae, row.rmse)),
            ]
            for row in self.rows
        ]


def sdcf_table(folds: Folds, table: str, **options: Any) -> SDCFTable:
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
    SDCFTable
        The table, with the figures of every split.

    References
    ----------
    .. [1] Jiang, Li, Lin, "Towards a more reliable privacy-preserving recommender system", Information Sciences 482,
       2019.
    """
    check_choice("table", table, TABLES)
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.KFold", quick=how.quick or table == PARTIES)
    settings = fold_settings(folds) | {"n_rounds": N_ROUNDS}
    rows: list[Any] = []
    first, _ = folds[0]
    cases = _attacked_runs() if table == PARTIES else _models()
    for name, temperature, model in track_progress(cases, how, f"Table {table}", "model"):
        part_settings = settings | {"model": repr(model), "recorded": N_RECORDED}
        # The name of the stored file, which has the temperature of the model.
        part = f"sdcf-{table}-{name}-{temperature}".replace(" ", "-").replace(",", "")
        if table == PARTIES:
            attack: Callable[[], Any] = functools.partial(_attack_run, name, model, first, how)
            rows += [PartyRow(**row) for row in run_or_load(how.folder, part, part_settings, attack)]
        else:
            mae, rmse = run_or_load_errors(part, part_settings, model, folds, how)
            rows.append(TemperatureRow(name, temperature, mae, rmse))
    return SDCFTable(describe_folds(folds), settings, table, tuple(rows))


def _models() -> list[tuple[str, float | None, Any]]:
    rows: list[tuple[str, float | None, Any]] = []
    for temperature in TEMPERATURES:
        # With `filling="none"`, messages have rated items alone.
        options: dict[str, Any] = {"temperature": temperature, "n_rounds": N_ROUNDS}
        rows += [
            (_PLAIN, temperature, SDCF(**options)),
            (_DENOISED, temperature, SDCF(True, **options)),
            (_RATED_ONLY, temperature, SDCF(filling="none", **options)),
        ]
    return [*rows, ("FedRec, rho 0", None, FedRec(0, n_rounds=N_ROUNDS)), ("BiasedMF", None, BiasedMF())]


def _attacked_runs() -> list[tuple[str, float | None, Any]]:
    return [
        (_PLAIN, 1.0, SDCF(n_rounds=N_ROUNDS)),
        (f"{_DENOISED}, published", 1.0, SDCF(True, sharing="published", n_rounds=N_ROUNDS)),
        (f"{_DENOISED}, additive", 1.0, SDCF(True, n_rounds=N_ROUNDS)),
    ]


def _attack_run(name: str, model: SDCF, train: Interactions, how: RunOptions) -> list[dict[str, Any]]:
    key, recorded_rounds = Key.from_seed(0), range(model.n_rounds - N_RECORDED, model.n_rounds)
    model.fit(train, key=key, n_threads=how.n_threads, record_views=recorded_rounds)
    rows = attack_rows(name, run_attacks(model.records_, train, grid=model.grid))
    # The membership attack fits further models, so it receives an unfitted copy.
    return [*rows, membership_row(name, SDCF(**model.get_params()), train, key, how.n_threads)]
