"""Ranks of test items among all unseen items, metrics of all users' lists, and errors of predicted ratings."""

from collections.abc import Iterable, Iterator

import numpy as np

from fastfedrec.compute.ranking import recommend_factors, top_k
from fastfedrec.compute.ranks import rank_counts, rank_counts_factors
from fastfedrec.evaluation.metrics.alignment import Aligned, Rows, take_rows
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.scoring import Factors, call_factors, is_known, rows_of_scores
from fastfedrec.evaluation.metrics.serving import Part
from fastfedrec.evaluation.metrics.set_metrics import Placement
from fastfedrec.evaluation.rating_metrics import predict_errors

__all__ = ["count_metrics", "errors_of", "list_blocks", "place_all"]

# Maximum number of pairs of several users in a call of `score`.  A simple `score` searches the pairs of each user in
# all pairs of the call, so its time grows with users x pairs.
MAX_PAIRS = 2**16


def blocks_of_scores(
    aligned: Aligned, parts: list[Part], batch_size: int
) -> Iterator[tuple[np.ndarray, Factors | np.ndarray]]:
    """Yield blocks of user rows, with either factors of users and items or scores of all items."""
    for part in parts:
        ids = aligned.user_ids[part.users]
        if is_known(part.model, "item", aligned.item_ids).all():
            factors = call_factors(part.model, ids, aligned.item_ids)
            if factors is not None:
                yield part.users, factors
                continue
        # Without factors, scores are computed for blocks of users that fit into `batch_size` scores.
        scores = rows_of_scores(part.model, aligned.item_ids)
        if not callable(getattr(part.model, "score_items", None)):
            batch_size = min(batch_size, MAX_PAIRS)
        step = max(1, batch_size // max(len(aligned.item_ids), 1))
        for start in range(0, len(ids), step):
            yield part.users[start : start + step], scores(ids[start : start + step])


def place_all(aligned: Aligned, parts: list[Part], batch_size: int, n_threads: int) -> Placement:
    """Return the placement of each test item among all items that its user has not seen."""
    above, same = (np.empty(len(aligned.values), dtype=np.int64) for _ in range(2))
    for users, block in blocks_of_scores(aligned, parts, batch_size):
        (entries, test), (_, seen) = _rows(aligned.test, users), _rows(aligned.seen, users)
        if isinstance(block, tuple):
            above[entries], same[entries] = rank_counts_factors(*block, test, seen=seen, n_threads=n_threads)
        else:
            above[entries], same[entries] = rank_counts(block, test, seen=seen, n_threads=n_threads)
    n_ranked = len(aligned.item_ids) - np.diff(aligned.seen[0])
    return Placement(aligned.test[0], above, same, n_ranked, aligned.values)


def _rows(rows: Rows, users: np.ndarray) -> tuple[np.ndarray | slice, Rows]:
    return (slice(None), rows) if len(users) == len(rows[0]) - 1 else take_rows(rows, users)


def list_blocks(
    aligned: Aligned, parts: list[Part], k: int, batch_size: int, n_threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of user rows with the first k items, -1 after the last one; ties go to the earlier item."""
    n_items = len(aligned.item_ids)
    k = min(k, n_items)
    lengths = n_items - np.diff(aligned.seen[0])
    for users, block in blocks_of_scores(aligned, parts, batch_size):
        _, seen = _rows(aligned.seen, users)
        if isinstance(block, tuple):
            items, _ = recommend_factors(*block, k, seen=seen, n_threads=n_threads)
        else:  # seen items rank as -inf: an unseen item with this score is raised above them
            items, _ = top_k(np.maximum(block, np.finfo(block.dtype).min), k, seen=seen, n_threads=n_threads)
        # A user with fewer unseen items than k has a shorter list.
        yield users, np.where(np.arange(k) < lengths[users][:, None], items, -1)


def count_metrics(metrics: list[Metric], n_items: int, blocks: Iterable[np.ndarray]) -> dict[str, float]:
    """Return coverage and Gini from blocks of all users' lists, at least as long as each cut-off."""
    cutoffs = {metric.name: min(metric.cutoff or n_items, n_items) for metric in metrics}
    counts = {cutoff: np.zeros(n_items, dtype=np.int64) for cutoff in cutoffs.values()}
    for lists in blocks:
        for cutoff, count in counts.items():
            top = lists[:, :cutoff]
            count += np.bincount(top[top >= 0], minlength=n_items)
    functions = {"coverage": lambda count: float((count > 0).mean()), "gini": gini}
    return {metric.name: functions[metric.kind](counts[cutoffs[metric.name]]) for metric in metrics}


def gini(counts: np.ndarray) -> float:
    """Return Gini's coefficient of counts: 0 if all are equal, 1 - 1 / n if one has all, NaN if all are 0."""
    # With ascending counts c_i: sum of (2 i - n - 1) c_i over i from 1 to n, divided by n sum c_i.
    counts = np.sort(np.asarray(counts, dtype=np.float64))
    n, total = len(counts), counts.sum()
    return float(((2 * np.arange(1, n + 1) - n - 1) * counts).sum() / (n * total)) if total else float("nan")


def errors_of(aligned: Aligned, parts: list[Part], batch_size: int) -> np.ndarray:
    """Return the predicted minus the true rating of each test interaction."""
    errors = np.empty(len(aligned.values))
    for part in parts:
        entries, (indptr, columns) = _rows(aligned.test, part.users)
        users = np.repeat(aligned.user_ids[part.users], np.diff(indptr))
        errors[entries] = predict_errors(
            part.model, users, aligned.item_ids[columns], aligned.values[entries], batch_size
        )
    return errors
