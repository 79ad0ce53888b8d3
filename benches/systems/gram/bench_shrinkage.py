"""The server's rotation-invariant estimate of a noisy matrix of pairs in DPGram; two threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy

from benches.floors import floor_seconds
from benches.ratios import with_ratios
from fastfedrec import hardware
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.systems.gram.shrinkage import denoise_pairs, shrink_eigenvalues

N_ITEMS, N_PASSES = 1_000, 3


def _noisy(n_items):
    """Return a matrix of 100 directions with symmetric noise and an empty diagonal, and the clean matrix."""
    rng = np.random.default_rng(1)
    taste = rng.normal(size=(n_items, 100)) * np.linspace(2, 0.3, 100) / n_items**0.25
    upper = np.triu(rng.normal(size=(n_items, n_items)), 1)
    return (taste @ taste.T + upper + upper.T).astype(np.float32), taste @ taste.T


def _floor(case):
    # For each of two matrices: 4/3 n^3 for three diagonals, and 2 n^3 for products of its reflections with n vectors.
    return floor_seconds(hardware.instruction_set(), flops=2 * N_PASSES * (4 / 3 + 2) * N_ITEMS**3)


def _fastfedrec(matrix):
    factors = denoise_pairs(matrix, 1.0, rank=N_ITEMS, n_threads=1)
    return factors @ factors.T


def _scipy(matrix):
    estimate, ones = np.zeros_like(matrix), np.ones(N_ITEMS)
    for _ in range(N_PASSES):
        matrix = matrix.copy()
        np.fill_diagonal(matrix, estimate.diagonal())
        values, vectors = scipy.linalg.eigh(matrix, overwrite_a=True, check_finite=False, driver="evd")
        shrunk = shrink_eigenvalues(values.astype(np.float64), ones, 1.0)
        estimate = (vectors * shrunk.astype(np.float32)) @ vectors.T
    return estimate


@with_ratios("time_both", floor=_floor, threads=2)
class BothEstimates:
    """Estimates of two matrices of 1,000 items on two Python threads; `scipy.linalg.eigh` lets one thread run."""

    param_names = ("impl",)
    params = (("fastfedrec", "scipy"),)

    def setup(self, impl):
        self.run = _fastfedrec if impl == "fastfedrec" else _scipy
        self.matrix, clean = _noisy(N_ITEMS)
        if np.linalg.norm(self.run(self.matrix) - clean) > 0.8 * np.linalg.norm(clean):
            raise AssertionError("the estimate is not near the clean matrix")

    def time_both(self, impl):
        with one_blas_thread(), ThreadPoolExecutor(2) as pool:
            for _ in pool.map(self.run, [self.matrix] * 2):
                pass


class DenoisePairs:
    """Estimate of 100 noisy directions, with all eigenvectors of 1,000 items, or 320 of 4,000 items."""

    param_names = ("n_items",)
    params = ((1_000, 4_000),)

    def setup(self, n_items):
        self.matrix, clean = _noisy(n_items)
        estimate = self._denoise()
        if np.linalg.norm(estimate @ estimate.T - clean) > 0.8 * np.linalg.norm(clean):
            raise AssertionError("the estimate is not near the clean matrix")

    def time_denoise_pairs(self, n_items):
        self._denoise()

    peakmem_denoise_pairs = time_denoise_pairs

    def _denoise(self):
        return denoise_pairs(self.matrix, 1.0, n_threads=2)
