"""X'X of whole numbers, a block of rows at a time: who has two items, or what users answered about two of them."""

from collections.abc import Iterable

import numpy as np
import scipy

from fastfedrec.core.threads import one_blas_thread

__all__ = ["sum_products"]

_EXACT_FLOAT32 = 2**24  # sums of so many numbers from -1 to 1 are exact in float32, in any order
_TILE = 256


def sum_products(blocks: Iterable[np.ndarray], n_columns: int, dtype: type) -> np.ndarray:
    """Sum X'X over blocks X of whole numbers from -1 to 1, exactly.

    Parameters
    ----------
    blocks : iterable of ndarray of shape (n_rows, n_columns), float32
        At most 2^24 rows each; one of them is in memory at a time, and the next may be written over it.
    n_columns : int
        Of every block.
    dtype : type
        That holds the sums.

    Returns
    -------
    ndarray of shape (n_columns, n_columns), dtype
        The same however rows are put into blocks.
    """
    ssyrk = scipy.linalg.blas.ssyrk  # loaded before the block below, so that its threads are held too
    # Of columns, so that BLAS adds to it: the triangle above the diagonal, and zeros.
    exact = np.zeros((n_columns, n_columns), dtype=np.float32, order="F")
    total: np.ndarray | None = None
    n_rows = 0
    for block in blocks:
        if n_rows + len(block) > _EXACT_FLOAT32:
            total = _added(total, exact.T, dtype)
            n_rows = 0
        # Added up in float32 while that is exact: in another type every block would pay for a copy of all sums.
        with one_blas_thread():
            exact = ssyrk(1.0, block.T, beta=float(n_rows > 0), c=exact, overwrite_c=True)
        n_rows += len(block)
    return _mirrored(_added(total, exact.T, dtype))


def _added(total: np.ndarray | None, exact: np.ndarray, dtype: type) -> np.ndarray:
    if total is None:
        return exact.astype(dtype)
    return np.add(total, exact.astype(dtype), out=total)


def _mirrored(lower: np.ndarray) -> np.ndarray:
    """Write what is below the diagonal above it as well, where there are zeros; by tiles that stay in a cache."""
    for start in range(0, len(lower), _TILE):
        rows, columns = lower[start : start + _TILE], slice(start, start + _TILE)
        lower[:start, columns] = rows[:, :start].T
        rows[:, columns] += np.tril(rows[:, columns], -1).T
    return lower
