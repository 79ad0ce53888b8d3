"""FMF-LDP: one round and a whole run, beside the same mathematics in NumPy, a user at a time."""

import numpy as np

from fastfedrec import FMFLDP, Key, datasets
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems.fmf_ldp import FMFState

N_REPORTS, REGULARIZATION = 100, 1e-6


def numpy_round(item_factors, shard, seed):
    """Sum of the +-1 answers by coordinate; every step vectorised over one user's reports (PCG64, no CSPRNG)."""
    rng = np.random.default_rng(seed)
    channel = BinaryResponse(2.5)
    n_factors = item_factors.shape[1]
    inverse = np.linalg.inv(item_factors.T @ item_factors + REGULARIZATION * np.eye(n_factors))
    sums = np.zeros(item_factors.size, dtype=np.int64)
    for user in range(shard.n_users):
        items = shard.indices[shard.indptr[user] : shard.indptr[user + 1]]
        x = inverse @ item_factors[items].sum(axis=0)
        coordinates = rng.integers(item_factors.size, size=N_REPORTS)
        item, factor = np.divmod(coordinates, n_factors)
        gradient = 2 * (item_factors[item] @ x - np.isin(item, items)) * x[factor]
        plus = rng.random(N_REPORTS) < 0.5 + np.clip(gradient, -1, 1) / (2 * channel.decoder)
        np.add.at(sums, coordinates, 2 * plus - 1)
    return sums


class Round:
    """One round at 20,000 x 1,000; the two sums estimate the same gradient, which is checked."""

    param_names = ("impl", "n_threads")
    params = (["fastfedrec", "numpy"], [1, 2])
    timeout = 300
    version = "1"

    def setup_cache(self):
        return datasets.generate_implicit(20_000, 1_000, key=Key.from_seed(1))

    def setup(self, data, impl, n_threads):
        if impl == "numpy" and n_threads > 1:
            raise NotImplementedError("a Python loop has one thread")
        self.model = FMFLDP(n_reports=N_REPORTS, regularization=REGULARIZATION)
        factors = (0.02 * Key.from_seed(2).normal("bench", size=5_000).reshape(1_000, 5)).astype(np.float32)
        self.state = FMFState(factors)
        if impl == "numpy":
            self._check(data)

    def _check(self, data):
        shard = data.shard(4)[0]
        update = self.model.local_round(self.state, shard, Key.from_seed(3), 0)
        ours = np.zeros(5_000)
        ours[update.arrays["coordinate"]] = update.arrays["total"]
        theirs = numpy_round(self.state.item_factors.astype(np.float64), shard, seed=4)
        # Each report moves one coordinate by +-1: the squared difference of the sums is about two a report.
        spread = np.sum((ours - theirs) ** 2) / (2 * shard.n_users * N_REPORTS)
        if not 0.8 < spread < 1.2 or np.corrcoef(ours, theirs)[0, 1] < 0.3:
            raise AssertionError(f"the two rounds do not estimate the same gradient (spread {spread:.3f})")

    def time_round(self, data, impl, n_threads):
        if impl == "numpy":
            numpy_round(self.state.item_factors.astype(np.float64), data, seed=0)
        else:
            self.model.local_round(self.state, data, Key.from_seed(3), 0, n_threads=n_threads)


class Fit:
    """The whole run of the paper at 50,000 x 1,000: 20 rounds of 100 reports."""

    param_names = ("n_threads",)
    params = ([1, 2],)
    timeout = 300
    version = "1"

    def setup_cache(self):
        return datasets.generate_implicit(50_000, 1_000, key=Key.from_seed(1))

    def time_fit(self, data, n_threads):
        FMFLDP().fit(data, key=Key.from_seed(2), n_threads=n_threads)

    def peakmem_fit(self, data, n_threads):
        FMFLDP().fit(data, key=Key.from_seed(2), n_threads=n_threads)

    def track_reports_per_second(self, data, n_threads):
        import time

        start = time.perf_counter()
        FMFLDP().fit(data, key=Key.from_seed(2), n_threads=n_threads)
        return 20 * 50_000 * 100 / (time.perf_counter() - start)

    track_reports_per_second.unit = "reports/s"
