"""`evaluate`: rank the test items of users, or predict their ratings, and average the metrics."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.accounting.ledger import Ledger
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_flag, check_integer
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import check_n_threads
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.digest import digests
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, count_shared
from fastfedrec.evaluation.metrics.breakdown import item_columns, item_errors, item_values
from fastfedrec.evaluation.metrics.given_candidates import CandidateLists, GivenItems, as_candidates
from fastfedrec.evaluation.metrics.names import METRICS_PARAMETER, Metric, MetricLike, parse_metrics
from fastfedrec.evaluation.metrics.ranking import TopLists, count_metrics, errors_of, list_blocks, place_all
from fastfedrec.evaluation.metrics.relevance import align_relevant, comparable_parts
from fastfedrec.evaluation.metrics.results import Evaluation
from fastfedrec.evaluation.metrics.sampled import Sampled
from fastfedrec.evaluation.metrics.sampled_ranking import (
    CandidateItems,
    SampledItems,
    drop_unrankable,
    place_among,
    values_by_interaction,
)
from fastfedrec.evaluation.metrics.scoring import check_model
from fastfedrec.evaluation.metrics.serving import Part, parts_of
from fastfedrec.evaluation.metrics.set_metrics import Placement
from fastfedrec.evaluation.metrics.user_values import UserValues
from fastfedrec.evaluation.metrics.values import metric_values
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
    metrics: Sequence[MetricLike] = ("hr@10", "ndcg@10"),
    threshold: float | None = None,
    candidates: Sampled | CandidateLists | None = None,
    per_user: bool = False,
    per_item: bool = False,
    split: Any = None,
    key: Key | None = None,
    batch_size: int = 2**20,
    n_threads: int = 0,
) -> Evaluation:
    """Rank each user's test items among all items that the user has not seen, and average the metrics over users.

    Parameters
    ----------
    model : object
        Any model of this package, or any object with ``score_items(user_ids)``, which returns a row of scores for each
        user id, over all items of `train` in their order.  A model may have other methods instead.
        ``score(user_ids, item_ids)`` returns one score for each pair of two arrays of external ids; it gets at most
        65,536 pairs of several users in one call.  ``factors(user_ids, item_ids)`` is the fastest: it returns two
        arrays with a row for each id, and the inner products are the scores.  The order of precedence is `factors`,
        `score_items`, `score`.  Items that a model of this package was not fitted on rank last; if ratings are
        predicted, test interactions with them are dropped.
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
    candidates : Sampled, dict, sequence, frame, matrix, Interactions or None
        None ranks against all items that the user has not seen.  `Sampled` ranks against a random sample of them, as
        some papers do.  Given candidates are item ids by user id, a sequence with the item ids of each user of `test`,
        or data as for `fit`.  Each user's list then has the user's test items and candidates, except items in `train`
        or `given`.
    per_user, per_item : bool
        Whether to include each user's values in the result and its exports, and each item's values in the result.
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
        No test interaction remains, a metric is unknown, values are below 0 without a `threshold`, scores are NaN or
        have the wrong shape, or a tested user has no given candidates.

    Warns
    -----
    UserWarning
        Some users have fewer unseen items than `candidates` samples, or given candidates are not ranked.  The model's
        data, or for ratings `train`, hold test interactions.  A model of another package, and a model that was loaded
        without its users, cannot be checked: fit it on `train` alone.

    See Also
    --------
    evaluate_lists : Evaluates lists that were made elsewhere.
    read_test_negatives : Reads candidates in the format of NCF's data sets.
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
    ...     def score_items(self, user_ids):
    ...         return [-train.item_ids] * len(user_ids)
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
        if lists := [metric.name for metric in ranking if metric.is_list_metric]:
            raise ValueError(f"metrics {lists} need lists of all unseen items; use candidates=None")
        candidates = candidates if isinstance(candidates, Sampled) else as_candidates(candidates, test)
    if key is not None or isinstance(candidates, Sampled):
        key = resolve_key(key)
    per_user, per_item = check_flag("per_user", per_user), check_flag("per_item", per_item)
    if isinstance(candidates, Sampled) and candidates.per == "interaction":
        functions = [metric.name for metric in ranking if metric.function is not None]
        if functions or per_item:
            cause = f"metrics {functions} are functions, which" if functions else "per_item=True, which"
            raise ValueError(f"{cause} need one list for each user; use Sampled({candidates.n}, per='user')")
    batch_size = check_integer("batch_size", batch_size, low=1)
    n_threads = check_n_threads(n_threads)
    if threshold is not None and not ranking:
        raise ValueError(f"threshold applies to rankings, but metrics {list(metrics)} are of ratings; leave it out")
    of_ratings = len(ranking) < len(parsed)
    aligned = align_relevant(train, test, given, threshold, has_rankings=bool(ranking), has_ratings=of_ratings)
    _warn_of_shared(model, aligned, train, of_ratings=of_ratings)
    aligned, parts = parts_of(model, aligned, given, of_ratings=of_ratings)
    # Only the mean percentile rank is weighted by values, so only it needs a sum of values that is a valid divisor.
    if any(metric.kind == "mpr" for metric in ranking):
        total_weight(aligned.values)
    # Values by user, or one number for a metric that is no mean over users.
    values: dict[str, UserValues | float] = {}
    rating_means: dict[str, float] = {}
    by_item: dict[str, np.ndarray] = {}
    protocols = []
    comparable: dict[str, Any] = {}
    among: CandidateItems | None = None
    if ranking:
        if isinstance(candidates, Sampled):
            aligned, parts = drop_unrankable(aligned, parts, candidates.n)
            key = resolve_key(key)
            among = SampledItems(aligned, candidates.n, key, n_threads)
            protocols.append(str(candidates))
            comparable["sampled items"] = key.words("evaluation.negatives.name", size=2)
        elif candidates is not None:
            among = GivenItems(candidates, aligned)
            protocols.append(str(among))
            comparable["given candidates"] = list(among.rows)
        else:
            protocols.append("all unseen items")
        if isinstance(candidates, Sampled) and candidates.per == "interaction" and among is not None:
            values |= values_by_interaction(aligned, parts, ranking, among, batch_size, n_threads)
        else:
            placement, rank_values = _rank(train, aligned, parts, ranking, among, batch_size, n_threads)
            values |= rank_values
            if per_item and placement is not None:
                by_item |= item_values(placement, ranking, aligned.test[1])
    if of_ratings:
        protocols.append("predicted ratings")
        errors = errors_of(aligned, parts, batch_size)
        for metric in parsed:
            if metric.is_rating_metric:
                rating_means[metric.name] = RATING_METRICS[metric.kind](errors)
                values[metric.name] = _of_ratings(metric, errors, aligned.test[0])
                if per_item:
                    by_item[metric.name] = item_errors(metric, errors, aligned.test[1])
    means = {name: of.mean if isinstance(of, UserValues) else of for name, of in values.items()} | rating_means
    return Evaluation(
        model=type(model).__name__,
        protocol="; ".join(protocols),
        split=split if split is None or isinstance(split, str) else repr(split),
        metrics=tuple(parsed),
        n_users=aligned.n_users,
        n_interactions=len(aligned.values),
        dropped=aligned.dropped,
        means={metric.name: means[metric.name] for metric in parsed},
        user_values={m.name: of for m in parsed if isinstance(of := values[m.name], UserValues)},
        user_ids=aligned.user_ids,
        keeps_users=per_user,
        user_counts=np.diff(aligned.test[0]),
        per_item=item_columns(aligned, by_item) if per_item else None,
        digests=digests(comparable_parts(aligned, parsed) | comparable),
        # A later fit may add events to the model's own ledger.
        ledger=copy.deepcopy(ledger) if isinstance(ledger := getattr(model, "ledger_", None), Ledger) else None,
    )


def _warn_of_shared(model: Any, aligned: Aligned, train: Interactions, *, of_ratings: bool) -> None:
    """Warn if the model's data hold test interactions."""
    data = getattr(model, "interactions_", None)
    # Rankings do not test what is in train, so that a model of the same object needs no check.
    if isinstance(data, Interactions) and (of_ratings or data is not train):
        source = "the model's data hold"
    elif of_ratings:
        data, source = train, "train holds"
    else:
        return
    if n_shared := count_shared(aligned, data):
        warn(
            f"{source} {n_shared:,} of the {len(aligned.values):,} tested interactions, so the metrics are better than "
            "for unseen data; fit the model on a train without test interactions"
        )


def _rank(
    train: Interactions,
    aligned: Aligned,
    parts: list[Part],
    metrics: list[Metric],
    among: CandidateItems | None,
    batch_size: int,
    n_threads: int,
) -> tuple[Placement | None, dict[str, UserValues | float]]:
    """Return the placement of the test items, if a metric needs it, and the values of the metrics."""

    def lists(k: int) -> np.ndarray:
        out = np.empty((aligned.n_users, min(k, len(aligned.item_ids))), dtype=np.int32)
        for users, items in list_blocks(aligned, parts, k, batch_size, n_threads):
            out[users] = items
        return out

    values: dict[str, UserValues | float] = {}
    placement = None
    if any(not metric.is_list_metric for metric in metrics):
        if among is None:
            placement = place_all(aligned, parts, batch_size, n_threads)
        else:
            placement = place_among(aligned, parts, among, batch_size, n_threads)
    # Coverage and Gini only count items, so they need no array of all lists.
    if of_counts := [metric for metric in metrics if metric.kind in ("coverage", "gini")]:
        longest = max(metric.cutoff or 1 for metric in of_counts)
        blocks = (items for _, items in list_blocks(aligned, parts, longest, batch_size, n_threads))
        values |= count_metrics(of_counts, len(aligned.item_ids), blocks)
    top_lists = TopLists(lists) if among is None else None
    return placement, values | metric_values(train, aligned, placement, top_lists, metrics)


def _of_ratings(metric: Metric, errors: np.ndarray, indptr: np.ndarray) -> UserValues:
    # A user's value is the mean error of the user's ratings; weighted by their number, the mean is over all ratings.
    sizes = np.abs(errors) if metric.kind == "mae" else errors**2
    counts = np.diff(indptr).astype(np.float64)
    return UserValues(np.add.reduceat(sizes, indptr[:-1]) / counts, counts, is_root=metric.kind == "rmse")
