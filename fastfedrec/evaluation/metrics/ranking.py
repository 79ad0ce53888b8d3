"""Test items among all unseen ones: their places, the lists of all users together, and errors of predictions."""

from collections.abc import Iterator

import numpy as np

from fastfedrec.compute.places import places, places_factors
from fastfedrec.compute.ranking import recommend_factors, top_k
from fastfedrec.evaluation.metrics.alignment import Aligned, Rows, take_rows
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.scoring import Factors, ask_factors, knows, rows_of_scores
from fastfedrec.evaluation.metrics.serving import Part
from fastfedrec.evaluation.metrics.set_metrics import Placement
from fastfedrec.evaluation.rating_metrics import predict_errors

__all__ = ["errors_of", "list_metrics", "place_all"]


def blocks_of_scores(
    aligned: Aligned, parts: list[Part], batch_size: int
) -> Iterator[tuple[np.ndarray, Factors | np.ndarray]]:
    """Users, as rows of what is aligned, and their factors beside those of items, or their scores of all items."""
    for part in parts:
        ids = aligned.user_ids[part.users]
        if knows(part.model, "item", aligned.item_ids).all():
            factors = ask_factors(part.model, ids, aligned.item_ids)
            if factors is not None:
                yield part.users, factors
                continue
        scores = rows_of_scores(part.model, aligned.item_ids)
        step = max(1, batch_size // max(len(aligned.item_ids), 1))
        for start in range(0, len(ids), step):
            yield part.users[start : start + step], scores(ids[start : start + step])


def place_all(aligned: Aligned, parts: list[Part], batch_size: int, n_threads: int) -> Placement:
    """Where each test item stands among all that its user has not seen."""
    above, same = (np.empty(len(aligned.values), dtype=np.int64) for _ in range(2))
    for users, found in blocks_of_scores(aligned, parts, batch_size):
        (entries, test), (_, seen) = _rows(aligned.test, users), _rows(aligned.seen, users)
        if isinstance(found, tuple):
            above[entries], same[entries] = places_factors(*found, test, seen=seen, n_threads=n_threads)
        else:
            above[entries], same[entries] = places(found, test, seen=seen, n_threads=n_threads)
    n_ranked = len(aligned.item_ids) - np.diff(aligned.seen[0])
    return Placement(aligned.test[0], above, same, n_ranked, aligned.values)


def _rows(rows: Rows, users: np.ndarray) -> tuple[np.ndarray | slice, Rows]:
    return (slice(None), rows) if len(users) == len(rows[0]) - 1 else take_rows(rows, users)


def list_metrics(
    aligned: Aligned, parts: list[Part], metrics: list[Metric], batch_size: int, n_threads: int
) -> dict[str, float]:
    """Coverage and Gini of the lists of all tested users; in a list, ties go to the earlier item."""
    n_items = len(aligned.item_ids)
    cutoffs = {metric.name: min(metric.cutoff or n_items, n_items) for metric in metrics}
    longest = max(cutoffs.values())
    counts = {cutoff: np.zeros(n_items, dtype=np.int64) for cutoff in cutoffs.values()}
    lengths = n_items - np.diff(aligned.seen[0])
    for users, found in blocks_of_scores(aligned, parts, batch_size):
        _, seen = _rows(aligned.seen, users)
        if isinstance(found, tuple):
            items, _ = recommend_factors(*found, longest, seen=seen, n_threads=n_threads)
        else:  # a score of -inf is below all others, but above what is seen
            items, _ = top_k(np.maximum(found, np.finfo(found.dtype).min), longest, seen=seen, n_threads=n_threads)
        for cutoff, count in counts.items():
            is_unseen = np.arange(cutoff) < lengths[users][:, None]
            count += np.bincount(items[:, :cutoff][is_unseen], minlength=n_items)
    functions = {"coverage": lambda count: float((count > 0).mean()), "gini": gini}
    return {metric.name: functions[metric.kind](counts[cutoffs[metric.name]]) for metric in metrics}


def gini(counts: np.ndarray) -> float:
    """Gini's coefficient: 0 where all are equal, 1 - 1 / n where one has everything.

    Parameters
    ----------
    counts : ndarray of shape (n,)
        At least 0.

    Returns
    -------
    float
        NaN where all are 0.

    Examples
    --------
    >>> from fastfedrec.evaluation.metrics.ranking import gini
    >>> gini([2, 2, 2, 2]), gini([0, 0, 0, 8])
    (0.0, 0.75)
    """
    counts = np.sort(np.asarray(counts, dtype=np.float64))
    n, total = len(counts), counts.sum()
    return float(((2 * np.arange(1, n + 1) - n - 1) * counts).sum() / (n * total)) if total else float("nan")


def errors_of(aligned: Aligned, parts: list[Part], batch_size: int) -> np.ndarray:
    """Predicted less given rating of each test interaction."""
    errors = np.empty(len(aligned.values))
    for part in parts:
        entries, (indptr, columns) = _rows(aligned.test, part.users)
        users = np.repeat(aligned.user_ids[part.users], np.diff(indptr))
        errors[entries] = predict_errors(
            part.model, users, aligned.item_ids[columns], aligned.values[entries], batch_size
        )
    return errors
