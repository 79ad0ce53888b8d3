"""`evaluate`: rank the test items of users, or predict their ratings, and average the metrics."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfedrec.core.arrays import exceed
from fastfedrec.core.check import check_flag, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import check_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.digest import digests
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, align
from fastfedrec.evaluation.metrics.names import Metric, parse_metrics
from fastfedrec.evaluation.metrics.ranking import errors_of, list_metrics, place_all
from fastfedrec.evaluation.metrics.results import Evaluation, UserValues
from fastfedrec.evaluation.metrics.sampled import Sampled
from fastfedrec.evaluation.metrics.sampled_ranking import drop_unrankable, place_among_sampled, values_by_interaction
from fastfedrec.evaluation.metrics.scoring import check_model
from fastfedrec.evaluation.metrics.serving import Part, parts_of
from fastfedrec.evaluation.percentiles import total_weight
from fastfedrec.evaluation.rating_metrics import RATING_METRICS, check_predicts

__all__ = ["evaluate"]


def evaluate(
    model: Any,
    train: InteractionsLike,
    test: InteractionsLike,
    *,
    given: InteractionsLike | None = None,
    metrics: Sequence[str] = ("hr@10", "ndcg@10"),
    threshold: float | None = None,
    candidates: Sampled | None = None,
    per_user: bool = False,
    split: Any = None,
    key: Key | None = None,
    batch_size: int = 2**20,
    n_threads: int = 0,
) -> Evaluation:
    """Rank each user's test items among all items that the user has not seen, and average the metrics over users.

    Parameters
    ----------
    model : object
        Any model of this package; or anything with ``score(user_ids, item_ids)``: external ids, two arrays of one
        length, one score for each pair.  Asked instead, where a model has it: ``factors(user_ids, item_ids)``, whose
        two arrays have a row for each id and whose inner products are the scores, which is the fastest;
        ``score_items(user_ids)``, a row of scores of all items for each user.  An item that a model of this package was
        not fitted on comes behind all others; where ratings are predicted, test interactions with it are dropped.
    train, test : Interactions, matrix or frame
        As `fit` takes them, of any users and items, in any order: they are aligned by their ids.  The items of `train`
        are the catalogue; test interactions with others are dropped, and so are those of users who are in neither
        `train` nor `given`, and those that `train` or `given` has as well, unless all metrics are of ratings.  How many
        is in the result.
    given : Interactions, matrix, frame or None
        What is known of users whom the model was not fitted with: they are ranked as ``model.with_users(given)`` ranks
        them, and what they are given counts as seen.
    metrics : sequence of str
        ``recall@K``, ``precision@K``, ``hit@K`` (``hr@K`` is the same), ``ndcg@K``, ``map@K`` and ``mrr@K``, the last
        three also without a cut-off; ``auc``; ``mpr``, the mean percentile rank; ``coverage@K`` and ``gini@K`` of all
        tested users' lists; ``rmse`` and ``mae`` of a model with ``predict(user_ids, item_ids)``.  In either case.
    threshold : float or None
        Test items with a value above it, at least 0, are relevant; rankings are measured by them alone.  None takes
        all above 0, and refuses a test with values below 0, which are no counts.  Not for metrics of ratings, which
        take every value.
    candidates : Sampled or None
        None ranks against all items that the user has not seen.  `Sampled` ranks against some of them, as some papers
        do.
    per_user : bool
        Keep each user's values in the result and in what is exported of it.
    split : object
        Where train and test came from, such as ``LeaveOneOut()``: its name is kept in the result.
    key : Key or None
        Source of sampled items; None draws a new entropy key.  Pass one key to compare models: under two keys they are
        ranked against different items.  Nothing else is drawn.
    batch_size : int
        Scores held at once, exceeded only where a single user has more.  The result does not depend on it.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    Evaluation
        A mapping of each metric's name, as it was asked for, to its value, with the protocol, what was dropped,
        intervals and tables.

    Raises
    ------
    ValueError
        Nothing is left to test, an unknown metric, values below 0 without a `threshold`, or scores that are NaN or of
        the wrong shape.

    Warns
    -----
    UserWarning
        Users with fewer unseen items than `candidates` asks for.

    See Also
    --------
    compare : Whether the difference of two models is more than chance.

    Notes
    -----
    Formulas of all metrics are on the page "Metrics".  Items with the same score are taken in random order: each metric
    is its mean over all of these orders.  In the lists of coverage and Gini alone, ties go to the earlier item.

    References
    ----------
    .. [1] McSherry and Najork, "Computing information retrieval performance measures efficiently in the presence of
       tied scores", ECIR 2008.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.evaluation import evaluate
    >>> train = Interactions.from_arrays([1, 2, 3, 3], [10, 11, 12, 13])
    >>> test = Interactions.from_arrays([3, 2, 2], [10, 10, 12])
    >>> class LowIdsFirst:
    ...     def score(self, user_ids, item_ids):
    ...         return -item_ids
    >>> result = evaluate(LowIdsFirst(), train, test, metrics=["recall@1", "ndcg@2", "mrr"])
    >>> result["recall@1"], result["mrr"]
    (0.75, 1.0)
    >>> result
    <Evaluation of LowIdsFirst: recall@1 0.7500, ndcg@2 1.0000, mrr 1.0000 (all unseen items, 2 users)>
    """
    asked = parse_metrics(metrics)
    ranking = [metric for metric in asked if not metric.is_of_ratings]
    if ranking:
        check_model(model)
    if len(ranking) < len(asked):
        check_predicts(model)
    train, test = as_interactions("train", train), as_interactions("test", test)
    given = None if given is None else as_interactions("given", given)
    if candidates is not None:
        check_instance("candidates", candidates, Sampled, "use Sampled(99), or None for all unseen items")
        if lists := [metric.name for metric in ranking if metric.is_of_lists]:
            raise ValueError(f"metrics {lists} are of lists out of all unseen items; use candidates=None")
    if key is not None or candidates is not None:
        key = resolve_key(key)
    per_user = check_flag("per_user", per_user)
    batch_size = check_integer("batch_size", batch_size, low=1)
    n_threads = check_n_threads(n_threads)
    if threshold is not None and not ranking:
        raise ValueError(f"threshold is for rankings, and metrics {list(metrics)} are of ratings; leave it out")
    relevant = _relevant(test, threshold, is_alone=len(ranking) == len(asked)) if ranking else test
    aligned = align(train, relevant, given, keep_seen=not ranking)
    if n_dropped := test.n_interactions - relevant.n_interactions:
        n_users = int(
            np.count_nonzero(test.interactions_per_user()) - np.count_nonzero(relevant.interactions_per_user())
        )
        dropped = aligned.dropped | {"users": aligned.dropped["users"] + n_users, "not_relevant": n_dropped}
        aligned = replace(aligned, dropped=dropped)
    aligned, parts = parts_of(model, aligned, given, of_ratings=len(ranking) < len(asked))
    if any(metric.kind == "mpr" for metric in ranking):
        total_weight(aligned.values)
    means: dict[str, float] = {}
    of_users: dict[str, UserValues] = {}
    protocols = []
    if ranking:
        protocols.append("all unseen items" if candidates is None else str(candidates))
        if candidates is not None:
            aligned, parts = drop_unrankable(aligned, parts, candidates.n)
        found = _rank(aligned, parts, ranking, candidates, key, batch_size, n_threads)
        of_users |= {name: values for name, values in found.items() if isinstance(values, UserValues)}
        means |= {name: of.mean if isinstance(of, UserValues) else of for name, of in found.items()}
    if len(ranking) < len(asked):
        protocols.append("predicted ratings")
        errors = errors_of(aligned, parts, batch_size)
        for metric in asked:
            if metric.is_of_ratings:
                means[metric.name] = RATING_METRICS[metric.kind](errors)
                of_users[metric.name] = _of_ratings(metric, errors, aligned.test[0])
    return Evaluation(
        model=type(model).__name__,
        protocol="; ".join(protocols),
        split=split if split is None or isinstance(split, str) else repr(split),
        metrics=tuple(asked),
        n_users=aligned.n_users,
        n_interactions=len(aligned.values),
        dropped=aligned.dropped,
        means={metric.name: means[metric.name] for metric in asked},
        of_users={metric.name: of_users[metric.name] for metric in asked if metric.name in of_users},
        user_ids=aligned.user_ids,
        keeps_users=per_user,
        digests=digests(_what_was_ranked(aligned, asked, None if candidates is None else key)),
    )


def _relevant(test: Interactions, threshold: float | None, *, is_alone: bool) -> Interactions:
    """Return the test interactions that count as hits; `is_alone` if no metric is of ratings."""
    values = test.values_or_ones()
    lowest = float(values.min(initial=1.0))
    remedy = "pass threshold=0 (in a shell --binarize 0) to rank by those above 0, or a higher one"
    if threshold is not None:
        threshold = check_real("threshold", threshold, low=0.0)
    elif lowest < 0:
        raise ValueError(f"test must hold values of at least 0 where items are ranked, got {lowest:g}; {remedy}")
    kept = exceed(values, threshold or 0.0)
    if not is_alone and not kept.all():
        raise ValueError(
            f"metrics of rankings and of ratings must be evaluated apart where some test items are not relevant, got "
            f"{np.count_nonzero(~kept)} of {len(kept)} that are not; call evaluate once for each kind"
        )
    return test._keep(kept)


def _what_was_ranked(aligned: Aligned, metrics: list[Metric], key: Key | None) -> dict[str, Any]:
    """What two results have in common whose models can be compared."""
    values = [aligned.values] if any(metric.is_of_ratings or metric.kind == "mpr" for metric in metrics) else []
    unseen = len(aligned.item_ids) - np.diff(aligned.seen[0])
    parts = {"test interactions": [*aligned.test, *values], "unseen items": unseen}
    return parts if key is None else parts | {"sampled items": key.words("evaluation.negatives.name", size=2)}


def _rank(
    aligned: Aligned,
    parts: list[Part],
    metrics: list[Metric],
    candidates: Sampled | None,
    key: Key | None,
    batch_size: int,
    n_threads: int,
) -> dict[str, UserValues | float]:
    found: dict[str, UserValues | float] = {}
    of_places = [metric for metric in metrics if not metric.is_of_lists]
    if candidates is not None and candidates.per == "interaction":
        return dict(
            values_by_interaction(aligned, parts, of_places, candidates.n, resolve_key(key), batch_size, n_threads)
        )
    if of_places:
        if candidates is None:
            placement = place_all(aligned, parts, batch_size, n_threads)
        else:
            placement = place_among_sampled(aligned, parts, candidates.n, resolve_key(key), batch_size, n_threads)
        found |= {metric.name: UserValues(*placement.values(metric)) for metric in of_places}
    if len(of_places) < len(metrics):
        found |= list_metrics(aligned, parts, [m for m in metrics if m.is_of_lists], batch_size, n_threads)
    return found


def _of_ratings(metric: Metric, errors: np.ndarray, indptr: np.ndarray) -> UserValues:
    sizes = np.abs(errors) if metric.kind == "mae" else errors**2
    counts = np.diff(indptr).astype(np.float64)
    return UserValues(np.add.reduceat(sizes, indptr[:-1]) / counts, counts, is_root=metric.kind == "rmse")
