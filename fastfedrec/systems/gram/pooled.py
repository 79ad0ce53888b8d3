"""All releases about item pairs as one estimate: the pairs, and their products with a few columns.

Nothing here looks at anything but releases and public numbers.  See docs/explanation/systems/gram/dp-gram.md.
"""

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.signs import with_signs
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.systems._feature_prior import combine, squares
from fastfedrec.systems.gram._feature_shrinkage import take_prior_off, with_negative
from fastfedrec.systems.gram.columns import next_encoder
from fastfedrec.systems.gram.decision import PairMatrix
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.shrinkage import RANK, shrink_matrix

__all__ = ["PooledPairs"]

_N_LEADING = 96  # columns of the estimates between rounds, more than encoders and measurements use
_LEAST_PRECISION = 1e-6  # of columns about a direction, over that of pairs; directions below it are left to pairs
_APART = 1e-7  # between neighbours among eigenvalues, relative
_ROWS = 1024  # of the matrix at a time: no other array of its size is held


class PooledPairs:
    """The users' matrix A from the noisy pairs P = A + s W and from rounds of noisy columns Y = A F + W.

    W stands for independent standard normal noise.  The most likely A weighs P and Y by their precisions.  With
    F F' = U K U' in units of s, entry i, j in the coordinates of U has noise of variance s^2 / (1 + K_i + K_j), where K
    is 0 outside of F.  Directions are multiplied by the root of (1 + K_i) / s.  Then all but the few entries within U
    have noise of variance 1, and the matrix is denoised as pairs alone are.

    Earlier releases choose F.  That does not change the likelihood, so it does not change the most likely A.

    Parameters
    ----------
    pairs : PairMatrix
        The release, about popularity; its values are kept and changed.
    form : PairForm
        Form of the pairs.
    n_users : int
        Public number.
    features : AlignedFeatures or None
        What is publicly known of the items.
    n_threads : int
        0 for all; the result does not depend on it.
    """

    def __init__(
        self, pairs: PairMatrix, form: PairForm, n_users: int, features: AlignedFeatures | None, n_threads: int
    ):
        self.form, self.noise = form, pairs.noise
        self._pairs, self._pair_noise, self._n_users, self._n_threads = pairs.values, pairs.noise, n_users, n_threads
        self._prior = take_prior_off(pairs.values, pairs.noise, features, form.mean)
        self._columns = self._answers = np.zeros((len(pairs.values), 0))
        self._diagonal = np.zeros(len(pairs.values))
        self.leading, self._diagonal = self._estimated(_N_LEADING)

    @property
    def factors(self) -> NDArray[np.float64]:
        """Factors L of the estimate L L', of rank `RANK` at most, the strongest column first."""
        return self._estimated(RANK)[0]

    def encoder(self, planned: np.ndarray) -> NDArray[np.int16]:
        """Return the strongest directions, of as many columns as the planned encoder."""
        return next_encoder(self.leading, planned.shape[1], self._pair_noise)

    def add(self, sums: np.ndarray, encoder: np.ndarray, noise: float) -> None:
        """Add the noisy sums of a round, in norms of one contribution, with noise of this standard deviation."""
        self.noise = (self.noise**-2 + noise**-2) ** -0.5
        used = encoder.any(axis=0)
        if not used.any():
            return
        asked = encoder[:, used] * (self.form.strength(sums, encoder, self._n_users) / noise)
        with one_blas_thread():
            of_prior = self._prior @ (self._prior.T @ asked) - squares(self._prior)[:, None] * asked
        self._columns = np.column_stack([self._columns, asked])
        self._answers = np.column_stack([self._answers, sums[:, used] / noise - of_prior])
        self.leading, self._diagonal = self._estimated(_N_LEADING)

    @one_blas_thread()
    def _estimated(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return factors of the estimate, and the diagonal of its part above 0, from which the next one starts."""
        basis, precisions = _directions(self._pair_noise * self._columns)
        scales = np.sqrt(1 + precisions)
        matrix = self._whitened(basis, precisions, scales)
        found = shrink_matrix(matrix, 1.0, rank, self._n_threads, is_whole=True)
        # Shrinking leaves some eigenvalues equal.  With no order, rounding errors would choose among their vectors.
        values, vectors = found.values * (1 + _APART * np.arange(len(found.values))[::-1]), found.vectors
        others = found.diagonal - np.square(vectors) @ values
        if self._prior.shape[1]:
            values, vectors = with_negative(found._replace(values=values), matrix, 1.0, rank, self._n_threads)
        vectors = vectors - basis @ ((1 - 1 / scales)[:, None] * (basis.T @ vectors))
        diagonal = self._pair_noise * (np.square(vectors) @ np.maximum(values, 0.0) + np.maximum(others, 0.0))
        return with_signs(combine(self._pair_noise * values, vectors, self._prior, rank)), diagonal

    def _whitened(self, basis: np.ndarray, precisions: np.ndarray, scales: np.ndarray) -> NDArray[np.float32]:
        """Return the most likely matrix in units of its noise, with the diagonal of the last estimate."""
        noise, diagonal, single = self._pair_noise, self._diagonal[:, None], basis.astype(np.float32)
        parts = [slice(start, start + _ROWS) for start in range(0, len(self._pairs), _ROWS)]
        of_pairs = np.concatenate([self._pairs[part] @ single for part in parts]).astype(np.float64)
        of_pairs = (of_pairs + diagonal * basis) / noise
        # Y (F'U) is sufficient for the directions of U: what the rounds say of them, weighted by precision.
        of_both = of_pairs + (self._answers + diagonal * self._columns) @ (noise * self._columns.T @ basis)
        inner, own = basis.T @ of_both, basis.T @ of_pairs
        outer = (of_both - basis @ inner) / scales - (of_pairs - basis @ own)
        both = (inner + inner.T - own) * (scales[:, None] * scales) / (1 + precisions[:, None] + precisions)
        change = (outer + basis @ ((both - own) / 2)).astype(np.float32)
        whitened = self._pairs / np.float32(noise)
        np.fill_diagonal(whitened, diagonal / noise)
        for part in parts:
            whitened[part] += single[part] @ change.T + change[part] @ single.T
        return whitened


def _directions(asked: np.ndarray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvectors U of F F', and their eigenvalues, without negligible ones."""
    values, turn = np.linalg.eigh(asked.T @ asked)
    kept = values > max(_LEAST_PRECISION, len(values) * np.finfo(float).eps * values.max(initial=0.0))
    return asked @ (turn[:, kept] / np.sqrt(values[kept])), values[kept]
