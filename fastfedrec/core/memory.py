"""Limits of memory, sizes of arrays, and errors before an allocation that exceeds the limits."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from fastfedrec.core.warn import warn

__all__ = [
    "Array",
    "Arrays",
    "Sizes",
    "check_memory",
    "format_bytes",
    "largest_within",
    "memory_bytes",
    "memory_share",
    "total_bytes",
]

# Folders of control groups, versions 2 and 1, with the file that has a group's limit.
_LIMITS = ("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
_GROUPS = "/proc/self/cgroup"  # lines "number:controllers:/path of this process's group"
_MAX_SILENT_BYTES = 4 * 10**9  # more memory causes a warning
_share: ContextVar[int | None] = ContextVar("_share", default=None)


class Sizes(NamedTuple):
    """Numbers of users, items, interactions and threads of a fit."""

    n_users: int
    n_items: int
    n_interactions: int
    n_threads: int = 1


class Array(NamedTuple):
    """Type and shape of an array."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, dtype: str, *shape: float) -> Self:
        """Return an array of this shape, with lengths rounded down."""
        return cls(np.dtype(dtype).name, tuple(map(int, shape)))

    @property
    def n_bytes(self) -> int:
        """Number of bytes."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


#: Arrays in memory at the same time, by name.
Arrays = Mapping[str, Array]


def total_bytes(arrays: Arrays) -> int:
    """Return the bytes of all arrays together."""
    return sum(array.n_bytes for array in arrays.values())


@contextmanager
def memory_share(n_bytes: int | None) -> Iterator[None]:
    """Limit the memory of a ``with`` block to `n_bytes`, as for a worker of a cluster; None for no limit."""
    previous = _share.get()
    try:
        _share.set(n_bytes)  # It is set inside, since an interrupt may come between two lines.
        yield
    finally:
        _share.set(previous)


def memory_bytes() -> int | None:
    """Return the bytes that this process may use, or None if the system has no information."""
    # The result is the minimum of the machine's memory, the container's, the process's limit (`ulimit -v`) and
    # `memory_share`.  It does not depend on free memory or on other processes.
    limits = [_share.get() or 0]
    with suppress(AttributeError, OSError, ValueError):  # some systems lack these names
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for folder in _group_folders():
        for root, name in _LIMITS:
            with suppress(OSError, ValueError):  # the file is missing or contains "max"
                limits.append(int((Path(root) / folder / name).read_text()))
    with suppress(ImportError, OSError, ValueError):
        import resource

        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    limits = [n for n in limits if n > 0]  # RLIMIT_AS is -1 for a process without a limit
    return min(limits) if limits else None


def _group_folders() -> set[str]:
    """Return the groups that this process is in, with those around them, relative to a folder of `_LIMITS`."""
    folders = {"."}  # in a container, the group of the process is the root
    with suppress(OSError, ValueError):
        for line in Path(_GROUPS).read_text().splitlines():
            group = Path(line.split(":", 2)[2].lstrip("/"))
            folders |= {str(folder) for folder in (group, *group.parents) if ".." not in folder.parts}
    return folders


def check_memory(model: str, n_items: int, bytes_of: Callable[[int], int], remedy: str, *, speaks: bool = True) -> None:
    """Raise a ValueError if a model needs more than `memory_bytes`, and warn if it needs more than 4 GB.

    `bytes_of` returns the bytes for a number of items.  A part of a fit passes speaks=False, since the fit has warned.
    """
    available, n_bytes = memory_bytes(), bytes_of(n_items)
    growth = "square" if bytes_of(2 * n_items) > 3 * n_bytes else "number"
    need = f"{model} of {n_items:,} items needs {format_bytes(n_bytes)} of memory, which grows with their {growth}"
    if available is not None and n_bytes > available:
        largest = largest_within(available, bytes_of, n_items)
        fits = (
            f"the largest catalogue that fits has {largest:,} items"
            if largest
            else "no catalogue fits, so fit fewer users"
        )
        raise ValueError(
            f"interactions must have fewer items: {need}, and there are {format_bytes(available)}; {fits}; {remedy}"
        )
    if speaks and n_bytes > _MAX_SILENT_BYTES:
        warn(f"{need}, and may take minutes; if that is too much, {remedy}")


def largest_within(available: int, bytes_of: Callable[[int], int], n: int) -> int:
    """Return the largest number below `n` with `bytes_of` at most `available`, or 0; `bytes_of` must not fall."""
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_of(middle) <= available else (low, middle)
    return low


def format_bytes(n_bytes: int) -> str:
    """Format a number of bytes with a decimal unit and three digits."""
    for power, unit in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if n_bytes >= 10**power:
            return f"{n_bytes / 10**power:,.3g} {unit}"
    return f"{n_bytes} bytes"
