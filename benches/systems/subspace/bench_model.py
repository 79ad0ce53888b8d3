"""DPSubspace: the sums of a round of projections, 20,000 users x 10,000 items, 30 items each; two threads."""

import numpy as np
import scipy.sparse

from benches.core_suite import core
from benches.floors import SIZES, floor_seconds
from benches.ratios import with_ratios
from fastfedrec import Key, datasets, hardware
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.systems.projection_rounds import FINEST, SCALE, UNIT, ProjectionSum, SubspaceState

N_THREADS = 2
N_COLUMNS = 64


def _floor(case):
    # Each interaction adds an encoder's row, twice, to the user's sums, and the user's row to the item's sums.  Both
    # rows are read from the cache, with 2 and 8 bytes for each entry.
    entries = N_COLUMNS * case.data.n_interactions
    working_set = SIZES["second-level cache"]
    return floor_seconds(
        hardware.instruction_set(), flops=4 * entries, bytes_read=10 * entries, working_set=working_set
    )


@core("time_projection_sums", impl=["fastfedrec"])
@with_ratios("time_projection_sums", floor=_floor, threads=N_THREADS)
class ProjectionSums:
    """Clients' sparse products, against SciPy's in double precision, which are not exact."""

    param_names = ("impl",)
    params = (("fastfedrec", "scipy"),)

    def setup(self, impl):
        self.data = datasets.generate_implicit(20_000, 10_000, key=Key.from_seed(1), mean_interactions=30.0)
        rng = np.random.default_rng(1)
        mean = rng.exponential(SCALE / 5_000, self.data.n_items).astype(np.int32)
        encoder = np.clip(rng.normal(0, 20, (self.data.n_items, N_COLUMNS)), -FINEST, FINEST).astype(np.int16)
        self.state = SubspaceState(mean, encoder)
        self.system = ProjectionSum(LayeredGaussian(UNIT), Key.from_seed(1), 0.0, 0)
        self.rows = self.data.to_scipy()
        self.run = self._kernel if impl == "fastfedrec" else self._scipy
        got, expected = self._kernel() / UNIT, self._scipy()
        if not np.allclose(got, expected, atol=1e-2 * np.abs(expected).max()):
            raise AssertionError(f"the two differ by up to {np.abs(got - expected).max()}")

    def time_projection_sums(self, impl):
        self.run()

    def _kernel(self):
        (sums,) = self.system.local_round(
            self.state, self.data, Key.from_seed(1), 0, n_threads=N_THREADS
        ).arrays.values()
        return sums

    def _scipy(self):
        mean, encoder = self.state.mean / SCALE, self.state.encoder.astype(np.float64)
        lengths = np.diff(self.rows.indptr)
        owns, means = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths), mean[self.rows.indices]

        def of(values):
            return scipy.sparse.csr_array((values, self.rows.indices, self.rows.indptr), shape=self.rows.shape)

        # A user's norm excludes the pairs of an item with itself, which the cubes and fourth powers remove.
        squares = np.square(encoder).sum(axis=1)
        projections = of(owns) @ encoder - mean @ encoder
        cubes = of((owns - means) ** 3 + means**3) @ encoder - mean**3 @ encoder
        lengths_squared = of((owns - means) ** 2 - means**2).sum(axis=1) + mean @ mean
        fourths = of((owns - means) ** 4 - means**4) @ squares + mean**4 @ squares
        norms = lengths_squared * np.square(projections).sum(axis=1) - 2 * (cubes * projections).sum(axis=1) + fourths
        weights = 1 / np.sqrt(norms)
        rows = weights[:, None] * projections
        itself = of(np.repeat(weights, lengths) * (owns**2 - 2 * owns * means)).sum(axis=0) + weights.sum() * mean**2
        return of(owns).T @ rows - np.outer(mean, rows.sum(axis=0)) - encoder * itself[:, None]
