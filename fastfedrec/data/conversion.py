"""The one door to `Interactions` for what people have: SciPy's matrices, frames, and for kernels dense arrays too."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fastfedrec.core.check import plain_array
from fastfedrec.core.numbers import show_names
from fastfedrec.data._frames import column_names, is_frame, native_frame
from fastfedrec.data.csr import are_in_order, check_csr, check_integers, check_item_count
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import float_values
from fastfedrec.data.sparse import check_arrays, checked_csr, remedy_for

__all__ = ["InteractionsLike", "RowsLike", "as_interactions", "borrow_rows", "native_frame", "widened"]


class _SparseMatrix(Protocol):
    """A matrix or array of SciPy, in any format."""

    def tocsr(self) -> Any:
        """The same in compressed rows."""


class _Frame(Protocol):
    """A table of pandas, polars (also lazy) or pyarrow, or of a library that has `__arrow_c_stream__`."""

    @property
    def columns(self) -> Any:
        """Their names, or of pyarrow themselves."""


class _SupportsDLPack(Protocol):
    """An array of PyTorch, JAX or any other library on the CPU."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Its memory."""


#: What `as_interactions` takes: `Interactions`, a SciPy sparse matrix or array, or a frame.
InteractionsLike: TypeAlias = Interactions | _SparseMatrix | _Frame
#: What `borrow_rows` takes: dense arrays, too.
RowsLike: TypeAlias = InteractionsLike | ArrayLike | _SupportsDLPack

_VALUES = ("value", "rating")  # names of a frame's column of values, which it may have beside `user` and `item`


def frame_columns(given: object) -> list[str] | None:
    """The names of a frame's columns, as `native_frame` returns it.

    Parameters
    ----------
    given : object
        Anything.

    Returns
    -------
    list of str or None
        None where it is no frame.
    """
    return column_names(given) if is_frame(given) else None


def value_column(names: list[Any]) -> str | None:
    """The name of the column of values among those of a frame; None where it has none.

    Parameters
    ----------
    names : list
        Of all columns.

    Returns
    -------
    str or None
        "value" or "rating".

    Raises
    ------
    KeyError
        The frame has both.
    """
    found = [name for name in _VALUES if name in names]
    if len(found) > 1:
        raise KeyError(f"the frame has a column 'value' and a column 'rating', got {show_names(names)}; drop one")
    return found[0] if found else None


def as_interactions(
    name: str, given: InteractionsLike, *, item_ids: np.ndarray | None = None, is_private: bool = False
) -> Interactions:
    """Make `Interactions` of what people have, by the same checks as their constructors.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    given : Interactions, SciPy sparse matrix or array, or frame
        A matrix of users x items, as `Interactions.from_scipy` takes it: rows and columns are numbered from 0.  A frame
        of pandas, polars (also lazy) or pyarrow with the columns `user` and `item`, and perhaps `value` (or `rating`)
        and `timestamp`, as `Interactions.from_dataframe` takes it: its list of items is taken from the data, which no
        guarantee covers.  `Interactions` are returned as they are.
    item_ids : ndarray or None
        Items that are known already: those of a frame are among them, and a matrix with a column for each has their
        ids.
    is_private : bool
        Whether nothing may be printed that one user's rows decide, such as the warning that rows repeat a pair.

    Returns
    -------
    Interactions
        Checked.

    Raises
    ------
    TypeError
        Anything else.
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
        if not {"user", "item"} <= set(names):
            remedy = "rename them, or use Interactions.from_dataframe, which takes other names"
            if not any(isinstance(column, str) for column in names):
                remedy = "pass frame.to_numpy() where it is a matrix, and scipy.sparse.csr_array of it to a fit"
            raise KeyError(
                f"{name} must have the columns 'user' and 'item', the frame has {show_names(names)}; {remedy}"
            )
        timestamp = "timestamp" if "timestamp" in names else None
        return Interactions.from_dataframe(
            given, value=value_column(names), timestamp=timestamp, item_ids=item_ids,
            duplicates="sum" if is_private else None,  # the same sums, and None warns of them
        )  # fmt: skip
    raise TypeError(
        f"{name} must be Interactions, a SciPy sparse matrix or array, or a frame with the columns user and item, got "
        f"{type(given).__name__}; {remedy_for(given)}"
    )


def widened(dense: np.ndarray) -> np.ndarray:
    """Return dense rows of users x items with float16 and bool as float32, which holds them exactly.

    Parameters
    ----------
    dense : ndarray
        Of any type.

    Returns
    -------
    ndarray
        Of another type the array itself.
    """
    is_narrow = dense.dtype.kind == "b" or dense.dtype == np.float16
    return dense.astype(np.float32) if is_narrow else dense


class _BorrowedRows(Interactions):
    """Rows in a caller's memory, for the time of one call: nothing that outlives it may hold them."""

    def _take_fields(self, fields: Mapping[str, Any]) -> None:
        vars(self).update(
            {f"_{name}" if name in ("catalogue", "repeats") else name: value for name, value in fields.items()}
        )
        self._indexes = {}


def is_table(given: Any) -> bool:
    """Whether what is not there has no entry.

    Parameters
    ----------
    given : object
        What `borrow_rows` takes.

    Returns
    -------
    bool
        False of dense arrays.
    """
    return isinstance(given, Interactions) or scipy.sparse.issparse(given) or is_frame(given)


def borrow_rows(name: str, given: RowsLike, *, aligned: str | None = None, wide: bool = False) -> Interactions:
    """Rows of users x items as a kernel takes them, for one call: in the caller's memory where the types are right.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    given : Interactions, SciPy sparse matrix or array, frame, or array of shape (n_users, n_items)
        A CSR with columns in order, each once, 32-bit column numbers and floats is not copied.  Others are put in
        order, and entries of one place are summed, as `Interactions.from_scipy` does it.  Zeros that fill the blocks of
        a BSR or the diagonals of a DIA are no entries; other stored zeros are.  Of a dense array, also one
        of PyTorch or JAX, what is not 0 is an entry.
    aligned : str or None
        An argument that has an entry for each of these, such as "weights": then what has no order of rows is refused.
    wide : bool
        Return the values of `Interactions` and frames as float64, for results that belong to one row.  Their storage
        type depends on the values of all users.  An array and a matrix keep the type that the caller chose.

    Returns
    -------
    Interactions
        Checked.  Values are kept in their type of float32 or float64, and integers are float64; they may be all 1.

    Raises
    ------
    TypeError, ValueError
        What no kernel may be given; the array, the row and what to do are named.
    """
    if isinstance(given, Interactions):
        return given._replace(values=given.values_or_ones()) if wide else given
    matrix: Any = given
    if is_frame(given) and aligned is None:
        return borrow_rows(name, as_interactions(name, matrix), wide=wide)
    if is_frame(given):
        raise TypeError(
            f"{name} must be Interactions or a CSR where {aligned} go with its entries, got {type(given).__name__}, "
            "whose rows have an order of their own; make Interactions of it first"
        )
    is_sparse = scipy.sparse.issparse(given)
    if not is_sparse:
        dense = plain_array(name, given)
        if dense.ndim != 2 or dense.dtype.kind not in "biuf":
            raise TypeError(
                f"{name} must be Interactions, a SciPy sparse matrix or array, a frame, or an array of users x items, "
                f"got {type(given).__name__} of {dense.dtype} and shape {dense.shape}; see Interactions.from_arrays"
            )
        matrix = scipy.sparse.csr_array(widened(dense))
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, got shape {matrix.shape}")
    n_users, n_items = matrix.shape
    check_item_count(n_items)
    rows = _in_place(name, matrix) if matrix.format == "csr" else None
    if rows is None and aligned is not None and is_sparse:
        raise ValueError(
            f"{name} must have its entries in order of rows and columns, each once, where {aligned} go with them, got "
            f"{matrix.format} of another order; make it with tocsr() and sum_duplicates(), and {aligned} in its order"
        )
    if rows is None:
        indptr, indices, data = checked_csr(name, matrix)
        rows = indptr, indices, float_values(f"{name}.data", data, len(indices))
        check_csr(*rows, n_items, name=_called(name))
    indptr, indices, values = rows
    return _BorrowedRows._trusted(
        {
            "indptr": indptr,
            "indices": indices,
            "values": values,
            "timestamps": None,
            "user_ids": np.arange(n_users),
            "item_ids": np.arange(n_items),
            "global_user_ids": np.arange(n_users, dtype=np.uint64),
            "user_features": {},
            "item_features": {},
            "catalogue": "public",
            "repeats": None,
        }
    )


def _in_place(name: str, matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The arrays of a CSR, or None where its rows are not in order."""
    check_arrays(name, matrix)
    indptr = check_integers(f"{name}.indptr", matrix.indptr, np.int64)
    used = slice(int(indptr[-1]))  # SciPy allows for room behind the last row
    indices = check_integers(f"{name}.indices", matrix.indices[used], np.int32)
    values = float_values(f"{name}.data", matrix.data[used], len(indices))
    is_sorted = are_in_order(indptr, indices, values, matrix.shape[1], name=_called(name))
    return (indptr, indices, values) if is_sorted else None


def _called(name: str) -> Callable[[str], str]:
    return {"indptr": f"{name}.indptr", "indices": f"{name}.indices", "values": f"{name}.data"}.__getitem__
