"""Randomized ratings, and the complete fit; one thread."""

import numpy as np

from benches.generated import ratings
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key, LaplaceRRSVD


def _floor(case):
    # Each report takes a word.  There is a report for each rating, or for each item if rated items are hidden.
    return keystream_seconds(case.data.n_users * case.data.n_items if case.hides_items else case.data.n_interactions)


@with_ratios("time_randomize", floor=_floor)
class RandomizeRatings:
    """Reports of 500,000 ratings of 5,000 users, against the published mechanism in NumPy, without named streams."""

    param_names = ("impl",)
    params = (("fastfedrec_optimal", "fastfedrec_published", "fastfedrec_hide_items", "numpy_published"),)

    def setup(self, impl):
        self.data = ratings(5_000, 1_000, 100)
        self.hides_items = impl.endswith("hide_items")
        options = {"hide_items": True} if self.hides_items else {"variant": impl.partition("_")[2]}
        self.model = LaplaceRRSVD(**options)
        ((self.rounds, self.state, _),) = self.model._plan(self.data, Key.from_seed(0))
        self.run = self._numpy if impl.startswith("numpy") else self._fastfedrec
        reports = self.run()
        if self.hides_items:
            mean, truth = self.model.channel.estimate(reports).mean(), self.data.values_or_ones().sum() / 5e6
        else:
            decoded = reports if reports.dtype == np.float64 else self.model.channel.estimate(reports)
            mean, truth = decoded.mean(), self.data.values_or_ones().mean()
        if abs(mean - truth) > 0.03:
            raise AssertionError(f"{impl} gives the mean {mean:.4f}, and the ratings have {truth:.4f}")

    def time_randomize(self, impl):
        self.run()

    def _fastfedrec(self):
        update = self.rounds.local_round(self.state, self.data, Key.from_seed(0), 0, n_threads=1)
        return update.arrays["report"]

    def _numpy(self):
        rng, values = np.random.Generator(np.random.PCG64(0)), self.data.values_or_ones()
        noisy = values + rng.laplace(0, 4.0, len(values))
        return np.where(rng.random(len(values)) < 1 / (1 + np.exp(-1.0)), values, noisy)


class Fit:
    """Collection and training on 100,000 ratings, with biases alone and with factors."""

    param_names = ("n_factors",)
    params = ((0, 20),)

    def setup(self, n_factors):
        self.data = ratings(1_000, 500, 100)
        self.model = LaplaceRRSVD("optimal", 2.0, 2.0, n_factors=n_factors)
        self.time_fit(n_factors)
        if not abs(self.model.mean_ - self.data.values_or_ones().mean()) < 0.03:
            raise AssertionError(f"the mean is {self.model.mean_}")

    def time_fit(self, n_factors):
        self.model.fit(self.data, key=Key.from_seed(0), n_threads=1)
