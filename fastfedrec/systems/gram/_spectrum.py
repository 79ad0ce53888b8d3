"""Spectra of symmetric matrices: all of a small one; of a large one the top, and how the rest of it lies."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import scipy

from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread

_TOP, _PROBES = "dp_gram.subspace", "dp_gram.probes"  # public starts, the same each time
_N_PROBES = 16  # of the quadrature
_N_FIRST_STEPS, _N_STEPS = 24, 64  # of its recursion: a glance, and a node for each .03 of the spectrum's width
_FIRST_DEGREE, _DEGREE = 24, 12  # of the filters before the first spectrum and the later ones
_MOST_GROWTH = 1e4  # of a filter between two orthogonalisations: in single precision the weakest must not drown
# Items from which on single precision, whose errors are far below the noise, saves time that counts.  Of fewer items,
# models are the same on all processors but for the last digits.
_LEAST_SINGLE = 512
_ROWS = 1024  # of the matrix that a thread multiplies with at a time


class Spectrum(NamedTuple):
    """Eigenvalues of a symmetric matrix, n x n.

    Parameters
    ----------
    values : ndarray of shape (n_found,), float64
        Rising.
    vectors : ndarray of shape (n, n_found), float32 or float64
        Theirs, orthonormal.
    rest : ndarray of shape (n_nodes,), float64
        Where the other eigenvalues are, by quadrature.
    counts : ndarray of shape (n_nodes,), float64
        How many of the others each node stands for; together n - n_found.
    """

    values: np.ndarray
    vectors: np.ndarray
    rest: np.ndarray
    counts: np.ndarray


def full_spectrum(matrix: np.ndarray, diagonal: np.ndarray) -> Spectrum:
    """All eigenvalues of a symmetric matrix with another diagonal; of many items in single precision."""
    matrix = matrix.astype(np.float32 if len(matrix) >= _LEAST_SINGLE else np.float64)
    np.fill_diagonal(matrix, diagonal)
    eigh = scipy.linalg.eigh  # loaded before the block, so that its threads are held too
    with one_blas_thread():
        values, vectors = eigh(matrix.T, overwrite_a=True, check_finite=False, driver="evd")
    return Spectrum(values.astype(np.float64), vectors, np.empty(0), np.empty(0))


class FilteredSpectra:
    """The top of the spectra of a large matrix with one diagonal after another, and how the rest of each lies.

    Eigenvectors are looked for by subspace iteration with Chebyshev filters that damp all below the edge of what is
    wanted, started at those of the last diagonal.  The density of the rest is the Gauss quadrature of Lanczos'
    recursion, from some public random vectors with the found ones taken out.  Products with the matrix are in single
    precision, far below the noise.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; its diagonal is not looked at.
    size : int
        Eigenvectors wanted.
    n_threads : int
        At least 1; no bit depends on it.

    References
    ----------
    .. [1] Zhou, Saad, "A Chebyshev-Davidson algorithm for large symmetric eigenproblems", SIAM Journal on Matrix
       Analysis and Applications, 2007 (the filter).
    .. [2] Lin, Saad, Yang, "Approximating spectral densities of large matrices", SIAM Review, 2016 (the density).
    """

    def __init__(self, matrix: np.ndarray, size: int, n_threads: int):
        n, key = len(matrix), Key.from_seed(0)
        self._matrix = matrix
        self._rows = key.normal(_TOP, size=size * n).reshape(size, n).astype(np.float32)
        self._probes = key.normal(_PROBES, size=_N_PROBES * n).reshape(_N_PROBES, n).astype(np.float32)
        self._n_threads = n_threads
        self._is_first = True
        norms = (np.square(row, dtype=np.float64).sum() for row in matrix)
        self._square = float(sum(norms) - np.square(matrix.diagonal(), dtype=np.float64).sum())

    def __call__(self, diagonal: np.ndarray) -> Spectrum:
        """The spectrum of the matrix with this diagonal."""
        n, size = len(diagonal), len(self._rows)
        with _products(self._matrix, diagonal, self._n_threads) as times, one_blas_thread():
            edge = self._filter(times, size / n)
            products = times(self._rows)
            inner = self._rows.astype(np.float64) @ products.T.astype(np.float64)
            values, turn = np.linalg.eigh((inner + inner.T) / 2)
            self._rows = (turn.T @ self._rows).astype(np.float32)
            is_found = values > edge  # what the filter has not grown is none of the largest
            values, found = values[is_found], self._rows[is_found]
            squares = np.square(turn.T[is_found] @ products).sum()
            nodes, shares = _quadrature(times, self._probes, found, _N_STEPS)
        # How many others there are, what they add up to and their squares: of the matrix without what was found.
        square = self._square + diagonal @ diagonal - 2 * squares + values @ values
        moments = np.array([n - len(values), diagonal.sum() - values.sum(), square])
        return Spectrum(values, found.T, nodes, _with_moments(nodes, shares, moments))

    def _filter(self, times, share):
        """Grow in the rows what is of the largest share of a density that is roughly seen; return its lower edge."""
        nodes, shares = _quadrature(times, self._probes, None, _N_FIRST_STEPS)
        order = np.argsort(nodes)
        low, high = nodes[order[[0, -1]]].tolist()
        edge = float(np.interp(1 - share, np.cumsum(shares[order]), nodes[order]))
        middle, half = (edge + low) / 2, max((edge - low) / 2, 1e-30)  # of a matrix of zeros they are one
        growth = math.acosh(max((high - middle) / half, 1 + 1e-3))
        most = max(1, int(math.log(_MOST_GROWTH) / growth))
        left = _FIRST_DEGREE if self._is_first else _DEGREE
        self._is_first = False
        while left > 0:
            degree = min(most, left)
            left -= degree
            before, now = self._rows, (times(self._rows) - np.float32(middle) * self._rows) / np.float32(half)
            for _ in range(degree - 1):
                after = times(now)
                after -= np.float32(middle) * now
                after *= np.float32(2 / half)
                after -= before
                before, now = now, after
            self._rows = np.linalg.qr(now.T.astype(np.float64))[0].T.astype(np.float32)
        return edge


def _with_moments(nodes, shares, moments):
    """Shares of so many eigenvalues whose sum and sum of squares are right, which those of a few probes are nearly."""
    shares = shares * moments[0]
    scale = max(np.abs(nodes).max(), 1e-30) ** np.arange(3)
    powers = nodes ** np.arange(3)[:, None] / scale[:, None]
    factors = np.linalg.lstsq((powers * shares) @ powers.T, moments / scale)[0] @ powers
    return shares * factors if (factors > 0).all() else shares


def _quadrature(times, probes, found, n_steps):
    """Nodes and shares of the density that Lanczos' recursion sees from each probe, outside of what was found.

    Without orthogonalisation against all earlier vectors, which a density does not need.
    """
    n_probes = len(probes)

    def outside(rows):
        return rows if found is None else rows - (rows @ found.T) @ found

    now = outside(probes)
    now /= np.linalg.norm(now, axis=1, keepdims=True)
    before, step = np.zeros_like(now), np.zeros((n_probes, 1), dtype=np.float32)
    tridiagonal = np.zeros((n_probes, n_steps, n_steps))
    for k in range(n_steps):
        after = outside(times(now) - step * before)
        along = np.einsum("ij,ij->i", after, now)[:, None]
        tridiagonal[:, k, k] = along[:, 0]
        after -= along * now
        step = np.linalg.norm(after, axis=1, keepdims=True)
        if k + 1 < n_steps:
            tridiagonal[:, k, k + 1] = tridiagonal[:, k + 1, k] = step[:, 0]
        before, now = now, after / np.maximum(step, np.float32(1e-30))
    nodes, vectors = np.linalg.eigh(tridiagonal)
    nodes, shares = nodes.ravel(), np.square(vectors[:, 0, :]).ravel() / n_probes
    return nodes[shares > 0], shares[shares > 0]


@contextmanager
def _products(matrix: np.ndarray, diagonal: np.ndarray, n_threads: int) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Products of rows with a symmetric matrix that has another diagonal; its parts do not depend on threads."""
    parts = [slice(start, start + _ROWS) for start in range(0, len(matrix), _ROWS)]
    more = (diagonal - matrix.diagonal()).astype(np.float32)
    pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None

    def times(rows: np.ndarray) -> np.ndarray:
        out = np.empty_like(rows)

        def multiply(part: slice) -> None:
            np.matmul(rows, matrix[part].T, out=out[:, part])

        for _ in (map if pool is None else pool.map)(multiply, parts):
            pass
        out += rows * more
        return out

    try:
        yield times
    finally:
        if pool is not None:
            pool.shutdown()
