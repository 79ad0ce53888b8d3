"""The parts of the baselines that take time: contributed counts, exact noise, co-counts; one thread."""

import math

import numpy as np
import scipy.sparse

from benches.floors import floor_seconds
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Interactions, Key, hardware
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.mechanisms import BinaryResponse, DiscreteLaplace
from fastfedrec.systems.dplcf import sum_answers


def random_interactions(n_users, n_items, density):
    matrix = scipy.sparse.random_array((n_users, n_items), density=density, rng=np.random.default_rng(1), format="csr")
    return Interactions.from_scipy(matrix).binarize()


@with_ratios("time_draw", floor=lambda case: keystream_seconds(10_000))  # a word a draw
class DiscreteLaplaceNoise:
    """10,000 draws at scale 10."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy", "diffprivlib", "opendp"),)

    def setup(self, impl):
        self.run = getattr(self, f"_{impl}")
        try:
            draws = np.asarray(self.run())
        except ImportError:
            raise NotImplementedError(f"{impl} is not installed") from None
        # The fourth moment of a Laplace law is 6 times its squared variance: relative error of the variance.
        if abs(draws.var() / DiscreteLaplace(10).variance - 1) > 6 * math.sqrt(5 / len(draws)):
            raise AssertionError(f"{impl} draws noise of variance {draws.var():.1f}")

    def time_draw(self, impl):
        self.run()

    def _fastfedrec(self):
        return DiscreteLaplace(10).sample(10_000, key=Key.from_seed(0), purpose="bench")

    def _numpy(self):
        # The difference of two geometric numbers from doubles: not exact, and the fastest there is.
        return np.subtract(*np.random.Generator(np.random.PCG64(0)).geometric(-math.expm1(-0.1), size=(2, 10_000)))

    def _diffprivlib(self):
        from diffprivlib.mechanisms import Geometric

        mechanism = Geometric(epsilon=0.1, sensitivity=1, random_state=0)
        return [mechanism.randomise(0) for _ in range(10_000)]

    def _opendp(self):
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return dp.m.make_laplace(*space, scale=10.0)([0] * 10_000)


def _sum_floor(case):
    """A word an answer, or the products of all pairs of items, each pair once: whichever takes longer."""
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
        # Two bits of 0.12 are equal with probability 1 - 2 * 0.12 * 0.88; each answer tells of it by 1 / decoder.
        expected = 6_040 * (1 - 4 * 0.12 * 0.88) / self.channel.decoder**2
        if abs(gram[~np.eye(1_000, dtype=bool)].mean() / expected - 1) > 0.01:
            raise AssertionError(f"{impl} gives other co-counts")

    def time_sum(self, impl):
        self.run()

    def _fastfedrec(self):
        return sum_answers(self.data, Key.from_seed(0), self.channel, n_threads=1)

    def _numpy(self):
        # All users at once, in double precision where NumPy draws it.
        truth = math.exp(2.5) / (1 + math.exp(2.5))
        flip = np.random.Generator(np.random.PCG64(0)).random(self.data.shape) >= truth
        answers = np.where((self.data.to_scipy().toarray() > 0) ^ flip, np.float32(1), np.float32(-1))
        with one_blas_thread():
            return answers.sum(axis=0), answers.T @ answers
