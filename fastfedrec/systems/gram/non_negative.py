"""The estimate of the matrix of item pairs that is nearest to another one, but without negative sums over users' pairs.

The inputs are released factors and public numbers only.  See docs/explanation/systems/gram/dp-gram.md.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.core.signs import with_signs
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems._feature_prior import squares

__all__ = ["non_negative"]

_N_STEPS = 4  # number of Newton's steps of the shift, which nearly converge
_N_PRODUCTS = 2  # number of products that turn the space of the factors to the strongest directions of the result
_ROWS = 1024  # rows of a block, so that no second array of the matrix's size is held


@one_blas_thread()
def non_negative(factors: np.ndarray, shared: np.ndarray) -> NDArray[np.float64]:
    """Return factors of the matrix nearest to L L' that has, with s s' added, no negative entry off the diagonal.

    `factors` is L, and `shared` is s.  The diagonal and the sum of all pairs are those of L L'.  The result has at most
    as many columns as L, with the strongest one first.
    """
    if not factors.shape[1]:
        return factors
    # With T = L L' + s s', the nearest matrix off the diagonal is max(T_ij - t, 0) - s_i s_j, where the shift t keeps
    # the sum.  Without it, the noise that remains above 0 would relate all rare items to each other.
    single, column, diagonal = factors.astype(np.float32), shared.astype(np.float32), squares(factors)
    matrix, shift = single @ single.T, 0.0
    parts = [slice(start, start + _ROWS) for start in range(0, len(matrix), _ROWS)]
    for part in parts:
        matrix[part] += np.outer(column[part], column)
    np.fill_diagonal(matrix, 0.0)
    total = max(sum(matrix[part].sum(dtype=np.float64) for part in parts), 0.0)
    for _ in range(_N_STEPS):
        above = [(rows.sum(dtype=np.float64), np.count_nonzero(rows)) for rows in _above(matrix, shift, parts)]
        excess, count = np.sum(above, axis=0) - (total, 0)
        shift += float(excess / max(count, 1))
    for part, rows in zip(parts, _above(matrix, shift, parts), strict=True):
        matrix[part] = rows - np.outer(column[part], column)
    np.fill_diagonal(matrix, diagonal)
    basis = scipy.linalg.qr(single, mode="economic")[
        0
    ]  # otherwise products turn all columns to the strongest direction
    for _ in range(_N_PRODUCTS):
        basis = matrix @ basis
    basis = scipy.linalg.qr(basis, mode="economic")[0]
    values, turn = np.linalg.eigh((basis.T @ (matrix @ basis)).astype(np.float64))
    leading = np.flatnonzero(values > 0)[::-1]
    return with_signs((basis @ turn[:, leading]) * np.sqrt(values[leading]))


def _above(matrix: np.ndarray, shift: float, parts: Sequence[slice]) -> Iterator[NDArray[np.float32]]:
    """Yield max(T_ij - t, 0) for blocks of rows."""
    return (np.maximum(matrix[part] - np.float32(shift), 0.0) for part in parts)
