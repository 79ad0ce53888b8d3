"""Clipping to a norm, 10,000 clients x 2,000 entries; one thread."""

import numpy as np

from benches.core_suite import core
from benches.floors import fastest, triad_bytes_per_second
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, times_faster
from fastfedrec.mechanisms import clip_rows_l1, clip_rows_l2

CLIPS = {1: clip_rows_l1, 2: clip_rows_l2}


class Rows:
    """Rows and an output array, with our clip and NumPy's textbook clip."""

    # By rounding, the textbook clip exceeds its bound on half of the rows.

    def __init__(self, order, dtype):
        self.order = order
        self.rows = np.random.default_rng(1).normal(size=(10_000, 2_000)).astype(dtype)
        self.out = np.empty_like(self.rows)

    def fastfedrec(self):
        CLIPS[self.order](self.rows, 1.0, out=self.out, n_threads=1)

    def numpy(self):
        norms = np.linalg.norm(self.rows, ord=self.order, axis=1, keepdims=True)
        np.multiply(self.rows, np.minimum(1, 1 / norms), out=self.out)

    def run_and_check(self, impl):
        getattr(self, impl)()
        norms = np.linalg.norm(self.out.astype(np.float64), ord=self.order, axis=1)
        if not np.allclose(norms, 1.0, rtol=1e-4):
            raise AssertionError(f"{impl} leaves norms from {norms.min()} to {norms.max()}, not 1")


@core("time_clip", impl=["fastfedrec"], order=[2])
class ClipRows:
    param_names = ("impl", "order", "dtype")
    params = (("fastfedrec", "numpy"), (1, 2), ("float32", "float64"))

    def setup(self, impl, order, dtype):
        rows = Rows(order, dtype)
        rows.run_and_check(impl)
        self.run = getattr(rows, impl)

    def time_clip(self, impl, order, dtype):
        self.run()


class InstructionSets(OnInstructionSet):
    param_names = ("order", "dtype", "instruction_set")
    params = ((1, 2), ("float32", "float64"), INSTRUCTION_SETS)
    unit = "times faster"

    def setup(self, order, dtype, instruction_set):
        super().setup(instruction_set)
        self.rows = Rows(order, dtype)
        self.rows.run_and_check("fastfedrec")
        self.rows.run_and_check("numpy")

    def track_times_numpy(self, order, dtype, instruction_set):
        return times_faster(self.rows.numpy, self.rows.fastfedrec)

    def track_floor_share(self, order, dtype, instruction_set):
        """Count one read and one write of each number."""
        return 2 * self.rows.out.nbytes / triad_bytes_per_second() / fastest(self.rows.fastfedrec)

    track_floor_share.unit = "share of floor"
