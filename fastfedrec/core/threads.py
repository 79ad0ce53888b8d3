"""The only thread policy: how many threads a kernel gets, and BLAS held at one thread around it.

Users never need to set an environment variable: OpenBLAS threads inside an OpenMP loop contend, after each product they
spin for up to 50 ms beside whatever loop comes next, and results change with their number.  So every public function
that multiplies matrices, or takes the norm of a long vector, does so under `one_blas_thread`.

A forked child runs on one thread.  GCC's OpenMP keeps its threads between loops, a child has none of them, and its
next loop waits for them for ever; a loop of one thread waits for nobody.
"""

import functools
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import threadpoolctl
from threadpoolctl import OpenBLASController

from fastfedrec._kernels.core import hardware
from fastfedrec.core.check import check_integer

__all__ = [
    "check_n_threads",
    "default_threads",
    "is_forked",
    "one_blas_thread",
    "resolve_n_threads",
    "thread_limits",
    "threads_for_rows",
]

_MOST_THREADS = 2**15  # more than any machine has; kernels hold memory for each
_forked = False
_defaults = threading.local()


def check_n_threads(n_threads: int) -> int:
    """Check a number of threads that is resolved later, perhaps on another machine.

    Parameters
    ----------
    n_threads : int
        From 0 to 32,768.

    Returns
    -------
    int
        The same.
    """
    return check_integer("n_threads", n_threads, low=0, high=_MOST_THREADS)


def resolve_n_threads(n_threads: int) -> int:
    """Threads a kernel will use: `n_threads`, or as many as the process may use where it is 0.

    Parameters
    ----------
    n_threads : int
        From 0 to 32,768; 0 means what an enclosing `default_threads` says, else the least of `thread_limits()`.

    Returns
    -------
    int
        At least 1; always 1 in a forked child.
    """
    n_threads = check_n_threads(n_threads)
    if _forked:
        return 1
    return n_threads or getattr(_defaults, "n_threads", 0) or min(thread_limits().values())


@contextmanager
def default_threads(n_threads: int) -> Iterator[None]:
    """What 0 threads mean inside a `with` block, in this Python thread.

    For what a fit calls that takes no `n_threads`, such as a server's step or a mechanism's noise.

    Parameters
    ----------
    n_threads : int
        0 for what it means outside.

    Yields
    ------
    None
        The previous meaning is restored after the block.
    """
    outside = getattr(_defaults, "n_threads", 0)
    _defaults.n_threads = n_threads or outside
    try:
        yield
    finally:
        _defaults.n_threads = outside


def threads_for_rows(n_rows: int, n_threads: int, *, least: int = 128) -> int:
    """Fewer threads where there are too few rows: waking one costs more than it saves, and far more on a busy machine.

    Parameters
    ----------
    n_rows : int
        That a kernel shares out.
    n_threads : int
        As resolved.
    least : int
        Rows that are worth a thread.

    Returns
    -------
    int
        At most one for each `least` rows.
    """
    return min(n_threads, max(1, n_rows // least))


def thread_limits() -> dict[str, int]:
    """What bounds the number of threads, whether or not the process is a forked child.

    Returns
    -------
    dict
        "affinity": processors that this thread may run on.  "cgroup": the share of processors that a container is
        given, rounded up; left out where there is none.  "openmp": what OpenMP would give a loop here and now, which
        follows `threadpoolctl`, a joblib worker's settings, `OMP_NUM_THREADS` and an enclosing parallel loop.
    """
    limits = {"affinity": _affinity(), "openmp": max(hardware.max_threads(), 1)}
    if (share := _cgroup_share()) is not None:
        limits["cgroup"] = share
    return limits


def is_forked() -> bool:
    """Whether this process was forked from one that had imported the package.

    Returns
    -------
    bool
        Never true after "spawn", which starts a new interpreter.
    """
    return _forked


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity mask to read
        return os.cpu_count() or 1


@functools.cache
def _cgroup_share(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Processors that a cgroup grants (version 2, else 1), where a container sees its own; None for all."""
    try:
        if (v2 := root / "cpu.max").exists():
            quota, period = v2.read_text().split()
        else:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else None  # version 1 says -1 where all are
    except (OSError, ValueError):  # no cgroup, or "max"
        return None


def _blas_libraries() -> tuple[threadpoolctl.ThreadpoolController, threadpoolctl.ThreadpoolController]:
    """The BLAS libraries with one limit for the whole process, and those with one for each thread.

    NumPy's is always loaded; SciPy may have one of its own, which is not, until `scipy.linalg` is.
    """
    return _find_blas_libraries("scipy.linalg" in sys.modules)


@functools.cache  # finding them costs milliseconds
def _find_blas_libraries(
    with_scipy: bool,
) -> tuple[threadpoolctl.ThreadpoolController, threadpoolctl.ThreadpoolController]:
    loaded = threadpoolctl.ThreadpoolController()
    paths: tuple[list[str], list[str]] = [], []
    for library in loaded.lib_controllers:
        kind = library.internal_api, getattr(library, "threading_layer", None)
        if library.user_api == "blas":
            paths[kind[0] == "mkl" or kind == ("openblas", "openmp")].append(library.filepath)
    return loaded.select(filepath=paths[False]), loaded.select(filepath=paths[True])


class _BlasLimit:
    """BLAS at one thread while any Python thread is inside.

    Most libraries have one limit for the process.  If each block restored what it found, then of two that overlap the
    second would restore the first one's limit, for good; so the first one in sets it, and the last one out restores.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = 0
        self._own = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._forget_others
            )

    def enter(self) -> None:
        depth = self._own_depth()
        with self._lock:
            self._set_inside(self._inside + 1)
            if depth == 0:
                self._own.limiter = _blas_libraries()[1].limit(limits=1)
            self._own.depth = depth + 1

    def leave(self) -> None:
        with self._lock:
            self._own.depth -= 1
            if self._own.depth == 0:
                self._own.limiter.restore_original_limits()
            self._set_inside(self._inside - 1)

    def _own_depth(self) -> int:
        return getattr(self._own, "depth", 0)

    def _set_inside(self, inside: int) -> None:
        if bool(inside) != bool(self._inside):
            # threadpoolctl obeys one thread at a time, and the last one out may be another than the first one in.
            OpenBLASController.clear_controlling_thread(force=True)
            if inside:
                self._limiter = _blas_libraries()[0].limit(limits=1)
            else:
                self._limiter.restore_original_limits()
                OpenBLASController.clear_controlling_thread(force=True)
        self._inside = inside

    def _forget_others(self) -> None:
        """In a forked child: threads that were inside are gone, and will not leave."""
        self._set_inside(self._own_depth())
        self._lock.release()


_blas_limit = _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS at one thread inside a `with` block; the caller's own setting is restored after it.

    Other Python threads that multiply matrices meanwhile are held as well: BLAS libraries have one setting for all.
    Who calls `scipy.linalg` must have loaded it before the block, or its library is not held.

    Yields
    ------
    None
        The previous limits are restored when the last block ends that any thread is in.
    """
    _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave()


def _after_fork_in_child() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
