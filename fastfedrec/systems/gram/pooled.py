"""One estimate from all releases about item pairs: the pairs, and their products with a few columns.

The inputs are releases and public numbers only.  See docs/explanation/systems/gram/dp-gram.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.signs import with_signs
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.systems._feature_prior import combine, squares
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.gram._feature_shrinkage import add_negative_part, subtract_prior
from fastfedrec.systems.gram.columns import next_encoder
from fastfedrec.systems.gram.non_negative import non_negative
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.shrinkage import RANK, shrink_matrix

__all__ = ["N_LEADING", "PooledPairs", "wiener_weights"]

N_LEADING = 96  # columns of the estimates between rounds, more than encoders and measurements use
_MIN_PRECISION = 1e-6  # smallest precision of columns about a direction, over the precision of pairs
_MIN_GAP = 1e-7  # relative gap between consecutive eigenvalues
_N_PASSES = 2  # smallest number of passes, because the first one has no diagonal
_ROWS = 1024  # rows of a block, so that no second array of the matrix's size is held


class PooledPairs:
    """Estimate of the users' matrix A from noisy pairs P = A + s W and from rounds of noisy columns Y = A F + W.

    The matrices W have independent standard normal entries.  The values of `pairs` are overwritten.
    """

    # The most likely A weighs P and Y by their precisions.  With F F' = U K U' in units of s, entry i, j in the
    # coordinates of U has noise of variance s^2 / (1 + K_i + K_j), where K is 0 outside of F.  Directions are
    # multiplied by the root of (1 + K_i) / s.  Then all but the few entries within U have noise of variance 1, and the
    # matrix is denoised like pairs alone.
    # Earlier releases choose F.  That does not change the likelihood, so it does not change the most likely A.

    def __init__(
        self, pairs: PairMatrix, form: PairForm, n_users: int, features: AlignedFeatures | None, n_threads: int
    ):
        self.form, self.noise = form, pairs.noise
        self._pairs, self._pair_noise, self._n_users, self._n_threads = pairs.values, pairs.noise, n_users, n_threads
        self._prior = subtract_prior(pairs.values, pairs.noise, features, form.mean)
        self._columns = self._answers = np.zeros((len(pairs.values), 0))
        self._diagonal, self._n_passes = np.zeros(len(pairs.values)), 0
        self._rank, self._values, self._vectors = 0, np.zeros(0), np.zeros((len(pairs.values), 0))
        self._weights = np.ones((len(pairs.values), 1))

    @property
    def factors(self) -> NDArray[np.float64]:
        """Factors L of the estimate L L', of rank at most `RANK`, with the strongest column first."""
        self._estimate(RANK, n_passes=_N_PASSES)
        weighted = self._weights * self._vectors
        if self._prior.shape[1]:
            factors = self._joined(weighted, RANK)
        else:  # all values are above 0, and factors need not be orthogonal
            factors = np.sqrt(self._pair_noise * self._values) * weighted
        return non_negative(factors, math.sqrt(self.form.weight) * self.form.mean)

    @property
    def leading(self) -> NDArray[np.float64]:
        """Factors of a smaller rank, for measurements."""
        # An estimate about a prior takes longer for more columns.  Another one is that of the factors.
        self._estimate(N_LEADING if self._prior.shape[1] else RANK)
        return self._joined(self._weights * self._vectors, N_LEADING)

    @property
    def directions(self) -> NDArray[np.float64]:
        """Factors of a smaller rank without the weights of items, for encoders."""
        self._estimate(N_LEADING)
        return self._joined(self._vectors, N_LEADING)

    def encoder(self, planned: np.ndarray) -> NDArray[np.int16]:
        """Return the strongest directions, with the shape of the planned encoder."""
        return next_encoder(self.directions, planned.shape[1], self._pair_noise)

    def add(self, sums: np.ndarray, encoder: np.ndarray, noise: float) -> None:
        """Add the noisy sums of a round, in L2 bounds of one contribution, with noise of this standard deviation."""
        # Independent releases combine by the sum of their precisions.
        self.noise = (self.noise**-2 + noise**-2) ** -0.5
        used = encoder.any(axis=0)
        if not used.any():
            return
        columns = encoder[:, used] * (self.form.strength(sums, encoder, self._n_users) / noise)
        with one_blas_thread():
            of_prior = self._prior @ (self._prior.T @ columns) - squares(self._prior)[:, None] * columns
        self._columns = np.column_stack([self._columns, columns])
        self._answers = np.column_stack([self._answers, sums[:, used] / noise - of_prior])
        self._rank = 0  # the estimate lacks this round

    def _item_weights(self) -> NDArray[np.float64]:
        """Return the factor of each item's row of the estimate about the prior, at most 1, (n_items, 1)."""
        # Squares of long rows, which are centred, differ from the bounds by a quarter.  Their weights would lose more
        # signal than noise, unless features explain a part of the signal.
        if self.form.is_full and not self._prior.shape[1]:
            return np.ones((len(self._diagonal), 1))
        return wiener_weights(self._diagonal, self.form.personal_squares)[:, None]

    def _joined(self, vectors: np.ndarray, rank: int) -> NDArray[np.float64]:
        """Return factors of the estimate with the prior, with the strongest column first."""
        n = len(self._values) if self._prior.shape[1] else rank  # without a prior, the first ones are the strongest
        return with_signs(combine(self._pair_noise * self._values[:n], vectors[:, :n], self._prior, rank))

    def _estimate(self, rank: int, n_passes: int = 1) -> None:
        """Estimate from all releases so far, unless the last estimate did, with this rank and number of passes."""
        while self._rank < rank or self._n_passes < n_passes:
            is_first, (self._values, self._vectors, self._diagonal) = self._rank == 0, self._estimated(rank)
            self._rank, self._n_passes = rank, self._n_passes + 1
            if is_first:  # further passes keep the weights of these releases
                self._weights = self._item_weights()

    @one_blas_thread()
    def _estimated(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return x and V of the estimate V diag(x) V' about the prior, and the diagonal of its positive part."""
        basis, precisions = _directions(self._pair_noise * self._columns)
        scales = np.sqrt(1 + precisions)
        matrix = self._whitened(basis, precisions, scales)
        shrunk = shrink_matrix(matrix, 1.0, rank, self._n_threads, is_whole=True)
        # Shrinking makes some eigenvalues equal.  Without a gap, rounding errors would decide the order of the vectors.
        values, vectors = shrunk.values * (1 + _MIN_GAP * np.arange(len(shrunk.values))[::-1]), shrunk.vectors
        unexplained = shrunk.diagonal - np.square(vectors) @ values
        if self._prior.shape[1]:
            values, vectors = add_negative_part(shrunk._replace(values=values), matrix, 1.0, rank, self._n_threads)
        # Undo the scales of the directions U; the vectors are not orthogonal after it.
        vectors = vectors - basis @ ((1 - 1 / scales)[:, None] * (basis.T @ vectors))
        diagonal = self._pair_noise * (np.square(vectors) @ np.maximum(values, 0.0) + np.maximum(unexplained, 0.0))
        return values, vectors, diagonal

    def _whitened(self, basis: np.ndarray, precisions: np.ndarray, scales: np.ndarray) -> NDArray[np.float32]:
        """Return the most likely matrix in units of its noise, with the diagonal of the previous estimate."""
        noise, diagonal, single = self._pair_noise, self._diagonal[:, None], basis.astype(np.float32)
        parts = [slice(start, start + _ROWS) for start in range(0, len(self._pairs), _ROWS)]
        of_pairs = np.concatenate([self._pairs[part] @ single for part in parts]).astype(np.float64)
        of_pairs = (of_pairs + diagonal * basis) / noise
        # Y (F'U) is a sufficient statistic of the rounds for the directions of U, weighted by precision.
        of_both = of_pairs + (self._answers + diagonal * self._columns) @ (noise * self._columns.T @ basis)
        inner, pair_inner = basis.T @ of_both, basis.T @ of_pairs
        # Entries between U and its complement are scaled on one side, and entries within U on both sides.
        outer = (of_both - basis @ inner) / scales - (of_pairs - basis @ pair_inner)
        both = (inner + inner.T - pair_inner) * (scales[:, None] * scales) / (1 + precisions[:, None] + precisions)
        change = (outer + basis @ ((both - pair_inner) / 2)).astype(np.float32)
        whitened = self._pairs / np.float32(noise)
        np.fill_diagonal(whitened, diagonal / noise)
        for part in parts:
            whitened[part] += single[part] @ change.T + change[part] @ single.T
        return whitened


def wiener_weights(squares: np.ndarray, largest: np.ndarray) -> NDArray[np.float64]:
    """Return weights for the rows of an estimate from its diagonal and the largest possible one without noise."""
    # Noise is equal for all items, so it is at least the mean excess v of the squares.  With signals proportional to
    # the roots of c_i c_j, Wiener's factor of an entry is c_i c_j / (c_i c_j + v^2).  Weights c / sqrt(c^2 + v^2) of
    # rows give it to the diagonal, and about it to other entries.
    bounds = np.maximum(largest, 0.0)
    noise = float(np.maximum(squares - bounds, 0.0).mean())
    return bounds / np.hypot(bounds, noise) if noise > 0 else np.ones(len(bounds))


def _directions(columns: np.ndarray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvectors U of F F', and their eigenvalues, without negligible ones."""
    values, turn = np.linalg.eigh(columns.T @ columns)
    is_large = values > max(_MIN_PRECISION, len(values) * np.finfo(float).eps * values.max(initial=0.0))
    return columns @ (turn[:, is_large] / np.sqrt(values[is_large])), values[is_large]
