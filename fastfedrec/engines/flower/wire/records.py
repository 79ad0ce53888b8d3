"""Flower's records to plain arrays and back: kebab-case names, nothing pickled, nothing read beyond a bound."""

import functools
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

__all__ = ["STATE", "array_record", "config_record", "count_bytes", "read_arrays", "read_values"]

STATE = "state."  # begins the names of a state's plain values among a request's; each record more takes its time
_LONGEST_HEADER = 10_000


def to_kebab(name: str) -> str:
    """A field's name as Flower's users write it."""
    return name.replace("_", "-")


def from_kebab(name: str) -> str:
    """And back."""
    return name.replace("-", "_")


def array_record(arrays: Mapping[str, np.ndarray]) -> "ArrayRecord":
    """Arrays as a record.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Of numbers or text.

    Returns
    -------
    flwr.app.ArrayRecord
        In NumPy's own format.
    """
    from flwr.app import Array, ArrayRecord

    record = ArrayRecord()  # one by one: of a dict it would make each Array a second time
    for name, array in arrays.items():
        record[to_kebab(name)] = Array(*_write_array(np.ascontiguousarray(array)))
    return record


def _write_array(array: np.ndarray) -> tuple[str, tuple[int, ...], str, bytes]:
    # What Flower makes of an array, but that the same header is not put together again for each message.
    if array.dtype.hasobject:
        raise ValueError(f"arrays must be of numbers or text, got {array.dtype}")
    name, header = _write_header(array.dtype.str, array.shape)
    return name, array.shape, "numpy.ndarray", b"".join((header, array.data))  # one copy: a sum takes two


@functools.lru_cache(maxsize=256)
def _write_header(dtype: str, shape: tuple[int, ...]) -> tuple[str, bytes]:
    """A type's name, which takes NumPy as long as a header takes to be found again, and the header."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return str(np.dtype(dtype)), stream.getvalue()


def config_record(values: Mapping[str, Any]) -> "ConfigRecord":
    """Plain values as a record.

    Parameters
    ----------
    values : mapping of str to object
        Numbers, text, or lists of one of them.

    Returns
    -------
    flwr.app.ConfigRecord
        Of the same values.
    """
    from flwr.app import ConfigRecord

    return ConfigRecord({to_kebab(name): value for name, value in values.items()})


def read_arrays(record: Any) -> dict[str, np.ndarray]:
    """The arrays of a record that a stranger sent.

    Parameters
    ----------
    record : object
        An ArrayRecord, if it is sound.

    Returns
    -------
    dict of str to ndarray
        Their bytes are those of the message, so this takes no memory that the message did not.

    Raises
    ------
    ValueError
        Another record, a format that is not NumPy's, objects, or a header that does not fit the bytes behind it.
    """
    from flwr.app import ArrayRecord

    if type(record) is not ArrayRecord:
        raise ValueError(f"must be an ArrayRecord, got {type(record).__name__}")
    return {from_kebab(name): _read_array(name, array) for name, array in record.items()}


def _read_array(name: str, array: "Array") -> np.ndarray:
    # Not numpy.load: it would make room for whatever size the header claims before it looks at the bytes.
    if array.stype != "numpy.ndarray":
        raise ValueError(f"array {name!r} is serialized as {array.stype!r}")
    start = 10 + int.from_bytes(array.data[8:10], "little")
    try:
        version, shape, in_columns, dtype = _read_header(array.data[:start])
    except Exception as error:  # whatever a header that is none makes NumPy and Python's parser raise
        raise ValueError(f"array {name!r} has no header of NumPy's ({error or type(error).__name__})") from error
    if version != (1, 0):
        raise ValueError(f"array {name!r} is of another version of NumPy's format")
    if dtype.kind not in "biufU":
        raise ValueError(f"array {name!r} must be numbers or text, got {dtype.str}")
    size = dtype.itemsize
    for length in shape:
        size *= int(length)
    if size != len(array.data) - start:
        raise ValueError(f"array {name!r} of {dtype} {shape} has {len(array.data) - start} bytes")
    flat = np.frombuffer(array.data, dtype=dtype, offset=start) if size else np.zeros(0, dtype=dtype)
    return flat.reshape(shape, order="F" if in_columns else "C")


@functools.lru_cache(maxsize=256)  # NumPy compiles each header as a program, and rounds send the same ones
def _read_header(header: bytes) -> tuple[Any, ...]:
    """Version and, if that is 1.0, shape, whether it goes by columns, and type."""
    stream = io.BytesIO(header)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        return version, (), False, np.dtype(bool)
    return version, *np.lib.format.read_array_header_1_0(stream, max_header_size=_LONGEST_HEADER)


def read_values(record: Any) -> dict[str, Any]:
    """The values of a record that a stranger sent.

    Parameters
    ----------
    record : object
        A ConfigRecord, if it is sound.

    Returns
    -------
    dict of str to object
        As sent; whoever uses one checks its type.

    Raises
    ------
    ValueError
        Another record.
    """
    from flwr.app import ConfigRecord

    if type(record) is not ConfigRecord:
        raise ValueError(f"must be a ConfigRecord, got {type(record).__name__}")
    return {from_kebab(name): value for name, value in record.items()}


def count_bytes(content: "RecordDict") -> int:
    """Bytes of a message's records: names, arrays as serialized, 8 for a number; the transport's envelope is apart.

    Parameters
    ----------
    content : flwr.app.RecordDict
        A message's content; nothing in it is decoded.

    Returns
    -------
    int
        At least 0.
    """
    return sum(
        len(name) + sum(len(key) + _size(value) for key, value in record.items()) for name, record in content.items()
    )


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, str | bytes):
        return len(value)
    return len(value.data) if hasattr(value, "data") else 8
