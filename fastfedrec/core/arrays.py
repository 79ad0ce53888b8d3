"""Arrays for kernels: checked row numbers and outputs, distinct numbers, read-only and aligned arrays."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core._exchange import shared_array
from fastfedrec.core.check import plain_array

__all__ = [
    "LINE_BYTES",
    "Column",
    "FloatArray",
    "as_uniform",
    "check_mask",
    "check_out",
    "check_outs",
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
    out: Any,
    shape: tuple[int, ...],
    dtype: type,
    *,
    apart_from: np.ndarray | Iterable[np.ndarray] | None = None,
    name: str = "out",
) -> np.ndarray:
    """Return an array over the memory of `out`, a new array if `out` is None, or raise if `out` does not fit."""
    # `apart_from` are inputs that a kernel reads while it writes to the output, so they must not share memory with it.
    if out is None:
        return np.empty(shape, dtype=dtype)
    if isinstance(out, np.ma.MaskedArray):  # its mask would hide results
        raise TypeError(f"{name} must be an array without a mask, got {type(out).__name__}; pass its .data")
    if isinstance(out, np.ndarray):
        # Subclasses such as numpy.matrix change what indexing and arithmetic return.
        array: np.ndarray | None = out if type(out) is np.ndarray else out.view(np.ndarray)
    else:
        array = shared_array(name, out)
    if array is None or array.dtype != dtype:
        got = type(out).__name__ if array is None else f"an array of {array.dtype}"
        raise TypeError(f"{name} must be an array of {np.dtype(dtype).name}, got {got}; pass None to get a new one")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError(f"{name} must be C-contiguous and writable; pass None to get a new one")
    inputs = (apart_from,) if isinstance(apart_from, np.ndarray) else apart_from or ()
    if any(np.may_share_memory(array, read) for read in inputs):
        raise ValueError(f"{name} must not share memory with an argument that is read; pass None to get a new one")
    return array


def check_outs(
    out: Any, *wanted: tuple[str, tuple[int, ...], type], apart_from: Iterable[np.ndarray] = ()
) -> tuple[np.ndarray, ...]:
    """Return an array for each wanted (name, shape, type), over a tuple `out` as in `check_out`, or new for None."""
    if out is None:
        out = (None,) * len(wanted)
    if not isinstance(out, tuple) or len(out) != len(wanted):
        got = f"{len(out)} arrays" if isinstance(out, tuple) else type(out).__name__
        names = ", ".join(name for name, _, _ in wanted)
        raise TypeError(f"out must be a tuple of {len(wanted)} arrays ({names}), got {got}; pass None to get new ones")
    arrays: list[np.ndarray] = []
    for given, (name, shape, dtype) in zip(out, wanted, strict=True):
        arrays.append(check_out(given, shape, dtype, apart_from=(*apart_from, *arrays), name=f"{name} of out"))
    return tuple(arrays)


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
