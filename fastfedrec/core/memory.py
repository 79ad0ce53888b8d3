"""Limits of memory, and errors before an allocation that exceeds them, which depend on public sizes only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from fastfedrec.core.warn import warn

__all__ = ["check_memory", "format_bytes", "memory_bytes", "memory_share"]

# Files with the memory limit of a container, for cgroup versions 2 and 1.
_LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
_MAX_SILENT_BYTES = 4 * 10**9  # more memory causes a warning
_share: ContextVar[int | None] = ContextVar("_share", default=None)


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
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the file is missing or contains "max"
            limits.append(int(Path(path).read_text()))
    with suppress(ImportError, OSError, ValueError):
        import resource

        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    limits = [n for n in limits if n > 0]  # RLIMIT_AS is -1 for a process without a limit
    return min(limits) if limits else None


def check_memory(
    model: str, n_items: int, n_bytes: int, remedy: str, *, speaks: bool = True, growth: str = "square"
) -> None:
    """Raise a ValueError if a model needs more than `memory_bytes`, and warn if it needs more than 4 GB."""
    # The size of the catalogue is public, so neither the error nor the warning depends on a user's row.  `growth` is
    # "square" or "number" (of the items).  A part of a fit passes speaks=False if the whole fit has warned already.
    available = memory_bytes()
    need = f"{model} of {n_items:,} items needs {format_bytes(n_bytes)} of memory, which grows with their {growth}"
    if available is not None and n_bytes > available:
        raise ValueError(
            f"interactions must have fewer items: {need}, and there are {format_bytes(available)}; {remedy}"
        )
    if speaks and n_bytes > _MAX_SILENT_BYTES:
        warn(f"{need}, and may take minutes; if that is too much, {remedy}")


def format_bytes(n_bytes: int) -> str:
    """Format a number of bytes with a decimal unit and three digits."""
    for power, unit in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if n_bytes >= 10**power:
            return f"{n_bytes / 10**power:,.3g} {unit}"
    return f"{n_bytes} bytes"
