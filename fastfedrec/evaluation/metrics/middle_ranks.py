"""Metrics of single items that are each ranked in a list of their own, by the middle of the places that a tie has.

That is the protocol of `Sampled(n, per="interaction")` and of `evaluation.new_users`: rank = 1 + items scored higher +
half of the items scored the same.  With one test item, recall and hit rate are one, and so are MAP and MRR.
"""

import numpy as np
from numpy.typing import NDArray

from fastfedrec.evaluation.metrics.names import Metric

__all__ = ["values_of_ranks"]


def values_of_ranks(metric: Metric, ranks: np.ndarray, n_others: np.ndarray | None = None) -> NDArray[np.float64]:
    """A metric of each ranked item.

    Parameters
    ----------
    metric : Metric
        Of rankings.
    ranks : ndarray of shape (n,), float64
        From 1, the best.
    n_others : ndarray of shape (n,), int, or None
        Items that each was ranked against, which AUC and the percentile rank need.

    Returns
    -------
    ndarray of shape (n,), float64
        0 beyond the cut-off.

    Raises
    ------
    ValueError
        A metric that these ranks do not tell.
    """
    if metric.kind in ("auc", "mpr") and n_others is not None:
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
    raise ValueError(f"metric {metric.name!r} is not one of single ranked items; take hit@K, ndcg@K or mrr")
