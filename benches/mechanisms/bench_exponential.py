"""Private choice of the 100 best of 20,000 items."""

import numpy as np

from benches.ratios import peer
from fastfedrec import Key
from fastfedrec.mechanisms import ExponentialMechanism


class SelectTop:
    """One or 100 picks from monotone scores, with a total epsilon of 10."""

    param_names = ("impl", "n_selected")
    params = (("exact", "gumbel", "numpy", "diffprivlib"), (1, 100))

    def setup(self, impl, n_selected):
        if impl == "diffprivlib" and n_selected > 1:
            raise NotImplementedError("diffprivlib picks one item in a call")
        self.scores = np.random.default_rng(1).zipf(1.3, 20_000).clip(max=100_000)
        self.n_selected = n_selected
        self.run = getattr(self, f"_{impl}")
        with peer(impl):
            chosen = self.run()
        if np.sort(self.scores[chosen])[0] < np.sort(self.scores)[-5 * n_selected] - 200:
            raise AssertionError(f"{impl} chooses items far from the best")

    def time_select(self, impl, n_selected):
        self.run()

    def _exact(self):
        return self._fastfedrec("exact")

    def _gumbel(self):
        return self._fastfedrec("gumbel")

    def _fastfedrec(self, sampler):
        mechanism = ExponentialMechanism(10.0, n_selected=self.n_selected, monotone=True, sampler=sampler)
        return mechanism.privatize(self.scores, key=Key.from_seed(0))

    def _numpy(self):
        noise = np.random.Generator(np.random.PCG64(0)).gumbel(scale=self.n_selected / 10, size=len(self.scores))
        return np.argsort(-(self.scores + noise))[: self.n_selected]

    def _diffprivlib(self):
        from diffprivlib.mechanisms import Exponential

        mechanism = Exponential(
            epsilon=10.0, sensitivity=1, utility=self.scores.tolist(), monotonic=True, random_state=0
        )
        return [mechanism.randomise()]
