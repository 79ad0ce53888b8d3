"""Checks of the arrays of mechanisms: grids of values, codes of values numbered from 0, and arrays of reports."""

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.arrays import check_out
from fastfedrec.core.check import check_exact, check_integer, plain_array
from fastfedrec.core.docstrings import shares_docstring

__all__ = [
    "CODES",
    "NUMBERING",
    "check_codes",
    "check_grid",
    "check_integers",
    "check_reals",
    "clip_codes",
    "code_type",
    "draws_reports",
    "present",
    "python_numbers",
    "report_array",
]

#: Of a method that draws reports from a key, its docstring's part that all of them have in common.
draws_reports = shares_docstring("""\
key : Key or None
    Source of the bits; None draws a new one from entropy.  An entropy key serves one call.
round : int
    Part of the stream's name; use a new one for each call under one seed.
n_threads : int
    0 for all; the bits do not depend on it.""")

#: Integer types the samplers read and write; the least that holds a report is used where the caller does not choose.
CODES = (np.uint8, np.uint16, np.int32, np.int64)

#: Remedy where codes are no integers.
NUMBERING = "number the possible values from 0"


def check_grid(name: str, grid: int | Sequence[float], *, high: int) -> tuple[Fraction, ...]:
    """Return the values of a grid as exact numbers, or raise unless they are finite and increase.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    grid : int or sequence of numbers
        An integer n stands for 0, 1, ..., n - 1; a float is taken exactly.
    high : int
        The most values allowed; the least is 2.

    Returns
    -------
    tuple of Fraction
        The values.
    """
    if isinstance(grid, str) or not isinstance(grid, Iterable) or np.ndim(grid) == 0:
        return tuple(map(Fraction, range(check_integer(name, grid, low=2, high=high))))
    values = tuple(check_exact(f"{name}[{i}]", v) for i, v in enumerate(grid))
    if not 2 <= len(values) <= high or any(a >= b for a, b in itertools.pairwise(values)):
        shown = [float(v) for v in values]
        raise ValueError(f"{name} must be 2 to {high} increasing numbers, got {len(values)}: {shown}")
    return values


def present(values: ArrayLike) -> ArrayLike:
    """Return values with 0 in place of missing entries, since whether a client answers must not depend on its data.

    Parameters
    ----------
    values : array_like
        What is privatized.  Entries are missing where a mask hides them, where a column holds a null, or where a list
        holds None or a missing value of pandas or NumPy.

    Returns
    -------
    array_like
        Other values as they are.
    """
    if isinstance(values, list | tuple):
        if all(issubclass(kind, int | float | np.generic) for kind in set(map(type, values))):
            return values  # as a long list of numbers is; no copy
        return [0 if _is_missing(value) else present(value) for value in values]  # type: ignore[return-value]
    if isinstance(values, np.ma.MaskedArray):
        return values.filled(0)
    dtype = getattr(values, "dtype", getattr(values, "type", None))
    fill = getattr(values, "fill_null", None) or getattr(values, "fillna", None)  # polars and pyarrow, or pandas
    if fill is None or isinstance(dtype, np.dtype) or hasattr(dtype, "categories"):
        return values
    return fill(0)  # type: ignore[no-any-return]


def _is_missing(entry: Any) -> bool:
    # By name, since pandas is no dependency.
    return entry is None or entry is np.ma.masked or type(entry).__name__ in ("NAType", "NaTType")


def check_integers(name: str, values: ArrayLike, remedy: str) -> np.ndarray:
    """Return an array of integers, or raise with the remedy; one without entries may have any type.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    values : array_like of int
        Any shape; bool is refused.  An int of Python beyond 64 bits counts as the nearest of those.
    remedy : str
        What to do instead.

    Returns
    -------
    ndarray
        Of any integer type.
    """
    array = plain_array(name, values)
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and array.dtype != np.uint64):
        return array
    # NumPy makes uint64, floats or objects of Python's integers beyond int64.  All are clipped to one range, since
    # scores or sums of neighbours that are 1 apart must not come further apart.
    if (numbers := python_numbers(values, int)) is not None:
        return np.clip(numbers, -(2**63), 2**63 - 1).astype(np.int64)
    if array.dtype == np.uint64:
        return array
    if array.size:
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}; {remedy}")
    return array.astype(np.int64)


def check_reals(name: str, values: ArrayLike, remedy: str) -> np.ndarray:
    """Return an array of float32, or of float64 for any other real type, or raise with the remedy.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    values : array_like of float or int
        Any shape; bool is refused.
    remedy : str
        What to do instead.

    Returns
    -------
    ndarray
        Copied where it is not float32 or float64.
    """
    array = plain_array(name, values)
    if array.dtype.kind not in "iuf" and array.size:
        numbers = python_numbers(values, int | float)
        if numbers is None:
            raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}; {remedy}")
        array = np.clip(numbers, -(2**1000), 2**1000)
    with np.errstate(over="ignore"):  # a wider type's numbers may become infinite, and no warning depends on them
        return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def python_numbers(values: ArrayLike, kinds: Any) -> np.ndarray | None:
    """Return numbers of Python, one of which is too large for NumPy, as objects; None where there are others.

    Parameters
    ----------
    values : array_like
        As the caller passed it.  Arrays and columns have a type of their own, and are none.
    kinds : type or union of types
        Allowed ones; bool is none.

    Returns
    -------
    ndarray of object, or None
        In the shape of `values`.
    """
    if hasattr(values, "__array__"):
        return None
    numbers = np.array(values, dtype=object)
    return numbers if all(isinstance(v, kinds) and not isinstance(v, bool) for v in numbers.flat) else None


def check_codes(name: str, values: ArrayLike, n_codes: int) -> np.ndarray:
    """Return a contiguous array of integers in [0, n_codes), or raise; of reports, which are private no more.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    values : array_like of int
        Of type uint8, uint16, int32 or int64 it is not copied.
    n_codes : int
        How many values there are.

    Returns
    -------
    ndarray
        Of one of the four types.
    """
    values = check_integers(name, values, NUMBERING)
    if values.size and (values.min() < 0 or values.max() >= n_codes):
        raise ValueError(f"{name} must lie in [0, {n_codes}), got {values.min()} to {values.max()}")
    return _as_codes(values)


def clip_codes(values: np.ndarray, n_codes: int) -> np.ndarray:
    """Return a contiguous array of integers in [0, n_codes), to which others are clipped; of what is privatized.

    Whether a client answers must not depend on its data, so no value is refused.

    Parameters
    ----------
    values : ndarray of int
        Of type uint8, uint16, int32 or int64, and within the range, it is not copied.
    n_codes : int
        How many values there are.

    Returns
    -------
    ndarray
        Of one of the four types.
    """
    if values.size and (values.min() < 0 or values.max() >= n_codes):
        values = values.clip(0, min(n_codes - 1, np.iinfo(values.dtype).max))
    return _as_codes(values)


def _as_codes(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=values.dtype if values.dtype.type in CODES else np.int64, order="C")


def code_type(n_codes: int) -> type:
    """The least of the samplers' integer types that holds n_codes - 1.

    Parameters
    ----------
    n_codes : int
        How many different reports there are.

    Returns
    -------
    type
        A NumPy type.
    """
    return next(kind for kind in CODES if n_codes - 1 <= np.iinfo(kind).max)


def report_array(
    out: np.ndarray | None, values: np.ndarray, dtypes: Sequence[type], shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Return the array that reports are written into, or raise: `out` where it is fit for that, else a new one.

    Parameters
    ----------
    out : ndarray or None
        The caller's.
    values : ndarray
        What is privatized; `out` may be this very array, and no other that overlaps it.
    dtypes : sequence of type
        Allowed types, the first of them the default.
    shape : tuple of int or None
        Of the reports; None for the shape of `values`.

    Returns
    -------
    ndarray
        Writable and C-contiguous.
    """
    shape = values.shape if shape is None else shape
    dtype, in_place = dtypes[0], False
    if isinstance(out, np.ndarray):
        dtype = next((kind for kind in dtypes if out.dtype == kind), dtype)
        in_place = (out.ctypes.data, out.dtype, out.shape) == (values.ctypes.data, values.dtype, values.shape)
    return check_out(out, shape, dtype, apart_from=None if in_place else values)
