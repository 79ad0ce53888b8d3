"""Every check of a public argument: each error names the argument, what it got, and what to do.

A number is converted here, once, to Python's int, float or Fraction, whatever type it comes in: NumPy's integers wrap,
also inside a Fraction, and are not JSON.
"""

import operator
from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.core._exchange import host_array
from fastfedrec.core.numbers import finite_float, is_exact, python_number, show, without_array

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

LARGEST_INTEGER = 2**63 - 1  # more than any kernel, array or file takes


def check_integer(name: str, value: Any, *, low: int | None = None, high: int | None = LARGEST_INTEGER) -> int:
    """Return `value` as an int between `low` and `high`, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        Any integer type, or an array of one without dimensions; bool is refused.
    low, high : int or None
        Inclusive bounds; None for none.

    Returns
    -------
    int
        The same number as a Python int.

    Raises
    ------
    TypeError
        Not an integer.
    ValueError
        Outside the bounds.
    """
    if type(value) is not int:
        scalar = without_array(value)
        try:
            if isinstance(scalar, bool | np.bool_ | np.ndarray):
                raise TypeError
            value = operator.index(scalar)
        except TypeError:
            got = f"{show(value)} ({type(value).__name__})"
            raise TypeError(f"{name} must be an integer, got {got}; pass a whole number") from None
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
    """Return `value` as a finite float between `low` and `high`, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        Any real number, a Fraction, a Decimal, or an array of one without dimensions; bool, NaN and infinities are
        refused, and so is what a float would make 0 or infinite.
    low, high : float or None
        Bounds.
    exclusive : bool
        Whether the bounds themselves are refused.

    Returns
    -------
    float
        The nearest Python float.

    Raises
    ------
    TypeError
        Not a real number.
    ValueError
        Not finite, or outside the bounds.
    """
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
    """Return `value` as exactly the rational number it is, between `low` and `high`, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        What `check_real` takes; a float counts as the binary fraction it is, a Decimal as the decimal one.
    low, high : float or None
        Bounds.
    exclusive : bool
        Whether the bounds themselves are refused.

    Returns
    -------
    Fraction
        The same number, of two Python ints; a float is near it.

    Raises
    ------
    TypeError
        Not a real number.
    ValueError
        Not finite, beyond the range of floats, or outside the bounds.
    """
    number = python_number(name, value)
    if not is_exact(number):
        finite_float(name, number)
    exact = number if isinstance(number, Fraction) else Fraction(number)
    _check_bounds(name, exact, low, high, exclusive)
    return exact


def _check_bounds(name: str, value: Any, low: float | None, high: float | None, exclusive: bool = False) -> None:
    if low is not None and (value < low or (exclusive and value == low)):
        raise ValueError(f"{name} must be {'greater than' if exclusive else 'at least'} {low}, got {show(value)}")
    if high is not None and (value > high or (exclusive and value == high)):
        raise ValueError(f"{name} must be {'less than' if exclusive else 'at most'} {high}, got {show(value)}")


def check_epsilon(name: str, value: Any) -> float:
    """Return a privacy parameter epsilon (nats), or raise unless it is finite and positive.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        A real number above 0.

    Returns
    -------
    float
        The nearest Python float.
    """
    return check_real(name, value, low=0.0, exclusive=True)


def check_noise_epsilon(name: str, value: Any) -> float:
    """Return an epsilon by which noise is scaled, or raise unless its quotients and multiples are numbers."""
    return check_real(name, value, low=1e-100, high=1e100)


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        What the caller passed.
    choices : collection of str
        What is allowed.

    Returns
    -------
    str
        The same word as a Python str.

    Raises
    ------
    ValueError
        Anything else.
    """
    if not isinstance(value, str) or value not in choices:
        from fastfedrec.core.text import did_you_mean  # only an error needs it

        meant = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {show(value)}{meant}")
    return value if type(value) is str else next(choice for choice in choices if choice == value)


def check_flag(name: str, value: Any) -> bool:
    """Return a bool, or raise: a truthy string or array is a mistake, not a flag.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        What the caller passed.

    Returns
    -------
    bool
        The same as a Python bool.

    Raises
    ------
    TypeError
        Not a bool.
    """
    flag = without_array(value)
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {show(value)} ({type(value).__name__})")
    return bool(flag)


def check_instance(name: str, value: Any, kind: type, remedy: str) -> Any:
    """Return `value` if it is a `kind`, or raise with the remedy.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        What the caller passed.
    kind : type
        The class it must be an instance of.
    remedy : str
        What to do instead.

    Returns
    -------
    object
        The value itself.

    Raises
    ------
    TypeError
        Anything else.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}, got {type(value).__name__}; {remedy}")
    return value


def check_callback(name: str, value: Any) -> Callable[..., Any] | None:
    """Return what is to be called after each round, or raise before anything is spent.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        What the caller passed.

    Returns
    -------
    callable or None
        The value itself.

    Raises
    ------
    TypeError
        Neither a callable nor None.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, got {show(value)} ({type(value).__name__}); pass a function or None")
    return value


def plain_array(name: str, value: Any, *, missing: bool = False) -> np.ndarray:
    """Return what the caller passed as a NumPy array in the machine's byte order, or raise where an entry is missing.

    NumPy takes what a mask hides and what a null stands for as if it were there.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : array_like
        Also a masked array without a hidden entry, a column of pandas, polars or pyarrow, and an array of PyTorch, JAX
        or another library in the CPU's memory, which is not copied where NumPy has its type.
    missing : bool
        Whether a column may have missing entries, which become what NumPy makes of them (NaN, NaT).

    Returns
    -------
    ndarray
        A copy only where one is needed.

    Raises
    ------
    ValueError
        A hidden or missing entry; the first is named by its position.
    """
    if type(value) is np.ndarray:  # most are: nothing is to cost them anything
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, np.ndarray):
        absent, remedy = getattr(value, "mask", False), "drop it, or put a value there and pass the array's .data"
    else:
        # pandas has isna, polars and pyarrow is_null.  A NaN among NumPy's floats is a number, which callers look at.
        ask = getattr(value, "isna", None) or getattr(value, "is_null", None)
        number = isinstance(dtype := getattr(value, "dtype", None), np.dtype) and dtype.kind == "f"
        try:
            absent = False if ask is None or missing or number else np.asarray(ask())
        except NotImplementedError:  # of a pandas.MultiIndex, whose entries are tuples
            absent = False
        remedy = "drop it, or put a value there"
    if np.any(absent):
        where = np.argwhere(np.broadcast_to(absent, np.shape(value)))[0].tolist()
        raise ValueError(f"{name}[{', '.join(map(str, where))}] is missing (masked or null); {remedy}")
    array = np.asarray(value) if isinstance(value, np.ndarray) else host_array(name, value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def check_fits(name: str, integers: np.ndarray, dtype: type) -> None:
    """Raise where an integer would have to be rounded to become a float.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    integers : ndarray
        Of any integer type.
    dtype : type
        A floating type.
    """
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
    """Return a finite, C-contiguous array of one of `dtypes`, or raise.

    Integers become the last of `dtypes` where they fit exactly; read-only and strided input is accepted.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : array_like
        What the caller passed.
    ndim : int
        Required number of dimensions.
    shape : tuple of (int or None) or None
        Required lengths; None leaves an axis free.
    dtypes : collection of type
        Floating types that are kept as they are.
    finite : bool
        False where the kernel looks for NaN and infinities itself, and its caller calls again if there are any.

    Returns
    -------
    ndarray
        Contiguous; a copy only where one is needed.

    Raises
    ------
    TypeError
        Not numeric, or a type that would have to be rounded.
    ValueError
        Wrong shape, NaN or infinite entries.
    """
    array = plain_array(name, value)
    if array.dtype.type not in dtypes:
        if array.dtype.kind not in "iu":
            names = " or ".join(np.dtype(d).name for d in dtypes)
            raise TypeError(f"{name} must be an array of {names}, got dtype {array.dtype}; convert it with .astype")
        check_fits(name, array, list(dtypes)[-1])
        array = array.astype(list(dtypes)[-1])
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    if shape is not None and any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        wanted = tuple("any" if want is None else want for want in shape)
        raise ValueError(f"{name} must have shape {wanted}, got {array.shape}")
    if finite and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at {where}; remove or replace it")
    return np.ascontiguousarray(array)
