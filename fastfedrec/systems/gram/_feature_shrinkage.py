"""A noisy matrix of item pairs, denoised about what public features of the items say beforehand.

Features give priors P_b = G_b G_b' (`systems/_feature_prior.py`).  As much of them as the matrix bears out is taken
off, what is left is denoised as in `shrinkage.py`, but with eigenvalues of both signs, and they are added back.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.systems._feature_prior import (
    believed_scales,
    combine,
    hollow_inner,
    prior_factors,
    spread_of_pairs,
    squares,
)
from fastfedrec.systems.gram._spectrum import FilteredSpectra, Spectrum
from fastfedrec.systems.gram.scoring import own_shares
from fastfedrec.systems.gram.shrinkage import RANK, Shrunk, _is_full, _shrink, _strongest, denoise_pairs, shrink_matrix

_MOST_BELOW = 64  # eigenvalues below 0 that are kept: of what was taken too much
_ROWS = 1024  # of the matrix at a time: no other array of its size is held


def denoise_with_features(
    matrix: np.ndarray,
    noise: float,
    features: AlignedFeatures | None,
    popularity: np.ndarray,
    *,
    rank: int = RANK,
    n_threads: int = 0,
) -> NDArray[np.float64]:
    """As `denoise_pairs`, about as much of what features say as the matrix bears out.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; the diagonal is not looked at.  What the features say is taken off in place.
    noise : float
        Standard deviation of the noise of an entry, above 0.
    features : AlignedFeatures or None
        Of the n items; None for none.
    popularity : ndarray of shape (n,), float64
        Public mean of users' rows, or what is proportional to it; at least 0.
    rank : int
        Most columns of the result, at least 1.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n, n_columns), float64
        L, whose L L' is the estimate.
    """
    prior = take_prior_off(matrix, noise, features, popularity)
    if prior.shape[1] == 0:
        return denoise_pairs(matrix, noise, rank=rank, n_threads=n_threads)
    return combine(*denoise_about(matrix, noise, rank=rank, n_threads=n_threads), prior, rank)


def take_prior_off(
    matrix: np.ndarray, noise: float, features: AlignedFeatures | None, popularity: np.ndarray
) -> NDArray[np.float64]:
    """Take off a noisy matrix, in place, as much of what features say as it bears out, and return factors of that.

    Parameters
    ----------
    matrix, noise, features, popularity : object
        As for `denoise_with_features`.

    Returns
    -------
    ndarray of shape (n, n_columns), float64
        Without columns where there are no features.
    """
    if features is None:
        return np.zeros((len(matrix), 0))
    prior = fitted_prior(matrix, noise, prior_factors(features, popularity), popularity)
    with one_blas_thread():
        for start in range(0, len(matrix) if prior.shape[1] else 0, _ROWS):
            part = slice(start, start + _ROWS)
            matrix[part] -= (prior[part] @ prior.T).astype(np.float32)
    return prior


def denoise_about(
    matrix: np.ndarray, noise: float, *, rank: int = RANK, n_threads: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find what is left of a symmetric matrix from which something was taken, so that eigenvalues have either sign.

    As `denoise_pairs`, with the diagonal of what is above 0.  Those below are shrunk as those above, once, and at most
    64 of them are kept.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; the diagonal is not looked at.  Of more than 2,048 rows it is negated for a while, in place.
    noise : float
        Standard deviation of the noise of an entry, above 0.
    rank : int
        Most eigenvalues above 0.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    values : ndarray of shape (k,), float64
        Those above 0, strongest first, then those below.
    vectors : ndarray of shape (n, k), float64
        Theirs; V diag(values) V' is the estimate.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.systems.gram._feature_shrinkage import denoise_about
    >>> rng = np.random.default_rng(1)
    >>> taste = rng.normal(size=(200, 2))
    >>> noise = np.triu(rng.normal(size=(200, 200)), 1)
    >>> clean = np.outer(taste[:, 0], taste[:, 0]) - np.outer(taste[:, 1], taste[:, 1])
    >>> values, vectors = denoise_about((clean + noise + noise.T).astype(np.float32), noise=1.0)
    >>> bool(np.abs((vectors * values) @ vectors.T - clean).mean() < 0.25)
    True
    """
    return with_negative(shrink_matrix(matrix, noise, rank, n_threads), matrix, noise, rank, n_threads)


def with_negative(
    above: Shrunk, matrix: np.ndarray, noise: float, rank: int, n_threads: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add to what was found above 0 in a matrix the eigenvalues below, shrunk; see `denoise_about`."""
    most, found = min(rank, _MOST_BELOW), above.spectrum
    if _is_full(len(matrix), rank):
        negated = Spectrum(-found.values[::-1], found.vectors[:, ::-1], found.rest, found.counts)
    else:
        np.negative(matrix, out=matrix)
        negated = FilteredSpectra(matrix, most, resolve_n_threads(n_threads))(-above.given_diagonal)
        np.negative(matrix, out=matrix)
    below, others = _strongest(_shrink(negated, noise)[0], negated, most)
    return np.concatenate([above.values, -below]), np.column_stack([above.vectors, others])


def fitted_prior(
    matrix: np.ndarray, noise: float, priors: Sequence[np.ndarray], popularity: np.ndarray, least: float = 2.0
) -> NDArray[np.float64]:
    """Factors of the sum of a_b P_b that is nearest to the matrix off its diagonal, shrunk (`believed_scales`).

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; the diagonal is not looked at.
    noise : float
        Standard deviation of an entry where features tell nothing, above 0.
    priors : sequence of ndarray of shape (n, n_columns), float64
        G_b of each.
    popularity : ndarray of shape (n,), float64
        m: what m m' explains is put down to it, and not to features of popular items.
    least : float
        Standard deviations that a scale must stand above.

    Returns
    -------
    ndarray of shape (n, n_columns), float64
        The columns of those with a scale above 0.
    """
    if not priors:
        return np.zeros((len(matrix), 0))
    blocks = [*priors, popularity[:, None]]
    products = np.zeros(len(blocks))
    diagonal = matrix.diagonal().astype(np.float64)
    with one_blas_thread():
        for b, factors in enumerate(blocks):
            single = factors.astype(np.float32)
            for start in range(0, len(matrix), _ROWS):
                part = slice(start, start + _ROWS)
                rows = (matrix[part] @ single).astype(np.float64)
                products[b] += float(np.vdot(factors[part], rows))
            products[b] -= float(diagonal @ squares(factors))
    inner = hollow_inner(blocks)
    scales = believed_scales(products, inner, spread_of_pairs(inner, noise**2), min_z=least)
    kept = [math.sqrt(scale) * factors for scale, factors in zip(scales[:-1], priors, strict=True) if scale > 0]
    return np.column_stack(kept) if kept else np.zeros((len(matrix), 0))


def popularity_of(matrix: np.ndarray) -> NDArray[np.float64]:
    """What a noisy matrix of pairs that are not centred tells of popularity: two steps towards its first eigenvector.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), float32
        Symmetric; the diagonal is not looked at.

    Returns
    -------
    ndarray of shape (n,), float64
        Above 0, together 1.
    """
    diagonal = matrix.diagonal().astype(np.float64)
    weights = np.ones(len(matrix))
    with one_blas_thread():
        for _ in range(2):
            sums = np.concatenate(
                [matrix[start : start + _ROWS] @ weights.astype(np.float32) for start in range(0, len(matrix), _ROWS)]
            )
            weights = own_shares(sums - diagonal * weights) * len(matrix)
    return weights / len(matrix)
