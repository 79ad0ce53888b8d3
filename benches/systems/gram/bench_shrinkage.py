"""The server's rotation-invariant estimate of a noisy matrix of pairs in DPGram; two threads."""

import numpy as np

from fastfedrec.systems.gram.shrinkage import denoise_pairs


class DenoisePairs:
    """Estimate of 100 noisy directions, with all eigenvectors of 1,000 items, or 320 of 4,000 items."""

    param_names = ("n_items",)
    params = ((1_000, 4_000),)

    def setup(self, n_items):
        rng = np.random.default_rng(1)
        taste = rng.normal(size=(n_items, 100)) * np.linspace(2, 0.3, 100) / n_items**0.25
        # The noise is symmetric with an empty diagonal.
        upper = np.triu(rng.normal(size=(n_items, n_items)), 1)
        self.matrix = (taste @ taste.T + upper + upper.T).astype(np.float32)
        clean, estimate = taste @ taste.T, self._denoise()
        if np.linalg.norm(estimate @ estimate.T - clean) > 0.8 * np.linalg.norm(clean):
            raise AssertionError("the estimate is not near the clean matrix")

    def time_denoise_pairs(self, n_items):
        self._denoise()

    peakmem_denoise_pairs = time_denoise_pairs

    def _denoise(self):
        return denoise_pairs(self.matrix, 1.0, n_threads=2)
