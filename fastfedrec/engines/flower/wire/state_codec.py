"""Encoding of states as plain arrays and plain values, by the declared fields of their dataclass.

Supported types of fields are ndarray, int, float, str, bool, and tuples of int or of str.  All other fields are
refused in both directions, and pickle is never used.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_origin, get_type_hints

import numpy as np

__all__ = ["decode_state", "encode_state"]

# The sent type, encoder and decoder of each type.
_CODECS: dict[Any, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    # Integers are sent as text, since unsigned 64-bit words do not fit the transport's signed integers.
    int: (str, str, int),
    float: (float, float, float),
    str: (str, str, str),
    bool: (bool, bool, bool),
}
# Types of the items of tuples.
_TUPLE_ITEMS: dict[Any, type] = {tuple[int, ...]: int, tuple[str, ...]: str}


def encode_state(state: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return a dataclass as arrays and plain values; raise TypeError for an unsupported field or a wrong type."""
    arrays: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    state_type: type = type(state)
    for name, kind in _declared(state_type).items():
        value: Any = getattr(state, name)
        item = _TUPLE_ITEMS.get(kind)
        expected: Any = tuple if item else kind
        if type(value) is not expected or (item and any(type(entry) is not item for entry in value)):
            raise TypeError(f"{type(state).__name__}.{name} must be {kind}, got {value!r}")
        if kind is np.ndarray:
            if value.dtype.kind not in "biufU":
                raise TypeError(f"{type(state).__name__}.{name} must be numbers or text, got dtype {value.dtype}")
            arrays[name] = value
        elif item:
            values[name] = [_CODECS[item][1](entry) for entry in value]
        else:
            values[name] = _CODECS[kind][1](value)
    return arrays, values


def decode_state(kind: type, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> Any:
    """Return a dataclass from the output of `encode_state`; raise ValueError for other fields or types."""
    # The reader knows the class; a message never names one.
    declared = _declared(kind)
    array_names = {name for name, hint in declared.items() if hint is np.ndarray}
    if set(arrays) != array_names or set(values) != set(declared) - array_names:
        raise ValueError(
            f"{kind.__name__} must have the fields {sorted(declared)}, got {sorted(map(str, [*arrays, *values]))}"
        )
    return kind(**arrays, **{name: _read(f"{kind.__name__}.{name}", declared[name], values[name]) for name in values})


def _read(name: str, kind: Any, value: Any) -> Any:
    item = _TUPLE_ITEMS.get(kind)
    if item:
        if type(value) is not list:
            raise ValueError(f"{name} must be a list, got {type(value).__name__}")
        return tuple(_read(name, item, entry) for entry in value)
    sent, _, read = _CODECS[kind]
    if type(value) is not sent:
        raise ValueError(f"{name} must be sent as {sent.__name__}, got {type(value).__name__}")
    # The limit of digits bounds the time of the conversion.
    if kind is int and (len(value) > 40 or not value.removeprefix("-").isdecimal()):
        raise ValueError(f"{name} must be a whole number of at most 40 digits, got {value[:50]!r}")
    return read(value)


# A class's fields do not change, and every message of a round needs them.
@functools.lru_cache(maxsize=64)
def _declared(kind: type) -> Mapping[str, Any]:
    """Return the name and type of each field; raise TypeError for an unsupported type."""
    if not is_dataclass(kind):
        raise TypeError(f"a state must be a dataclass, got {kind.__name__}")
    hints = get_type_hints(kind)
    declared = {field.name: _without_dtype(hints[field.name]) for field in fields(kind)}
    for name, hint in declared.items():
        if hint is not np.ndarray and hint not in _CODECS and hint not in _TUPLE_ITEMS:
            raise TypeError(f"{kind.__name__}.{name} must have a supported type, got {hint}")
    return declared


def _without_dtype(hint: Any) -> Any:
    """Return ``ndarray`` for an array of any dtype, and every other type as it is."""
    while hasattr(hint, "__value__"):  # a type alias, as NDArray is since NumPy 2.5
        hint = hint.__value__
    return np.ndarray if get_origin(hint) is np.ndarray else hint
