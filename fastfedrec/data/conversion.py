"""Conversion of SciPy matrices and frames to `Interactions`, and of dense arrays to rows for kernels."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.check import plain_array
from fastfedrec.core.numbers import show_names
from fastfedrec.data._feature_ids import split_ids as split_ids  # for other folders
from fastfedrec.data._frames import as_frame_maker as as_frame_maker
from fastfedrec.data._frames import column_names, native_frame, read_rows, recognized_columns, with_noted_ids
from fastfedrec.data._frames import columns_by_name as columns_by_name
from fastfedrec.data._frames import is_frame as is_frame
from fastfedrec.data.csr import MAX_ITEMS, are_in_order, check_csr, check_integers, check_item_count, is_faultless
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import float_values
from fastfedrec.data.sparse import check_arrays, checked_csr, remedy_for

__all__ = [
    "InteractionsLike",
    "RowsLike",
    "as_interactions",
    "borrow_rows",
    "native_frame",
    "widened",
]


class _SparseMatrix(Protocol):
    """SciPy sparse matrix or array in any format."""

    def tocsr(self) -> Any:
        """Return the matrix in compressed rows."""


class _Frame(Protocol):
    """Table of pandas, polars (also lazy) or pyarrow, or of a library that has `__arrow_c_stream__`."""

    @property
    def columns(self) -> Any:
        """Return the names of the columns, or for pyarrow the columns."""


class _SupportsDLPack(Protocol):
    """Array of PyTorch, JAX or any other library on the CPU."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the array's memory as a DLPack capsule."""


#: Argument of `as_interactions`: `Interactions`, a SciPy sparse matrix or array, or a frame.
InteractionsLike: TypeAlias = Interactions | _SparseMatrix | _Frame
#: Argument of `borrow_rows`, which also takes dense arrays.
RowsLike: TypeAlias = InteractionsLike | ArrayLike | _SupportsDLPack

_ROLES = "user", "item", "value", "timestamp"  # of columns of a frame
# Types of a CSR matrix that need at most a conversion of the integers.
_INDEX_TYPES = np.dtype(np.int32), np.dtype(np.int64)
_VALUE_TYPES = np.dtype(np.float32), np.dtype(np.float64)


def frame_columns(given: object) -> list[str] | None:
    """Return the names of the columns of a frame that `native_frame` returned.

    Parameters
    ----------
    given : object
        Object of any type.

    Returns
    -------
    list of str or None
        Names of the columns, or None if the object is not a frame.
    """
    return column_names(given) if is_frame(given) else None


def value_column(names: list[Any]) -> str | None:
    """Return the name of a frame's column of values.

    Parameters
    ----------
    names : list
        Names of all columns.

    Returns
    -------
    str or None
        The column with a usual name for values, or None.

    Raises
    ------
    KeyError
        The frame has several such columns.
    """
    return recognized_columns(names, dict.fromkeys(_ROLES)).get("value")


def as_interactions(
    name: str, given: InteractionsLike, *, item_ids: np.ndarray | None = None, is_private: bool = False
) -> Interactions:
    """Convert a matrix or a frame to `Interactions`, with the checks of the constructors.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    given : Interactions, SciPy sparse matrix or array, or frame
        `Interactions` are returned unchanged.  A matrix of users x items is read as by `Interactions.from_scipy`, which
        numbers rows and columns from 0.  A frame of pandas, polars (also lazy) or pyarrow is read as by
        `Interactions.from_dataframe`: columns with usual names hold users, items and optionally values and timestamps.
        The list of items of a frame is taken from the data, which no guarantee covers.
    item_ids : ndarray or None
        Known catalogue.  It must contain the items of a frame.  A matrix with one column per item takes these ids.
    is_private : bool
        Whether to suppress output that depends on one user's rows, such as the warning about repeated pairs.

    Returns
    -------
    Interactions
        Checked interactions.

    Raises
    ------
    TypeError
        An object of another type.
    """
    if isinstance(given, Interactions):
        return given
    if scipy.sparse.issparse(given):
        matrix: Any = given
        has_a_column_for_each = item_ids is not None and matrix.ndim == 2 and matrix.shape[1] == len(item_ids)
        return Interactions._of_matrix(name, matrix, None, item_ids if has_a_column_for_each else None)
    if is_frame(given):
        given = native_frame(given)
        names = column_names(given)
        columns = recognized_columns(names, dict.fromkeys(_ROLES))
        if not {"user", "item"} <= columns.keys():
            remedy = "rename them, or use Interactions.from_dataframe, which takes other names"
            if not any(isinstance(column, str) for column in names):
                remedy = "for a matrix of users x items, pass scipy.sparse.csr_array(frame.to_numpy())"
            raise KeyError(
                f"{name} must have the columns 'user' and 'item', or usual names such as 'userId' and 'movieId', the "
                f"frame has {show_names(names)}; {remedy}"
            )
        # Both rules sum repeated pairs, but None warns about them.
        rows = read_rows(given, dict.fromkeys(_ROLES), "ns", warns=not is_private)
        data = Interactions.from_arrays(**rows, duplicates="sum" if is_private else None, item_ids=item_ids)
        return data if is_private else with_noted_ids(data)
    raise TypeError(
        f"{name} must be Interactions, a SciPy sparse matrix or array, or a frame with the columns user and item, got "
        f"{type(given).__name__}; {remedy_for(given)}"
    )


def widened(dense: np.ndarray) -> np.ndarray:
    """Convert dense rows of float16 or bool to float32, which represents them exactly.

    Parameters
    ----------
    dense : ndarray
        Array of any dtype.

    Returns
    -------
    ndarray
        Array in float32; an array of any other dtype is returned unchanged.
    """
    is_narrow = dense.dtype.kind == "b" or dense.dtype == np.float16
    return dense.astype(np.float32) if is_narrow else dense


class _BorrowedRows(Interactions):
    """Rows in a caller's memory, valid for one call; no object that outlives the call may keep them."""

    # Ids are the numbers of rows and columns.  They are made at their first use, since most kernels need none of them.
    timestamps = None
    user_features = item_features = MappingProxyType({})
    _catalogue, _repeats = "public", None

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_items: int) -> Self:
        """Return checked arrays as rows."""
        rows = cls.__new__(cls)
        vars(rows).update(indptr=indptr, indices=indices, values=values, n_items=n_items, _indexes={})
        return rows

    def _set_fields(self, fields: Mapping[str, Any]) -> None:
        vars(self).update(
            {f"_{name}" if name in ("catalogue", "repeats") else name: value for name, value in fields.items()}
        )
        vars(self).update(n_items=len(fields["item_ids"]), _indexes={})

    @functools.cached_property
    def n_items(self) -> int:
        return len(self.item_ids)

    @functools.cached_property
    def user_ids(self) -> NDArray[Any]:  # type: ignore[override]
        return np.arange(self.n_users)

    @functools.cached_property
    def item_ids(self) -> NDArray[Any]:  # type: ignore[override]
        return np.arange(self.n_items)

    @functools.cached_property
    def global_user_ids(self) -> NDArray[np.uint64]:  # type: ignore[override]
        return np.arange(self.n_users, dtype=np.uint64)


def is_table(given: Any) -> bool:
    """Return whether the input stores only some pairs, so that a missing pair is not a zero.

    Parameters
    ----------
    given : object
        Argument of `borrow_rows`.

    Returns
    -------
    bool
        False for dense arrays, True for interactions, sparse matrices and frames.
    """
    return isinstance(given, Interactions) or scipy.sparse.issparse(given) or is_frame(given)


def borrow_rows(name: str, given: RowsLike, *, aligned: str | None = None, wide: bool = False) -> Interactions:
    """Return rows of users x items for one call of a kernel, without a copy if the dtypes fit.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    given : Interactions, SciPy sparse matrix or array, frame, or array of shape (n_users, n_items)
        A CSR matrix is not copied if its columns are sorted and distinct within rows, its column numbers have 32 bits
        and its values are floats.  Other matrices are sorted, and duplicate entries are summed, as in
        `Interactions.from_scipy`.  Zeros that fill the blocks of a BSR or the diagonals of a DIA are not entries; other
        stored zeros are.  The entries of a dense array (NumPy, PyTorch, JAX) are its nonzero elements.
    aligned : str or None
        Name of an argument with one value for each entry, such as "weights".  Input without a fixed order of entries
        then raises an error.
    wide : bool
        Return the values of `Interactions` and frames as float64, for results that belong to one row.  Their storage
        type depends on the values of all users.  An array and a matrix keep the type that the caller chose.

    Returns
    -------
    Interactions
        Checked interactions.  Values of float32 or float64 keep their dtype and integers become float64; all of them
        may be 1.

    Raises
    ------
    TypeError, ValueError
        Invalid input.  The message names the array, the row and a remedy.
    """
    if isinstance(given, Interactions):
        return given._replace(values=given.values_or_ones()) if wide else given
    matrix: Any = given
    is_sparse = scipy.sparse.issparse(given)
    if is_sparse and matrix.format == "csr" and (ready := _ready_rows(matrix)) is not None:
        return _BorrowedRows.of(*ready, matrix.shape[1])
    is_table = not is_sparse and is_frame(given)
    if is_table and aligned is None:
        return borrow_rows(name, as_interactions(name, matrix), wide=wide)
    if is_table:
        raise TypeError(
            f"{name} must be Interactions or a CSR matrix if {aligned} are given for its entries, got "
            f"{type(given).__name__}, which is sorted on conversion; convert it with Interactions.from_dataframe first"
        )
    if not is_sparse:
        dense = plain_array(name, given)
        if dense.ndim != 2 or dense.dtype.kind not in "biuf":
            raise TypeError(
                f"{name} must be Interactions, a SciPy sparse matrix or array, a frame, or an array of users x items, "
                f"got {type(given).__name__} of dtype {dense.dtype} and shape {dense.shape}; see "
                "Interactions.from_arrays"
            )
        matrix = scipy.sparse.csr_array(widened(dense))
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, got shape {matrix.shape}")
    n_items = matrix.shape[1]
    check_item_count(n_items)
    # A CSR with sorted rows is used in place; all other input is converted to new arrays.
    rows = _in_place(name, matrix) if matrix.format == "csr" else None
    if rows is None and aligned is not None and is_sparse:
        raise ValueError(
            f"{name} must have distinct entries sorted by row and column if {aligned} are given for them, got a "
            f"{matrix.format} matrix in another order; sort it with tocsr() and sum_duplicates(), and {aligned} alike"
        )
    if rows is None:
        indptr, indices, data = checked_csr(name, matrix)
        if matrix.dtype == np.float32:  # which sums of duplicates have widened
            with np.errstate(over="ignore"):  # infinite values are refused
                data = data.astype(np.float32, copy=False)
        rows = indptr, indices, float_values(f"{name}.data", data, len(indices))
        check_csr(*rows, n_items, name=_array_names(name))
    indptr, indices, values = rows
    return _BorrowedRows.of(indptr, indices, values, n_items)


def _ready_rows(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the arrays of a CSR matrix that kernels can read in their order, or None for other or faulty matrices."""
    # One pass of the kernel checks all entries.  The caller converts other matrices, and names the faults of bad ones.
    indptr, indices, values = parts = matrix.indptr, matrix.indices, matrix.data
    if not all(type(part) is np.ndarray and part.ndim == 1 and part.flags.c_contiguous for part in parts):
        return None
    n_rows, n_columns = matrix.shape
    if indptr.dtype not in _INDEX_TYPES or indices.dtype not in _INDEX_TYPES or values.dtype not in _VALUE_TYPES:
        return None
    if len(indptr) != n_rows + 1 or len(indices) != len(values) or n_columns > MAX_ITEMS:
        return None
    n_used = int(indptr[-1])  # SciPy permits unused capacity after the last row
    if not 0 <= n_used <= len(indices):
        return None
    columns = indices[:n_used].astype(np.int32, copy=False)
    if indices.dtype != np.int32 and not np.array_equal(columns, indices[:n_used]):
        return None
    rows = indptr.astype(np.int64, copy=False), columns, values[:n_used]
    return rows if is_faultless(*rows, n_columns) else None


def _in_place(name: str, matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the arrays of a CSR matrix, or None if its rows are not sorted."""
    check_arrays(name, matrix)
    indptr = check_integers(f"{name}.indptr", matrix.indptr, np.int64)
    used = slice(int(indptr[-1]))  # SciPy permits unused capacity after the last row
    indices = check_integers(f"{name}.indices", matrix.indices[used], np.int32)
    values = float_values(f"{name}.data", matrix.data[used], len(indices))
    is_sorted = are_in_order(indptr, indices, values, matrix.shape[1], name=_array_names(name))
    return (indptr, indices, values) if is_sorted else None


def _array_names(name: str) -> Callable[[str], str]:
    return {"indptr": f"{name}.indptr", "indices": f"{name}.indices", "values": f"{name}.data"}.__getitem__
