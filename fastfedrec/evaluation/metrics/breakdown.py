"""Figures by item, and the groups of users for figures by group."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.conversion import columns_by_name, is_frame
from fastfedrec.data.ids import IdIndex, column_array, id_at, is_missing
from fastfedrec.evaluation.metrics.alignment import Aligned
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.set_metrics import Placement

__all__ = ["item_columns", "item_errors", "item_values", "rows_of_groups"]


def item_values(placement: Placement, metrics: Sequence[Metric], items: np.ndarray) -> dict[str, NDArray[np.float64]]:
    """Return metrics by item: means over its test interactions, each of which counts as a user with one test item."""
    indptr, n_ranked = np.arange(len(items) + 1), np.repeat(placement.n_ranked, np.diff(placement.indptr))
    alone = Placement(indptr, placement.above, placement.same, n_ranked, placement.weights)
    return {
        metric.name: _means(*alone.values(metric), items)
        for metric in metrics
        if metric.function is None and not metric.is_list_metric
    }


def item_errors(metric: Metric, errors: np.ndarray, items: np.ndarray) -> NDArray[np.float64]:
    """Return RMSE or MAE of the test ratings of each item."""
    return np.sqrt(_means(errors**2, None, items)) if metric.kind == "rmse" else _means(np.abs(errors), None, items)


def _means(values: np.ndarray, weights: np.ndarray | None, items: np.ndarray) -> NDArray[np.float64]:
    """Return weighted means of the values of each tested item, in ascending order of the items."""
    weights = np.ones(len(values)) if weights is None else weights
    totals = np.bincount(items, weights=weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.bincount(items, weights=np.where(weights > 0, weights * values, 0.0)) / totals
    return np.asarray(means[np.unique(items)])


def item_columns(aligned: Aligned, values: Mapping[str, np.ndarray]) -> dict[str, NDArray[Any]]:
    """Return a table of the tested items: id, number of test interactions, and metrics."""
    items, counts = np.unique(aligned.test[1], return_counts=True)
    return {"item": aligned.item_ids[items], "n_test": counts} | dict(values)


def rows_of_groups(groups: Any, user_ids: np.ndarray) -> dict[Any, NDArray[np.int64]]:
    """Return the rows of the users in each group, which a mapping or a frame with the column "user" assigns."""
    if isinstance(groups, Mapping):
        users, names = list(groups), list(groups.values())
    elif is_frame(groups):
        columns = columns_by_name("groups", groups)
        others = [name for name in columns if name != "user"]
        if len(others) != 1 or "user" not in columns:
            raise KeyError(
                f"groups must have the column 'user' and one other, the frame has {list(columns)}; select two"
            )
        users, column = columns["user"], columns[others[0]]
        names = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    else:
        raise TypeError(
            f"groups must be a mapping of user ids to groups, or a frame with the column user and one other, got "
            f"{type(groups).__name__}; pass dict(zip(user_ids, groups))"
        )
    rows = IdIndex("user", user_ids).find(column_array("groups", users))
    group_of: dict[int, Any] = {}
    for row, name in zip(rows.tolist(), names, strict=True):
        if row >= 0 and not is_missing(name) and group_of.setdefault(row, _plain(name)) != name:
            raise ValueError(
                f"groups must assign each user once, got {group_of[row]!r} and {name!r} for {id_at(user_ids, row)!r}; "
                "remove one of the two"
            )
    if missing := [row for row in range(len(user_ids)) if row not in group_of]:
        raise ValueError(
            f"groups must assign every tested user, but {len(missing)} of {len(user_ids)} are missing, the first "
            f"{id_at(user_ids, missing[0])!r}; add them, for example to a group of their own"
        )
    by_group: dict[Any, list[int]] = {}
    for row in range(len(user_ids)):
        by_group.setdefault(group_of[row], []).append(row)
    return {name: np.array(of_group) for name, of_group in sorted(by_group.items(), key=_sort_key)}


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name


def _sort_key(entry: tuple[Any, Any]) -> tuple[str, Any]:
    # Numbers sort by value, and all other groups by their text.
    name = entry[0]
    return ("", name) if isinstance(name, int | float) else (type(name).__name__, str(name))
