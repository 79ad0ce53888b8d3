"""The users' half step of ALS at the size of MovieLens 1M, against implicit, irspack, lenskit and NumPy.

Every answer is compared with ours in double precision before the measurement.
"""

import functools

import numpy as np
import scipy.linalg
import scipy.sparse
import threadpoolctl

from benches.core_suite import BEST, core
from benches.floors import few, floor_seconds, in_turns
from benches.ratios import (
    INSTRUCTION_SETS,
    OnInstructionSet,
    microseconds,
    nan_without_peers,
    one_user,
    peer,
    times_faster,
)
from fastfedrec import Interactions, Key, als
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, REGULARIZATION, WEIGHT, CG_STEPS = 6_040, 3_706, 0.1, 2.0, 3
N_FACTORS = [5, 16, 64, 128]
N_ALLOCATIONS = 5  # of implicit's arrays, at different addresses


def _fastfedrec(data, v, n_threads, start=None):
    solver = {} if start is None else {"solver": "cg", "cg_steps": CG_STEPS, "start": start}
    out = np.zeros((data.n_users, v.shape[1]), dtype=v.dtype)  # reused in every call, as implicit does

    def solve():
        return als.solve_users(
            data, v, regularization=REGULARIZATION, confidence_weight=WEIGHT, out=out, n_threads=n_threads, **solver
        )

    return solve


def _matrix(data, value):
    """Return the peers' input: a matrix with 32-bit indices and the same value everywhere."""
    values = np.full(data.n_interactions, value, dtype=np.float32)
    return scipy.sparse.csr_matrix(
        (values, data.indices.astype(np.int32), data.indptr.astype(np.int32)), shape=(data.n_users, data.n_items)
    )


def _implicit(data, v, n_threads, start=None):
    with peer("implicit"):
        from implicit.cpu import _als
    confidence = _matrix(data, 1 + WEIGHT)  # implicit takes the whole confidence
    x = np.zeros((data.n_users, v.shape[1]), dtype=v.dtype)

    def solve():
        _als.least_squares(confidence, x, v, REGULARIZATION, num_threads=n_threads)
        return x

    def solve_cg():
        x[:] = start
        _als.least_squares_cg(confidence, x, v, REGULARIZATION, num_threads=n_threads, cg_steps=CG_STEPS)
        return x

    return solve if start is None else solve_cg


def _irspack(data, v, n_threads, start=None):
    with peer("irspack"):
        from irspack.recommenders import _ials_core as core
    interactions = _matrix(data, WEIGHT)
    model = core.IALSModelConfigBuilder().set_K(v.shape[1]).set_alpha0(1.0).set_reg(REGULARIZATION).set_nu(0.0)
    trainer = core.IALSTrainer(model.set_loss_type(core.ORIGINAL).build(), interactions)
    trainer.item = v
    solver = core.IALSSolverConfigBuilder().set_n_threads(n_threads).set_max_cg_steps(CG_STEPS)
    solver = solver.set_solver_type(core.CHOLESKY if start is None else core.CG).build()  # its CG starts from zeros
    return lambda: trainer.transform_user(interactions, solver)


@functools.cache
def _one_lenskit_thread():
    from lenskit._accel import init_accel_pool

    init_accel_pool(1)


def _lenskit(data, v, n_threads):
    if n_threads > 1:
        raise NotImplementedError("lenskit's thread pool is made once a process")
    with peer("lenskit"):
        from lenskit._accel import als as core
        from lenskit.data.matrix import SparseRowArray
    _one_lenskit_thread()
    interactions = SparseRowArray.from_scipy(_matrix(data, WEIGHT))
    x = np.zeros((data.n_users, v.shape[1]), dtype=v.dtype)

    def solve():
        gram = v.T @ v + REGULARIZATION * np.eye(v.shape[1], dtype=v.dtype)
        core.train_implicit_matrix(interactions, x, v, gram, None)
        return x

    return solve


def _numpy(data, v, n_threads):
    if n_threads > 1:
        raise NotImplementedError("a loop of NumPy calls has one thread")

    def solve():
        gram = v.T @ v + REGULARIZATION * np.eye(v.shape[1], dtype=v.dtype)
        x = np.empty((data.n_users, v.shape[1]), dtype=v.dtype)
        for user in range(data.n_users):
            rows = v[data.indices[data.indptr[user] : data.indptr[user + 1]]]
            right = (1 + WEIGHT) * rows.sum(axis=0)
            x[user] = scipy.linalg.solve(gram + WEIGHT * (rows.T @ rows), right, assume_a="pos", check_finite=False)
        return x

    return solve


def setup_cache():
    """Return the data, which asv passes to every benchmark of this file."""
    return generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))


class _Users(OnInstructionSet):
    unit = "times faster"

    def setup(self, data, n_factors, n_threads, instruction_set):
        super().setup(instruction_set)
        threadpoolctl.threadpool_limits(1, user_api="blas")  # OpenBLAS threads inside OpenMP contend, also in implicit
        self.v = np.random.default_rng(0).standard_normal((N_ITEMS, n_factors), dtype=np.float32)

    def times(self, data, n_threads, other, start=None):
        """Return the peer's time over ours, with alternating calls; for implicit the median over allocations."""
        # implicit's time depends on the address of its arrays.  At 128 factors it took 1.9 to 2.5 s on an idle machine,
        # while our time varied by 2%.  With a single allocation the ratio would be random.
        starts = {} if start is None else {"start": start}
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            expected = _fastfedrec(
                data, self.v.astype(np.float64), n_threads, None if start is None else start.astype(np.float64)
            )()
        rng, ratios, held = np.random.default_rng(0), [], []
        for allocation in range(few(N_ALLOCATIONS) if other is _implicit else 1):
            v = self.v.copy()
            held += [v, bytearray(rng.integers(64, 120_000))]  # moves the next arrays to other addresses
            ours, theirs = _fastfedrec(data, v, n_threads, start), other(data, v, n_threads, **starts)
            for solve in (ours, theirs) if allocation == 0 else ():
                np.testing.assert_allclose(solve(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
            our_seconds, their_seconds = in_turns(ours, theirs, repetitions=2 if other is _implicit else 5)
            ratios.append(their_seconds / our_seconds)
        return float(np.median(ratios))


@core("time_solve", n_threads=[1], instruction_set=BEST)
@nan_without_peers
class Exact(_Users):
    param_names = ("n_factors", "n_threads", "instruction_set")
    params = (N_FACTORS, [1, 2], INSTRUCTION_SETS)

    def time_solve(self, data, n_factors, n_threads, instruction_set):
        _fastfedrec(data, self.v, n_threads)()

    def track_times_implicit(self, data, n_factors, n_threads, instruction_set):
        return self.times(data, n_threads, _implicit)

    def track_times_irspack(self, data, n_factors, n_threads, instruction_set):
        return self.times(data, n_threads, _irspack)


@nan_without_peers
class ExactOnOneThread(_Users):
    param_names = ("n_factors", "n_threads", "instruction_set")
    params = (N_FACTORS, [1], INSTRUCTION_SETS)

    def track_times_lenskit(self, data, n_factors, n_threads, instruction_set):
        return self.times(data, n_threads, _lenskit)

    def track_times_numpy(self, data, n_factors, n_threads, instruction_set):
        return self.times(data, n_threads, _numpy)

    def track_floor_share(self, data, n_factors, n_threads, instruction_set):
        """Count V'V, and for each user a matrix's upper triangle, its Cholesky factor and two triangular solves."""
        # Each user has a system in factors or in items, and the cheaper one counts.  It is the floor of direct solvers.
        # At 64 factors or more, conjugate gradients reach the same precision, and the share may be above 1.
        n = data.interactions_per_user().astype(np.float64)
        by_factors = n * n_factors * (n_factors + 1) + n_factors**3 / 3 + 2 * n_factors**2
        by_items = n * (n + 1) * n_factors + n**3 / 3 + 2 * n**2 + 2 * n * n_factors + n_factors**2
        flops = N_ITEMS * n_factors * (n_factors + 1) + np.minimum(by_factors, by_items).sum()
        (seconds,) = in_turns(_fastfedrec(data, self.v, n_threads))
        return floor_seconds(instruction_set, flops=flops) / seconds

    track_floor_share.unit = "share of floor"

    def track_times_one_thread(self, data, n_factors, n_threads, instruction_set):
        """Return the time of one thread over the time of two."""
        # The fastest calls contain no other load on one of the two processors.
        runs = (_fastfedrec(data, self.v, n) for n in (1, 2))
        return times_faster(*runs, min_seconds=4.0, max_turns=2000, processors=2)


@core("time_solve", n_factors=[64], n_threads=[1], instruction_set=BEST)
@nan_without_peers
class ConjugateGradients(_Users):
    param_names = ("n_factors", "n_threads", "instruction_set")
    params = (N_FACTORS, [1, 2], INSTRUCTION_SETS)

    def setup(self, data, n_factors, n_threads, instruction_set):
        super().setup(data, n_factors, n_threads, instruction_set)
        self.zeros = np.zeros((data.n_users, n_factors), dtype=np.float32)
        self.start = np.random.default_rng(1).standard_normal(self.zeros.shape, dtype=np.float32) / 100

    def time_solve(self, data, n_factors, n_threads, instruction_set):
        _fastfedrec(data, self.v, n_threads, self.start)()

    def track_times_implicit_cg(self, data, n_factors, n_threads, instruction_set):
        return self.times(data, n_threads, _implicit, self.start)

    def track_times_irspack_cg(self, data, n_factors, n_threads, instruction_set):
        return self.times(data, n_threads, _irspack, self.zeros)


class OneUser:
    """One user with 30 of 1,000 items and 16 factors in a call, as in a server; V'V is computed once."""

    param_names = ("rows",)
    params = (("interactions", "matrix"),)

    def setup(self, data, rows):
        matrix = one_user()
        self.given = matrix if rows == "matrix" else Interactions.from_scipy(matrix)
        self.items, self.v = matrix.indices, np.random.default_rng(0).standard_normal((1_000, 16), dtype=np.float32)
        self.gram = als.regularized_gram(self.v, REGULARIZATION, WEIGHT)
        self.step = als.HalfStep(self.v, regularization=REGULARIZATION, confidence_weight=WEIGHT)
        self.factors, self.out = (
            als._kernel.open_factors(self.v, self.gram, WEIGHT),
            np.zeros((1, 16), dtype=np.float32),
        )
        np.testing.assert_allclose(self._fastfedrec()[0], self._numpy(), rtol=1e-4)
        self._kernel()
        np.testing.assert_array_equal(self.out, self._fastfedrec())

    def time_solve(self, data, rows):
        self._fastfedrec()

    def track_microseconds_beyond_kernel(self, data, rows):
        ours, kernels = microseconds(self._fastfedrec, self._kernel)
        return ours - kernels

    def track_times_numpy(self, data, rows):
        ours, theirs = microseconds(self._fastfedrec, self._numpy)
        return theirs / ours

    def track_floor_share(self, data, rows):
        """Count the kernel alone."""
        ours, kernels = microseconds(self._fastfedrec, self._kernel)
        return kernels / ours

    track_microseconds_beyond_kernel.unit = "us"
    track_times_numpy.unit = "times faster"
    track_floor_share.unit = "share of floor"

    def _fastfedrec(self):
        return self.step.solve(self.given, n_threads=1)

    def _kernel(self):
        none = self.v[0, :0]
        starts = np.array([0, len(self.items)])
        als._kernel.solve_users(starts, self.items, none, none, self.v, self.gram, self.factors, False, self.out, 1)

    def _numpy(self):
        rows = self.v[self.items]
        return np.linalg.solve(self.gram + WEIGHT * (rows.T @ rows), (1 + WEIGHT) * rows.sum(axis=0))
