"""From sums over item pairs to a matrix about popularity: which form users send, and how it is centred."""

import math
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.systems._column_strength import strength_of
from fastfedrec.systems._public_mean import with_floor
from fastfedrec.systems.gram.decision import PairMatrix
from fastfedrec.systems.gram.dp_gram_rounds import SCALE
from fastfedrec.systems.gram.scoring import own_shares

__all__ = ["PairForm", "pairs_about", "public_mean", "symmetric"]

_MIN_SQUARE = 2.0  # of a row's mean root length: the shortest rows that have a pair have two items
_MAX_MEAN_SQUARE = 0.9  # of a mean's squared norm, which only much noise brings near 1


class PairForm(NamedTuple):
    """The form in which users send pairs, by the released mean alone.

    In the full form rows are centred, and each user's whole matrix has norm sqrt(2).  In the other form rows are not
    centred, and the pairs of each user have norm 1; the server takes the product of the means off.  The form with the
    larger signal is used: of a row of k items without its mean, pairs keep 1 - 1 / k of the square of the whole matrix,
    and centring leaves 1 - |mean|^2 of a row's square.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), float64
        Floored mean of users' rows.
    is_full : bool
        Whether users centre their rows.
    weight : float
        Trace of the users' matrix.
    """

    mean: NDArray[np.float64]
    is_full: bool
    weight: float

    @classmethod
    def of(cls, item_means: np.ndarray, n_users: int) -> Self:
        """Choose the form by a noisy mean of the users' rows."""
        mean = public_mean(item_means) / SCALE
        squared_length = max(float(item_means.sum()) ** 2, _MIN_SQUARE)  # the means add up to the mean root of a length
        uncentred = 1 / math.sqrt(1 - 1 / squared_length)
        full = 1 / (1 - min(float(mean @ mean), _MAX_MEAN_SQUARE))
        return cls(mean, full > uncentred, math.sqrt(2) * n_users * max(full, uncentred))

    @property
    def centre(self) -> NDArray[np.int64]:
        """The mean that users take off, in units of 1 / SCALE; zeros in the uncentred form."""
        return np.rint(self.mean * (SCALE * self.is_full)).astype(np.int64)

    def matrix(self, sums: np.ndarray, noise: float) -> PairMatrix:
        """Return the matrix about popularity from sums over pairs i < j, with noise of this standard deviation."""
        values = symmetric(sums)
        if not self.is_full:
            popularity = math.sqrt(self.weight) * self.mean
            for row, factor in zip(values, popularity, strict=True):
                row -= (factor * popularity).astype(np.float32)
            np.fill_diagonal(values, 0)
        return replace(self.about(self.mean), values=values, noise=noise)

    def strength(self, sums: np.ndarray, encoder: np.ndarray, n_users: int) -> float:
        """Return kappa, by which the sums of columns are longer than the products of the matrix with the encoder."""
        used = encoder.any(axis=0)
        if not used.any():
            return 1.0
        # Of the sum of zz' / |z|^2 for centred rows z, whose squares are 1 - |mean|^2; `own_diagonal` has its diagonal.
        square = 1 - min(float(self.mean @ self.mean), _MAX_MEAN_SQUARE)
        diagonal = np.maximum(own_shares(self.mean) - np.square(self.mean), 0.0) * (n_users / square)
        scale = strength_of(sums[:, used], encoder[:, used], diagonal, n_users)
        return scale * n_users / (self.weight * square)

    @staticmethod
    def public(item_means: np.ndarray) -> NDArray[np.float64]:
        """Return the mean that users are sent, for a noisy one."""
        return public_mean(item_means) / SCALE

    def about(self, mean: np.ndarray) -> PairMatrix:
        """Return an empty matrix beside the popularity of a mean of the rows, for factors that are known already."""
        return pairs_about(mean, self.weight)


def pairs_about(mean: np.ndarray, weight: float) -> PairMatrix:
    """Return an empty matrix beside the popularity of a mean of the rows, of a users' matrix with this trace.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), float64
        Positive.
    weight : float
        Trace.

    Returns
    -------
    PairMatrix
        Without values.
    """
    return PairMatrix(np.empty((0, 0), np.float32), 0.0, weight * own_shares(mean), math.sqrt(weight) * mean)


def symmetric(pairs: np.ndarray) -> NDArray[np.float32]:
    """Return all pairs from those i < j, in single precision, with zeros on the diagonal.

    Parameters
    ----------
    pairs : ndarray of shape (n_items * (n_items - 1) / 2,)
        By i, then j.

    Returns
    -------
    ndarray of shape (n_items, n_items), float32
        Symmetric.
    """
    n_items = (1 + math.isqrt(1 + 8 * len(pairs))) // 2
    matrix = np.zeros((n_items, n_items), dtype=np.float32)
    start = 0
    for item in range(n_items - 1):
        stop = start + n_items - 1 - item
        matrix[item, item + 1 :] = matrix[item + 1 :, item] = pairs[start:stop]
        start = stop
    return matrix


def public_mean(item_means: np.ndarray) -> NDArray[np.int64]:
    """Return the mean by which rows are centred: never below a hundredth of its largest entry, in units of 1 / SCALE.

    Parameters
    ----------
    item_means : ndarray of shape (n_items,), float64
        Noisy.

    Returns
    -------
    ndarray of shape (n_items,), int64
        From 0 to SCALE.
    """
    return np.rint(with_floor(item_means) * SCALE).astype(np.int64)
