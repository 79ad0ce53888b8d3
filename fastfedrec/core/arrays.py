"""Arrays as kernels take them: checked row numbers and outputs, distinct numbers, read-only and aligned arrays."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import plain_array

__all__ = [
    "LINE_BYTES",
    "Column",
    "FloatArray",
    "as_uniform",
    "check_mask",
    "check_out",
    "check_rows",
    "distinct",
    "exceed",
    "frozen",
    "read_only",
    "split_permutation",
    "zeros_on_lines",
]

LINE_BYTES = 64  # of a cache


class _SupportsArray(Protocol):
    """A column of a frame, or an array of another library."""

    def __len__(self) -> int:
        """How many entries there are."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """The same as an array."""


#: Ids, values or times, one each.
Column: TypeAlias = Sequence[Hashable] | _SupportsArray
#: Of either type that kernels compute in.
FloatArray: TypeAlias = NDArray[np.float32] | NDArray[np.float64]


def check_rows(name: str, rows: Any, n: int) -> np.ndarray:
    """Row numbers below `n` as int64, or raise."""
    rows = plain_array(name, rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of row numbers, got {rows.dtype} {rows.shape}")
    if rows.size and not (rows.min() >= 0 and rows.max() < n):
        raise ValueError(f"{name} must be from 0 to {n - 1}, got {rows.min()} to {rows.max()}")
    return np.ascontiguousarray(rows, dtype=np.int64)


def check_out(
    out: Any, shape: tuple[int, ...], dtype: type, *, apart_from: np.ndarray | None = None, name: str = "out"
) -> np.ndarray:
    """Return the array that results are written to: a new one where `out` is None, or raise if `out` does not fit.

    Parameters
    ----------
    out : ndarray or None
        What the caller passed.
    shape : tuple of int
        Required shape.
    dtype : type
        Required type.
    apart_from : ndarray or None
        Input that is still read while `out` is written, so the two may not share memory.
    name : str
        The argument's name, for the message.

    Returns
    -------
    ndarray
        Writable and C-contiguous.

    Raises
    ------
    TypeError
        Not an array, or another type.
    ValueError
        Another shape, read-only, strided, or in the memory of `apart_from`.
    """
    if out is None:
        return np.empty(shape, dtype=dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        got = f"an array of {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
        raise TypeError(f"{name} must be an array of {np.dtype(dtype).name}, got {got}; pass None to get a new one")
    if out.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {out.shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError(f"{name} must be C-contiguous and writable; pass None to get a new one")
    if apart_from is not None and np.may_share_memory(out, apart_from):
        raise ValueError(f"{name} must not share memory with the values; pass None to get a new one")
    return out


def check_mask(mask: Any, n: int) -> np.ndarray:
    """A mask of `n` entries, or raise."""
    mask = plain_array("mask", mask)
    if mask.dtype != bool or mask.shape != (n,):
        raise ValueError(f"mask must be bool of shape ({n},), got {mask.dtype} {mask.shape}")
    return mask


def distinct(numbers: np.ndarray) -> np.ndarray:
    """What numbers there are, ascending.

    `np.unique` hashes integers since NumPy 2.3, in twice to 17 times the time of this (16,000 and two million numbers).
    """
    numbers = np.sort(numbers)
    return numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])] if len(numbers) else numbers


def exceed(values: FloatArray, threshold: float) -> NDArray[np.bool_]:
    """Compare values to a threshold as float64 numbers, also where they are stored as float32.

    NumPy would round the threshold to the type of the values.  That type depends on the values of all users.

    Parameters
    ----------
    values : ndarray of shape (n,), float32 or float64
        Finite.
    threshold : float
        Finite.

    Returns
    -------
    ndarray of shape (n,), bool
        True where a value is greater.
    """
    # Let t be the largest number of the storage type that is not above the threshold.  No number of that type lies
    # between t and the threshold, so v > threshold if and only if v > t.
    with np.errstate(over="ignore"):
        rounded = values.dtype.type(threshold)
    if float(rounded) > threshold:
        rounded = np.nextafter(rounded, values.dtype.type(-np.inf))
    return values > rounded


def split_permutation(order: np.ndarray, n_first: int) -> tuple[np.ndarray, np.ndarray]:
    """The first numbers of a permutation and the others, both ascending: by a mask, without a sort."""
    is_first = np.zeros(len(order), dtype=bool)
    is_first[order[:n_first]] = True
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view: Numba compiles once for arrays that may be written to, and once for those that may not."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    """Return an array that no other code holds as a view that is read-only for good, as its owner is."""
    array.flags.writeable = False
    return array.view()


def zeros_on_lines(n_rows: int, n_columns: int, dtype: Any) -> np.ndarray:
    """Zeros that start at a cache line: a vector that lies on two is read and written twice."""
    dtype = np.dtype(dtype)
    memory = np.zeros(n_rows * n_columns + LINE_BYTES // dtype.itemsize, dtype=dtype)
    first = -memory.ctypes.data % LINE_BYTES // dtype.itemsize
    return memory[first : first + n_rows * n_columns].reshape(n_rows, n_columns)


def as_uniform(words: np.ndarray) -> np.ndarray:
    """Numbers in (0, 1) from random words: 52 high bits of each at the middle of their cell, so never 0 and never 1.

    Parameters
    ----------
    words : ndarray of uint64
        As from `Key.words`.

    Returns
    -------
    ndarray of float64
        Same shape; as kernels make them (``_chacha20.pxd``).
    """
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
