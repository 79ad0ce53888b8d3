"""Piecewise and hybrid reports for a million real numbers; one thread."""

import math

import numpy as np

from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key
from fastfedrec.mechanisms import Hybrid, Piecewise

EPSILON = 2.0


def _floor(case):
    # Each report takes a word.  The estimate's read of each report takes far less time.
    return keystream_seconds(len(case.values))


@with_ratios("time_privatize_and_estimate", floor=_floor)
class PrivatizeReals:
    """Reports of gradient-like values, which are mostly small."""

    param_names = ("impl",)
    params = (("fastfedrec_piecewise", "fastfedrec_hybrid", "numpy_piecewise"),)

    def setup(self, impl):
        self.mechanism = Hybrid(EPSILON) if impl.endswith("hybrid") else Piecewise(EPSILON)
        self.run = self._numpy if impl.startswith("numpy") else self._fastfedrec
        self.values = np.clip(np.random.default_rng(1).normal(0.05, 0.3, 1_000_000), -1, 1)
        error = np.mean(self.run(self.values)) - np.mean(self.values)
        stddev = math.sqrt(max(self.mechanism.variance(t) for t in (0.0, 1.0)) / len(self.values))
        if abs(error) > 6 * stddev:
            raise AssertionError(f"{impl} gives a mean that is off by {error:.5f}")

    def time_privatize_and_estimate(self, impl):
        self.run(self.values)

    def _fastfedrec(self, values):
        return self.mechanism.estimate(self.mechanism.privatize(values, key=Key.from_seed(0), n_threads=1))

    def _numpy(self, values):
        # Algorithm 2 of Wang et al. 2019 in doubles, where low digits may reveal more than the guarantee allows.
        rng, half = np.random.Generator(np.random.PCG64(0)), math.exp(EPSILON / 2)
        width = (half + 1) / (half - 1)
        window_start = (width + 1) / 2 * values - (width - 1) / 2
        is_in_window = rng.random(len(values)) < half / (half + 1)
        position = rng.random(len(values))
        outside = -width + position * (width + 1)  # the range without the window
        outside += np.where(outside < window_start, 0.0, width - 1)
        return np.where(is_in_window, window_start + position * (width - 1), outside)
