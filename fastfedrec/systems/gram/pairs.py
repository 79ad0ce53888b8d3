"""Conversion of sums over item pairs to a matrix about popularity: form and centring of users' contributions."""

import math
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.systems._column_strength import strength_of
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems._public_mean import with_floor
from fastfedrec.systems.gram.dp_gram_rounds import SCALE

__all__ = ["PairForm", "public_mean", "symmetric"]

_MIN_SQUARE = 2.0  # smallest square of a row's mean root length, since a row with a pair has at least two items
_MAX_MEAN_SQUARE = 0.9  # largest squared norm of a mean, which is near 1 only with much noise


class PairForm(NamedTuple):
    """The form of users' contributions of pairs, chosen by the released mean.

    In the full form rows are centred, and each user's whole matrix has norm sqrt(2).  In the other form rows are not
    centred, and the pairs of each user have norm 1; the server subtracts the product of the means.
    """

    mean: NDArray[np.float64]  # floored mean of users' rows, (n_items,)
    is_full: bool  # whether users centre their rows
    weight: float  # trace of the users' matrix

    @classmethod
    def of(cls, item_means: np.ndarray, n_users: int) -> Self:
        """Choose the form with the larger signal by a noisy mean of the users' rows."""
        # For a row of k items, pairs keep 1 - 1 / k of the square of the whole matrix, and centring leaves 1 - |mean|^2
        # of the row's square.
        mean = public_mean(item_means) / SCALE
        squared_length = max(float(item_means.sum()) ** 2, _MIN_SQUARE)  # the means add up to the mean root of a length
        uncentred = 1 / math.sqrt(1 - 1 / squared_length)
        full = 1 / (1 - min(float(mean @ mean), _MAX_MEAN_SQUARE))
        return cls(mean, full > uncentred, math.sqrt(2) * n_users * max(full, uncentred))

    @property
    def centre(self) -> NDArray[np.int64]:
        """Mean that users subtract, in units of 1 / SCALE; zeros in the uncentred form."""
        return np.rint(self.mean * (SCALE * self.is_full)).astype(np.int64)

    @property
    def personal_squares(self) -> NDArray[np.float64]:
        """Diagonal of the users' matrix about popularity, for this mean, (n_items,)."""
        return self.weight * (popularity_shares(self.mean) - np.square(self.mean))

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
        """Return kappa, the factor of the sums of columns over the products of the matrix with the encoder."""
        used = encoder.any(axis=0)
        if not used.any():
            return 1.0
        # The sum of zz' / |z|^2 over centred rows z with |z|^2 = 1 - |mean|^2 has this diagonal, as in `item_diagonal`.
        square = 1 - min(float(self.mean @ self.mean), _MAX_MEAN_SQUARE)
        diagonal = np.maximum(popularity_shares(self.mean) - np.square(self.mean), 0.0) * (n_users / square)
        scale = strength_of(sums[:, used], encoder[:, used], diagonal, n_users)
        return scale * n_users / (self.weight * square)

    @staticmethod
    def public(item_means: np.ndarray) -> NDArray[np.float64]:
        """Return the mean that users receive, for a noisy one."""
        return public_mean(item_means) / SCALE

    def about(self, mean: np.ndarray) -> PairMatrix:
        """Return an empty matrix with the popularity of a mean of the rows, for factors that are already known."""
        return PairMatrix.about(mean, self.weight)


def symmetric(pairs: np.ndarray) -> NDArray[np.float32]:
    """Return a symmetric matrix, float32 with zeros on the diagonal, from its entries i < j, sorted by i, then j."""
    n_items = (1 + math.isqrt(1 + 8 * len(pairs))) // 2  # solves n (n - 1) / 2 = len(pairs)
    matrix = np.zeros((n_items, n_items), dtype=np.float32)
    start = 0
    for item in range(n_items - 1):
        stop = start + n_items - 1 - item
        matrix[item, item + 1 :] = matrix[item + 1 :, item] = pairs[start:stop]
        start = stop
    return matrix


def public_mean(item_means: np.ndarray) -> NDArray[np.int64]:
    """Return the mean that centres rows, from 0 to SCALE in units of 1 / SCALE, floored at .01 of its largest entry."""
    return np.rint(with_floor(item_means) * SCALE).astype(np.int64)
