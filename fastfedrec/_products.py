"""X'X of whole numbers, a block of rows at a time: who has two items, or what users answered about two of them."""

from collections.abc import Iterable

import numpy as np

from fastfedrec._threads import one_blas_thread

_EXACT_FLOAT32 = 2**24  # sums of so many numbers from -1 to 1 are exact in float32, in any order


def sum_products(blocks: Iterable[np.ndarray], n_columns: int, dtype: type) -> np.ndarray:
    """Sum X'X over blocks X of whole numbers from -1 to 1, exactly.

    Parameters
    ----------
    blocks : iterable of ndarray of shape (n_rows, n_columns), float32
        At most 2^24 rows each; one of them is in memory at a time.
    n_columns : int
        Of every block.
    dtype : type
        That holds the sums.

    Returns
    -------
    ndarray of shape (n_columns, n_columns), dtype
        The same however rows are put into blocks.
    """
    exact, product = (np.zeros((n_columns, n_columns), dtype=np.float32) for _ in range(2))
    total: np.ndarray | None = None
    n_rows = 0
    for block in blocks:
        if n_rows + len(block) > _EXACT_FLOAT32:
            total = _added(total, exact, dtype)
            n_rows = 0
        # Added up in float32 while that is exact: in another type every block would pay for a copy of all sums.
        with one_blas_thread():
            np.matmul(block.T, block, out=product if n_rows else exact)
        if n_rows:
            exact += product
        n_rows += len(block)
    del product
    return _added(total, exact, dtype)


def _added(total: np.ndarray | None, exact: np.ndarray, dtype: type) -> np.ndarray:
    if total is None:
        return exact.astype(dtype)
    return np.add(total, exact.astype(dtype), out=total)
