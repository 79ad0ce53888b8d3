"""The sweeps that come with the package, and their figures for settings near a request."""

import functools
import json
import statistics
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fastfedrec.evaluation.metrics.resampling import share_error

METRIC = "hr@10"
CANDIDATES = "99 sampled unseen items"  # which the metric ranks beside the item of a test
RANDOM = 0.1  # HR@10 of a random list among 100 items; noisy popularity may be worse
_FILE = "advice.json"  # `studies.advise.grid` writes it

Row = dict[str, Any]


@functools.cache
def stored_sweeps() -> dict[str, Any]:
    """Return the sweeps that come with the package, in the format of `fastfedrec sweep --advice`.

    Returns
    -------
    dict
        Rows of measurements, and the source, code, machine, delta and number of threads of the sweeps.
    """
    return json.loads(resources.files(__package__).joinpath(_FILE).read_text())


def range_of(rows: Sequence[Row], name: str) -> tuple[float, float]:
    """Return the smallest and the largest measured value of a public number."""
    known = {row["target" if name == "epsilon" else name] for row in rows}
    return min(known), max(known)


def around(rows: Sequence[Row], name: str, value: float | None) -> list[Any]:
    """Return the nearest measured values below and above a value, or all of them for None."""
    known = sorted({row[name] for row in rows})
    if value is None:
        return known
    return sorted({max(v for v in known if v <= value), min(v for v in known if v >= value)})


def rows_below(rows: Sequence[Row], n_users: float, epsilon: float) -> list[Row]:
    """Return the rows with at most this number of users and this epsilon, which are no easier."""
    return [row for row in rows if row["n_users"] <= n_users and row["target"] <= epsilon * (1 + 1e-9)]


def popularity_beside(rows: Sequence[Row], row: Row) -> Row | None:
    """Return the best private popularity of the same data set at the epsilon of a row, or at a smaller one."""
    here = [other for other in rows if other["is_popularity"] and other["n_users"] == row["n_users"]]
    return max(rows_below(here, row["n_users"], row["target"]), key=mean, default=None)


def mean(row: Row) -> float:
    """Return the mean of the metric over seeds."""
    return statistics.fmean(row["metrics"][METRIC])


def error(row: Row) -> float:
    """Return the standard error of the mean over seeds."""
    return share_error(row["metrics"][METRIC], row["n_tested"])


def without_privacy(rows: Sequence[Row], n_items: int, row_length: float | None) -> list[str]:
    """Return a remark on the figures of systems without privacy at the nearest settings, if there are any."""
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
    ranges = [f"{system} {min(means):.3f} to {max(means):.3f}" for system, means in values.items()]
    return [f"without any privacy, around here: {'; '.join(ranges)}"] if ranges else []
