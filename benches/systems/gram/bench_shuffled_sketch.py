"""ShuffledSketchGram: the clients' reports and the complete fit; 1,000 items, 93 for each user; two threads."""

import numpy as np

from benches.core_suite import core
from benches.generated import thousand_items
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key, ShuffledSketchGram
from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound

N_THREADS = 2
N_REPORTS = 1_288  # epsilon 1 for 50,000 users
KEY = Key.from_seed(2)
REPORTS = "shuffled_sketch.reports"  # purpose of the words that `local_round` draws


def _floor(case):
    # Each report takes five words.  Its candidates' values, the sketches and the sums add to this.
    return keystream_seconds(5 * N_REPORTS * case.data.n_users)


@core("time_reports", impl=["fastfedrec"])
@with_ratios("time_reports", floor=_floor, threads=N_THREADS)
class Reports:
    """Sums of 1,288 reports of each of 1,000 users, against dense products in NumPy with the same words."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data = thousand_items(1_000)
        self.system = SketchRound(LargestResponse(2.5), 1_000, N_REPORTS, 8, True)
        self.state = self.system.initial_state(KEY)
        hadamard = hadamard_transform(np.eye(self.system.length))[:1_000]
        self.rotated = (self.state.signs[:, :, :1_000, None] * hadamard).astype(np.float32)  # rows are items
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        np.testing.assert_array_equal(self._fastfedrec(), self._numpy())

    def time_reports(self, impl):
        self.run()

    def _fastfedrec(self):
        update = self.system.local_round(self.state, self.data, KEY, 0, n_threads=N_THREADS)
        return update.arrays["answers"]

    def _numpy(self):
        """Return the sums from blocks of users, with sketches from matrix products in single precision."""
        # Sketches hold small integers, which are exact in single precision.
        length = self.system.length
        sums = np.zeros(self.system.shape, dtype=np.int64)
        for start in range(0, self.data.n_users, 200):
            part = self.data.select_users(np.arange(start, min(start + 200, self.data.n_users)))
            dense = part.to_scipy().toarray().astype(np.float32)
            sketches = np.stack([[dense @ side for side in sides] for sides in self.rotated])
            words = KEY.words_by_user(REPORTS, part.global_user_ids, size=5 * N_REPORTS, n_threads=N_THREADS)
            words = words.reshape(len(dense), N_REPORTS, 5)
            # Each half of the first four words draws one of eight candidates.
            halves = np.stack([words[..., :4] & np.uint64(0xFFFFFFFF), words[..., :4] >> np.uint64(32)], axis=-1)
            halves = halves.reshape(len(dense), N_REPORTS, 8)
            low = (halves % np.uint64(length * length)).astype(np.int64)
            rotation = (halves * np.uint64(8) >> np.uint64(32)).astype(np.int64)
            users, row, column = np.arange(len(dense))[:, None, None], low // length, low % length
            values = sketches[rotation, 0, users, row] * sketches[rotation, 1, users, column]
            coin = words[..., 4]
            is_clone = coin < np.uint64(self.system.channel.clones)
            chosen = np.where(is_clone, 0, np.abs(values).argmax(axis=2))[..., None]
            value = np.take_along_axis(values, chosen, axis=2)[..., 0]
            bit = np.where(is_clone | (value == 0), coin & np.uint64(1), value > 0)
            cell = np.take_along_axis((rotation * length + row) * length + column, chosen, axis=2)[..., 0]
            np.add.at(sums.reshape(-1), cell, 2 * bit.astype(np.int64) - 1)
        return sums


class Fit:
    """Complete fit of clients and server: the budget, the reports, the transform, the spectrum and the factors."""

    param_names = ("n_users", "epsilon")
    params = ((50_000,), (1.0, 2.0))

    def setup(self, n_users, epsilon):
        self.data = thousand_items(n_users)
        self._fit(epsilon)
        if self.model.item_factors_.shape[1] < 2:
            raise AssertionError("the fit has too few directions above the noise")

    def time_fit(self, n_users, epsilon):
        self._fit(epsilon)

    peakmem_fit = time_fit

    def _fit(self, epsilon):
        self.model = ShuffledSketchGram(epsilon).fit(self.data, key=KEY, n_threads=N_THREADS)
