"""The rotation-invariant estimator of the matrix behind a noisy matrix of item pairs.

The inputs are the noisy matrix and the public standard deviation of its noise, and there are no random draws.  See
docs/explanation/systems/gram/dp-gram.md.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_array, check_integer, check_real
from fastfedrec.core.memory import Array, Arrays
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.systems.gram._spectrum import FilteredSpectra, Spectrum, full_spectrum

__all__ = ["RANK", "Shrunk", "denoise_pairs", "shrink_eigenvalues", "shrink_matrix"]

RANK = 320  # largest rank of the factors; further directions change a hit ratio by at most .004
# Half or twice of either, or of the ridge, changes HR@10 by less than .004.
_N_PASSES = 3  # number of passes, each with the diagonal of the previous estimate
_WIDTH = 0.05  # width of the kernel that smooths the spectrum, in radii of the spectrum of pure noise
_STEP = 128  # number of points that are smoothed at the same time
_MAX_FULL = 2048  # largest number of items for which all eigenvectors cost at most as much as the leading ones


def shrink_eigenvalues(values: np.ndarray, counts: np.ndarray, noise: float) -> NDArray[np.float64]:
    """Shrink the eigenvalues of a noisy symmetric matrix, for the estimate nearest to the clean one in Frobenius norm.

    The matrix C + W is n x n, and each entry of W has independent noise of standard deviation s.  An eigenvalue l
    becomes l - 2 s^2 n Re g(l), where g is the mean of 1 / (l - l_j) over all eigenvalues l_j.  This is the mean of
    v'Cv over the eigenvectors v of C + W there, so no other estimator with these eigenvectors is nearer to C as n
    grows.  A single eigenvalue beyond the noise's radius e = 2 s sqrt(n) becomes sqrt(l^2 - e^2).  If many weak
    directions have eigenvalues near e, all keep a part.

    Parameters
    ----------
    values : ndarray of shape (n_values,), float64
        Eigenvalues, or points that represent several, in rising order.
    counts : ndarray of shape (n_values,), float64
        Number of eigenvalues at each point; they add up to n.
    noise : float
        Standard deviation of the noise of an entry, above 0.

    Returns
    -------
    ndarray of shape (n_values,), float64
        Shrunk eigenvalues, at least 0 and not decreasing; a smaller one is raised to the largest before it.

    References
    ----------
    .. [1] Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices", IEEE Transactions
       on Information Theory 62, 2016.

    Examples
    --------
    One eigenvalue of 3, and the spectrum of noise alone with a radius of 2:

    >>> import numpy as np
    >>> from fastfedrec.systems.gram.shrinkage import shrink_eigenvalues
    >>> angles = (np.arange(2000) + 0.5) / 2000 * np.pi
    >>> values = np.append(2 * np.cos(angles[::-1]), 3.0)
    >>> counts = np.append(2000 * 2 / 2000 * np.sin(angles[::-1]) ** 2, 1e-9)
    >>> shrunk = shrink_eigenvalues(values, counts, noise=2000**-0.5)
    >>> round(float(shrunk[-1]), 2), round(5**0.5, 2)
    (2.24, 2.24)
    >>> bool(shrunk[:1000].max() < 0.1)
    True
    """
    values = check_array("values", values, ndim=1, dtypes=(np.float64,))
    counts = check_array("counts", counts, ndim=1, shape=values.shape, dtypes=(np.float64,))
    noise = check_real("noise", noise, low=0.0, exclusive=True)
    return np.maximum(np.maximum.accumulate(_pulled(values, values, counts, noise)), 0.0)


def denoise_pairs(matrix: np.ndarray, noise: float, *, rank: int = RANK, n_threads: int = 0) -> NDArray[np.float64]:
    """Estimate a symmetric matrix from noisy entries off the diagonal, without a diagonal.

    Three times, the eigenvalues are shrunk (`shrink_eigenvalues`), and the diagonal is replaced by the result's one.
    With more than 2,048 rows, only the largest `rank` eigenvalues and their vectors are computed.  The estimator needs
    only the density of the others, which is computed by quadrature.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric matrix; the diagonal is ignored.
    noise : float
        Standard deviation of the noise of an entry, above 0.
    rank : int
        Largest number of columns of the result, at least 1.
    n_threads : int
        Number of threads, 0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n, n_columns), float64
        Factors L of the estimate L L', with the strongest column first: one column for each shrunk eigenvalue above 0,
        at most `rank`.

    References
    ----------
    .. [1] Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices", IEEE Transactions
       on Information Theory 62, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.systems.gram.shrinkage import denoise_pairs
    >>> rng = np.random.default_rng(1)
    >>> taste = rng.normal(size=(200, 2))
    >>> noise = np.triu(rng.normal(size=(200, 200)), 1)
    >>> factors = denoise_pairs((taste @ taste.T + noise + noise.T).astype(np.float32), noise=1.0)
    >>> bool(np.abs(factors @ factors.T - taste @ taste.T).mean() < 0.25)
    True
    """
    shrunk = shrink_matrix(matrix, noise, rank, n_threads)
    return shrunk.vectors * np.sqrt(shrunk.values)


def denoising_memory(n_items: int, rank: int = RANK) -> Arrays:
    """Return the arrays of an estimate by `shrink_matrix` at its peak, without the noisy pairs.

    Parameters
    ----------
    n_items : int
        Number of rows of the matrix.
    rank : int
        Largest number of columns of the result.

    Returns
    -------
    mapping of str to Array
        Arrays by name.
    """
    if _is_full(n_items, rank):
        return {
            "pairs with weights, and vectors of the previous pass": Array.of("float32", 3, n_items, n_items),
            "arrays of LAPACK": Array.of("float32", 3, n_items, n_items),
        }
    return {
        "pairs with weights": Array.of("float32", n_items, n_items),
        "largest eigenvectors": Array.of("float64", 8, n_items, rank),
    }


class Shrunk(NamedTuple):
    """The positive part of the estimate of a matrix from a noisy one.

    Parameters
    ----------
    values : ndarray of shape (k,), float64
        Largest eigenvalues in falling order.
    vectors : ndarray of shape (n, k), float64
        Eigenvectors.
    diagonal : ndarray of shape (n,), float64
        Diagonal of the estimate from all eigenvalues.
    spectrum : Spectrum
        Spectrum of the noisy matrix before shrinkage.
    given_diagonal : ndarray of shape (n,), float64
        Diagonal of the noisy matrix with this spectrum.
    """

    values: np.ndarray
    vectors: np.ndarray
    diagonal: np.ndarray
    spectrum: Spectrum
    given_diagonal: np.ndarray


def shrink_matrix(matrix: np.ndarray, noise: float, rank: int, n_threads: int, *, is_whole: bool = False) -> Shrunk:
    """Shrink the spectrum of a matrix once with its diagonal, or three times with the diagonal of the estimate.

    Parameters
    ----------
    matrix, noise, rank, n_threads : object
        Arguments of `denoise_pairs`.
    is_whole : bool
        Whether the matrix has a diagonal.

    Returns
    -------
    Shrunk
        Estimate with at most `rank` eigenvalues.
    """
    matrix = check_array("matrix", matrix, ndim=2, dtypes=(np.float32,))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, got shape {matrix.shape}; pass all pairs")
    noise = check_real("noise", noise, low=0.0, exclusive=True)
    rank, n_threads = check_integer("rank", rank, low=1), resolve_n_threads(n_threads)
    n = len(matrix)
    spectrum: Callable[[np.ndarray], Spectrum] = functools.partial(full_spectrum, matrix)
    if not _is_full(n, rank):
        spectrum = FilteredSpectra(matrix, rank, n_threads)
    diagonal = next_diagonal = matrix.diagonal().astype(np.float64) if is_whole else np.zeros(n)
    for _ in range(1 if is_whole else _N_PASSES):
        diagonal = next_diagonal
        noisy = spectrum(diagonal)
        values, mean_other = _shrink(noisy, noise)
        vectors = noisy.vectors
        next_diagonal = np.einsum("ij,ij,j->i", vectors, vectors, values)
        if mean_other:  # the other eigenvectors have the squared norm that the computed ones leave of each item
            next_diagonal += mean_other * np.maximum(1 - np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64), 0.0)
    return Shrunk(*_strongest(values, noisy, rank), next_diagonal, noisy, diagonal)


def _strongest(values: np.ndarray, spectrum: Spectrum, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest shrunk eigenvalues above 0 in falling order, at most `rank`, with their vectors."""
    leading = np.flatnonzero(values)[::-1][:rank]
    return values[leading], spectrum.vectors[:, leading].astype(np.float64)


def _is_full(n_items: int, rank: int) -> bool:
    return n_items <= _MAX_FULL or n_items <= 4 * rank


def _shrink(spectrum: Spectrum, noise: float) -> tuple[np.ndarray, float]:
    """Return the shrunk eigenvalues of the exact ones, and the mean of the others."""
    from scipy.optimize import isotonic_regression

    ones = np.ones(len(spectrum.values))
    if len(spectrum.nodes) == 0:
        return shrink_eigenvalues(spectrum.values, ones, noise), 0.0
    order = np.argsort(spectrum.nodes)
    nodes, counts = spectrum.nodes[order], spectrum.counts[order]
    points, all_counts = np.concatenate([nodes, spectrum.values]), np.concatenate([counts, ones])
    below, values = np.split(_pulled(points, points, all_counts, noise), [len(nodes)])
    # Running maxima of estimates from a few probes would be too large, so isotonic means make them non-decreasing.
    below = np.maximum(isotonic_regression(below, weights=counts).x, 0.0)
    # Far nodes with a total count below half an eigenvalue are rounding errors of the recursion.
    highest = below[np.searchsorted(np.cumsum(counts), counts.sum() - 0.5)]
    values = np.maximum.accumulate(np.maximum(values, highest))
    return values, float(below @ counts / counts.sum())


def _pulled(points: np.ndarray, values: np.ndarray, counts: np.ndarray, noise: float) -> NDArray[np.float64]:
    """Return l - 2 s^2 n Re g(l) at points l of a spectrum, with a smoothed g."""
    width = _WIDTH * 2 * noise * math.sqrt(counts.sum())
    pulled = np.empty(len(points))
    for start in range(0, len(points), _STEP):  # no matrix of all pairs of points is in memory
        part = slice(start, start + _STEP)
        # The real part of 1 / (l - l_j + i width).
        distances = points[part, None] - values
        pulled[part] = points[part] - 2 * noise**2 * ((distances / (distances * distances + width * width)) @ counts)
    return pulled
