"""Spectra of symmetric matrices: all eigenvalues of a small one, the largest ones and the density of a large one."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from fastfedrec._kernels.systems.gram import shrinkage as _kernel
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread

_TOP, _PROBES = "dp_gram.subspace", "dp_gram.probes"  # streams of public starts, the same each time
_N_PROBES = 16  # number of random start vectors of the quadrature
# Steps of Lanczos' recursion: few for a rough density, then one node for each .03 of the spectrum's width.
_N_FIRST_STEPS, _N_STEPS = 24, 64
_FIRST_DEGREE, _DEGREE = 24, 12  # degrees of the Chebyshev filters before the first spectrum and before later ones
# Growth between two orthogonalisations: beyond it, the weakest direction is lost in single precision.
_MAX_GROWTH = 1e4
# Number of items from which single precision is used: its errors are far below the noise, and it saves time.  With
# fewer items, models are equal on all processors but for the last digits.
_MIN_SINGLE = 512
_MAX_ITEMS = 32_766  # for all eigenvectors, since LAPACK counts 2 n^2 numbers of its workspace in 32 bits
_ROWS = 1024  # rows of the matrix in one product of a thread


class Spectrum(NamedTuple):
    """Eigenvalues of a symmetric n x n matrix: k exact ones with vectors, and quadrature nodes for the others."""

    values: np.ndarray  # the exact eigenvalues in rising order, (k,), float64
    vectors: np.ndarray  # their orthonormal eigenvectors, (n, k), float32 or float64
    nodes: np.ndarray  # nodes of the density of the other eigenvalues, (n_nodes,), float64
    counts: np.ndarray  # number of eigenvalues at each node, (n_nodes,), float64, with sum n - k


def full_spectrum(matrix: np.ndarray, diagonal: np.ndarray) -> Spectrum:
    """Return all eigenvalues of a symmetric matrix with another diagonal, of large ones in single precision."""
    from scipy.linalg import cython_lapack  # loaded before the block, so that its threads are held too

    if len(matrix) > _MAX_ITEMS:
        raise ValueError(f"matrix must have at most {_MAX_ITEMS:,} rows, got {len(matrix):,}; take a smaller rank")
    is_single = len(matrix) >= _MIN_SINGLE
    vectors = np.array(matrix, dtype=np.float32 if is_single else np.float64, order="C")
    np.fill_diagonal(vectors, diagonal)
    values = np.empty(len(vectors), vectors.dtype)
    with one_blas_thread():
        code = _kernel.replace_by_eigenvectors(
            cython_lapack.__pyx_capi__["ssyevd" if is_single else "dsyevd"], vectors, values
        )
    if code:
        raise np.linalg.LinAlgError(f"the eigenvalues of {len(values)} items did not converge; LAPACK returned {code}")
    return Spectrum(values.astype(np.float64), vectors.T, np.empty(0), np.empty(0))


class FilteredSpectra:
    """Largest eigenvalues, and density of the others, of a large symmetric matrix with several diagonals in sequence.

    The `size` eigenvectors come from subspace iteration with Chebyshev filters [1], and the density from Lanczos'
    recursion [2].  The matrix's own diagonal is ignored, and no bit depends on `n_threads`.

    References
    ----------
    .. [1] Zhou, Saad, "A Chebyshev-Davidson algorithm for large symmetric eigenproblems", SIAM Journal on Matrix
       Analysis and Applications, 2007 (the filter).
    .. [2] Lin, Saad, Yang, "Approximating spectral densities of large matrices", SIAM Review, 2016 (the density).
    """

    # The iteration starts at the eigenvectors of the previous diagonal.  Products with the matrix are in single
    # precision, with errors far below the noise.

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
        """Return the spectrum of the matrix with this diagonal."""
        n, size = len(diagonal), len(self._rows)
        with _products(self._matrix, diagonal, self._n_threads) as times, one_blas_thread():
            edge = self._filter(times, size / n)
            # Rayleigh-Ritz: the eigenpairs of the matrix within the filtered subspace.
            products = times(self._rows)
            inner = self._rows.astype(np.float64) @ products.T.astype(np.float64)
            values, turn = np.linalg.eigh((inner + inner.T) / 2)
            self._rows = (turn.T @ self._rows).astype(np.float32)
            is_top = values > edge  # a direction below the edge was not amplified, so it is none of the largest
            values, vectors = values[is_top], self._rows[is_top]
            squares = np.square(turn.T[is_top] @ products).sum()
            nodes, shares = _quadrature(times, self._probes, vectors, _N_STEPS)
        # Number, sum and sum of squares of the other eigenvalues, from the matrix less the part of the exact ones.
        square = self._square + diagonal @ diagonal - 2 * squares + values @ values
        moments = np.array([n - len(values), diagonal.sum() - values.sum(), square])
        return Spectrum(values, vectors.T, nodes, _with_moments(nodes, shares, moments))

    def _filter(self, times, share):
        """Amplify in the rows the eigenvectors of this largest share of the spectrum, and return its lower edge."""
        nodes, shares = _quadrature(times, self._probes, None, _N_FIRST_STEPS)
        order = np.argsort(nodes)
        low, high = nodes[order[[0, -1]]].tolist()
        edge = float(np.interp(1 - share, np.cumsum(shares[order]), nodes[order]))
        middle, half = (edge + low) / 2, max((edge - low) / 2, 1e-30)  # for a matrix of zeros, low equals edge
        # The Chebyshev polynomial of degree d grows at most as exp(d growth) above the edge, and is at most 1 below.
        growth = math.acosh(max((high - middle) / half, 1 + 1e-3))
        max_degree = max(1, int(math.log(_MAX_GROWTH) / growth))
        remaining = _FIRST_DEGREE if self._is_first else _DEGREE
        self._is_first = False
        while remaining > 0:
            degree = min(max_degree, remaining)
            remaining -= degree
            # Three-term recursion T_{d+1} = 2 x T_d - T_{d-1}, with x the spectrum scaled to [-1, 1] below the edge.
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
    """Return counts at the nodes with the exact number, sum and sum of squares of the eigenvalues."""
    # A few probes estimate these moments with an error; the counts are multiplied by a quadratic that removes it.
    shares = shares * moments[0]
    scale = max(np.abs(nodes).max(), 1e-30) ** np.arange(3)
    powers = nodes ** np.arange(3)[:, None] / scale[:, None]
    factors = np.linalg.lstsq((powers * shares) @ powers.T, moments / scale)[0] @ powers
    return shares * factors if (factors > 0).all() else shares


def _quadrature(times, probes, excluded, n_steps):
    """Return nodes and shares of the density by Lanczos' recursion from each probe, orthogonal to excluded rows."""
    n_probes = len(probes)

    def outside(rows):
        return rows if excluded is None else rows - (rows @ excluded.T) @ excluded

    now = outside(probes)
    now /= np.linalg.norm(now, axis=1, keepdims=True)
    before, step = np.zeros_like(now), np.zeros((n_probes, 1), dtype=np.float32)
    tridiagonal = np.zeros((n_probes, n_steps, n_steps))
    # Vectors are not orthogonalised against all earlier ones, which a density does not need.
    for k in range(n_steps):
        after = outside(times(now) - step * before)
        along = np.einsum("ij,ij->i", after, now)[:, None]
        tridiagonal[:, k, k] = along[:, 0]
        after -= along * now
        step = np.linalg.norm(after, axis=1, keepdims=True)
        if k + 1 < n_steps:
            tridiagonal[:, k, k + 1] = tridiagonal[:, k + 1, k] = step[:, 0]
        before, now = now, after / np.maximum(step, np.float32(1e-30))
    # Gauss quadrature: nodes are eigenvalues, and weights are squares of the vectors' first entries.
    nodes, vectors = np.linalg.eigh(tridiagonal)
    nodes, shares = nodes.ravel(), np.square(vectors[:, 0, :]).ravel() / n_probes
    return nodes[shares > 0], shares[shares > 0]


@contextmanager
def _products(matrix: np.ndarray, diagonal: np.ndarray, n_threads: int) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Yield the product of rows with a symmetric matrix that has another diagonal, by fixed blocks of rows."""
    # The blocks do not depend on the number of threads, so no bit of the products does.
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
