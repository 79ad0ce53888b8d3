"""States as plain arrays and plain values: what a dataclass declares is all that is written, and all that is read.

Fields of these types are known: ndarray, int, float, str, bool, and tuples of int or of str.  Anything else is refused
by name, in both directions; nothing is ever unpickled.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_origin, get_type_hints

import numpy as np

__all__ = ["decode_state", "encode_state"]

_ONE_OF: dict[Any, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    # type: what is sent, how it is written, how it is read.  64-bit words do not fit the transports' signed integers.
    int: (str, str, int),
    float: (float, float, float),
    str: (str, str, str),
    bool: (bool, bool, bool),
}
_TUPLE_OF: dict[Any, type] = {tuple[int, ...]: int, tuple[str, ...]: str}


def encode_state(state: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Take a dataclass apart.

    Parameters
    ----------
    state : dataclass
        Of fields that are known.

    Returns
    -------
    arrays : dict of str to ndarray
        Its arrays.
    values : dict of str to (str, float, bool or list of str)
        All else; integers as decimal text.

    Raises
    ------
    TypeError
        A field that is not known, or does not hold what it declares.
    """
    arrays: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    own: type = type(state)
    for name, kind in _declared(own).items():
        value: Any = getattr(state, name)
        item = _TUPLE_OF.get(kind)
        wanted: Any = tuple if item else kind
        if type(value) is not wanted or (item and any(type(entry) is not item for entry in value)):
            raise TypeError(f"{type(state).__name__}.{name} must be {kind}, got {value!r}")
        if kind is np.ndarray:
            if value.dtype.kind not in "biufU":
                raise TypeError(f"{type(state).__name__}.{name} must be numbers or text, got dtype {value.dtype}")
            arrays[name] = value
        elif item:
            values[name] = [_ONE_OF[item][1](entry) for entry in value]
        else:
            values[name] = _ONE_OF[kind][1](value)
    return arrays, values


def decode_state(kind: type, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> Any:
    """Put together what `encode_state` took apart.

    Parameters
    ----------
    kind : type
        The dataclass, which the reader knows; a message never names it.
    arrays : mapping of str to ndarray
        As written.
    values : mapping of str to object
        As written.

    Returns
    -------
    dataclass
        Equal to what was written.

    Raises
    ------
    ValueError
        Missing or additional fields, or a value of another type.
    """
    declared = _declared(kind)
    wanted = {name for name, hint in declared.items() if hint is np.ndarray}
    if set(arrays) != wanted or set(values) != set(declared) - wanted:
        raise ValueError(
            f"{kind.__name__} has the fields {sorted(declared)}, got {sorted(map(str, [*arrays, *values]))}"
        )
    return kind(**arrays, **{name: _read(f"{kind.__name__}.{name}", declared[name], values[name]) for name in values})


def _read(name: str, kind: Any, value: Any) -> Any:
    item = _TUPLE_OF.get(kind)
    if item:
        if type(value) is not list:
            raise ValueError(f"{name} must be a list, got {type(value).__name__}")
        return tuple(_read(name, item, entry) for entry in value)
    sent, _, read = _ONE_OF[kind]
    if type(value) is not sent:
        raise ValueError(f"{name} must be sent as {sent.__name__}, got {type(value).__name__}")
    if kind is int and (len(value) > 40 or not value.removeprefix("-").isdecimal()):
        raise ValueError(f"{name} must be a whole number of at most 40 digits, got {value[:50]!r}")
    return read(value)


@functools.lru_cache(maxsize=64)  # a class's declarations stay, and every message of a round looks them up
def _declared(kind: type) -> Mapping[str, Any]:
    """Name and type of each field, all of them known."""
    if not is_dataclass(kind):
        raise TypeError(f"a state must be a dataclass, got {kind.__name__}")
    hints = get_type_hints(kind)
    declared = {field.name: _without_dtype(hints[field.name]) for field in fields(kind)}
    for name, hint in declared.items():
        if hint is not np.ndarray and hint not in _ONE_OF and hint not in _TUPLE_OF:
            raise TypeError(f"{kind.__name__}.{name} is declared as {hint}, which has no plain form here")
    return declared


def _without_dtype(hint: Any) -> Any:
    """Return ``ndarray`` for an array of any dtype, and every other type as it is."""
    while hasattr(hint, "__value__"):  # a type alias, as NDArray is since NumPy 2.5
        hint = hint.__value__
    return np.ndarray if get_origin(hint) is np.ndarray else hint
