"""The decisions of DPGram, by devices, and of ShuffledSketchGram, by splitting the noise."""

import numpy as np

from fastfedrec import Key, datasets
from fastfedrec.systems._noisy_sum import layered_noise
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.gram.decision import choose_candidate
from fastfedrec.systems.gram.shrinkage import denoise_pairs
from fastfedrec.systems.measurement import HitSum, MeasurementState, candidates_with

N_USERS, N_ITEMS, N_FACTORS = 16_000, 1_000, 96


class Measurement:
    """Ranks of one of 1,000 items for each of 16,000 users, by popularity, noisy popularity and six models."""

    params = ((1, 2),)
    param_names = ("n_threads",)

    def setup(self, n_threads):
        key = Key.from_seed(1)
        self.data = datasets.generate_implicit(N_USERS, N_ITEMS, key=key, mean_interactions=30)
        popularity = key.uniform("popularity", size=N_ITEMS)
        factors = key.normal("factors", size=N_ITEMS * N_FACTORS).reshape(N_ITEMS, N_FACTORS).astype(np.float32)
        self.state = MeasurementState(factors, popularity, popularity, popularity + 1, np.ones(1))
        self.system = HitSum(layered_noise(2.0**40, ""), key, 0.0, 0, 1, candidates_with("auto"))

    def time_sums(self, n_threads):
        self.system._sums(self.state, self.data, self.system.key, n_threads)


class NoiseSplitting:
    """All candidates on both halves of a noisy matrix of 1,000 items with 30 directions."""

    def setup(self):
        key = Key.from_seed(2)
        taste = key.normal("taste", size=30 * N_ITEMS).reshape(N_ITEMS, 30)
        noise = np.triu(key.normal("noise", size=N_ITEMS**2).reshape(N_ITEMS, N_ITEMS), 1)
        # Noise is symmetric, with standard deviation 1 off the diagonal.
        values = (taste @ taste.T + noise + noise.T).astype(np.float32)
        np.fill_diagonal(values, 0)
        self.pairs = PairMatrix(values, 1.0, np.full(N_ITEMS, 60.0))

    def time_choose(self):
        choose_candidate(self.pairs, {"pairs": lambda matrix, noise: denoise_pairs(matrix, noise, n_threads=1)})
