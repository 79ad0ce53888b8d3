"""The state and the units of rounds that learn item factors from noisy sums, for DPALS and DPFMF."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_USERS", "SCALE", "UNIT", "FactorState"]

SCALE = 2**18  # users' factors are whole numbers of Euclidean norm at most this
UNIT = SCALE**2  # L2 bound of one user's contribution to one row of any sums
MAX_USERS = 2**25  # keeps sums far from the ends of int64


@dataclass(frozen=True)
class FactorState:
    """The state that the server broadcasts; all of it is public.

    Parameters
    ----------
    item_counts : ndarray of shape (n_items,), float64
        Noisy counts of users' contributed items; zeros before they are released.
    item_factors : ndarray of shape (n_items, n_factors), float64
        Item factors V.
    """

    item_counts: NDArray[np.float64]
    item_factors: NDArray[np.float64]

    @property
    def n_bytes(self) -> int:
        """Size of the broadcast, with counts and factors in single precision."""
        return 4 * (self.item_counts.size + self.item_factors.size)
