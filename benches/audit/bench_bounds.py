"""An audit of 100,000 draws from each input: the choice of the event and its bounds, without the draws."""

from dataclasses import dataclass

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
        return audit(lambda x, n: self.outputs[x][:n], 0, 1, 1.0, N, 1e-6, check_repeats=False)


@dataclass
class Release:
    """A release of two numbers."""

    total: float
    n_users: int


class Objects:
    """An audit of 20,000 draws of two numbers, as rows of an array and as objects."""

    param_names = ("kind",)
    params = (("array", "frame", "dicts", "dataclasses"),)

    def setup(self, kind):
        rng = np.random.default_rng(1)
        totals = [x + np.round(rng.laplace(size=20_000) * 1024) / 1024 for x in (0, 1)]
        make = {
            "array": lambda y: np.column_stack([y, np.full(len(y), 3.0)]),
            "frame": self._frame,
            "dicts": lambda y: [{"total": v, "n_users": 3} for v in y.tolist()],
            "dataclasses": lambda y: [Release(v, 3) for v in y.tolist()],
        }[kind]
        self.outputs = [make(y) for y in totals]
        result = self._audit()
        if not 0.8 < result.lower_bound < 1.1:
            raise AssertionError(f"the audit of {kind} found {result.lower_bound:.3f} from: {result.event}")

    def time_audit(self, kind):
        self._audit()

    def _audit(self):
        return audit(lambda x, n: self.outputs[x], 0, 1, 1.0, 20_000, 1e-6, check_repeats=False)

    def _frame(self, totals):
        import pandas as pd

        return pd.DataFrame({"total": totals, "n_users": np.full(len(totals), 3)})


class Spread:
    """An audit of half of the noise that is spread over 20 columns, at claim 2.5 by default, and of wide outputs."""

    timeout = 600

    def setup(self):
        rng = np.random.default_rng(1)
        p = -np.expm1(-2.5 / 20)

        def mechanism(x, n):
            return x + rng.geometric(p, (n, 20)) - rng.geometric(p, (n, 20))

        self.mechanism, self.inputs = mechanism, (np.zeros(20, dtype=int), np.ones(20, dtype=int))

    def time_spread(self):
        audit(self.mechanism, *self.inputs, 2.5)

    def track_lower_bound_over_claim(self):
        bounds = [audit(self.mechanism, self.inputs[0], 2 * self.inputs[1], 2.5).lower_bound for _ in range(3)]
        return float(np.median(bounds)) / 2.5

    def peakmem_two_million_draws(self):
        audit(self.mechanism, *self.inputs, 0.25)


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
