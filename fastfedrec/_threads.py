"""The only thread policy: how many threads a kernel gets, and BLAS held at one thread around it.

Users never set an environment variable: OpenBLAS threads inside an OpenMP loop contend, and its results change with
its thread count, so every public function that multiplies matrices does so under `one_blas_thread`.
"""

import functools
import os
from contextlib import AbstractContextManager

import threadpoolctl

from fastfedrec._check import check_integer


def resolve_n_threads(n_threads: int) -> int:
    """Threads a kernel will use: `n_threads`, or every processor this process may run on where it is 0.

    Parameters
    ----------
    n_threads : int
        At least 0; 0 means all.

    Returns
    -------
    int
        At least 1.
    """
    n_threads = check_integer("n_threads", n_threads, low=0)
    if n_threads:
        return n_threads
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity mask to read
        return os.cpu_count() or 1


@functools.cache
def _blas_libraries() -> threadpoolctl.ThreadpoolController:
    # Finding the loaded libraries costs milliseconds; NumPy's and SciPy's are loaded by the first call.
    import scipy.linalg  # noqa: F401

    return threadpoolctl.ThreadpoolController()


def one_blas_thread() -> AbstractContextManager:
    """Hold BLAS at one thread inside a `with` block; the caller's own setting is restored after it.

    Returns
    -------
    context manager
        Restores the previous limits on exit.
    """
    return _blas_libraries().limit(limits=1, user_api="blas")
