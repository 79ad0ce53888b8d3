"""Values of metrics by user, from ranks of test items, from lists, or by a function."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned
from fastfedrec.evaluation.metrics.beyond_accuracy import LIST_FUNCTIONS
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.rankings import Rankings, TopLists, apply_function
from fastfedrec.evaluation.metrics.results import UserValues

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
