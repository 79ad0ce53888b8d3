"""What the server makes of noisy projections: a matrix of low rank, and the next encoder.

The k-th release is C_k = kappa_k hollow(A) E_k + s_k W_k, with A the matrix of item pairs, of which nothing is known
but that it is symmetric, has positive eigenvalues and roughly a known diagonal; with E_k the public encoder, and noise
W_k of variance 1 in each entry.  See docs/explanation/systems/subspace/dp-subspace.md.
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
from fastfedrec.systems._public_mean import floored
from fastfedrec.systems.gram.decision import PairMatrix
from fastfedrec.systems.gram.pairs import pairs_about
from fastfedrec.systems.projection_rounds import public_signs

_DIAGONAL_STEPS = 8
_MORE_THAN_FOUND, _LEAST_COLUMNS = 4, 8  # columns of an encoder: so many times those that stand out, and some more
_LEAST_REST = 0.1  # of 1 - |mean|^2, which only much noise brings near 0
_LEAST_FOUND = 0.01  # of a column's noise, in what is taken to be signal
_LEAST_SEEN = 1e-9  # of the largest weight, for what no encoder asked about
_LEAST_SQUARE = 1e-9  # of a singular value; noise alone has at least 1, and less is a direction that is not there
_LEAST_BELIEF = 3.0  # standard deviations of a prior's scale: one that tells nothing takes columns of the next encoder
_ROOT_MEAN_SQUARE = 16.0  # of an encoder's entries
_LONGEST = 2.0**12  # of an encoder's columns: their entries are less, and so far below what devices answer
_ROWS = 4096  # of a block, whose products are made in double precision


@dataclass(frozen=True)
class Release:
    """One round of projections.

    Parameters
    ----------
    sums : ndarray of shape (n_items, n_columns), float32
        In standard deviations of their noise.
    encoder : ndarray of shape (n_items, n_columns), int16
        E.
    strength : float
        kappa / s, by which hollow(A) E is multiplied in `sums`.
    """

    sums: np.ndarray
    encoder: np.ndarray
    strength: float


class Projections:
    """All rounds of projections so far, and the matrix that fits them.

    Parameters
    ----------
    n_users : int
        The public number of users, which is the trace of A.
    mean : ndarray of shape (n_items,), float64
        Public mean of the users' rows, positive.
    priors : sequence of ndarray of shape (n_items, n), float64
        G of each prior G G' that public features give (`systems/_feature_prior.py`).

    Attributes
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L, whose L L' is what was found of A, the strongest column first.
    prior : ndarray of shape (n_items, n), float64
        G of what is believed of the priors: A is looked for about G G'.
    form : ProjectionForm
        Of a measurement.
    """

    @one_blas_thread()
    def __init__(self, n_users: int, mean: np.ndarray, priors: Sequence[np.ndarray] = ()):
        self.n_users = n_users
        self.mean = mean
        self.priors = priors
        self.releases: list[Release] = []
        self.factors = self.prior = np.zeros((len(mean), 0))
        self.diagonal = own_diagonal(n_users, mean)
        self.form = ProjectionForm(n_users / max(1 - float(mean @ mean), _LEAST_REST))
        # An item's row has the more to tell the more popular it is, and the noise is the same in all: rows weigh as
        # the mean, scaled so that noise lies as it does in so many rows that weigh alike.
        self._shares = mean / mean.sum()
        self._weights = self._shares / (self._shares @ self._shares)
        self._n_rows = float(self._weights.sum())

    @one_blas_thread()
    def add(self, sums: np.ndarray, encoder: np.ndarray, noise: float) -> None:
        """Take one round in.

        Parameters
        ----------
        sums : ndarray of shape (n_items, n_columns)
            Noisy, in units of a user's norm.
        encoder : ndarray of shape (n_items, n_columns), int16
            What was projected on; without rows, public signs.
        noise : float
            Standard deviation of an entry.
        """
        if not len(encoder):
            encoder = public_signs(*sums.shape)
        used = encoder.any(axis=0)
        if not used.all():  # where rounding left nothing, there is nothing but noise
            sums, encoder = sums[:, used], encoder[:, used]
        strength = strength_of(sums, encoder, self.diagonal, self.n_users) / noise
        scaled = np.empty(sums.shape, dtype=np.float32)
        np.divide(sums, noise, out=scaled, casting="same_kind")  # without a copy in double precision
        self.releases.append(Release(scaled, encoder, strength))
        if self.priors:
            self.prior = self._believed()
        factors = self._fit()
        self.factors = factors[:, np.argsort(-squares(factors.T))]

    @property
    def noise(self) -> float:
        """Standard deviation of an entry of A's noise whose largest singular value is that of the last round's."""
        last = self.releases[-1]
        return 1 / (last.strength * _longest(last.encoder))

    @property
    def leading(self) -> NDArray[np.float64]:
        """The factors: their rank is small."""
        return self.factors

    def encoder(self, planned: np.ndarray) -> NDArray[np.int16]:
        """The encoder of the next round: the planned one, which stands for public signs, before there is anything."""
        return self.next_encoder() if self.releases else planned

    @one_blas_thread()
    def next_encoder(self) -> np.ndarray:
        """The directions in which most was found: no more columns than tell more than noise would.

        Returns
        -------
        ndarray of shape (n_items, n), int16
            At most as many columns as the first round had, of norm at most `_LONGEST` each, and of entries that 16 bits
            and devices' bounds hold.
        """
        n_items, n_columns = self.releases[0].sums.shape
        unknown = np.zeros(n_items)
        values, vectors, _ = self._decompose(unknown)
        n_found = np.count_nonzero(shrink(values, self._n_rows, len(values)))
        believed = strongest(self.prior, n_columns // 2)
        n_asked = min(n_columns - believed.shape[1], _MORE_THAN_FOUND * n_found + _LEAST_COLUMNS)
        right = vectors[:, :n_asked] / np.sqrt(values[:n_asked])
        columns = likely(self._rows(unknown, right), np.square(right).sum(axis=0), self._shares)
        if not columns.any():  # all sums were 0, as noise may have them where there is an item or two: ask again
            return self.releases[0].encoder
        if believed.shape[1]:
            columns = np.column_stack([believed * _longest(columns), columns])
        return to_whole(with_signs(columns))

    def _believed(self) -> np.ndarray:
        """G of the sum of a_b P_b that is nearest to all sums so far, as far as chance allows (`believed_scales`)."""
        blocks = [*self.priors, self.mean[:, None]]
        ends = [self._ends(factors) for factors in blocks]
        products, inner = np.zeros(len(blocks)), np.zeros((len(blocks), len(blocks)))
        for part, sums, asked in self._sides():
            seen = sums.astype(np.float64).ravel()
            said = np.stack([
                (factors[part] @ end - squares(factors[part])[:, None] * asked).ravel()
                for factors, end in zip(blocks, ends, strict=True)
            ])  # fmt: skip
            products += said @ seen
            inner += said @ said.T
        spread = spread_of_pairs(hollow_inner(blocks), self._mean_square())
        scales = believed_scales(products, inner, spread, _LEAST_BELIEF)[:-1]
        kept = [math.sqrt(a) * factors for a, factors in zip(scales, self.priors, strict=True) if a > 0]
        return np.column_stack(kept) if kept else self.prior[:, :0]

    def _mean_square(self) -> float:
        """Of the entries of SF' off the diagonal, made symmetric, each weighing as its two items.

        That of what features which tell nothing are multiplied with: of noise, and of all that items have in common.
        """
        n_columns = sum(release.sums.shape[1] for release in self.releases)
        own, asking, across = (np.zeros((n_columns, n_columns)) for _ in range(3))
        alone = 0.0
        for part, sums, asked in self._sides():
            shares, sums = self.mean[part, None], sums.astype(np.float64)
            own += (shares * sums).T @ sums
            asking += (shares * asked).T @ asked
            across += (shares * sums).T @ asked
            alone += float(np.square(self.mean[part] * (sums * asked).sum(axis=1)).sum())
        together = (float(np.vdot(own, asking)) + float(np.vdot(across, across.T))) / 2 - alone
        return together / (self.mean.sum() ** 2 - float(self.mean @ self.mean))

    def _fit(self) -> np.ndarray:
        diagonal, factors = np.zeros(len(self.diagonal)), self.factors
        for _ in range(_DIAGONAL_STEPS):
            values, vectors, inner = self._decompose(diagonal)
            signals = shrink(values, self._n_rows, len(values))
            there = signals > 0
            left = vectors[:, there] / np.sqrt(values[there])  # the left singular vectors are Y times these
            small = solve_symmetric(signals[there, None] * vectors[:, there].T, left.T @ inner)
            weights, turn = np.linalg.eigh(small)
            if not self.prior.shape[1]:
                weights = np.maximum(weights, 0.0)
            factors = self._rows(diagonal, left @ (turn * np.sqrt(np.abs(weights))))
            diagonal = (np.square(factors) * np.sign(weights)).sum(axis=1)
        if not self.prior.shape[1]:
            return factors
        n_columns = sum(release.sums.shape[1] for release in self.releases)
        return combine(np.sign(weights), factors, self.prior, n_columns)

    # ---- all rounds side by side, in standard deviations of noise: Y = S - hollow(G G') F + diagonal * F ---------
    # With rows that weigh w = d^2 the matrix dY = (dAd)(F / d), so singular vectors of it are dY times what makes
    # A's factors of Y, and (dY)'(F / d) is Y'F.

    def _blocks(self, diagonal: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Some rows of Y and of F at a time, in double precision."""
        ends = self._ends(self.prior) if self.prior.shape[1] else None
        for part, sums, asked in self._sides():
            sums = sums + diagonal[part, None] * asked
            if ends is not None:
                sums -= self.prior[part] @ ends - squares(self.prior[part])[:, None] * asked
            yield part, sums, asked

    def _sides(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Some rows of S and of F at a time."""
        for start in range(0, len(self.mean), _ROWS):
            part = slice(start, start + _ROWS)
            asked = np.column_stack([release.strength * release.encoder[part] for release in self.releases])
            yield part, np.column_stack([release.sums[part] for release in self.releases]), asked

    def _ends(self, factors: np.ndarray) -> np.ndarray:
        """G'F for factors G."""
        return sum(factors[part].T @ asked for part, _, asked in self._sides())  # type: ignore[return-value]

    def _decompose(self, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Squared singular values of Y with its weights, falling, with right singular vectors; and Y'F."""
        n_columns = sum(release.sums.shape[1] for release in self.releases)
        gram, inner = np.zeros((n_columns, n_columns)), np.zeros((n_columns, n_columns))
        for part, sums, asked in self._blocks(diagonal):
            gram += (sums * self._weights[part, None]).T @ sums
            inner += sums.T @ asked
        values, vectors = np.linalg.eigh(gram)
        return np.maximum(values[::-1], _LEAST_SQUARE), vectors[:, ::-1], inner

    def _rows(self, diagonal: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Y times a few columns."""
        rows = np.empty((len(diagonal), right.shape[1]))
        for part, sums, _ in self._blocks(diagonal):
            rows[part] = sums @ right
        return rows


class ProjectionForm(NamedTuple):
    """The centring of DPSubspace's rows, and the trace of the users' matrix that is not centred.

    Parameters
    ----------
    weight : float
        Trace.
    """

    weight: float

    @staticmethod
    def public(item_means: np.ndarray) -> NDArray[np.float64]:
        """Return the mean that rows are centred by, for a noisy one."""
        return floored(item_means)

    def about(self, mean: np.ndarray) -> PairMatrix:
        """Return an empty matrix beside the popularity of a mean of the rows."""
        return pairs_about(mean, self.weight)


@one_blas_thread()
def own_diagonal(n_users: int, mean: np.ndarray) -> np.ndarray:
    """The diagonal of A, roughly, from the mean of rows alone.

    A is the sum of z z' / |z|^2, of trace `n_users`; of a row z = x - m with entries x_i that are 0 or near the same,
    the square at an item has mean m_i - m_i^2 in units in which the mean's entries add up to 1.

    Parameters
    ----------
    n_users : int
        The public number.
    mean : ndarray of shape (n_items,), float64
        Positive, of norm at most 1.

    Returns
    -------
    ndarray of shape (n_items,), float64
        At least 0.
    """
    weight = n_users / max(1 - float(mean @ mean), _LEAST_REST)
    return weight * np.maximum(mean / mean.sum() - np.square(mean), 0.0)


def likely(rows: np.ndarray, noise: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Rows with noise, each entry by as much nearer to 0 as it may be noise: the least squared error on average.

    Parameters
    ----------
    rows : ndarray of shape (n_items, n), float64
        With the noise; is written to.
    noise : ndarray of shape (n,), float64
        Its variance in a column.
    shares : ndarray of shape (n_items,), float64
        An item's part of all popularity, to which the square of what is no noise is taken to be proportional.

    Returns
    -------
    ndarray of shape (n_items, n), float64
        `rows`.
    """
    whole = len(rows) * noise
    found = np.maximum(np.square(rows).sum(axis=0) - whole, _LEAST_FOUND * whole)
    odds = found / np.maximum(noise, np.finfo(float).tiny)  # of signal to noise, of an item that is all there is
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        likeliness = shares[part, None] * odds
        rows[part] *= likeliness / (1 + likeliness)
    return rows


def shrink(squares: np.ndarray, n_rows: float, n_columns: int) -> np.ndarray:
    """Singular values of a matrix that noise of variance 1 in each entry was added to, nearest in Frobenius norm.

    Parameters
    ----------
    squares : ndarray of shape (k,), float64
        Squared singular values with the noise.
    n_rows : float
        Of the matrix; of rows that do not weigh alike, their effective number.
    n_columns : int
        Of the matrix.

    Returns
    -------
    ndarray of shape (k,), float64
        0 where the noise alone reaches as far.

    References
    ----------
    .. [1] Gavish, Donoho, "Optimal shrinkage of singular values", IEEE Transactions on Information Theory, 2017.
    """
    y, beta = squares / n_rows, n_columns / n_rows
    inside = np.maximum((y - beta - 1) ** 2 - 4 * beta, 0.0)
    there = y > (1 + math.sqrt(beta)) ** 2
    return np.sqrt(np.divide(inside, y, out=np.zeros_like(y), where=there) * n_rows)


def solve_symmetric(values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The symmetric B for which B X is nearest to Z: the one solution of B XX' + XX' B = ZX' + XZ'.

    Parameters
    ----------
    values : ndarray of shape (k, n), float64
        Z.
    asked : ndarray of shape (k, n), float64
        X.

    Returns
    -------
    ndarray of shape (k, k), float64
        B.
    """
    weights, turn = np.linalg.eigh(asked @ asked.T)
    cross = values @ asked.T
    right = turn.T @ (cross + cross.T) @ turn
    sums = weights[:, None] + weights
    least = max(_LEAST_SEEN * sums.max(initial=0.0), np.finfo(float).tiny)
    return turn @ (right / np.maximum(sums, least)) @ turn.T


def to_whole(columns: np.ndarray) -> np.ndarray:
    """An encoder in whole numbers, of which only directions and ratios matter.

    Parameters
    ----------
    columns : ndarray of shape (n_items, n_columns), float64
        Not all 0.

    Returns
    -------
    ndarray of shape (n_items, n_columns), int16
        The longest column has entries of `_ROOT_MEAN_SQUARE` on average, less where it would be longer than `_LONGEST`:
        then the whole weight of a user's row is some hundred, and rounding it down costs little.
    """
    length = min(_ROOT_MEAN_SQUARE * math.sqrt(len(columns)), _LONGEST)
    scaled = columns * (length / _longest(columns))
    return np.rint(scaled, out=scaled).astype(np.int16)


def _longest(columns: np.ndarray) -> float:
    return max(float(np.linalg.norm(columns[:, k].astype(np.float64))) for k in range(columns.shape[1]))
