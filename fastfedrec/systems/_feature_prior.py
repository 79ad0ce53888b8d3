"""Priors of the matrix of item pairs from public features of items, and their weights by a noisy release.

The inputs are features, which are public, a noisy release, and the public standard deviation of its noise.  See
docs/explanation/systems/gram/dp-gram.md.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.item_features import AlignedFeatures

_MAX_COLUMNS = 128  # columns of a block's prior: the leading directions, weighted by popularity
_MORE_COLUMNS, _N_ITERATIONS = 16, 3  # oversampling and steps of the subspace iteration
_START = "item_features.subspace"  # stream of a public start, the same every time
_MIN_PAIR_SHARE = 1e-6  # smallest share of a prior's squared norm off the diagonal


def prior_factors(features: AlignedFeatures, popularity: np.ndarray) -> list[NDArray[np.float64]]:
    """Return factors G of each block's prior G G' of sqrt(m_i m_j) f_i'f_j, with features centred by popularity m.

    A block has at most 128 columns, its leading directions; blocks without weight off the diagonal are left out.
    """
    # A feature of all items carries no information, and the mean already contains the common features of popular items.
    # So f_i is centred by the mean with weights m, and the columns of G are orthogonal to sqrt(m).
    roots = np.sqrt(popularity)
    priors = []
    for block in features.blocks:
        known = np.diff(block.indptr) > 0
        weighted = scipy.sparse.csr_array(block.multiply(roots[:, None]), dtype=np.float64)
        factors = weighted.toarray() if block.shape[1] <= _MAX_COLUMNS else _leading_directions(weighted)
        total = float(popularity[known].sum())
        with one_blas_thread():
            if total > 0:
                factors -= np.outer(roots * known, roots @ factors / total)
            whole = float(np.square(factors.T @ factors).sum())
        # A prior with nearly all weight on the diagonal cannot be fitted to the release, which lacks the diagonal.
        if whole - float(np.square(squares(factors)).sum()) > _MIN_PAIR_SHARE * whole:
            priors.append(factors)
    return priors


def _leading_directions(rows: Any) -> np.ndarray:
    """Return the left singular vectors with the largest values, scaled by these."""
    size = min(_MAX_COLUMNS + _MORE_COLUMNS, *rows.shape)
    start = Key.from_seed(0).normal(_START, size=size * rows.shape[1]).reshape(rows.shape[1], size)
    # Subspace iteration with a QR in each step, then an exact decomposition within the subspace.
    with one_blas_thread():
        vectors = np.linalg.qr(rows @ start)[0]
        for _ in range(_N_ITERATIONS):
            vectors = np.linalg.qr(rows @ (rows.T @ vectors))[0]
        inner = (rows.T @ vectors).T
        values, turn = np.linalg.eigh(inner @ inner.T)
        leading = slice(None, -_MAX_COLUMNS - 1, -1)
        return vectors @ turn[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))


def believed_scales(
    products: np.ndarray, inner: np.ndarray, spread: np.ndarray, min_z: float = 2.0
) -> NDArray[np.float64]:
    """Return nonnegative scales a with which sum_b a_b P_b fits a noisy release Y best, shrunk by their uncertainty.

    `products` is t with t_b = <P_b, Y>, `inner` is K with K_bc = <P_b, P_c>, `spread` is the covariance C of t for
    uninformative features.
    """
    # Least squares solve K a = t.  A scale has the standard deviation s_b = sqrt((K^-1 C K^-1)_bb) under C, and a scale
    # of z s_b is multiplied by 1 - (min_z / z)^2, or set to 0 if z < min_z.
    informative = np.flatnonzero(inner.diagonal() > 0)
    scales_of_all = np.zeros(len(products))
    if len(informative) == 0:
        return scales_of_all
    sizes = np.sqrt(inner.diagonal()[informative])
    # Each block is scaled to norm 1, and the ridge lets nearly equal blocks share their scale.
    matrix, covariance = (
        _regular(square[np.ix_(informative, informative)] / np.outer(sizes, sizes)) for square in (inner, spread)
    )
    # With K = L L', K a = t has the nonnegative least squares solution of |L'a - L^-1 t|.
    triangle = np.linalg.cholesky(matrix)
    right = scipy.linalg.solve_triangular(triangle, products[informative] / sizes, lower=True)
    scales = scipy.optimize.nnls(triangle.T, right)[0]
    active = np.flatnonzero(scales)
    if len(active):
        inverse = np.linalg.inv(matrix[np.ix_(active, active)])
        widths = np.sqrt((inverse @ covariance[np.ix_(active, active)] @ inverse).diagonal())
        scales[active] *= np.maximum(1 - np.square(min_z * widths / scales[active]), 0.0)
    scales_of_all[informative] = scales / sizes
    return scales_of_all


def _regular(matrix: np.ndarray) -> NDArray[np.float64]:
    """Add a small ridge to a matrix."""
    return matrix + 1e-6 * np.diag(matrix.diagonal())


def combine(values: np.ndarray, vectors: np.ndarray, prior: np.ndarray, rank: int) -> NDArray[np.float64]:
    """Return factors L of V diag(x) V' + G G', its `rank` largest eigenvalues above 0, in falling order.

    `values` is x, of either sign, `vectors` is V, and `prior` is G.
    """
    # V diag(x) V' + G G' = B diag(w) B' with B = [V, G], so a QR of B leaves a small eigenproblem.
    both = np.column_stack([vectors, prior])
    weights = np.concatenate([values, np.ones(prior.shape[1])])
    with one_blas_thread():
        basis, triangle = np.linalg.qr(both)
        eigenvalues, turn = np.linalg.eigh((triangle * weights) @ triangle.T)
        # Smaller eigenvalues are rounding errors.
        min_value = float(eigenvalues.max(initial=0.0)) * len(eigenvalues) * np.finfo(float).eps
        leading = np.flatnonzero(eigenvalues > min_value)[::-1][:rank]
        return basis @ (turn[:, leading] * np.sqrt(eigenvalues[leading]))


def squares(factors: np.ndarray) -> NDArray[np.float64]:
    """Return the diagonal of G G'."""
    return np.einsum("ij,ij->i", factors, factors)


def strongest(factors: np.ndarray, max_columns: int) -> NDArray[np.float64]:
    """Return the at most `max_columns` eigenvectors of G G' with the largest values, in falling order."""
    # G'G has the same nonzero eigenvalues as G G', and an eigenvector u of it gives the eigenvector G u / sqrt(value).
    with one_blas_thread():
        values, turn = np.linalg.eigh(factors.T @ factors)
        min_value = float(values.max(initial=0.0)) * len(values) * np.finfo(float).eps * 16
        leading = np.flatnonzero(values > min_value)[::-1][:max_columns]
        return factors @ (turn[:, leading] / np.sqrt(values[leading]))


def hollow_inner(blocks: Sequence[np.ndarray]) -> NDArray[np.float64]:
    """Return <P_b, P_c> over the entries off the diagonal, with P = G G' for each block G."""
    inner = np.empty((len(blocks), len(blocks)))
    with one_blas_thread():
        for b, one in enumerate(blocks):
            for c, other in enumerate(blocks[: b + 1]):
                # <G G', H H'> = |G'H|^2, less the diagonals' product.
                whole = float(np.square(one.T @ other).sum())
                inner[b, c] = inner[c, b] = whole - float(squares(one) @ squares(other))
    return inner


def spread_of_pairs(inner: np.ndarray, variance: float) -> NDArray[np.float64]:
    """Return the covariance of <P_b, Y> off the diagonal, for a symmetric Y independent of P with this variance.

    `inner` is the result of `hollow_inner`.  The factor 2 counts each entry of a pair twice.
    """
    return 2 * variance * inner
