"""Linear scores of a device from factors of the matrix of item pairs: EASE without a matrix of items x items."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread

__all__ = ["LinearScores", "inverse_factors", "linear_scores", "own_shares"]

_MIN_SHARE = 0.01  # of the most popular item's: no item is taken to be rarer
_MIN_UNSHARED = 0.1  # of an item's own square: noise may leave any number of it


class LinearScores(NamedTuple):
    """Factors F and scales d of the weights d_j F_i'F_j / (d_i (1 - |F_j|^2)) from item i to another item j.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        F.
    scales : ndarray of shape (n_items,), float64
        d, above 0.
    """

    factors: NDArray[np.float64]
    scales: NDArray[np.float64]

    @property
    def left(self) -> NDArray[np.float64]:
        """L of the weights L R' less their diagonal."""
        return self.factors / self.scales[:, None]

    @property
    def right(self) -> NDArray[np.float64]:
        """R of the weights L R' less their diagonal."""
        itself = np.square(self.factors).sum(axis=1)
        return self.factors * (self.scales / (1 - itself))[:, None]

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of L R', which the weights are without."""
        itself = np.square(self.factors).sum(axis=1)
        return itself / (1 - itself)

    def weights(self, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return L, R and the diagonal of the weights times a number."""
        return self.left, scale * self.right, scale * self.diagonal


def linear_scores(factors: np.ndarray, own_squares: np.ndarray, ridge: float) -> LinearScores:
    """Return the scoring of EASE for the matrix L L', whose diagonal is that of the users' matrix plus a ridge.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L, the part of the matrix that items share.
    own_squares : ndarray of shape (n_items,), float64
        Diagonal of the users' matrix, above 0.
    ridge : float
        Added to the diagonal.

    Returns
    -------
    LinearScores
        Of the same rank.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019.
    """
    shared = np.square(factors).sum(axis=1)
    ridges = np.maximum(own_squares - shared, _MIN_UNSHARED * own_squares) + ridge
    return LinearScores(inverse_factors(factors, ridges), np.sqrt(ridges))


def inverse_factors(factors: np.ndarray, ridges: np.ndarray) -> NDArray[np.float64]:
    """Return factors F of the inverse of L L' + D, D diagonal, which is D^-1/2 (I - F F') D^-1/2.

    EASE's weights, minus the inverse's columns over their diagonal, are then sqrt(d_j / d_i) F_i'F_j / (1 - |F_j|^2)
    from item i to item j, and those of ridge regression, which keeps a diagonal, sqrt(d_j / d_i) F_i'F_j.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L.
    ridges : ndarray of shape (n_items,), float64
        D, above 0.

    Returns
    -------
    ndarray of shape (n_items, rank), float64
        F; the squares of a row add up to less than 1.
    """
    if factors.shape[1] == 0:
        return factors
    with one_blas_thread():
        scaled = factors / np.sqrt(ridges)[:, None]
        inner = scaled.T @ scaled
        inner.flat[:: len(inner) + 1] += 1.0
        # By Woodbury's identity F F' = S (I + S'S)^-1 S' with S = D^-1/2 L.
        return scaled @ np.linalg.inv(np.linalg.cholesky(inner)).T


def own_shares(popularity: np.ndarray) -> NDArray[np.float64]:
    """Return each item's share of all items that users have, by a noisy popularity; no item is without.

    Parameters
    ----------
    popularity : ndarray of shape (n_items,), float64
        In any unit.

    Returns
    -------
    ndarray of shape (n_items,), float64
        Above 0; they add up to 1.
    """
    floored = np.maximum(popularity, _MIN_SHARE * max(float(popularity.max()), 0.0))
    total = floored.sum()
    return floored / total if total > 0 else np.full(len(popularity), 1 / len(popularity))
