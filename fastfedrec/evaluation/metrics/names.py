"""Names of metrics, such as "ndcg@10", and their parser."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.old_names import OldAttribute, refuse_old_names
from fastfedrec.core.text import did_you_mean

__all__ = [
    "KINDS",
    "KNOWN_METRICS",
    "METRICS_PARAMETER",
    "OWN",
    "RATING_METRICS",
    "WITHOUT_CUTOFF",
    "WITH_CUTOFF",
    "Metric",
    "MetricLike",
    "parse_metrics",
]


class _Kind(NamedTuple):
    """Properties of a kind of metric."""

    cutoff: Literal["required", "optional", "none"]
    input: Literal["rankings", "lists", "ratings"] = "rankings"  # rankings: a mean over users; lists: all users' lists
    less_is_better: bool = False
    other_name: str = ""


#: Every kind of metric, by its name without the cut-off.
KINDS = {
    "recall": _Kind("required"),
    "precision": _Kind("required"),
    "hit": _Kind("required", other_name="hr"),
    "ndcg": _Kind("optional"),
    "map": _Kind("optional"),
    "mrr": _Kind("optional"),
    "auc": _Kind("none"),
    "mpr": _Kind("none", less_is_better=True),
    "coverage": _Kind("required", "lists"),
    "gini": _Kind("required", "lists", less_is_better=True),
    "novelty": _Kind("required", "lists"),
    "diversity": _Kind("required", "lists"),
    "rmse": _Kind("none", "ratings", less_is_better=True),
    "mae": _Kind("none", "ratings", less_is_better=True),
}

#: Kind of a metric that is a function of `Rankings`.
OWN = "function"

#: Name of a metric, or a function of `Rankings`.
MetricLike: TypeAlias = str | Callable[[Any], Any]

_KIND_OF_NAME = {name: kind for kind, of in KINDS.items() for name in (kind, of.other_name) if name}
#: Names that can have a cut-off.
WITH_CUTOFF = tuple(name for name, kind in _KIND_OF_NAME.items() if KINDS[kind].cutoff != "none")
#: Names that can have no cut-off.
WITHOUT_CUTOFF = tuple(name for name, kind in _KIND_OF_NAME.items() if KINDS[kind].cutoff != "required")
#: Kinds that compare predicted with true ratings.
RATING_METRICS = tuple(kind for kind, of in KINDS.items() if of.input == "ratings")
#: All names, for messages and help.
KNOWN_METRICS = ", ".join(
    (f"{kind}@K" if kind in WITH_CUTOFF else kind) + (f" (or {of.other_name}@K)" if of.other_name else "")
    for kind, of in KINDS.items()
)

# Maximum cut-off: the maximum number of items, which are indexed by int32.
_MAX_CUTOFF = 2**31 - 1
_NAME = re.compile(rf"({'|'.join(WITH_CUTOFF)})@([1-9][0-9]{{0,18}})|({'|'.join(WITHOUT_CUTOFF)})", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """A metric with its optional cut-off.

    Parameters
    ----------
    name : str
        Name as the caller wrote it.
    kind : str
        Kind in lower case, without the cut-off; "hit" for "hr", and "function" for a function.
    cutoff : int or None
        Number of top ranks that count; None for all.
    function : callable or None
        Function of `Rankings`, if the caller gave one instead of a name.
    """

    name: str
    kind: str
    cutoff: int | None = None
    function: Callable[[Any], Any] | None = field(default=None, repr=False)

    is_of_ratings = OldAttribute("is_rating_metric")
    is_of_lists = OldAttribute("is_list_metric")

    @property
    def is_rating_metric(self) -> bool:
        """Check whether the metric compares predicted with true ratings.

        Returns
        -------
        bool
            True for errors of ratings, such as "rmse".
        """
        return self.function is None and KINDS[self.kind].input == "ratings"

    @property
    def less_is_better(self) -> bool:
        """Check whether the best model has the lowest value.

        Returns
        -------
        bool
            True for errors and some others, such as "mpr".
        """
        if self.function is not None:
            return bool(getattr(self.function, "less_is_better", False))
        return KINDS[self.kind].less_is_better

    @property
    def is_share(self) -> bool:
        """Check whether all values of the metric are between 0 and 1.

        Returns
        -------
        bool
            True for metrics of rankings, such as "ndcg@10".
        """
        kind = KINDS.get(self.kind)
        return self.function is None and kind is not None and kind.input == "rankings"

    @property
    def is_list_metric(self) -> bool:
        """Check whether the metric is computed from the lists of all users combined.

        Returns
        -------
        bool
            True for properties of lists, such as "coverage".
        """
        return self.function is None and KINDS[self.kind].input == "lists"


#: The parameter in docstrings of functions that take names of metrics.
METRICS_PARAMETER = """\
metrics : sequence of str or callable
    ``recall@K``, ``precision@K``, ``hit@K`` (``hr@K`` is the same), ``ndcg@K``, ``map@K`` and ``mrr@K``, the last
    three also without a cut-off; ``auc``; ``mpr``, the mean percentile rank; ``coverage@K`` and ``gini@K`` over
    the lists of all tested users; ``novelty@K`` and ``diversity@K`` of each user's list; ``rmse`` and ``mae`` for a
    model with ``predict(user_ids, item_ids)``.  Upper and lower case are equivalent.  A function gets a `Rankings`,
    and returns a value for each user, where NaN is undefined, or one number.  Its ``__name__`` is the name of the
    metric, and its attribute ``less_is_better``, if True, states that the best model has the lowest value."""


@shares_docstring(METRICS_PARAMETER)
def parse_metrics(metrics: Sequence[MetricLike] | Iterable[MetricLike]) -> list[Metric]:
    """Parse names of metrics.

    Returns
    -------
    list of Metric
        Metrics in the same order, without duplicates.

    Raises
    ------
    ValueError
        A metric is unknown, or there is none.

    Examples
    --------
    >>> from fastfedrec.evaluation.metrics.names import parse_metrics
    >>> parse_metrics(["NDCG@10", "hr@5", "auc"])
    [Metric(name='NDCG@10', kind='ndcg', cutoff=10), Metric(name='hr@5', kind='hit', cutoff=5),
     Metric(name='auc', kind='auc', cutoff=None)]
    """
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a sequence of names, got the string {metrics!r}; pass [{metrics!r}]")
    if not isinstance(metrics, Iterable):
        raise TypeError(f"metrics must be a sequence of names, got {metrics!r}; known: {KNOWN_METRICS}")
    names = list(dict.fromkeys(metrics))
    if not names:
        raise ValueError(f"metrics must name at least one metric, got none; known: {KNOWN_METRICS}")
    parsed = [_of_function(name) if callable(name) else _parse(name) for name in names]
    repeated = {metric.name for metric in parsed if [other.name for other in parsed].count(metric.name) > 1}
    if repeated:
        raise ValueError(f"metrics must have distinct names, got {sorted(repeated)} more than once; rename a function")
    return parsed


def _of_function(function: Callable[[Any], Any]) -> Metric:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>" or isinstance(function, type):
        raise ValueError(
            f"a metric must have a name, got {function!r}; define a function by def, or set its attribute __name__"
        )
    return Metric(name, OWN, None, function)


def _parse(name: str) -> Metric:
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    cutoff = int(match[2]) if match and match[2] else None
    if match is None or (cutoff or 0) > _MAX_CUTOFF:
        raise ValueError(
            f"unknown metric {name!r}{_suggest(str(name))}; known: {KNOWN_METRICS} (K a whole number from 1, at most "
            f"{_MAX_CUTOFF})"
        )
    return Metric(name, _KIND_OF_NAME[(match[1] or match[3]).lower()], cutoff)


def _suggest(name: str) -> str:
    """Return a suggestion for an unknown name, such as hr@10 for "hr" and recall@20 for "recall20"."""
    kind = name.rstrip("0123456789")
    rank, kind = name[len(kind) :].lstrip("0"), kind.removesuffix("@").lower()
    rank = rank if len(rank) <= len(str(_MAX_CUTOFF)) and int(rank or 0) <= _MAX_CUTOFF else ""
    names = {
        known: f"{known}@{rank or 10}" if known in WITH_CUTOFF and (rank or known not in WITHOUT_CUTOFF) else known
        for known in _KIND_OF_NAME
    }
    if kind in names:
        return f" (did you mean {names[kind]!r}?)"
    meant = did_you_mean(kind, names)
    for known, full in names.items():
        meant = meant.replace(repr(known), repr(full))
    return meant


refuse_old_names(__name__, OF_RATINGS="RATING_METRICS")
