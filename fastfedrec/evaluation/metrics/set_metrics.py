"""Ranking metrics of one user's test items, as expectations over all orders of items with the same score.

All metrics are computed from the ranks of the test items among the ranked items (`compute.ranks`).  Items with the
same score form a group with a random order, and the metric is the mean over all orders, in closed form.  The formulas
are in docs/explanation/evaluation/metrics.md.
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
    """Numbers of ranked items above, and tied with, each test item of some users."""

    # Shape (n_users + 1,): the start of each user's test items; every user has at least one.
    indptr: NDArray[np.int64]
    # Shape (n_test,): ranked items with a higher score.
    above: NDArray[np.int64]
    # Shape (n_test,): ranked items with the same score, including the test item itself.
    same: NDArray[np.int64]
    # Shape (n_users,): ranked items, including the test items.
    n_ranked: NDArray[np.int64]
    # Shape (n_test,): values of the test interactions, the weights of the mean percentile rank.
    weights: NDArray[np.float64]

    @cached_property
    def groups(self) -> "_Groups":
        """Each user's test items, grouped by equal score."""
        lengths = np.diff(self.indptr)
        users = np.repeat(np.arange(len(lengths)), lengths)
        # One integer orders by user, then by rank; it is below 2**63 for any data that fit into memory.
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

    @property
    def mean_ranks(self) -> NDArray[np.float64]:
        """Mean rank of each test item over all orders of tied items, from 1."""
        return np.asarray(self.above + (self.same + 1) / 2)

    def values(self, metric: Metric) -> tuple[NDArray[np.float64], np.ndarray | None]:
        """Return a metric by user, NaN if undefined, and weights of its mean, 0 if undefined or None if equal."""
        if metric.kind == "mpr":
            return self._percentiles()
        if metric.kind == "auc":
            return _auc(self.groups)
        return _CUT[metric.kind](self.groups, metric.cutoff or int(self.n_ranked.max(initial=1))), None

    def _percentiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each user's sum of weight times percentile rank divided by the sum of weights, and these sums."""
        n_others = np.repeat(self.n_ranked - 1, np.diff(self.indptr))
        with np.errstate(invalid="ignore", divide="ignore"):
            ranks = (self.above + (self.same - 1) / 2) / n_others
            usable = np.where(n_others > 0, self.weights, 0.0)
            totals = np.add.reduceat(usable, self.indptr[:-1]) if len(self.n_ranked) else np.empty(0)
            sums = (
                np.add.reduceat(np.where(usable > 0, usable * ranks, 0.0), self.indptr[:-1]) if len(totals) else totals
            )
            return sums / totals, totals


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of ranked items with equal scores and at least one test item, by user, best first."""

    # Letters are the symbols on the page of formulas.
    users: np.ndarray
    firsts: np.ndarray  # each user's first group
    above: np.ndarray  # g: ranked items above the group
    same: np.ndarray  # t: items in the group
    relevant: np.ndarray  # r: test items in the group
    earlier: np.ndarray  # h: test items in groups above
    n_relevant: np.ndarray  # R: test items of each user
    n_ranked: np.ndarray  # N: ranked items of each user
    _n_within: dict[int, np.ndarray] = field(default_factory=dict)

    def n_within(self, cutoff: int) -> np.ndarray:
        """Return m, the number of each group's ranks within the cut-off."""
        # Six metrics use the same counts.
        if cutoff not in self._n_within:
            self._n_within[cutoff] = np.minimum(np.maximum(cutoff - self.above, 0), self.same)
        return self._n_within[cutoff]

    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Return sums over each user's groups."""
        return np.add.reduceat(values, self.firsts) if len(values) else np.empty(0)

    def last_rank(self, cutoff: int) -> int:
        """Return the last rank of any group within the cut-off."""
        return int(min(cutoff, (self.above + self.same).max(initial=0)))


def _hits(groups: _Groups, cutoff: int) -> np.ndarray:
    """Return the expected number of test items within the cut-off."""
    # Each of the group's r test items is within the cut-off with probability m / t.
    return groups.add_up(groups.relevant * groups.n_within(cutoff) / groups.same)


def _recall(groups: _Groups, cutoff: int) -> np.ndarray:
    return _hits(groups, cutoff) / groups.n_relevant


def _precision(groups: _Groups, cutoff: int) -> np.ndarray:
    return _hits(groups, cutoff) / cutoff


def _hit(groups: _Groups, cutoff: int) -> np.ndarray:
    """Return the probability that at least one test item is within the cut-off."""
    # Groups are shuffled independently, so the probabilities of misses multiply.
    return 1.0 - np.multiply.reduceat(_miss(groups, cutoff), groups.firsts) if len(groups.users) else np.empty(0)


def _miss(groups: _Groups, cutoff: int) -> np.ndarray:
    """Return the probability that no test item of a group is within the cut-off: C(t - r, m) / C(t, m)."""
    size, relevant, within = groups.same, groups.relevant, groups.n_within(cutoff)
    chance = np.where(relevant + within > size, 0.0, 1.0)
    # The quotient is symmetric in r and m; the product over the smaller one has fewer factors:
    # the product of (t - max(r, m) - i) / (t - i) over i < min(r, m).
    smaller, larger = np.minimum(relevant, within), np.maximum(relevant, within)
    active = np.flatnonzero((smaller > 0) & (chance > 0))
    i = 0
    while active.size:
        chance[active] *= (size[active] - larger[active] - i) / (size[active] - i)
        i += 1
        active = active[smaller[active] > i]
    return chance


def _ndcg(groups: _Groups, cutoff: int) -> np.ndarray:
    last = max(groups.last_rank(cutoff), int(min(cutoff, groups.n_relevant.max(initial=0))))
    # The discount of rank p is 1 / log2(p + 1).
    discounts = 1.0 / np.log2(np.arange(2, last + 2))
    gains = groups.relevant * _mean_over_ranks(groups, discounts, cutoff)
    # The ideal ranking has the user's R test items first.
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(groups.n_relevant, cutoff)]
    return groups.add_up(gains) / ideal


def _mean_over_ranks(groups: _Groups, rank_values: np.ndarray, cutoff: int) -> np.ndarray:
    """Return the sum of a function of the rank over a group's ranks within the cut-off, divided by the group's size."""
    sums = np.concatenate([[0.0], np.cumsum(rank_values)])
    within = groups.n_within(cutoff)
    starts = np.minimum(groups.above, len(rank_values))
    means = (sums[starts + within] - sums[starts]) / groups.same
    single = np.flatnonzero((groups.same == 1) & (within == 1))
    means[single] = rank_values[groups.above[single]]  # exact, unlike the difference of two sums
    return means


def _map(groups: _Groups, cutoff: int) -> np.ndarray:
    within, size = groups.n_within(cutoff), groups.same
    inverse = _mean_over_ranks(groups, 1.0 / np.arange(1, groups.last_rank(cutoff) + 1), cutoff)
    # Given a test item at rank p = g + j, the expected number of test items up to rank p is h + (j - 1) c + 1.
    c = (groups.relevant - 1) / np.maximum(size - 1, 1)
    precisions = (groups.earlier + 1 - c * (groups.above + 1)) * inverse + c * within / size
    return groups.add_up(groups.relevant * precisions) / np.minimum(groups.n_relevant, cutoff)


def _mrr(groups: _Groups, cutoff: int) -> np.ndarray:
    """Return the expected inverse rank of the first test item, which is in the user's first group."""
    above, size, relevant = (part[groups.firsts] for part in (groups.above, groups.same, groups.relevant))
    within = groups.n_within(cutoff)[groups.firsts]
    total = np.zeros(len(above))
    # p_j, the probability that rank j of the group has the group's first test item: p_1 = r / t, and
    # p_(j + 1) = p_j (t - j - r + 1) / (t - j).
    chance, active, j = relevant / size, np.flatnonzero(within > 0), 1
    while active.size:
        total[active] += chance[active] / (above[active] + j)
        chance[active] *= (size[active] - j - relevant[active] + 1) / np.maximum(size[active] - j, 1)
        j += 1
        active = active[(within[active] >= j) & (chance[active] > 0)]
    return total


def _auc(groups: _Groups) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of pairs of a test item and another item in the right order, where a tie counts one half."""
    n_others = groups.n_ranked - groups.n_relevant
    # Each test item of a group is in the wrong order with g - h items above and tied with t - r items.
    wrong = groups.relevant * ((groups.above - groups.earlier) + (groups.same - groups.relevant) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1.0 - groups.add_up(wrong) / (groups.n_relevant * n_others), (n_others > 0).astype(np.float64)


_CUT: dict[str, Callable[[_Groups, int], np.ndarray]] = {
    "recall": _recall,
    "precision": _precision,
    "hit": _hit,
    "ndcg": _ndcg,
    "map": _map,
    "mrr": _mrr,
}
