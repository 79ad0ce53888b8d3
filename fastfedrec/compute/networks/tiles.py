"""Tiles of matrix products, widths in whole vectors, and threads, as all networks use them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastfedrec._kernels.core import hardware as _hardware
from fastfedrec.core import hardware
from fastfedrec.core.check import check_integer

__all__ = ["check_hidden", "check_width", "check_widths", "run_in_threads", "tile_of", "worth_threads"]

__dir__ = __all__.copy  # dir() lists only the public names

_WIDTH_MULTIPLE = 16  # floats of the widest vector
_MIN_THREADED_NUMBERS = 2**20  # smallest pass over numbers for which threads save time
# Bytes of a vector, and rows of a tile.  A tile of two columns of vectors fills the registers.
_TILES = {"plain": (16, 4), "x86-64-v3": (32, 4), "x86-64-v4": (64, 8)}


def tile_of(parameters: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two tuples, with the lengths of a vector (in lanes) and of a tile (in rows)."""
    # Numba compiles the length of a tuple into the code, so that a kernel's loops over a tile have constant bounds.
    n_bytes, rows = _TILES[hardware.instruction_set()]
    return (0,) * (n_bytes // parameters.itemsize), (0,) * rows


def worth_threads(n_threads: int, n_numbers: int) -> int:
    """Return 1 if waking threads takes longer than a pass over this number of numbers, else `n_threads`."""
    return n_threads if n_numbers >= _MIN_THREADED_NUMBERS else 1


def run_in_threads(work: Callable[[np.ndarray, int], None], n_threads: int) -> None:
    """Call `work` in `n_threads` threads, with a shared counter of started tasks and the thread's number."""
    # The kernels release the GIL, and the caller checks the results for NaN and infinities.
    counter = np.zeros(1, dtype=np.int64)

    def work_quietly(thread: int) -> None:
        with np.errstate(all="ignore"):  # NumPy has this setting for each thread
            work(counter, thread)

    if n_threads == 1:
        work_quietly(0)
    else:
        _hardware.call_in_threads(work_quietly, n_threads)


def check_width(name: str, value: Any) -> int:
    """Return a width, or raise unless it is a multiple of 16."""
    value = check_integer(name, value, low=_WIDTH_MULTIPLE, high=2**24)
    if value % _WIDTH_MULTIPLE:
        raise ValueError(f"{name} must be a multiple of {_WIDTH_MULTIPLE} (whole vectors), got {value}; round it up")
    return value


def check_widths(n_factors: Any, hidden: Any) -> tuple[int, tuple[int, ...]]:
    """Return the checked widths of a network's embeddings and of its hidden layers."""
    widths = check_hidden("hidden", hidden)
    return check_width("n_factors", n_factors), widths


def check_hidden(name: str, hidden: Any) -> tuple[int, ...]:
    """Return the checked widths of hidden layers, at least one."""
    if not isinstance(hidden, list | tuple | np.ndarray) or np.ndim(hidden) != 1 or len(hidden) == 0:
        raise ValueError(f"{name} must be a list of at least one width, got {hidden!r}; the default has four")
    return tuple(check_width(f"{name}[{k}]", width) for k, width in enumerate(hidden))
