"""DPGram: sums of pairs and the complete fit, 50,000 users x 1,000 items, 93 items each; two threads."""

import numpy as np

from benches.core_suite import core, first_module
from benches.floors import floor_seconds
from benches.generated import thousand_items
from benches.ratios import with_ratios
from fastfedrec import DPGram, Key, hardware
from fastfedrec.mechanisms import LayeredGaussian

gram_rounds = first_module("systems.gram.dp_gram_rounds", "systems._dp_gram_rounds")

N_THREADS = 2


def _floor(case):
    # Each pair of a user's items has a multiplication and an addition.  Centring adds fewer operations.
    n = case.data.interactions_per_user().astype(np.int64)
    return floor_seconds(hardware.instruction_set(), flops=int((n * (n - 1)).sum()))


@with_ratios("time_pair_sums", floor=_floor, threads=N_THREADS)
class PairSums:
    """Clients' weighted outer products of centred rows, against blocks of dense rows in NumPy, which are not exact."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data = thousand_items(50_000)
        lengths = np.maximum(self.data.interactions_per_user(), 1)
        self.entries = 1 / np.sqrt(lengths)
        mean = self.data.to_scipy().multiply(self.entries[:, None]).mean(axis=0)
        self.mean = np.rint(np.asarray(mean).ravel() * gram_rounds.SCALE).astype(np.int64)
        self.system = gram_rounds.PairSum(LayeredGaussian(gram_rounds.UNIT), Key.from_seed(1), 0.0)
        self.run = self._kernel if impl == "fastfedrec" else self._numpy
        self.matrix = self.data.to_scipy()
        got, expected = self._kernel() / gram_rounds.UNIT, self._numpy()
        if not np.allclose(got, expected, atol=1e-2 * np.abs(expected).max()):
            raise AssertionError(f"the two differ by up to {np.abs(got - expected).max()}")

    def time_pair_sums(self, impl):
        self.run()

    def _kernel(self):
        state = gram_rounds.GramState(self.mean)
        return self.system.local_round(state, self.data, Key.from_seed(1), 0, n_threads=N_THREADS).arrays["item_pairs"]

    def _numpy(self):
        n_users, n_items = self.data.shape
        gram = np.zeros((n_items, n_items))
        for start in range(0, n_users, 5_000):
            part = slice(start, start + 5_000)
            z = self.matrix[part].toarray() * self.entries[part, None] - self.mean / gram_rounds.SCALE
            square = z * z
            second = square.sum(axis=1)
            # A user's sum of squared pairs is (|z|^4 - sum of z^4) / 2, and its weight makes it 1.
            weight = np.sqrt(2 / (second**2 - (square * square).sum(axis=1)))
            gram += (z * weight[:, None]).T @ z
        return gram[np.triu_indices(n_items, 1)]


@core("time_fit", n_users=[50_000])
class Fit:
    """Complete fit of clients and server: all sums, the noise, the decision, the spectrum and the factors."""

    param_names = ("n_users",)
    params = ((50_000, 200_000),)

    def setup(self, n_users):
        self.data = thousand_items(n_users)
        self._fit()
        if self.model.item_factors_.shape[1] < 3:
            raise AssertionError("the fit has too few directions above the noise")

    def time_fit(self, n_users):
        self._fit()

    peakmem_fit = time_fit

    def _fit(self):
        self.model = DPGram(1.0).fit(self.data, key=Key.from_seed(2), n_threads=N_THREADS)


class FitWithFeatures:
    """Complete fit with informative public features, which first decides whether to use them."""

    param_names = ("item_features",)
    params = (("none", "labels and vectors"),)

    def setup(self, item_features):
        self.data, self.table = thousand_items(50_000), None
        if item_features != "none":
            rng, rows = np.random.default_rng(1), self.data.to_scipy()
            vectors = rows.T @ (rows @ rng.normal(size=(1_000, 64)))
            labels = [[f"{a}", f"{b}"] for a, b in zip(vectors.argmax(axis=1), vectors.argmin(axis=1), strict=True)]
            self.table = {"labels": labels, "vectors": vectors - vectors.mean(axis=0)}
        self._fit()

    def time_fit(self, item_features):
        self._fit()

    peakmem_fit = time_fit

    def _fit(self):
        DPGram(1.0, item_features=self.table).fit(self.data, key=Key.from_seed(2), n_threads=N_THREADS)
