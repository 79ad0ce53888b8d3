"""What public features of items say beforehand of the matrix of item pairs, and how far a noisy release bears it out.

Nothing here looks at anything but features, which are public, a noisy release and the noise's public width.  See
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

_MOST_COLUMNS = 128  # of a block: the directions that popular items have most of
_MORE_COLUMNS, _N_ITERATIONS = 16, 3  # of the subspace iteration that finds them
_START = "item_features.subspace"  # a public start, the same each time
_LEAST_OF_PAIRS = 1e-6  # of the squares of a prior's entries


def prior_factors(features: AlignedFeatures, popularity: np.ndarray) -> list[NDArray[np.float64]]:
    """Factors G of each block's prior G G', of sqrt(m_i m_j) f_i'f_j with features centred by popularity.

    A feature that all items have is no news; and what popular items have in common with each other, whatever they are,
    is in the mean already.  So f_i is taken from the mean of all, each weighing as its popularity m_i: then the columns
    of G are orthogonal to sqrt(m).

    Parameters
    ----------
    features : AlignedFeatures
        Of n items.
    popularity : ndarray of shape (n,), float64
        m, public, at least 0.

    Returns
    -------
    list of ndarray of shape (n, n_columns), float64
        One for each block that has anything to say, of 128 columns at most: of more dimensions, the strongest ones.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.data.item_features import ItemFeatures
    >>> from fastfedrec.systems._feature_prior import prior_factors
    >>> features = ItemFeatures.of("item_features", {"kind": ["a", "a", "b", "b"]}).align("item_features", range(4))
    >>> (factors,) = prior_factors(features, np.array([4.0, 1.0, 4.0, 1.0]))
    >>> (factors @ factors.T).round(2).tolist()
    [[2.0, 1.0, -2.0, -1.0], [1.0, 0.5, -1.0, -0.5], [-2.0, -1.0, 2.0, 1.0], [-1.0, -0.5, 1.0, 0.5]]
    """
    roots = np.sqrt(popularity)
    found = []
    for block in features.blocks:
        there = np.diff(block.indptr) > 0
        weighted = scipy.sparse.csr_array(block.multiply(roots[:, None]), dtype=np.float64)
        factors = weighted.toarray() if block.shape[1] <= _MOST_COLUMNS else _strongest(weighted)
        total = float(popularity[there].sum())
        with one_blas_thread():
            if total > 0:
                factors -= np.outer(roots * there, roots @ factors / total)
            whole = float(np.square(factors.T @ factors).sum())
        # What says next to nothing of pairs, only of each item alone, cannot be measured by them.
        if whole - float(np.square(squares(factors)).sum()) > _LEAST_OF_PAIRS * whole:
            found.append(factors)
    return found


def _strongest(rows: Any) -> np.ndarray:
    """The left singular vectors with the largest values, times these."""
    size = min(_MOST_COLUMNS + _MORE_COLUMNS, *rows.shape)
    start = Key.from_seed(0).normal(_START, size=size * rows.shape[1]).reshape(rows.shape[1], size)
    with one_blas_thread():
        vectors = np.linalg.qr(rows @ start)[0]
        for _ in range(_N_ITERATIONS):
            vectors = np.linalg.qr(rows @ (rows.T @ vectors))[0]
        inner = (rows.T @ vectors).T
        values, turn = np.linalg.eigh(inner @ inner.T)
        strongest = slice(None, -_MOST_COLUMNS - 1, -1)
        return vectors @ turn[:, strongest] * np.sqrt(np.maximum(values[strongest], 0.0))


def believed_scales(
    products: np.ndarray, inner: np.ndarray, spread: np.ndarray, least: float = 2.0
) -> NDArray[np.float64]:
    """Scales a of priors P_b with which the sum of a_b P_b is nearest to a noisy release Y, none below 0, and shrunk.

    The least squares solve K a = t with t_b = <P_b, Y> and K_bc = <P_b, P_c>.  Features that tell nothing give t the
    covariance C, and so a scale the standard deviation s_b = sqrt((K^-1 C K^-1)_bb); a scale of z s_b keeps
    1 - (least / z)^2 of itself, and nothing below that.

    Parameters
    ----------
    products : ndarray of shape (n_blocks,), float64
        t.
    inner : ndarray of shape (n_blocks, n_blocks), float64
        K.
    spread : ndarray of shape (n_blocks, n_blocks), float64
        C.
    least : float
        Standard deviations that a scale must stand above.

    Returns
    -------
    ndarray of shape (n_blocks,), float64
        At least 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.systems._feature_prior import believed_scales
    >>> believed_scales(np.array([90.0, 3.0]), np.diag([9.0, 9.0]), np.diag([9.0, 9.0])).round(2).tolist()
    [9.96, 0.0]
    """
    told = np.flatnonzero(inner.diagonal() > 0)
    believed = np.zeros(len(products))
    if len(told) == 0:
        return believed
    sizes = np.sqrt(inner.diagonal()[told])
    # In units of each block; two that say the same share what they are believed.
    matrix, covariance = (_regular(of[np.ix_(told, told)] / np.outer(sizes, sizes)) for of in (inner, spread))
    triangle = np.linalg.cholesky(matrix)
    right = scipy.linalg.solve_triangular(triangle, products[told] / sizes, lower=True)
    scales = scipy.optimize.nnls(triangle.T, right)[0]
    active = np.flatnonzero(scales)
    if len(active):
        inverse = np.linalg.inv(matrix[np.ix_(active, active)])
        widths = np.sqrt((inverse @ covariance[np.ix_(active, active)] @ inverse).diagonal())
        scales[active] *= np.maximum(1 - np.square(least * widths / scales[active]), 0.0)
    believed[told] = scales / sizes
    return believed


def _regular(matrix: np.ndarray) -> NDArray[np.float64]:
    return matrix + 1e-6 * np.diag(matrix.diagonal())


def combine(values: np.ndarray, vectors: np.ndarray, prior: np.ndarray, rank: int) -> NDArray[np.float64]:
    """Factors L of V diag(x) V' + G G', its largest `rank` eigenvalues above 0.

    Parameters
    ----------
    values : ndarray of shape (k,), float64
        x, of either sign.
    vectors : ndarray of shape (n, k), float64
        V.
    prior : ndarray of shape (n, n_columns), float64
        G.
    rank : int
        Most columns of the result.

    Returns
    -------
    ndarray of shape (n, n_columns), float64
        Strongest first.
    """
    both = np.column_stack([vectors, prior])
    weights = np.concatenate([values, np.ones(prior.shape[1])])
    with one_blas_thread():
        basis, triangle = np.linalg.qr(both)
        found, turn = np.linalg.eigh((triangle * weights) @ triangle.T)
        least = float(found.max(initial=0.0)) * len(found) * np.finfo(float).eps  # below it there is rounding alone
        strongest = np.flatnonzero(found > least)[::-1][:rank]
        return basis @ (turn[:, strongest] * np.sqrt(found[strongest]))


def squares(factors: np.ndarray) -> NDArray[np.float64]:
    """The diagonal of G G'.

    Parameters
    ----------
    factors : ndarray of shape (n, n_columns), float64
        G.

    Returns
    -------
    ndarray of shape (n,), float64
        At least 0.
    """
    return np.einsum("ij,ij->i", factors, factors)


def strongest(factors: np.ndarray, most: int) -> NDArray[np.float64]:
    """The eigenvectors of G G' with the largest values, orthonormal.

    Parameters
    ----------
    factors : ndarray of shape (n, n_columns), float64
        G.
    most : int
        Of them; fewer where G has a lower rank.

    Returns
    -------
    ndarray of shape (n, k), float64
        Strongest first.
    """
    with one_blas_thread():
        values, turn = np.linalg.eigh(factors.T @ factors)
        least = float(values.max(initial=0.0)) * len(values) * np.finfo(float).eps * 16
        kept = np.flatnonzero(values > least)[::-1][:most]
        return factors @ (turn[:, kept] / np.sqrt(values[kept]))


def hollow_inner(blocks: Sequence[np.ndarray]) -> NDArray[np.float64]:
    """<P_b, P_c> over entries off the diagonal, of P = G G'.

    Parameters
    ----------
    blocks : sequence of ndarray of shape (n, n_columns), float64
        G of each block.

    Returns
    -------
    ndarray of shape (n_blocks, n_blocks), float64
        Symmetric.
    """
    inner = np.empty((len(blocks), len(blocks)))
    with one_blas_thread():
        for b, one in enumerate(blocks):
            for c, other in enumerate(blocks[: b + 1]):
                whole = float(np.square(one.T @ other).sum())
                inner[b, c] = inner[c, b] = whole - float(squares(one) @ squares(other))
    return inner


def spread_of_pairs(inner: np.ndarray, variance: float) -> NDArray[np.float64]:
    """Covariance of <P_b, Y> off the diagonal, of a symmetric Y with this mean square of an entry that P has no say in.

    Parameters
    ----------
    inner : ndarray of shape (n_blocks, n_blocks), float64
        <P_b, P_c> off the diagonal.
    variance : float
        Of an entry.

    Returns
    -------
    ndarray of shape (n_blocks, n_blocks), float64
        Each entry is there twice.
    """
    return 2 * variance * inner
