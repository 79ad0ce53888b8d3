"""Names of metrics, such as "ndcg@10", and what they ask for."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["OF_RATINGS", "WITHOUT_CUTOFF", "WITH_CUTOFF", "Metric", "parse_metrics"]

#: Kinds with a cut-off, kinds that may go without one, and kinds that have none.
WITH_CUTOFF = ("recall", "precision", "hit", "hr", "ndcg", "map", "mrr", "coverage", "gini")
WITHOUT_CUTOFF = ("ndcg", "map", "mrr", "auc", "mpr", "rmse", "mae")
OF_RATINGS = ("rmse", "mae")
OF_LISTS = ("coverage", "gini")
LESS_IS_BETTER = ("rmse", "mae", "mpr", "gini")

KNOWN = "recall@K, precision@K, hit@K (or hr@K), ndcg@K, map@K, mrr@K, auc, mpr, coverage@K, gini@K, rmse, mae"

_MOST = 2**31 - 1  # items that there may be
_NAME = re.compile(rf"({'|'.join(WITH_CUTOFF)})@([1-9][0-9]{{0,18}})|({'|'.join(WITHOUT_CUTOFF)})", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """One metric that was asked for.

    Parameters
    ----------
    name : str
        As it was written.
    kind : str
        In lower case, without the cut-off; "hit" for "hr".
    cutoff : int or None
        How many places count; None for all.
    """

    name: str
    kind: str
    cutoff: int | None = None

    @property
    def is_of_ratings(self) -> bool:
        """Whether it compares predictions with ratings.

        Returns
        -------
        bool
            True for "rmse" and "mae".
        """
        return self.kind in OF_RATINGS

    @property
    def less_is_better(self) -> bool:
        """Whether the best model has the lowest value.

        Returns
        -------
        bool
            True for "rmse", "mae", "mpr" and "gini".
        """
        return self.kind in LESS_IS_BETTER

    @property
    def is_of_lists(self) -> bool:
        """Whether it is of all users' lists together.

        Returns
        -------
        bool
            True for "coverage" and "gini".
        """
        return self.kind in OF_LISTS


def parse_metrics(metrics: Sequence[str] | Iterable[str]) -> list[Metric]:
    """Read names of metrics.

    Parameters
    ----------
    metrics : sequence of str
        As for `evaluation.evaluate`; upper and lower case are the same.

    Returns
    -------
    list of Metric
        In the same order, each once.

    Raises
    ------
    ValueError
        A metric that is not known, or none.

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
        raise TypeError(f"metrics must be a sequence of names, got {metrics!r}; known: {KNOWN}")
    names = list(dict.fromkeys(metrics))
    if not names:
        raise ValueError(f"metrics must name at least one metric, got none; known: {KNOWN}")
    return [_parse(name) for name in names]


def _parse(name: str) -> Metric:
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    cutoff = int(found[2]) if found and found[2] else None
    if found is None or (cutoff or 0) > _MOST:
        raise ValueError(f"unknown metric {name!r}; known: {KNOWN} (K a whole number from 1 to {_MOST})")
    kind = (found[1] or found[3]).lower()
    return Metric(name, "hit" if kind == "hr" else kind, cutoff)
