"""A round of FedRec and FedRec++, one thread, against a loop of NumPy over users, as in a Python simulation."""

import numpy as np

from benches.core_suite import core
from benches.floors import floor_seconds
from benches.generated import ratings
from benches.ratios import with_ratios
from fastfedrec import FedRec, FedRecPlusPlus, Key, hardware

RHO, N_FACTORS, T_LOCAL = 1, 20, 10


def _floor(case):
    # Each rating has two products in each local step.  Each reported item, real or virtual, has an error and a
    # gradient, and each virtual item has one more product for its rating.  All count in float32.
    products = case.data.n_interactions * (2 * T_LOCAL + (1 + RHO) * 2 + RHO)
    return floor_seconds(hardware.instruction_set(), flops=2 * products * N_FACTORS)


@core("time_round", impl=["fastfedrec"])
@with_ratios("time_round", floor=_floor)
class Round:
    """100,000 ratings of 1,000 users, with the same number of virtual ones, predicted after ten local steps."""

    param_names = ("impl",)
    params = (("fastfedrec", "fastfedrec_published", "fastfedrec_additive", "numpy"),)

    def setup(self, impl):
        self.data, self.key = ratings(1_000, 1_500, 100), Key.from_seed(0)
        options = {"rho": RHO, "t_predict": 0, "t_local": T_LOCAL, "n_factors": N_FACTORS}
        sharing = impl.partition("_")[2]
        model = FedRecPlusPlus(1, sharing, **options) if sharing else FedRec(**options)
        self.rounds = model._rounds(self.data, self.key)
        self.state = self.rounds.initial_state(self.data)
        if impl == "numpy":
            self._check_numpy()
        self.run = self._numpy if impl == "numpy" else self._fastfedrec
        self.run()

    def time_round(self, impl):
        self.run()

    def _fastfedrec(self):
        return self.rounds.local_round(self.state, self.data, self.key, 0, n_threads=1)

    def _numpy(self):
        reported, factors = self.reported, self.factors.copy()
        total, counts = np.zeros(self.state.item_factors.shape), np.zeros(self.data.n_items)
        for u in range(self.data.n_users):
            part = slice(reported.indptr[u], reported.indptr[u + 1])
            items, is_rated = reported.items[part], reported.kinds[part] == 0
            vectors, old = self.state.item_factors[items], factors[u].copy()
            rated, truth = vectors[is_rated], self.data.values[self.data.indptr[u] : self.data.indptr[u + 1]]
            # Local steps train a copy, which predicts virtual ratings; the first step is the user's update.
            copy = old
            for step in range(T_LOCAL):
                copy = copy - 0.8 * ((rated @ copy - truth) @ rated / len(truth) + 0.001 * copy)
                if step == 0:
                    factors[u] = copy
            stars = vectors @ copy
            stars[is_rated] = truth
            errors = vectors @ old - stars
            total[items] += errors[:, None] * old + 0.001 * vectors
            counts[items] += 1
        return total, counts

    def _check_numpy(self):
        update = self._fastfedrec().arrays["total"].view(np.int64)
        (devices,) = self.rounds._devices.values()
        self.reported = devices.reported
        moved = devices.user_factors
        fresh = FedRec(n_factors=N_FACTORS)._rounds(self.data, self.key)
        fresh._devices_in("shard-0", self.data, self.key, 0)
        self.factors = fresh.device_factors(self.state)
        if np.array_equal(moved, self.factors):
            raise AssertionError("no user has moved")
        total, counts = self._numpy()
        if not np.allclose(update[:, :-1] / 2.0**32, total, atol=1e-6) or not (counts == update[:, -1]).all():
            raise AssertionError("NumPy's sums differ from the kernel's")


class Fit:
    """Complete fit with ten rounds on 100,000 ratings."""

    param_names = ("sharing",)
    params = (("published", "additive"),)

    def setup(self, sharing):
        self.data = ratings(1_000, 1_500, 100)
        self.model = FedRecPlusPlus(1, sharing, n_rounds=10)
        self.time_fit(sharing)
        bare = FedRec(0, n_rounds=10).fit(self.data, key=Key.from_seed(0))
        if not np.array_equal(bare.item_factors_, self.model.item_factors_):
            raise AssertionError("the model differs from FedRec without virtual items")

    def time_fit(self, sharing):
        self.model.fit(self.data, key=Key.from_seed(0), n_threads=1)
