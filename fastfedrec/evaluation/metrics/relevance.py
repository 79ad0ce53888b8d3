"""Relevant test interactions, aligned with train, and the inputs by which results are comparable."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfedrec.core.arrays import exceed
from fastfedrec.core.check import check_real
from fastfedrec.core.interface import choose_words
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, align
from fastfedrec.evaluation.metrics.names import OWN, Metric

__all__ = ["align_relevant", "comparable_parts"]


def align_relevant(
    train: Interactions,
    test: Interactions,
    given: Interactions | None,
    threshold: float | None,
    *,
    has_rankings: bool = True,
    has_ratings: bool = False,
) -> Aligned:
    """Align the relevant test interactions with train and given; rankings and ratings are the kinds of metrics."""
    relevant = _relevant(test, threshold, is_alone=not has_ratings) if has_rankings else test
    # A rating of a seen pair can still be predicted, but a seen item cannot be ranked among the unseen ones.
    aligned = align(train, relevant, given, keep_seen=not has_rankings)
    # `align` saw only relevant interactions: the irrelevant ones, and users with no other, are added to the counts.
    if n_dropped := test.n_interactions - relevant.n_interactions:
        n_users = int(
            np.count_nonzero(test.interactions_per_user()) - np.count_nonzero(relevant.interactions_per_user())
        )
        dropped = aligned.dropped | {"users": aligned.dropped["users"] + n_users, "not_relevant": n_dropped}
        aligned = replace(aligned, dropped=dropped)
    return aligned


def _relevant(test: Interactions, threshold: float | None, *, is_alone: bool) -> Interactions:
    """Return the relevant test interactions; `is_alone` states that no metric is of ratings."""
    values = test.values_or_ones()
    lowest = float(values.min(initial=1.0))
    advice = (
        choose_words("pass threshold=0", "add --binarize 0") + " so that values above 0 are relevant, or a higher one"
    )
    if threshold is not None:
        threshold = check_real("threshold", threshold, low=0.0)
    elif lowest < 0:
        raise ValueError(f"test must hold values of at least 0 where items are ranked, got {lowest:g}; {advice}")
    mask = exceed(values, threshold or 0.0)
    if not is_alone and not mask.all():
        raise ValueError(
            f"metrics of rankings and of ratings must be evaluated separately if some test items are not relevant, got "
            f"{np.count_nonzero(~mask)} irrelevant of {len(mask)}; call evaluate once for each kind"
        )
    return test._keep(mask)


def comparable_parts(aligned: Aligned, metrics: Sequence[Metric]) -> dict[str, Any]:
    """Return the inputs that must be equal for two results to be comparable."""
    # Values matter only to metrics that may use them: RMSE, MAE, the mean percentile rank and functions.
    uses_values = any(metric.is_rating_metric or metric.kind in ("mpr", OWN) for metric in metrics)
    values = [aligned.values] if uses_values else []
    unseen = len(aligned.item_ids) - np.diff(aligned.seen[0])
    return {"test interactions": [*aligned.test, *values], "unseen items": unseen}
