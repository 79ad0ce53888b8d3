"""Evaluation on new users: a split of users, and rankings of each new user's held-out interactions.

A model is trained on the train users and adapts to each test user with half of that user's data.  For each positive
in the other half it ranks all items that the user has never interacted with.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.ranking import held_out_ranks
from fastfedrec.core.check import check_instance, check_real
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import check_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation.metrics.middle_ranks import values_of_ranks
from fastfedrec.evaluation.metrics.names import parse_metrics
from fastfedrec.evaluation.splits import hold_out

__all__ = ["METRICS", "PersonalizationSplit", "evaluate_personalized", "personalization_split"]

METRICS = tuple(f"{kind}@{k}" for kind in ("hr", "ndcg") for k in (5, 10, 20, 30))
# Number of scores in memory at a time.
_BLOCK_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class PersonalizationSplit:
    """Parts that `personalization_split` returns; every part has all users and all items of the data.

    Parameters
    ----------
    train_users, test_users : ndarray of int64
        Row indices; every user is in exactly one of the two.
    known : Interactions or InteractionLog
        All data of the train users, and half of the data of each test user.
    held_out : Interactions or InteractionLog
        Positives in the other half of each test user's data.
    visited : Interactions
        All interactions, positive or not.
    threshold : float
        Interactions with a value above it are positive.
    """

    train_users: NDArray[np.int64]
    test_users: NDArray[np.int64]
    known: Interactions | InteractionLog
    held_out: Interactions | InteractionLog
    visited: Interactions
    threshold: float

    @property
    def train(self) -> Interactions | InteractionLog:
        """All data of the train users.

        Returns
        -------
        Interactions or InteractionLog
            Rows of the train users only.
        """
        return self.known.select_users(self.train_users)

    @property
    def personal(self) -> Interactions | InteractionLog:
        """Known half of the test users' data, which adapts a model to them.

        Returns
        -------
        Interactions or InteractionLog
            Rows of the test users only.
        """
        return self.known.select_users(self.test_users)

    @property
    def known_positives(self) -> Interactions:
        """Training data for a model without personalisation.

        Returns
        -------
        Interactions
            Positive entries of all users in `known`; counts if the data are a log.
        """
        if isinstance(self.known, InteractionLog):
            return self.known.interactions
        return self.known.binarize(self.threshold)


def personalization_split(
    data: InteractionsLike | InteractionLog, *, threshold: float = 0.0, test_fraction: float = 0.2, key: Key | None
) -> PersonalizationSplit:
    """Draw the test users, and hold out half of the data of each test user.

    Parameters
    ----------
    data : Interactions, InteractionLog, SciPy sparse matrix or array, or frame
        Data to split.  A log is split by its entries, so a user-item pair can be both known and held out.
    threshold : float
        Interactions with a value above it are positive, and so is every entry of a log.  All interactions count as
        visited.
    test_fraction : float
        Share of the users that are tested, in (0, 1), rounded to whole users; each side has at least one user.
    key : Key or None
        Random key of the split; None draws a new entropy key.

    Returns
    -------
    PersonalizationSplit
        Half of each test user's n entries, positive or not, is held out.  n / 2 is rounded up or down at random, and
        at least one entry stays known.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", VLDB Journal
       2021, section 3.3.

    Examples
    --------
    >>> from fastfedrec import Key, datasets
    >>> from fastfedrec.evaluation.new_users import personalization_split
    >>> data = datasets.generate_implicit(50, 40, key=Key.from_seed(1))
    >>> split = personalization_split(data, key=Key.from_seed(1))
    >>> split.personal.n_users, split.known.n_interactions + split.held_out.n_interactions == data.n_interactions
    (10, True)
    """
    data = data if isinstance(data, InteractionLog) else as_interactions("data", data)
    threshold = check_real("threshold", threshold, low=0.0)
    fraction = check_real("test_fraction", test_fraction, low=0.0, high=1.0, exclusive=True)
    key = resolve_key(key)
    visited = data.interactions if isinstance(data, InteractionLog) else data
    if visited.n_users < 2:
        raise ValueError(
            f"data must have at least 2 users, got {visited.n_users}; add users, for one trains and one tests"
        )
    n_test = min(max(round(fraction * visited.n_users), 1), visited.n_users - 1)
    order = key.permutation("personalization.users", size=visited.n_users)
    test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
    is_test = np.zeros(visited.n_users, dtype=bool)
    is_test[test] = True
    known: Interactions | InteractionLog
    held_out: Interactions | InteractionLog
    if isinstance(data, InteractionLog):
        # `hold_out` takes entries sorted by user; the mask is scattered back to the order of the log.
        by_user = np.argsort(data.users, kind="stable")
        ends = np.cumsum(np.bincount(data.users, minlength=visited.n_users))
        mask = np.empty(data.n_entries, dtype=bool)
        mask[by_user] = hold_out(np.concatenate([[0], ends]), visited.global_user_ids, 0.5, key=key)
        mask &= is_test[data.users]
        known, held_out = data.keep_entries(~mask), data.keep_entries(mask)
    else:
        mask = hold_out(data.indptr, data.global_user_ids, 0.5, key=key)
        mask &= np.repeat(is_test, data.interactions_per_user())
        known, held_out = data.keep_interactions(~mask), data.keep_interactions(mask).binarize(threshold)
    return PersonalizationSplit(train, test, known, held_out, visited, threshold)


def evaluate_personalized(
    model: Any, split: PersonalizationSplit, *, metrics: Sequence[str] = METRICS, n_threads: int = 0
) -> dict[str, dict[str, float]]:
    """Rank every held-out positive among all items that its user has never interacted with.

    The rank is 1 + number of items with a higher score + half the number of items with the same score.  Items in
    either half of the user's data, positive or not, are not ranked, except the held-out positive itself.

    Parameters
    ----------
    model : object
        Model with ``score(user_ids, item_ids)``, as for `evaluation.evaluate`, or with
        ``score_items(user_ids, contexts=...)``, which returns a row of scores of all items for each user id.  If the
        split is of a log, `contexts` is a mapping of columns with an entry for each user id.  If a model has both
        methods, `score_items` is called.
    split : PersonalizationSplit
        Split from `personalization_split`.
    metrics : sequence of str
        Names as for `evaluation.evaluate`, limited to metrics of a single item: ``hit@K`` (``hr@K``), ``ndcg@K`` and
        ``mrr`` cover all of them.
    n_threads : int
        Number of threads, 0 for all processors.  The result does not depend on it.

    Returns
    -------
    dict of str to dict of str to float
        "all": each metric, averaged over a user's held-out positives, then over users with at least one.  "new": the
        same, limited to positives with an item that is not in the user's known half; NaN if there are none.

    Raises
    ------
    ValueError
        The split has no held-out positive, or the model's scores are not finite or have the wrong shape.

    Examples
    --------
    >>> from fastfedrec import Key, Popularity, datasets
    >>> from fastfedrec.evaluation.new_users import evaluate_personalized, personalization_split
    >>> data = datasets.generate_implicit(50, 40, key=Key.from_seed(1))
    >>> split = personalization_split(data, key=Key.from_seed(1))
    >>> model = Popularity().fit(split.known_positives, key=Key.from_seed(1))
    >>> 0 < evaluate_personalized(model, split, metrics=["hr@10"])["all"]["hr@10"] < 1
    True
    """
    if not callable(getattr(model, "score_items", None) or getattr(model, "score", None)):
        raise TypeError(f"model must have a method score or score_items, {type(model).__name__} has neither")
    check_instance("split", split, PersonalizationSplit, "use personalization_split")
    parsed = parse_metrics(metrics)
    for metric in parsed:
        values_of_ranks(metric, np.ones(1))  # a metric that single ranks do not define is refused before any work
    n_threads = check_n_threads(n_threads)
    users, items, contexts = _queries(split.held_out)
    if not len(users):
        raise ValueError(
            "split must hold out at least one positive, got none; no test user has two entries of which a positive one "
            "is held out: use more data or a lower threshold"
        )
    visited = split.visited
    ranks = np.empty(len(users))
    step = max(1, _BLOCK_CELLS // visited.n_items)
    # Without contexts a user's scores are the same for all of the user's positives.
    distinct, query = (np.arange(len(users)), np.arange(len(users))) if contexts else _first_of_each(users)
    edges = np.searchsorted(query, np.arange(0, len(distinct) + step, step))
    for number, start in enumerate(range(0, len(distinct), step)):
        chosen = distinct[start : start + step]
        block = slice(edges[number], edges[number + 1])
        rows = query[block] - start
        scores = score_rows(model, visited, users[chosen], {name: column[chosen] for name, column in contexts.items()})
        # The positives' scores are read before all visited items, the positives among them, are set to -inf.
        positive_scores = scores[rows, items[block]]
        lengths = np.diff(visited.indptr)[users[chosen]]
        entries = np.repeat(visited.indptr[users[chosen]] - (np.cumsum(lengths) - lengths), lengths)
        entries += np.arange(len(entries))
        scores[np.repeat(np.arange(len(chosen)), lengths), visited.indices[entries]] = -np.inf  # below all: not ranked
        counts = np.full(len(chosen), visited.n_items)
        ranks[block] = held_out_ranks(positive_scores, scores, counts, rows=rows, n_threads=n_threads)
    known = split.known.interactions if isinstance(split.known, InteractionLog) else split.known
    is_new = ~_has_pair(known, users, items)
    return {
        "all": {m.name: _mean_over_users(users, values_of_ranks(m, ranks)) for m in parsed},
        "new": {m.name: _mean_over_users(users[is_new], values_of_ranks(m, ranks[is_new])) for m in parsed},
    }


def _queries(held_out: Interactions | InteractionLog) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return the user row, item column and context of every held-out positive, sorted by user."""
    if isinstance(held_out, InteractionLog):
        order = np.argsort(held_out.users, kind="stable")
        contexts = {name: column[order] for name, column in held_out.contexts.items()}
        return held_out.users[order], held_out.items[order], contexts
    users = np.repeat(np.arange(held_out.n_users), held_out.interactions_per_user())
    return users, held_out.indices.astype(np.int64), {}


def _first_of_each(users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, first, inverse = np.unique(users, return_index=True, return_inverse=True)
    return first, inverse


def score_rows(
    model: Any, data: Interactions, users: np.ndarray, contexts: Mapping[str, np.ndarray] | None = None
) -> NDArray[np.float64]:
    """Return a model's scores of all items for some users.

    Parameters
    ----------
    model : object
        Model with `score_items` or, if it has none, `score`; see `evaluate_personalized`.
    data : Interactions
        Source of the ids of users and items.
    users : ndarray of int64
        Row indices of `data`.
    contexts : mapping of str to ndarray, or None
        Columns of the context, with an entry for each of `users`.

    Returns
    -------
    ndarray of shape (len(users), n_items), float64
        Finite scores.

    Raises
    ------
    ValueError
        The scores are not finite or have the wrong shape.
    """
    name, ids, shape = type(model).__name__, data.user_ids[users], (len(users), data.n_items)
    if callable(getattr(model, "score_items", None)):
        # Most models take no contexts: they score a user's items alike in all contexts.
        takes_contexts = contexts and "contexts" in inspect.signature(model.score_items).parameters
        answer = np.asarray(model.score_items(ids, contexts=contexts) if takes_contexts else model.score_items(ids))
        if answer.shape != shape:
            raise ValueError(f"{name}.score_items must return shape {shape}, got {answer.shape}")
    else:
        answer = np.asarray(model.score(np.repeat(ids, data.n_items), np.tile(data.item_ids, len(users))))
        if answer.shape != (shape[0] * shape[1],):
            raise ValueError(f"{name}.score must return one score a pair, got shape {answer.shape}")
    scores = answer.reshape(shape).astype(np.float64)
    if not np.isfinite(scores).all():
        user = data.user_ids[users[[int(np.argmin(np.isfinite(scores).all(axis=1)))]]].tolist()[0]
        raise ValueError(f"{name} returned a score that is not finite for user {user!r}; has the model diverged?")
    return scores


def _has_pair(data: Interactions, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    rows = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    # A pair (user, item) is encoded as one integer; stored pairs are sorted, so a binary search finds them.
    stored = rows * data.n_items + data.indices
    codes = users * data.n_items + items
    position = np.searchsorted(stored, codes)
    is_stored = position < len(stored)
    is_stored[is_stored] = stored[position[is_stored]] == codes[is_stored]
    return cast(np.ndarray, is_stored)


def _mean_over_users(users: np.ndarray, values: np.ndarray) -> float:
    if not len(users):
        return float("nan")
    _, row = np.unique(users, return_inverse=True)
    return float((np.bincount(row, weights=values) / np.bincount(row)).mean())
