"""DP-ALS: users' sums of a round and the complete fit, 20,000 users x 1,000 items, 93 items each; two threads."""

import numpy as np

from benches.core_suite import core
from benches.floors import floor_seconds
from benches.generated import thousand_items
from benches.ratios import with_ratios
from fastfedrec import DPALS, Key, als, hardware
from fastfedrec.systems.dp_als.rounds import LeastSquaresRound, select_items, to_grid
from fastfedrec.systems.dp_als.weights import FrequencyWeights
from fastfedrec.systems.factor_rounds import SCALE, UNIT, FactorState

N_THREADS = 2
N_FACTORS, MAX_ITEMS = 16, 100
OPTIONS = {"regularization": 10.0, "confidence_weight": 4.0}


def _floor(case):
    # The upper triangles of each user's matrix, of all users' products and of each item's products, in float32.
    triangle = N_FACTORS * (N_FACTORS + 1)
    chosen = np.minimum(case.data.interactions_per_user(), MAX_ITEMS).sum()
    flops = (case.data.n_interactions + case.data.n_users + chosen) * triangle
    return floor_seconds(hardware.instruction_set(), flops=int(flops))


@core("time_round_sums", impl=["fastfedrec"])
@with_ratios("time_round_sums", floor=_floor, threads=N_THREADS)
class RoundSums:
    """Clients' part of a round of least squares, against an exact loop of NumPy over items."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)
    weights = None

    def setup(self, impl):
        self.data = thousand_items(20_000)
        self.key = Key.from_seed(1)
        shape = MAX_ITEMS, self.data.n_items, N_FACTORS, self.key
        options = OPTIONS | {"weights": self.weights, "noise_regularization": 16.0}
        self.system = LeastSquaresRound((0.1, 0.1, 0.1), *shape, **options)
        counts = self.data.interactions_per_item().astype(np.float64)
        factors = self.key.uniform("bench", size=self.data.n_items * N_FACTORS).reshape(-1, N_FACTORS) - 0.5
        self.state = FactorState(counts, factors)
        self.run = self._ours if impl == "fastfedrec" else self._numpy
        ours, theirs = self._ours(), self._numpy()
        for name in ours:
            if not np.array_equal(ours[name], theirs[name]):
                raise AssertionError(f"the two differ in {name}")

    def time_round_sums(self, impl):
        self.run()

    def _ours(self):
        return self.system.local_round(self.state, self.data, self.key, 0, n_threads=N_THREADS).arrays

    def _numpy(self):
        solved = als.solve_users(self.data, self.state.item_factors, **OPTIONS, n_threads=N_THREADS)
        users = to_grid(solved)
        by_item = select_items(self.state, self.data, MAX_ITEMS, self.key).to_scipy().tocsc()
        triangle = np.triu_indices(N_FACTORS)
        products = np.empty((self.data.n_items, len(triangle[0])), dtype=np.int64)
        sums = np.empty((self.data.n_items, N_FACTORS), dtype=np.int64)
        for item in range(self.data.n_items):
            rows = users[by_item.indices[by_item.indptr[item] : by_item.indptr[item + 1]]]
            products[item] = (rows.T @ rows)[triangle]
            sums[item] = rows.sum(axis=0) * int(UNIT**0.5)
        return {"all_products": (users.T @ users)[triangle], "item_products": products, "item_sums": sums}


@with_ratios("time_round_sums", threads=N_THREADS)
class AdaptiveRoundSums(RoundSums):
    """Clients' part with adaptive weights, where all items of a user count and products contain their weights."""

    weights = FrequencyWeights(0.25, 10.0)

    def _numpy(self):
        solved = als.solve_users(self.data, self.state.item_factors, **OPTIONS, n_threads=N_THREADS)
        users = to_grid(solved)
        by_item = self.data.to_scipy().tocsc()
        # Positions of the entries in rows give the weight of each entry of a column.
        positions = self.data.to_scipy().astype(np.int64)
        positions.data[:] = np.arange(positions.nnz)
        weights = self.weights.of_users(self.data, self.state.item_counts, SCALE)
        weights = weights[positions.tocsc().data].astype(np.int64)
        triangle = np.triu_indices(N_FACTORS)
        products = np.empty((self.data.n_items, len(triangle[0])), dtype=np.int64)
        sums = np.empty((self.data.n_items, N_FACTORS), dtype=np.int64)
        for item in range(self.data.n_items):
            entries = slice(by_item.indptr[item], by_item.indptr[item + 1])
            rows = users[by_item.indices[entries]]
            weighted = weights[entries, None] * rows
            # The kernel rounds towards zero, and NumPy's division rounds down.
            rounded = np.sign(weighted) * (np.abs(weighted) // SCALE)
            products[item] = (rounded.T @ rows)[triangle]
            sums[item] = weighted.sum(axis=0)
        return {"all_products": (users.T @ users)[triangle], "item_products": products, "item_sums": sums}


class Fit:
    """Complete fit of clients and server: counts, start and two rounds."""

    def setup(self):
        self.data = thousand_items(20_000)

    def time_fit(self):
        DPALS(1.0).fit(self.data, key=Key.from_seed(2), n_threads=N_THREADS)

    def time_fit_adaptive(self):
        DPALS(1.0, weights="adaptive").fit(self.data, key=Key.from_seed(2), n_threads=N_THREADS)

    peakmem_fit = time_fit
