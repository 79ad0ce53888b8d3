"""Outputs of any kind as numbers without loss of information, which the audit counts.

Arrays of numbers stay as they are.  All other outputs, such as Python's integers of any size, lists of varying length,
text and exceptions, are taken apart.  Each becomes a label for its kind, and columns of integers and floats.  The half
of the draws that chooses the event decides the layout of the columns, so the other half stays unseen.
"""

import hashlib
import math
import numbers
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from itertools import groupby, islice
from typing import Any

import numpy as np

from fastfedrec.audit._places import choose_places
from fastfedrec.audit._records import Column, as_list_of_dicts, is_frame, is_labelled, read_table, row_labels
from fastfedrec.core.numbers import show

# Maximum number of columns of outputs that are taken apart; other numbers count only in `keys`.
_N_COLUMNS = 64
# Maximum number of characters of an output in the description of an event.
_N_SHOWN = 60
# Maximum number of bits of an integer that is written in decimal digits.
_MAX_BITS = 10_000
_TEXT = "text of length "
_PLAIN: dict[type, str] = {int: "int", float: "float"}
_MISSING = int(np.iinfo(np.int64).min)
_LARGEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Raised:
    """An exception that is an output, because a failure may depend on the input."""

    error: Exception


@dataclass(frozen=True)
class Outputs:
    """Outputs of one input; slicing selects some of them."""

    # Arrays of shape (n, d), each of one integer or floating type.
    parts: tuple[np.ndarray, ...]
    # Names of the columns of each part.
    names: tuple[tuple[str, ...], ...]
    # Strings of shape (n,): type, length, exception; None if all outputs have one kind.
    labels: np.ndarray | None = None
    # int64 of shape (n,): equal outputs have equal numbers.
    keys: np.ndarray | None = None
    # An output as text, by its key.
    shown: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.parts[0]) if self.labels is None else len(self.labels)

    def __getitem__(self, rows: slice) -> "Outputs":
        labels, keys = (None if values is None else values[rows] for values in (self.labels, self.keys))
        return Outputs(tuple(part[rows] for part in self.parts), self.names, labels, keys, self.shown)

    @property
    def layout(self) -> tuple[Any, ...]:
        """Names and types of all columns."""
        return self.names, tuple(part.dtype for part in self.parts)

    @property
    def n_bytes(self) -> int:
        """Number of bytes of all columns."""
        return sum(part.nbytes for part in self.parts)

    @property
    def n_columns(self) -> int:
        """Number of numbers in an output."""
        return sum(len(names) for names in self.names)


def are_text(outputs: Outputs) -> bool:
    """Return whether each output is text, which is compared as a whole before its letters."""
    return outputs.labels is not None and bool(np.char.startswith(outputs.labels, _TEXT).all())


def read_outputs(raws: Sequence[Any], n: int) -> list[Outputs]:
    """Return the outputs of a mechanism on each of two inputs, `n` on each, in one form for both."""
    tables = [read_table(raw, n) for raw in raws]
    if tables[0] is not None and tables[1] is not None and tables[0].form == tables[1].form:
        return _as_outputs([table.columns for table in tables if table is not None], raws)
    raws = [as_list_of_dicts(raw, n) for raw in raws]
    arrays = [_as_array(raw) for raw in raws]
    for raw in arrays:
        is_array = isinstance(raw, np.ndarray)
        if (raw.ndim == 0) if is_array else not isinstance(raw, list | tuple):
            raise ValueError(f"mechanism must return {n} outputs, one a row, got {show(raw)}")
        if len(raw) != n:
            raise ValueError(f"mechanism must return {n} outputs, one a row, got {raw.shape if is_array else len(raw)}")
    if all(isinstance(raw, np.ndarray) and raw.size == 0 for raw in arrays):
        raise ValueError(f"mechanism must return {n} outputs of at least one number, got shape {arrays[0].shape}")
    types = [_types(raw, array) for raw, array in zip(raws, arrays, strict=True)]
    are_alike = types[0] == types[1]
    if are_alike and all(isinstance(raw, np.ndarray) for raw in arrays):
        rows = [_as_rows(raw) for raw in arrays]
        if arrays[0].shape == arrays[1].shape:
            return rows
    return _take_apart([_one_by_one(raw, array, are_alike) for raw, array in zip(raws, arrays, strict=True)])


def _types(raw: Any, array: Any) -> Any:
    """Return the types of the outputs, which may differ between inputs."""
    if isinstance(raw, list | tuple):
        return {(type(item), item.dtype if isinstance(item, np.ndarray) else None) for item in raw}
    return np.asarray(raw).dtype.newbyteorder("=") if isinstance(array, np.ndarray) else list


def _one_by_one(raw: Any, array: Any, are_alike: bool) -> list[Any]:
    """Return each output as a Python object, or as returned if the types differ."""
    if not isinstance(array, np.ndarray):
        return list(array)
    return array.tolist() if are_alike else list(raw if isinstance(raw, list | tuple) else np.asarray(raw))


def join_outputs(blocks: Sequence[Outputs]) -> Outputs:
    """Return blocks of outputs that have one layout, and neither labels nor keys, as one."""
    parts = (np.concatenate([block.parts[i] for block in blocks]) for i in range(len(blocks[0].parts)))
    return Outputs(tuple(parts), blocks[0].names)


# ---- arrays of numbers ---------------------------------------------------------------------------------------------


def _as_array(raw: Any) -> Any:
    """Return an array if it keeps every number exactly, else a list."""
    # Rows keep the values behind the mask, which single numbers lose.
    if isinstance(raw, np.ma.MaskedArray):
        return [raw[i : i + 1] for i in range(len(raw))] if raw.ndim else raw
    if isinstance(raw, np.ndarray) or hasattr(raw, "__array__"):
        array = np.asarray(raw)
        if array.dtype.kind in "mM":
            array = array.view(np.int64)
        return array if array.dtype.kind in "biufc" or not array.ndim else array.tolist()
    if not isinstance(raw, list | tuple):
        return list(raw) if isinstance(raw, Iterable) and not isinstance(raw, str | bytes) else raw
    kinds = set(map(type, raw))
    if len(kinds) != 1:
        return raw
    kind = kinds.pop()
    if kind in (list, tuple) and len(set(map(len, raw))) == 1:
        kinds = {type(value) for row in raw for value in row}
        kind = kinds.pop() if len(kinds) == 1 else object
    elif kind is np.ndarray:
        alike = len({(row.shape, row.dtype) for row in raw}) == 1 and raw[0].dtype.kind in "biufc"
        return np.stack(raw) if alike else raw
    if kind in (bool, float, complex) or issubclass(kind, np.number | np.bool_):
        return np.array(raw)
    if kind is int:
        try:
            return np.array(raw, dtype=np.int64)
        except OverflowError:
            pass
    return raw


def _as_rows(array: np.ndarray) -> Outputs:
    """Return an array of numbers as one part, a row for each output."""
    rows = array.reshape(len(array), -1)
    rows = rows.astype(rows.dtype.newbyteorder("="), copy=False)
    names = ["output"] if rows.shape[1] == 1 else [f"output[{j}]" for j in range(rows.shape[1])]
    if rows.dtype.kind == "b":
        rows = rows.astype(np.uint8)
    elif rows.dtype.kind == "c":
        rows, names = np.concatenate([rows.real, rows.imag], axis=1), [*names, *(f"imag({name})" for name in names)]
    # Two doubles hold the 64 bits of the mantissa of a long double.
    if rows.dtype.kind == "f" and rows.dtype.itemsize > 8:
        high = rows.astype(np.float64)
        with np.errstate(invalid="ignore"):
            low = (rows - high).astype(np.float64)
        rows, names = np.concatenate([high, low], axis=1), [*names, *(f"rest of {name}" for name in names)]
    return Outputs((rows,), (tuple(names),))


def _as_outputs(columns: Sequence[Sequence[Column]], raws: Sequence[Any]) -> list[Outputs]:
    """Return the columns of both inputs as parts of one type each, with keys if whole outputs repeat."""
    kinds = list(dict.fromkeys(column.numbers.dtype for column in columns[0]))
    names = tuple(tuple(c.name for c in columns[0] if c.numbers.dtype == kind) for kind in kinds)
    parts = [
        tuple(np.column_stack([c.numbers for c in some if c.numbers.dtype == kind]) for kind in kinds)
        for some in columns
    ]
    # Rows of one type are compared as rows by the events of arrays.
    if len(kinds) == 1:
        return [Outputs(some, names) for some in parts]
    rows = np.concatenate([np.concatenate([part.view(np.int64) for part in some], axis=1) for some in parts])
    n = len(rows) // 2
    some = rows[: min(n // 2, 1000)]  # draws that choose the event
    if len(np.unique(some, axis=0)) > len(some) / 2:
        return [Outputs(some, names) for some in parts]
    _, first, keys = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    items = [raw if isinstance(raw, list | tuple) else None for raw in raws]
    shown = {
        key: _short(str(rows[i]) if items[i // n] is None else items[i // n][i % n]) for key, i in enumerate(first)
    }
    keys = keys.reshape(2, n)
    return [Outputs(some, names, None, keys[i], shown) for i, some in enumerate(parts)]


# ---- one output at a time ------------------------------------------------------------------------------------------


def _take_apart(items: list[list[Any]]) -> list[Outputs]:
    """Return outputs of any kind as labels, keys and columns of numbers."""
    read = [[_read(item) for item in some] for some in items]
    half = len(read[0]) // 2
    # Only the half of the draws that chooses the event may decide the columns.
    chosen_on = [some[:half] for some in read]
    is_text = all(label.startswith(_TEXT) for some in chosen_on for label, _, _ in some)
    places = choose_places([[atoms for _, atoms, _ in some] for some in chosen_on], _N_COLUMNS)
    paths = _find_paths([item for some in items for item in some[:half]], places)
    columns, names = _plan([atoms for some in chosen_on for _, atoms, _ in some], is_text, places, paths)
    shown: dict[int, str] = {}
    outputs = []
    for some in read:
        keys = np.array([_key(text, shown) for _, _, text in some], dtype=np.int64)
        labels = np.array([label for label, _, _ in some])
        parts = [
            np.array([[take(atoms) for take in takes] for _, atoms, _ in some], dtype=kind)
            for kind, takes in columns.items()
        ]
        outputs.append(Outputs(tuple(parts), tuple(map(tuple, names.values())), labels, keys, shown))
    return outputs


def _key(text: str, shown: dict[int, str]) -> int:
    """Return a hash of an output's text, and remember a short form of the text."""
    key = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True)
    shown.setdefault(key, _short(text))
    return key


def _short(value: Any) -> str:
    """Return a value as text of limited length."""
    text = value if isinstance(value, str) else _as_text(value)
    return text if len(text) <= _N_SHOWN else text[:_N_SHOWN] + "..."


def _read(item: Any) -> tuple[str, list[Any], str]:
    """Return the label of an output, its numbers, and its whole content as text."""
    if isinstance(item, Raised):
        name = type(item.error).__name__
        return f"raises {name}", [], f"{name}: {item.error}"
    atoms: list[Any] = []
    try:
        label = _flatten(item, atoms)
    except RecursionError:
        raise ValueError(
            f"mechanism must return outputs that are nested less deep, got {type(item).__name__} within "
            f"{type(item).__name__} within ...; flatten them"
        ) from None
    if isinstance(item, str):
        return label, atoms, item
    text = "[" + ", ".join(map(_as_text, atoms)) + "]"
    # The payload of a NaN is only in its bits.
    if "nan" in text:
        text += " " + np.array([atom for atom in atoms if atom != atom]).tobytes().hex()
    return label, atoms, f"{label}: {text}"


def _flatten(item: Any, atoms: list[Any]) -> str:
    """Append the numbers of an output, integers as int and others as float, and return its label."""
    # Most items have these types, and every check below takes longer.
    if type(item) in _PLAIN:
        atoms.append(item)
        return _PLAIN[type(item)]
    if isinstance(item, str):
        atoms += map(ord, item)
        return f"{_TEXT}{len(item)}"
    if type(item) in (list, tuple):
        return f"{type(item).__name__} of length {len(item)}{_flatten_all(item, atoms)}"
    if item is None:
        return "None"
    if isinstance(item, bool | np.bool_):
        atoms.append(int(item))
        return "bool" if isinstance(item, bool) else "numpy bool"
    if isinstance(item, numbers.Integral):
        atoms.append(int(item))
        return type(item).__name__
    if isinstance(item, np.longdouble):
        atoms += [float(item), float(item - np.longdouble(float(item)))]
        return "long double"
    if isinstance(item, numbers.Rational):
        atoms += [_as_float(item), item.numerator, item.denominator]
        return type(item).__name__
    if isinstance(item, Decimal):
        sign, digits, exponent = item.as_tuple()  # also of -0, 1.00 and the kinds of NaN
        kind = exponent if isinstance(exponent, int) else -ord(exponent)
        number = math.nan if item.is_nan() else float(item)  # infinite above the largest float
        atoms += [number, int(Decimal((0, digits, 0))), len(digits), sign, kind]
        return f"Decimal {exponent}" if isinstance(exponent, str) else "Decimal"
    if isinstance(item, numbers.Real):
        atoms.append(float(item))
        return type(item).__name__
    if isinstance(item, numbers.Complex):
        atoms += [float(item.real), float(item.imag)]
        return type(item).__name__
    if isinstance(item, bytes | bytearray | memoryview):
        atoms += bytes(item)
        return f"{type(item).__name__} of length {len(bytes(item))}"
    # The names of columns and rows may depend on the input.
    if is_frame(item):
        names = [str(name) for name in item.columns]
        return f"{type(item).__name__} with the columns {names}{_flatten_all([item[k] for k in item.columns], atoms)}"
    if is_labelled(item):
        form = f"{type(item).__name__} of length {len(item)} and name {item.name}"
        return f"{form}{_flatten_all([np.asarray(item), *row_labels(item)], atoms)}"
    # Both the values behind the mask and the mask itself may depend on the input.
    if isinstance(item, np.ma.MaskedArray):
        return f"masked {_flatten(item.data, atoms)}{_flatten_all(np.ma.getmaskarray(item).ravel().tolist(), atoms)}"
    if isinstance(item, np.ndarray) or hasattr(item, "__array__"):
        array = np.asarray(item)
        dtype = array.dtype.newbyteorder("=")
        array = array.view(np.int64) if array.dtype.kind in "mM" else array
        if array.dtype.kind in "biufcSUO":
            kinds = _flatten_all(array.reshape(-1).tolist(), atoms)
            return f"array of shape {array.shape} and type {dtype}{kinds if array.dtype.kind == 'O' else ''}"
    if isinstance(item, dict):
        return f"{type(item).__name__} of {len(item)}{_flatten_all([v for pair in item.items() for v in pair], atoms)}"
    if is_dataclass(item) and not isinstance(item, type):
        values = [getattr(item, part.name) for part in fields(item)]
        return f"{type(item).__name__}{_flatten_all(values, atoms)}"
    # The order of a set is not a part of its value.
    if isinstance(item, Set):
        return f"{type(item).__name__} of {len(item)}{_flatten_all(sorted(item, key=_as_text), atoms)}"
    if isinstance(item, Sequence):
        return f"{type(item).__name__} of length {len(item)}{_flatten_all(item, atoms)}"
    raise TypeError(
        f"mechanism must return numbers, text, bytes, None, or lists, tuples, sets, dicts, dataclasses, frames and "
        f"arrays of them, got "
        f"{type(item).__name__}; turn its outputs into one of these"
    )


def _flatten_all(items: Sequence[Any], atoms: list[Any]) -> str:
    """Append the numbers of several outputs, and return their kinds."""
    kinds = set(map(type, items))
    if len(kinds) == 1 and (kind := kinds.pop()) in _PLAIN:
        atoms += items
        return f" ({_PLAIN[kind]})"
    runs = [kind for kind, _ in groupby(_flatten(item, atoms) for item in items)]
    return f" ({', '.join(runs[:4])}{', ...' if len(runs) > 4 else ''})" if runs else ""


def _as_float(value: Any) -> float:
    """Return a number as a float; infinite above the largest float."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _as_text(value: Any) -> str:
    """Return `repr` of a value, or hexadecimal digits for integers of thousands of digits, where `repr` raises."""
    return hex(value) if type(value) is int and value.bit_length() > _MAX_BITS else repr(value)


def _find_paths(items: list[Any], places: list[int]) -> dict[int, str]:
    """Return the path of each number of nested outputs, such as "output['n']"; an empty dict for other outputs."""
    if not places or not any(map(_is_nested, items)):
        return {}
    at: dict[int, set[str]] = {j: set() for j in places}
    for item in items:
        if not isinstance(item, Raised):
            for j, path in enumerate(islice(_paths_in(item, "output"), places[-1] + 1)):
                if j in at:
                    at[j].add(path)
    return {j: names.pop() if len(names) == 1 else f"number {j} of the output" for j, names in at.items()}


def _is_nested(item: Any) -> bool:
    """Return whether an output is a dict, or a sequence of sequences."""
    parts = item if isinstance(item, list | tuple) else ()
    return isinstance(item, dict) or any(isinstance(part, dict | list | tuple | np.ndarray) for part in parts)


def _paths_in(item: Any, name: str) -> Iterator[str]:
    """Yield the path of each number that `_flatten` appends, in its order."""
    if isinstance(item, dict):
        for k, (key, value) in enumerate(item.items()):
            yield from _paths_in(key, f"key {k} of {name}")
            yield from _paths_in(value, f"{name}[{_short(_as_text(key))}]")
    elif isinstance(item, list | tuple):
        for k, part in enumerate(item):
            yield from _paths_in(part, f"{name}[{k}]")
    elif type(item) is np.ndarray and item.ndim > 1 and item.dtype.kind in "biuf":
        yield from (f"{name}{list(index)}" for index in np.ndindex(item.shape))
    else:
        atoms: list[Any] = []
        _flatten(item, atoms)
        yield from [name] if len(atoms) == 1 else (f"{name}[{k}]" for k in range(len(atoms)))


def _plan(
    seen: list[list[Any]], is_text: bool, places: list[int], paths: dict[int, str]
) -> tuple[dict[Any, list[Any]], dict[Any, list[str]]]:
    """Return for each type the functions that extract a column's number from an output, and the column names."""
    # If an output has no such number, integers are the smallest int64 and floats are NaN; its label shows this already.
    columns: dict[Any, list[Any]] = {np.int64: [], np.float64: []}
    names: dict[Any, list[str]] = {np.int64: [], np.float64: []}

    def add(kind: Any, name: str, take: Any) -> None:
        columns[kind].append(take)
        names[kind].append(name)

    lengths = {len(atoms) for atoms in seen}
    longest = max(lengths)
    if len(lengths) > 1:
        add(np.int64, "length of the output", len)
    for j in places:
        name = paths[j] if paths else "output" if longest == 1 else f"output[{j}]"
        name = f"ord({name})" if is_text else name
        present = [atoms[j] for atoms in seen if len(atoms) > j]
        integers = [value for value in present if isinstance(value, int)]
        if len(integers) < len(present):
            add(np.float64, name, lambda atoms, j=j: _as_float(atoms[j]) if len(atoms) > j else np.nan)
        if integers:
            _plan_integers(j, name, integers, add)
    if not any(names.values()):
        add(np.int64, "length of the output", len)
    used = [kind for kind in columns if columns[kind]]
    return {kind: columns[kind] for kind in used}, {kind: names[kind] for kind in used}


def _plan_integers(j: int, name: str, integers: list[int], add: Any) -> None:
    """Add the columns of integers: their high bits, and for large integers their low bits."""
    # Integers above 64 bits are centred and shifted, so that their high bits fit into an int64.
    centre = 0 if all(abs(value) <= _LARGEST for value in integers) else integers[0]
    shift = max(max((value - centre).bit_length() for value in integers) - 62, 0)

    def take_high(atoms: list[Any]) -> int:
        if len(atoms) <= j or not isinstance(atoms[j], int):
            return _MISSING
        return max(min((atoms[j] - centre) >> shift, _LARGEST), -_LARGEST)

    def take_low(atoms: list[Any]) -> int:
        return atoms[j] % 2**63 if len(atoms) > j and isinstance(atoms[j], int) else _MISSING

    centred = f"({name} - {_short(centre)})" if centre else name
    add(np.int64, f"{centred} // 2^{shift}" if shift else centred, take_high)
    if shift:
        add(np.int64, f"{name} mod 2^63", take_low)
