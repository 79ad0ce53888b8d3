"""Weights that divide a user's contribution among its items, with more for rarer items."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.interactions import Interactions

__all__ = ["FrequencyWeights"]

_MAX_LEVEL = 2**15  # of an item: the sum of the squares of 2**31 levels stays below 2**62
_NORM_UNIT = 2**16  # parts of a level in which a user's norm is counted


@dataclass(frozen=True)
class FrequencyWeights:
    """Weights that fall with an item's noisy number of users, n_i ** -exponent, before each user normalises its own.

    Parameters
    ----------
    exponent : float
        At least 0; with 0 all items of a user have the same weight.
    min_count : float
        Above 0.  Smaller counts are replaced by it; counts below the noise's standard deviation are mostly noise.

    References
    ----------
    .. [1] Krichene, Jain, Song, Sundararajan, Thakurta, Zhang, "Multi-task differential privacy under distribution
       skew", ICML 2023, Algorithm 2.
    """

    exponent: float
    min_count: float

    def item_levels(self, item_counts: np.ndarray) -> NDArray[np.int64]:
        """Return a whole number for each item, in proportion to its weight before the users normalise.

        Parameters
        ----------
        item_counts : ndarray of shape (n_items,), float64
            Noisy, and released.

        Returns
        -------
        ndarray of shape (n_items,), int64
            From 1 to 2**15.
        """
        counts = np.maximum(item_counts, self.min_count)
        # The rarest item has the ratio 1, so all 15 bits are used.
        ratios = (counts.min(initial=np.inf) / counts) ** self.exponent
        return np.maximum((ratios * _MAX_LEVEL).astype(np.int64), 1)

    def of_users(self, shard: Interactions, item_counts: np.ndarray, scale: int) -> NDArray[np.int32]:
        """Return the weight of each interaction; those of one user have Euclidean norm at most `scale`.

        Parameters
        ----------
        shard : Interactions
            Any users.
        item_counts : ndarray of shape (n_items,), float64
            Noisy, and released.
        scale : int
            The whole number for a weight of 1; at most 2**31 - 1.

        Returns
        -------
        ndarray of shape (n_interactions,), int32
            Whole numbers, from 0.  A user's depend on its own items and on the counts alone.
        """
        levels = self.item_levels(item_counts)[shard.indices]
        # Differences of running sums are exact, also where these leave the range of int64.
        totals = np.concatenate([[0], np.cumsum(levels * levels)])
        squares = totals[shard.indptr[1:]] - totals[shard.indptr[:-1]]
        # The norm, counted in parts of 2**-16, is below 2**47, and its root is off by less than 2**-5.  Two more parts
        # bound it from above and cost at most 2**-15 of it.  Products stay below 2**62.
        norms = (np.sqrt(squares.astype(np.float64)) * _NORM_UNIT).astype(np.int64) + 2
        return (levels * scale * _NORM_UNIT // np.repeat(norms, shard.interactions_per_user())).astype(np.int32)
