"""External ids: any hashable, encoded as rows and looked up again."""

import re
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.check import plain_array
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows

__all__ = [
    "Coded",
    "IdIndex",
    "axis_ids",
    "check_exact",
    "check_kinds",
    "check_one_column",
    "column_array",
    "encode_ids",
    "entry_at",
    "find_rows",
    "id_at",
    "rows_on",
]

_LEAST_ENTRIES = 500_000  # that are worth a thread
_MOST_BITS = 8192
_IS_WIDE = re.compile("u?int128", re.IGNORECASE)  # of polars, for which NumPy has no type
_IS_NESTED = re.compile("(struct|array|(large_|fixed_size_)?list|map)\\b", re.IGNORECASE)  # of polars and pyarrow
_PLAIN = int, float, str, np.number, np.bool_, np.datetime64


class Coded(NamedTuple):
    """A column of ids as its reader leaves it: distinct ids in any order, and the number of each entry among them."""

    ids: list[Any]
    numbers: np.ndarray


def check_exact(name: str, numbers: Any) -> None:
    """Raise where floats are so large that several whole numbers become one of them.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    numbers : ndarray
        Ids or times; all but floats pass.

    Raises
    ------
    TypeError
        The first such float is named.
    """
    if numbers.dtype.kind == "f":
        inexact = np.abs(numbers) >= 2.0 ** _exact_bits(numbers.dtype)  # NaN is looked for elsewhere
        positions = [int(np.argmax(inexact))] if inexact.any() else []
    else:
        positions = range(len(numbers)) if numbers.dtype.kind == "O" else []  # type: ignore[assignment]
    for position in positions:
        _check_exact_key(f"{name}[{position}]", numbers[position])


def _exact_bits(dtype: Any) -> int:
    """Floats of the type are whole numbers of their own below two to this power."""
    return int(np.finfo(dtype).nmant) + 1


def _check_exact_key(name: str, key: Any) -> None:
    """Raise for such a float, or for a tuple with one."""
    if isinstance(key, tuple):
        for part in key:
            _check_exact_key(name, part)
    elif isinstance(key, float | np.floating) and abs(float(key)) >= 2.0 ** (n_bits := _exact_bits(type(key))):
        raise TypeError(
            f"{name} must be below 2**{n_bits}, where {np.dtype(type(key)).name} holds each whole number exactly, got "
            f"{float(key)!r}; read the column as integers (Int64 in pandas) or as text, not as floats"
        )


class IdIndex:
    """External id -> row: by binary search where ids and question are numbers or strings, else by dict."""

    def __init__(self, axis: str, ids: np.ndarray):
        self._axis = axis
        self._ids = ids
        self._sorted = ids.dtype.kind in "iufUSMm" and bool((ids[1:] > ids[:-1]).all())
        self._rows: dict[Hashable, int] | None = None

    def rows(self, ids: Any) -> NDArray[np.int64]:
        """The row of each id, or a KeyError that names the first unknown one."""
        wanted = self._column(ids)
        found = self.find(wanted)
        if (unknown := np.flatnonzero(found < 0)).size:
            known = f"the model and data hold {len(self._ids)} {self._axis}s"
            raise KeyError(f"{self._axis} id {id_at(wanted, unknown[0])!r} is unknown; {known}")
        return found

    def find(self, wanted: np.ndarray) -> NDArray[np.int64]:
        """The row of each id of a column, or -1."""
        return self._search(wanted) if self._comparable(wanted.dtype) else self._look_up(wanted)

    def _column(self, ids: Any) -> np.ndarray:
        has_entries = isinstance(ids, Iterable) or is_column(ids)
        if isinstance(ids, str | bytes) or not has_entries or getattr(ids, "ndim", 1) == 0:
            raise TypeError(f"{self._axis}_ids must be a sequence of ids, got the single id {ids!r}; pass [{ids!r}]")
        check_one_column(f"{self._axis}_ids", ids)
        wanted = column_array(f"{self._axis}_ids", ids)
        check_exact(f"{self._axis}_ids", wanted)
        return wanted

    def _comparable(self, dtype: np.dtype) -> bool:
        ours = self._ids.dtype
        return self._sorted and (ours.kind == dtype.kind or (ours.kind in "iuf" and dtype.kind in "iuf"))

    def _search(self, wanted: np.ndarray) -> np.ndarray:
        stored, known = wanted, np.ones(len(wanted), dtype=bool)
        if self._ids.dtype.kind in "iuf" and self._ids.dtype != wanted.dtype:
            # Only what our dtype holds exactly: else 2.0**53 would be found as 2**53 + 1, and -1 as 2**64 - 1.
            with np.errstate(invalid="ignore", over="ignore"):
                stored = wanted.astype(self._ids.dtype)
                known = (stored.astype(wanted.dtype) == wanted) & ((stored < 0) == (wanted < 0))
        found = np.searchsorted(self._ids, stored)
        known &= found < len(self._ids)
        known[known] = self._ids[found[known]] == stored[known]
        return found if known.all() else np.where(known, found, -1)

    def _look_up(self, wanted: np.ndarray) -> np.ndarray:
        if self._rows is None:
            self._rows = {key: row for row, key in enumerate(_keys(self._ids))}
        out = np.empty(len(wanted), dtype=np.int64)
        for position, key in enumerate(_keys(wanted)):
            try:
                out[position] = self._rows.get(key, -1)
            except TypeError:  # what cannot be hashed is no id either
                out[position] = -1
        return out


def _keys(ids: np.ndarray) -> list[Any]:
    # Python objects, which hash alike whatever the dtype; but tolist() would make bare numbers of fine-grained dates.
    return list(ids) if ids.dtype.kind in "Mm" else ids.tolist()


def id_at(ids: np.ndarray, row: int) -> Any:
    """One id as the caller would write it: 5 rather than np.int64(5)."""
    return _keys(ids[row : row + 1])[0]


def is_column(values: Any) -> bool:
    """Whether it is a column of pandas, polars or pyarrow, or a tensor, whose entries are not all Python's own."""
    return any(hasattr(values, name) for name in ("isna", "is_null", "__dlpack__", "__array__", "shape"))


def check_one_column(name: str, ids: Any) -> None:
    """Raise for a set, which has no order, for a table, and for what has not one dimension."""
    if isinstance(ids, set | frozenset):
        raise TypeError(f"{name} must be in an order, got a {type(ids).__name__}; pass a list, such as sorted({name})")
    if hasattr(ids, "columns"):
        raise TypeError(f"{name} must be one column, got a {type(ids).__name__}; take the column by its name")
    kind = str(getattr(ids, "dtype", None) or getattr(ids, "type", None))  # pyarrow has no dtype
    if _IS_WIDE.match(kind):
        raise TypeError(f"{name} must hold integers of at most 64 bits, text, or dates, got {kind}; cast it to text")
    if _IS_NESTED.match(kind):
        raise TypeError(f"{name} must hold one id in each row, got {kind}; take one field, or join its parts as text")
    if getattr(ids, "ndim", 1) != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {ids.shape}")


def _kinds(ids: np.ndarray) -> set[str]:
    """What ids are, as far as one can equal another: "bytes", "dates", "numbers", "strings", "times" or "tuples"."""
    if ids.dtype.kind != "O":
        return {{"U": "strings", "S": "bytes", "M": "dates", "m": "times"}.get(ids.dtype.kind, "numbers")}
    of_type = {str: "strings", tuple: "tuples"}
    return {next((what for kind, what in of_type.items() if issubclass(t, kind)), "numbers") for t in map(type, ids)}


def check_kinds(name: str, ids: np.ndarray, others: np.ndarray, *, of: str) -> None:
    """Raise where ids can equal none of the others, whatever they are: these are numbers, and those strings.

    `name` is the argument's, and `of` says whose the others are.
    """
    ours, theirs = (_kinds(some) if len(some) else set() for some in (ids, others))
    if ours and theirs and not ours & theirs:
        raise TypeError(
            f"{name} must be of {of}' type, got {' and '.join(sorted(ours))} for {' and '.join(sorted(theirs))}, "
            "none of which they equal; convert one of the two"
        )


def entry_at(column: Any, position: int) -> Any:
    """One entry of a column as `encode_ids` takes it."""
    if isinstance(column, Coded):
        return column.ids[column.numbers[position]]
    return id_at(column_array("ids", column), position)


def column_array(name: str, values: Any) -> np.ndarray:
    """A one-dimensional array, of objects where the entries are tuples, lists, mixed, or would not survive NumPy."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind != "T":
        return plain_array(name, values)
    values = list(plain_array(name, values) if is_column(values) else values)
    array = _typed_array(values)
    if array is None:
        array = np.empty(len(values), dtype=object)
        array[:] = values
    return array


def _typed_array(values: list[Any]) -> np.ndarray | None:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not issubclass(kind := kinds.pop(), _PLAIN):
        return None
    if issubclass(kind, str) and any(value.endswith("\0") for value in values):
        return None  # NumPy's strings lose trailing NULs
    array = np.array(values)
    if array.dtype.kind == "O" or (array.dtype.kind == "f" and issubclass(kind, int | np.integer)):
        return None  # beyond 64 bits; or beyond 63 beside a negative one, which NumPy rounds to double
    return array


def encode_ids(name: str, ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distinct external ids, and the row of each entry among them."""
    if isinstance(ids, Coded):
        distinct, rows = encode_ids(name, ids.ids)
        return distinct, rows[ids.numbers]
    if isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):
        raise TypeError(f"{name} must be a sequence of ids, got {type(ids).__name__}")
    check_one_column(name, ids)
    if isinstance(ids, np.ndarray) or is_column(ids):
        ids = plain_array(name, ids)
    if not (isinstance(ids, np.ndarray) and ids.dtype.kind not in "OT"):
        listed = list(ids)
        for position, key in enumerate(listed):
            if _is_missing(key):
                raise ValueError(f"{name}[{position}] is missing ({key!r}); drop that row or give it an id")
        ids = _typed_array(listed)
        if ids is None:
            return _encode_objects(name, listed)
    if ids.dtype.kind not in "iufUSbMm":
        raise TypeError(f"{name} must hold hashable ids, got dtype {ids.dtype}")
    if ids.dtype.kind in "fMm" and (bad := np.flatnonzero(ids != ids)).size:
        raise ValueError(f"{name}[{bad[0]}] is missing ({ids[bad[0]]}); drop that row or give it an id")
    check_exact(name, ids)
    if ids.size and ids.dtype.kind in "iu" and ids.min() >= 0 and (top := int(ids.max())) < 4 * ids.size + 1024:
        return _encode_dense(ids, top + 1)
    unique, rows = np.unique(ids, return_inverse=True)
    return unique, _narrow(rows.reshape(-1))


def find_rows(axis: str, ids: np.ndarray, wanted: Any) -> np.ndarray:
    """The row of each entry of a column among distinct ids, or -1."""
    return IdIndex(axis, ids).find(column_array(f"{axis}s", wanted))


def rows_on(name: str, ids: Any, listed: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ids of an axis, and the row of each entry among them, or -1: `listed` in their order, or None for all."""
    found, rows = encode_ids(name, ids)
    if listed is None:
        return found, rows
    axis = name.removesuffix("s")
    listed = axis_ids(f"{axis}_ids", listed, None)
    check_kinds(f"{axis}_ids", listed, found, of=f"the {name}")
    return listed, IdIndex(axis, listed).find(found).astype(rows.dtype)[rows]


def _encode_dense(ids: np.ndarray, n_ids: int) -> tuple[np.ndarray, np.ndarray]:
    # Integers from 0 that are not many more than their entries: two passes instead of a sort.
    native = ids.dtype if ids.dtype.itemsize >= 4 else np.dtype(np.int32)
    entries, present = np.ascontiguousarray(ids, dtype=native.newbyteorder("=")), np.zeros(n_ids, dtype=np.uint8)
    n_threads = threads_for_rows(len(entries), resolve_n_threads(0), least=_LEAST_ENTRIES)
    _kernel.mark_ids(entries, present, n_threads)
    ranks = _narrow(np.cumsum(present, dtype=np.int64) - 1)
    rows = np.empty(len(entries), dtype=ranks.dtype)
    _kernel.look_up_ids(entries, ranks, rows, n_threads)
    return np.flatnonzero(present).astype(ids.dtype), rows


def _narrow(rows: np.ndarray) -> np.ndarray:
    # Rows of at most 2**31 ids: half the memory of what is gathered and sorted by them.
    return rows.astype(np.int32) if not len(rows) or rows.max() <= np.iinfo(np.int32).max else rows


def _is_missing(key: Any) -> bool:
    if key is None:
        return True
    try:
        return bool(key != key)
    except TypeError:  # pandas.NA: not even known to equal itself
        return True
    except ValueError:  # an array, which is refused as not hashable
        return False


def _can_be_saved(key: Any) -> bool:
    # As core.model_files writes it.  Told at the door, not when a budget has been spent on what cannot be saved.
    if isinstance(key, tuple):
        return all(map(_can_be_saved, key))
    key = key.item() if isinstance(key, np.generic) else key
    if isinstance(key, int) and key.bit_length() > _MOST_BITS:  # which Python does not write as text
        return False
    return isinstance(key, str | int | float) and key == key  # NaN in a tuple would never be found again


def _encode_objects(name: str, ids: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    first: dict[Any, int] = {}
    rows = np.empty(len(ids), dtype=np.int64)
    for position, key in enumerate(ids):
        try:
            rows[position] = first.setdefault(key, len(first))
        except TypeError:
            kind = type(key).__name__
            raise TypeError(f"{name}[{position}] is not hashable ({kind}); convert it to a tuple") from None
        _check_exact_key(f"{name}[{position}]", key)
        if rows[position] == len(first) - 1 and not _can_be_saved(key):
            shown = repr(key) if not isinstance(key, int) else f"of {key.bit_length()} bits"
            raise TypeError(
                f"{name}[{position}] is {shown} ({type(key).__name__}), which no saved model could hold; use ids that "
                "are numbers, strings, or tuples of these, for example str(id)"
            )
    try:
        keys = sorted(first)
    except TypeError:
        keys = list(first)
    rank = np.empty(len(first), dtype=np.int64)
    for new, key in enumerate(keys):
        rank[first[key]] = new
    unique = np.empty(len(keys), dtype=object)
    unique[:] = keys
    return unique, _narrow(rank[rows])


def axis_ids(name: str, ids: Any, length: int | None) -> np.ndarray:
    """The caller's distinct ids of one axis, in the caller's order, or numbers from 0."""
    if ids is None and length is not None:
        return np.arange(length, dtype=np.int64)
    if ids is None or isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):
        raise TypeError(f"{name} must be a sequence of ids, got {type(ids).__name__}")
    check_one_column(name, ids)
    array = column_array(name, ids)
    if length is not None and len(array) != length:
        raise ValueError(f"{name} must have {length} entries, one for each row or column, got {len(array)}")
    if array.dtype.kind in "iu" and bool((array[1:] > array[:-1]).all()):
        return array  # rising, so distinct: without a sort
    distinct, rows = encode_ids(name, array)
    if len(distinct) != len(array):
        again = int(np.flatnonzero(np.bincount(rows) > 1)[0])
        first, second = np.flatnonzero(rows == again)[:2]
        repeated = f"{len(array) - len(distinct)} repeated"
        raise ValueError(
            f"{name} must be distinct, got {repeated}: places {first} and {second} hold the same id; keep one of them"
        )
    return array
