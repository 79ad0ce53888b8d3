"""Checks of compressed rows and of the other fields of interactions, for untrusted input."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.check import check_array, check_choice, plain_array
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows
from fastfedrec.data._feature_ids import align_columns, refuse_unnamed_ids
from fastfedrec.data._frames import columns_by_name
from fastfedrec.data.ids import axis_ids, column_array

__all__ = [
    "MAX_ITEMS",
    "Remade",
    "are_in_order",
    "check_columns",
    "check_csr",
    "check_fields",
    "check_indptr",
    "check_integers",
    "check_item_count",
    "check_named_rows",
    "is_faultless",
    "own_array",
    "own_columns",
    "owned",
    "picklable",
]

#: Source of a list of items: a public list, the data themselves, their counts, or a private choice.
CATALOGUES = ("public", "data", "counts", "chosen")

MAX_ITEMS = 2**31 - 1  # column numbers are int32
_MIN_ENTRIES = 500_000  # per thread
_NO_VALUES = np.empty(0, dtype=np.float32)


def check_item_count(n_items: int) -> None:
    """Raise if column numbers would not fit in 32 bits."""
    if n_items > MAX_ITEMS:
        raise ValueError(f"the number of items must be at most {MAX_ITEMS}, got {n_items}; drop or hash rare items")


def check_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    n_columns: int,
    *,
    name: Callable[[str], str] = str,
    rising: bool = True,
) -> None:
    """Raise unless CSR rows are valid input of a kernel; `rising` requires increasing columns within each row."""
    # Kernels do not check bounds, so every CSR from outside of the package passes this check.
    kind, position = _find_fault(indptr, indices, values, n_columns, rising)
    if kind != _kernel.NO_FAULT:
        raise ValueError(_describe_fault(kind, position, indptr, indices, values, n_columns, name))


def are_in_order(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_columns: int, *, name: Callable[[str], str]
) -> bool:
    """Return False if the first fault of CSR rows is their order, and raise for any other fault."""
    kind, position = _find_fault(indptr, indices, values, n_columns, True)
    if kind not in (_kernel.NO_FAULT, _kernel.ORDER):
        raise ValueError(_describe_fault(kind, position, indptr, indices, values, n_columns, name))
    return kind == _kernel.NO_FAULT


def is_faultless(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_columns: int) -> bool:
    """Return whether CSR rows have no fault, with increasing columns within each row."""
    return _find_fault(indptr, indices, values, n_columns, True)[0] == _kernel.NO_FAULT


def _find_fault(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray | None, n_columns: int, rising: bool
) -> tuple[int, int]:
    # Few entries get one thread, so the limits of the machine are not read.
    n_threads = 1
    if len(indices) >= 2 * _MIN_ENTRIES:
        n_threads = threads_for_rows(len(indices), resolve_n_threads(0), min_rows=_MIN_ENTRIES)
    return _kernel.find_fault(indptr, indices, _NO_VALUES if values is None else values, n_columns, rising, n_threads)


def _describe_fault(kind, position, indptr, indices, values, n_columns, name):
    """Return the error message for a fault that the kernel found."""
    if kind == _kernel.START:
        return f"{name('indptr')} must start at 0, got {indptr[0]}; pass the start of each row"
    if kind == _kernel.DECREASE:
        ends = f"{indptr[position]} and then {indptr[position + 1]} at row {position}"
        return f"{name('indptr')} must not decrease, got {ends}; pass the start of each row"
    if kind == _kernel.END:
        return f"{name('indptr')} must end at the number of entries, {len(indices)}, got {indptr[-1]}"
    row, column = int(np.searchsorted(indptr, position, side="right")) - 1, int(indices[position])
    if kind == _kernel.VALUE:
        got = f"{values[position]} in row {row}, column {column}"
        return f"{name('values')} must be finite, got {got}; drop or replace it"
    if kind == _kernel.ORDER:
        got = f"{indices[position - 1]} and then {column} in row {row}"
        return f"{name('indices')} must increase within a row, got {got}; from_arrays sorts and merges such entries"
    # Columns from 1 to n instead of 0 to n - 1 are a common mistake with a specific remedy.
    from_one = column == n_columns and int(indices.min()) == 1 and int(indices.max()) == n_columns
    remedy = f"numbers count from 0: subtract 1 from {name('indices')}" if from_one else "drop it, or add the column"
    return f"{name('indices')} must be in [0, {n_columns}), got {column} in row {row}; {remedy}"


def check_integers(name: str, numbers: Any, dtype: type) -> np.ndarray:
    """Convert a vector of whole numbers to a dtype, or raise if the dtype cannot represent one of them."""
    array = plain_array(name, numbers)
    if array.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {array.shape}")
    if not array.size:
        return np.empty(0, dtype=dtype)  # without a cast, because a cast of complex numbers warns even if empty
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}; convert whole numbers with .astype(int)")
    if not np.can_cast(array.dtype, dtype):
        limits = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            wrong = low if low < limits.min else high
            position = int(np.flatnonzero(array == wrong)[0])
            raise ValueError(
                f"{name} must be in [{limits.min}, {limits.max}], got {wrong} at position {position}; correct the entry"
            )
    return np.ascontiguousarray(array, dtype=dtype)


def check_indptr(name: str, indptr: Any, n_rows: int | None = None) -> np.ndarray:
    """Return row starts as int64, or raise unless they start at 0, do not decrease and number one more than rows."""
    indptr = check_integers(name, indptr, np.int64)
    if not len(indptr) or n_rows not in (None, len(indptr) - 1):
        length = "one entry more than there are rows" if n_rows is None else f"{n_rows + 1} entries"
        raise ValueError(f"{name} must have {length}, got {len(indptr)}")
    no_indices = np.empty(0, dtype=np.int32)
    kind, position = _kernel.find_fault(indptr, no_indices, _NO_VALUES, 0, False, 1)
    if kind in (_kernel.START, _kernel.DECREASE):
        raise ValueError(_describe_fault(kind, position, indptr, no_indices, None, 0, lambda _: name))
    return indptr


def check_named_rows(
    name: str, indptr: Any, columns: Any, n_rows: int, n_columns: int, *, fields: tuple[str, str], rising: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return checked CSR rows of an object that is not `Interactions`, as int64 and int32."""
    # Error messages name the arrays by the object and the field, such as "events.indptr" and "events.items".
    called = dict(zip(("indptr", "indices"), (f"{name}.{field}" for field in fields), strict=True))
    indptr = check_indptr(called["indptr"], indptr, n_rows)
    columns = check_integers(called["indices"], columns, np.int32)
    check_csr(indptr, columns, None, n_columns, name=called.__getitem__, rising=rising)
    return indptr, columns


def own_array(array: np.ndarray, dtype: type | None = None) -> np.ndarray:
    """Return a read-only view of an array, or of a copy if its memory is writable."""
    array = np.ascontiguousarray(array, dtype=dtype)
    # The array at the end of the chain of views owns the memory.
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array.view()  # a view of a read-only array cannot be made writable; the array itself can


def owned(array: np.ndarray) -> np.ndarray:
    """Mark a new array without other references as read-only, so that `own_array` does not copy it."""
    array.flags.writeable = False
    return array


def own_columns(columns: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return a read-only mapping of read-only columns, so that later changes cannot bypass the checks."""
    return MappingProxyType({name: own_array(column) for name, column in columns.items()})


def picklable(field: Any) -> Any:
    """Return a field in a form that Python can pickle, which a read-only mapping is not."""
    return dict(field) if isinstance(field, MappingProxyType) else field


def check_fields(
    fields: Mapping[str, Any], *, name: Callable[[str], str] = str, aligned: bool = False
) -> dict[str, Any]:
    """Return the checked fields of interactions from untrusted input, as read-only arrays."""
    # `aligned` means that features are in the order of their axis, as in files and pickles.  A column with the name
    # of an id column is then a feature.
    indptr = own_array(check_integers(name("indptr"), fields["indptr"], np.int64))
    if not len(indptr):
        raise ValueError(f"{name('indptr')} must have one entry more than there are rows, got no entry")
    n_users = len(indptr) - 1
    item_ids = own_array(axis_ids(name("item_ids"), fields["item_ids"], None))
    check_item_count(len(item_ids))
    indices = own_array(check_integers(name("indices"), fields["indices"], np.int32))
    values, times = fields["values"], fields["timestamps"]
    if values is not None:
        values = own_array(check_array(name("values"), values, ndim=1, shape=(len(indices),), finite=False))
    check_csr(indptr, indices, values, len(item_ids), name=name)
    if times is not None:
        times = own_array(check_integers(name("timestamps"), times, np.int64))
        _check_length(name("timestamps"), times, len(indices), "interaction")
    global_user_ids = own_array(check_integers(name("global_user_ids"), fields["global_user_ids"], np.uint64))
    _check_length(name("global_user_ids"), global_user_ids, n_users, "row of indptr")
    _check_distinct(name("global_user_ids"), global_user_ids)
    user_ids = own_array(axis_ids(name("user_ids"), fields["user_ids"], n_users))
    # Without ids to align by, only the lengths of the columns are checked.
    by_user, by_item = (n_users, len(item_ids)) if aligned else (user_ids, item_ids)
    return {
        "indptr": indptr,
        "indices": indices,
        "values": values,
        "timestamps": times,
        "user_ids": user_ids,
        "item_ids": item_ids,
        "global_user_ids": global_user_ids,
        "user_features": check_columns("user_features", fields["user_features"], by_user, name),
        "item_features": check_columns("item_features", fields["item_features"], by_item, name),
        "catalogue": check_choice(name("catalogue"), fields["catalogue"], CATALOGUES),
    }


def check_columns(
    field: str, given: Any, axis: np.ndarray | int, name: Callable[[str], str] = str
) -> Mapping[str, np.ndarray]:
    """Return checked feature columns, aligned with the ids of an axis or with a number of rows."""
    checked = {}
    if isinstance(axis, np.ndarray):
        columns, rows = align_columns(name(field), field.removesuffix("_features"), given, axis)
        length = len(axis)
    else:
        columns, rows, length = columns_by_name(name(field), given), None, axis
    for feature, column in columns.items():
        if not isinstance(feature, str):
            raise TypeError(f"{name(field)} must be named by strings, got {feature!r} ({type(feature).__name__})")
        called = name(f"{field}[{feature!r}]")
        if isinstance(column, str | bytes | set | frozenset) or not isinstance(column, Iterable):
            raise TypeError(f"{called} must be an ordered column, got {type(column).__name__}; pass a list")
        array = column_array(called, column)
        checked[feature] = array if rows is None else array[rows]
        if len(checked[feature]) != length:
            raise ValueError(f"{called} must have {length} entries, got {len(checked[feature])}; pass one per row")
    if isinstance(axis, np.ndarray) and rows is None:
        refuse_unnamed_ids(name(field), field.removesuffix("_features"), checked, axis)
    return own_columns(checked)


def _check_length(name: str, array: np.ndarray, length: int, axis: str) -> None:
    if len(array) != length:
        raise ValueError(f"{name} must have {length} entries, one for each {axis}, got {len(array)}")


def _check_distinct(name: str, numbers: np.ndarray) -> None:
    if bool((numbers[1:] > numbers[:-1]).all()):  # increasing numbers are distinct; this avoids the sort
        return
    order = np.argsort(numbers, kind="stable")
    repeated = np.flatnonzero(numbers[order[1:]] == numbers[order[:-1]])
    if repeated.size:
        first, second = order[repeated[0]], order[repeated[0] + 1]
        raise ValueError(
            f"{name} must be distinct, got {numbers[first]} in rows {first} and {second}; two users with one global id "
            "would share their random numbers"
        )


class Remade:
    """Base class of dataclasses that are unpickled through their constructor, which checks the untrusted fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(picklable(getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
