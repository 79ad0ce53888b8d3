"""`FeatureDiversity`: intra-list diversity by features of the items."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, plain_array
from fastfedrec.evaluation.metrics.beyond_accuracy import mean_distance
from fastfedrec.evaluation.metrics.rankings import Rankings

__all__ = ["FeatureDiversity"]


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
