"""Plots of metrics with their intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.core.figures import new_figure

__all__ = ["draw_intervals"]

_INCHES_PER_ROW = 0.45


def draw_intervals(
    names: Sequence[str],
    values: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    label: str,
    ax: Any = None,
) -> Any:
    """Draw a point and its interval for each name, the first at the top; a NaN interval has no line.

    Without `ax` the plot is on a new figure.  The return value is the matplotlib Axes.
    """
    if ax is None:
        figure = new_figure("plot()", figsize=(7, 1.2 + _INCHES_PER_ROW * len(names)))
        ax = figure.subplots()
    points, bounds = np.asarray(values, dtype=np.float64), np.asarray(intervals, dtype=np.float64).reshape(-1, 2)
    # A bootstrap interval may exclude its point, and lengths of error bars must not be negative.
    lengths = np.nan_to_num(np.abs(np.column_stack([points - bounds[:, 0], bounds[:, 1] - points]))).T
    rows = np.arange(len(names))
    ax.errorbar(points, rows, xerr=lengths, fmt="o", color="C0", markersize=5, capsize=3)
    ax.set_yticks(rows, names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(label)
    ax.set_ylabel("model")
    ax.grid(axis="x", alpha=0.3)
    return ax
