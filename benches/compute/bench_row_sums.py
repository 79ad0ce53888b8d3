"""Sums of a matrix's rows at the size of MovieLens 1M, as in EASE (dense) and item-kNN (sparse), against SciPy."""

import numpy as np
import scipy.sparse

from benches.core_suite import core
from benches.floors import fastest, floor_seconds
from benches.ratios import microseconds, one_user, times_faster
from fastfedrec import Key, hardware, row_sums
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, N_NEIGHBORS = 6_040, 3_706, 100


@core("time_sum_rows", n_threads=[1])
class Scores:
    """Sums for 2,000 users, the block size of a model's scores, with the same bits as SciPy."""

    param_names = ("matrix", "n_threads")
    params = (("dense", "sparse"), (1, 2))

    def setup(self, matrix, n_threads):
        data = generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))
        self.data = data.shard(3)[0]
        rng = np.random.default_rng(0)
        if matrix == "dense":
            self.matrix = rng.standard_normal((N_ITEMS, N_ITEMS))
        else:
            self.matrix = scipy.sparse.random_array(
                (N_ITEMS, N_ITEMS), density=N_NEIGHBORS / N_ITEMS, format="csr", rng=rng
            )
        np.testing.assert_array_equal(self._ours(n_threads), self._scipy())

    def time_sum_rows(self, matrix, n_threads):
        self._ours(n_threads)

    def track_times_scipy(self, matrix, n_threads):
        return times_faster(self._scipy, lambda: self._ours(n_threads))

    def track_two_threads(self, matrix, n_threads):
        return times_faster(lambda: self._ours(1), lambda: self._ours(2), min_seconds=4.0, max_turns=1000, processors=2)

    def track_floor_share(self, matrix, n_threads):
        """Count the addition of a double, with half the lanes of floats, for each entry of each of a user's rows."""
        dense = isinstance(self.matrix, np.ndarray)
        entries = np.full(N_ITEMS, N_ITEMS) if dense else np.diff(self.matrix.indptr)
        flops = 2 * 2 * int(entries[self.data.indices].sum())  # an addition takes as long as a fused operation
        return floor_seconds(hardware.instruction_set(), flops=flops) / n_threads / fastest(self._ours, n_threads)

    track_floor_share.unit = "share of floor"
    track_times_scipy.unit = "times faster"
    track_two_threads.unit = "times faster"
    track_two_threads.params = (("dense", "sparse"), (2,))

    def _ours(self, n_threads):
        return row_sums.sum_rows(self.data, self.matrix, n_threads=n_threads)

    def _scipy(self):
        sums = self.data.to_scipy().astype(np.float64) @ self.matrix
        return sums if isinstance(sums, np.ndarray) else sums.toarray()


class OneUser:
    """The sum of 30 of 1,000 rows of 16 numbers in a call, for a matrix of one user."""

    def setup(self):
        self.user, self.matrix = one_user().astype(np.float64), np.random.default_rng(0).standard_normal((1_000, 16))
        np.testing.assert_array_equal(self._fastfedrec(), self._scipy())

    def time_sum_rows(self):
        self._fastfedrec()

    def track_microseconds(self):
        return microseconds(self._fastfedrec)[0]

    def track_times_scipy(self):
        ours, theirs = microseconds(self._fastfedrec, self._scipy)
        return theirs / ours

    def track_floor_share(self):
        """Count the kernel alone."""
        starts, out = np.array([0, self.user.nnz]), np.empty((1, 16))
        given = starts, self.user.indices, self.user.data, self.matrix, out, 1
        ours, kernels = microseconds(self._fastfedrec, lambda: row_sums._kernel.sum_dense_rows(*given))
        return kernels / ours

    track_microseconds.unit = "us"
    track_times_scipy.unit = "times faster"
    track_floor_share.unit = "share of floor"

    def _fastfedrec(self):
        return row_sums.sum_rows(self.user, self.matrix, n_threads=1)

    def _scipy(self):
        return self.user @ self.matrix
