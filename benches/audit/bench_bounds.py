"""An audit of 100,000 draws from each input: the choice of the event and its bounds, without the draws."""

import numpy as np

from fastfedrec.audit import audit
from fastfedrec.audit._limits import lower_limit, upper_limit

N = 100_000


class Audit:
    """Scalars with and without a grid, integers beyond 2^53, rows of bits, and rows of reals."""

    param_names = ("kind",)
    params = (("laplace", "integer", "large", "bits", "rows"),)

    def setup(self, kind):
        rng = np.random.default_rng(1)
        shape = (N, 10) if kind in ("bits", "rows") else N
        # The first bit of a row is randomized response with epsilon 1; the others carry no information.
        bits = rng.random((2, N)) < np.e / (1 + np.e)
        self.outputs = []
        for x in (0, 1):
            y = x + np.round(rng.laplace(size=shape) * 1024) / 1024
            if kind == "integer":
                y = np.floor(y).astype(np.int64)
            elif kind == "large":
                y = 2**60 + (1024 * y).astype(np.int64)
            elif kind == "bits":
                y = rng.random(shape) < 0.5
                y[:, 0] = bits[x] if x else ~bits[x]
            elif kind == "rows":
                y[:, 1:] -= x
            self.outputs.append(y)
        result = self._audit()
        if not 0.9 < result.lower_bound < 1.1 or "finite" in result.event:
            raise AssertionError(f"the audit of {kind} found {result.lower_bound:.3f} from: {result.event}")

    def time_audit(self, kind):
        self._audit()

    peakmem_audit = time_audit

    def _audit(self):
        return audit(lambda x, n: self.outputs[x][:n], 0, 1, 1.0, N, 1e-6)


class ClopperPearson:
    """A thousand pairs of limits, against SciPy with one call for each."""

    param_names = ("impl",)
    params = (("fastfedrec", "scipy"),)

    def setup(self, impl):
        self.counts = np.random.default_rng(1).integers(0, N + 1, size=1000)
        self.run = {"fastfedrec": self._fastfedrec, "scipy": self._scipy}[impl]
        np.testing.assert_allclose(self.run(), self._scipy(), rtol=1e-6)

    def time_limits(self, impl):
        self.run()

    def _fastfedrec(self):
        return [limit(self.counts, N, 0.025) for limit in (lower_limit, upper_limit)]

    def _scipy(self):
        from scipy.stats import binomtest

        intervals = [binomtest(int(k), N).proportion_ci(0.95, method="exact") for k in self.counts]
        return [[interval.low for interval in intervals], [interval.high for interval in intervals]]
