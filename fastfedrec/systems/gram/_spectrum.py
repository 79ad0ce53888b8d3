"""What a noisy matrix of item pairs still tells: its spectrum above the noise, and EASE in closed form from factors."""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread

_START = "dp_gram.subspace"
_DIAGONAL_STEPS = 10
_FIRST_DEGREE, _DEGREE = 12, 4  # of the Chebyshev filters before the first and the later diagonals
_FIRST_BLOCK = 64  # eigenvectors looked for; doubled until the noise comes into view


def shrink_spectrum(matrix: np.ndarray, noise: float) -> NDArray[np.float64]:
    """Find the low-rank matrix behind a symmetric one whose entries off the diagonal have noise.

    The eigenvalues of the noise alone end near ``edge = 2 noise sqrt(n)``.  One of l above it is kept as
    sqrt(l^2 - edge^2), which is nearest in Frobenius norm, and the diagonal, which was not measured, is that of the
    low-rank matrix itself, over some steps.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; the diagonal is overwritten.
    noise : float
        Standard deviation of the noise of an entry.

    Returns
    -------
    ndarray of shape (n, rank), float64
        L, whose L L' is the low-rank matrix; strongest column first.

    References
    ----------
    .. [1] Gavish, Donoho, "Optimal shrinkage of singular values", IEEE Transactions on Information Theory, 2017.
    .. [2] Zhou, Saad, "A Chebyshev-Davidson algorithm for large symmetric eigenproblems", 2007 (the filter).
    """
    n = len(matrix)
    edge = 2 * noise * math.sqrt(n)
    size = min(_FIRST_BLOCK, n)
    while True:
        np.fill_diagonal(matrix, 0.0)
        basis = Key.from_seed(0).normal(_START, size=n * size).reshape(n, size)  # a public start, the same each time
        factors = np.zeros((n, 0))
        for step in range(_DIAGONAL_STEPS):
            values, basis = _ritz_pairs(matrix, basis, edge, _DEGREE if step else _FIRST_DEGREE)
            if values[-1] > edge and size < n:
                break
            kept = values > edge
            factors = basis[:, kept] * (values[kept] ** 2 - edge**2) ** 0.25
            np.fill_diagonal(matrix, np.square(factors).sum(axis=1))
        else:
            return factors
        size = min(2 * size, n)


def _ritz_pairs(matrix, basis, edge, degree):
    """Largest eigenvalues, falling, with vectors, after a filter that grows what lies beyond -edge..edge.

    All products with the matrix are in single precision, far below the noise.
    """
    with one_blas_thread():
        before, now = basis.astype(np.float32), (matrix @ basis.astype(np.float32)) / np.float32(edge)
        for _ in range(degree - 1):
            before, now = now, (matrix @ now) * np.float32(2 / edge) - before
            largest = np.abs(now).max(axis=0) + np.float32(1e-30)  # columns may grow by any factor, both alike
            before, now = before / largest, now / largest
        basis = np.linalg.qr(now.astype(np.float64))[0]
        inner = basis.T @ (matrix @ basis.astype(np.float32)).astype(np.float64)
        values, turn = np.linalg.eigh((inner + inner.T) / 2)
        return values[::-1], (basis @ turn)[:, ::-1]


def ease_factors(factors: np.ndarray, regularization: float) -> NDArray[np.float64]:
    """Factors F of the inverse of L L' + regularization I, which is (I - F F') / regularization.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L.
    regularization : float
        Above 0.

    Returns
    -------
    ndarray of shape (n_items, rank), float64
        F; the squares of a row add up to less than 1.
    """
    if factors.shape[1] == 0:
        return factors
    with one_blas_thread():
        inner = factors.T @ factors
        inner.flat[:: len(inner) + 1] += regularization
        # F F' = L (reg I + L'L)^-1 L'
        values, turn = np.linalg.eigh(inner)
        return factors @ (turn / np.sqrt(np.maximum(values, regularization)))  # below it by rounding alone
