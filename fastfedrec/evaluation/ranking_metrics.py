"""Ranking metrics of any model that scores pairs; `evaluate` is the entry to these, and to the errors of `ratings`."""

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from fastfedrec.compute.ranking import held_out_ranks, held_out_ranks_factors, sample_unseen
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.rating_metrics import RATING_METRICS, evaluate_ratings


def evaluate(
    model: Any,
    train: Interactions,
    test: Interactions,
    *,
    metrics: Sequence[str] = ("hr@10", "ndcg@10"),
    n_negatives: int | None = 99,
    key: Key | None = None,
    batch_size: int = 2**18,
    n_threads: int = 0,
) -> dict[str, float]:
    """Rank every test interaction among items its user has never seen, and average the metrics.

    rank = 1 + items scored higher + half of the items scored the same, so a constant model ranks in the middle.

    Parameters
    ----------
    model : object
        Anything with ``score(user_ids, item_ids)``: external ids, two arrays of one length, one score for each pair.
        Where scores are inner products, ``factors(user_ids, item_ids)`` may return the two arrays of factors, a row
        for each id: ranks are then computed from them (`ranking.held_out_ranks_factors`), which is faster, and
        ``score`` is not called.
    train, test : Interactions
        Same users and items, as a `Splitter` makes them of one data set.
    metrics : sequence of str
        ``"hr@K"`` (rank <= K), ``"ndcg@K"`` (1 / log2(1 + rank) where rank <= K, else 0) and ``"mrr"`` (1 / rank), for
        any K of at least 1, in either case.  Or, of a model that predicts ratings, ``"rmse"`` and ``"mae"`` alone: then
        nothing is ranked, and this is `evaluate_ratings`.
    n_negatives : int or None
        Items to rank against, drawn uniformly from those that are neither in `train` nor in `test` for the user; None
        ranks against all of them.  A user with fewer is ranked against all there are, and one with none is left out;
        one warning counts both.
    key : Key or None
        Source of the negatives; None draws a new entropy key.  Pass one key to compare models: under two keys they are
        ranked against different negatives.
    batch_size : int
        Pairs in one call of ``score``, exceeded only where a single user has more.  The result does not depend on it.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    dict of str to float
        Each metric under the name that was asked for, in that order.  A mean over test interactions: a user with
        several counts several times, each ranked against the same negatives.

    Raises
    ------
    ValueError
        Different users or items, an empty test, an unknown metric, or scores that are NaN or of the wrong shape.

    Warns
    -----
    UserWarning
        Users with fewer unseen items than `n_negatives`.

    References
    ----------
    .. [1] He et al., "Neural collaborative filtering", WWW 2017: the protocol with 99 negatives.
    .. [2] Krichene and Rendle, "On sampled metrics for item recommendation", KDD 2020: sampled metrics can order models
       differently than exact ones; use ``n_negatives=None`` where that matters.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import LeaveOneOut, evaluate
    >>> data = Interactions.from_arrays([1, 1, 2, 2, 3, 3], [10, 11, 10, 12, 10, 13])
    >>> train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    >>> class LowIdsFirst:
    ...     def score(self, user_ids, item_ids):
    ...         return -item_ids
    >>> evaluate(LowIdsFirst(), train, test, metrics=["hr@1", "mrr"], n_negatives=None)
    {'hr@1': 0.6666666666666666, 'mrr': 0.8333333333333334}
    """
    if not isinstance(metrics, str):
        metrics = list(metrics)
        if metrics and all(name in list(RATING_METRICS) for name in metrics):
            return evaluate_ratings(model, test, metrics=metrics, batch_size=batch_size)
    if not callable(getattr(model, "score", None)):
        raise TypeError(f"model must have a method score(user_ids, item_ids), {type(model).__name__} has none")
    check_instance("train", train, Interactions, "use evaluation.LeaveOneOut")
    check_instance("test", test, Interactions, "use evaluation.LeaveOneOut")
    _check_same_axes(train, test)
    functions = parse_metrics(metrics)
    wanted = None if n_negatives is None else check_integer("n_negatives", n_negatives, low=1)
    batch_size = check_integer("batch_size", batch_size, low=1)
    key = resolve_key(key)
    if not test.n_interactions:
        raise ValueError("test has no interactions; LeaveOneOut tests only users with at least 2")
    seen = _union(train, test)
    unseen = seen.n_items - seen.interactions_per_user()
    test = _drop_unrankable(test, unseen, wanted)
    n = seen.n_items if wanted is None else min(wanted, seen.n_items)
    users = np.flatnonzero(test.interactions_per_user())
    pairs = np.cumsum(test.interactions_per_user()[users] + n)
    factors = _factors(model, seen, users)
    ranks = []
    start = done = 0
    while start < len(users):
        stop = max(start + 1, int(np.searchsorted(pairs, done + batch_size, side="right")))
        batch = users[start:stop]
        items, counts = sample_unseen(seen, batch, n, key=key, purpose="evaluation.negatives", n_threads=n_threads)
        places = np.repeat(np.arange(len(batch)), test.interactions_per_user()[batch])
        held_out = test.indices[test.indptr[batch[0]] : test.indptr[batch[-1] + 1]]
        if factors is None:
            ranks.append(_ranks_of_scores(model, seen, batch, held_out, items, counts, places, n_threads))
        else:
            ranks.append(
                held_out_ranks_factors(
                    factors[0][start:stop], factors[1], held_out, items, counts, rows=places, n_threads=n_threads
                )
            )
        start, done = stop, int(pairs[stop - 1])
    all_ranks = np.concatenate(ranks)
    return {name: float(function(all_ranks).mean()) for name, function in functions.items()}


def _factors(model: Any, seen: Interactions, users: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors of these users and of all items, from a model that gives them."""
    if not callable(getattr(model, "factors", None)):
        return None
    user_factors, item_factors = (np.asarray(part) for part in model.factors(seen.user_ids[users], seen.item_ids))
    for part, length, what in ((user_factors, len(users), "user"), (item_factors, seen.n_items, "item")):
        if part.ndim != 2 or len(part) != length:
            raise ValueError(
                f"{type(model).__name__}.factors must return a row for each {what} id, shape ({length}, n_factors), "
                f"got {part.shape}"
            )
    return user_factors, item_factors


def _ranks_of_scores(
    model: Any,
    seen: Interactions,
    users: np.ndarray,
    held_out: np.ndarray,
    items: np.ndarray,
    counts: np.ndarray,
    places: np.ndarray,
    n_threads: int,
) -> np.ndarray:
    """Ranks of held-out items (each in the row of `users` that `places` says) among `items`, -1 where there is none."""
    drawn = items >= 0
    scores = _scores(
        model, seen, np.concatenate([users[places], np.repeat(users, counts)]), np.concatenate([held_out, items[drawn]])
    )
    others = np.zeros(items.shape, dtype=scores.dtype)
    others[drawn] = scores[len(held_out) :]
    return held_out_ranks(scores[: len(held_out)], others, counts, rows=places, n_threads=n_threads)


def _scores(model: Any, seen: Interactions, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    name = type(model).__name__
    scores = np.asarray(model.score(seen.user_ids[rows], seen.item_ids[columns]))
    if scores.shape != rows.shape:
        raise ValueError(f"{name}.score must return one score a pair, shape {rows.shape}, got {scores.shape}")
    if scores.dtype.kind not in "fiub":
        raise TypeError(f"{name}.score must return real numbers, got dtype {scores.dtype}")
    if (bad := np.flatnonzero(np.isnan(scores))).size:
        user, item = seen.user_ids[rows[bad[:1]]].tolist()[0], seen.item_ids[columns[bad[:1]]].tolist()[0]
        raise ValueError(
            f"{name}.score returned NaN for {bad.size} of {scores.size} pairs, the first for user {user!r} and item "
            f"{item!r}; has the model diverged?"
        )
    return scores if scores.dtype == np.float32 else scores.astype(np.float64, copy=False)


def _check_same_axes(train: Interactions, test: Interactions) -> None:
    for axis, ours, theirs in (
        ("users", train.user_ids, test.user_ids),
        ("items", train.item_ids, test.item_ids),
    ):
        if len(ours) != len(theirs):
            detail = f"got {len(ours)} and {len(theirs)}"
        elif not np.array_equal(ours, theirs):
            detail = f"got {len(ours)} in both but with other ids or in another order"
        else:
            continue
        raise ValueError(f"train and test must have the same {axis}, {detail}; use LeaveOneOut or RandomHoldout")


def _union(train: Interactions, test: Interactions) -> Interactions:
    """Everything a user has in either part."""

    def ones(part):  # the sum of two matrices drops explicit zeros
        values = np.ones(part.n_interactions, dtype=np.int8)
        return scipy.sparse.csr_array((values, part.indices, part.indptr), shape=part.shape)

    union = ones(train) + ones(test)
    union.sort_indices()
    return train._replace(indptr=union.indptr, indices=union.indices, values=None, timestamps=None)


def _drop_unrankable(test: Interactions, unseen: np.ndarray, wanted: int | None) -> Interactions:
    """Drop tested users who have seen every item, and warn of them and of users with too few unseen items."""
    tested = test.interactions_per_user() > 0
    n_none = int((tested & (unseen == 0)).sum())
    n_few = n_none if wanted is None else int((tested & (unseen < wanted)).sum())
    if n_none == tested.sum():
        raise ValueError("every tested user has seen every item, so there is nothing to rank against")
    if n_few:
        few = "have no unseen item" if wanted is None else f"have fewer than n_negatives={wanted} unseen items"
        warnings.warn(
            f"{n_few} of {tested.sum()} tested users {few}: {n_few - n_none} are ranked against all they have, "
            f"{n_none} have none and are left out",
            UserWarning,
            stacklevel=3,
        )
    return test.keep_interactions(np.repeat(unseen > 0, test.interactions_per_user()))


def parse_metrics(metrics: Sequence[str]) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Turn names of metrics into functions from ranks to one number each.

    Parameters
    ----------
    metrics : sequence of str
        As for `evaluate`.

    Returns
    -------
    dict of str to callable
        In the same order.

    Raises
    ------
    ValueError
        A metric that is not known.
    """
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a sequence of names, got the string {metrics!r}; pass [{metrics!r}]")
    functions = {name: _parse_metric(name) for name in metrics}
    if not functions:
        raise ValueError("metrics must name at least one metric, got none; known: hr@K, ndcg@K, mrr")
    return functions


def _parse_metric(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from ranks to one number each."""
    found = re.fullmatch(r"(?i:mrr|(hr|ndcg)@([1-9][0-9]*))", name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"unknown metric {name!r}; known: hr@K, ndcg@K (K a whole number of at least 1), mrr")
    if found[1] is None:
        return lambda ranks: 1.0 / ranks
    cutoff = int(found[2])
    if found[1].lower() == "hr":
        return lambda ranks: ranks <= cutoff
    return lambda ranks: np.where(ranks <= cutoff, 1.0 / np.log2(1.0 + ranks), 0.0)
