"""Numbers as people bring them, in Python's own types, without any rounding: what `check` is built on."""

import math
import numbers
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np

__all__ = ["finite_float", "float_up", "is_exact", "python_number", "renamed", "show", "show_names", "without_array"]

_MOST_DIGITS = 400  # of a Decimal before or after its point: floats end at 309 and 324
_NEAR = 1000  # bits by which a numerator and a denominator differ at most where a float surely holds the quotient
_SHOWN = 100  # characters of a value in a message
_MOST_NAMES = 20  # and names


def float_up(exact: Fraction | int) -> float:
    """The least float that is not below a number.

    Parameters
    ----------
    exact : Fraction or int
        Python's own.

    Returns
    -------
    float
        Infinite beyond the largest float.
    """
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def is_exact(value: Any) -> TypeGuard[Fraction]:
    """Whether a value is what `check_exact` returns without looking closer: for long sequences.

    Parameters
    ----------
    value : object
        Anything.

    Returns
    -------
    bool
        True for a Fraction of Python's integers that a float is surely near.
    """
    if type(value) is not Fraction:
        return False
    above, below = value.numerator, value.denominator
    return type(above) is type(below) is int and -_NEAR < above.bit_length() - below.bit_length() < _NEAR


def python_number(name: str, value: Any) -> int | float | Fraction:
    """The same real number in a type of Python's, without any rounding; NaN and infinities are let through."""
    if type(value) in (int, float):
        return value
    if is_exact(value):
        return value
    value = without_array(value)
    if not isinstance(value, bool | np.bool_ | np.timedelta64):
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Rational):
            # A Fraction made of NumPy's integers keeps them.
            return Fraction(int(value.numerator), int(value.denominator))
        if isinstance(value, np.longdouble) and np.isfinite(value):
            return Fraction(*value.as_integer_ratio())
        if isinstance(value, Decimal):
            return _decimal_number(name, value)
        if isinstance(value, numbers.Real):
            return float(value)
    raise TypeError(f"{name} must be a real number, got {show(value)} ({type(value).__name__}); pass a float")


def _decimal_number(name: str, value: Decimal) -> float | Fraction:
    if value.is_nan():  # float() would raise for a signalling one
        return math.nan
    if not value.is_finite():
        return float(value)
    if value and abs(value.adjusted()) > _MOST_DIGITS:  # before 10 is raised to an exponent of any size
        raise ValueError(f"{name} must be within the range of floats, got {show(value)}; pass an ordinary number")
    return Fraction(value) if value else 0.0


def finite_float(name: str, number: int | float | Fraction) -> float:
    """The nearest float of an exact number; what is beyond all floats is refused by name."""
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
    """What an array without dimensions holds; anything else, and an array whose number is masked, as it is."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def show(value: Any) -> str:
    """What a message says it got: short, whatever was passed."""
    try:
        shown = repr(value) if not isinstance(value, float | Fraction) else str(value)
    except Exception:  # an int of 5,000 digits raises, as may anybody's own __repr__
        shown = f"{type(value).__name__} that cannot be printed"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def show_names(names: Iterable[object]) -> str:
    """Name what there is, in an error's message, however many there are and however long they are.

    Parameters
    ----------
    names : iterable of object
        Such as those of all columns of a file.

    Returns
    -------
    str
        As a list is written, cut.

    Examples
    --------
    >>> from fastfedrec.core.numbers import show_names
    >>> show_names(["user", "item"])
    "['user', 'item']"
    >>> show_names(range(1000))
    '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ... (1,000 in all)]'
    """
    names = list(names)
    shown = [show(name) for name in names[:_MOST_NAMES]]
    if len(names) > _MOST_NAMES:
        shown.append(f"... ({len(names):,} in all)")
    return f"[{', '.join(shown)}]"


@contextmanager
def renamed(inner: str, outer: str) -> Iterator[None]:
    """Let a refusal inside a `with` block name what the caller passed (`outer`), not what was made of it (`inner`)."""
    try:
        yield
    except ValueError as error:
        error.args = (re.sub(rf"\b{re.escape(inner)}\b", lambda _: outer, str(error)),)
        raise  # the same error, with all that it carries
