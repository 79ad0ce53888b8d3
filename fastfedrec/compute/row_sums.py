"""Weighted sums of a matrix's rows for each user, which are the scores of an item-similarity model."""

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec._kernels.compute import row_sums as _kernel
from fastfedrec.core.arrays import check_out
from fastfedrec.core.check import check_array, plain_array
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows
from fastfedrec.data.sparse import as_csr, check_arrays

__all__ = ["sum_rows"]

__dir__ = __all__.copy  # dir() lists only the public names

_MIN_PRODUCTS = 2**18  # of one thread, some 0.1 ms


def sum_rows(
    interactions: RowsLike, matrix: Any, *, weights: np.ndarray | None = None, out: Any = None, n_threads: int = 0
) -> NDArray[np.float64]:
    """Sum, for each user, the rows of a matrix that belong to the user's items.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        Each user's items, in any form that `fastfedrec.data.conversion.borrow_rows` accepts.  An explicit zero is an
        interaction with value 0.
    matrix : array_like or scipy.sparse matrix of shape (n_items, n_columns)
        Row i is the contribution of item i; converted to float64.
    weights : ndarray of shape (n_interactions,), optional
        Factor of each interaction, in storage order: by user, then item.  None for the values.
    out : ndarray of shape (n_users, n_columns), float64, or None
        Output array; None makes a new array.
    n_threads : int
        Number of threads; 0 for all.  The result depends neither on it nor on the instruction set.

    Returns
    -------
    ndarray of shape (n_users, n_columns), float64
        Sums, in `out` or a new array, which are zeros for a user without items.  The user's items are added in their
        storage order.  A row therefore has the same bits for any set of other users, and the same bits as SciPy's
        product.

    Raises
    ------
    ValueError
        The number of rows or of weights is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.compute.row_sums import sum_rows
    >>> data = Interactions.from_arrays([1, 1, 2], [10, 30, 20])
    >>> sum_rows(data, [[1.0, 0.5], [2.0, 0.0], [4.0, 0.25]])
    array([[5.  , 0.75],
           [2.  , 0.  ]])
    """
    interactions = borrow_rows("interactions", interactions, aligned=None if weights is None else "weights")
    n_threads = resolve_n_threads(n_threads)
    if weights is None:
        weights = interactions.values_or_ones(np.float64)
    else:
        length = (interactions.n_interactions,)
        weights = check_array("weights", weights, ndim=1, shape=length, dtypes=(np.float64,), finite=False)
    rows = interactions.indptr, interactions.indices, weights
    if scipy.sparse.issparse(matrix):
        check_arrays("matrix", matrix)
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"matrix must hold real numbers, got dtype {matrix.dtype}; convert it with .astype")
        sparse = as_csr(matrix)  # entries with equal indices are summed
        if sparse.shape[0] != interactions.n_items:
            raise ValueError(f"matrix must have {interactions.n_items} rows, one for each item, got {sparse.shape[0]}")
        read = *rows, sparse.indptr, sparse.indices, sparse.data
        array = check_out(out, (interactions.n_users, sparse.shape[1]), np.float64, apart_from=read)
        if array.size:
            # The kernel takes int64 row starts, int32 columns and float64 values; SciPy's types vary.
            layout = (sparse.indptr, np.int64), (sparse.indices, np.int32), (sparse.data, np.float64)
            _kernel.sum_sparse_rows(*rows, *(np.ascontiguousarray(*part) for part in layout), array, n_threads)
        return array if out is None else out
    shape = (interactions.n_items, None)
    matrix = plain_array("matrix", matrix)
    if matrix.dtype.kind in "bf":  # `check_array` converts integers, and rejects those that float64 would round
        matrix = matrix.astype(np.float64, copy=False)
    matrix = check_array("matrix", matrix, ndim=2, shape=shape, dtypes=(np.float64,), finite=False)
    # The kernel writes every entry, also zeros for users without items.
    array = check_out(out, (interactions.n_users, matrix.shape[1]), np.float64, apart_from=(*rows, matrix))
    if array.size:
        # A thread for fewer products costs more than it saves, above all if requests of several Python threads overlap.
        n_threads = min(n_threads, 1 + weights.size * matrix.shape[1] // _MIN_PRODUCTS)
        _kernel.sum_dense_rows(*rows, matrix, array, n_threads)
    return array if out is None else out
