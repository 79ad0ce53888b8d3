"""Non-negative matrix factorisation of observed entries: masked, weighted, regularised, by alternating rows."""

from dataclasses import dataclass

import numpy as np
import scipy

from fastfedrec._kernels.compute import nmf as _kernel
from fastfedrec.core.arrays import FloatArray, zeros_on_lines
from fastfedrec.core.check import check_array, check_choice, check_instance, check_integer, check_real, plain_array
from fastfedrec.core.log import log_done
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows, is_table, widened
from fastfedrec.data.interactions import Interactions

__all__ = ["NMF", "fit_nmf", "solve_rows_nonnegative"]

_LINE = 16  # factors that the kernel's rows are padded to: the widest vector
_MIDDLE_LINE = 24  # of multiplicative steps, between one line and two
_LONG_LINE = 64  # above two lines, where multiplicative steps take four vectors at a time
MAX_FACTORS = 256


@dataclass(frozen=True)
class NMF:
    """A factorisation: entry (u, i) is about ``row_factors[u] @ item_factors[i]``.

    Parameters
    ----------
    row_factors : ndarray of shape (n_rows, n_factors)
        At least 0; zeros for a row without entries.
    item_factors : ndarray of shape (n_items, n_factors)
        At least 0; zeros for an item without entries.
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

    The result reduces ``sum w_ui (x_ui - u'v)^2 + regularization (|U|^2 + |V|^2)`` over observed entries, with U and V
    at least 0, from epoch to epoch.  An epoch of solver "cd" takes `n_sweeps` of coordinate descent for each row and
    then for each item [1]_, from where the last epoch ended.  An epoch of "mu" takes one multiplicative step of all
    rows and then one of all items [2]_: shorter, and worth far less.

    Parameters
    ----------
    ratings : Interactions, SciPy sparse matrix or array, or array of shape (n_rows, n_items), float32 or float64
        `Interactions` and matrices leave out what they do not store; a stored 0 is an entry.  Of an array every entry
        is observed, unless `weights` says otherwise.
    n_factors : int
        From 1 to 256.
    regularization : float
        At least 0.
    n_epochs : int
        At least 1.
    weights : ndarray or None
        At least 0; 0 for an entry that is missing.  One for each interaction in storage order, or of the array's shape;
        None weighs all entries 1.
    solver : {"cd", "mu"}
        Coordinate descent, or multiplicative updates, as other packages have them: for comparison.  With "mu" ratings
        are at least 0, and a factor that is 0 stays 0.
    n_sweeps : int
        At least 1: sweeps over a row's factors in an epoch of "cd".
    key : Key
        Where the first factors come from.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    NMF
        Of the dtype of `ratings`.

    Raises
    ------
    ValueError
        Negative weights, negative ratings with "mu", no entries, or an argument out of range.

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
    items = rows.transposed()
    # Uniform factors whose products are about as large as the entries.
    scale = 2 * np.sqrt(max(rows.mean(), 1e-30) / n_factors)
    sizes = {"rows": rows.n_rows, "items": rows.n_items}
    row_factors, item_factors = (
        (scale * key.uniform(f"nmf.{side}", size=n * n_factors)).reshape(n, n_factors).astype(rows.values.dtype)
        for side, n in sizes.items()
    )
    if solver == "mu":
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
    n_threads: int = 0,
) -> FloatArray:
    """Solve each row's non-negative least squares for fixed item factors.

    The result minimises ``sum_i w_ui (x_ui - u'v_i)^2 + regularization |u|^2`` over u >= 0, for each row by itself:
    what an entity does with the server's item factors.

    Parameters
    ----------
    ratings : Interactions, SciPy sparse matrix or array, or array of shape (n_rows, n_items), float32 or float64
        As for `fit_nmf`; a row without entries gets zeros.  Values of `Interactions` and frames are taken as float64.
    item_factors : ndarray of shape (n_items, n_factors)
        At most 256 factors, of any sign; taken in the dtype of `ratings`.
    regularization : float
        At least 0.
    weights : ndarray or None
        As for `fit_nmf`.
    start : ndarray of shape (n_rows, n_factors) or None
        Where the descent starts, at least 0; None starts from zeros.
    max_sweeps : int
        At least 1: sweeps over a row's factors at most.
    tolerance : float
        At least 0.  A row ends with a sweep that changes no factor by more than this share of its largest.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_rows, n_factors)
        Of the dtype of `ratings`, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.compute.nmf import solve_rows_nonnegative
    >>> solve_rows_nonnegative(np.array([[2.0, -3.0]]), np.eye(2), regularization=1.0)
    array([[1., 0.]])
    """
    rows = _Entries.of(ratings, weights, wide=True)  # a row's factors depend on no value of another row
    item_factors = check_array("item_factors", item_factors, ndim=2, shape=(rows.n_items, None))
    n_factors = check_integer("the number of item_factors' columns", item_factors.shape[1], low=1, high=MAX_FACTORS)
    regularization = check_real("regularization", regularization, low=0.0)
    max_sweeps = check_integer("max_sweeps", max_sweeps, low=1, high=2**31 - 1)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    n_threads = resolve_n_threads(n_threads)
    dtype = rows.values.dtype
    out = np.zeros((rows.n_rows, n_factors), dtype=dtype)
    if start is not None:
        out[:] = check_array("start", start, ndim=2, shape=out.shape)
        if out.min(initial=0) < 0:
            raise ValueError(f"start must be at least 0, got {out.min()}; clip it")
    _solve(rows, item_factors.astype(dtype, copy=False), regularization, out, tolerance, max_sweeps, n_threads)
    return out


@dataclass(frozen=True)
class _Entries:
    """Observed entries as the kernels take them: `indices` is None where rows hold every item."""

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
        """In the kernels' order; empty ones stand for all items, and for weights of 1."""
        indices = np.empty(0, dtype=np.int32) if self.indices is None else self.indices
        weights = np.empty(0, dtype=self.values.dtype) if self.weights is None else self.weights
        return self.indptr, indices, self.values, weights

    def mean(self) -> float:
        return float(np.average(self.values, weights=self.weights) if self.weights is None or self.weights.any() else 0)

    def transposed(self) -> "_Entries":
        if self.indices is None:

            def turned(flat: np.ndarray) -> np.ndarray:
                return np.ascontiguousarray(flat.reshape(self.n_rows, self.n_items).T).reshape(-1)

            weights = None if self.weights is None else turned(self.weights)
            indptr = np.arange(self.n_items + 1) * self.n_rows
            return _Entries(indptr, None, turned(self.values), weights, self.n_rows)
        shape = (self.n_rows, self.n_items)
        places = scipy.sparse.csr_array((np.arange(len(self.values)), self.indices, self.indptr), shape=shape).tocsc()
        weights = None if self.weights is None else self.weights[places.data]
        indptr, rows = places.indptr.astype(np.int64), places.indices.astype(np.int32)
        return _Entries(indptr, rows, self.values[places.data], weights, self.n_rows)


def _hold_every_item(ratings: Interactions) -> bool:
    """Whether no entry is missing: then rows can share one Gram, as those of an array do."""
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
    """Every row's factors for the other side's, in place."""
    n_factors, dtype = factors.shape[1], factors.dtype
    padded = np.zeros((len(factors), -(-n_factors // _LINE) * _LINE), dtype=dtype)
    padded[:, :n_factors] = factors
    base = np.diag(np.full(padded.shape[1], regularization, dtype=dtype))
    if rows.indices is None and rows.weights is None:
        with one_blas_thread():
            gram = base + padded.T @ padded
            right = rows.values.reshape(rows.n_rows, rows.n_items) @ padded
        _kernel.solve_rows_shared(gram, right, out, tolerance, max_sweeps, n_threads)
        return
    _kernel.solve_rows(*rows.arrays, padded, base, out, tolerance, max_sweeps, n_threads)


def _padded(factors: np.ndarray) -> np.ndarray:
    """At cache lines, with zeros in whole vectors: a multiplicative step leaves zeros as they are."""
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
    """One multiplicative step of every row's factors for the other side's, in place; both padded."""
    if rows.indices is not None or rows.weights is not None:
        _kernel.multiply_rows(*rows.arrays, factors, out, n_factors, regularization, n_threads)
        return
    with one_blas_thread():
        out_of_values = out * (rows.values.reshape(rows.n_rows, rows.n_items) @ factors)
        out_of_products = out @ (factors.T @ factors) + regularization * out
    out[:] = 0  # where both are
    np.divide(out_of_values, out_of_products, out=out, where=out_of_products > 0)
