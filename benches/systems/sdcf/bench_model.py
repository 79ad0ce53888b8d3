"""A round of SDCF, one thread, against a loop of NumPy over users, as in a Python simulation."""

import numpy as np

from benches.core_suite import core
from benches.floors import floor_seconds
from benches.generated import ratings
from benches.ratios import with_ratios
from fastfedrec import SDCF, Key, hardware
from fastfedrec.systems.gradient_rounds.devices import RATED, VIRTUAL, WITHHELD

N_FACTORS = 20
STAGES = {"keep_probability": 0.9, "add_probability": 0.02, "report_probability": 0.9, "false_report_probability": 0.01}


def _floor(case):
    # Each rating has a product for its error and one for the step.  Each reported vector has two products.
    products = case.data.n_interactions * 2 + 2 * len(case.reported.items)
    return floor_seconds(hardware.instruction_set(), flops=2 * products * N_FACTORS)


@core("time_round", impl=["fastfedrec"])
@with_ratios("time_round", floor=_floor)
class Round:
    """100,000 ratings of 1,000 users and about 45,000 virtual errors, with noise on every vector."""

    param_names = ("impl",)
    params = (("fastfedrec", "fastfedrec_denoised", "numpy"),)

    def setup(self, impl):
        self.data, self.key = ratings(1_000, 1_500, 100), Key.from_seed(0)
        model = SDCF(impl == "fastfedrec_denoised", n_factors=N_FACTORS, **STAGES)
        self.rounds = model._rounds(self.data, self.key)
        self.state = self.rounds.initial_state(self.data)
        self.total = self._fastfedrec().arrays
        (devices,) = self.rounds._devices.values()
        self.reported = devices.reported
        if impl == "numpy":
            self._check_numpy()
        self.run = self._numpy if impl == "numpy" else self._fastfedrec
        self.run()

    def time_round(self, impl):
        self.run()

    def _fastfedrec(self):
        return self.rounds.local_round(self.state, self.data, self.key, 0, n_threads=1)

    def _numpy(self):
        rng, data, v = np.random.default_rng(1), self.data, self.state.item_factors
        users = rng.random((data.n_users, N_FACTORS)) * 0.01 - 0.005
        total, counts = np.zeros(v.shape), np.zeros(data.n_items)
        rate, deviation = self.state.learning_rate, self.state.learning_rate**-0.5
        answers = rng.random((data.n_users, data.n_items))
        for u in range(data.n_users):
            part = slice(data.indptr[u], data.indptr[u + 1])
            rated = np.zeros(data.n_items, dtype=bool)
            rated[data.indices[part]] = True
            answer = answers[u] < np.where(rated, 0.9, 0.02)
            is_reported = rng.random(data.n_items) < np.where(answer, 0.9, 0.01)
            rating_errors = v[rated] @ users[u] - data.values[part]
            errors = rng.choice(rating_errors, data.n_items)  # virtual items get the error of a random rating
            errors[rated] = rating_errors
            items = np.flatnonzero(is_reported)
            total[items] += errors[items, None] * users[u] + deviation * rng.normal(size=(len(items), N_FACTORS))
            counts[items] += 1
            n_rated = len(rating_errors)
            noise = np.sqrt(rate / n_rated) * rng.normal(size=N_FACTORS)
            step = users[u] - rate * rating_errors @ v[rated] / n_rated + noise
            users[u] = step / (1 + rate / (2 * n_rated) * self.state.precision.diagonal())
        return total, counts

    def _check_numpy(self):
        """Check that both rounds report the same number of vectors, with noise of the same variance."""
        # The generators differ, so the vectors themselves cannot be compared.
        ours, (total, counts) = self.total["total"].view(np.int64), self._numpy()
        sent = np.isin(self.reported.kinds, (RATED, VIRTUAL)).sum()
        if ours[:, -1].sum() != sent or WITHHELD not in self.reported.kinds or abs(counts.sum() / sent - 1) > 0.02:
            raise AssertionError("NumPy reports another number of items")
        frequent = counts > 20
        sums = ours[frequent, :-1] / 2.0**32, total[frequent]
        spread = [np.mean(x**2 / n[frequent, None]) for x, n in zip(sums, (ours[:, -1], counts), strict=True)]
        if abs(spread[0] / spread[1] - 1) > 0.1:
            raise AssertionError("NumPy's noise has another variance")
