"""A search among 50 pairs of neighbours; one pair violates the claim by 20%."""

import numpy as np

from fastfedrec.audit import audit, search_pairs

N = 100_000


class Search:
    """The search, compared with audits of all pairs with the same number of draws for each."""

    param_names = ("impl",)
    params = (("fastfedrec", "all pairs"),)
    timeout = 300

    def setup(self, impl):
        self.rng = np.random.default_rng(1)
        self.pairs = [(2 * i, 2 * i + 1) for i in range(50)]
        self.run = {"fastfedrec": self._search, "all pairs": self._audit_all}[impl]
        worst = self._search()
        if (worst.x0, worst.verdict) != (62, "violated"):
            raise AssertionError(f"the search found {worst}")

    def time_search(self, impl):
        self.run()

    def _mechanism(self, x, n):
        p = 1 / (1 + np.exp(-1.2 if x // 2 == 31 else -0.5))
        return np.where(self.rng.random(n) < p, x % 2, 1 - x % 2)

    def _search(self):
        return search_pairs(self._mechanism, self.pairs, 1.0, N, 1e-6)

    def _audit_all(self):
        return [audit(self._mechanism, *pair, 1.0, N, 1e-6 / len(self.pairs)) for pair in self.pairs]
