"""`evaluate`: rank the test items of users, or predict their ratings, and average the metrics."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfedrec.core.arrays import exceed
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_flag, check_instance, check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.interface import choose_words
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import check_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.digest import digests
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, align
from fastfedrec.evaluation.metrics.names import METRICS_PARAMETER, Metric, parse_metrics
from fastfedrec.evaluation.metrics.ranking import errors_of, list_metrics, place_all
from fastfedrec.evaluation.metrics.results import Evaluation, UserValues
from fastfedrec.evaluation.metrics.sampled import Sampled
from fastfedrec.evaluation.metrics.sampled_ranking import drop_unrankable, place_among_sampled, values_by_interaction
from fastfedrec.evaluation.metrics.scoring import check_model
from fastfedrec.evaluation.metrics.serving import Part, parts_of
from fastfedrec.evaluation.percentiles import total_weight
from fastfedrec.evaluation.rating_metrics import RATING_METRICS, check_predicts

__all__ = ["evaluate"]


@explains_calls
@shares_docstring(METRICS_PARAMETER)
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
        Any model of this package, or any object with ``score(user_ids, item_ids)``, which takes two arrays of external
        ids of equal length and returns one score for each pair.  Two other methods take precedence if a model has
        them.  ``factors(user_ids, item_ids)`` is the fastest: it returns two arrays with a row for each id, and the
        inner products are the scores.  ``score_items(user_ids)`` returns a row of scores of all items for each user.
        Items that a model of this package was not fitted on rank last; if ratings are predicted, test interactions
        with them are dropped.
    train, test : Interactions, matrix or frame
        Data as for `fit`, with any users and items in any order; they are aligned by ids.  The items of `train` are
        the catalogue.  Test interactions are dropped if their item is not in the catalogue, or their user is in neither
        `train` nor `given`.  Unless all metrics are of ratings, interactions that are also in `train` or `given` are
        dropped too.  The result has the numbers of dropped interactions.
    given : Interactions, matrix, frame or None
        Interactions of users whom the model was not fitted on.  ``model.with_users(given)`` ranks items for these
        users, and their given interactions count as seen.
    threshold : float or None
        Test items with a value above the threshold, which is at least 0, are relevant; metrics of rankings use only
        relevant items.  None means 0 and refuses a test with values below 0, which cannot be counts.  Metrics of
        ratings use every value and take no threshold.
    candidates : Sampled or None
        None ranks against all items that the user has not seen.  `Sampled` ranks against a random sample of them, as
        some papers do.
    per_user : bool
        Whether to include each user's values in the result and its exports.
    split : object
        Split that made train and test, such as ``LeaveOneOut()``; the result records its name.
    key : Key or None
        Random key of sampled items; None draws a new entropy key.  Use the same key to compare models, since the
        sampled items depend on it.  Without `candidates` the evaluation is deterministic.
    batch_size : int
        Maximum number of scores in memory; a single user may exceed it.  The result does not depend on it.
    n_threads : int
        Number of threads, 0 for all processors.  The result does not depend on it.

    Returns
    -------
    Evaluation
        Mapping of each metric's name, as given in `metrics`, to its value, with the protocol, the numbers of dropped
        interactions, intervals and tables.

    Raises
    ------
    ValueError
        No test interaction remains, a metric is unknown, values are below 0 without a `threshold`, or scores are NaN
        or have the wrong shape.

    Warns
    -----
    UserWarning
        Some users have fewer unseen items than `candidates` samples.

    See Also
    --------
    compare : Tests whether the difference of two models is significant.

    Notes
    -----
    Formulas of all metrics are on the page "Metrics".  Items with the same score are in random order: each metric is
    its mean over all these orders.  Only in the lists of coverage and Gini, ties go to the earlier item.

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
    parsed = parse_metrics(metrics)
    ranking = [metric for metric in parsed if not metric.is_rating_metric]
    if ranking:
        check_model(model)
    if len(ranking) < len(parsed):
        check_predicts(model)
    train, test = as_interactions("train", train), as_interactions("test", test)
    given = None if given is None else as_interactions("given", given)
    if candidates is not None:
        check_instance("candidates", candidates, Sampled, "use Sampled(99), or None for all unseen items")
        if lists := [metric.name for metric in ranking if metric.is_list_metric]:
            raise ValueError(f"metrics {lists} need lists of all unseen items; use candidates=None")
    if key is not None or candidates is not None:
        key = resolve_key(key)
    per_user = check_flag("per_user", per_user)
    batch_size = check_integer("batch_size", batch_size, low=1)
    n_threads = check_n_threads(n_threads)
    if threshold is not None and not ranking:
        raise ValueError(f"threshold applies to rankings, but metrics {list(metrics)} are of ratings; leave it out")
    relevant = _relevant(test, threshold, is_alone=len(ranking) == len(parsed)) if ranking else test
    # A rating of a seen pair can still be predicted, but a seen item cannot be ranked among the unseen ones.
    aligned = align(train, relevant, given, keep_seen=not ranking)
    # `align` saw only relevant interactions: the irrelevant ones, and users with no other, are added to the counts.
    if n_dropped := test.n_interactions - relevant.n_interactions:
        n_users = int(
            np.count_nonzero(test.interactions_per_user()) - np.count_nonzero(relevant.interactions_per_user())
        )
        dropped = aligned.dropped | {"users": aligned.dropped["users"] + n_users, "not_relevant": n_dropped}
        aligned = replace(aligned, dropped=dropped)
    aligned, parts = parts_of(model, aligned, given, of_ratings=len(ranking) < len(parsed))
    # Only the mean percentile rank is weighted by values, so only it needs a sum of values that is a valid divisor.
    if any(metric.kind == "mpr" for metric in ranking):
        total_weight(aligned.values)
    means: dict[str, float] = {}
    user_values: dict[str, UserValues] = {}
    protocols = []
    if ranking:
        protocols.append("all unseen items" if candidates is None else str(candidates))
        if candidates is not None:
            aligned, parts = drop_unrankable(aligned, parts, candidates.n)
        rank_values = _rank(aligned, parts, ranking, candidates, key, batch_size, n_threads)
        user_values |= {name: values for name, values in rank_values.items() if isinstance(values, UserValues)}
        means |= {name: of.mean if isinstance(of, UserValues) else of for name, of in rank_values.items()}
    if len(ranking) < len(parsed):
        protocols.append("predicted ratings")
        errors = errors_of(aligned, parts, batch_size)
        for metric in parsed:
            if metric.is_rating_metric:
                means[metric.name] = RATING_METRICS[metric.kind](errors)
                user_values[metric.name] = _of_ratings(metric, errors, aligned.test[0])
    return Evaluation(
        model=type(model).__name__,
        protocol="; ".join(protocols),
        split=split if split is None or isinstance(split, str) else repr(split),
        metrics=tuple(parsed),
        n_users=aligned.n_users,
        n_interactions=len(aligned.values),
        dropped=aligned.dropped,
        means={metric.name: means[metric.name] for metric in parsed},
        user_values={metric.name: user_values[metric.name] for metric in parsed if metric.name in user_values},
        user_ids=aligned.user_ids,
        keeps_users=per_user,
        digests=digests(_digest_inputs(aligned, parsed, None if candidates is None else key)),
    )


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


def _digest_inputs(aligned: Aligned, metrics: list[Metric], key: Key | None) -> dict[str, Any]:
    """Return the inputs that must be equal for two results to be comparable."""
    # Values matter only to metrics that use them: RMSE, MAE and the mean percentile rank.
    values = [aligned.values] if any(metric.is_rating_metric or metric.kind == "mpr" for metric in metrics) else []
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
    values: dict[str, UserValues | float] = {}
    rank_metrics = [metric for metric in metrics if not metric.is_list_metric]
    if candidates is not None and candidates.per == "interaction":
        return dict(
            values_by_interaction(aligned, parts, rank_metrics, candidates.n, resolve_key(key), batch_size, n_threads)
        )
    if rank_metrics:
        if candidates is None:
            placement = place_all(aligned, parts, batch_size, n_threads)
        else:
            placement = place_among_sampled(aligned, parts, candidates.n, resolve_key(key), batch_size, n_threads)
        values |= {metric.name: UserValues(*placement.values(metric)) for metric in rank_metrics}
    if len(rank_metrics) < len(metrics):
        values |= list_metrics(aligned, parts, [m for m in metrics if m.is_list_metric], batch_size, n_threads)
    return values


def _of_ratings(metric: Metric, errors: np.ndarray, indptr: np.ndarray) -> UserValues:
    # A user's value is the mean error of the user's ratings; weighted by their number, the mean is over all ratings.
    sizes = np.abs(errors) if metric.kind == "mae" else errors**2
    counts = np.diff(indptr).astype(np.float64)
    return UserValues(np.add.reduceat(sizes, indptr[:-1]) / counts, counts, is_root=metric.kind == "rmse")
