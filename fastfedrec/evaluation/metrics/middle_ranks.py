"""Metrics of test items that are each ranked in a separate list, where an item gets the mean rank of its ties.

This is the protocol of `Sampled(n, per="interaction")` and of `evaluation.new_users`: the rank is 1 + number of items
with a higher score + half the number of items with the same score.  With one test item, recall and hit rate are equal,
and so are MAP and MRR.
"""

import numpy as np
from numpy.typing import NDArray

from fastfedrec.evaluation.metrics.names import Metric

__all__ = ["values_of_ranks"]


def values_of_ranks(metric: Metric, ranks: np.ndarray, n_others: np.ndarray | None = None) -> NDArray[np.float64]:
    """Return a metric of each item by its rank from 1; AUC and MPR need `n_others`, the number of other items."""
    if metric.kind in ("auc", "mpr") and n_others is not None:
        # The percentile rank is the share of other items above, and AUC is the share below; ties count one half.
        with np.errstate(invalid="ignore"):
            above = (ranks - 1) / n_others
        return above if metric.kind == "mpr" else 1 - above
    within = np.ones(len(ranks), dtype=bool) if metric.cutoff is None else ranks <= metric.cutoff
    if metric.kind in ("recall", "hit"):
        return within.astype(np.float64)
    if metric.kind == "precision" and metric.cutoff is not None:
        return within / metric.cutoff
    if metric.kind == "ndcg":
        return np.where(within, 1.0 / np.log2(1.0 + ranks), 0.0)
    if metric.kind in ("map", "mrr"):
        return np.where(within, 1.0 / ranks, 0.0)
    raise ValueError(f"metric {metric.name!r} is not defined for single ranked items; use hit@K, ndcg@K or mrr")
