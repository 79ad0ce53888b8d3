"""Linear scores of a device from factors of the matrix of item pairs: EASE without an n_items x n_items matrix."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread

__all__ = ["LinearScores", "inverse_factors", "linear_scores", "popularity_shares"]

_MIN_SHARE = 0.01  # smallest share of an item, over the share of the most popular item
_MIN_UNSHARED = 0.1  # smallest part of an item's square that no factor explains, since noise may make it negative


class LinearScores(NamedTuple):
    """Factors F and scales d of the weights d_j F_i'F_j / (d_i (1 - |F_j|^2)) from item i to another item j."""

    factors: NDArray[np.float64]  # F, (n_items, rank)
    scales: NDArray[np.float64]  # d, above 0, (n_items,)

    @property
    def left(self) -> NDArray[np.float64]:
        """Factor L of the weights, which are L R' less its diagonal."""
        return self.factors / self.scales[:, None]

    @property
    def right(self) -> NDArray[np.float64]:
        """Factor R of the weights, which are L R' less its diagonal."""
        squares = np.square(self.factors).sum(axis=1)
        return self.factors * (self.scales / (1 - squares))[:, None]

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """Diagonal of L R', which the weights do not contain."""
        squares = np.square(self.factors).sum(axis=1)
        return squares / (1 - squares)

    def weights(self, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return L, R and the diagonal of the weights times a number."""
        return self.left, scale * self.right, scale * self.diagonal


def linear_scores(factors: np.ndarray, item_squares: np.ndarray, ridge: float) -> LinearScores:
    """Return the scoring of EASE for the matrix L L' with the diagonal `item_squares` plus a ridge.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019.
    """
    shared = np.square(factors).sum(axis=1)
    ridges = np.maximum(item_squares - shared, _MIN_UNSHARED * item_squares) + ridge
    return LinearScores(inverse_factors(factors, ridges), np.sqrt(ridges))


def inverse_factors(factors: np.ndarray, ridges: np.ndarray) -> NDArray[np.float64]:
    """Return factors F, with rows of norm below 1, of the inverse D^-1/2 (I - F F') D^-1/2 of L L' + D, D diagonal."""
    # EASE's weights are minus the inverse's columns over their diagonal: sqrt(d_j / d_i) F_i'F_j / (1 - |F_j|^2) from
    # item i to item j.  Ridge regression has a diagonal, and the weights sqrt(d_j / d_i) F_i'F_j.
    if factors.shape[1] == 0:
        return factors
    with one_blas_thread():
        scaled = factors / np.sqrt(ridges)[:, None]
        inner = scaled.T @ scaled
        inner.flat[:: len(inner) + 1] += 1.0
        # By Woodbury's identity F F' = S (I + S'S)^-1 S' with S = D^-1/2 L.
        return scaled @ np.linalg.inv(np.linalg.cholesky(inner)).T


def popularity_shares(popularity: np.ndarray) -> NDArray[np.float64]:
    """Return each item's share of all interactions, above 0 with sum 1, by a noisy popularity in any unit."""
    floored = np.maximum(popularity, _MIN_SHARE * max(float(popularity.max()), 0.0))
    total = floored.sum()
    return floored / total if total > 0 else np.full(len(popularity), 1 / len(popularity))
