"""Encoding of external ids, which may be any hashable objects, as row numbers, and their lookup."""

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.check import plain_array
from fastfedrec.core.interface import choose_words
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows
from fastfedrec.core.warn import warn

__all__ = [
    "MISSING",
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
    "is_column",
    "is_missing",
    "join_ids",
    "rows_on",
    "warn_of_marks",
]

#: Marks of a missing field, in lower case.
MISSING = frozenset({"null", "none", "nan", "nat", "na", "n/a", "-", "?"})
# Spellings that pandas, R and databases write.
_MARKS = frozenset(spelling for word in MISSING for spelling in (word, word.upper(), word.title())) | {"", "NaN", "NaT"}
_MIN_ENTRIES = 500_000  # per thread
_MAX_BITS = 8192  # of an integer id; Python refuses to convert much larger ones to text
_IS_WIDE = re.compile("u?int128", re.IGNORECASE)  # types of polars without a counterpart in NumPy
_IS_NESTED = re.compile("(struct|array|(large_|fixed_size_)?list|map)\\b", re.IGNORECASE)  # types of polars and pyarrow
_SCALARS = int, float, str, np.number, np.bool_, np.datetime64


class Coded(NamedTuple):
    """Encoded column of ids: distinct ids in any order, and for each entry the position of its id among them."""

    ids: list[Any]
    numbers: np.ndarray


def check_exact(name: str, numbers: Any) -> None:
    """Raise a TypeError for floats so large that several whole numbers round to the same float."""
    if numbers.dtype.kind == "f":
        inexact = np.abs(numbers) >= 2.0 ** _exact_bits(numbers.dtype)  # False for NaN, which other checks reject
        positions = [int(np.argmax(inexact))] if inexact.any() else []
    else:
        positions = range(len(numbers)) if numbers.dtype.kind == "O" else []  # type: ignore[assignment]
    for position in positions:
        _check_exact_key(f"{name}[{position}]", numbers[position])


def _exact_bits(dtype: Any) -> int:
    """Return b such that the type represents every whole number below 2**b exactly."""
    return int(np.finfo(dtype).nmant) + 1


def _check_exact_key(name: str, key: Any) -> None:
    """Raise a TypeError for an inexact float, or for a tuple that contains one."""
    if isinstance(key, tuple):
        for part in key:
            _check_exact_key(name, part)
    elif isinstance(key, float | np.floating) and abs(float(key)) >= 2.0 ** (n_bits := _exact_bits(type(key))):
        raise TypeError(
            f"{name} must be below 2**{n_bits}, where {np.dtype(type(key)).name} holds each whole number exactly, got "
            f"{float(key)!r}; read the column as integers (Int64 in pandas) or as text, not as floats"
        )


class IdIndex:
    """Lookup of rows by external id: by binary search in sorted numbers or strings, otherwise by a dict."""

    def __init__(self, axis: str, ids: np.ndarray):
        self._axis = axis
        self._ids = ids
        self._sorted = ids.dtype.kind in "iufUSMm" and bool((ids[1:] > ids[:-1]).all())
        self._rows: dict[Hashable, int] | None = None

    def rows(self, ids: Any) -> NDArray[np.int64]:
        """Return the row of each id, or raise a KeyError that names the first unknown id."""
        column = self._column(ids)
        rows = self.find(column)
        if (unknown := np.flatnonzero(rows < 0)).size:
            known = f"the model and data hold {len(self._ids):,} {self._axis}s"
            # The command line adds its own remedy.
            remedy = choose_words("see recommend_for, or unknown= of recommend, for new users", "")
            remedy = remedy if self._axis == "user" else ""
            if len(self._ids):
                known += f", such as {id_at(self._ids, 0)!r}"
                if (column.dtype.kind in "US") != (self._ids.dtype.kind in "US") and "O" not in (
                    column.dtype.kind,
                    self._ids.dtype.kind,
                ):
                    remedy = "pass ids of that type"
            raise KeyError(
                f"{self._axis} id {id_at(column, unknown[0])!r} is unknown; {known}{'; ' * bool(remedy)}{remedy}"
            )
        return rows

    def find(self, ids: np.ndarray) -> NDArray[np.int64]:
        """Return the row of each id of a column, or -1 for an unknown id."""
        return self._search(ids) if self._comparable(ids.dtype) else self._look_up(ids)

    def _column(self, ids: Any) -> np.ndarray:
        has_entries = isinstance(ids, Iterable) or is_column(ids)
        if isinstance(ids, str | bytes) or not has_entries or getattr(ids, "ndim", 1) == 0:
            raise TypeError(f"{self._axis}_ids must be a sequence of ids, got the single id {ids!r}; pass [{ids!r}]")
        check_one_column(f"{self._axis}_ids", ids)
        column = column_array(f"{self._axis}_ids", ids)
        check_exact(f"{self._axis}_ids", column)
        return column

    def _comparable(self, dtype: np.dtype) -> bool:
        axis_dtype = self._ids.dtype
        return self._sorted and (axis_dtype.kind == dtype.kind or (axis_dtype.kind in "iuf" and dtype.kind in "iuf"))

    def _search(self, ids: np.ndarray) -> np.ndarray:
        keys, known = ids, np.ones(len(ids), dtype=bool)
        if self._ids.dtype.kind in "iuf" and self._ids.dtype != ids.dtype:
            # An id that the axis's dtype cannot represent is unknown: 2.0**53 must not match 2**53 + 1, nor -1
            # match 2**64 - 1.
            with np.errstate(invalid="ignore", over="ignore"):
                keys = ids.astype(self._ids.dtype)
                known = (keys.astype(ids.dtype) == ids) & ((keys < 0) == (ids < 0))
        rows = np.searchsorted(self._ids, keys)
        known &= rows < len(self._ids)
        known[known] = self._ids[rows[known]] == keys[known]
        return rows if known.all() else np.where(known, rows, -1)

    def _look_up(self, ids: np.ndarray) -> np.ndarray:
        if self._rows is None:
            self._rows = {key: row for row, key in enumerate(_keys(self._ids))}
        out = np.empty(len(ids), dtype=np.int64)
        for position, key in enumerate(_keys(ids)):
            try:
                out[position] = self._rows.get(key, -1)
            except TypeError:  # an object that cannot be hashed is not an id
                out[position] = -1
        return out


def _keys(ids: np.ndarray) -> list[Any]:
    # Python objects hash alike for all dtypes.  Dates stay NumPy's, because tolist() returns nanoseconds as integers.
    return list(ids) if ids.dtype.kind in "Mm" else ids.tolist()


def id_at(ids: np.ndarray, row: int) -> Any:
    """Return one id as a Python object, for messages: 5 and not np.int64(5)."""
    return _keys(ids[row : row + 1])[0]


def is_column(values: Any) -> bool:
    """Return whether an object is a column of pandas, polars or pyarrow, or a tensor."""
    return any(hasattr(values, name) for name in ("isna", "is_null", "__dlpack__", "__array__", "shape"))


def check_one_column(name: str, ids: Any) -> None:
    """Raise for a set, which has no order, for a table, and for an array without exactly one dimension."""
    if isinstance(ids, set | frozenset):
        raise TypeError(f"{name} must be ordered, got a {type(ids).__name__}; pass a list, such as sorted({name})")
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
    """Return the kinds of ids; ids of different kinds are never equal."""
    if ids.dtype.kind != "O":
        return {{"U": "strings", "S": "bytes", "M": "dates", "m": "times"}.get(ids.dtype.kind, "numbers")}
    of_type = {str: "strings", tuple: "tuples"}
    return {next((label for kind, label in of_type.items() if issubclass(t, kind)), "numbers") for t in map(type, ids)}


def check_kinds(name: str, ids: np.ndarray, reference_ids: np.ndarray, *, of: str) -> None:
    """Raise if the kinds of ids exclude any match, such as numbers and strings; `of` names the reference ids."""
    kinds, reference_kinds = (_kinds(column) if len(column) else set() for column in (ids, reference_ids))
    if kinds and reference_kinds and not kinds & reference_kinds:
        raise TypeError(
            f"{name} must have the type of {of}, got {' and '.join(sorted(kinds))} and "
            f"{' and '.join(sorted(reference_kinds))}, which are never equal; convert one of the two"
        )


def entry_at(column: Any, position: int) -> Any:
    """Return one entry of a column of ids."""
    if isinstance(column, Coded):
        return column.ids[column.numbers[position]]
    return id_at(column_array("ids", column), position)


def column_array(name: str, values: Any) -> np.ndarray:
    """Return a one-dimensional array, of objects if the entries have no common dtype that represents them exactly."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind != "T":
        return plain_array(name, values)
    values = list(plain_array(name, values) if is_column(values) else values)
    array = _typed_array(values)
    if array is None:
        array = np.empty(len(values), dtype=object)
        array[:] = values
    return array


def join_ids(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return several columns of ids as one, which keeps the type of each id."""
    columns = [column for column in columns if len(column)]  # the type of an empty column has no meaning
    if len({column.dtype.kind for column in columns}) == 1 and columns[0].dtype.kind in "iuU":
        return np.concatenate(columns)
    return column_array("ids", [key for column in columns for key in _keys(column)])


def _typed_array(values: list[Any]) -> np.ndarray | None:
    # NumPy would convert entries of mixed types to a common one, such as 1 and "a" to text.
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not issubclass(kind := kinds.pop(), _SCALARS):
        return None
    if issubclass(kind, str) and any(value.endswith("\0") for value in values):
        return None  # NumPy's strings drop trailing NULs
    array = np.array(values)
    if array.dtype.kind == "O" or (array.dtype.kind == "f" and issubclass(kind, int | np.integer)):
        # Integers exceed 64 bits, or are negative and beyond 63 bits, which NumPy rounds to floats.
        return None
    return array


def encode_ids(name: str, ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct external ids, and for each entry the row of its id."""
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
            if is_missing(key):
                raise ValueError(f"{name}[{position}] is missing ({key!r}); drop the row, or give it an id")
        ids = _typed_array(listed)
        if ids is None:
            return _encode_objects(name, listed)
    if ids.dtype.kind not in "iufUSbMm":
        raise TypeError(f"{name} must hold hashable ids, got dtype {ids.dtype}")
    if ids.dtype.kind in "fMm" and (bad := np.flatnonzero(ids != ids)).size:
        raise ValueError(f"{name}[{bad[0]}] is missing ({ids[bad[0]]}); drop the row, or give it an id")
    check_exact(name, ids)
    # Dense integers from 0 need no sort; 4 marks per entry bound the memory.
    if ids.size and ids.dtype.kind in "iu" and ids.min() >= 0 and (top := int(ids.max())) < 4 * ids.size + 1024:
        return _encode_dense(ids, top + 1)
    unique, rows = np.unique(ids, return_inverse=True)
    return unique, _narrow(rows.reshape(-1))


def find_rows(axis: str, ids: np.ndarray, column: Any) -> np.ndarray:
    """Return the row of each entry of a column among distinct ids, or -1 for an unknown entry."""
    return IdIndex(axis, ids).find(column_array(f"{axis}s", column))


def rows_on(name: str, ids: Any, listed: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of an axis (`listed`, or all that occur), and the row of each entry or -1."""
    distinct, rows = encode_ids(name, ids)
    if listed is None:
        return distinct, rows
    axis = name.removesuffix("s")
    listed = axis_ids(f"{axis}_ids", listed, None)
    check_kinds(f"{axis}_ids", listed, distinct, of=f"the {name}")
    return listed, IdIndex(axis, listed).find(distinct).astype(rows.dtype)[rows]


def _encode_dense(ids: np.ndarray, n_ids: int) -> tuple[np.ndarray, np.ndarray]:
    # One pass marks the ids that occur, and a second one looks up their ranks.
    native = ids.dtype if ids.dtype.itemsize >= 4 else np.dtype(np.int32)
    entries, present = np.ascontiguousarray(ids, dtype=native.newbyteorder("=")), np.zeros(n_ids, dtype=np.uint8)
    n_threads = threads_for_rows(len(entries), resolve_n_threads(0), min_rows=_MIN_ENTRIES)
    _kernel.mark_ids(entries, present, n_threads)
    ranks = _narrow(np.cumsum(present, dtype=np.int64) - 1)
    rows = np.empty(len(entries), dtype=ranks.dtype)
    _kernel.look_up_ids(entries, ranks, rows, n_threads)
    return np.flatnonzero(present).astype(ids.dtype), rows


def _narrow(rows: np.ndarray) -> np.ndarray:
    # 32 bits suffice for at most 2**31 ids and halve the memory of later gathers and sorts.
    return rows.astype(np.int32) if not len(rows) or rows.max() <= np.iinfo(np.int32).max else rows


def is_missing(key: Any) -> bool:
    """Return whether an entry is None, NaN or another mark of a missing entry."""
    if key is None:
        return True
    # Only NaN and similar missing values differ from themselves.
    try:
        return bool(key != key)
    except TypeError:  # pandas.NA: the truth value of its comparisons is undefined
        return True
    except ValueError:  # an array, which later raises because it is not hashable
        return False


def _can_be_saved(key: Any) -> bool:
    # These are the types that `core.model_files` writes.  The early check prevents that a privacy budget is spent on a
    # model that cannot be saved.
    if isinstance(key, tuple):
        return all(map(_can_be_saved, key))
    key = key.item() if isinstance(key, np.generic) else key
    if isinstance(key, int) and key.bit_length() > _MAX_BITS:  # Python does not convert it to text
        return False
    return isinstance(key, str | int | float) and key == key  # NaN in a tuple equals no id, so no lookup would find it


def _encode_objects(name: str, ids: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    first: dict[Any, int] = {}  # number of each distinct id, in order of first appearance
    rows = np.empty(len(ids), dtype=np.int64)
    for position, key in enumerate(ids):
        try:
            rows[position] = first.setdefault(key, len(first))
        except TypeError:
            kind, remedy = type(key).__name__, "convert it to a tuple"
            if isinstance(key, tuple):
                kind, remedy = "a tuple with other parts", "convert its parts to numbers, strings or tuples"
            raise TypeError(f"{name}[{position}] must be hashable, got {kind}; {remedy}") from None
        _check_exact_key(f"{name}[{position}]", key)
        if rows[position] == len(first) - 1 and not _can_be_saved(key):
            shown = repr(key) if not isinstance(key, int) else f"of {key.bit_length()} bits"
            raise TypeError(
                f"{name}[{position}] must be a number, a string or a tuple of these, got {shown} "
                f"({type(key).__name__}), which cannot be saved with a model; convert the id, for example with str(id)"
            )
    try:
        keys = sorted(first)
    except TypeError:
        keys = list(first)
    # Ids of one comparable type are sorted; otherwise the order of first appearance remains.
    rank = np.empty(len(first), dtype=np.int64)
    for row, key in enumerate(keys):
        rank[first[key]] = row
    unique = np.empty(len(keys), dtype=object)
    unique[:] = keys
    return unique, _narrow(rank[rows])


def axis_ids(name: str, ids: Any, length: int | None) -> np.ndarray:
    """Return the distinct ids of an axis in the given order, or numbers from 0 if `ids` is None."""
    if ids is None and length is not None:
        return np.arange(length, dtype=np.int64)
    if ids is None or isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):
        raise TypeError(f"{name} must be a sequence of ids, got {type(ids).__name__}")
    check_one_column(name, ids)
    array = column_array(name, ids)
    if length is not None and len(array) != length:
        raise ValueError(f"{name} must have {length} entries, one for each row or column, got {len(array)}")
    if array.dtype.kind in "iu" and bool((array[1:] > array[:-1]).all()):
        return array  # increasing numbers are distinct; this avoids the sort
    distinct, rows = encode_ids(name, array)
    if len(distinct) != len(array):
        repeated_row = int(np.flatnonzero(np.bincount(rows) > 1)[0])
        first, second = np.flatnonzero(rows == repeated_row)[:2]
        raise ValueError(
            f"{name} must be distinct, got {len(array) - len(distinct)} repeated: positions {first} and {second} hold "
            "the same id; keep one of them"
        )
    return array


def warn_of_marks(column: str, role: str, ids: Iterable[Any]) -> None:
    """Warn about ids such as "NA", which other programs write for a missing id: they would be one user or item.

    Parameters
    ----------
    column : str
        Description of the column of ids.
    role : {"user", "item"}
        Owner of an id.
    ids : iterable
        Distinct ids.
    """
    for text in sorted(_MARKS.intersection(ids)):
        warn(
            f"{column} has the id {text!r}, and its rows count as one {role}; if it stands for a missing id, remove "
            "these rows"
        )
