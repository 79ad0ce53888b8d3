"""SDCF (Jiang, Li, Lin 2019): errors over the temperature, denoised and not, and what the parties find out."""

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
    each,
    kept_errors,
    mean_and_deviation,
    settings_of,
)
from fastfedrec.studies.reproduce.side_by_side import RunOptions, kept
from fastfedrec.systems.fedrec.attacks import run_attacks
from fastfedrec.systems.fedrec.model import FedRec
from fastfedrec.systems.rating_svd.baselines import BiasedMF
from fastfedrec.systems.sdcf.model import SDCF

__all__ = ["PartyRow", "SDCFTable", "TemperatureRow", "sdcf_table"]

TABLES = ("temperature", PARTIES)
TEMPERATURES = (0.01, 0.1, 1.0)
N_ROUNDS, N_RECORDED = 100, 3
_PLAIN, _DENOISED, _BARE = "SDCF", "SDCF, denoised", "SDCF, rated items alone"
_TITLES = {"temperature": "errors over the temperature, denoised and not", PARTIES: "what the parties find out"}
_LEGENDS = {
    "temperature": "Mean and deviation over splits.  The paper is not at hand: no printed figure stands beside them.",
    PARTIES: (
        "Of the first split.  claimed: pairs of a user and an item said to be rated; true: so many of them are;\n"
        "base: of all pairs that the server hears of; recall: of the rated ones; stars: of these, told exactly.\n"
        "Membership knows a user's ratings and the released model; it has an AUC alone."
    ),
}


@dataclass(frozen=True)
class TemperatureRow:
    """One model at one temperature.

    Parameters
    ----------
    algorithm : str
        SDCF with denoisers, without, or sending rated items alone; or a baseline.
    temperature : float or None
        None for a baseline.
    mae, rmse : tuple of float
        One a split.
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
        As for `SideBySide`.
    table : {"temperature", "parties"}
        Which one.
    rows : tuple of TemperatureRow or of PartyRow
        By model.
    """

    _system, _titles, _legends = "SDCF", _TITLES, _LEGENDS

    def _errors_say(self) -> str:
        by_place = {(row.algorithm, row.temperature): (row.mae, row.rmse) for row in self.rows}
        same = all(by_place[_DENOISED, heat] == by_place[_BARE, heat] for heat in TEMPERATURES)
        return (
            f"Denoised, errors are {'' if same else 'NOT '}those of sending rated items alone, to the last digit, in "
            "every split."
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
    """Compute errors of SDCF beside its denoised form and FedRec, or what is found out about ratings.

    Parameters
    ----------
    folds : sequence of tuple of Interactions
        (train, test) with ratings as values, as from `evaluation.KFold`.
    table : {"temperature", "parties"}
        "temperature": MAE and RMSE.  "parties": the attacks of `fastfedrec.attacks` on the first split, on what was
        sent in the last rounds, and membership.
    **options : object
        As for `RunOptions`; no figure depends on `n_threads`.  `quick`: one split.

    Returns
    -------
    SDCFTable
        With every split's figures.

    References
    ----------
    .. [1] Jiang, Li, Lin, "Towards a more reliable privacy-preserving recommender system", Information Sciences 482,
       2019.
    """
    check_choice("table", table, TABLES)
    how = RunOptions(**options)
    folds = check_folds(folds, "use evaluation.KFold", quick=how.quick or table == PARTIES)
    settings = settings_of(folds) | {"n_rounds": N_ROUNDS}
    rows: list[Any] = []
    first, _ = folds[0]
    cases = _runs() if table == PARTIES else _models()
    for name, heat, model in each(cases, how, f"Table {table}", "model"):
        place = settings | {"model": repr(model), "recorded": N_RECORDED}
        part = f"sdcf-{table}-{name}-{heat}".replace(" ", "-").replace(",", "")
        if table == PARTIES:
            attack: Callable[[], Any] = functools.partial(_attacked, name, model, first, how)
            rows += [PartyRow(**row) for row in kept(how.folder, part, place, attack)]
        else:
            mae, rmse = kept_errors(part, place, model, folds, how)
            rows.append(TemperatureRow(name, heat, mae, rmse))
    return SDCFTable(describe_folds(folds), settings, table, tuple(rows))


def _models() -> list[tuple[str, float | None, Any]]:
    rows: list[tuple[str, float | None, Any]] = []
    for heat in TEMPERATURES:
        options: dict[str, Any] = {"temperature": heat, "n_rounds": N_ROUNDS}
        rows += [
            (_PLAIN, heat, SDCF(**options)),
            (_DENOISED, heat, SDCF(True, **options)),
            (_BARE, heat, SDCF(filling="none", **options)),
        ]
    return [*rows, ("FedRec, rho 0", None, FedRec(0, n_rounds=N_ROUNDS)), ("BiasedMF", None, BiasedMF())]


def _runs() -> list[tuple[str, float | None, Any]]:
    return [
        (_PLAIN, 1.0, SDCF(n_rounds=N_ROUNDS)),
        (f"{_DENOISED}, published", 1.0, SDCF(True, sharing="published", n_rounds=N_ROUNDS)),
        (f"{_DENOISED}, additive", 1.0, SDCF(True, n_rounds=N_ROUNDS)),
    ]


def _attacked(name: str, model: SDCF, train: Interactions, how: RunOptions) -> list[dict[str, Any]]:
    key, last = Key.from_seed(0), range(model.n_rounds - N_RECORDED, model.n_rounds)
    model.fit(train, key=key, n_threads=how.n_threads, record_views=last)
    rows = attack_rows(name, run_attacks(model.records_, train, grid=model.grid))
    return [*rows, membership_row(name, SDCF(**model.get_params()), train, key, how.n_threads)]
