"""Gain of two threads for each kernel, in complete runs of the systems and in calls of shared functions.

    python benches threads --only PrivRec

prints every kernel that takes `MIN_SECONDS`.  A kernel is a compiled function that Python calls.  Its time is measured
around each call, without NumPy's and SciPy's steps and without the system's allocation of new memory.  On a virtual
machine the 134 MB of EASE's scores took 12 to 200 ms, which depends on the moment and not on the threads.  Threads of
Python call SGD's kernels, which `compute.bench_sgd.Threads` measures.
"""

import argparse
import collections
import contextlib
import ctypes
import importlib
import math
import mmap
import pkgutil
import time

import numpy as np
import scipy.sparse

from benches import whole_runs
from benches.floors import turns
from benches.whole_runs import MODELS, N_ITEMS, N_USERS
from fastfedrec import Interactions, Key, _kernels, mechanisms
from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.compute.ranking import sample_unseen
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.threads import default_threads

MIN_SECONDS = 0.01  # shorter calls need not gain
SECONDS = 8.0  # minimum duration of all turns
MADV_POPULATE_WRITE = 23  # an advice of Linux since 5.14; other systems refuse it
N = 8_000_000  # values that a mechanism randomizes
KEY = Key.from_seed(1)
# Types of kernels.  A plain function is one that compiles its kernel at the first call.
COMPILED = ("cython_function_or_method", "fused_cython_function", "CPUDispatcher", "function")


# ---- cases -----------------------------------------------------------------------------------------------------------


def _whole_run(name):
    def case():
        data = whole_runs.ratings(N_USERS, N_ITEMS)
        return lambda: whole_runs.run(name, data, short=True)

    return case


def _values(high):
    return np.random.default_rng(0).integers(0, high, N)


def _privatize(mechanism, high, **options):
    def case():
        values = _values(high) if isinstance(high, int) else np.random.default_rng(0).uniform(*high, N)
        return lambda: mechanism.privatize(values, key=KEY, **options)

    return case


def _columns(order):
    def case():
        data = whole_runs.ratings(2 * N_USERS, N_ITEMS)
        users = np.repeat(data.user_ids, data.interactions_per_user())
        rows = order(np.random.default_rng(0), len(users))
        columns = users[rows], data.item_ids[data.indices][rows], data.values[rows]
        return lambda: Interactions.from_arrays(*columns)

    return case


def _sums(make):
    def case():
        data, matrix = whole_runs.ratings(N_USERS, N_ITEMS), make(np.random.default_rng(0))
        return lambda: sum_rows(data, matrix)

    return case


def _sparse(rng):
    return scipy.sparse.random_array((N_ITEMS, N_ITEMS), density=100 / N_ITEMS, format="csr", rng=rng)


def _hadamard():
    table = np.random.default_rng(0).integers(-9, 9, (512, 16_384))
    return lambda: hadamard_transform(table)


def _clip():
    rows = np.random.default_rng(0).standard_normal((N // 20, 100)).astype(np.float32)
    return lambda: mechanisms.clip_rows_l2(rows, 1.0)


def _unseen():
    data = whole_runs.ratings(10 * N_USERS, N_ITEMS)
    return lambda: sample_unseen(data, np.arange(data.n_users), 99, key=KEY, purpose="bench")


CASES = {
    **{name: _whole_run(name) for name in MODELS},
    "words of one stream": lambda: lambda: KEY.words("bench", size=2 * N, n_threads=0),
    "words of many streams": lambda: lambda: KEY.words_by_user("bench", np.arange(N // 8), size=16, n_threads=0),
    "permutation": lambda: lambda: KEY.permutation("bench", size=N // 4, n_threads=0),
    "interactions by item": _columns(lambda rng, n: np.argsort(rng.integers(0, N_ITEMS, n))),
    "sums of dense rows": _sums(lambda rng: rng.standard_normal((N_ITEMS, N_ITEMS))),
    "sums of sparse rows": _sums(_sparse),
    "hadamard_transform": _hadamard,
    "clip_rows_l2": _clip,
    "sample_unseen": _unseen,
    "BinaryResponse": _privatize(mechanisms.BinaryResponse(1.0), (-1.0, 1.0)),
    "GRR": _privatize(mechanisms.GRR(1.0, 5), 5),
    "SubsetSelection": _privatize(mechanisms.SubsetSelection(1.0, 50), 50),
    "TruncatedGeometric": _privatize(mechanisms.TruncatedGeometric(1.0, 5), 5),
    "Piecewise": _privatize(mechanisms.Piecewise(1.0), (-1.0, 1.0)),
    "DiscreteLaplace": _privatize(mechanisms.DiscreteLaplace(8.0, sampler="table"), 1000),
    "DiscreteGaussian": _privatize(mechanisms.DiscreteGaussian(8.0, sampler="table"), 1000),
    "PoissonSampling": lambda: lambda: mechanisms.PoissonSampling(0.3).sample(4 * N, key=KEY),
}


# ---- their kernels ---------------------------------------------------------------------------------------------------


def _populate(array):
    """Have Linux allocate the pages of an array, without a change of its content."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable:
        start = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
        length = array.ctypes.data + array.nbytes - start
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_POPULATE_WRITE)


@contextlib.contextmanager
def _timed():
    """Yield the seconds of each kernel's calls inside the block, in the order of calls."""
    calls, undo = collections.defaultdict(list), []

    def wrap(name, function):
        def run(*arguments, **options):
            for argument in arguments:
                _populate(argument)
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                calls[name].append(time.perf_counter() - began)

        return run

    for info in pkgutil.walk_packages(_kernels.__path__, f"{_kernels.__name__}."):
        module, short = importlib.import_module(info.name), info.name.removeprefix(f"{_kernels.__name__}.")
        for name, function in list(vars(module).items()):
            if type(function).__name__ in COMPILED and getattr(function, "__module__", None) == module.__name__:
                undo.append((module, name, function))
                setattr(module, name, wrap(f"{short}.{name}", function))
    try:
        yield calls
    finally:
        for module, name, function in undo:
            setattr(module, name, function)


def _run(run, n_threads):
    with default_threads(n_threads), _timed() as calls:
        run()
    return calls


def gains(case, *, seconds=SECONDS):
    """Return the seconds of each kernel's calls of at least `MIN_SECONDS`, with one thread and with two."""
    run = CASES[case]()
    for n_threads in (1, 2):
        with default_threads(n_threads):
            run()  # before kernels are replaced, since Numba compiles callers with the original ones
    ones, twos = zip(*([_run(run, n) for n in (1, 2)] for _ in turns(12, seconds, processors=2)), strict=True)
    seconds_of = {}
    for name in ones[0]:
        if len({len(calls[name]) for calls in ones + twos}) > 1:
            continue  # a call in a thread of Python, or one with a cached result
        # The time of each call is its minimum over all turns.
        one, two = (np.min([calls[name] for calls in taken], axis=0) for taken in (ones, twos))
        if (long := one >= MIN_SECONDS).any():
            seconds_of[name] = float(one[long].sum()), float(two[long].sum())
    return seconds_of


class Kernels:
    """Smallest gain of two threads on a kernel of 10 ms or more, or NaN without such a kernel."""

    param_names = ("case",)
    params = (list(CASES),)
    unit = "times"

    def track_two_threads(self, case):
        return min((one / two for one, two in gains(case).values()), default=math.nan)


def main(argv=None):
    """Print the kernels of every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this text in their name")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="minimum duration of all turns")
    arguments = parser.parse_args(argv)
    for case in (case for case in CASES if arguments.only in case):
        for name, (one, two) in gains(case, seconds=arguments.seconds).items():
            print(f"{case:24} {name:40} {1e3 * one:9.1f} ms {1e3 * two:9.1f} ms {one / two:6.2f}", flush=True)


if __name__ == "__main__":
    main()
