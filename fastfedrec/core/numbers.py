"""Conversion of numbers of any library to Python's own types without rounding, as the basis of `check`."""

import math
import numbers
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np

__all__ = [
    "finite_float",
    "float_up",
    "is_exact",
    "python_number",
    "renamed",
    "show",
    "show_names",
    "unquoted",
    "without_array",
]

_MAX_DIGITS = 400  # digits of a Decimal before or after its point; floats have at most 309 and 324
_MAX_BIT_DIFFERENCE = 1000  # between numerator and denominator; their quotient is then in the range of floats
_MAX_CHARACTERS = 100  # characters of a value in a message
_NUMBER = re.compile(r"\s*[+-]?\d{1,20}(\.\d{0,20})?\s*", re.ASCII)  # a text that a remedy may repeat
_MAX_NAMES = 20  # names in a message


def float_up(exact: Fraction | int) -> float:
    """Return the smallest float that is not below an exact number; infinity if no float is."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def is_exact(value: Any) -> TypeGuard[Fraction]:
    """Return whether a value is a Fraction of Python ints that a float surely approximates."""
    # `check_exact` returns such a value unchanged; this quick test serves long sequences.
    if type(value) is not Fraction:
        return False
    above, below = value.numerator, value.denominator
    return type(above) is type(below) is int and abs(above.bit_length() - below.bit_length()) < _MAX_BIT_DIFFERENCE


def python_number(name: str, value: Any) -> int | float | Fraction:
    """Convert a real number to a Python type without rounding; NaN and infinities pass."""
    if type(value) in (int, float):
        return value
    if is_exact(value):
        return value
    value = without_array(value)
    if not isinstance(value, bool | np.bool_ | np.timedelta64):
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Rational):
            # A Fraction of NumPy's integers has NumPy's types, which overflow.
            return Fraction(int(value.numerator), int(value.denominator))
        if isinstance(value, np.longdouble) and np.isfinite(value):
            return Fraction(*value.as_integer_ratio())
        if isinstance(value, Decimal):
            return _decimal_number(name, value)
        if isinstance(value, numbers.Real):
            return float(value)
    raise TypeError(
        f"{name} must be a real number, got {show(value)} ({type(value).__name__}); pass {unquoted(value, 'a float')}"
    )


def unquoted(value: Any, kind: str) -> str:
    """Return the number that a text holds, for a remedy, or the name of the kind of number."""
    return f"{value.strip()} without quotes" if isinstance(value, str) and _NUMBER.fullmatch(value) else kind


def _decimal_number(name: str, value: Decimal) -> float | Fraction:
    if value.is_nan():  # float() raises an error for a signalling NaN
        return math.nan
    if not value.is_finite():
        return float(value)
    # The check precedes the conversion, which would compute 10 to the power of an exponent of any size.
    if value and abs(value.adjusted()) > _MAX_DIGITS:
        raise ValueError(f"{name} must be within the range of floats, got {show(value)}; pass an ordinary number")
    return Fraction(value) if value else 0.0


def finite_float(name: str, number: int | float | Fraction) -> float:
    """Return the nearest float of an exact number, or raise an error that names the argument for an overflow."""
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf
    if not math.isfinite(nearest):
        raise ValueError(f"{name} must be finite, got {show(number)}; pass an ordinary number")
    if nearest == 0 and number != 0:
        raise ValueError(f"{name} must be within the range of floats, got {show(number)}; pass 0 or a larger number")
    return nearest


def without_array(value: Any) -> Any:
    """Return the number in a zero-dimensional array, and any other value unchanged, also one with a masked number."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def show(value: Any) -> str:
    """Return a short text of a value for an error message."""
    try:
        shown = repr(value) if not isinstance(value, float | Fraction) else str(value)
    except Exception:  # raised by an int of 5,000 digits, or by a faulty __repr__
        shown = f"{type(value).__name__} that cannot be printed"
    return shown if len(shown) <= _MAX_CHARACTERS else f"{shown[:_MAX_CHARACTERS]}..."


def show_names(names: Iterable[object]) -> str:
    """Return a list of names for an error message, cut after `_MAX_NAMES` names."""
    names = list(names)
    shown = [show(name) for name in names[:_MAX_NAMES]]
    if len(names) > _MAX_NAMES:
        shown.append(f"... ({len(names):,} in all)")
    return f"[{', '.join(shown)}]"


@contextmanager
def renamed(inner: str, outer: str) -> Iterator[None]:
    """Replace `inner` by `outer` in errors of a `with` block, so that they name the caller's argument."""
    try:
        yield
    except ValueError as error:
        error.args = (re.sub(rf"\b{re.escape(inner)}\b", lambda _: outer, str(error)),)
        raise  # the same object, with its traceback and notes
