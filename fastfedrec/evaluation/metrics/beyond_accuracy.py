"""Novelty and diversity of the users' lists, as functions of `Rankings`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, plain_array
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.rankings import Rankings

__all__ = ["LIST_FUNCTIONS", "FeatureDiversity"]

# Number of pairs of items in memory at a time.
_BLOCK_PAIRS = 2**20


def novelty(lists: np.ndarray, train: Interactions) -> NDArray[np.float64]:
    """Return each user's mean of -log2(share of the train users with the item) over the list; NaN without a list."""
    n_train_users = np.count_nonzero(train.interactions_per_user())
    # An item without train users counts as an item with one.
    information = np.log2(n_train_users / np.maximum(train.interactions_per_item(), 1))
    is_listed = lists >= 0
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(is_listed, information[lists], 0.0).sum(axis=1) / is_listed.sum(axis=1))


def diversity(lists: np.ndarray, train: Interactions) -> NDArray[np.float64]:
    """Return each user's mean of 1 - cosine over pairs of listed items, by the train users who have them."""
    ones = np.ones(train.n_interactions)
    by_user = scipy.sparse.csr_array((ones, train.indices, train.indptr), shape=train.shape)
    return mean_distance(lists, by_user.T.tocsr())


#: Functions of the lists, (n_users, k) padded by -1, and of train, by kind of metric.
LIST_FUNCTIONS: dict[str, Callable[[np.ndarray, Interactions], NDArray[np.float64]]] = {
    "novelty": novelty,
    "diversity": diversity,
}


@dataclass(frozen=True, eq=False)
class FeatureDiversity:
    """Metric of intra-list diversity by features of the items: the mean of 1 - cosine over pairs of listed items.

    Parameters
    ----------
    k : int
        Length of a list, at least 2.
    features : array_like or sparse of shape (n_items, n_features)
        A row for each item, in the order of ``train.item_ids``.  The cosine with a row of zeros is 0.
    name : str or None
        Name of the metric in results; None means "diversity@k by features".

    References
    ----------
    .. [1] Ziegler, McNee, Konstan, Lausen, "Improving recommendation lists through topic diversification", WWW 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key, Popularity, datasets
    >>> from fastfedrec.evaluation import FeatureDiversity, LeaveOneOut, evaluate
    >>> data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
    >>> train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
    >>> genres = np.eye(4)[np.arange(40) % 4]
    >>> result = evaluate(Popularity().fit(train), train, test, metrics=[FeatureDiversity(10, genres)])
    >>> 0 < result["diversity@10 by features"] < 1
    True
    """

    k: int
    features: Any
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_integer("k", self.k, low=2))
        features = self.features if scipy.sparse.issparse(self.features) else plain_array("features", self.features)
        if features.ndim != 2 or features.dtype.kind not in "fiub":
            raise ValueError(
                f"features must be numbers with a row for each item, got {features.dtype} of shape {features.shape}"
            )
        features = scipy.sparse.csr_array(features, dtype=np.float64)
        if not np.isfinite(features.data).all():
            raise ValueError("features must be finite, got NaN or infinity; fill missing features")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "__name__", self.name or f"diversity@{self.k} by features")

    def __call__(self, rankings: Rankings) -> NDArray[np.float64]:
        """Return the metric of each user.

        Parameters
        ----------
        rankings : Rankings
            Rankings as `evaluate` passes them.

        Returns
        -------
        ndarray of shape (n_users,), float64
            Mean distance, NaN for a list with fewer than two items.
        """
        if self.features.shape[0] != rankings.n_items:
            raise ValueError(
                f"features must have a row for each item of train, {rankings.n_items}, got {self.features.shape[0]}"
            )
        return mean_distance(rankings.top(self.k), self.features)


def mean_distance(lists: np.ndarray, rows: "scipy.sparse.csr_array") -> NDArray[np.float64]:
    """Return the mean of 1 - cosine over the pairs of each list, for a row of numbers per item; NaN without a pair."""
    listed = np.unique(lists[lists >= 0])
    # `np.unique` sorts, so the positions of the listed items among themselves are found by binary search.
    positions = np.searchsorted(listed, lists).astype(np.int64)
    part = rows[listed]
    norms = np.sqrt(np.asarray((part * part).sum(axis=1)).ravel())
    cosines = (part @ part.T).tocsr()
    cosines.sort_indices()
    scale = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0)
    first, second = np.triu_indices(lists.shape[1], 1)
    means = np.full(len(lists), np.nan)
    step = max(1, _BLOCK_PAIRS // max(len(first), 1))
    for start in range(0, len(lists), step):
        block = slice(start, start + step)
        is_pair = (lists[block][:, first] >= 0) & (lists[block][:, second] >= 0)
        users, pairs = np.nonzero(is_pair)
        a, b = positions[block][users, first[pairs]], positions[block][users, second[pairs]]
        distances = 1.0 - np.asarray(cosines[a, b]).ravel() * scale[a] * scale[b] if len(a) else np.empty(0)
        n_pairs = is_pair.sum(axis=1)
        sums = np.bincount(users, weights=distances, minlength=len(n_pairs))
        means[block] = np.divide(sums, n_pairs, out=np.full(len(sums), np.nan), where=n_pairs > 0)
    return means
