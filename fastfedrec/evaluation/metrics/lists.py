"""`evaluate_lists`: metrics of lists that were made elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_flag
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.numbers import show, show_names
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, as_interactions, frame_columns, native_frame
from fastfedrec.data.digest import digests
from fastfedrec.data.ids import IdIndex, check_one_column, column_array, is_column, join_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import float_values
from fastfedrec.evaluation.metrics.alignment import Aligned, _find_rows, take_rows
from fastfedrec.evaluation.metrics.names import METRICS_PARAMETER, Metric, MetricLike, parse_metrics
from fastfedrec.evaluation.metrics.ranking import TopLists, count_metrics
from fastfedrec.evaluation.metrics.relevance import align_relevant, comparable_parts
from fastfedrec.evaluation.metrics.results import Evaluation
from fastfedrec.evaluation.metrics.set_metrics import Placement
from fastfedrec.evaluation.metrics.user_values import UserValues
from fastfedrec.evaluation.metrics.values import metric_values

__all__ = ["GIVEN_LISTS", "evaluate_lists"]

#: Protocol of results of lists.
GIVEN_LISTS = "given lists"


@shares_docstring(METRICS_PARAMETER)
def evaluate_lists(
    lists: Any,
    train: InteractionsLike,
    test: InteractionsLike,
    metrics: Sequence[MetricLike] = ("hr@10", "ndcg@10"),
    *,
    threshold: float | None = None,
    per_user: bool = False,
    split: Any = None,
    name: str = "lists",
) -> Evaluation:
    """Measure users' lists of items that any program made, such as ``model.recommend(users, as_frame=True)``.

    Parameters
    ----------
    lists : frame, mapping of columns, or mapping of users to item ids
        Item ids of each user from the top, such as ``{"ann": [12, 11]}``; or a table with a row for each listed item
        and the columns `user`, `item` and, optionally, `rank` or `score`.  A list is in ascending order of `rank`, else
        in descending order of `score`, else in the order of its rows.  Rows of one user with equal ranks or scores are
        tied.  Other columns are ignored.
    train, test : Interactions, matrix or frame
        Data as for `evaluate`, whose rules decide which test interactions are dropped.
    threshold : float or None
        Test items with a value above the threshold are relevant, as for `evaluate`.
    per_user : bool
        Whether to include each user's values in the result and its exports.
    split : object
        Split that made train and test; the result records its name.
    name : str
        Name of the model in the result.

    Returns
    -------
    Evaluation
        Metrics, as from `evaluate`.  ``auc`` and ``mpr`` are not defined, since they need the ranks of all items.

    Raises
    ------
    ValueError
        A user's list has an item twice, no test interaction remains, or a metric is not defined for lists.

    Warns
    -----
    UserWarning
        A tested user has no list, all lists are shorter than a metric's cut-off, or lists have items that their user
        has in `train`.

    See Also
    --------
    evaluate : Ranks all unseen items by a model.

    Notes
    -----
    A test item that is not in its user's list is a miss, whatever the length of the list, and a tested user without a
    list counts with the value 0, as in ``trec_eval -c``.  Lists of other users are ignored.  An item that the user has
    in `train`, or that is not in the catalogue, keeps its rank and is not relevant.  Without ties, ``recall@K``,
    ``precision@K``, ``ndcg``, ``ndcg@K``, ``map``, ``mrr`` and ``hit@K`` are trec_eval's recall, P, ndcg, ndcg_cut,
    map, recip_rank and success; ``map@K`` divides by min(K, R), and its map_cut by R.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.evaluation import evaluate_lists
    >>> train = Interactions.from_arrays([1, 2, 2], [10, 11, 12])
    >>> test = Interactions.from_arrays([1, 1, 2], [11, 12, 10])
    >>> lists = {"user": [1, 1, 2], "item": [12, 11, 10], "score": [0.9, 0.4, 0.8]}
    >>> evaluate_lists(lists, train, test, ["recall@1", "mrr"])
    <Evaluation of lists: recall@1 0.7500, mrr 1.0000 (given lists, 2 users)>
    """
    parsed = parse_metrics(metrics)
    if undefined := [metric.name for metric in parsed if metric.is_rating_metric or metric.kind in ("auc", "mpr")]:
        raise ValueError(f"metrics {undefined} are not defined for lists; use evaluate with a model")
    train, test = as_interactions("train", train), as_interactions("test", test)
    per_user = check_flag("per_user", per_user)
    listed = _read_lists(lists)
    aligned = align_relevant(train, test, None, threshold)
    if not aligned.n_users:
        raise ValueError(
            f"test must have an interaction to look up in a list, but none remains; dropped interactions: "
            f"{aligned.dropped}"
        )
    placement, top_items = _place(aligned, listed)
    longest = top_items.shape[1]
    if short := [metric.name for metric in parsed if metric.cutoff and metric.cutoff > longest > 0]:
        warn(
            f"lists of tested users have at most {longest:,} items, and {', '.join(short)} count more; each test item "
            "that is not listed is a miss, as in trec_eval",
            UserWarning,
        )
    top_lists = TopLists(lambda k: top_items[:, :k])
    values = metric_values(train, aligned, placement, top_lists, parsed)
    if of_counts := [metric for metric in parsed if metric.kind in ("coverage", "gini")]:
        values |= count_metrics(of_counts, train.n_items, [top_items])
    return Evaluation(
        model=name,
        protocol=GIVEN_LISTS,
        split=split if split is None or isinstance(split, str) else repr(split),
        metrics=tuple(parsed),
        n_users=aligned.n_users,
        n_interactions=len(aligned.values),
        dropped=aligned.dropped,
        means={m.name: of.mean if isinstance(of := values[m.name], UserValues) else of for m in parsed},
        user_values={m.name: of for m in parsed if isinstance(of := values[m.name], UserValues)},
        user_ids=aligned.user_ids,
        keeps_users=per_user,
        user_counts=np.diff(aligned.test[0]),
        digests=digests(comparable_parts(aligned, parsed)),
    )


def _read_lists(lists: Any) -> Interactions:
    """Return the lists as interactions, where a larger value is nearer to the top."""
    if isinstance(lists, Mapping) and not {"user", "item"} & set(lists):
        lists = _read_items_of_users(lists)
    if not isinstance(lists, Mapping):
        lists = native_frame(lists)
        if frame_columns(lists) is None:
            raise TypeError(
                f"lists must be a frame, or a mapping, with the columns user, item and rank or score, got "
                f"{type(lists).__name__}; pass {{'user': ..., 'item': ..., 'rank': ...}}"
            )
        if hasattr(lists, "collect_schema") and hasattr(lists, "collect"):  # a lazy frame of polars
            lists = lists.collect()
    names = list(lists) if isinstance(lists, Mapping) else frame_columns(lists) or []
    if not {"user", "item"} <= set(names):
        raise KeyError(f"lists must have the columns 'user' and 'item', got {show_names(names)}; rename the columns")
    users, items = lists["user"], lists["item"]
    if "rank" in names:
        order = -float_values("lists['rank']", lists["rank"], len(users))
    elif "score" in names:
        order = float_values("lists['score']", lists["score"], len(users))
    else:
        order = -np.arange(len(users), dtype=np.float64)
    if not np.isfinite(order).all():
        raise ValueError(
            f"lists must have finite ranks and scores, got {np.count_nonzero(~np.isfinite(order))} others; remove them"
        )
    read = Interactions.from_arrays(users, items, order, duplicates="latest", timestamps=np.arange(len(order)))
    if n_repeated := len(order) - read.n_interactions:
        raise ValueError(
            f"lists must have each item of a user once, got {n_repeated:,} repeated rows; remove the later ones"
        )
    return read


def _read_items_of_users(lists: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the columns of a mapping of users to their item ids."""
    columns = []
    for user, items in lists.items():
        if isinstance(items, str | bytes) or not (isinstance(items, Sequence) or is_column(items)):
            raise TypeError(
                f"lists must map each user to a list of item ids, got {show(items)} for {user!r}; pass "
                "{user: [item, item]}, or columns 'user', 'item' and 'rank' or 'score'"
            )
        name = f"lists[{user!r}]"
        check_one_column(name, items)
        columns.append(column_array(name, items))
    users = [user for user, items in zip(lists, columns, strict=True) for _ in range(len(items))]
    return {"user": users, "item": join_ids(columns)}


@dataclass(frozen=True, eq=False)
class _ListPlacement:
    """Placement of test items in lists of different lengths; an item that is not listed is a miss at every cut-off."""

    # Misses are placed below `longest`, the maximum of all lengths of lists and numbers of a user's test items.
    placement: Placement
    longest: int
    is_listed: NDArray[np.bool_]
    # Shape (n_users,): lengths of the lists.
    n_ranked: NDArray[np.int64]

    @property
    def mean_ranks(self) -> NDArray[np.float64]:
        """Mean rank of each test item over all orders of tied items, infinite for a miss."""
        return np.where(self.is_listed, self.placement.mean_ranks, np.inf)

    def values(self, metric: Metric) -> tuple[NDArray[np.float64], np.ndarray | None]:
        """Return a metric by user and, since it is always defined, None for equal weights."""
        # No item is listed below `longest`, and no ideal ranking is longer.
        cutoff = min(metric.cutoff or self.longest, self.longest)
        values, weights = self.placement.values(replace(metric, cutoff=cutoff))
        # Precision divides by the cut-off also if all lists are shorter.
        return (values * (cutoff / metric.cutoff) if metric.kind == "precision" and metric.cutoff else values), weights


def _place(aligned: Aligned, lists: Interactions) -> tuple[_ListPlacement, NDArray[np.int32]]:
    """Return the placement of the test items, and the lists as columns of the catalogue, -1 for no such item."""
    n_users, n_items = aligned.shape
    list_rows = _find_rows("user", lists.user_ids, aligned.user_ids, "test", "lists")
    columns = _find_rows("item", aligned.item_ids, lists.item_ids, "lists")
    with_list = np.flatnonzero(list_rows >= 0)
    entries, (indptr, indices) = take_rows((lists.indptr, lists.indices), list_rows[with_list])
    lengths = np.zeros(n_users, dtype=np.int64)
    lengths[with_list] = np.diff(indptr)
    owners, items, scores = np.repeat(np.arange(n_users), lengths), columns[indices], lists.values_or_ones()[entries]
    _warn_of_lists(aligned, owners, items, lengths)
    # By user, then from the top; ties go to the earlier item of the catalogue.
    order = np.lexsort((items, -scores, owners))
    owners, items, scores = owners[order], items[order], scores[order]
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(owners)) - starts[owners]
    is_new = np.ones(len(owners), dtype=bool)  # True at the first item of each group of ties
    is_new[1:] = (owners[1:] != owners[:-1]) | (scores[1:] != scores[:-1])
    firsts = np.flatnonzero(is_new)
    group = np.cumsum(is_new) - 1
    sizes = np.diff(np.append(firsts, len(owners)))
    top_items = np.full((n_users, int(lengths.max(initial=0))), -1, dtype=np.int32)
    top_items[owners, positions] = items
    # A pair (user, item) is encoded as one integer.  Items outside the catalogue have no code of a test item.
    in_catalogue = np.flatnonzero(items >= 0)
    codes = owners[in_catalogue] * n_items + items[in_catalogue]
    by_code = np.argsort(codes)
    n_test = np.diff(aligned.test[0])
    test_users = np.repeat(np.arange(n_users), n_test)
    index = IdIndex("item", codes[by_code]).find(test_users * n_items + aligned.test[1])
    is_listed = index >= 0
    listed = in_catalogue[by_code[index[is_listed]]]
    longest = max(top_items.shape[1], int(n_test.max()))
    n_missed = np.bincount(test_users[~is_listed], minlength=n_users)
    above, same = np.full(len(is_listed), longest), n_missed[test_users]
    above[is_listed], same[is_listed] = positions[firsts[group[listed]]], sizes[group[listed]]
    placement = Placement(aligned.test[0], above, same, np.full(n_users, longest), aligned.values)
    return _ListPlacement(placement, longest, is_listed, lengths), top_items


def _warn_of_lists(aligned: Aligned, owners: np.ndarray, items: np.ndarray, lengths: np.ndarray) -> None:
    """Warn of tested users without a list, and of listed items that their user has in train."""
    if n_without := int((lengths == 0).sum()):
        warn(f"{n_without:,} of {aligned.n_users:,} tested users have no list; their metrics are 0", UserWarning)
    n_items = len(aligned.item_ids)
    seen = np.repeat(np.arange(aligned.n_users), np.diff(aligned.seen[0])) * n_items + aligned.seen[1]
    if n_seen := int(np.isin((owners * n_items + items)[items >= 0], seen).sum()):
        warn(
            f"{n_seen:,} of {len(owners):,} listed items are in train of their user; they keep their rank and are not "
            "relevant",
            UserWarning,
        )
