"""Names of metrics, such as "ndcg@10", and their parser."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastfedrec.core.old_names import OldAttribute, refuse_old_names

__all__ = ["RATING_METRICS", "WITHOUT_CUTOFF", "WITH_CUTOFF", "Metric", "parse_metrics"]

#: Kinds that can have a cut-off; "ndcg", "map" and "mrr" are also defined without one.
WITH_CUTOFF = ("recall", "precision", "hit", "hr", "ndcg", "map", "mrr", "coverage", "gini")
#: Kinds that can have no cut-off.
WITHOUT_CUTOFF = ("ndcg", "map", "mrr", "auc", "mpr", "rmse", "mae")
#: Kinds that compare predicted with true ratings.
RATING_METRICS = ("rmse", "mae")
#: Kinds that are computed from the lists of all users, not as means over users.
LIST_METRICS = ("coverage", "gini")
#: Kinds with the best value at the minimum.
LESS_IS_BETTER = ("rmse", "mae", "mpr", "gini")

KNOWN = "recall@K, precision@K, hit@K (or hr@K), ndcg@K, map@K, mrr@K, auc, mpr, coverage@K, gini@K, rmse, mae"

# Maximum cut-off: the maximum number of items, which are indexed by int32.
_MAX_CUTOFF = 2**31 - 1
_NAME = re.compile(rf"({'|'.join(WITH_CUTOFF)})@([1-9][0-9]{{0,18}})|({'|'.join(WITHOUT_CUTOFF)})", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """A metric with its optional cut-off.

    Parameters
    ----------
    name : str
        Name as the caller wrote it.
    kind : str
        Kind in lower case, without the cut-off; "hit" for "hr".
    cutoff : int or None
        Number of top ranks that count; None for all.
    """

    name: str
    kind: str
    cutoff: int | None = None

    is_of_ratings = OldAttribute("is_rating_metric")
    is_of_lists = OldAttribute("is_list_metric")

    @property
    def is_rating_metric(self) -> bool:
        """Check whether the metric compares predicted with true ratings.

        Returns
        -------
        bool
            True for "rmse" and "mae".
        """
        return self.kind in RATING_METRICS

    @property
    def less_is_better(self) -> bool:
        """Check whether the best model has the lowest value.

        Returns
        -------
        bool
            True for "rmse", "mae", "mpr" and "gini".
        """
        return self.kind in LESS_IS_BETTER

    @property
    def is_list_metric(self) -> bool:
        """Check whether the metric is computed from the lists of all users combined.

        Returns
        -------
        bool
            True for "coverage" and "gini".
        """
        return self.kind in LIST_METRICS


def parse_metrics(metrics: Sequence[str] | Iterable[str]) -> list[Metric]:
    """Parse names of metrics.

    Parameters
    ----------
    metrics : sequence of str
        Names as for `evaluation.evaluate`; upper and lower case are equivalent.

    Returns
    -------
    list of Metric
        Metrics in the same order, without duplicates.

    Raises
    ------
    ValueError
        A metric is unknown, or there is none.

    Examples
    --------
    >>> from fastfedrec.evaluation.metrics.names import parse_metrics
    >>> parse_metrics(["NDCG@10", "hr@5", "auc"])
    [Metric(name='NDCG@10', kind='ndcg', cutoff=10), Metric(name='hr@5', kind='hit', cutoff=5),
     Metric(name='auc', kind='auc', cutoff=None)]
    """
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a sequence of names, got the string {metrics!r}; pass [{metrics!r}]")
    if not isinstance(metrics, Iterable):
        raise TypeError(f"metrics must be a sequence of names, got {metrics!r}; known: {KNOWN}")
    names = list(dict.fromkeys(metrics))
    if not names:
        raise ValueError(f"metrics must name at least one metric, got none; known: {KNOWN}")
    return [_parse(name) for name in names]


def _parse(name: str) -> Metric:
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    cutoff = int(match[2]) if match and match[2] else None
    if match is None or (cutoff or 0) > _MAX_CUTOFF:
        raise ValueError(f"unknown metric {name!r}; known: {KNOWN} (K a whole number from 1 to {_MAX_CUTOFF})")
    kind = (match[1] or match[3]).lower()
    return Metric(name, "hit" if kind == "hr" else kind, cutoff)


refuse_old_names(__name__, OF_RATINGS="RATING_METRICS")
