"""Values of metrics by user, from ranks of test items, from lists, or by a function."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import plain_array
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned
from fastfedrec.evaluation.metrics.beyond_accuracy import LIST_FUNCTIONS
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.ranking import TopLists
from fastfedrec.evaluation.metrics.rankings import Rankings
from fastfedrec.evaluation.metrics.user_values import UserValues

__all__ = ["metric_values"]


class Places(Protocol):
    """Ranks of test items, such as `Placement`."""

    @property
    def mean_ranks(self) -> NDArray[np.float64]:
        """Mean rank of each test item over all orders of tied items, from 1."""

    @property
    def n_ranked(self) -> NDArray[np.int64]:
        """Number of ranked items of each user."""

    def values(self, metric: Metric) -> tuple[NDArray[np.float64], np.ndarray | None]:
        """Return a metric by user, and the weights of its mean or None."""


def metric_values(
    train: Interactions,
    aligned: Aligned,
    placement: Places | None,
    lists: TopLists | None,
    metrics: Sequence[Metric],
) -> dict[str, UserValues | float]:
    """Return the values of all metrics but coverage and Gini; None stands for an input that no metric needs."""
    values: dict[str, UserValues | float] = {}
    if placement is not None:
        indptr, items = aligned.test
        users = np.repeat(np.arange(aligned.n_users), np.diff(indptr))
        ranks = placement.mean_ranks
        rankings = Rankings(train, aligned.user_ids, users, items, ranks, aligned.values, placement.n_ranked, lists)
        for metric in metrics:
            if metric.function is not None:
                values[metric.name] = apply_function(metric, rankings)
            elif not metric.is_list_metric:
                values[metric.name] = UserValues(*placement.values(metric))
    if lists is not None:
        for metric in metrics:
            if metric.kind in LIST_FUNCTIONS and metric.cutoff is not None:
                by_user = LIST_FUNCTIONS[metric.kind](lists.top(metric.cutoff), train)
                values[metric.name] = UserValues.of_defined(by_user)
    return values


def apply_function(metric: Metric, rankings: Rankings) -> UserValues | float:
    """Return the metric that a function computes: a value for each user, where NaN is undefined, or one number."""
    assert metric.function is not None
    returned = metric.function(rankings)
    if returned is None:
        raise TypeError(f"metric {metric.name!r} must return real numbers, got None; does its function end in return?")
    values = plain_array(metric.name, returned)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"metric {metric.name!r} must return real numbers, got dtype {values.dtype}")
    if values.shape not in ((), (rankings.n_users,)):
        raise ValueError(
            f"metric {metric.name!r} must return a value for each user, shape {(rankings.n_users,)}, or one number, "
            f"got shape {values.shape}; rankings.mean_by_user takes a value for each test interaction"
        )
    values = values.astype(np.float64)
    if np.isinf(values).any():
        raise ValueError(f"metric {metric.name!r} returned an infinite value; return NaN where it is undefined")
    if values.ndim == 0:
        return float(values)
    return UserValues.of_defined(values)
