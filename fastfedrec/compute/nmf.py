"""Non-negative matrix factorisation of observed entries, with weights and regularisation, by alternating updates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from fastfedrec._kernels.compute import nmf as _kernel
from fastfedrec.core.arrays import FloatArray, check_out, zeros_on_lines
from fastfedrec.core.check import check_array, check_choice, check_instance, check_integer, check_real, plain_array
from fastfedrec.core.log import log_done
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows, is_table, widened
from fastfedrec.data.interactions import Interactions

__all__ = ["NMF", "fit_nmf", "solve_rows_nonnegative"]

__dir__ = __all__.copy  # dir() lists only the public names

# Rows of factors are padded to a multiple of these numbers of factors, so that kernels compute with whole vectors.
_LINE = 16  # floats of the widest vector
_MIDDLE_LINE = 24  # multiplicative steps with 17 to 24 factors
_LONG_LINE = 64  # multiplicative steps with more than 32 factors, which take four vectors at a time
MAX_FACTORS = 256


@dataclass(frozen=True)
class NMF:
    """Factorisation that approximates entry (u, i) by ``row_factors[u] @ item_factors[i]``.

    Parameters
    ----------
    row_factors : ndarray of shape (n_rows, n_factors)
        Factors of each row, at least 0; zeros for a row without entries.
    item_factors : ndarray of shape (n_items, n_factors)
        Factors of each item, at least 0; zeros for an item without entries.
    """

    row_factors: FloatArray
    item_factors: FloatArray


def fit_nmf(
    ratings: RowsLike,
    n_factors: int,
    *,
    regularization: float,
    n_epochs: int = 20,
    weights: np.ndarray | None = None,
    solver: str = "cd",
    n_sweeps: int = 3,
    key: Key,
    n_threads: int = 0,
) -> NMF:
    """Factorise observed entries without negative factors.

    Each epoch reduces ``sum w_ui (x_ui - u'v)^2 + regularization (|U|^2 + |V|^2)`` over the observed entries, with U
    and V at least 0.  An epoch of solver "cd" takes `n_sweeps` sweeps of coordinate descent for each row and then for
    each item [1]_, from the result of the last epoch.  An epoch of "mu" takes one multiplicative step of all rows and
    then one of all items [2]_; it is shorter and reduces the objective far less.

    Parameters
    ----------
    ratings : Interactions, SciPy sparse matrix or array, or array of shape (n_rows, n_items), float32 or float64
        Entries to factorise.  In `Interactions` and matrices the stored entries are observed, including a stored 0.  In
        an array every entry is observed unless its weight is 0.
    n_factors : int
        Number of factors, from 1 to 256.
    regularization : float
        Ridge penalty, at least 0.
    n_epochs : int
        Number of epochs, at least 1.
    weights : ndarray or None
        Weight of each entry, at least 0; 0 for a missing entry.  The shape is one weight for each interaction in
        storage order, or the array's shape.  None for a weight of 1 for all entries.
    solver : {"cd", "mu"}
        Coordinate descent, or multiplicative updates for comparison with other packages.  "mu" needs ratings of at
        least 0, and leaves a factor of 0 at 0.
    n_sweeps : int
        Number of sweeps over a row's factors in an epoch of "cd", at least 1.
    key : Key
        Key of the initial factors.
    n_threads : int
        Number of threads; 0 for all.  The result does not depend on it.

    Returns
    -------
    NMF
        Factors of the dtype of `ratings`.

    Raises
    ------
    ValueError
        A weight is negative, a rating is negative with "mu", there are no entries, or an argument is out of range.

    References
    ----------
    .. [1] Hsieh, Dhillon, "Fast coordinate descent methods with variable selection for non-negative matrix
       factorization", KDD 2011.
    .. [2] Lee, Seung, "Algorithms for non-negative matrix factorization", NIPS 2000; of observed entries: Luo, Zhou,
       Xia, Zhu, "An efficient non-negative matrix-factorization-based approach to collaborative filtering for
       recommender systems", IEEE Transactions on Industrial Informatics 10(2), 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.compute.nmf import fit_nmf
    >>> x = np.array([[1.0, 2.0], [2.0, 4.0]])
    >>> found = fit_nmf(x, 1, regularization=0.0, key=Key.from_seed(1))
    >>> (found.row_factors @ found.item_factors.T).round(6)
    array([[1., 2.],
           [2., 4.]])
    """
    rows = _Entries.of(ratings, weights)
    n_factors = check_integer("n_factors", n_factors, low=1, high=MAX_FACTORS)
    regularization = check_real("regularization", regularization, low=0.0)
    n_epochs = check_integer("n_epochs", n_epochs, low=1)
    check_choice("solver", solver, ("cd", "mu"))
    n_sweeps = check_integer("n_sweeps", n_sweeps, low=1, high=2**31 - 1)
    key = check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) to repeat a run")
    n_threads = resolve_n_threads(n_threads)
    if solver == "mu" and rows.values.min() < 0:
        raise ValueError(
            f"ratings must be at least 0 for solver 'mu', got {rows.values.min()}; shift them, or use 'cd'"
        )
    # The items' half step needs the same entries grouped by item.
    items = rows.transposed()
    # Uniform factors on (0, scale) have products with a mean of n_factors * scale^2 / 4, the mean of the entries.
    scale = 2 * np.sqrt(max(rows.mean(), 1e-30) / n_factors)
    sizes = {"rows": rows.n_rows, "items": rows.n_items}
    row_factors, item_factors = (
        (scale * key.uniform(f"nmf.{side}", size=n * n_factors)).reshape(n, n_factors).astype(rows.values.dtype)
        for side, n in sizes.items()
    )
    if solver == "mu":
        # Multiplicative steps work in place on padded copies, and the padding is cut at the end.
        padded = [_padded(row_factors), _padded(item_factors)]
        for epoch in range(1, n_epochs + 1):
            _multiply(rows, padded[1], n_factors, regularization, padded[0], n_threads)
            _multiply(items, padded[0], n_factors, regularization, padded[1], n_threads)
            log_done("fit_nmf", epoch, n_epochs, unit="epoch")
        return NMF(*(np.ascontiguousarray(side[:, :n_factors]) for side in padded))
    for epoch in range(1, n_epochs + 1):
        _solve(rows, item_factors, regularization, row_factors, 0.0, n_sweeps, n_threads)
        _solve(items, row_factors, regularization, item_factors, 0.0, n_sweeps, n_threads)
        log_done("fit_nmf", epoch, n_epochs, unit="epoch")
    return NMF(row_factors, item_factors)


def solve_rows_nonnegative(
    ratings: RowsLike,
    item_factors: np.ndarray,
    *,
    regularization: float,
    weights: np.ndarray | None = None,
    start: np.ndarray | None = None,
    max_sweeps: int = 500,
    tolerance: float = 1e-6,
    out: Any = None,
    n_threads: int = 0,
) -> FloatArray:
    """Solve each row's non-negative least squares for fixed item factors.

    The result u of a row minimises ``sum_i w_ui (x_ui - u'v_i)^2 + regularization |u|^2`` over u >= 0, independently of
    the other rows.  This is the local step of an entity that receives the server's item factors.

    Parameters
    ----------
    ratings : Interactions, SciPy sparse matrix or array, or array of shape (n_rows, n_items), float32 or float64
        Entries as for `fit_nmf`; a row without entries gets zeros.  Values of `Interactions` and frames become float64.
    item_factors : ndarray of shape (n_items, n_factors)
        Item factors of any sign, at most 256 columns; converted to the dtype of `ratings`.
    regularization : float
        Ridge penalty, at least 0.
    weights : ndarray or None
        Weight of each entry, as for `fit_nmf`.
    start : ndarray of shape (n_rows, n_factors) or None
        Start of the descent, at least 0; None for zeros.
    max_sweeps : int
        Maximum number of sweeps over a row's factors, at least 1.
    tolerance : float
        Relative tolerance, at least 0.  A row stops at a sweep that changes no factor by more than this share of the
        row's largest factor.
    out : ndarray of shape (n_rows, n_factors) or None
        Output array of the dtype of `ratings`, which may be `start`; None makes a new array.
    n_threads : int
        Number of threads; 0 for all.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (n_rows, n_factors)
        Factors of the dtype of `ratings`, at least 0: `out` or a new array.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.compute.nmf import solve_rows_nonnegative
    >>> solve_rows_nonnegative(np.array([[2.0, -3.0]]), np.eye(2), regularization=1.0)
    array([[1., 0.]])
    """
    # float64 for all rows: the narrowest type that holds the values would depend on the values of other rows.
    rows = _Entries.of(ratings, weights, wide=True)
    item_factors = check_array("item_factors", item_factors, ndim=2, shape=(rows.n_items, None))
    n_factors = check_integer("the number of item_factors' columns", item_factors.shape[1], low=1, high=MAX_FACTORS)
    regularization = check_real("regularization", regularization, low=0.0)
    max_sweeps = check_integer("max_sweeps", max_sweeps, low=1, high=2**31 - 1)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    n_threads = resolve_n_threads(n_threads)
    dtype = rows.values.dtype
    array = check_out(out, (rows.n_rows, n_factors), dtype.type, apart_from=(*rows.arrays, item_factors))
    if start is None:
        array.fill(0)
    else:
        np.copyto(array, check_array("start", start, ndim=2, shape=array.shape), casting="same_kind")
    if array.min(initial=0) < 0:
        raise ValueError(f"start must be at least 0, got {array.min()}; clip it")
    _solve(rows, item_factors.astype(dtype, copy=False), regularization, array, tolerance, max_sweeps, n_threads)
    return array if out is None else out


@dataclass(frozen=True)
class _Entries:
    """Observed entries in the layout of the kernels; `indices` is None if every row has every item."""

    indptr: np.ndarray
    indices: np.ndarray | None
    values: np.ndarray
    weights: np.ndarray | None
    n_items: int

    @classmethod
    def of(cls, ratings: RowsLike, weights: np.ndarray | None, *, wide: bool = False) -> "_Entries":
        if is_table(ratings):
            ratings = borrow_rows("ratings", ratings, aligned=None if weights is None else "weights", wide=wide)
            dtype = np.float32 if ratings.values is None else ratings.values.dtype
            n_items = ratings.n_items
            indptr, values = ratings.indptr, ratings.values_or_ones(dtype)
            indices = None if _hold_every_item(ratings) else ratings.indices
            shape: tuple[int, ...] = (ratings.n_interactions,)
        else:
            dense = check_array("ratings", widened(plain_array("ratings", ratings)), ndim=2)
            shape, n_items = dense.shape, dense.shape[1]
            indptr, indices, values = np.arange(len(dense) + 1) * n_items, None, dense.reshape(-1)
        if not len(values):
            raise ValueError("ratings must have at least one entry, got none")
        if weights is not None:
            weights = check_array("weights", weights, ndim=len(shape), shape=shape).reshape(-1)
            if weights.min() < 0:
                raise ValueError(f"weights must be at least 0, got {weights.min()}; use 0 for missing entries")
            weights = weights.astype(values.dtype, copy=False)
        return cls(indptr, indices, values, weights, n_items)

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Arrays in the kernels' order; empty arrays mean all items and weights of 1."""
        indices = np.empty(0, dtype=np.int32) if self.indices is None else self.indices
        weights = np.empty(0, dtype=self.values.dtype) if self.weights is None else self.weights
        return self.indptr, indices, self.values, weights

    def mean(self) -> float:
        # np.average raises an error if all weights are 0.
        return float(np.average(self.values, weights=self.weights) if self.weights is None or self.weights.any() else 0)

    def transposed(self) -> "_Entries":
        if self.indices is None:

            def transpose(flat: np.ndarray) -> np.ndarray:
                return np.ascontiguousarray(flat.reshape(self.n_rows, self.n_items).T).reshape(-1)

            weights = None if self.weights is None else transpose(self.weights)
            indptr = np.arange(self.n_items + 1) * self.n_rows
            return _Entries(indptr, None, transpose(self.values), weights, self.n_rows)
        # A sparse matrix of positions, converted to columns, gives the order of values and weights.
        shape = (self.n_rows, self.n_items)
        columns = scipy.sparse.csr_array((np.arange(len(self.values)), self.indices, self.indptr), shape=shape).tocsc()
        weights = None if self.weights is None else self.weights[columns.data]
        indptr, rows = columns.indptr.astype(np.int64), columns.indices.astype(np.int32)
        return _Entries(indptr, rows, self.values[columns.data], weights, self.n_rows)


def _hold_every_item(ratings: Interactions) -> bool:
    """Return whether no entry is missing, so that all rows can share one Gram matrix."""
    if ratings.n_interactions != ratings.n_users * ratings.n_items:
        return False
    return bool((ratings.indices.reshape(ratings.shape) == np.arange(ratings.n_items)).all())


def _solve(
    rows: _Entries,
    factors: np.ndarray,
    regularization: float,
    out: np.ndarray,
    tolerance: float,
    max_sweeps: int,
    n_threads: int,
) -> None:
    """Write each row's least-squares factors for the fixed factors of the other side to `out`."""
    n_factors, dtype = factors.shape[1], factors.dtype
    padded = np.zeros((len(factors), -(-n_factors // _LINE) * _LINE), dtype=dtype)
    padded[:, :n_factors] = factors
    base = np.diag(np.full(padded.shape[1], regularization, dtype=dtype))
    # All rows have the same Gram matrix if no entry is missing and there are no weights.
    if rows.indices is None and rows.weights is None:
        with one_blas_thread():
            gram = base + padded.T @ padded
            right = rows.values.reshape(rows.n_rows, rows.n_items) @ padded
        _kernel.solve_rows_shared(gram, right, out, tolerance, max_sweeps, n_threads)
        return
    _kernel.solve_rows(*rows.arrays, padded, base, out, tolerance, max_sweeps, n_threads)


def _padded(factors: np.ndarray) -> np.ndarray:
    """Copy factors to rows of whole vectors at cache lines; a multiplicative step leaves the padding at 0."""
    n, n_factors = factors.shape
    line = _LONG_LINE if n_factors > 2 * _LINE else _LINE
    if _LINE < n_factors <= _MIDDLE_LINE:
        line = _MIDDLE_LINE
    padded = zeros_on_lines(n, -(-n_factors // line) * line, factors.dtype)
    padded[:, :n_factors] = factors
    return padded


def _multiply(
    rows: _Entries, factors: np.ndarray, n_factors: int, regularization: float, out: np.ndarray, n_threads: int
) -> None:
    """Take one multiplicative step of each row's factors in place, with both arrays padded."""
    if rows.indices is not None or rows.weights is not None:
        _kernel.multiply_rows(*rows.arrays, factors, out, n_factors, regularization, n_threads)
        return
    with one_blas_thread():
        numerator = out * (rows.values.reshape(rows.n_rows, rows.n_items) @ factors)
        denominator = out @ (factors.T @ factors) + regularization * out
    # A factor with a denominator of 0 has a numerator of 0 too, and stays 0.
    out[:] = 0
    np.divide(numerator, denominator, out=out, where=denominator > 0)
