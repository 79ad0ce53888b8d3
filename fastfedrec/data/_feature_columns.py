"""Columns of what is known of items, of whatever kind, as sparse rows of norm 1: a block for each column."""

import datetime
import itertools
import numbers
import re
import zlib
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import scipy

from fastfedrec.core.check import plain_array

#: A csr_array of SciPy, whose part of that name is loaded when it is first used.
Rows: TypeAlias = Any

_LISTS = tuple, list, set, frozenset, np.ndarray
_SEPARATOR = "|"
_MOST_DISTINCT = 0.75  # of what text says, for labels: of titles nearly all are
_N_BUCKETS = 2**18  # that words are hashed into
_N_KNOTS = 8  # of numbers
_DAY = 86400.0  # seconds
_WORD = re.compile(r"\w+")


def unit_rows(name: str, column: Any) -> Rows:
    """A row of norm 1 for each entry of a column, and of zeros where there is nothing.

    Parameters
    ----------
    name : str
        The column's, for messages.
    column : array_like or scipy sparse
        One-dimensional: text, labels, numbers, dates, lists of labels or of coordinates.  With two dimensions: vectors.

    Returns
    -------
    csr_array of shape (n_entries, n_dimensions), float32
        Without a column of zeros where no entry has anything.

    Raises
    ------
    TypeError
        Kinds that are mixed, or none of these.
    ValueError
        A number that is not finite; its position is named.
    """
    if scipy.sparse.issparse(column) or getattr(column, "ndim", 1) == 2:
        return _vectors(name, column)
    if isinstance(column, str | bytes) or not _is_column(column):
        raise TypeError(f"{name} must be a column with an entry for each item, got {type(column).__name__}")
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"{name} must have 1 or 2 dimensions, got shape {np.shape(column)}")
    values, there = _entries(name, column)
    places = np.flatnonzero(there)
    encode = _encoder(name, values, places)
    block = encode(name, values, places)
    rows = scipy.sparse.csr_array((len(there), block.shape[1]), dtype=np.float32)
    if len(places):
        rows = scipy.sparse.csr_array(_spread(places, len(there)) @ block)
    rows.sort_indices()
    return rows


def _is_column(column: Any) -> bool:
    return isinstance(column, Sequence) or hasattr(column, "__array__") or hasattr(column, "__dlpack__")


def _spread(places: np.ndarray, length: int) -> Rows:
    ones = np.ones(len(places), dtype=np.float32)
    return scipy.sparse.csr_array((ones, (places, np.arange(len(places)))), shape=(length, len(places)))


# ---- what a column holds --------------------------------------------------------------------------------------------


def _entries(name: str, column: Any) -> tuple[Any, np.ndarray]:
    """Those entries that are there, and which they are; of NumPy's numbers all are."""
    if isinstance(dtype := getattr(column, "dtype", None), np.dtype) and dtype.kind in "iuf" and not _has_mask(column):
        array = plain_array(name, column)
        return array.astype(np.float64), np.ones(len(array), dtype=bool)
    listed = list(column) if isinstance(column, Sequence) else _to_list(name, column)
    there = np.fromiter((not _is_null(value) for value in listed), dtype=bool, count=len(listed))
    not_nan = [value for value, is_there in zip(listed, there, strict=True) if is_there and not _is_nan(value)]
    if all(_kind(value) != "number" for value in not_nan) and not_nan:  # pandas has NaN for a text that is missing
        there &= np.fromiter((not _is_nan(value) for value in listed), dtype=bool, count=len(listed))
        return not_nan, there
    return [value for value, is_there in zip(listed, there, strict=True) if is_there], there


def _has_mask(column: Any) -> bool:
    return isinstance(column, np.ma.MaskedArray)


def _to_list(name: str, column: Any) -> list[Any]:
    """Python's own values, and None for what a mask hides or a null stands for."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "Mm":  # nanoseconds have no type of Python
        unknown = np.isnat(column) | np.ma.getmaskarray(column)
        seconds = np.asarray(column).astype("M8[ms]" if column.dtype.kind == "M" else "m8[ms]").astype(np.float64)
        return [None if is_unknown else value for is_unknown, value in zip(unknown, seconds / 1000 / _DAY, strict=True)]
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; pandas and polars; NumPy and tensors
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(plain_array(name, column).tolist())


def _is_null(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _encoder(name: str, values: Any, places: np.ndarray) -> Callable[..., Rows]:
    """The function for what all of these values are."""
    if isinstance(values, np.ndarray):
        return _numbers
    kinds = [_kind(value) for value in values]
    if len(set(kinds)) > 1:
        other = next(position for position, kind in enumerate(kinds) if kind != kinds[0])
        raise TypeError(
            f"{name} must hold entries of one kind, got {kinds[0]} {values[0]!r} at position {places[0]} and "
            f"{kinds[other]} {values[other]!r} at position {places[other]}; convert one of the two"
        )
    kind = kinds[0] if kinds else "text"
    encoders = {"text": _texts, "number": _numbers, "flag": _labels, "date": _dates, "list": _lists}
    if kind not in encoders:
        raise TypeError(
            f"{name} must hold text, numbers, dates, or lists of labels or coordinates, got {kind} {values[0]!r} at "
            f"position {places[0]}; convert it, for example to text"
        )
    return encoders[kind]


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "flag"
    if isinstance(value, numbers.Real | Decimal):
        return "number"
    if isinstance(value, datetime.date | datetime.timedelta):
        return "date"
    if isinstance(value, _LISTS):
        return "list"
    return type(value).__name__


# ---- labels and words -----------------------------------------------------------------------------------------------


def _labels(name: str, values: Sequence[Any], places: np.ndarray) -> Rows:
    return _multi_hot(name, [(value,) for value in values], places)


def _multi_hot(name: str, lists: Sequence[Sequence[Any]], places: np.ndarray) -> Rows:
    """Each entry's labels, all of one length together."""
    numbered: dict[Hashable, int] = {}
    try:
        found = [numbered.setdefault(label, len(numbered)) for label in itertools.chain.from_iterable(lists)]
    except TypeError:
        for place, labels in zip(places.tolist(), lists, strict=True):
            for label in labels:
                if not isinstance(label, Hashable):
                    raise TypeError(f"{name}[{place}] holds {label!r}, which is no label; use text") from None
        raise
    # In an order of their own, so that no bit of a model depends on that of the rows.
    places_of = np.empty(len(numbered), dtype=np.int64)
    for place, label in enumerate(sorted(numbered, key=repr)):
        places_of[numbered[label]] = place
    return _unit(_binary(lists, places_of[np.array(found, dtype=np.int64)], len(numbered)))


def _binary(lists: Sequence[Sequence[Any]], columns: np.ndarray, n_columns: int) -> Rows:
    indptr = np.concatenate([[0], np.cumsum(np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)))])
    ones = np.ones(len(columns), dtype=np.float64)
    rows = scipy.sparse.csr_array((ones, columns, indptr), shape=(len(lists), n_columns))
    rows.sum_duplicates()
    rows.data[:] = 1.0  # a label that an item has twice counts once
    return rows


def _texts(name: str, values: Sequence[Any], places: np.ndarray) -> Rows:
    """Labels, several of them joined by |, where they come again; words where hardly one does."""
    parts = [[part for part in map(str.strip, text.split(_SEPARATOR)) if part] for text in values]
    n_parts = sum(map(len, parts))
    if len(set(itertools.chain.from_iterable(parts))) <= _MOST_DISTINCT * n_parts:
        return _multi_hot(name, parts, places)
    words = [sorted({zlib.crc32(w.encode()) % _N_BUCKETS for w in _WORD.findall(t.casefold())}) for t in values]
    buckets = np.array(list(itertools.chain.from_iterable(words)), dtype=np.int64)
    rows = _binary(words, buckets, _N_BUCKETS)
    # A word that is everywhere tells nothing, and one that is in one place alone tells nothing of another.
    counts = np.bincount(buckets, minlength=_N_BUCKETS)
    kept = np.flatnonzero(counts > 1)
    weights = np.log(max(len(values), 1) / counts[kept])
    return _unit(scipy.sparse.csr_array(rows[:, kept] * weights[None, :]))


def _lists(name: str, values: Sequence[Any], places: np.ndarray) -> Rows:
    """Lists of labels; or of coordinates, where one is a fraction."""
    lists = [[part for part in _in_order(value) if not _is_null(part)] for value in values]
    some = list(itertools.chain.from_iterable(lists))
    if not some or not all(_kind(value) == "number" for value in some):
        return _multi_hot(name, lists, places)
    if all(isinstance(value, numbers.Integral) for value in some):
        return _multi_hot(name, lists, places)
    lengths = set(map(len, lists))
    if len(lengths) > 1:
        raise ValueError(
            f"{name} holds vectors, as some entries are fractions, and they must be of one length, got lengths from "
            f"{min(lengths)} to {max(lengths)}; lists of labels are text or whole numbers"
        )
    return _vectors(name, np.array(lists, dtype=np.float64), places)


def _in_order(value: Any) -> Sequence[Any]:
    if isinstance(value, set | frozenset):  # whose order is another in each process
        return sorted(value, key=repr)
    return value.tolist() if isinstance(value, np.ndarray) else value


# ---- numbers --------------------------------------------------------------------------------------------------------


def _dates(name: str, values: Sequence[Any], places: np.ndarray) -> Rows:
    return _numbers(name, np.array([_days(value) for value in values]), places)


def _days(value: Any) -> float:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds() / _DAY
    seconds = 0.0
    if isinstance(value, datetime.datetime):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second + value.microsecond / 1e6
    return value.toordinal() + seconds / _DAY


def _numbers(name: str, values: Any, places: np.ndarray) -> Rows:
    """Numbers by their rank among all, so that units and outliers do not matter, between knots: near ones are alike."""
    try:
        array = np.array([float(value) for value in values]) if not isinstance(values, np.ndarray) else values
    except OverflowError:
        raise ValueError(f"{name} holds a whole number that no float holds; divide it, or make it text") from None
    _check_finite(name, array, places)
    distinct, which, counts = np.unique(array, return_inverse=True, return_counts=True)
    if len(distinct) < 2:
        return scipy.sparse.csr_array((len(array), 0), dtype=np.float32)
    middles = (np.cumsum(counts) - (counts + 1) / 2) / (len(array) - 1)  # from 0 to 1, of equal ones their middle
    n_knots = min(_N_KNOTS, len(distinct))
    places_between = middles[which] * (n_knots - 1)
    below = np.minimum(places_between.astype(np.int64), n_knots - 2)
    share = places_between - below
    data = np.column_stack([1 - share, share]).ravel()
    columns = np.column_stack([below, below + 1]).ravel()
    rows = scipy.sparse.csr_array((data, columns, np.arange(0, 2 * len(array) + 1, 2)), shape=(len(array), n_knots))
    rows.eliminate_zeros()
    return _unit(rows)


def _vectors(name: str, column: Any, places: np.ndarray | None = None) -> Rows:
    """Vectors of one's own; those of zeros stay."""
    if scipy.sparse.issparse(column):
        matrix = scipy.sparse.csr_array(column)
        if matrix.ndim != 2:
            raise ValueError(f"{name} must have 2 dimensions, got shape {matrix.shape}")
        matrix.sum_duplicates()
        _check_real(name, matrix.data)
        rows_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        bad = np.flatnonzero(~np.isfinite(matrix.data))
        if bad.size:
            raise _not_finite(f"{name}[{rows_of[bad[0]]}, {matrix.indices[bad[0]]}]", matrix.data[bad[0]])
        return _unit(matrix.astype(np.float64))
    array = plain_array(name, column)
    _check_real(name, array)
    array = array.astype(np.float64)
    _check_finite(name, array, places)
    return _unit(scipy.sparse.csr_array(array))


def _check_real(name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers where it has two dimensions, got {array.dtype}; convert them")


def _check_finite(name: str, array: np.ndarray, places: np.ndarray | None) -> None:
    bad = np.argwhere(~np.isfinite(array))
    if not bad.size:
        return
    where = bad[0].tolist()
    value = array[tuple(bad[0])]
    if places is not None:
        where[0] = int(places[where[0]])
    raise _not_finite(f"{name}[{', '.join(map(str, where))}]", value)


def _not_finite(where: str, value: float) -> ValueError:
    return ValueError(
        f"{where} is {float(value)}, and must be finite; put a number there, or None or a null where it is not known "
        "(in pandas .astype('Int64') or .astype('Float64') makes nulls of NaN)"
    )


def _unit(rows: Rows) -> Rows:
    """Rows divided by their norms, whatever their size, without what is 0 and without columns where nothing is."""
    rows.eliminate_zeros()
    n_rows = rows.shape[0]
    lengths = np.diff(rows.indptr)
    largest = np.zeros(n_rows)
    np.maximum.at(largest, np.repeat(np.arange(n_rows), lengths), np.abs(rows.data))
    data = rows.data / np.repeat(largest, lengths)  # whose squares neither vanish nor overflow
    squares = np.bincount(np.repeat(np.arange(n_rows), lengths), weights=data * data, minlength=n_rows)
    data /= np.sqrt(np.repeat(squares, lengths))
    used, columns = np.unique(rows.indices, return_inverse=True)
    shape = (n_rows, len(used))
    return scipy.sparse.csr_array((data.astype(np.float32), columns.reshape(-1), rows.indptr), shape=shape)
