"""Sums of a matrix's rows at the size of MovieLens 1M, as in EASE (dense) and item-kNN (sparse), against SciPy."""

import numpy as np
import scipy.sparse

from benches.core_suite import core
from benches.floors import fastest, floor_seconds
from benches.ratios import times_faster
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
