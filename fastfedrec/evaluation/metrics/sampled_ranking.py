"""Ranks of test items among the candidates of each user: sampled items by `Sampled`, or given ones."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import scipy

from fastfedrec.compute.ranking import (
    held_out_rank_counts_factors,
    held_out_ranks,
    held_out_ranks_factors,
    sample_unseen,
)
from fastfedrec.compute.ranks import rank_counts
from fastfedrec.core.randomness import Key
from fastfedrec.core.warn import warn
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, take_rows
from fastfedrec.evaluation.metrics.middle_ranks import values_of_ranks
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.scoring import Factors, call_factors, is_known, score_pairs, select_scores
from fastfedrec.evaluation.metrics.serving import Part
from fastfedrec.evaluation.metrics.set_metrics import Placement
from fastfedrec.evaluation.metrics.user_values import UserValues

__all__ = ["CandidateItems", "SampledItems", "drop_unrankable", "place_among", "values_by_interaction"]


class CandidateItems(Protocol):
    """Items that each user's test items are ranked against."""

    # Shape (n_users,): the maximum number of items of each user.
    lengths: np.ndarray

    def take(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the items of some users, (n_users, n) padded by -1, and their numbers."""


class SampledItems:
    """A random sample of the items that a user has neither seen nor in the test."""

    def __init__(self, aligned: Aligned, n: int, key: Key, n_threads: int):
        self.lengths = np.full(aligned.n_users, min(n, len(aligned.item_ids)))
        self.excluded, self.key, self.n_threads = _seen_or_tested(aligned), key, n_threads

    def take(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sampled items of some users, (n_users, n) padded by -1, and their numbers."""
        n = int(self.lengths.max(initial=0))
        return sample_unseen(
            self.excluded, users, n, key=self.key, purpose="evaluation.negatives", n_threads=self.n_threads
        )


def drop_unrankable(aligned: Aligned, parts: list[Part], n: int) -> tuple[Aligned, list[Part]]:
    """Drop users who have seen every item, and warn of them and of users with fewer than `n` unseen items."""
    unseen = _unseen(aligned)
    n_none, n_few = int((unseen == 0).sum()), int((unseen < n).sum())
    if n_none == aligned.n_users:
        raise ValueError(
            "every tested user has seen every item, so there is no item to rank against; use a train with unseen items"
        )
    if n_few:
        warn(
            f"{n_few} of {aligned.n_users} tested users have fewer than candidates={n} unseen items: "
            f"{n_few - n_none} are ranked against all their unseen items, {n_none} have none and are dropped",
            UserWarning,
        )
    if not n_none:
        return aligned, parts
    mask = unseen > 0
    new_rows = np.cumsum(mask) - 1  # the row of each remaining user among the remaining users
    return aligned.take(mask), [Part(part.model, new_rows[part.users[mask[part.users]]]) for part in parts]


def _unseen(aligned: Aligned) -> np.ndarray:
    """Return each user's number of items outside seen and test, which are disjoint."""
    return len(aligned.item_ids) - np.diff(aligned.seen[0]) - np.diff(aligned.test[0])


def _seen_or_tested(aligned: Aligned) -> Interactions:
    """Return each user's seen and test items, which the sample excludes."""

    def ones(rows):
        return scipy.sparse.csr_array((np.ones(len(rows[1]), dtype=np.int8), rows[1], rows[0]), shape=aligned.shape)

    both = ones(aligned.seen) + ones(aligned.test)
    both.sort_indices()
    indptr, indices = both.indptr.astype(np.int64), both.indices.astype(np.int32)
    return Interactions(indptr, indices, None, None, aligned.user_ids, aligned.item_ids, aligned.global_user_ids)


class _Batch:
    """Some users of one part, with their test items and their candidates."""

    def __init__(
        self,
        aligned: Aligned,
        part: Part,
        users: np.ndarray,
        candidates: CandidateItems,
        known: np.ndarray,
        factors: Factors | None,
        batch_size: int,
    ):
        self.batch_size = batch_size
        self.aligned, self.part, self.users, self.known, self.factors = aligned, part, users, known, factors
        self.items, self.counts = candidates.take(users)
        self.entries, (self.indptr, self.held_out) = take_rows(aligned.test, users)
        self.rows = np.repeat(np.arange(len(users)), np.diff(self.indptr))

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Return scores of the test items and of the candidates, (n_users, n), padded by 0."""
        drawn = self.items >= 0
        rows = np.concatenate([self.rows, np.repeat(np.arange(len(self.users)), self.counts)])
        columns = np.concatenate([self.held_out, self.items[drawn]])
        scores = self._score(rows, columns)
        sampled_scores = np.zeros(self.items.shape, dtype=scores.dtype)
        sampled_scores[drawn] = scores[len(self.held_out) :]
        return scores[: len(self.held_out)], sampled_scores

    def _score(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the scores of pairs of positions; items that the model was not fitted on rank last."""
        model, ids, item_ids = self.part.model, self.aligned.user_ids[self.users], self.aligned.item_ids
        if not callable(getattr(model, "score", None)) and callable(getattr(model, "score_items", None)):
            return select_scores(model, ids, item_ids, rows, columns, self.batch_size)
        mask = self.known[columns]
        known_scores = score_pairs(model, ids[rows[mask]], item_ids[columns[mask]])
        scores = np.full(len(columns), -np.inf, dtype=known_scores.dtype)
        scores[mask] = known_scores
        return scores


def _batches(aligned: Aligned, parts: list[Part], candidates: CandidateItems, batch_size: int) -> Iterator[_Batch]:
    for part in parts:
        test_ends = np.cumsum(np.diff(aligned.test[0])[part.users])
        lengths = candidates.lengths[part.users]
        known = is_known(part.model, "item", aligned.item_ids)
        factors = call_factors(part.model, aligned.user_ids[part.users], aligned.item_ids) if known.all() else None
        start = done = 0
        # A batch has as many whole users as fit into `batch_size` scores, and at least one.  Candidates are padded to
        # the longest row of the batch.
        while start < len(part.users):
            ahead = slice(start, start + batch_size)
            longest = np.maximum.accumulate(lengths[ahead])
            n_scores = test_ends[ahead] - done + longest * np.arange(1, len(longest) + 1)
            stop = start + max(1, int(np.searchsorted(n_scores, batch_size, side="right")))
            batch_factors = None if factors is None else (factors[0][start:stop], factors[1])
            yield _Batch(aligned, part, part.users[start:stop], candidates, known, batch_factors, batch_size)
            start, done = stop, int(test_ends[stop - 1])


def place_among(
    aligned: Aligned, parts: list[Part], candidates: CandidateItems, batch_size: int, n_threads: int
) -> Placement:
    """Return the placement of each test item in its user's list of test items and candidates."""
    above, same = (np.empty(len(aligned.values), dtype=np.int64) for _ in range(2))
    n_ranked = np.empty(aligned.n_users, dtype=np.int64)
    for batch in _batches(aligned, parts, candidates, batch_size):
        if batch.factors is None:
            above_and_same = _rank_counts_by_scores(batch, n_threads)
        else:
            above_and_same = _rank_counts_by_factors(batch, batch.factors, n_threads)
        above[batch.entries], same[batch.entries] = above_and_same
        n_ranked[batch.users] = batch.counts + np.diff(batch.indptr)
    return Placement(aligned.test[0], above, same, n_ranked, aligned.values)


def _rank_counts_by_factors(batch: _Batch, factors: Factors, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many candidates and test items have a higher, and the same, score as each test item, from factors."""
    lengths = np.diff(batch.indptr)
    # The user's test items as a rectangle that is padded by -1.
    test_items = np.full((len(lengths), int(lengths.max())), -1, dtype=np.int32)
    test_items[batch.rows, np.arange(len(batch.rows)) - np.repeat(batch.indptr[:-1], lengths)] = batch.held_out
    (above, same), (test_above, test_same) = (
        held_out_rank_counts_factors(*factors, batch.held_out, items, counts, rows=batch.rows, n_threads=n_threads)
        for items, counts in ((batch.items, batch.counts), (test_items, lengths))
    )
    # Both calls count the test item itself, and `test_items` has it once more: 3 times, where 1 is due.
    return above + test_above, same + test_same - 2


def _rank_counts_by_scores(batch: _Batch, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many candidates and test items have a higher, and the same, score as each test item, from scores."""
    lengths = np.diff(batch.indptr)
    test_scores, sampled_scores = batch.scores()
    n_drawn = sampled_scores.shape[1]
    # A row has the sampled items' scores first, then the test items' scores.
    positions = np.arange(len(test_scores)) - np.repeat(batch.indptr[:-1], lengths) + n_drawn
    scores = np.zeros((len(lengths), n_drawn + int(lengths.max())), dtype=test_scores.dtype)
    scores[:, :n_drawn] = sampled_scores
    scores[batch.rows, positions] = test_scores
    columns = np.arange(scores.shape[1])
    # Padding is passed as seen, so that it is not ranked.
    is_padding = (columns >= batch.counts[:, None]) & (columns < n_drawn) | (columns >= n_drawn + lengths[:, None])
    padding = np.concatenate([[0], np.cumsum(is_padding.sum(axis=1))]), np.nonzero(is_padding)[1].astype(np.int32)
    return rank_counts(scores, (batch.indptr, positions.astype(np.int32)), seen=padding, n_threads=n_threads)


def values_by_interaction(
    aligned: Aligned,
    parts: list[Part],
    metrics: list[Metric],
    candidates: CandidateItems,
    batch_size: int,
    n_threads: int,
) -> dict[str, UserValues]:
    """Return metrics of test items that are each ranked among the candidates only, as means over interactions."""
    ranks = np.empty(len(aligned.values))
    n_others = np.empty(len(aligned.values), dtype=np.int64)
    for batch in _batches(aligned, parts, candidates, batch_size):
        if batch.factors is None:
            test_scores, sampled_scores = batch.scores()
            block = held_out_ranks(test_scores, sampled_scores, batch.counts, rows=batch.rows, n_threads=n_threads)
        else:
            block = held_out_ranks_factors(
                *batch.factors, batch.held_out, batch.items, batch.counts, rows=batch.rows, n_threads=n_threads
            )
        ranks[batch.entries], n_others[batch.entries] = block, batch.counts[batch.rows]
    # A user's value is the mean over the user's interactions, weighted by their number.
    counts = np.diff(aligned.test[0])
    weights = None if (counts == 1).all() else counts.astype(np.float64)
    metric_values = {metric.name: values_of_ranks(metric, ranks, n_others) for metric in metrics}
    return {
        name: UserValues(values if weights is None else np.add.reduceat(values, aligned.test[0][:-1]) / counts, weights)
        for name, values in metric_values.items()
    }
