"""Outputs of one form as columns, without a loop over the numbers: dicts, dataclasses, frames, tensors and tuples.

A form is all that the outputs have in common: types, keys, lengths and constants.  `_outputs` reads outputs of
several forms.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

# Maximum number of characters of a key in the name of a column.
_N_SHOWN = 60
# Maximum length of a list that is read as columns.
_N_PLACES = 64


class Column(NamedTuple):
    """One number of each output: its name and an int64, float32 or float64 array of shape (n,)."""

    name: str
    numbers: np.ndarray


class Table(NamedTuple):
    """Outputs of one form: a description of the form and the columns."""

    form: tuple[Any, ...]
    columns: list[Column]


class _SeveralForms(Exception):
    """The outputs have no common form that this module can read."""


_UNREADABLE = (_SeveralForms, OverflowError, RecursionError)


def read_table(raw: Any, n: int) -> Table | None:
    """Return `n` outputs as columns, or None if they have several forms or need no columns."""
    columns: list[Column] = []
    try:
        if (batch := _read_batch(raw, n)) is not None:
            parts = ((key, _read_array(array, f"output[{_short(key)}]", columns)) for key, array in batch.items())
            form: tuple[Any, ...] = type(raw), tuple(parts)
        elif isinstance(raw, list | tuple) and len(raw) == n and raw and _is_record(raw[0]):
            # The half of the draws that chooses the event decides the form, so the other half stays unseen.
            half = max(n // 2, 1)
            form = _read(raw[:half], "output", columns)
            rest = _read_rest(raw[half:], form, columns)
            columns = [
                Column(name, np.append(numbers, more)) for (name, numbers), more in zip(columns, rest, strict=True)
            ]
        else:
            return None
    except _UNREADABLE:
        return None
    return Table(form, columns) if columns else None


def _read_rest(items: Sequence[Any], form: tuple[Any, ...], columns: list[Column]) -> list[np.ndarray]:
    """Return the numbers of further outputs; outputs of another form have the smallest int64 and NaN."""
    more: list[Column] = []
    try:
        if _read(items, "output", more) == form:
            return [column.numbers for column in more]
    except _UNREADABLE:
        pass
    kinds = [column.numbers.dtype for column in columns]
    missing = [np.iinfo(np.int64).min if kind.kind == "i" else np.nan for kind in kinds]
    rows = [_read_single(item, form) or missing for item in items]
    return [np.array([row[j] for row in rows], dtype=kind) for j, kind in enumerate(kinds)]


def _read_single(item: Any, form: tuple[Any, ...]) -> list[Any] | None:
    """Return the numbers of an output, or None if it has another form."""
    columns: list[Column] = []
    try:
        return [column.numbers[0] for column in columns] if _read([item], "output", columns) == form else None
    except _UNREADABLE:
        return None


def as_list_of_dicts(raw: Any, n: int) -> Any:
    """Return a dict of columns, a frame or a labelled series as a list of dicts, because its names are outputs too."""
    batch = _read_batch(raw, n)
    return raw if batch is None else [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]


def _read_batch(raw: Any, n: int) -> dict[Any, np.ndarray] | None:
    """Return the columns of a dict of columns, a frame or a labelled series with an output in each row, or None."""
    batch: dict[Any, np.ndarray] = {}
    labels = row_labels(raw) if is_labelled(raw) else ()
    # Labels that only number the rows depend on no input.
    has_labels = labels != tuple(range(len(labels)))
    if is_frame(raw) or (isinstance(raw, dict) and all(np.ndim(values) > 0 for values in raw.values())):
        for key in raw.keys() if isinstance(raw, dict) else raw.columns:
            values = raw[key]
            batch[key] = array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
            if array.shape[:1] != (n,):
                raise ValueError(
                    f"mechanism must return {n} outputs, one a row, got column {key!r} of shape {array.shape}"
                )
    elif has_labels:
        batch["value"] = raw.to_numpy()
    else:
        return None
    if has_labels:
        name = "row label"
        while name in batch:
            name += "'"
        batch[name] = np.array(labels, dtype=object)  # numbers and text keep their types
    return batch


def _is_record(item: Any) -> bool:
    """Return whether an output has parts that this module names or stacks."""
    if isinstance(item, list | tuple):
        return len(set(map(type, item))) > 1 or any(isinstance(part, list | tuple) or _is_named(part) for part in item)
    return _is_named(item)


def _is_named(item: Any) -> bool:
    """Return whether an output is a dict, a dataclass, a frame, a series or a tensor."""
    return type(item) is dict or _is_dataclass(item) or is_labelled(item) or _is_tensor(item)


def _is_dataclass(item: Any) -> bool:
    """Return whether an object is an instance of a dataclass."""
    return is_dataclass(item) and not isinstance(item, type)


def is_frame(item: Any) -> bool:
    """Return whether an object is a data frame of pandas, polars or the like."""
    return hasattr(item, "columns") and hasattr(item, "shape") and hasattr(type(item), "__getitem__")


def is_labelled(item: Any) -> bool:
    """Return whether an object is a data frame or a series."""
    return is_frame(item) or (hasattr(item, "to_numpy") and hasattr(item, "name"))


def row_labels(item: Any) -> tuple[Any, ...]:
    """Return the labels of the rows of a data frame or a series, if its library has any."""
    index = getattr(item, "index", None)
    if index is None or callable(index):
        return ()
    labels = np.asarray(index)
    labels = labels.view(np.int64) if labels.dtype.kind in "mM" else labels
    # A NaN differs from itself, and labels may be objects such as intervals.
    is_plain = [isinstance(label, int | float | str) and label == label for label in labels.tolist()]
    return tuple(label if plain else repr(label) for label, plain in zip(labels.tolist(), is_plain, strict=True))


def _is_tensor(item: Any) -> bool:
    """Return whether an object is an array of another library."""
    return not isinstance(item, np.ndarray | np.generic) and hasattr(item, "__array__") and hasattr(item, "shape")


def _read(items: Sequence[Any], name: str, columns: list[Column]) -> tuple[Any, ...]:
    """Append the columns of outputs of one form, and return the form."""
    kind = _only(map(type, items))
    if kind in (int, bool):
        columns.append(Column(name, np.array(items, dtype=np.int64)))
        return (kind,)
    if kind is float:
        columns.append(Column(name, np.array(items, dtype=np.float64)))
        return (kind,)
    if kind in (str, bytes, type(None)):
        return kind, _only(items)
    if kind is dict:
        keys = _only(map(tuple, items))
        return kind, keys, _read_parts(items, keys, lambda item, key: item[key], name, "[{}]", columns)
    if kind in (list, tuple):
        places = range(_only(map(len, items)))
        if len(places) > _N_PLACES:
            raise _SeveralForms
        return kind, _read_parts(items, places, lambda item, i: item[i], name, "[{}]", columns)
    first = items[0]
    if _is_dataclass(first) or hasattr(kind, "_fields"):
        names = kind._fields if hasattr(kind, "_fields") else [field.name for field in fields(first)]
        return kind, _read_parts(items, names, getattr, name, ".{}", columns)
    if is_frame(first):
        keys, labels = _only((tuple(item.columns), row_labels(item)) for item in items)
        parts = _read_parts(items, keys, lambda item, key: item[key].to_numpy(), name, "[{}]", columns)
        return kind, keys, labels, parts
    if is_labelled(first):
        _only(item.name for item in items)
        labels = _only(map(row_labels, items))
        names = [f"{name}[{_short(label)}]" for label in labels]
        return kind, labels, _read_stack([item.to_numpy() for item in items], name, columns, names)
    if isinstance(first, np.ndarray | np.generic) or _is_tensor(first):
        if isinstance(first, np.ma.MaskedArray):
            raise _SeveralForms
        return kind, _read_stack([np.asarray(item) for item in items], name, columns, [])
    raise _SeveralForms


def _only(values: Any) -> Any:
    """Return the single distinct value, or raise if there are several."""
    try:
        distinct = set(values)
    except TypeError:  # values that cannot be hashed
        raise _SeveralForms from None
    if len(distinct) != 1:
        raise _SeveralForms
    return distinct.pop()


def _read_parts(
    items: Sequence[Any],
    keys: Sequence[Any],
    take: Callable[[Any, Any], Any],
    name: str,
    pattern: str,
    columns: list[Column],
) -> tuple[Any, ...]:
    """Append the columns of all parts of the outputs, and return the forms of the parts."""
    # Names of fields are written as they are, and keys as Python shows them.
    words = [key if pattern[0] == "." else _short(key) for key in keys]
    return tuple(
        _read([take(item, key) for item in items], name + pattern.format(word), columns)
        for key, word in zip(keys, words, strict=True)
    )


def _read_stack(arrays: list[np.ndarray], name: str, columns: list[Column], names: list[str]) -> tuple[Any, ...]:
    """Append the columns of arrays of one shape and type."""
    _only((array.shape, array.dtype) for array in arrays)
    return _read_array(np.stack(arrays), name, columns, names)


def _read_array(array: np.ndarray, name: str, columns: list[Column], names: Sequence[str] = ()) -> tuple[Any, ...]:
    """Append the columns of an array with one output in each row."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8 or array.dtype == np.uint64:
        if array.dtype.kind == "O" and array.ndim == 1:
            return _read(array.tolist(), name, columns)
        raise _SeveralForms
    shape = array.shape[1:]
    if not names:
        names = [name + (str(list(index)) if index else "") for index in np.ndindex(shape)]
    rows = array.reshape(len(array), -1)
    kind = np.int64 if array.dtype.kind in "biu" else np.float64
    columns += [Column(column, rows[:, j].astype(kind)) for j, column in enumerate(names)]
    return str(array.dtype.newbyteorder("=")), shape


def _short(key: Any) -> str:
    """Return a key as text of limited length."""
    text = repr(key)
    return text if len(text) <= _N_SHOWN else text[:_N_SHOWN] + "..."
