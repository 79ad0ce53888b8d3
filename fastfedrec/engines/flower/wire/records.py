"""Conversion of Flower's records to plain arrays and back: kebab-case names, no pickle, bounded sizes."""

import functools
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

__all__ = ["STATE", "array_record", "config_record", "count_bytes", "read_array", "read_arrays", "read_values"]

# Prefix of the names of a state's plain values in a request; a separate record would take more time.
STATE = "state."
# Maximum size of an array's header in bytes.
_MAX_HEADER_BYTES = 10_000


def to_kebab(name: str) -> str:
    """Return a field's name in Flower's spelling."""
    return name.replace("_", "-")


def from_kebab(name: str) -> str:
    """Return a field's name in Python's spelling."""
    return name.replace("-", "_")


def array_record(arrays: Mapping[str, np.ndarray]) -> "ArrayRecord":
    """Return arrays of numbers or text as a record in NumPy's format."""
    from flwr.app import Array, ArrayRecord

    # Filled item by item, since from a dict ArrayRecord would copy each Array.
    record = ArrayRecord()
    for name, array in arrays.items():
        record[to_kebab(name)] = Array(*_write_array(np.ascontiguousarray(array)))
    return record


def _write_array(array: np.ndarray) -> tuple[str, tuple[int, ...], str, bytes]:
    # The same as Flower's own conversion, except that headers are cached between messages.
    if array.dtype.hasobject:
        raise ValueError(f"arrays must be of numbers or text, got {array.dtype}")
    name, header = _write_header(array.dtype.str, array.shape)
    return name, array.shape, "numpy.ndarray", b"".join((header, array.data))  # `+` would copy twice


@functools.lru_cache(maxsize=256)
def _write_header(dtype: str, shape: tuple[int, ...]) -> tuple[str, bytes]:
    """Return a dtype's name and an array's header, which are both slow to make."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return str(np.dtype(dtype)), stream.getvalue()


def config_record(values: Mapping[str, Any]) -> "ConfigRecord":
    """Return plain values (numbers, text, or lists of either) as a record."""
    from flwr.app import ConfigRecord

    return ConfigRecord({to_kebab(name): value for name, value in values.items()})


def read_arrays(record: Any) -> dict[str, np.ndarray]:
    """Return the arrays of an untrusted record, as views of its bytes; raise ValueError for any other content."""
    from flwr.app import ArrayRecord

    if type(record) is not ArrayRecord:
        raise ValueError(f"the record must be an ArrayRecord, got {type(record).__name__}")
    return {from_kebab(name): read_array(name, array) for name, array in record.items()}


def read_array(name: str, array: "Array") -> np.ndarray:
    """Return an untrusted array as a view of its bytes; raise ValueError for any other content."""
    # Not `numpy.load`, which allocates the size that an untrusted header states before it checks the bytes.
    if array.stype != "numpy.ndarray":
        raise ValueError(f"array {name!r} must be serialized as 'numpy.ndarray', got {array.stype!r}")
    # NumPy's format 1.0: a magic string of 6 bytes, 2 of the version, 2 of the header's length, header, entries.
    start = 10 + int.from_bytes(array.data[8:10], "little")
    try:
        version, shape, in_columns, dtype = _read_header(array.data[:start])
    except Exception as error:  # NumPy and Python's parser raise many kinds for a bad header
        raise ValueError(f"array {name!r} must have NumPy's header, got {error or type(error).__name__}") from error
    if version != (1, 0):
        raise ValueError(f"array {name!r} must be in version 1.0 of NumPy's format, got {version}")
    if dtype.kind not in "biufU":
        raise ValueError(f"array {name!r} must be numbers or text, got {dtype.str}")
    size = dtype.itemsize
    for length in shape:
        size *= int(length)
    if size != len(array.data) - start:
        raise ValueError(f"array {name!r} of {dtype} {shape} must have {size} bytes, got {len(array.data) - start}")
    flat = np.frombuffer(array.data, dtype=dtype, offset=start) if size else np.zeros(0, dtype=dtype)
    return flat.reshape(shape, order="F" if in_columns else "C")


# NumPy parses a header as a Python literal, which is slow, and rounds send the same headers.
@functools.lru_cache(maxsize=256)
def _read_header(header: bytes) -> tuple[Any, ...]:
    """Return the version and, if it is 1.0, the shape, whether the order is Fortran's, and the dtype."""
    stream = io.BytesIO(header)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        return version, (), False, np.dtype(bool)
    return version, *np.lib.format.read_array_header_1_0(stream, max_header_size=_MAX_HEADER_BYTES)


def read_values(record: Any) -> dict[str, Any]:
    """Return the values of an untrusted record without checks of their types; raise ValueError for another record."""
    from flwr.app import ConfigRecord

    if type(record) is not ConfigRecord:
        raise ValueError(f"the record must be a ConfigRecord, got {type(record).__name__}")
    return {from_kebab(name): value for name, value in record.items()}


def count_bytes(content: "RecordDict") -> int:
    """Return the size of a message's records in bytes, without the transport's envelope; a number counts as 8."""
    return sum(
        len(name) + sum(len(key) + _size(value) for key, value in record.items()) for name, record in content.items()
    )


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, str | bytes):
        return len(value)
    return len(value.data) if hasattr(value, "data") else 8
