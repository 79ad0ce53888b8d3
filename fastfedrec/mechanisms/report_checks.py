"""Checks of the mechanisms' arrays: grids of values, codes (values numbered from 0), and arrays of reports."""

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
    "as_codes",
    "check_codes",
    "check_grid",
    "check_integers",
    "check_reals",
    "code_types",
    "draws_reports",
    "fill_missing",
    "python_numbers",
    "report_array",
]

#: Parameters that all methods that draw reports from a key share.
draws_reports = shares_docstring("""\
key : Key or None
    Source of the bits; None draws a new key from entropy.  An entropy key serves one call.
round : int
    Round number, a part of the stream's name; use a new number for each call under one seed.
n_threads : int
    Number of threads, 0 for all; the bits do not depend on it.""")

#: Integer types that the samplers read and write.  Reports have the smallest one that holds them, by default.
CODES = (np.uint8, np.uint16, np.int32, np.int64)

#: Remedy for codes that are not integers.
NUMBERING = "number the possible values from 0"


def check_grid(name: str, grid: int | Sequence[float], *, high: int) -> tuple[Fraction, ...]:
    """Return 2 to `high` finite, increasing values as exact numbers; an integer n means 0, 1, ..., n - 1."""
    if isinstance(grid, str) or not isinstance(grid, Iterable) or np.ndim(grid) == 0:
        return tuple(map(Fraction, range(check_integer(name, grid, low=2, high=high))))
    values = tuple(check_exact(f"{name}[{i}]", v) for i, v in enumerate(grid))
    if not 2 <= len(values) <= high or any(a >= b for a, b in itertools.pairwise(values)):
        shown = [float(v) for v in values]
        raise ValueError(f"{name} must be 2 to {high} increasing numbers, got {len(values)}: {shown}")
    return values


def fill_missing(values: ArrayLike) -> ArrayLike:
    """Return values with 0 for each missing entry (masked, null, None, or missing in pandas or NumPy)."""
    # Whether a client answers must not depend on its data, so a missing entry is no error.
    if isinstance(values, list | tuple):
        if all(issubclass(kind, int | float | np.generic) for kind in set(map(type, values))):
            return values  # a list of numbers is not copied
        return [0 if _is_missing(value) else fill_missing(value) for value in values]  # type: ignore[return-value]
    if isinstance(values, np.ma.MaskedArray):
        return values.filled(0)
    dtype = getattr(values, "dtype", getattr(values, "type", None))
    fill = getattr(values, "fill_null", None) or getattr(values, "fillna", None)  # polars and pyarrow, or pandas
    if fill is None or isinstance(dtype, np.dtype) or hasattr(dtype, "categories"):
        return values
    return fill(0)  # type: ignore[no-any-return]


def _is_missing(entry: Any) -> bool:
    # pandas is no dependency, so its types are compared by name.
    return entry is None or entry is np.ma.masked or type(entry).__name__ in ("NAType", "NaTType")


def check_integers(name: str, values: ArrayLike, remedy: str) -> np.ndarray:
    """Return an array of integers, or raise with the remedy; an empty array may have any type."""
    array = plain_array(name, values)
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and array.dtype != np.uint64):
        return array
    # NumPy turns Python's integers beyond int64 into uint64, floats or objects.  All are clipped to the same range, so
    # that the scores or sums of neighbouring data sets do not move further apart.
    if (numbers := python_numbers(values, int)) is not None:
        return np.clip(numbers, -(2**63), 2**63 - 1).astype(np.int64)
    if array.dtype == np.uint64:
        return array
    if array.size:
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}; {remedy}")
    return array.astype(np.int64)


def check_reals(name: str, values: ArrayLike, remedy: str) -> np.ndarray:
    """Return an array of float32, or of float64 for any other real type, or raise with the remedy."""
    array = plain_array(name, values)
    if array.dtype.kind not in "iuf" and array.size:
        numbers = python_numbers(values, int | float)
        if numbers is None:
            raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}; {remedy}")
        array = np.clip(numbers, -(2**1000), 2**1000)  # a larger integer has no double
    if array.dtype in (np.float32, np.float64):
        return array
    with np.errstate(over="ignore"):  # a wider type may overflow; a warning would depend on private values
        return array.astype(np.float64)


def python_numbers(values: ArrayLike, kinds: Any) -> np.ndarray | None:
    """Return Python's numbers of the allowed types as an array of objects; None for arrays and other entries."""
    if hasattr(values, "__array__"):  # arrays and columns have a type already
        return None
    numbers = np.array(values, dtype=object)
    return numbers if all(isinstance(v, kinds) and not isinstance(v, bool) for v in numbers.flat) else None


def check_codes(name: str, values: ArrayLike, n_codes: int) -> np.ndarray:
    """Return reports as a contiguous array of a type of `CODES`, or raise for one outside [0, n_codes)."""
    # Reports are released, so an error may depend on them.
    values = check_integers(name, values, NUMBERING)
    if values.size and (values.min() < 0 or values.max() >= n_codes):
        raise ValueError(f"{name} must be in [0, {n_codes}), got {values.min()} to {values.max()}")
    return as_codes(values)


def as_codes(values: np.ndarray) -> np.ndarray:
    """Return integers as a contiguous array of a type of `CODES`; those above int64 become the largest one."""
    # Whether and when a client answers must not depend on its data: no private value is refused, and samplers clip.
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(2**63 - 1))
    return np.asarray(values, dtype=values.dtype if values.dtype.type in CODES else np.int64, order="C")


def code_types(n_codes: int) -> list[type]:
    """Return the types of `CODES` that hold n_codes - 1, the smallest one first."""
    return [kind for kind in CODES if n_codes - 1 <= np.iinfo(kind).max]


def report_array(
    out: np.ndarray | None, values: np.ndarray, dtypes: Sequence[type], shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Return the output array of the reports: `out` after a check, or a new array of the first type for None."""
    shape = values.shape if shape is None else shape
    dtype, in_place = dtypes[0], False
    if isinstance(out, np.ndarray):
        dtype = next((kind for kind in dtypes if out.dtype == kind), dtype)
        # `out` may be `values` itself, but no other array that overlaps it.
        in_place = (out.ctypes.data, out.dtype, out.shape) == (values.ctypes.data, values.dtype, values.shape)
    return check_out(out, shape, dtype, apart_from=None if in_place else values)
