"""Rows clipped to a norm, 10,000 clients x 2,000 entries; one thread."""

import numpy as np

from benches.floors import fastest, in_turns, triad_bytes_per_second
from fastfedrec import hardware
from fastfedrec.mechanisms import clip_rows_l1, clip_rows_l2

CLIPS = {1: clip_rows_l1, 2: clip_rows_l2}


class Rows:
    """Into an array that is there; NumPy's textbook clip exceeds its bound by rounding on half of the rows."""

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


class ClipRows:
    param_names = ("impl", "order", "dtype")
    params = (("fastfedrec", "numpy"), (1, 2), ("float32", "float64"))

    def setup(self, impl, order, dtype):
        rows = Rows(order, dtype)
        rows.run_and_check(impl)
        self.run = getattr(rows, impl)

    def time_clip(self, impl, order, dtype):
        self.run()


class InstructionSets:
    param_names = ("order", "dtype", "instruction_set")
    params = ((1, 2), ("float32", "float64"), ("x86-64-v4", "x86-64-v3", "plain"))

    def setup(self, order, dtype, instruction_set):
        if instruction_set not in hardware.instruction_sets():
            raise NotImplementedError(f"no {instruction_set} here")
        self.rows = Rows(order, dtype)
        with hardware.use_instruction_set(instruction_set):
            self.rows.run_and_check("fastfedrec")
        self.rows.run_and_check("numpy")

    def track_times_numpy(self, order, dtype, instruction_set):
        with hardware.use_instruction_set(instruction_set):
            ours, theirs = in_turns(self.rows.fastfedrec, self.rows.numpy)
        return theirs / ours

    def track_floor_share(self, order, dtype, instruction_set):
        """Each number read once and written once."""
        with hardware.use_instruction_set(instruction_set):
            seconds = fastest(self.rows.fastfedrec)
        return 2 * self.rows.out.nbytes / triad_bytes_per_second() / seconds

    track_times_numpy.unit = "times faster"
    track_floor_share.unit = "share of floor"
