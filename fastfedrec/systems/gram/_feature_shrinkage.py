"""Estimates of the matrix of item pairs that combine a noisy release with a prior from public item features.

Features give priors P_b = G_b G_b' (`systems/_feature_prior.py`).  Their sum, with scales that are fitted to the noisy
matrix, is subtracted.  The residual is denoised as in `shrinkage.py`, but with eigenvalues of both signs, and the prior
is added to the result.
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
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems.gram._spectrum import FilteredSpectra, Spectrum
from fastfedrec.systems.gram.shrinkage import RANK, Shrunk, _is_full, _shrink, _strongest, denoise_pairs, shrink_matrix

_MAX_NEGATIVE = 64  # number of eigenvalues below 0, which correct a prior that is too large
_ROWS = 1024  # rows of a block, so that no second array of the matrix's size is held


def denoise_with_features(
    matrix: np.ndarray,
    noise: float,
    features: AlignedFeatures | None,
    popularity: np.ndarray,
    *,
    rank: int = RANK,
    n_threads: int = 0,
) -> NDArray[np.float64]:
    """Return factors L of the estimate L L' of `denoise_pairs`, with a prior from features; overwrites the matrix.

    `popularity` is proportional to the public mean of the users' rows and at least 0; L has at most `rank` columns.
    """
    prior = subtract_prior(matrix, noise, features, popularity)
    if prior.shape[1] == 0:
        return denoise_pairs(matrix, noise, rank=rank, n_threads=n_threads)
    return combine(*denoise_signed(matrix, noise, rank=rank, n_threads=n_threads), prior, rank)


def subtract_prior(
    matrix: np.ndarray, noise: float, features: AlignedFeatures | None, popularity: np.ndarray
) -> NDArray[np.float64]:
    """Subtract the fitted prior G G' from a noisy matrix in place, and return G; without features it has no columns."""
    if features is None:
        return np.zeros((len(matrix), 0))
    prior = fitted_prior(matrix, noise, prior_factors(features, popularity), popularity)
    with one_blas_thread():
        for start in range(0, len(matrix) if prior.shape[1] else 0, _ROWS):
            part = slice(start, start + _ROWS)
            matrix[part] -= (prior[part] @ prior.T).astype(np.float32)
    return prior


def denoise_signed(
    matrix: np.ndarray, noise: float, *, rank: int = RANK, n_threads: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return eigenvalues of either sign, and their vectors, of the matrix behind a symmetric noisy one.

    The positive part defines the diagonal, as in `denoise_pairs`.  The eigenvalues above 0, at most `rank`, come first
    in falling order; at most 64 below 0 follow.
    """
    return add_negative_part(shrink_matrix(matrix, noise, rank, n_threads), matrix, noise, rank, n_threads)


def add_negative_part(
    positive: Shrunk, matrix: np.ndarray, noise: float, rank: int, n_threads: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Append the shrunk eigenvalues below 0, and their vectors, to the positive part of a matrix."""
    max_rank, spectrum = min(rank, _MAX_NEGATIVE), positive.spectrum
    # The negative part of a matrix is the positive part of its negation, shrunk by the same rule.
    if _is_full(len(matrix), rank):
        negated = Spectrum(-spectrum.values[::-1], spectrum.vectors[:, ::-1], spectrum.nodes, spectrum.counts)
    else:
        # The matrix is negated in place, since a copy would double the memory.
        np.negative(matrix, out=matrix)
        negated = FilteredSpectra(matrix, max_rank, resolve_n_threads(n_threads))(-positive.given_diagonal)
        np.negative(matrix, out=matrix)
    magnitudes, vectors = _strongest(_shrink(negated, noise)[0], negated, max_rank)
    return np.concatenate([positive.values, -magnitudes]), np.column_stack([positive.vectors, vectors])


def fitted_prior(
    matrix: np.ndarray, noise: float, priors: Sequence[np.ndarray], popularity: np.ndarray, min_z: float = 2.0
) -> NDArray[np.float64]:
    """Return factors of the sum of a_b P_b that is nearest to the matrix off its diagonal, with shrunk scales a_b.

    `priors` are the G_b, `noise` is the standard deviation of an entry, and scales below `min_z` standard deviations
    are 0 (`believed_scales`).
    """
    if not priors:
        return np.zeros((len(matrix), 0))
    # The block m m' of popularity takes its own scale, so that features of popular items do not explain popularity.
    blocks = [*priors, popularity[:, None]]
    products = np.zeros(len(blocks))
    diagonal = matrix.diagonal().astype(np.float64)
    with one_blas_thread():
        # <G G', Y> = sum of G * (Y G), less the diagonal, which the release does not have.
        for b, factors in enumerate(blocks):
            single = factors.astype(np.float32)
            for start in range(0, len(matrix), _ROWS):
                part = slice(start, start + _ROWS)
                rows = (matrix[part] @ single).astype(np.float64)
                products[b] += float(np.vdot(factors[part], rows))
            products[b] -= float(diagonal @ squares(factors))
    inner = hollow_inner(blocks)
    scales = believed_scales(products, inner, spread_of_pairs(inner, noise**2), min_z=min_z)
    scaled = [math.sqrt(scale) * factors for scale, factors in zip(scales[:-1], priors, strict=True) if scale > 0]
    return np.column_stack(scaled) if scaled else np.zeros((len(matrix), 0))


def estimate_popularity(matrix: np.ndarray) -> NDArray[np.float64]:
    """Estimate popularity, above 0 with sum 1, by two power iterations on a noisy matrix that is not centred."""
    diagonal = matrix.diagonal().astype(np.float64)
    weights = np.ones(len(matrix))
    with one_blas_thread():
        for _ in range(2):
            sums = np.concatenate(
                [matrix[start : start + _ROWS] @ weights.astype(np.float32) for start in range(0, len(matrix), _ROWS)]
            )
            weights = popularity_shares(sums - diagonal * weights) * len(matrix)
    return weights / len(matrix)
