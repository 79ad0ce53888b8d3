"""Exact sums X'X of small integers over blocks of rows, such as counts of users with two items."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy

from fastfedrec.core.arrays import check_out
from fastfedrec.core.threads import one_blas_thread

__all__ = ["sum_products"]

__dir__ = __all__.copy  # dir() lists only the public names

_EXACT_FLOAT32 = 2**24  # float32 sums of at most this number of integers from -1 to 1 are exact in any order
_TILE = 256  # rows and columns of a square that stays in a cache


def sum_products(blocks: Iterable[np.ndarray], n_columns: int, dtype: type, *, out: Any = None) -> np.ndarray:
    """Sum X'X exactly over float32 blocks X of at most 2^24 rows of integers from -1 to 1, in `out` or a new array."""
    # `one_blas_thread` limits only loaded libraries, so SciPy's BLAS is loaded before it.
    ssyrk = scipy.linalg.blas.ssyrk
    # Fortran order lets BLAS add in place; it writes only the triangle above the diagonal.
    exact = np.zeros((n_columns, n_columns), dtype=np.float32, order="F")
    array = None if out is None else check_out(out, (n_columns, n_columns), dtype)
    total: np.ndarray | None = None
    n_rows = 0
    for block in blocks:
        if n_rows + len(block) > _EXACT_FLOAT32:
            total = _add(total, exact.T, dtype, array)
            n_rows = 0
        # Sums stay in float32 while they are exact, because each block in another type costs a copy of all sums.
        with one_blas_thread():
            exact = ssyrk(1.0, block.T, beta=float(n_rows > 0), c=exact, overwrite_c=True)
        n_rows += len(block)
    sums = _mirror(_add(total, exact.T, dtype, array))
    return sums if out is None else out


def _add(total: np.ndarray | None, exact: np.ndarray, dtype: type, out: np.ndarray | None) -> np.ndarray:
    """Add float32 sums to the total, which is `out` or a new array if there is no total so far."""
    if total is None and out is not None:
        np.copyto(out, exact, casting="unsafe")
        return out
    if total is None:
        return exact.astype(dtype)
    return np.add(total, exact.astype(dtype), out=total)


def _mirror(lower: np.ndarray) -> np.ndarray:
    """Copy the triangle below the diagonal to the zeros above it, tile by tile."""
    for start in range(0, len(lower), _TILE):
        rows, columns = lower[start : start + _TILE], slice(start, start + _TILE)
        lower[:start, columns] = rows[:, :start].T
        rows[:, columns] += np.tril(rows[:, columns], -1).T
    return lower
