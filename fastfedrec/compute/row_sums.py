"""Weighted sums of a matrix's rows, one for each user: what a model of similarities between items scores with."""

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec._kernels.compute import row_sums as _kernel
from fastfedrec.core.check import check_array, plain_array
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows
from fastfedrec.data.sparse import as_csr, check_arrays

__all__ = ["sum_rows"]


def sum_rows(
    interactions: RowsLike, matrix: Any, *, weights: np.ndarray | None = None, n_threads: int = 0
) -> NDArray[np.float64]:
    """For each user, add up the rows of a matrix that belong to the user's items.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        As `fastfedrec.data.conversion.borrow_rows` takes it.  Each user's items; explicit zeros count as what they are.
    matrix : array_like or scipy.sparse matrix of shape (n_items, n_columns)
        Row i is what item i adds; taken as float64.
    weights : ndarray of shape (n_interactions,), optional
        A factor for each interaction, in storage order: by user, then item.  By default the values.
    n_threads : int
        0 for all; the result depends neither on it nor on the instruction set.

    Returns
    -------
    ndarray of shape (n_users, n_columns), float64
        Zeros for a user without items.  A sum is over the user's items in their order, so that a user's row has the
        same bits whoever else is asked for, and those of SciPy's product.

    Raises
    ------
    ValueError
        Not a row for each item, or not a weight for each interaction.

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
        sparse = as_csr(matrix)  # what repeats a place is added up, as it stands there
        if sparse.shape[0] != interactions.n_items:
            raise ValueError(f"matrix must have {interactions.n_items} rows, one for each item, got {sparse.shape[0]}")
        out = np.empty((interactions.n_users, sparse.shape[1]))
        if out.size:
            layout = (sparse.indptr, np.int64), (sparse.indices, np.int32), (sparse.data, np.float64)
            _kernel.sum_sparse_rows(*rows, *(np.ascontiguousarray(*part) for part in layout), out, n_threads)
        return out
    shape = (interactions.n_items, None)
    matrix = plain_array("matrix", matrix)
    if matrix.dtype.kind in "bf":  # of any width; others are numbers that fit, or are refused
        matrix = matrix.astype(np.float64, copy=False)
    matrix = check_array("matrix", matrix, ndim=2, shape=shape, dtypes=(np.float64,), finite=False)
    out = np.empty((interactions.n_users, matrix.shape[1]))
    if out.size:
        _kernel.sum_dense_rows(*rows, matrix, out, n_threads)
    return out
