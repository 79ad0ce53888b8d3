"""DPGram's rounds of columns: the users' sums, and the server's pooling of the answer; 1,000 items."""

import copy

import numpy as np

from benches.generated import thousand_items
from fastfedrec import Key
from fastfedrec.systems._noisy_sum import layered_noise
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.gram.columns import N_COLUMNS, next_encoder
from fastfedrec.systems.gram.dp_gram_rounds import CrossSum
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.pooled import PooledPairs
from fastfedrec.systems.projection_rounds import SubspaceState

N_ITEMS, RANK = 1_000, 320


def _factors():
    """Return orthogonal columns with decreasing norms."""
    vectors = np.linalg.qr(np.random.default_rng(1).normal(size=(N_ITEMS, RANK)))[0]
    return vectors * np.geomspace(100.0, 1.0, RANK)


class Sums:
    """Sums of 20,000 users with 93 items each on two threads, for an encoder with a quarter or all of its columns."""

    param_names = ("n_used",)
    params = ((10, N_COLUMNS),)

    def setup(self, n_used):
        self.data = thousand_items(20_000)
        encoder = next_encoder(_factors(), N_COLUMNS, 0.0)
        encoder[:, n_used:] = 0
        self.state = SubspaceState(np.full(N_ITEMS, 20, dtype=np.int32), encoder)
        self.system = CrossSum(layered_noise(2.0**40, ""), Key.from_seed(1), 0.0, 0)

    def time_sums(self, n_used):
        self.system._sums(self.state, self.data, self.system.key, 2)


class Pooling:
    """Pooling of a round of 40 columns with pairs and an earlier round."""

    def setup(self):
        true, noise = _factors(), np.triu(np.random.default_rng(2).normal(size=(N_ITEMS, N_ITEMS)), 1)
        values = (true @ true.T + noise + noise.T).astype(np.float32)
        np.fill_diagonal(values, 0.0)
        pairs = PairMatrix(values, 1.0, np.ones(N_ITEMS))
        self.estimate = PooledPairs(pairs, PairForm.of(np.full(N_ITEMS, 0.01), 20_000), 20_000, None, 2)
        self.encoder = next_encoder(self.estimate.directions, N_COLUMNS, 0.0)
        self.sums = 1e-3 * true @ (true.T @ self.encoder)
        self.estimate.add(self.sums, self.encoder, 1.0)

    def time_add(self):
        # A shallow copy suffices, since `add` replaces arrays.
        copy.copy(self.estimate).add(self.sums, self.encoder, 1.0)
