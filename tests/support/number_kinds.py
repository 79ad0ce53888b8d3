"""Numbers in every type that holds them, values that are no numbers, and results with the types of their numbers."""

import functools
import math
import types
from decimal import Decimal
from fractions import Fraction

import numpy as np

INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float16, np.float32, np.float64, np.longdouble)


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def kinds_of(value):
    """Return (label, value) for each type that holds the same number exactly."""
    wholes = [kind for kind in INTEGERS if value == int(value) and np.iinfo(kind).min <= value <= np.iinfo(kind).max]
    kinds = wholes if isinstance(value, int) else [*FLOATS, Fraction, Decimal]
    for kind in kinds:
        yield kind.__name__, kind(value)
        if kind not in (Fraction, Decimal):
            yield f"{kind.__name__} array", np.array(value, dtype=kind)


def wrong_kinds(value):
    """Return (label, value) for values that are no number, or no usable one."""
    yield from (("bool", True), ("numpy bool", np.True_), ("bool array", np.array(True)), ("text", str(value)))
    yield from (("complex", complex(value)), ("duration", np.timedelta64(5, "s")))
    yield from (
        ("nan", math.nan),
        ("infinity", math.inf),
        ("numpy nan", np.float16("nan")),
        ("decimal", Decimal("sNaN")),
    )
    yield from (("huge fraction", Fraction(10**400)), ("huge decimal", Decimal("1e999999")))


def fingerprint(value, seen=()):
    """Return a description of a result, with the types of all numbers in it."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes() if value.dtype != object else tuple(map(repr, value.flat))
    if value is None or isinstance(value, bool | int | float | str | bytes | Fraction | np.generic):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return "seen"
    seen = (*seen, id(value))
    if isinstance(value, dict):
        return [(fingerprint(key, seen), fingerprint(held, seen)) for key, held in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__name__, [fingerprint(held, seen) for held in value]
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType | functools.partial):
        return repr(type(value))
    held = getattr(value, "__dict__", None)
    if held is None:
        slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return type(value).__name__, fingerprint(dict(held), seen)
