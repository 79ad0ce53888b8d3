"""Arrays for kernels: checked row numbers and outputs, distinct numbers, read-only and aligned arrays."""

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

LINE_BYTES = 64  # size of a cache line


class _SupportsArray(Protocol):
    """A column of a frame, or an array of another library."""

    def __len__(self) -> int:
        """Return the number of entries."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the entries as an array."""


#: Ids, values or times, one each.
Column: TypeAlias = Sequence[Hashable] | _SupportsArray
#: An array of either type in which kernels compute.
FloatArray: TypeAlias = NDArray[np.float32] | NDArray[np.float64]


def check_rows(name: str, rows: Any, n: int) -> np.ndarray:
    """Return row numbers as int64, or raise unless all are in [0, n)."""
    rows = plain_array(name, rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of row numbers, got {rows.dtype} {rows.shape}")
    if rows.size and not (rows.min() >= 0 and rows.max() < n):
        raise ValueError(f"{name} must be from 0 to {n - 1}, got {rows.min()} to {rows.max()}")
    return np.ascontiguousarray(rows, dtype=np.int64)


def check_out(
    out: Any, shape: tuple[int, ...], dtype: type, *, apart_from: np.ndarray | None = None, name: str = "out"
) -> np.ndarray:
    """Return the output array, a new one if `out` is None, or raise if `out` does not fit."""
    # `apart_from` is an input that a kernel reads while it writes to the output, so the two must not share memory.
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
    """Return a bool mask of `n` entries, or raise."""
    mask = plain_array("mask", mask)
    if mask.dtype != bool or mask.shape != (n,):
        raise ValueError(f"mask must be bool of shape ({n},), got {mask.dtype} {mask.shape}")
    return mask


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the distinct numbers in ascending order."""
    # Since NumPy 2.3 `np.unique` hashes integers, which takes twice as long as this sort for 16,000 numbers and 17
    # times as long for 2 million.
    numbers = np.sort(numbers)
    return numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])] if len(numbers) else numbers


def exceed(values: FloatArray, threshold: float) -> NDArray[np.bool_]:
    """Compare finite values with a threshold as float64 numbers, even if the values are stored as float32."""
    # NumPy would round the threshold to the type of the values, which depends on the values of all users.
    # Let t be the largest number of the storage type that is not above the threshold.  No number of that type is
    # between t and the threshold, so v > threshold if and only if v > t.
    with np.errstate(over="ignore"):
        rounded = values.dtype.type(threshold)
    if float(rounded) > threshold:
        rounded = np.nextafter(rounded, values.dtype.type(-np.inf))
    return values > rounded


def split_permutation(order: np.ndarray, n_first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `n_first` numbers of a permutation and the remaining ones, both ascending, without a sort."""
    is_first = np.zeros(len(order), dtype=bool)
    is_first[order[:n_first]] = True
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view, because Numba compiles a function a second time for a writable array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a permanently read-only view of an array to which no other code has a reference."""
    array.flags.writeable = False
    return array.view()


def zeros_on_lines(n_rows: int, n_columns: int, dtype: Any) -> np.ndarray:
    """Return zeros that start at a cache line, because access to a vector across two lines takes twice as long."""
    dtype = np.dtype(dtype)
    memory = np.zeros(n_rows * n_columns + LINE_BYTES // dtype.itemsize, dtype=dtype)
    first = -memory.ctypes.data % LINE_BYTES // dtype.itemsize
    return memory[first : first + n_rows * n_columns].reshape(n_rows, n_columns)


def as_uniform(words: np.ndarray) -> np.ndarray:
    """Convert random uint64 words to doubles in (0, 1) with 52 random bits each."""
    # Each number is at the middle of one of 2^52 cells, so it is never 0 or 1.  Kernels compute the same numbers
    # (`_chacha20.pxd`).
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
