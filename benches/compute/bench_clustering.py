"""k-means at the size of MovieLens 1M, 50 clusters, one thread, against scikit-learn's Lloyd and Elkan.

The time of an iteration is the difference of runs with two numbers of iterations from the same centres, so that input
checks do not count.  Both objectives are compared before the measurement.
"""

import warnings

import numpy as np
import scipy.sparse
import threadpoolctl

from benches.core_suite import BEST, core
from benches.floors import floor_seconds, in_turns
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, nan_without_peers, peer
from fastfedrec import Key, clustering
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, N_CLUSTERS, N_ITERATIONS = 6_040, 3_706, 50, 6


def setup_cache():
    """Return the data, which asv passes to every benchmark of this file."""
    return generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))


@core("time_iterations", instruction_set=BEST)
@nan_without_peers
class Iterations(OnInstructionSet):
    unit = "times faster"
    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def setup(self, data, instruction_set):
        super().setup(instruction_set)
        threadpoolctl.threadpool_limits(1)
        csr = data.to_scipy().astype(np.float32)
        self.matrix = scipy.sparse.csr_matrix((csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int32)))
        # All implementations start from the first rows as centres.
        self.rows, self.start = data, self.matrix[:N_CLUSTERS].toarray()[:, : data.n_items]

    def time_iterations(self, data, instruction_set):
        self._ours(data, N_ITERATIONS)()

    def track_floor_share(self, data, instruction_set):
        """Count all inner products in single precision."""
        # Our kernel reads centres in 8 bits where it can, so that this is a floor for the peers alone.
        flops = 2 * self.matrix.size * N_CLUSTERS
        return floor_seconds(instruction_set, flops=flops) / self._seconds(data)

    track_floor_share.unit = "share of floor"

    def track_times_scikit_learn_lloyd(self, data, instruction_set):
        return self._times(data, "lloyd")

    def track_times_scikit_learn_elkan(self, data, instruction_set):
        return self._times(data, "elkan")

    def _ours(self, data, n_iterations):
        return lambda: clustering.kmeans(self.rows, N_CLUSTERS, n_iterations=n_iterations, init=self.start, n_threads=1)

    def _times(self, data, algorithm):
        with peer("scikit-learn"):
            from sklearn.cluster import KMeans

        def theirs(n_iterations):
            model = KMeans(N_CLUSTERS, init=self.start, n_init=1, max_iter=n_iterations, algorithm=algorithm, tol=0)

            def fit():
                with warnings.catch_warnings(action="ignore"):  # the warning that k-means has not converged
                    return model.fit(self.matrix)

            return fit

        np.testing.assert_allclose(
            self._ours(data, N_ITERATIONS)().objective, theirs(N_ITERATIONS)().inertia_, rtol=1e-3
        )
        one, more = in_turns(theirs(1), theirs(1 + N_ITERATIONS))
        return (more - one) / N_ITERATIONS / self._seconds(data)

    def _seconds(self, data):
        # The difference of two runs leaves the time of an iteration.
        one, more = in_turns(self._ours(data, 1), self._ours(data, 1 + N_ITERATIONS))
        return (more - one) / N_ITERATIONS


class City(Iterations):
    """Dense rows far from the origin relative to their spread: coordinates in a city, in degrees."""

    def setup(self, data, instruction_set):
        OnInstructionSet.setup(self, instruction_set)
        threadpoolctl.threadpool_limits(1)
        points = [48.85, 2.35] + 0.1 * np.random.default_rng(0).random((100_000, 2))
        self.rows = self.matrix = points.astype(np.float32)
        self.start = self.rows[:N_CLUSTERS].copy()
