"""Weights that divide a user's contribution among the user's items, with more for rarer items."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.interactions import Interactions

__all__ = ["FrequencyWeights"]

_MAX_LEVEL = 2**15  # largest level: the sum of the squares of 2**31 levels stays below 2**62
_NORM_UNIT = 2**16  # a user's norm is computed in units of a level / 2**16


@dataclass(frozen=True)
class FrequencyWeights:
    """Weights proportional to n_i ** -exponent for an item's noisy count n_i, which each user normalises.

    Parameters
    ----------
    exponent : float
        Exponent, at least 0; with 0 all items of a user have the same weight.
    min_count : float
        Lower bound of counts, above 0; counts below the noise's standard deviation are mostly noise.

    References
    ----------
    .. [1] Krichene, Jain, Song, Sundararajan, Thakurta, Zhang, "Multi-task differential privacy under distribution
       skew", ICML 2023, Algorithm 2.
    """

    exponent: float
    min_count: float

    def item_levels(self, item_counts: np.ndarray) -> NDArray[np.int64]:
        """Return each item's weight before the users normalise, in whole numbers from 1 to 2**15."""
        counts = np.maximum(item_counts, self.min_count)
        # The rarest item has the ratio 1, so all 15 bits are used.
        ratios = (counts.min(initial=np.inf) / counts) ** self.exponent
        return np.maximum((ratios * _MAX_LEVEL).astype(np.int64), 1)

    def of_users(self, shard: Interactions, item_counts: np.ndarray, scale: int) -> NDArray[np.int32]:
        """Return the weight of each interaction times `scale`; a user's weights have norm at most `scale`.

        A user's weights depend only on the user's items and on the released counts.  `scale` is at most 2**31 - 1.
        """
        levels = self.item_levels(item_counts)[shard.indices]
        # Differences of running sums are exact, even if the sums overflow int64.
        totals = np.concatenate([[0], np.cumsum(levels * levels)])
        squares = totals[shard.indptr[1:]] - totals[shard.indptr[:-1]]
        # The norm, in units of 2**-16, is below 2**47, and its root is off by less than 2**-5.  Two more units bound
        # it from above and cost at most 2**-15 of it.  Products stay below 2**62.
        norms = (np.sqrt(squares.astype(np.float64)) * _NORM_UNIT).astype(np.int64) + 2
        return (levels * scale * _NORM_UNIT // np.repeat(norms, shard.interactions_per_user())).astype(np.int32)
