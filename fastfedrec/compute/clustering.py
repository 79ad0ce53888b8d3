"""k-means of sparse or dense rows by k-means++ and Lloyd's iterations, without a privacy guarantee."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute import clustering as _kernel
from fastfedrec.core import hardware
from fastfedrec.core.arrays import LINE_BYTES, check_outs, zeros_on_lines
from fastfedrec.core.check import check_array, check_instance, check_integer, plain_array
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import RowsLike, borrow_rows, is_table, widened

__all__ = ["KMeans", "assign_rows", "kmeans"]

__dir__ = __all__.copy  # dir() lists only the public names

_TAIL_BYTES = 16  # width of the kernel's narrow block for the last few clusters
_PER_UNIT = 1024  # values that are multiples of 1 / 1024 have exact sums
_IN_LINE = 64  # centres of 8 bits in one cache line
_LONG_ROW = 16  # mean number of values from which a sort of the rows by clusters saves time
_MIN_ROUNDED_CLUSTERS = 32  # smallest number of clusters for which centres of 8 bits save time


@dataclass(frozen=True)
class KMeans:
    """Result of `kmeans`.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,), int32
        Index of the nearest centre of each row; ties go to the smaller index.
    centers : ndarray of shape (n_clusters, n_columns), float64
        Mean of each cluster, in float64 for rows of any dtype.
    objective : float
        Sum of the squared distances of the rows to their centres.
    n_iterations : int
        Number of completed iterations.
    """

    labels: NDArray[np.int32]
    centers: NDArray[np.float64]
    objective: float
    n_iterations: int


def kmeans(
    rows: RowsLike,
    n_clusters: int,
    *,
    n_iterations: int = 20,
    init: str | np.ndarray = "k-means++",
    key: Key | None = None,
    n_threads: int = 0,
) -> KMeans:
    """Group rows around their means (Lloyd's algorithm [1]_).

    **No privacy**: labels, centres and objective reveal information about the rows.  For a private version see
    `fastfedrec.systems.private_prototypes.private_kmeans`.

    Parameters
    ----------
    rows : Interactions, SciPy sparse matrix or array, or array of shape (n_rows, n_columns)
        Rows of float32 or float64; bool and float16 become float32.  A user's missing entries count as 0.
    n_clusters : int
        Number of clusters, at least 1, and at most the number of rows unless `init` is an array.
    n_iterations : int
        Maximum number of iterations, at least 0; an iteration that changes no row's cluster is the last one.
    init : {"k-means++", "random"} or ndarray of shape (n_clusters, n_columns)
        Initial centres.  "k-means++" draws each of them among the rows, with a probability proportional to the squared
        distance to the nearest centre so far [2]_.  "random" draws distinct rows.  An array has the centres.
    key : Key or None
        Key of the random draws; required unless `init` is an array.
    n_threads : int
        Number of threads; 0 for all.  The result does not depend on it.

    Returns
    -------
    KMeans
        Centres, with the labels and the objective of these centres.

    Raises
    ------
    ValueError
        There are more clusters than rows, the key is missing, or an argument is out of range.

    Notes
    -----
    Means and distances are computed in double.  Products that select a row's centre are computed in the dtype of the
    rows; if their rounding error leaves the choice open, distances decide.  Columns of an array that are far from 0
    relative to their range are shifted towards 0 first, if the shift is exact.  A cluster that loses all its rows keeps
    its centre.  Last digits differ between instruction sets (`fastfedrec.hardware`).

    References
    ----------
    .. [1] Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28(2), 1982.
    .. [2] Arthur, Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.compute.clustering import kmeans
    >>> found = kmeans(np.array([[0.0], [1.0], [9.0], [11.0]]), 2, key=Key.from_seed(1))
    >>> np.sort(found.centers, axis=0)
    array([[ 0.5],
           [10. ]])
    >>> found.objective
    2.5
    """
    data = _Rows.of(rows)
    n_clusters = check_integer("n_clusters", n_clusters, low=1)
    n_iterations = check_integer("n_iterations", n_iterations, low=0)
    n_threads = resolve_n_threads(n_threads)
    centers = _first_centers(data, n_clusters, init, key, n_threads)
    columns, means = _Columns.of(data, centers), _Means.zeros(data, n_clusters)
    # Rounding the rows to bytes takes as long as one iteration gains from it.
    rounded = _Rounded.of(data, n_clusters) if n_iterations > 1 else None
    labels = _nearest(data, columns, rounded, n_threads)
    # Lloyd's iterations end at a fixed point, where no row changes its label.
    done, before = 0, None
    while done < n_iterations:
        done += 1
        means.move(data, labels, before, centers, n_threads)
        columns.set(centers)
        before = labels
        labels = _nearest(data, columns, rounded, n_threads)
        if np.array_equal(labels, before):
            break
    distances = _distances(data, centers, columns.norms, labels, n_threads)
    return KMeans(labels, centers + data.middle, float(distances.sum()), done)


def assign_rows(
    rows: RowsLike, centers: np.ndarray, *, out: Any = None, n_threads: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Find the nearest centre of each row.

    Parameters
    ----------
    rows : Interactions, SciPy sparse matrix or array, or array of shape (n_rows, n_columns)
        Rows of float32 or float64; bool and float16 become float32.  A user's missing entries count as 0.
    centers : ndarray of shape (n_clusters, n_columns)
        Finite centres, converted to double.
    out : tuple of two arrays or None
        Output arrays for the labels and the distances; None makes new arrays.
    n_threads : int
        Number of threads; 0 for all.  The result does not depend on it.

    Returns
    -------
    labels : ndarray of shape (n_rows,), int32
        Index of the nearest centre of each row; ties go to the smaller index.
    squared_distances : ndarray of shape (n_rows,), float64
        Squared distance to that centre, accurate to ten digits for rows and centres of any magnitude.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.compute.clustering import assign_rows
    >>> assign_rows(np.array([[0.0], [3.0]]), np.array([[1.0], [5.0]]))
    (array([0, 0], dtype=int32), array([1., 4.]))
    """
    data = _Rows.of(rows, centers)
    centers = _check_centers(centers, data.n_columns)
    check_integer("the number of centers", len(centers), low=1)
    size = (len(data),)
    read = data.indptr, data.indices, data.values, centers
    labels, distances = check_outs(
        out, ("labels", size, np.int32), ("squared_distances", size, np.float64), apart_from=read
    )
    if len(data):
        centers = np.ascontiguousarray(centers - data.middle)
        n_threads = resolve_n_threads(n_threads)
        columns = _Columns.of(data, centers)
        _assign(data, columns, n_threads, labels)
        _distances(data, centers, columns.norms, labels, n_threads, distances)
    return (labels, distances) if out is None else out


def _check_centers(centers: np.ndarray, n_columns: int) -> np.ndarray:
    return check_array("centers", centers, ndim=2, shape=(None, n_columns)).astype(np.float64, copy=False)


@dataclass(frozen=True)
class _Rows:
    """Rows in the layout of the kernels; `indices` is empty if every row has every column."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    n_columns: int
    norms: np.ndarray
    middle: np.ndarray  # number that was subtracted from each column, and must be subtracted from centres

    @classmethod
    def of(cls, rows: RowsLike, centers: np.ndarray | None = None) -> "_Rows":
        """Convert rows; with `centers`, a row's type and shift do not depend on the other rows."""
        if is_table(rows):
            rows, middle = borrow_rows("rows", rows, wide=centers is not None), np.zeros(1)
            dtype = np.float32 if rows.values is None else rows.values.dtype
            indptr, indices, values = rows.indptr, rows.indices, rows.values_or_ones(dtype)
            n_columns = rows.n_items
            if not len(indices):  # an empty array of indices means dense rows
                values = np.zeros(rows.n_users * n_columns, dtype=dtype)
                indptr = np.arange(rows.n_users + 1) * n_columns
        else:
            dense = check_array("rows", widened(plain_array("rows", rows)), ndim=2)
            n_columns = dense.shape[1]
            middle = _middle(dense if centers is None else _check_centers(centers, n_columns))
            values = (dense - middle if middle.any() else dense).reshape(-1)
            indptr, indices = np.arange(len(dense) + 1) * n_columns, np.empty(0, np.int32)
        if not (len(indptr) > (centers is None) and n_columns):
            raise ValueError(f"rows must have at least one row and column, got shape ({len(indptr) - 1}, {n_columns})")
        norms = np.empty(len(indptr) - 1)
        _kernel.squared_norms(indptr, values, norms)
        if not norms.max(initial=0.0) < np.finfo(values.dtype).max / 4:
            raise ValueError(
                f"rows must be small enough for squared distances, got |x|^2 = {norms.max():g}; scale them"
            )
        return cls(indptr, indices, values, n_columns, norms, middle.astype(np.float64))

    def __len__(self) -> int:
        return len(self.norms)

    def dense_row(self, row: int) -> np.ndarray:
        start, stop = self.indptr[row : row + 2]
        out = np.zeros(self.n_columns)
        out[self.indices[start:stop] if len(self.indices) else slice(None)] = self.values[start:stop]
        return out


def _middle(dense: np.ndarray) -> np.ndarray:
    """Return the middle of each column that is far from 0 relative to its range, and 0 for other columns."""
    # The scores of such columns are nearly equal without a shift, and rounding leaves most labels open.  Entries are
    # between half and twice the middle, so by Sterbenz's lemma the differences are exact.  If centres define
    # the middle, differences of distant rows are rounded to double, and their distances have ten digits all the same.
    if not dense.size:
        return np.zeros(dense.shape[1], dtype=dense.dtype)
    low, high = dense.min(axis=0), dense.max(axis=0)
    middle = low / 2 + high / 2
    return np.where(high / 2 - low / 2 <= np.abs(middle) / 16, middle, dense.dtype.type(0))


@dataclass
class _Columns:
    """Centres, transposed and padded for the kernel in the dtype of the rows."""

    body: np.ndarray  # one column for each cluster, and whole cache lines in each row
    tail: np.ndarray  # the last clusters, if they fit into `_TAIL_BYTES`
    start: np.ndarray  # -|c|^2 / 2, the initial score of cluster c; -infinity for padding
    centers: np.ndarray
    norms: np.ndarray

    @classmethod
    def of(cls, data: _Rows, centers: np.ndarray) -> "_Columns":
        dtype, n_clusters = data.values.dtype, len(centers)
        in_line, in_tail = LINE_BYTES // dtype.itemsize, _TAIL_BYTES // dtype.itemsize
        # A few clusters beyond whole cache lines take a narrow block instead of another padded line.
        has_tail = n_clusters > in_line and 0 < n_clusters % in_line <= in_tail
        stride = (n_clusters // in_line if has_tail else -(-n_clusters // in_line)) * in_line
        body = zeros_on_lines(data.n_columns, stride, dtype)
        tail = np.zeros((data.n_columns, in_tail * has_tail), dtype=dtype)
        start = np.full(stride + tail.shape[1], -np.inf, dtype=dtype)
        columns = cls(body, tail, start, centers, np.empty(0))
        columns.set(centers)
        return columns

    def set(self, centers: np.ndarray) -> None:
        n_clusters, in_body = len(centers), self.body.shape[1]
        # Centres that overflow the dtype of the rows have useless scores, and the kernel uses distances instead.
        with np.errstate(over="ignore"):
            self.body[:, :n_clusters] = centers[:in_body].T
            self.tail[:, : max(n_clusters - in_body, 0)] = centers[in_body:].T
            self.norms = np.einsum("cf,cf->c", centers, centers)
            self.start[:n_clusters] = -0.5 * self.norms
        self.centers = centers


def _assign(data: _Rows, columns: _Columns, n_threads: int, labels: np.ndarray | None = None) -> np.ndarray:
    labels = np.empty(len(data), dtype=np.int32) if labels is None else labels
    _kernel.assign(
        data.indptr, data.indices, data.values, data.norms, columns.body, columns.tail, columns.start, columns.centers,
        columns.norms, labels, n_threads,
    )  # fmt: skip
    return labels


def _distances(
    data: _Rows,
    centers: np.ndarray,
    center_norms: np.ndarray,
    labels: np.ndarray,
    n_threads: int,
    out: np.ndarray | None = None,
) -> np.ndarray:
    out = np.empty(len(data)) if out is None else out
    _kernel.distances_to(
        data.indptr, data.indices, data.values, data.norms, centers, center_norms, labels, out, n_threads
    )
    return out


@dataclass
class _Rounded:
    """Rows in bytes, and a buffer for centres of 8 bits, by which the kernel finds most labels."""

    # The error of a score of rounded centres has a known bound.  If the bound leaves a row's label open, the kernel
    # computes the same scores as `_assign`, so the labels are the same.
    units: np.ndarray
    totals: np.ndarray
    lines: np.ndarray
    start: np.ndarray
    per_unit: float
    n_pairs: int
    pays: bool = True  # False once more than half of the labels were left open

    @classmethod
    def of(cls, data: _Rows, n_clusters: int) -> "_Rounded | None":
        """Round rows to bytes, or return None if it saves no time or the values are not small multiples of 1/4."""
        if hardware.instruction_set() == "plain" or n_clusters < _MIN_ROUNDED_CLUSTERS or not len(data.indices):
            return None
        lowest, highest = float(data.values.min()), float(data.values.max())
        if lowest < 0:  # the bytes are unsigned
            return None
        fitting = (u for u in (1.0, 2.0, 4.0) if highest * u < 32 and _kernel.are_multiples(data.values, u))
        if data.values.dtype != np.float32 or (per_unit := next(fitting, None)) is None:
            return None
        units, totals = np.empty(len(data.values), dtype=np.uint8), np.empty(len(data), dtype=np.float32)
        _kernel.round_rows(data.indptr, data.values, per_unit, units, totals)
        # Below this limit the kernel's sums fit into 32 bits, and the bound on their error is valid.
        if (totals + np.diff(data.indptr)).max() >= 2**22:
            return None
        n_lines = -(-n_clusters // _IN_LINE)
        lines = zeros_on_lines(n_lines * data.n_columns, _IN_LINE, np.int8).reshape(n_lines, -1, _IN_LINE)
        # Number of pairs of products (byte times 8-bit centre) that a sum of 16 bits can hold.
        n_pairs = (2**15 - 1) // (2 * 128 * max(int(highest * per_unit), 1))
        return cls(units, totals, lines, np.empty(n_lines * _IN_LINE, dtype=np.float32), per_unit, n_pairs)

    def assign(self, data: _Rows, columns: _Columns, n_threads: int) -> np.ndarray | None:
        """Return labels, or None if the centres are too large, too small or all equal."""
        lowest, highest = min(float(columns.centers.min()), 0.0), max(float(columns.centers.max()), 0.0)
        if not (highest - lowest > 1e-25 and highest - lowest < 1e12):
            return None
        labels = np.empty(len(data), dtype=np.int32)
        n_open = _kernel.assign_rounded(
            data.indptr, data.indices, data.values, self.units, self.totals, columns.body, columns.tail, columns.start,
            columns.centers, columns.norms, data.norms, self.lines, self.start, labels, self.n_pairs, self.per_unit,
            lowest, highest, n_threads,
        )  # fmt: skip
        self.pays = n_open <= len(data) // 2
        return labels


def _nearest(data: _Rows, columns: _Columns, rounded: _Rounded | None, n_threads: int) -> np.ndarray:
    if rounded is not None and rounded.pays:
        labels = rounded.assign(data, columns, n_threads)
        if labels is not None:
            return labels
    return _assign(data, columns, n_threads)


@dataclass(frozen=True)
class _Means:
    """Sums of the rows of each cluster."""

    # If all sums are exact, as with ratings or counts, only rows that change their cluster are added and subtracted,
    # which gives the same bits.  Otherwise each call sums all rows.
    sums: np.ndarray
    are_exact: bool

    @classmethod
    def zeros(cls, data: _Rows, n_clusters: int) -> "_Means":
        # The largest absolute value times the number of values bounds every sum, in units of 1 / _PER_UNIT.
        max_sum = float(np.sqrt(data.norms.max())) * len(data.values) * _PER_UNIT
        are_exact = max_sum < 2.0**51 and _kernel.are_multiples(data.values, float(_PER_UNIT))
        return cls(np.zeros((n_clusters, data.n_columns)), are_exact)

    def move(
        self, data: _Rows, labels: np.ndarray, before: np.ndarray | None, centers: np.ndarray, n_threads: int
    ) -> None:
        """Set `centers` to the means of their rows; `before` has the labels of the last call."""
        if before is None or not self.are_exact:
            self.sums[:] = 0
            rows, clusters, signs = np.arange(len(labels)), labels, np.ones(len(labels))
        else:
            moved = np.flatnonzero(labels != before)
            rows, clusters = np.tile(moved, 2), np.concatenate([labels[moved], before[moved]])
            signs = np.repeat([1.0, -1.0], len(moved))
        sizes = np.bincount(labels, minlength=len(centers))
        n_members = np.bincount(clusters, minlength=len(centers))
        # Each cluster's rows are added in ascending order, so that the sums do not depend on the threads.  A sort by
        # clusters keeps one cluster's sums in the cache, which long sparse rows need.
        is_dense = not len(data.indices)
        if len(data.values) < _LONG_ROW * len(data) or (is_dense and n_threads == 1):
            _kernel.add_members(data.indptr, data.indices, data.values, rows, clusters, signs, self.sums)
            changed = (n_members > 0) & (sizes > 0)  # an empty cluster keeps its centre
            centers[changed] = self.sums[changed] / sizes[changed, None]
            return
        # Each cluster belongs to one thread.
        order = np.argsort(clusters, kind="stable")
        starts = np.concatenate([[0], np.cumsum(n_members)])
        _kernel.update_centers(
            data.indptr, data.indices, data.values, rows[order], signs[order], starts, sizes, self.sums, centers,
            n_threads,
        )  # fmt: skip


def _first_centers(data: _Rows, n_clusters: int, init: str | np.ndarray, key: Key | None, n_threads: int) -> np.ndarray:
    if not isinstance(init, str):
        given = check_array("init", init, ndim=2, shape=(n_clusters, data.n_columns))
        return np.ascontiguousarray(np.asarray(given, dtype=np.float64) - data.middle)
    if init not in ("k-means++", "random"):
        raise ValueError(f"init must be 'k-means++', 'random' or an array of centres, got {init!r}")
    key = check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) to repeat a run")
    if n_clusters > len(data):
        raise ValueError(f"n_clusters must be at most the number of rows ({len(data)}), got {n_clusters}")
    if init == "random":
        chosen = key.permutation("clustering.init", size=len(data))[:n_clusters]
        return np.stack([data.dense_row(row) for row in chosen])
    centers = np.empty((n_clusters, data.n_columns))
    distances, only = np.full(len(data), np.inf), np.zeros(len(data), dtype=np.int32)
    draws = key.uniform("clustering.init", size=n_clusters)
    row = int(draws[0] * len(data))
    for c in range(n_clusters):
        if c:
            # The draw selects row r with a probability of distances[r] / total, by the inverse distribution function.
            ends = np.cumsum(distances)
            # If every row equals a centre, all distances are 0, and the draw is uniform over the rows.
            total = ends[-1]
            row = int(np.searchsorted(ends, draws[c] * total, side="right")) if total else int(draws[c] * len(data))
        # Rounding may place a draw behind the last row.
        row = min(row, len(data) - 1)
        centers[c] = data.dense_row(row)
        to_this = _distances(data, centers[c : c + 1], data.norms[row : row + 1], only, n_threads)
        np.minimum(distances, to_this, out=distances)
    return centers
