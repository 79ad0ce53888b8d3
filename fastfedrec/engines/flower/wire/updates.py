"""Compact encoding of updates by their rules, which are public and the same for node and server.

64-bit integers are sent with the minimum number of bytes for their bounds.  A field of one integer is sent as eight
bytes among the plain values.  The size of a message thus does not depend on its entries, unlike the size of Flower's
own integers, which take more bytes for larger values.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastfedrec.rounds.system import ArrayRule

__all__ = ["pack_update", "read_update", "split_update"]

# Prefix of the names of fields of one integer.
_NUMBER = "update."
_SENT_NUMBER = np.dtype("<i8")


def pack_update(arrays: Mapping[str, np.ndarray], rules: Mapping[str, ArrayRule]) -> dict[str, np.ndarray]:
    """Return a system's arrays with compact dtypes, and fields of one integer without an axis."""
    # A field that violates its rule stays unchanged, and the server refuses it.
    packed = dict(arrays)
    for name, rule in rules.items():
        kind = _sent_as(rule.dtype, rule.shape, rule.low, rule.high)
        if kind != rule.dtype and rule.violation(arrays.get(name)) is None:
            packed[name] = arrays[name].reshape(()) if kind is None else arrays[name].astype(kind)
    return packed


def split_update(packed: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Split packed fields into arrays, and numbers as bytes for the record of plain values."""
    arrays = {name: array for name, array in packed.items() if array.ndim}
    numbers = {name: array for name, array in packed.items() if not array.ndim}
    return arrays, {f"{_NUMBER}{name}": number.astype(_SENT_NUMBER).tobytes() for name, number in numbers.items()}


def read_update(
    arrays: Mapping[str, np.ndarray], values: Mapping[str, Any], rules: Mapping[str, ArrayRule], largest: int
) -> dict[str, np.ndarray]:
    """Decode untrusted arrays and values of at most `largest` bytes; the rules themselves are not checked here."""
    decoded = dict(arrays)
    size = 0
    for name, array in arrays.items():
        rule = rules.get(name)
        kind = array.dtype if rule is None else _sent_as(rule.dtype, rule.shape, rule.low, rule.high)
        if kind is None:
            raise ValueError(f"field {name!r} must be sent as a number, got an array of {array.dtype}")
        # Only fields with a compact dtype are converted; the rule checks the dtype of all others.
        is_narrow = rule is not None and kind != rule.dtype
        if is_narrow and array.dtype != kind:
            raise ValueError(f"field {name!r} must be sent as {kind}, got an array of {array.dtype}")
        size += array.size * (8 if is_narrow else array.itemsize)
        # Checked before the memory is allocated.
        if size > largest:
            raise ValueError(f"its arrays must have at most {largest} bytes, got {size}")
        if is_narrow:
            decoded[name] = array.astype(np.int64)
    for name, value in values.items():
        if name.startswith(_NUMBER):
            field = name.removeprefix(_NUMBER)
            rule = rules.get(field)
            if rule is None or _sent_as(rule.dtype, rule.shape, rule.low, rule.high) is not None:
                raise ValueError(f"field {field!r} must not be sent as a number")
            if type(value) is not bytes or len(value) != _SENT_NUMBER.itemsize:
                raise ValueError(f"field {field!r} must be sent as 8 bytes, got {str(value)[:50]!r}")
            decoded[field] = np.frombuffer(value, _SENT_NUMBER).astype(np.int64)
    return decoded


# Most rules are the same in all rounds of a run.
@functools.lru_cache(maxsize=256)
def _sent_as(dtype: type, shape: tuple[int | None, ...], low: float | None, high: float | None) -> np.dtype | None:
    """Return the dtype in which entries from `low` to `high` are sent; None for a number that is not an array."""
    if dtype is np.int64 and shape == (1,):
        return None
    if dtype is np.int64 and low is not None and high is not None:
        for kind in (np.int8, np.int16, np.int32):
            if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
                return np.dtype(kind)
    return np.dtype(dtype)
