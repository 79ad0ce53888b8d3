"""Checks of public arguments; each error states the argument, the value and the remedy.

Every number is converted here to Python's int, float or Fraction.  NumPy's integers overflow silently, even inside a
Fraction, and are not JSON.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.core._exchange import PYTHON_TYPES, host_array
from fastfedrec.core.numbers import finite_float, is_exact, python_number, show, unquoted, without_array

__all__ = [
    "LARGEST_INTEGER",
    "check_array",
    "check_callback",
    "check_choice",
    "check_epsilon",
    "check_exact",
    "check_fits",
    "check_flag",
    "check_instance",
    "check_integer",
    "check_noise_epsilon",
    "check_real",
    "plain_array",
]

LARGEST_INTEGER = 2**63 - 1  # limit of int64, the widest integer of kernels, arrays and files


def check_integer(name: str, value: Any, *, low: int | None = None, high: int | None = LARGEST_INTEGER) -> int:
    """Return `value` as a Python int between `low` and `high` (inclusive), or raise a TypeError or ValueError."""
    # Accepted are scalars of any integer type and zero-dimensional arrays; a bool is probably a mistake.
    if type(value) is not int:
        scalar = without_array(value)
        try:
            if isinstance(scalar, bool | np.bool_ | np.ndarray):
                raise TypeError
            value = operator.index(scalar)
        except TypeError:
            got = f"{show(value)} ({type(value).__name__})"
            raise TypeError(f"{name} must be an integer, got {got}; pass {unquoted(value, 'a whole number')}") from None
    _check_bounds(name, value, low, high)
    return value


def check_real(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    exclusive: bool = False,
) -> float:
    """Return `value` as a finite float between `low` and `high`, or raise a TypeError or ValueError."""
    # Accepted are real numbers of any type, also Fraction, Decimal and zero-dimensional arrays.  A bool, NaN, infinity
    # and a number that underflows to 0 or overflows as a float are rejected.
    number = finite_float(name, python_number(name, value))
    _check_bounds(name, number, low, high, exclusive)
    return number


def check_exact(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    exclusive: bool = False,
) -> Fraction:
    """Return `value` as the exact rational number that it is, between `low` and `high`, or raise."""
    # A float is its binary fraction and a Decimal its decimal one; the result must be within the range of floats.
    number = python_number(name, value)
    if not is_exact(number):
        finite_float(name, number)
    exact = number if isinstance(number, Fraction) else Fraction(number)
    _check_bounds(name, exact, low, high, exclusive)
    return exact


def _check_bounds(name: str, value: Any, low: float | None, high: float | None, exclusive: bool = False) -> None:
    if low is not None and (value < low or (exclusive and value == low)):
        bound, remedy = f"{'greater than' if exclusive else 'at least'} {low}", ""
        if name == "epsilon":  # 0 is the first value that a reader of the definition tries
            remedy = "; pass for example 1.0, and use a baseline such as EASE for a model without privacy"
        raise ValueError(f"{name} must be {bound}, got {show(value)}{remedy}")
    if high is not None and (value > high or (exclusive and value == high)):
        raise ValueError(f"{name} must be {'less than' if exclusive else 'at most'} {high}, got {show(value)}")


def check_epsilon(name: str, value: Any) -> float:
    """Return a privacy parameter epsilon (in nats) as a float, or raise unless it is finite and above 0."""
    return check_real(name, value, low=0.0, exclusive=True)


def check_noise_epsilon(name: str, value: Any) -> float:
    """Return an epsilon that scales noise, or raise unless its quotients and multiples are finite and above 0."""
    return check_real(name, value, low=1e-100, high=1e100)


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` as a Python str if it is one of `choices`, or raise a ValueError.

    Values of a mapping that are texts are the meanings of its choices, for the error.
    """
    if not isinstance(value, str) or value not in choices:
        from fastfedrec.core.text import did_you_mean  # imported only for an error

        meant = did_you_mean(value, choices) if isinstance(value, str) else ""
        meanings = choices if isinstance(choices, Mapping) else {}
        shown = [repr(c) + (f" ({meanings[c]})" if isinstance(meanings.get(c), str) else "") for c in choices]
        raise ValueError(f"{name} must be one of {', '.join(shown)}, got {show(value)}{meant}")
    return value if type(value) is str else next(choice for choice in choices if choice == value)


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as a Python bool, or raise a TypeError."""
    # A string or an array may be truthy by mistake, so only bool and NumPy's bool are accepted.
    flag = without_array(value)
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {show(value)} ({type(value).__name__})")
    return bool(flag)


def check_instance(name: str, value: Any, kind: type, remedy: str) -> Any:
    """Return `value` if it is an instance of `kind`, or raise a TypeError with the remedy."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}, got {type(value).__name__}; {remedy}")
    return value


def check_callback(name: str, value: Any) -> Callable[..., Any] | None:
    """Return a callable or None, or raise a TypeError before any privacy budget is spent."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, got {show(value)} ({type(value).__name__}); pass a function or None")
    return value


def plain_array(name: str, value: Any, *, missing: bool = False) -> np.ndarray:
    """Return `value` as a NumPy array in native byte order, or raise an error that names the first missing entry."""
    # NumPy reads a masked or null entry as if it were present.  With `missing` such entries become NaN or NaT.  Arrays
    # of other libraries in CPU memory are read without a copy if NumPy has their type.
    if type(value) is np.ndarray:  # the fast path of most calls
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if type(value) in PYTHON_TYPES:
        return host_array(name, value)
    if isinstance(value, np.ndarray):
        absent, remedy = getattr(value, "mask", False), "drop it, or put a value there and pass the array's .data"
    else:
        # pandas has isna, polars and pyarrow is_null.  NaN in NumPy's floats is a number, which callers check.
        is_null = getattr(value, "isna", None) or getattr(value, "is_null", None)
        number = isinstance(dtype := getattr(value, "dtype", None), np.dtype) and dtype.kind == "f"
        try:
            absent = False if is_null is None or missing or number else np.asarray(is_null())
        except NotImplementedError:  # a pandas.MultiIndex of tuples
            absent = False
        remedy = "drop it, or put a value there"
    if absent is not False and np.any(absent):
        position = np.argwhere(np.broadcast_to(absent, np.shape(value)))[0].tolist()
        raise ValueError(f"{name}[{', '.join(map(str, position))}] is missing (masked or null); {remedy}")
    array = np.asarray(value) if isinstance(value, np.ndarray) else host_array(name, value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def check_fits(name: str, integers: np.ndarray, dtype: type) -> None:
    """Raise a TypeError if `dtype`, a floating type, would round one of the integers."""
    # A float with m stored bits of its mantissa holds every integer up to 2^(m + 1).
    exact = 2 ** (np.finfo(dtype).nmant + 1)
    if not integers.size or np.iinfo(integers.dtype).max <= exact:
        return
    for number in {int(integers.min()), int(integers.max())}:
        if abs(number) > exact:
            raise TypeError(
                f"{name} must be whole numbers of at most {exact}, which {np.dtype(dtype).name} holds exactly, got "
                f"{number}; convert it with .astype if it may be rounded"
            )


def check_array(
    name: str,
    value: Any,
    *,
    ndim: int,
    shape: tuple[int | None, ...] | None = None,
    dtypes: Collection[type] = (np.float32, np.float64),
    finite: bool = True,
) -> np.ndarray:
    """Return a finite, C-contiguous array of one of `dtypes`, or raise a TypeError or ValueError."""
    # Integers become the last of `dtypes` if it holds them exactly, and None in `shape` accepts any length.  With
    # finite=False the kernel checks for NaN and infinities, and the caller calls this function again if it finds any.
    array = plain_array(name, value)
    if array.dtype.type not in dtypes:
        if array.dtype.kind not in "iu":
            names = " or ".join(np.dtype(d).name for d in dtypes)
            raise TypeError(f"{name} must be an array of {names}, got dtype {array.dtype}; convert it with .astype")
        check_fits(name, array, list(dtypes)[-1])
        array = array.astype(list(dtypes)[-1])
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    if shape is not None and any(length not in (None, got) for length, got in zip(shape, array.shape, strict=True)):
        required = tuple("any" if length is None else length for length in shape)
        raise ValueError(f"{name} must have shape {required}, got {array.shape}")
    if finite and not np.isfinite(array).all():
        position = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[position]} at {position}; remove or replace it")
    return np.ascontiguousarray(array)
