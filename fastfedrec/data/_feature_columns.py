"""Encoding of feature columns of any type as sparse rows of L2 norm 1, one block for each column."""

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

#: `scipy.sparse.csr_array`; the alias avoids the import of `scipy.sparse` with this module.
Rows: TypeAlias = Any

_LISTS = tuple, list, set, frozenset, np.ndarray
_SEPARATOR = "|"  # between the labels of an entry
_MAX_DISTINCT_SHARE = 0.75  # of labels in a text column; in a column of titles, nearly all texts are distinct
_N_BUCKETS = 2**18  # number of hash values of words
_N_KNOTS = 8  # of the piecewise linear encoding of numbers
_DAY = 86400.0  # seconds
_WORD = re.compile(r"\w+")


def unit_rows(name: str, column: Any) -> Rows:
    """Return float32 CSR rows of L2 norm 1 for the entries of a column, with zeros for missing entries."""
    # Two dimensions are vectors.  One dimension is text, labels, numbers, dates, or lists of labels or coordinates.
    if scipy.sparse.issparse(column) or getattr(column, "ndim", 1) == 2:
        return _vectors(name, column)
    if isinstance(column, str | bytes) or not _is_column(column):
        raise TypeError(f"{name} must be a column with an entry for each item, got {type(column).__name__}")
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"{name} must have 1 or 2 dimensions, got shape {np.shape(column)}")
    values, is_present = _present_entries(name, column)
    positions = np.flatnonzero(is_present)
    encode = _encoder(name, values, positions)
    block = encode(name, values, positions)
    rows = scipy.sparse.csr_array((len(is_present), block.shape[1]), dtype=np.float32)
    if len(positions):
        rows = scipy.sparse.csr_array(_selection_matrix(positions, len(is_present)) @ block)
    rows.sort_indices()
    return rows


def _is_column(column: Any) -> bool:
    return isinstance(column, Sequence) or hasattr(column, "__array__") or hasattr(column, "__dlpack__")


def _selection_matrix(positions: np.ndarray, length: int) -> Rows:
    """Return the 0/1 matrix that moves row i of a block to row ``positions[i]``."""
    ones = np.ones(len(positions), dtype=np.float32)
    return scipy.sparse.csr_array((ones, (positions, np.arange(len(positions)))), shape=(length, len(positions)))


# ---- types of columns -----------------------------------------------------------------------------------------------


def _present_entries(name: str, column: Any) -> tuple[Any, np.ndarray]:
    """Return the entries that are not missing, and their mask; NaN of a NumPy array does not count as missing."""
    if isinstance(dtype := getattr(column, "dtype", None), np.dtype) and dtype.kind in "iuf" and not _has_mask(column):
        array = plain_array(name, column)
        return array.astype(np.float64), np.ones(len(array), dtype=bool)
    listed = list(column) if isinstance(column, Sequence) else _to_list(name, column)
    is_present = np.fromiter((not _is_null(value) for value in listed), dtype=bool, count=len(listed))
    not_nan = [value for value, present in zip(listed, is_present, strict=True) if present and not _is_nan(value)]
    # pandas marks a missing text with NaN.  In a column of numbers NaN stays, and later raises an error.
    if all(_kind(value) != "number" for value in not_nan) and not_nan:
        is_present &= np.fromiter((not _is_nan(value) for value in listed), dtype=bool, count=len(listed))
        return not_nan, is_present
    return [value for value, present in zip(listed, is_present, strict=True) if present], is_present


def _has_mask(column: Any) -> bool:
    return isinstance(column, np.ma.MaskedArray)


def _to_list(name: str, column: Any) -> list[Any]:
    """Return a column as Python objects, with None for masked and null entries."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "Mm":  # Python has no type with nanoseconds
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


def _encoder(name: str, values: Any, positions: np.ndarray) -> Callable[..., Rows]:
    """Return the encoding function for the common type of the values."""
    if isinstance(values, np.ndarray):
        return _numbers
    kinds = [_kind(value) for value in values]
    if len(set(kinds)) > 1:
        other = next(position for position, kind in enumerate(kinds) if kind != kinds[0])
        raise TypeError(
            f"{name} must hold entries of one type, got {kinds[0]} {values[0]!r} at position {positions[0]} and "
            f"{kinds[other]} {values[other]!r} at position {positions[other]}; convert one of the two"
        )
    kind = kinds[0] if kinds else "text"
    encoders = {"text": _texts, "number": _numbers, "flag": _labels, "date": _dates, "list": _lists}
    if kind not in encoders:
        raise TypeError(
            f"{name} must hold text, numbers, dates, or lists of labels or coordinates, got {kind} {values[0]!r} at "
            f"position {positions[0]}; convert it, for example to text"
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


def _labels(name: str, values: Sequence[Any], positions: np.ndarray) -> Rows:
    return _multi_hot(name, [(value,) for value in values], positions)


def _multi_hot(name: str, lists: Sequence[Sequence[Any]], positions: np.ndarray) -> Rows:
    """Encode the labels of each entry as equal coordinates of a vector of norm 1."""
    number_of: dict[Hashable, int] = {}
    try:
        label_numbers = [number_of.setdefault(label, len(number_of)) for label in itertools.chain.from_iterable(lists)]
    except TypeError:
        for position, labels in zip(positions.tolist(), lists, strict=True):
            for label in labels:
                if not isinstance(label, Hashable):
                    raise TypeError(f"{name}[{position}] must hold labels, got {label!r}; convert it to text") from None
        raise
    # Labels are sorted, so that no bit of a model depends on the order of the rows.
    column_of = np.empty(len(number_of), dtype=np.int64)
    for column, label in enumerate(sorted(number_of, key=repr)):
        column_of[number_of[label]] = column
    return _unit(_binary(lists, column_of[np.array(label_numbers, dtype=np.int64)], len(number_of)))


def _binary(lists: Sequence[Sequence[Any]], columns: np.ndarray, n_columns: int) -> Rows:
    # Row i of the CSR has the labels of entry i.
    indptr = np.concatenate([[0], np.cumsum(np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)))])
    ones = np.ones(len(columns), dtype=np.float64)
    rows = scipy.sparse.csr_array((ones, columns, indptr), shape=(len(lists), n_columns))
    rows.sum_duplicates()
    rows.data[:] = 1.0  # a repeated label of an item counts once
    return rows


def _texts(name: str, values: Sequence[Any], positions: np.ndarray) -> Rows:
    """Encode labels joined by ``|`` if enough of them are repeated, otherwise hashed words."""
    parts = [[part for part in map(str.strip, text.split(_SEPARATOR)) if part] for text in values]
    n_parts = sum(map(len, parts))
    if len(set(itertools.chain.from_iterable(parts))) <= _MAX_DISTINCT_SHARE * n_parts:
        return _multi_hot(name, parts, positions)
    words = [sorted({zlib.crc32(w.encode()) % _N_BUCKETS for w in _WORD.findall(t.casefold())}) for t in values]
    buckets = np.array(list(itertools.chain.from_iterable(words)), dtype=np.int64)
    rows = _binary(words, buckets, _N_BUCKETS)
    # The weight is the inverse document frequency, log(n / count): 0 for a word in every entry.  A word in a single
    # entry is dropped, because it relates the entry to no other entry.
    counts = np.bincount(buckets, minlength=_N_BUCKETS)
    repeated = np.flatnonzero(counts > 1)
    weights = np.log(max(len(values), 1) / counts[repeated])
    return _unit(scipy.sparse.csr_array(rows[:, repeated] * weights[None, :]))


def _lists(name: str, values: Sequence[Any], positions: np.ndarray) -> Rows:
    """Encode lists of labels, or lists of coordinates if one number is a fraction."""
    lists = [[part for part in _ordered(value) if not _is_null(part)] for value in values]
    elements = list(itertools.chain.from_iterable(lists))
    if not elements or not all(_kind(value) == "number" for value in elements):
        labels = [[part for part in parts if not _is_nan(part)] for parts in lists]  # pandas marks a missing text so
        return _multi_hot(name, labels, positions)
    if all(isinstance(value, numbers.Integral) for value in elements):
        return _multi_hot(name, lists, positions)
    lengths = set(map(len, lists))
    if len(lengths) > 1:
        raise ValueError(
            f"{name} holds fractions, so its lists are vectors and must have equal lengths, got lengths from "
            f"{min(lengths)} to {max(lengths)}; for labels use text or whole numbers"
        )
    return _vectors(name, np.array(lists, dtype=np.float64), positions)


def _ordered(value: Any) -> Sequence[Any]:
    if isinstance(value, set | frozenset):  # the order of a set differs between processes
        return sorted(value, key=repr)
    return value.tolist() if isinstance(value, np.ndarray) else value


# ---- numbers --------------------------------------------------------------------------------------------------------


def _dates(name: str, values: Sequence[Any], positions: np.ndarray) -> Rows:
    zoned = [_utc_offset(value) is not None for value in values]
    if len(set(zoned)) > 1:
        other = zoned.index(not zoned[0])
        raise TypeError(
            f"{name} must hold times that all have a zone or all have none, got {values[0]} at position {positions[0]} "
            f"and {values[other]} at position {positions[other]}; give each one a zone"
        )
    return _numbers(name, np.array([_days(value) for value in values]), positions)


def _utc_offset(value: Any) -> datetime.timedelta | None:
    return value.utcoffset() if isinstance(value, datetime.datetime) else None


def _days(value: Any) -> float:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds() / _DAY
    seconds = 0.0
    if isinstance(value, datetime.datetime):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second + value.microsecond / 1e6
        seconds -= (value.utcoffset() or datetime.timedelta()).total_seconds()
    return value.toordinal() + seconds / _DAY


def _numbers(name: str, values: Any, positions: np.ndarray) -> Rows:
    """Encode numbers by linear interpolation of their rank between knots."""
    # Close ranks have similar rows.  Ranks do not depend on the unit, and limit the effect of outliers.
    try:
        array = np.array([float(value) for value in values]) if not isinstance(values, np.ndarray) else values
    except OverflowError:
        raise ValueError(f"{name} must hold numbers in the range of float64; rescale them, or use text") from None
    _check_finite(name, array, positions)
    # `which` maps each entry to its distinct number.
    distinct, which, counts = np.unique(array, return_inverse=True, return_counts=True)
    if len(distinct) < 2:
        return scipy.sparse.csr_array((len(array), 0), dtype=np.float32)
    middles = (np.cumsum(counts) - (counts + 1) / 2) / (len(array) - 1)  # in [0, 1]; equal numbers share a rank
    n_knots = min(_N_KNOTS, len(distinct))
    scaled_ranks = middles[which] * (n_knots - 1)
    below = np.minimum(scaled_ranks.astype(np.int64), n_knots - 2)  # the knot below each rank
    share = scaled_ranks - below  # the weight of the next knot
    data = np.column_stack([1 - share, share]).ravel()
    columns = np.column_stack([below, below + 1]).ravel()
    rows = scipy.sparse.csr_array((data, columns, np.arange(0, 2 * len(array) + 1, 2)), shape=(len(array), n_knots))
    rows.eliminate_zeros()
    return _unit(rows)


def _vectors(name: str, column: Any, positions: np.ndarray | None = None) -> Rows:
    """Scale given vectors to norm 1; zero vectors are unchanged."""
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
    _check_finite(name, array, positions)
    return _unit(scipy.sparse.csr_array(array))


def _check_real(name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers as it has two dimensions, got {array.dtype}; convert them")


def _check_finite(name: str, array: np.ndarray, positions: np.ndarray | None) -> None:
    bad = np.argwhere(~np.isfinite(array))
    if not bad.size:
        return
    index = bad[0].tolist()
    value = array[tuple(bad[0])]
    if positions is not None:
        index[0] = int(positions[index[0]])
    raise _not_finite(f"{name}[{', '.join(map(str, index))}]", value)


def _not_finite(entry: str, value: float) -> ValueError:
    return ValueError(
        f"{entry} must be finite, got {float(value)}; use a number, or None or null if it is unknown (in pandas, "
        ".astype('Int64') or .astype('Float64') converts NaN to null)"
    )


def _unit(rows: Rows) -> Rows:
    """Divide rows by their L2 norms, and drop explicit zeros and empty columns."""
    # The division by the largest entry avoids overflow and underflow of the squares.
    rows.eliminate_zeros()
    n_rows = rows.shape[0]
    lengths = np.diff(rows.indptr)
    largest = np.zeros(n_rows)
    np.maximum.at(largest, np.repeat(np.arange(n_rows), lengths), np.abs(rows.data))
    data = rows.data / np.repeat(largest, lengths)  # at most 1, so that squares do not overflow
    squares = np.bincount(np.repeat(np.arange(n_rows), lengths), weights=data * data, minlength=n_rows)
    data /= np.sqrt(np.repeat(squares, lengths))
    used, columns = np.unique(rows.indices, return_inverse=True)
    shape = (n_rows, len(used))
    return scipy.sparse.csr_array((data.astype(np.float32), columns.reshape(-1), rows.indptr), shape=shape)
