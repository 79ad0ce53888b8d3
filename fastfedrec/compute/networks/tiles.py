"""What every network asks of the host: the tile of its products, whole vectors, and threads for its clients."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastfedrec._kernels.core import hardware as _hardware
from fastfedrec.core import hardware
from fastfedrec.core.check import check_integer

__all__ = ["check_width", "check_widths", "run_in_threads", "tile_of", "worth_threads"]

_WIDTH_MULTIPLE = 16
_WORTH_THREADS = 2**20
# Bytes of a vector, and rows of the tile, which with its two columns of vectors fills the registers.
_TILES = {"plain": (16, 4), "x86-64-v3": (32, 4), "x86-64-v4": (64, 8)}


def tile_of(parameters: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As many entries as a vector has lanes, and as a tile has rows."""
    n_bytes, rows = _TILES[hardware.instruction_set()]
    return (0,) * (n_bytes // parameters.itemsize), (0,) * rows


def worth_threads(n_threads: int, n_numbers: int) -> int:
    """1 where waking threads takes longer than a pass over so few numbers; the longer, the busier the machine is."""
    return n_threads if n_numbers >= _WORTH_THREADS else 1


def run_in_threads(work: Callable[[np.ndarray, int], None], n_threads: int) -> None:
    """Call `work` in so many threads, with a counter of what has been begun and its own number.

    The kernels release the GIL.  What is not finite is for the caller to find.
    """
    counter = np.zeros(1, dtype=np.int64)

    def work_quietly(thread: int) -> None:
        with np.errstate(all="ignore"):  # a thread's own
            work(counter, thread)

    if n_threads == 1:
        work_quietly(0)
    else:
        _hardware.call_in_threads(work_quietly, n_threads)


def check_width(name: str, value: Any) -> int:
    """A multiple of 16, or raise."""
    value = check_integer(name, value, low=_WIDTH_MULTIPLE, high=2**24)
    if value % _WIDTH_MULTIPLE:
        raise ValueError(f"{name} must be a multiple of {_WIDTH_MULTIPLE}, whole vectors on any host, got {value}")
    return value


def check_widths(n_factors: Any, hidden: Any) -> tuple[int, tuple[int, ...]]:
    """The width of a network's embeddings, and those of its hidden layers, of which there is at least one; or raise."""
    if not isinstance(hidden, list | tuple | np.ndarray) or np.ndim(hidden) != 1 or len(hidden) == 0:
        raise ValueError(f"hidden must hold at least one width, got {hidden!r}")
    widths = tuple(check_width(f"hidden[{k}]", width) for k, width in enumerate(hidden))
    return check_width("n_factors", n_factors), widths
