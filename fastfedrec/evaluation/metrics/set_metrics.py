"""Ranking metrics of one user's test items, as expectations over all orders of items with the same score.

All follow from where the test items stand among the items that are ranked (`compute.places`).  Items with the same
score are a group: its places are taken in random order, and the metric is its mean over all orders, in closed form.
Formulas are on docs/explanation/evaluation/metrics.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastfedrec.evaluation.metrics.names import Metric

__all__ = ["Placement"]


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the test items of some users stand among all items that are ranked for them.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Where the test items of each user begin; every user has one at least.
    above, same : ndarray of shape (n_test,), int64
        Ranked items with a higher score than the test item, and with the same score, itself among them.
    n_ranked : ndarray of shape (n_users,), int64
        Items that are ranked for each user, test items among them.
    weights : ndarray of shape (n_test,), float64
        Values of the test interactions, which the mean percentile rank weighs by.
    """

    indptr: NDArray[np.int64]
    above: NDArray[np.int64]
    same: NDArray[np.int64]
    n_ranked: NDArray[np.int64]
    weights: NDArray[np.float64]

    @cached_property
    def groups(self) -> "_Groups":
        """Test items of a user by groups of equal score."""
        lengths = np.diff(self.indptr)
        users = np.repeat(np.arange(len(lengths)), lengths)
        # One number orders by user, then by place; below 2**63 for any data that fits into memory.
        keys = users * (int(self.n_ranked.max(initial=0)) + 1) + self.above
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))[: len(keys)]
        relevant = np.diff(np.append(starts, len(keys)))
        owners = users[order[starts]]
        firsts = np.searchsorted(owners, np.arange(len(lengths)))
        return _Groups(
            users=owners,
            firsts=firsts,
            above=self.above[order[starts]],
            same=self.same[order[starts]],
            relevant=relevant,
            earlier=starts - self.indptr[owners],
            n_relevant=lengths,
            n_ranked=self.n_ranked,
        )

    def values(self, metric: Metric) -> tuple[NDArray[np.float64], np.ndarray | None]:
        """What a metric is for each user, and what it weighs in the mean.

        Parameters
        ----------
        metric : Metric
            Of rankings.

        Returns
        -------
        values : ndarray of shape (n_users,), float64
            NaN where it is not defined.
        weights : ndarray of shape (n_users,) or None
            0 where it is not defined; None where all weigh the same.
        """
        if metric.kind == "mpr":
            return self._percentiles()
        if metric.kind == "auc":
            return _auc(self.groups)
        return _CUT[metric.kind](self.groups, metric.cutoff or int(self.n_ranked.max(initial=1))), None

    def _percentiles(self) -> tuple[np.ndarray, np.ndarray]:
        """The mean place of each user's test items, weighted by values, as a share of the other ranked items."""
        others = np.repeat(self.n_ranked - 1, np.diff(self.indptr))
        with np.errstate(invalid="ignore", divide="ignore"):
            ranks = (self.above + (self.same - 1) / 2) / others
            usable = np.where(others > 0, self.weights, 0.0)
            totals = np.add.reduceat(usable, self.indptr[:-1]) if len(self.n_ranked) else np.empty(0)
            sums = (
                np.add.reduceat(np.where(usable > 0, usable * ranks, 0.0), self.indptr[:-1]) if len(totals) else totals
            )
            return sums / totals, totals


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of ranked items with one score that hold test items: by user, best first."""

    users: np.ndarray
    firsts: np.ndarray  # each user's first group
    above: np.ndarray  # g: ranked items above the group
    same: np.ndarray  # t: items in the group
    relevant: np.ndarray  # r: test items in the group
    earlier: np.ndarray  # h: test items in groups above
    n_relevant: np.ndarray  # R, of each user
    n_ranked: np.ndarray  # N, of each user
    _within: dict[int, np.ndarray] = field(default_factory=dict)

    def within(self, cutoff: int) -> np.ndarray:
        """Places of each group among the first ones."""
        if cutoff not in self._within:  # six metrics ask for the same
            self._within[cutoff] = np.minimum(np.maximum(cutoff - self.above, 0), self.same)
        return self._within[cutoff]

    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Sums over each user's groups."""
        return np.add.reduceat(values, self.firsts) if len(values) else np.empty(0)

    def last(self, cutoff: int) -> int:
        """The last place that is asked for."""
        return int(min(cutoff, (self.above + self.same).max(initial=0)))


def _hits(groups: _Groups, cutoff: int) -> np.ndarray:
    """Expected test items among the first places."""
    return groups.add_up(groups.relevant * groups.within(cutoff) / groups.same)


def _recall(groups: _Groups, cutoff: int) -> np.ndarray:
    return _hits(groups, cutoff) / groups.n_relevant


def _precision(groups: _Groups, cutoff: int) -> np.ndarray:
    return _hits(groups, cutoff) / cutoff


def _hit(groups: _Groups, cutoff: int) -> np.ndarray:
    """The chance that one of the first places has a test item."""
    return 1.0 - np.multiply.reduceat(_miss(groups, cutoff), groups.firsts) if len(groups.users) else np.empty(0)


def _miss(groups: _Groups, cutoff: int) -> np.ndarray:
    """The chance that none of a group's places within the cut-off has one: C(t - r, m) / C(t, m)."""
    size, relevant, within = groups.same, groups.relevant, groups.within(cutoff)
    chance = np.where(relevant + within > size, 0.0, 1.0)
    few, many = np.minimum(relevant, within), np.maximum(relevant, within)  # the quotient is symmetric in both
    left = np.flatnonzero((few > 0) & (chance > 0))
    i = 0
    while left.size:
        chance[left] *= (size[left] - many[left] - i) / (size[left] - i)
        i += 1
        left = left[few[left] > i]
    return chance


def _ndcg(groups: _Groups, cutoff: int) -> np.ndarray:
    last = max(groups.last(cutoff), int(min(cutoff, groups.n_relevant.max(initial=0))))
    discounts = 1.0 / np.log2(np.arange(2, last + 2))
    gains = groups.relevant * _mean_over_places(groups, discounts, cutoff)
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(groups.n_relevant, cutoff)]
    return groups.add_up(gains) / ideal


def _mean_over_places(groups: _Groups, of_place: np.ndarray, cutoff: int) -> np.ndarray:
    """Sum of a function of the place over a group's places within the cut-off, over all of its places."""
    sums = np.concatenate([[0.0], np.cumsum(of_place)])
    within = groups.within(cutoff)
    starts = np.minimum(groups.above, len(of_place))
    means = (sums[starts + within] - sums[starts]) / groups.same
    single = np.flatnonzero((groups.same == 1) & (within == 1))
    means[single] = of_place[groups.above[single]]  # exact, where the difference of two sums is not
    return means


def _map(groups: _Groups, cutoff: int) -> np.ndarray:
    within, size = groups.within(cutoff), groups.same
    inverse = _mean_over_places(groups, 1.0 / np.arange(1, groups.last(cutoff) + 1), cutoff)
    # Place p = g + j of the group has on average h + (j - 1) c + 1 test items up to and with its own.
    c = (groups.relevant - 1) / np.maximum(size - 1, 1)
    precisions = (groups.earlier + 1 - c * (groups.above + 1)) * inverse + c * within / size
    return groups.add_up(groups.relevant * precisions) / np.minimum(groups.n_relevant, cutoff)


def _mrr(groups: _Groups, cutoff: int) -> np.ndarray:
    """The expected inverse of the first test item's place, which lies in the user's first group."""
    above, size, relevant = (part[groups.firsts] for part in (groups.above, groups.same, groups.relevant))
    within = groups.within(cutoff)[groups.firsts]
    total = np.zeros(len(above))
    # p_j, the chance that place j of the group is its first with a test item: p_1 = r / t, and
    # p_(j + 1) = p_j (t - j - r + 1) / (t - j).
    chance, left, j = relevant / size, np.flatnonzero(within > 0), 1
    while left.size:
        total[left] += chance[left] / (above[left] + j)
        chance[left] *= (size[left] - j - relevant[left] + 1) / np.maximum(size[left] - j, 1)
        j += 1
        left = left[(within[left] >= j) & (chance[left] > 0)]
    return total


def _auc(groups: _Groups) -> tuple[np.ndarray, np.ndarray]:
    """The share of pairs of a test item and another that stand in the right order; a tie is half of one."""
    others = groups.n_ranked - groups.n_relevant
    wrong = groups.relevant * ((groups.above - groups.earlier) + (groups.same - groups.relevant) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1.0 - groups.add_up(wrong) / (groups.n_relevant * others), (others > 0).astype(np.float64)


_CUT: dict[str, Callable[[_Groups, int], np.ndarray]] = {
    "recall": _recall,
    "precision": _precision,
    "hit": _hit,
    "ndcg": _ndcg,
    "map": _map,
    "mrr": _mrr,
}
