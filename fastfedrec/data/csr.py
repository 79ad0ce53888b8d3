"""The check of compressed rows, and of all that belongs to interactions: what a stranger states before it is used."""

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
    "Remade",
    "are_in_order",
    "check_columns",
    "check_csr",
    "check_fields",
    "check_indptr",
    "check_integers",
    "check_item_count",
    "check_named_rows",
    "own_array",
    "own_columns",
    "owned",
    "picklable",
]

#: Where a list of items comes from: a public list, the data themselves, their counts, or a private choice.
CATALOGUES = ("public", "data", "counts", "chosen")

_LEAST_ENTRIES = 500_000  # that are worth a thread
_NO_VALUES = np.empty(0, dtype=np.float32)


def check_item_count(n_items: int) -> None:
    """Raise where columns would not fit in 32 bits."""
    if n_items > np.iinfo(np.int32).max:
        raise ValueError(f"items must number at most {np.iinfo(np.int32).max}, got {n_items}; hash or drop rare ones")


def check_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    n_columns: int,
    *,
    name: Callable[[str], str] = str,
    rising: bool = True,
) -> None:
    """Raise unless a kernel can be given these rows: the only check of it, in one pass.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int64
        Must rise from 0 to the number of entries.
    indices : ndarray of shape (n,), int32
        Must lie in [0, n_columns), and rise within a row.
    values : ndarray of shape (n,), float32 or float64, or None
        Must be finite.
    n_columns : int
        Below 2**31.
    name : callable
        From "indptr", "indices" or "values" to what messages call it.
    rising : bool
        False for rows that are still to be put in order.
    """
    kind, where = _find_fault(indptr, indices, values, n_columns, rising)
    if kind != _kernel.SOUND:
        raise ValueError(_fault(kind, where, indptr, indices, values, n_columns, name))


def are_in_order(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_columns: int, *, name: Callable[[str], str]
) -> bool:
    """As `check_csr`, but False where the first fault is that columns do not rise within a row."""
    kind, where = _find_fault(indptr, indices, values, n_columns, True)
    if kind not in (_kernel.SOUND, _kernel.ORDER):
        raise ValueError(_fault(kind, where, indptr, indices, values, n_columns, name))
    return kind == _kernel.SOUND


def _find_fault(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray | None, n_columns: int, rising: bool
) -> tuple[int, int]:
    n_threads = threads_for_rows(len(indices), resolve_n_threads(0), least=_LEAST_ENTRIES)
    return _kernel.find_fault(indptr, indices, _NO_VALUES if values is None else values, n_columns, rising, n_threads)


def _fault(kind, where, indptr, indices, values, n_columns, name):
    """What is wrong, where, and what to do."""
    if kind == _kernel.START:
        return f"{name('indptr')} must start at 0, got {indptr[0]}"
    if kind == _kernel.FALL:
        ends = f"{indptr[where]} and then {indptr[where + 1]} at row {where}"
        return f"{name('indptr')} must not fall, got {ends}; it says where each row starts"
    if kind == _kernel.END:
        return f"{name('indptr')} must end at the number of entries, {len(indices)}, got {indptr[-1]}"
    row, column = int(np.searchsorted(indptr, where, side="right")) - 1, int(indices[where])
    if kind == _kernel.VALUE:
        got = f"{values[where]} in row {row}, column {column}"
        return f"{name('values')} must be finite, got {got}; drop or replace it"
    if kind == _kernel.ORDER:
        got = f"{indices[where - 1]} and then {column} in row {row}"
        return f"{name('indices')} must rise within a row, got {got}; from_arrays sorts, and merges what stands twice"
    from_one = column == n_columns and int(indices.min()) == 1 and int(indices.max()) == n_columns
    remedy = f"numbers count from 0: subtract 1 from {name('indices')}" if from_one else "drop it, or add the column"
    return f"{name('indices')} must lie in [0, {n_columns}), got {column} in row {row}; {remedy}"


def check_integers(name: str, numbers: Any, dtype: type) -> np.ndarray:
    """A vector of whole numbers in a type that holds every one of them, or raise: never rounded, never wrapped."""
    array = plain_array(name, numbers)
    if array.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {array.shape}")
    if not array.size:
        return np.empty(0, dtype=dtype)  # whatever it was of: a cast of complex numbers warns, of none too
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}; convert it with .astype if all are whole")
    if not np.can_cast(array.dtype, dtype):
        limits = np.iinfo(dtype)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            wrong = low if low < limits.min else high
            where = int(np.flatnonzero(array == wrong)[0])
            raise ValueError(
                f"{name} must lie in [{limits.min}, {limits.max}], got {wrong} at position {where}; check its type"
            )
    return np.ascontiguousarray(array, dtype=dtype)


def check_indptr(name: str, indptr: Any, n_rows: int | None = None) -> np.ndarray:
    """Where rows start, as int64: from 0 and never falling, one more than there are rows, or raise."""
    indptr = check_integers(name, indptr, np.int64)
    if not len(indptr) or n_rows not in (None, len(indptr) - 1):
        wanted = "one entry more than there are rows" if n_rows is None else f"{n_rows + 1} entries"
        raise ValueError(f"{name} must have {wanted}, got {len(indptr)}")
    nothing = np.empty(0, dtype=np.int32)
    kind, where = _kernel.find_fault(indptr, nothing, _NO_VALUES, 0, False, 1)
    if kind in (_kernel.START, _kernel.FALL):
        raise ValueError(_fault(kind, where, indptr, nothing, None, 0, lambda _: name))
    return indptr


def check_named_rows(
    name: str, indptr: Any, columns: Any, n_rows: int, n_columns: int, *, fields: tuple[str, str], rising: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of an object that is no `Interactions`, as int64 and int32, checked like those of one.

    Messages call its arrays `name` and one of `fields`, such as "events.indptr" and "events.items".
    """
    called = dict(zip(("indptr", "indices"), (f"{name}.{field}" for field in fields), strict=True))
    indptr = check_indptr(called["indptr"], indptr, n_rows)
    columns = check_integers(called["indices"], columns, np.int32)
    check_csr(indptr, columns, None, n_columns, name=called.__getitem__, rising=rising)
    return indptr, columns


def own_array(array: np.ndarray, dtype: type | None = None) -> np.ndarray:
    """A read-only view: of the array itself where nobody can write to its memory, else of a copy."""
    array = np.ascontiguousarray(array, dtype=dtype)
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array.view()  # an owner can be made writable again, a view of a read-only one cannot


def owned(array: np.ndarray) -> np.ndarray:
    """A new array that no one else holds, read-only, so that `own_array` takes it as it is."""
    array.flags.writeable = False
    return array


def own_columns(columns: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Columns by name, read-only as they are: none can be put in later that does not fit its axis."""
    return MappingProxyType({name: own_array(column) for name, column in columns.items()})


def picklable(field: Any) -> Any:
    """What a pickle holds of a field: Python pickles no read-only mapping."""
    return dict(field) if isinstance(field, MappingProxyType) else field


def check_fields(
    fields: Mapping[str, Any], *, name: Callable[[str], str] = str, aligned: bool = False
) -> dict[str, Any]:
    """All that a stranger says of interactions, each of its type, none of it the stranger's to change, and checked.

    Parameters
    ----------
    fields : mapping of str to object
        What the constructor of `Interactions` takes.
    name : callable
        From a field's name to what messages call it.
    aligned : bool
        Whether features are in the order of their axis, as files and pickles hold them: a column that is called as
        ids are is then a feature like others.

    Returns
    -------
    dict
        The same fields.
    """
    indptr = own_array(check_integers(name("indptr"), fields["indptr"], np.int64))
    if not len(indptr):
        raise ValueError(f"{name('indptr')} must have one entry more than there are rows, got none")
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
    """Columns with an entry for each id of an axis, aligned by their own ids; or for each of a number of rows."""
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
            raise TypeError(f"{called} must be a column in an order, got {type(column).__name__}; pass a list")
        array = column_array(called, column)
        checked[feature] = array if rows is None else array[rows]
        if len(checked[feature]) != length:
            raise ValueError(f"{called} must have {length} entries, got {len(checked[feature])}")
    if isinstance(axis, np.ndarray) and rows is None:
        refuse_unnamed_ids(name(field), field.removesuffix("_features"), checked, axis)
    return own_columns(checked)


def _check_length(name: str, array: np.ndarray, length: int, what: str) -> None:
    if len(array) != length:
        raise ValueError(f"{name} must have {length} entries, one for each {what}, got {len(array)}")


def _check_distinct(name: str, numbers: np.ndarray) -> None:
    if bool((numbers[1:] > numbers[:-1]).all()):
        return
    order = np.argsort(numbers, kind="stable")
    again = np.flatnonzero(numbers[order[1:]] == numbers[order[:-1]])
    if again.size:
        first, second = order[again[0]], order[again[0] + 1]
        raise ValueError(
            f"{name} must be distinct, got {numbers[first]} in rows {first} and {second}: two people would have the "
            "same random numbers"
        )


class Remade:
    """A dataclass that is unpickled through its constructor: what a pickle holds may be anything, and is checked."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(picklable(getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
