"""What a noisy matrix of item pairs still tells: the rotation-invariant estimator of the matrix behind it.

Nothing here looks at anything but the noisy matrix and the noise's public width, and nothing is drawn.  See
docs/explanation/systems/gram/dp-gram.md.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_array, check_integer, check_real
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.systems.gram._spectrum import FilteredSpectra, Spectrum, full_spectrum

__all__ = ["RANK", "Shrunk", "denoise_pairs", "shrink_eigenvalues", "shrink_matrix"]

RANK = 320  # of the factors: the directions beyond are worth up to .004 of a hit ratio, and as much to keep
# Half or twice of either, or of the ridge, moves HR@10 by less than .004.
_N_PASSES = 3  # each with the diagonal of the one before
_WIDTH = 0.05  # of the kernel that smooths the spectrum, in radii of the noise's own spectrum
_STEP = 128
_MOST_FULL = 2048  # items up to which all eigenvectors cost no more than some of them


def shrink_eigenvalues(values: np.ndarray, counts: np.ndarray, noise: float) -> NDArray[np.float64]:
    """Eigenvalues to put in place of those of a noisy symmetric matrix: nearest to the clean one in Frobenius norm.

    Of a matrix C + W with independent noise of standard deviation s in each entry, n x n, an eigenvalue l becomes
    l - 2 s^2 n Re g(l), with g the mean of 1 / (l - l_j) over all eigenvalues l_j.  That is the mean of v'Cv over the
    eigenvectors v of C + W there, so no other estimator with these eigenvectors is nearer to C as n grows.  Of one that
    stands alone beyond the noise's radius e = 2 s sqrt(n) it leaves sqrt(l^2 - e^2); where many weak directions crowd
    about e, all keep a part.

    Parameters
    ----------
    values : ndarray of shape (n_values,), float64
        The eigenvalues, rising; or places that stand for several.
    counts : ndarray of shape (n_values,), float64
        How many eigenvalues each of them stands for; they add up to n.
    noise : float
        Standard deviation of the noise of an entry, above 0.

    Returns
    -------
    ndarray of shape (n_values,), float64
        At least 0, and never falling where `values` rise: those that would are raised to the largest before them.

    References
    ----------
    .. [1] Bun, Allez, Bouchaud, Potters, "Rotational invariant estimator for general noisy matrices", IEEE Transactions
       on Information Theory 62, 2016.

    Examples
    --------
    One eigenvalue of 3 beside the spectrum of noise alone, whose radius is 2:

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
    """Find the matrix behind a symmetric one whose entries off the diagonal have noise, and whose diagonal is missing.

    Three times over, the eigenvalues are shrunk (`shrink_eigenvalues`), and the diagonal becomes that of the result.
    Of more than 2,048 rows only the largest `rank` eigenvalues are found with their vectors; how the others lie is
    measured by quadrature, which is all that the estimator needs of them.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; the diagonal is not looked at.
    noise : float
        Standard deviation of the noise of an entry, above 0.
    rank : int
        Most columns of the result, at least 1.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n, n_columns), float64
        L, whose L L' is the estimate, strongest column first; as many columns as eigenvalues are left above 0, and no
        more than `rank`.

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
    found = shrink_matrix(matrix, noise, rank, n_threads)
    return found.vectors * np.sqrt(found.values)


def denoising_bytes(n_items: int, rank: int = RANK) -> int:
    """What `denoise_pairs` holds at its peak, with the matrix that it is given.

    Parameters
    ----------
    n_items : int
        Rows of the matrix.
    rank : int
        As for `denoise_pairs`.

    Returns
    -------
    int
        In bytes, but for what a linear algebra library takes for itself.
    """
    if _is_full(n_items, rank):
        return 20 * n_items**2  # the matrix, its copy and the vectors of the last pass, and two of LAPACK
    return 4 * n_items**2 + 88 * rank * n_items


class Shrunk(NamedTuple):
    """The part above 0 of a matrix behind a noisy one.

    Parameters
    ----------
    values : ndarray of shape (k,), float64
        Its eigenvalues, strongest first.
    vectors : ndarray of shape (n, k), float64
        Theirs.
    diagonal : ndarray of shape (n,), float64
        Its diagonal, also of the eigenvalues that are not among these.
    spectrum : Spectrum
        Spectrum of the noisy matrix, before it was shrunk.
    given_diagonal : ndarray of shape (n,), float64
        Diagonal of the noisy matrix with this spectrum.
    """

    values: np.ndarray
    vectors: np.ndarray
    diagonal: np.ndarray
    spectrum: Spectrum
    given_diagonal: np.ndarray


def shrink_matrix(matrix: np.ndarray, noise: float, rank: int, n_threads: int, *, is_whole: bool = False) -> Shrunk:
    """Shrink the spectrum of a matrix with its own diagonal, or three times with the diagonal that is found.

    Parameters
    ----------
    matrix, noise, rank, n_threads : object
        As for `denoise_pairs`.
    is_whole : bool
        Whether the matrix has its diagonal.

    Returns
    -------
    Shrunk
        At most `rank` eigenvalues.
    """
    matrix = check_array("matrix", matrix, ndim=2, dtypes=(np.float32,))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must have as many columns as rows, got shape {matrix.shape}; pass all pairs")
    noise = check_real("noise", noise, low=0.0, exclusive=True)
    rank, n_threads = check_integer("rank", rank, low=1), resolve_n_threads(n_threads)
    n = len(matrix)
    spectrum: Callable[[np.ndarray], Spectrum] = functools.partial(full_spectrum, matrix)
    if not _is_full(n, rank):
        spectrum = FilteredSpectra(matrix, rank, n_threads)
    diagonal = next_diagonal = matrix.diagonal().astype(np.float64) if is_whole else np.zeros(n)
    for _ in range(1 if is_whole else _N_PASSES):
        diagonal = next_diagonal
        found = spectrum(diagonal)
        values, rest = _shrink(found, noise)
        vectors = found.vectors
        next_diagonal = np.einsum("ij,ij,j->i", vectors, vectors, values)
        if rest:  # of the others lies, as they do, in what the vectors that were found leave of each item
            next_diagonal += rest * np.maximum(1 - np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64), 0.0)
    return Shrunk(*_strongest(values, found, rank), next_diagonal, found, diagonal)


def _strongest(values: np.ndarray, found: Spectrum, rank: int) -> tuple[np.ndarray, np.ndarray]:
    kept = np.flatnonzero(values)[::-1][:rank]
    return values[kept], found.vectors[:, kept].astype(np.float64)


def _is_full(n_items: int, rank: int) -> bool:
    return n_items <= _MOST_FULL or n_items <= 4 * rank


def _shrink(found: Spectrum, noise: float) -> tuple[np.ndarray, float]:
    """The shrunk eigenvalues of the vectors that were found, and the mean of the others."""
    from scipy.optimize import isotonic_regression

    ones = np.ones(len(found.values))
    if len(found.rest) == 0:
        return shrink_eigenvalues(found.values, ones, noise), 0.0
    order = np.argsort(found.rest)
    rest, counts = found.rest[order], found.counts[order]
    places, all_counts = np.concatenate([rest, found.values]), np.concatenate([counts, ones])
    below, values = np.split(_pulled(places, places, all_counts, noise), [len(rest)])
    # The largest of what a few probes measured would be too large; their means over what does not rise are not.
    below = np.maximum(isotonic_regression(below, weights=counts).x, 0.0)
    # Far nodes that stand for less than half an eigenvalue together are rounding errors of the recursion.
    highest = below[np.searchsorted(np.cumsum(counts), counts.sum() - 0.5)]
    values = np.maximum.accumulate(np.maximum(values, highest))
    return values, float(below @ counts / counts.sum())


def _pulled(places: np.ndarray, values: np.ndarray, counts: np.ndarray, noise: float) -> NDArray[np.float64]:
    """What l - 2 s^2 n Re g(l) is at some places of a spectrum, smoothed."""
    width = _WIDTH * 2 * noise * math.sqrt(counts.sum())
    pulled = np.empty(len(places))
    for start in range(0, len(places), _STEP):  # no square of all places is held
        part = slice(start, start + _STEP)
        away = places[part, None] - values
        pulled[part] = places[part] - 2 * noise**2 * ((away / (away * away + width * width)) @ counts)
    return pulled
