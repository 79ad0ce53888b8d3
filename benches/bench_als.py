"""The users' half step of ALS at the size of MovieLens 1M, beside implicit's exact (Cholesky) solver and NumPy."""

import time

import numpy as np
import scipy.linalg
import threadpoolctl

from fastfedrec import Key, als
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, REGULARIZATION, WEIGHT = 6_040, 3_706, 0.1, 2.0


def _fastfedrec(data, v, n_threads):
    def solve():
        return als.solve_users(data, v, regularization=REGULARIZATION, confidence_weight=WEIGHT, n_threads=n_threads)

    return solve


def _implicit(data, v, n_threads):
    try:
        from implicit.cpu._als import least_squares
    except ImportError as error:
        raise NotImplementedError("implicit is not installed") from error
    confidence = data.to_scipy()
    confidence.data[:] = 1 + WEIGHT  # implicit takes the whole confidence
    x = np.empty((data.n_users, v.shape[1]), dtype=v.dtype)

    def solve():
        least_squares(confidence, x, v, REGULARIZATION, num_threads=n_threads)
        return x

    return solve


def _numpy(data, v, n_threads):
    if n_threads > 1:
        raise NotImplementedError("a loop of NumPy calls has one thread")

    def solve():
        gram = v.T @ v + REGULARIZATION * np.eye(v.shape[1], dtype=v.dtype)
        x = np.empty((data.n_users, v.shape[1]), dtype=v.dtype)
        for user in range(data.n_users):
            mine = v[data.indices[data.indptr[user] : data.indptr[user + 1]]]
            right = (1 + WEIGHT) * mine.sum(axis=0)
            x[user] = scipy.linalg.solve(gram + WEIGHT * (mine.T @ mine), right, assume_a="pos", check_finite=False)
        return x

    return solve


def _checked(impl, data, n_factors, n_threads):
    """A function without arguments that solves all users, its answer compared with ours in double."""
    threadpoolctl.threadpool_limits(1, user_api="blas")  # OpenBLAS inside OpenMP contends, implicit's too
    v = np.random.default_rng(0).standard_normal((N_ITEMS, n_factors), dtype=np.float32)
    solve = {"fastfedrec": _fastfedrec, "implicit": _implicit, "numpy": _numpy}[impl](data, v, n_threads)
    expected = als.solve_users(
        data, v.astype(np.float64), regularization=REGULARIZATION, confidence_weight=WEIGHT, n_threads=n_threads
    )
    np.testing.assert_allclose(solve(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    return solve


def _seconds(solve):
    start = time.perf_counter()
    solve()
    return time.perf_counter() - start


def setup_cache():
    """The first argument of every benchmark here."""
    return generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))


class SolveUsers:
    param_names = ("impl", "n_factors", "n_threads")
    params = (["fastfedrec", "implicit", "numpy"], [5, 16, 64, 128], [1, 2])
    timeout = 300

    def setup(self, data, impl, n_factors, n_threads):
        self.solve = _checked(impl, data, n_factors, n_threads)

    def time_solve(self, data, impl, n_factors, n_threads):
        self.solve()


class RatioToImplicit:
    """How many times faster than implicit, both timed in turns in one process: the figure to quote."""

    param_names = ("n_factors", "n_threads")
    params = ([5, 16, 64, 128], [1, 2])
    timeout = 300
    unit = "times faster"

    def setup(self, data, n_factors, n_threads):
        self.ours = _checked("fastfedrec", data, n_factors, n_threads)
        self.theirs = _checked("implicit", data, n_factors, n_threads)

    def track_ratio(self, data, n_factors, n_threads):
        pairs = [(_seconds(self.ours), _seconds(self.theirs)) for _ in range(5)]
        ours, theirs = map(min, zip(*pairs, strict=True))
        return theirs / ours
