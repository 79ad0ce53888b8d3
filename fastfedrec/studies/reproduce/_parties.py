"""Tables of a system: attacks of its parties on messages and on the released model, and prediction errors."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.files import Case, file_name, measure_cases
from fastfedrec.studies.membership.attack import membership_loss
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import Folds, errors_case, mae_and_rmse
from fastfedrec.systems.fedrec.attacks import AttackResult, RatingResult

PARTIES = "parties"  # the table of that name
# Shares of the claimed pairs that are rated, of all pairs that are rated, and of the rated pairs that are claimed, and
# share of these with the exact rating inferred; None if the attack has no such figure.
_SHARES = ("true", "base", "recall", "stars")


def attack_rows(name: str, results: Iterable[AttackResult]) -> list[dict[str, Any]]:
    """Return the rows of attacks on received messages, as JSON values."""
    rows = []
    for result in results:
        stars = result.rating_recall if isinstance(result, RatingResult) else math.nan
        shares = {"true": result.precision, "base": result.base_rate, "recall": result.recall, "stars": stars}
        # JSON has no NaN, so missing figures are None.
        figures = {
            field: None if math.isnan(value) else value for field, value in (shares | {"auc": result.auc}).items()
        }
        claimed = int((result.claims > 0).sum())  # number of pairs of user and item that the attack claims are rated
        rows.append({"algorithm": name, "attack": result.attack, "claimed": claimed, **figures})
    return rows


def membership_row(name: str, model: Any, data: Interactions, key: Key, n_threads: int) -> dict[str, Any]:
    """Return the row of a membership attack on the released model, as JSON values."""
    # The number of replicates is the minimum, because the intervals are not shown.
    member = membership_loss(model, data, loss="squared", key=key, n_threads=n_threads, n_bootstrap=100)
    empty = dict.fromkeys(("claimed", *_SHARES))
    return {"algorithm": name, "attack": "membership by losses, the public", **empty, "auc": member.auc.value}


def system_rows(
    prefix: str,
    models: Mapping[str, tuple[dict[str, Any], Any]],
    settings: dict[str, Any],
    folds: Folds,
    attack: Callable[..., list[dict[str, Any]]] | None,
    n_recorded: int,
    how: RunOptions,
) -> tuple[Record, ...]:
    """Return the rows of attacks on each model, or without `attack` of its errors with the given fields."""
    cases = {}
    train, _ = folds[0]
    for label, (fields, model) in models.items():
        file = file_name(f"{prefix}-{label}")
        case_settings = settings | {"model": repr(model), "recorded": n_recorded}
        cases[label] = (
            errors_case(file, case_settings, model, folds, how)
            if attack is None
            else Case(file, case_settings, functools.partial(attack, *fields.values(), model, train, how))
        )
    measured = measure_cases(cases, how, prefix, "model")
    if attack is not None:
        return tuple(Record(**row) for attacks in measured.values() for row in attacks)
    return tuple(Record(**models[label][0], **mae_and_rmse(figures)) for label, figures in measured.items())


def party_study(title: str, legend: str) -> Study:
    """Return the form of the table of a system."""
    shares = [(name, lambda row, name=name: _format(getattr(row, name), ".1%")) for name in _SHARES]
    claimed, auc = (lambda row: _format(row.claimed, ",")), (lambda row: _format(row.auc, ".3f"))
    columns = [("run", "{.algorithm}"), ("attack", "{.attack}"), ("claimed", claimed), *shares, ("AUC", auc)]
    return Study(title, legend, columns, _strongest_attack, _draw)


def _format(figure: float | None, spec: str) -> str:
    return "-" if figure is None else format(figure, spec)


def _strongest_attack(table: Report) -> str:
    best = max((row for row in table.rows if row.auc is not None), key=lambda row: row.auc)
    return f"The strongest attack is {best.attack}, on {best.algorithm}: AUC {best.auc:.3f}."


def _draw(table: Report, figure: Any) -> None:
    """Draw the AUC of each attack."""
    figure.set_size_inches(9, 5)
    panel = figure.subplots()
    names = [f"{row.algorithm}: {row.attack}" for row in table.rows]
    panel.plot([math.nan if row.auc is None else row.auc for row in table.rows], names, "o")
    # The dashed line is chance.
    panel.axvline(0.5, color="black", linestyle="--", linewidth=1)
    panel.set(xlabel="AUC", xlim=(0.35, 1.02))
    panel.set_title(table.title, fontsize="small")
