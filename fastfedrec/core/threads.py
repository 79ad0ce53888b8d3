"""The policy for threads: the number that a kernel gets, and a limit of one thread for BLAS.

Users never need to set an environment variable.  OpenBLAS's threads contend inside an OpenMP loop, and they spin for up
to 50 ms after each product, which slows the next loop.  The results also change with their number.  So every public
function that multiplies matrices, or takes the norm of a long vector, does so under `one_blas_thread`.
"""

import functools
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

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

_MAX_THREADS = 2**15  # Kernels allocate memory for each thread, and no machine has this number of processors.
# A child has none of the threads that GCC's OpenMP keeps between loops, and a loop would wait for them for ever.
_forked = False
_defaults = threading.local()


def check_n_threads(n_threads: int) -> int:
    """Check a number of threads, from 0 to 32,768, that is resolved later, maybe on another machine."""
    return check_integer("n_threads", n_threads, low=0, high=_MAX_THREADS)


def resolve_n_threads(n_threads: int) -> int:
    """Return the number of threads of a kernel, at least 1: for 0 the default or the minimum of `thread_limits()`."""
    n_threads = check_n_threads(n_threads)
    if _forked:
        return 1
    return n_threads or getattr(_defaults, "n_threads", 0) or min(thread_limits().values())


@contextmanager
def default_threads(n_threads: int) -> Iterator[None]:
    """Set the number of threads that 0 means in this Python thread inside a ``with`` block; 0 changes nothing."""
    # It affects functions without a parameter `n_threads` that a fit calls, such as a mechanism's noise.
    previous = getattr(_defaults, "n_threads", 0)
    # An interrupt may come before any line, once: if it stops the first `finally`, the second one restores the number.
    try:
        try:
            _defaults.n_threads = n_threads or previous
            yield
        finally:
            _defaults.n_threads = previous
    finally:
        _defaults.n_threads = previous


def threads_for_rows(n_rows: int, n_threads: int, *, min_rows: int = 128) -> int:
    """Reduce a resolved number of threads, but not below 1, to one for each `min_rows` rows."""
    # A thread for fewer rows costs more than it saves, above all on a busy machine.
    return min(n_threads, max(1, n_rows // min_rows))


def thread_limits() -> dict[str, int]:
    """Return the limits of the number of threads by name, which are the same in a forked child."""
    # "affinity": processors that this thread may run on.  "cgroup": a container's share of the processors, rounded up,
    # if it has one.  "openmp": threads that OpenMP would give a loop at this place, which depends on `threadpoolctl`, a
    # joblib worker's settings, `OMP_NUM_THREADS` and an enclosing parallel loop.
    limits = {"affinity": _affinity(), "openmp": max(hardware.max_threads(), 1)}
    if (share := _cgroup_share()) is not None:
        limits["cgroup"] = share
    return limits


def is_forked() -> bool:
    """Return whether this process was forked from one that had imported the package; never true after "spawn"."""
    return _forked


def _affinity() -> int:
    """Return the number of processors that this thread may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity mask.
        return os.cpu_count() or 1


@functools.cache
def _cgroup_share(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Read a container's number of processors from its cgroup (version 2, else 1); None means no limit."""
    try:
        if (v2 := root / "cpu.max").exists():
            quota, period = v2.read_text().split()
        else:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else None  # Version 1 writes -1 for no limit.
    except (OSError, ValueError):  # There is no cgroup, or version 2 writes "max" for no limit.
        return None


def _blas_libraries() -> tuple[ThreadpoolController, ThreadpoolController]:
    """Return the BLAS libraries with one limit for the process, and the libraries with a limit for each thread."""
    # NumPy's library is always loaded.  SciPy may have another one, which `scipy.linalg` loads.
    return _find_blas_libraries("scipy.linalg" in sys.modules)


@functools.cache  # A search takes milliseconds.
def _find_blas_libraries(with_scipy: bool) -> tuple[ThreadpoolController, ThreadpoolController]:
    loaded = ThreadpoolController()
    paths: tuple[list[str], list[str]] = [], []
    for library in loaded.lib_controllers:
        kind = library.internal_api, getattr(library, "threading_layer", None)
        if library.user_api == "blas":
            paths[kind[0] == "mkl" or kind == ("openblas", "openmp")].append(library.filepath)
    return loaded.select(filepath=paths[False]), loaded.select(filepath=paths[True])


class _Limit:
    """A limit of one thread for BLAS libraries while any block is open."""

    def __init__(self, *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self._previous: list[tuple[LibController, int]] | None = None
        self._is_set = False
        self.blocks: set[object] = set()

    def update(self) -> None:
        """Set the limit if a block is open, else restore the previous numbers; an interrupted call can be repeated."""
        if self.blocks and not self._is_set:
            self._clear_control()
            if self._previous is None:
                libraries = _blas_libraries()[not self._is_shared].lib_controllers
                self._previous = [(library, library.get_num_threads()) for library in libraries]
            # The previous numbers are stored before any changes, so an interrupt from here on loses none.
            for library, _ in self._previous:
                library.set_num_threads(1)
            self._is_set = True
        elif not self.blocks and self._previous is not None:
            self._is_set = False
            self._clear_control()
            for library, n_threads in self._previous:
                library.set_num_threads(n_threads)
            self._clear_control()
            self._previous = None

    def _clear_control(self) -> None:
        """Let this thread set the shared limit, since threadpoolctl lets one thread at a time do so."""
        if self._is_shared:  # The last block may end in another thread than the one that set the limit.
            OpenBLASController.clear_controlling_thread(force=True)


class _ThreadLimit(threading.local, _Limit):
    """A limit of each thread, which starts without open blocks."""


class _BlasLimit:
    """A limit of one thread for all BLAS libraries while any Python thread has an open block."""

    # Most libraries have one limit for the process.  If each block restored the limit at its start, the second of two
    # that overlap would restore the first one's limit for good.  So the first block sets it, and the last one restores.

    def __init__(self) -> None:
        # Reentrant, since the garbage collector may end a block of this thread at any line.
        self._lock = threading.RLock()
        self._process_limit = _Limit(is_shared=True)
        self._thread_limit = _ThreadLimit(is_shared=False)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._drop_other_threads
            )

    def enter(self, block: object) -> None:
        """Open a block."""
        with self._lock:
            for limit in (self._process_limit, self._thread_limit):
                limit.blocks.add(block)
                limit.update()

    def leave(self, block: object) -> None:
        """Close a block, if it is open, also after an interrupt of `enter` or of an earlier call."""
        with self._lock:
            for limit in (self._thread_limit, self._process_limit):
                limit.blocks.discard(block)
                limit.update()

    def _drop_other_threads(self) -> None:
        """Close the blocks of all threads that a forked child does not have."""
        self._process_limit.blocks &= self._thread_limit.blocks
        self._process_limit.update()
        self._lock.release()


_blas_limit = _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside a ``with`` block, and restore the limits when the blocks of all threads end."""
    # The limit also holds in other Python threads at that time, since most BLAS libraries have one setting for all.  A
    # caller of `scipy.linalg` must import it before the block, otherwise its library has no limit.
    block = object()
    # An interrupt may come before any line, once: if it stops the first call of `leave`, the second one does the work.
    try:
        try:
            _blas_limit.enter(block)
            yield
        finally:
            _blas_limit.leave(block)
    finally:
        _blas_limit.leave(block)


def _after_fork_in_child() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
