"""Test items among sampled ones, the protocol of `Sampled`: their places, or values of single ranked items."""

import warnings
from collections.abc import Iterator

import numpy as np
import scipy

from fastfedrec.compute.places import places
from fastfedrec.compute.ranking import held_out_places_factors, held_out_ranks, held_out_ranks_factors, sample_unseen
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, take_rows
from fastfedrec.evaluation.metrics.middle_ranks import values_of_ranks
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.results import UserValues
from fastfedrec.evaluation.metrics.scoring import Factors, ask_factors, ask_pairs, knows
from fastfedrec.evaluation.metrics.serving import Part
from fastfedrec.evaluation.metrics.set_metrics import Placement

__all__ = ["drop_unrankable", "place_among_sampled", "values_by_interaction"]


def drop_unrankable(aligned: Aligned, parts: list[Part], wanted: int) -> tuple[Aligned, list[Part]]:
    """Leave out users who have seen every item, and warn of them and of users with fewer unseen ones than wanted."""
    unseen = _unseen(aligned)
    n_none, n_few = int((unseen == 0).sum()), int((unseen < wanted).sum())
    if n_none == aligned.n_users:
        raise ValueError("every tested user has seen every item, so there is nothing to rank against")
    if n_few:
        warnings.warn(
            f"{n_few} of {aligned.n_users} tested users have fewer than candidates={wanted} unseen items: "
            f"{n_few - n_none} are ranked against all they have, {n_none} have none and are left out",
            UserWarning,
            stacklevel=3,
        )
    if not n_none:
        return aligned, parts
    kept = unseen > 0
    place = np.cumsum(kept) - 1
    return aligned.take(kept), [Part(part.model, place[part.users[kept[part.users]]]) for part in parts]


def _unseen(aligned: Aligned) -> np.ndarray:
    """Items that each user has neither seen nor is tested by; test and seen have none in common."""
    return len(aligned.item_ids) - np.diff(aligned.seen[0]) - np.diff(aligned.test[0])


def _everything(aligned: Aligned) -> Interactions:
    """All that a user has, as what items are drawn from."""

    def ones(rows):
        return scipy.sparse.csr_array((np.ones(len(rows[1]), dtype=np.int8), rows[1], rows[0]), shape=aligned.shape)

    both = ones(aligned.seen) + ones(aligned.test)
    both.sort_indices()
    indptr, indices = both.indptr.astype(np.int64), both.indices.astype(np.int32)
    return Interactions(indptr, indices, None, None, aligned.user_ids, aligned.item_ids, aligned.global_user_ids)


class _Batch:
    """Some users of one part: their test items, and those that were drawn."""

    def __init__(self, aligned: Aligned, part: Part, users: np.ndarray, known: np.ndarray, factors: Factors | None):
        self.aligned, self.part, self.users, self.known, self.factors = aligned, part, users, known, factors
        self.entries, (self.indptr, self.held_out) = take_rows(aligned.test, users)
        self.rows = np.repeat(np.arange(len(users)), np.diff(self.indptr))

    def draw(self, everything: Interactions, n: int, key: Key, n_threads: int) -> None:
        self.items, self.counts = sample_unseen(
            everything, self.users, n, key=key, purpose="evaluation.negatives", n_threads=n_threads
        )

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the test items, and of the drawn ones: (n_users, n), 0 where there is none."""
        drawn = self.items >= 0
        rows = np.concatenate([self.rows, np.repeat(np.arange(len(self.users)), self.counts)])
        columns = np.concatenate([self.held_out, self.items[drawn]])
        ids, asked = self.aligned.user_ids[self.users], self.known[columns]
        scores = ask_pairs(self.part.model, ids[rows[asked]], self.aligned.item_ids[columns[asked]])
        found = np.full(len(columns), -np.inf, dtype=scores.dtype)  # behind all that the model knows
        found[asked] = scores
        others = np.zeros(self.items.shape, dtype=found.dtype)
        others[drawn] = found[len(self.held_out) :]
        return found[: len(self.held_out)], others


def _batches(
    aligned: Aligned, parts: list[Part], n: int, key: Key, batch_size: int, n_threads: int
) -> Iterator[_Batch]:
    everything = _everything(aligned)
    n = min(n, len(aligned.item_ids))
    for part in parts:
        pairs = np.cumsum(np.diff(aligned.test[0])[part.users] + n)
        known = knows(part.model, "item", aligned.item_ids)
        factors = ask_factors(part.model, aligned.user_ids[part.users], aligned.item_ids) if known.all() else None
        start = done = 0
        while start < len(part.users):
            stop = max(start + 1, int(np.searchsorted(pairs, done + batch_size, side="right")))
            own = None if factors is None else (factors[0][start:stop], factors[1])
            batch = _Batch(aligned, part, part.users[start:stop], known, own)
            batch.draw(everything, n, key, n_threads)
            yield batch
            start, done = stop, int(pairs[stop - 1])


def place_among_sampled(
    aligned: Aligned, parts: list[Part], n: int, key: Key, batch_size: int, n_threads: int
) -> Placement:
    """Where each test item stands in its user's list of test items and drawn ones."""
    above, same = (np.empty(len(aligned.values), dtype=np.int64) for _ in range(2))
    n_ranked = np.empty(aligned.n_users, dtype=np.int64)
    for batch in _batches(aligned, parts, n, key, batch_size, n_threads):
        if batch.factors is None:
            found = _places_by_scores(batch, n_threads)
        else:
            found = _places_by_factors(batch, batch.factors, n_threads)
        above[batch.entries], same[batch.entries] = found
        n_ranked[batch.users] = batch.counts + np.diff(batch.indptr)
    return Placement(aligned.test[0], above, same, n_ranked, aligned.values)


def _places_by_factors(batch: _Batch, factors: Factors, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Above and same of each test item among the drawn ones, and among the user's test items."""
    lengths = np.diff(batch.indptr)
    own = np.full((len(lengths), int(lengths.max())), -1, dtype=np.int32)
    own[batch.rows, np.arange(len(batch.rows)) - np.repeat(batch.indptr[:-1], lengths)] = batch.held_out
    (above, same), (above_own, same_own) = (
        held_out_places_factors(*factors, batch.held_out, others, counts, rows=batch.rows, n_threads=n_threads)
        for others, counts in ((batch.items, batch.counts), (own, lengths))
    )
    return above + above_own, same + same_own - 2  # each counts the item itself, and `own` has it once more


def _places_by_scores(batch: _Batch, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The same in the user's whole list of scores."""
    lengths = np.diff(batch.indptr)
    own, others = batch.scores()
    n_drawn = others.shape[1]
    place = np.arange(len(own)) - np.repeat(batch.indptr[:-1], lengths) + n_drawn
    scores = np.zeros((len(lengths), n_drawn + int(lengths.max())), dtype=own.dtype)
    scores[:, :n_drawn] = others
    scores[batch.rows, place] = own
    columns = np.arange(scores.shape[1])
    empty = (columns >= batch.counts[:, None]) & (columns < n_drawn) | (columns >= n_drawn + lengths[:, None])
    nowhere = np.concatenate([[0], np.cumsum(empty.sum(axis=1))]), np.nonzero(empty)[1].astype(np.int32)
    return places(scores, (batch.indptr, place.astype(np.int32)), seen=nowhere, n_threads=n_threads)


def values_by_interaction(
    aligned: Aligned,
    parts: list[Part],
    metrics: list[Metric],
    n: int,
    key: Key,
    batch_size: int,
    n_threads: int,
) -> dict[str, UserValues]:
    """Metrics of test items that are each ranked among the drawn ones alone: means over test interactions."""
    ranks = np.empty(len(aligned.values))
    n_others = np.empty(len(aligned.values), dtype=np.int64)
    for batch in _batches(aligned, parts, n, key, batch_size, n_threads):
        if batch.factors is None:
            own, others = batch.scores()
            found = held_out_ranks(own, others, batch.counts, rows=batch.rows, n_threads=n_threads)
        else:
            found = held_out_ranks_factors(
                *batch.factors, batch.held_out, batch.items, batch.counts, rows=batch.rows, n_threads=n_threads
            )
        ranks[batch.entries], n_others[batch.entries] = found, batch.counts[batch.rows]
    counts = np.diff(aligned.test[0])
    weights = None if (counts == 1).all() else counts.astype(np.float64)
    found_values = {metric.name: values_of_ranks(metric, ranks, n_others) for metric in metrics}
    return {
        name: UserValues(values if weights is None else np.add.reduceat(values, aligned.test[0][:-1]) / counts, weights)
        for name, values in found_values.items()
    }
