"""The slow parts of the baselines: exact noise and co-counts; one thread."""

import math

import numpy as np

from benches.floors import floor_seconds
from benches.generated import random_interactions
from benches.mechanisms.noise import bench_integer_noise
from benches.ratios import keystream_seconds, peer, with_ratios
from fastfedrec import Key, hardware
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.mechanisms import BinaryResponse, DiscreteLaplace
from fastfedrec.systems.dplcf import sum_answers


@with_ratios("time_draw", floor=lambda case: keystream_seconds(10_000))  # each draw takes a word
class DiscreteLaplaceNoise:
    """10,000 draws at scale 10."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy", "diffprivlib", "opendp"),)

    def setup(self, impl):
        self.run = getattr(self, f"_{impl}")
        with peer(impl):
            draws = np.asarray(self.run())
        # The fourth moment of a Laplace distribution is 6 times its squared variance, which gives the tolerance.
        if abs(draws.var() / DiscreteLaplace(10).variance - 1) > 6 * math.sqrt(5 / len(draws)):
            raise AssertionError(f"{impl} draws noise of variance {draws.var():.1f}")

    def time_draw(self, impl):
        self.run()

    def _fastfedrec(self):
        return DiscreteLaplace(10).sample(10_000, key=Key.from_seed(0), purpose="bench")

    def _numpy(self):
        # The difference of two geometric numbers from doubles is fast, and not exact.
        return np.subtract(*np.random.Generator(np.random.PCG64(0)).geometric(-math.expm1(-0.1), size=(2, 10_000)))

    def _diffprivlib(self):
        return bench_integer_noise._diffprivlib(np.zeros(10_000, dtype=np.int64), "laplace")

    def _opendp(self):
        return bench_integer_noise._opendp(np.zeros(10_000, dtype=np.int64), "laplace")


def _sum_floor(case):
    # Each answer takes a word, and each pair of items takes a product for each user; the larger time counts.
    n_users, n_items = case.data.shape
    products = floor_seconds(hardware.instruction_set(), flops=n_users * n_items * (n_items + 1))
    return max(keystream_seconds(n_users * n_items), products)


@with_ratios("time_sum", floor=_sum_floor)
class SumAnswers:
    """Co-counts of the randomized bits of 6,040 users and 1,000 items."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data = random_interactions(6_040, 1_000, 0.12)
        self.channel = BinaryResponse(2.5)
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        _, gram = self.run()
        # Two bits of 0.12 are equal with probability 1 - 2 * 0.12 * 0.88, and each answer has the bias 1 / decoder.
        expected = 6_040 * (1 - 4 * 0.12 * 0.88) / self.channel.decoder**2
        if abs(gram[~np.eye(1_000, dtype=bool)].mean() / expected - 1) > 0.01:
            raise AssertionError(f"{impl} gives other co-counts")

    def time_sum(self, impl):
        self.run()

    def _fastfedrec(self):
        return sum_answers(self.data, Key.from_seed(0), self.channel, n_threads=1)

    def _numpy(self):
        # All users at once, with NumPy's draws in double precision.
        truth = math.exp(2.5) / (1 + math.exp(2.5))
        flip = np.random.Generator(np.random.PCG64(0)).random(self.data.shape) >= truth
        answers = np.where((self.data.to_scipy().toarray() > 0) ^ flip, np.float32(1), np.float32(-1))
        with one_blas_thread():
            return answers.sum(axis=0), answers.T @ answers
