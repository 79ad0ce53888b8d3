"""What memory there is, and the refusal of a model that needs more: before it is allocated, and by public sizes."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

__all__ = ["check_memory", "format_bytes", "memory_bytes", "memory_share"]

_LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"  # of a container, v2 and v1
_LARGE = 4 * 10**9  # bytes that a fit does not take without a word
_share: ContextVar[int | None] = ContextVar("_share", default=None)


@contextmanager
def memory_share(n_bytes: int | None) -> Iterator[None]:
    """Let what runs in a ``with`` statement have so much memory at most, as a worker of a cluster has.

    Parameters
    ----------
    n_bytes : int or None
        None for no such limit.
    """
    token = _share.set(n_bytes)
    try:
        yield
    finally:
        _share.reset(token)


def memory_bytes() -> int | None:
    """How much memory this process may use at most.

    Returns
    -------
    int or None
        In bytes: the least of the machine's, its container's, the limit of the process (`ulimit -v`) and
        `memory_share`; None where the system tells nothing.  What other processes use, and what is free at the moment,
        make no difference.
    """
    found = [_share.get() or 0]
    with suppress(AttributeError, OSError, ValueError):  # of a system without either name
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            found.append(int(Path(path).read_text()))
    with suppress(ImportError, OSError, ValueError):
        import resource

        found.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    found = [n for n in found if n > 0]  # an unlimited one is -1
    return min(found) if found else None


def check_memory(
    model: str, n_items: int, n_bytes: int, remedy: str, *, speaks: bool = True, growth: str = "square"
) -> None:
    """Refuse what holds arrays over items, or pairs of them, that do not fit into memory; say so where they are large.

    Parameters
    ----------
    model : str
        What does, for the message.
    n_items : int
        The catalogue's size, which is public: no row decides.
    n_bytes : int
        What it holds at its peak.
    remedy : str
        What to do instead.
    speaks : bool
        Whether to warn; False of a part of a fit, which has.
    growth : {"square", "number"}
        Of the items, with which it grows.

    Raises
    ------
    ValueError
        More than `memory_bytes`.

    Warns
    -----
    UserWarning
        More than 4 GB.
    """
    there = memory_bytes()
    what = f"{model} of {n_items:,} items needs {format_bytes(n_bytes)} of memory, which grows with their {growth}"
    if there is not None and n_bytes > there:
        raise ValueError(f"interactions must have fewer items: {what}, and there are {format_bytes(there)}; {remedy}")
    if speaks and n_bytes > _LARGE:
        warnings.warn(f"{what}, and may take minutes; where that is too much, {remedy}", UserWarning, stacklevel=5)


def format_bytes(n_bytes: int) -> str:
    """A number of bytes as people say it."""
    for power, unit in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB")):
        if n_bytes >= 10**power:
            return f"{n_bytes / 10**power:,.3g} {unit}"
    return f"{n_bytes} bytes"
