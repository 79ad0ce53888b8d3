"""The server's part of DPGram after the noise: the rotation-invariant estimate of a matrix of pairs, two threads."""

import numpy as np

from fastfedrec.systems.gram.shrinkage import denoise_pairs


class DenoisePairs:
    """100 directions of falling strength under noise: all eigenvectors of 1,000 items, and 320 of 4,000."""

    param_names = ("n_items",)
    params = ((1_000, 4_000),)

    def setup(self, n_items):
        rng = np.random.default_rng(1)
        taste = rng.normal(size=(n_items, 100)) * np.linspace(2, 0.3, 100) / n_items**0.25
        upper = np.triu(rng.normal(size=(n_items, n_items)), 1)
        self.matrix = (taste @ taste.T + upper + upper.T).astype(np.float32)
        clean, found = taste @ taste.T, self._denoise()
        if np.linalg.norm(found @ found.T - clean) > 0.8 * np.linalg.norm(clean):
            raise AssertionError("the estimate is not near the clean matrix")

    def time_denoise_pairs(self, n_items):
        self._denoise()

    peakmem_denoise_pairs = time_denoise_pairs

    def _denoise(self):
        return denoise_pairs(self.matrix, 1.0, n_threads=2)
