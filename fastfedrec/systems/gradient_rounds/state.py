"""The state of a run of FedRec, FedRec++ or SDCF that the server broadcasts."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms import FixedSizeSampling

__all__ = ["FedRecState"]


@dataclass(frozen=True)
class FedRecState:
    """The state that the server broadcasts; all of it is public.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors), float64
        Item factors V.
    learning_rate : float
        Step size of the open round.
    global_user_ids : ndarray of shape (n_users,), uint64
        All users of the run.
    cohort_size : int
        Number of users in a round.
    seed : int
        Seed of public draws: the cohorts, and each user's denoiser.
    denoisers : ndarray of shape (n_users,), uint64
        Denoiser of each user, a denoiser's own id for itself; of length 0 without denoisers.
    weights : ndarray of shape (n_items,), float64
        Weights by which unrated items are drawn; of length 0 for equal weights.
    divisors : ndarray of shape (n_items,), float64
        Divisors of the sums; of length 0 to divide by each round's count of raters.
    """

    item_factors: NDArray[np.float64]
    learning_rate: float
    global_user_ids: NDArray[np.uint64]
    cohort_size: int
    seed: int
    denoisers: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    divisors: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def rows(self, users: np.ndarray) -> np.ndarray:
        """Return the positions of global ids among all users."""
        order = np.argsort(self.global_user_ids)
        # Ids need not be sorted, so the search goes through their order.
        return order[np.searchsorted(self.global_user_ids, users, sorter=order)]

    def roles(self, users: np.ndarray, round_number: int) -> np.ndarray:
        """Return each user's role in a round: 0 outside the cohort, 2 for a denoiser in it, 1 for other users."""
        n = len(self.global_user_ids)
        roles = np.zeros(n, dtype=np.uint8)
        # A public seed draws the cohort, so that every party computes the same one.
        cohort = FixedSizeSampling(self.cohort_size).sample(n, key=Key.from_seed(self.seed), round=round_number)
        roles[cohort] = 1
        if len(self.denoisers):
            roles[(roles == 1) & (self.denoisers == self.global_user_ids)] = 2
        return roles[self.rows(users)]
