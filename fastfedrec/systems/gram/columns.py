"""Rounds of few columns: which directions of the matrix of item pairs they measure, and how the answer corrects it.

The release is C = kappa hollow(A) E + noise, with A the matrix of item pairs of which an estimate R is known, E the
public encoder made of R's strongest eigenvectors, and hollow(A) the matrix without its diagonal.  See
docs/explanation/systems/gram/dp-gram.md.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.signs import with_signs
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.shrinkage import RANK

__all__ = ["N_COLUMNS", "ColumnEstimate", "add_columns", "next_encoder"]

N_COLUMNS = 40  # of an encoder
# The number of columns; tuned, see "Settings" on the page.
_MIN_COLUMNS = 10
_COLUMNS_PER_DIRECTION = 2
_MIN_EIGENVALUE = 0.2  # of the radius of the noise's spectrum, from which on a direction is counted
_MAX_LENGTH = 2.0**12  # of a column in whole numbers: its entries are far below the bound of an encoder's
_ROUNDING = 1e-12  # of the largest eigenvalue
_MIN_LENGTH = 0.01  # of the strongest factor's: whole numbers still resolve the shortest column


@dataclass
class ColumnEstimate:
    """The estimate of released pairs, which rounds of few columns correct.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L, with orthogonal columns, strongest first.
    noise : float
        Standard deviation of the noise of an entry.
    form : PairForm
        Form of the pairs.
    n_users : int
        Public number.
    """

    factors: NDArray[np.float64]
    noise: float
    form: PairForm
    n_users: int
    _pair_noise: float = field(init=False)

    def __post_init__(self) -> None:
        self._pair_noise = self.noise
        self.factors = with_signs(self.factors)

    def encoder(self, planned: np.ndarray) -> NDArray[np.int16]:
        """Return the strongest directions, of as many columns as the planned encoder."""
        return next_encoder(self.factors, planned.shape[1], self._pair_noise)

    def add(self, sums: np.ndarray, encoder: np.ndarray, noise: float) -> None:
        """Correct the estimate by one round."""
        strength = self.form.strength(sums, encoder, self.n_users)
        self.factors = with_signs(add_columns(self.factors, sums, encoder, noise, strength))
        self.noise = (self.noise**-2 + noise**-2) ** -0.5


def next_encoder(factors: np.ndarray, n_columns: int, noise: float) -> NDArray[np.int16]:
    """Return the strongest eigenvectors of L L' in whole numbers, the weaker ones longer.

    The answer of a user has norm 1 for any encoder, so fewer columns leave more of it for each.  Twice as many columns
    are used as eigenvalues stand out, from 10 on.  Columns are scaled by the fourth root of the eigenvalues: with equal
    columns the strongest one would take most of the norm, and with equal answers the weakest would be mostly noise.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L, with orthogonal columns, strongest first.
    n_columns : int
        Of the encoder.
    noise : float
        Standard deviation of the noise of an entry of L L' before it was denoised.

    Returns
    -------
    ndarray of shape (n_items, n_columns), int16
        Columns that are not used are 0.
    """
    radius = 2 * noise * math.sqrt(len(factors))
    n_strong = int(np.count_nonzero(np.square(factors).sum(axis=0) > _MIN_EIGENVALUE * radius))
    asked = factors[:, : min(max(_COLUMNS_PER_DIRECTION * n_strong, _MIN_COLUMNS), n_columns)]
    encoder = np.zeros((len(factors), n_columns), dtype=np.int16)
    if asked.shape[1]:
        encoder[:, : asked.shape[1]] = np.rint(asked * (_scales(asked) / np.linalg.norm(asked, axis=0)))
    return encoder


def add_columns(
    factors: np.ndarray, sums: np.ndarray, encoder: np.ndarray, noise: float, strength: float, *, rank: int = RANK
) -> NDArray[np.float64]:
    """Correct an estimate L L' of A by noisy products with its strongest directions.

    Each column of C / kappa beyond H = hollow(L L') E is shrunk by the part of its square that is noise (James and
    Stein), and the estimate moves as little as it can to agree with it.  The regression of C on H would be below kappa
    where much of the estimate is noise, and would inflate the correction.

    Parameters
    ----------
    factors : ndarray of shape (n_items, k), float64
        L, with orthogonal columns, strongest first.
    sums : ndarray of shape (n_items, n_columns), float64
        C.
    encoder : ndarray of shape (n_items, n_columns), int16
        As from `next_encoder`.
    noise : float
        Standard deviation of an entry of C, above 0.
    strength : float
        kappa, above 0.
    rank : int
        Most columns of the result, at least 1.

    Returns
    -------
    ndarray of shape (n_items, n_found), float64
        L as `denoise_pairs` returns it; as it was if no column is in use.
    """
    n_items, n_asked = len(factors), int(encoder.any(axis=0).sum())  # the columns in use are the first ones
    if not n_asked:
        return factors
    asked, sums = encoder[:, :n_asked].astype(np.float64), sums[:, :n_asked]
    with one_blas_thread():
        expected = factors @ (factors.T @ asked) - np.square(factors).sum(axis=1)[:, None] * asked
        beyond = sums / strength - expected
        squares = np.maximum(np.square(beyond).sum(axis=0), np.finfo(float).tiny)
        beyond *= np.maximum(1 - n_items * (noise / strength) ** 2 / squares, 0.0)
        # R V = L L' V + U on the eigenvectors V, and what is orthogonal to them on both sides stays.
        moved = beyond / _scales(factors[:, :n_asked])
        lengths = np.maximum(np.linalg.norm(factors, axis=0), np.finfo(float).tiny)
        vectors = factors / lengths
        within = vectors.T @ moved
        moved -= vectors @ within
        again = vectors.T @ moved  # once leaves the rounding errors of `vectors`
        beside, triangle = np.linalg.qr(moved - vectors @ again)
        told = np.concatenate([within + again, triangle])
        matrix = np.zeros((len(told), len(told)))
        matrix.flat[: len(lengths) * (len(told) + 1) : len(told) + 1] = np.square(lengths)
        matrix[:, :n_asked] += told
        matrix[:n_asked] += told.T
        matrix[:n_asked, :n_asked] -= (told[:n_asked] + told[:n_asked].T) / 2
        values, turn = np.linalg.eigh(matrix)
        # Where both parts have more columns than rows, some eigenvalues are rounding errors about 0.
        strongest = np.flatnonzero(values > _ROUNDING * values[-1])[::-1][:rank]
        return np.column_stack([vectors, beside]) @ (turn[:, strongest] * np.sqrt(values[strongest]))


def _scales(asked: np.ndarray) -> np.ndarray:
    """Lengths of the encoder's columns: 1 / sqrt of those of the factors, which are roots of eigenvalues."""
    lengths = np.linalg.norm(asked, axis=0)
    lengths = np.maximum(lengths, _MIN_LENGTH * lengths[0])
    return _MAX_LENGTH * np.sqrt(lengths[-1] / lengths)
