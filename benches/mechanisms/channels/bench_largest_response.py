"""Reports of vectors by largest response; one thread."""

import numpy as np

from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key
from fastfedrec.mechanisms import LargestResponse

EPSILON, N_CANDIDATES, N_ENTRIES = 2.5, 8, 64


def _floor(case):
    # Each vector takes a word, and one more for each of its candidates.
    return keystream_seconds(len(case.values) * (1 + N_CANDIDATES))


@with_ratios("time_privatize", floor=_floor)
class PrivatizeVectors:
    """Reports of 100,000 gradient-like vectors with a large first entry."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.response = LargestResponse(EPSILON, N_CANDIDATES)
        self.run = getattr(self, f"_{impl}")
        self.values = np.random.default_rng(1).normal(size=(100_000, N_ENTRIES)).astype(np.float32)
        self.values[:, 0] = -9
        entries, signs = self.run(self.values).T
        # The first entry is reported if it is a candidate of a report that is no clone, and sometimes by a clone.
        clones = self.response.clones / 2**64
        chosen = (1 - clones) * (1 - (1 - 1 / N_ENTRIES) ** N_CANDIDATES)
        share, mean = (entries == 0).mean(), -signs[entries == 0].sum() / len(signs)
        if abs(share - chosen - clones / N_ENTRIES) > 0.006 or abs(mean - chosen) > 0.006:
            raise AssertionError(f"{impl} reports the largest entry {share:.3f} of the time, and its sign {mean:.3f}")

    def time_privatize(self, impl):
        self.run(self.values)

    def _fastfedrec(self, values):
        return self.response.privatize(values, key=Key.from_seed(0))

    def _numpy(self, values):
        # The mechanism in doubles, without a claim on the exact probability.
        rng, n = np.random.Generator(np.random.PCG64(0)), len(values)
        candidates = rng.integers(N_ENTRIES, size=(n, N_CANDIDATES))
        sizes = np.abs(np.take_along_axis(values, candidates, axis=1))
        is_clone = rng.random(n) < self.response.clones / 2**64
        positions = np.where(is_clone, 0, sizes.argmax(axis=1))[:, None]
        entries = np.take_along_axis(candidates, positions, axis=1)
        signs = np.sign(np.take_along_axis(values, entries, axis=1)[:, 0]).astype(np.int64)
        return np.stack([entries[:, 0], np.where(is_clone, 1 - 2 * rng.integers(2, size=n), signs)], axis=1)
