"""The server's computations from noisy projections: a matrix of low rank, and the next encoder.

The k-th release is C_k = kappa_k hollow(A) E_k + s_k W_k.  Here A is the matrix of item pairs, which is symmetric, with
positive eigenvalues and an approximately known diagonal; hollow(A) is A without its diagonal.  E_k is the public
encoder, and the noise W_k has variance 1 in each entry.  See docs/explanation/systems/subspace/dp-subspace.md.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.signs import with_signs
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems._column_strength import strength_of
from fastfedrec.systems._feature_prior import (
    believed_scales,
    combine,
    hollow_inner,
    spread_of_pairs,
    squares,
    strongest,
)
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems._public_mean import floored
from fastfedrec.systems.projection_rounds import public_signs

_DIAGONAL_STEPS = 8  # number of fits, each with the diagonal of the previous one
# Number of columns of an encoder: this many times the number of directions above the noise, plus a constant.
_COLUMNS_PER_DIRECTION, _MIN_COLUMNS = 4, 8
_MIN_RESIDUAL = 0.1  # smallest value of 1 - |mean|^2, which is near 0 only with much noise
_MIN_SIGNAL = 0.01  # smallest squared norm of the signal of a column, over the squared norm of its noise
_MIN_WEIGHT = 1e-9  # smallest weight over the largest one, for directions that no encoder measured
_MIN_SQUARE = 1e-9  # smallest squared singular value; noise alone has at least 1, and a missing direction has less
# Smallest scale of a prior in standard deviations, since an uninformative prior uses columns of the next encoder.
_MIN_BELIEF = 3.0
_ROOT_MEAN_SQUARE = 16.0  # root mean square of an encoder's entries
_MAX_LENGTH = 2.0**12  # largest norm of an encoder's columns, so that entries are far below the bound of devices
_ROWS = 4096  # rows of a block; products of a block are in double precision


@dataclass(frozen=True)
class Release:
    """One round of projections."""

    sums: np.ndarray  # noisy sums in standard deviations of their noise, (n_items, n_columns), float32
    encoder: np.ndarray  # E, (n_items, n_columns), int16
    strength: float  # kappa / s, the factor of hollow(A) E in `sums`


class Projections:
    """All rounds of projections so far, and the estimate L L' of A that fits them, with L in `factors`.

    The trace of A is `n_users`, `mean` is the positive public mean of the users' rows, and `priors` are the G of the
    priors G G' from public features (`systems/_feature_prior.py`).  The estimate is fitted around the G G' of `prior`.
    """

    @one_blas_thread()
    def __init__(self, n_users: int, mean: np.ndarray, priors: Sequence[np.ndarray] = ()):
        self.n_users = n_users
        self.mean = mean
        self.priors = priors
        self.releases: list[Release] = []
        self.factors = self.prior = np.zeros((len(mean), 0))
        self.diagonal = item_diagonal(n_users, mean)
        self.form = ProjectionForm(n_users / max(1 - float(mean @ mean), _MIN_RESIDUAL))
        # Popular items' rows have more signal, and all rows have the same noise.  So rows are weighted by the mean,
        # scaled so that the noise has the spectrum of `_n_rows` rows with equal weights.
        self._shares = mean / mean.sum()
        self._weights = self._shares / (self._shares @ self._shares)
        self._n_rows = float(self._weights.sum())

    @one_blas_thread()
    def add(self, sums: np.ndarray, encoder: np.ndarray, noise: float) -> None:
        """Add the noisy sums of one round, in L2 bounds of a contribution, with noise of this standard deviation."""
        if not len(encoder):
            encoder = public_signs(*sums.shape)
        used = encoder.any(axis=0)
        if not used.all():  # columns that were rounded to 0 have sums of pure noise
            sums, encoder = sums[:, used], encoder[:, used]
        strength = strength_of(sums, encoder, self.diagonal, self.n_users) / noise
        scaled = np.empty(sums.shape, dtype=np.float32)
        np.divide(sums, noise, out=scaled, casting="same_kind")  # without a copy in double precision
        self.releases.append(Release(scaled, encoder, strength))
        if self.priors:
            self.prior = self._fit_prior()
        factors = self._fit()
        self.factors = factors[:, np.argsort(-squares(factors.T))]

    @property
    def noise(self) -> float:
        """Standard deviation of noise on A with the same largest singular value as the last round's noise."""
        last = self.releases[-1]
        return 1 / (last.strength * _max_norm(last.encoder))

    @property
    def leading(self) -> NDArray[np.float64]:
        """All factors, since their rank is small."""
        return self.factors

    def encoder(self, planned: np.ndarray) -> NDArray[np.int16]:
        """Return the encoder of the next round; in the first round it is the planned one, for public signs."""
        return self.next_encoder() if self.releases else planned

    @one_blas_thread()
    def next_encoder(self) -> np.ndarray:
        """Return the strongest directions of all rounds as an encoder, with no more columns than the first round had.

        The norm of a column is at most `_MAX_LENGTH`, so that entries fit into 16 bits and the bounds of devices.
        """
        n_items, n_columns = self.releases[0].sums.shape
        unknown = np.zeros(n_items)
        values, vectors, _ = self._decompose(unknown)
        n_signals = np.count_nonzero(shrink(values, self._n_rows, len(values)))
        believed = strongest(self.prior, n_columns // 2)
        n_measured = min(n_columns - believed.shape[1], _COLUMNS_PER_DIRECTION * n_signals + _MIN_COLUMNS)
        right = vectors[:, :n_measured] / np.sqrt(values[:n_measured])
        columns = shrink_rows(self._rows(unknown, right), np.square(right).sum(axis=0), self._shares)
        # With one or two items, noise may make all sums 0; then the first encoder is repeated.
        if not columns.any():
            return self.releases[0].encoder
        if believed.shape[1]:
            columns = np.column_stack([believed * _max_norm(columns), columns])
        return to_whole(with_signs(columns))

    def _fit_prior(self) -> np.ndarray:
        """Return G of the sum of a_b P_b that is nearest to all sums so far, with shrunk scales (`believed_scales`)."""
        # The popularity block has its own scale, so that features of popular items do not explain popularity.
        blocks = [*self.priors, self.mean[:, None]]
        ends = [self._ends(factors) for factors in blocks]
        products, inner = np.zeros(len(blocks)), np.zeros((len(blocks), len(blocks)))
        for part, sums, encoders in self._sides():
            observed = sums.astype(np.float64).ravel()
            # The sums that each prior predicts: hollow(G G') F.
            predicted = np.stack([
                (factors[part] @ end - squares(factors[part])[:, None] * encoders).ravel()
                for factors, end in zip(blocks, ends, strict=True)
            ])  # fmt: skip
            products += predicted @ observed
            inner += predicted @ predicted.T
        spread = spread_of_pairs(hollow_inner(blocks), self._mean_square())
        scales = believed_scales(products, inner, spread, _MIN_BELIEF)[:-1]
        scaled = [math.sqrt(a) * factors for a, factors in zip(scales, self.priors, strict=True) if a > 0]
        return np.column_stack(scaled) if scaled else self.prior[:, :0]

    def _mean_square(self) -> float:
        """Return the mean square of the symmetrised entries of SF' off the diagonal, weighted by the items' means."""
        # Uninformative features are multiplied with these entries: with noise, and with the structure of all items.
        n_columns = sum(release.sums.shape[1] for release in self.releases)
        sum_gram, encoder_gram, crossed = (np.zeros((n_columns, n_columns)) for _ in range(3))
        on_diagonal = 0.0
        for part, sums, encoders in self._sides():
            shares, sums = self.mean[part, None], sums.astype(np.float64)
            sum_gram += (shares * sums).T @ sums
            encoder_gram += (shares * encoders).T @ encoders
            crossed += (shares * sums).T @ encoders
            on_diagonal += float(np.square(self.mean[part] * (sums * encoders).sum(axis=1)).sum())
        # |(M + M') / 2|^2 = (|M|^2 + tr(M M)) / 2 for the weighted M = SF', less its diagonal.
        total = (float(np.vdot(sum_gram, encoder_gram)) + float(np.vdot(crossed, crossed.T))) / 2 - on_diagonal
        return total / (self.mean.sum() ** 2 - float(self.mean @ self.mean))

    def _fit(self) -> np.ndarray:
        """Return factors of the matrix of low rank that fits all rounds and the prior."""
        # Releases lack the diagonal of A, so each step adds the diagonal of the previous estimate.
        diagonal, factors = np.zeros(len(self.diagonal)), self.factors
        for _ in range(_DIAGONAL_STEPS):
            values, vectors, inner = self._decompose(diagonal)
            signals = shrink(values, self._n_rows, len(values))
            is_signal = signals > 0
            # The left singular vectors are Y times these.
            coefficients = vectors[:, is_signal] / np.sqrt(values[is_signal])
            small = solve_symmetric(signals[is_signal, None] * vectors[:, is_signal].T, coefficients.T @ inner)
            weights, turn = np.linalg.eigh(small)
            if not self.prior.shape[1]:
                weights = np.maximum(weights, 0.0)
            factors = self._rows(diagonal, coefficients @ (turn * np.sqrt(np.abs(weights))))
            diagonal = (np.square(factors) * np.sign(weights)).sum(axis=1)
        if not self.prior.shape[1]:
            return factors
        n_columns = sum(release.sums.shape[1] for release in self.releases)
        return combine(np.sign(weights), factors, self.prior, n_columns)

    # ---- all rounds side by side, in standard deviations of noise: Y = S - hollow(G G') F + diagonal * F ---------
    # With row weights w = d^2, the matrix is dY = (dAd)(F / d).  Its left singular vectors are dY times the matrix that
    # makes A's factors from Y, and (dY)'(F / d) is Y'F.

    def _blocks(self, diagonal: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield blocks of rows of Y and of F, in double precision."""
        ends = self._ends(self.prior) if self.prior.shape[1] else None
        for part, sums, encoders in self._sides():
            sums = sums + diagonal[part, None] * encoders
            if ends is not None:
                sums -= self.prior[part] @ ends - squares(self.prior[part])[:, None] * encoders
            yield part, sums, encoders

    def _sides(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield blocks of rows of S and of F."""
        for start in range(0, len(self.mean), _ROWS):
            part = slice(start, start + _ROWS)
            encoders = np.column_stack([release.strength * release.encoder[part] for release in self.releases])
            yield part, np.column_stack([release.sums[part] for release in self.releases]), encoders

    def _ends(self, factors: np.ndarray) -> np.ndarray:
        """Return G'F for factors G."""
        return sum(factors[part].T @ encoders for part, _, encoders in self._sides())  # type: ignore[return-value]

    def _decompose(self, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the squared singular values of the weighted Y, falling, its right singular vectors, and Y'F."""
        n_columns = sum(release.sums.shape[1] for release in self.releases)
        gram, inner = np.zeros((n_columns, n_columns)), np.zeros((n_columns, n_columns))
        for part, sums, encoders in self._blocks(diagonal):
            gram += (sums * self._weights[part, None]).T @ sums
            inner += sums.T @ encoders
        values, vectors = np.linalg.eigh(gram)
        return np.maximum(values[::-1], _MIN_SQUARE), vectors[:, ::-1], inner

    def _rows(self, diagonal: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return Y times a few columns."""
        rows = np.empty((len(diagonal), right.shape[1]))
        for part, sums, _ in self._blocks(diagonal):
            rows[part] = sums @ right
        return rows


class ProjectionForm(NamedTuple):
    """The centring of DPSubspace's rows, and `weight`, the trace of the users' matrix that is not centred."""

    weight: float

    @staticmethod
    def public(item_means: np.ndarray) -> NDArray[np.float64]:
        """Return the mean that centres rows, for a noisy one."""
        return floored(item_means)

    def about(self, mean: np.ndarray) -> PairMatrix:
        """Return an empty matrix with the popularity of a mean of the rows."""
        return PairMatrix.about(mean, self.weight)


@one_blas_thread()
def item_diagonal(n_users: int, mean: np.ndarray) -> np.ndarray:
    """Approximate the diagonal of A, at least 0, from a positive mean of rows with norm at most 1."""
    # A is the sum of z z' / |z|^2, of trace `n_users`.  For a row z = x - m with entries x_i that are 0 or nearly
    # equal, the square at an item has mean m_i - m_i^2, in units in which the mean's entries add up to 1.
    weight = n_users / max(1 - float(mean @ mean), _MIN_RESIDUAL)
    return weight * np.maximum(mean / mean.sum() - np.square(mean), 0.0)


def shrink_rows(rows: np.ndarray, noise: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Shrink noisy rows in place for the smallest mean squared error, with the noise variance of each column.

    The square of an item's signal is taken as proportional to the item's share of all popularity.
    """
    # Each entry is multiplied by r / (1 + r), with r the ratio of the variances of its signal and noise.
    total_noise = len(rows) * noise
    signals = np.maximum(np.square(rows).sum(axis=0) - total_noise, _MIN_SIGNAL * total_noise)
    total_ratios = signals / np.maximum(noise, np.finfo(float).tiny)
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        ratios = shares[part, None] * total_ratios
        rows[part] *= ratios / (1 + ratios)
    return rows


def shrink(squares: np.ndarray, n_rows: float, n_columns: int) -> np.ndarray:
    """Return shrunk singular values, nearest in Frobenius norm, from squared ones with noise of variance 1 per entry.

    A value within the spectrum of pure noise becomes 0; rows with unequal weights count as their effective number.

    References
    ----------
    .. [1] Gavish, Donoho, "Optimal shrinkage of singular values", IEEE Transactions on Information Theory, 2017.
    """
    y, beta = squares / n_rows, n_columns / n_rows
    radicand = np.maximum((y - beta - 1) ** 2 - 4 * beta, 0.0)
    is_signal = y > (1 + math.sqrt(beta)) ** 2  # the upper edge of the Marchenko-Pastur distribution
    return np.sqrt(np.divide(radicand, y, out=np.zeros_like(y), where=is_signal) * n_rows)


def solve_symmetric(values: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Return the symmetric B for which B X is nearest to Z: the one solution of B XX' + XX' B = ZX' + XZ'."""
    # In the eigenbasis of XX' = U diag(w) U', the equation is (w_i + w_j) B_ij = (U'(ZX' + XZ')U)_ij.
    weights, turn = np.linalg.eigh(inputs @ inputs.T)
    cross = values @ inputs.T
    right = turn.T @ (cross + cross.T) @ turn
    sums = weights[:, None] + weights
    min_sum = max(_MIN_WEIGHT * sums.max(initial=0.0), np.finfo(float).tiny)
    return turn @ (right / np.maximum(sums, min_sum)) @ turn.T


def to_whole(columns: np.ndarray) -> np.ndarray:
    """Return an encoder in whole numbers; only directions and ratios of its columns, which are not all 0, matter."""
    # The longest column has root mean square `_ROOT_MEAN_SQUARE`, or less so that its norm is at most `_MAX_LENGTH`.
    # Then the integer weight of a user's row is about a hundred, and rounding it down loses little.
    length = min(_ROOT_MEAN_SQUARE * math.sqrt(len(columns)), _MAX_LENGTH)
    scaled = columns * (length / _max_norm(columns))
    return np.rint(scaled, out=scaled).astype(np.int16)


def _max_norm(columns: np.ndarray) -> float:
    return max(float(np.linalg.norm(columns[:, k].astype(np.float64))) for k in range(columns.shape[1]))
