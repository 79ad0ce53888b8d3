"""Walsh-Hadamard transforms of 4,096 rows of 1,024 numbers; two threads, against NumPy's whole-array passes."""

import numpy as np

from benches.core_suite import core
from benches.floors import triad_bytes_per_second
from benches.ratios import with_ratios
from fastfedrec import hadamard

N_THREADS = 2
SHAPE = (4_096, 1_024)


def _floor(case):
    # Each number is read once and written once, which takes longer than its ten additions.
    return 2 * case.values.nbytes / triad_bytes_per_second()


@core("time_transform", impl=["fastfedrec"], kind=["int64"])
@with_ratios("time_transform", floor=_floor, threads=N_THREADS)
class Transform:
    """Transforms of integers and of doubles."""

    param_names = ("impl", "kind")
    params = (("fastfedrec", "numpy"), ("int64", "float64"))

    def setup(self, impl, kind):
        self.values = np.random.default_rng(1).integers(-1000, 1000, SHAPE).astype(kind)
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        np.testing.assert_array_equal(self._fastfedrec(), self._numpy())  # integers are exact as doubles too

    def time_transform(self, impl, kind):
        self.run()

    def _fastfedrec(self):
        return hadamard.hadamard_transform(self.values, n_threads=N_THREADS)

    def _numpy(self):
        """Transform all rows by ten passes of sums and differences."""
        out, half = self.values.copy(), 1
        # Each pass combines entries at distance `half`.
        while half < SHAPE[1]:
            pairs = out.reshape(len(out), -1, 2, half)
            out = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(SHAPE)
            half *= 2
        return out
