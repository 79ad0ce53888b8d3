"""Rows clipped to a norm, 10,000 clients x 2,000 entries; one thread."""

import numpy as np

from fastfedrec.mechanisms import clip_rows_l1, clip_rows_l2


class ClipRows:
    """In place on a fresh copy each time; NumPy's textbook clip exceeds its bound by rounding on half of the rows."""

    param_names = ("impl", "order", "dtype")
    params = (("fastfedrec", "numpy"), (1, 2), ("float32", "float64"))

    def setup(self, impl, order, dtype):
        self.rows = np.random.default_rng(1).normal(size=(10_000, 2_000)).astype(dtype)
        self.out = np.empty_like(self.rows)
        clip = clip_rows_l1 if order == 1 else clip_rows_l2
        self.run = (lambda: clip(self.rows, 1.0, out=self.out, n_threads=1)) if impl == "fastfedrec" else self._numpy
        self.order = order
        self.run()
        norms = np.linalg.norm(self.out.astype(np.float64), ord=order, axis=1)
        if not np.allclose(norms, 1.0, rtol=1e-4):
            raise AssertionError(f"{impl} leaves norms from {norms.min()} to {norms.max()}, not 1")

    def time_clip(self, impl, order, dtype):
        self.run()

    def _numpy(self):
        norms = np.linalg.norm(self.rows, ord=self.order, axis=1, keepdims=True)
        np.multiply(self.rows, np.minimum(1, 1 / norms), out=self.out)
