"""The sweeps that come with the package, and what they say around a question."""

import functools
import json
import statistics
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fastfedrec.evaluation.metrics.resampling import share_error

METRIC = "hr@10"
RANDOM = 0.1  # HR@10 of a random list, among 100 items: noisy popularity may be worse than none
_FILE = "advice.json"  # written by `studies.advise.grid`

Row = dict[str, Any]


@functools.cache
def stored_sweeps() -> dict[str, Any]:
    """The sweeps that come with the package.

    Returns
    -------
    dict
        As `fastfedrec sweep --advice` writes them.
    """
    return json.loads(resources.files(__package__).joinpath(_FILE).read_text())


def range_of(rows: Sequence[Row], name: str) -> tuple[float, float]:
    """The least and the largest that was measured of a public number."""
    known = {row["target" if name == "epsilon" else name] for row in rows}
    return min(known), max(known)


def around(rows: Sequence[Row], name: str, value: float | None) -> list[Any]:
    """The measured values next below and above; all of them where it is not known."""
    known = sorted({row[name] for row in rows})
    if value is None:
        return known
    return sorted({max(v for v in known if v <= value), min(v for v in known if v >= value)})


def above(rows: Sequence[Row], name: str, value: float) -> float:
    """The measured value next above, or the largest."""
    known = {row[name] for row in rows}
    return min((v for v in known if v >= value), default=max(known))


def best_below(rows: Sequence[Row], system: str | None, n_users: float, epsilon: float) -> Any:
    """The best measurement of a system (None: of popularity) with no more users and no larger epsilon, if any."""
    below = [
        row
        for row in rows
        if (row["is_popularity"] if system is None else row["system"] == system)
        and row["n_users"] <= n_users
        and row["target"] <= epsilon * (1 + 1e-9)
    ]
    return max(below, key=mean, default=None)


def mean(row: Row) -> float:
    """Over seeds."""
    return statistics.fmean(row["metrics"][METRIC])


def error(row: Row) -> float:
    """Standard error of that mean."""
    return share_error(row["metrics"][METRIC], row["n_tested"])


def without_privacy(rows: Sequence[Row], n_items: int, row_length: float | None) -> list[str]:
    """What could be had by trusting everybody, around the question."""
    open_rows = [
        row
        for row in rows
        if row["trust"] is None
        and row["n_items"] in around(rows, "n_items", n_items)
        and row["row_length"] in around(rows, "row_length", row_length)
    ]
    values: dict[str, list[float]] = {}
    for row in open_rows:
        values.setdefault(row["system"], []).append(mean(row))
    told = [f"{system} {min(found):.3f} to {max(found):.3f}" for system, found in values.items()]
    return [f"without any privacy, around here: {'; '.join(told)}"] if told else []
